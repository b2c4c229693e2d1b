//! How a goal ended, which the program tells only in its own session file.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;

use super::str_of;
use crate::sys::Fs;

/// Bytes at the end of a session file that are looked at; the end of a goal is among its last lines.
const TAIL: u64 = 1 << 20;
/// Most project directories searched for a session file.
const MAX_PROJECTS: usize = 10_000;

/// Where session files lie.
#[derive(Debug)]
pub(crate) struct Transcript {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    /// The directory has one directory for each project.
    projects: Option<PathBuf>,
}

/// The last word of a session file about its goal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Word {
    /// Reached, with the judge's reason.
    Met(String),
    /// Given up, with the judge's reason.
    Failed(String),
    /// Taken away by a command.
    Cleared,
    /// Being followed.
    Open,
}

impl Transcript {
    /// Files of Claude Code, whose configuration is in `config`, for sessions in `cwd`.
    pub(crate) fn of_projects(fs: Arc<dyn Fs>, config: &Path, cwd: &Path) -> Self {
        Self { fs, dir: config.join("projects"), projects: Some(cwd.to_path_buf()) }
    }

    /// Files that lie in one directory.
    pub(crate) fn in_directory(fs: Arc<dyn Fs>, dir: PathBuf) -> Self {
        Self { fs, dir, projects: None }
    }

    /// What the file of session `id` last says about the goal with this condition, or about any; `None` when it says nothing.
    pub(super) fn word(&self, id: &str, condition: Option<&str>) -> Option<Word> {
        let path = self.path(id)?;
        let size = self.fs.metadata(&path).ok()?.len;
        let from = size.saturating_sub(TAIL);
        let bytes = self.fs.read_range(&path, from, usize::try_from(TAIL).unwrap_or(usize::MAX)).ok()?;
        last_word(&bytes, condition)
    }

    fn path(&self, id: &str) -> Option<PathBuf> {
        // An id is part of a path here, so it must not be able to leave its directory.
        if id.is_empty() || !id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
            return None;
        }
        let name = format!("{id}.jsonl");
        let there = |path: PathBuf| self.fs.metadata(&path).is_ok().then_some(path);
        let Some(cwd) = &self.projects else { return there(self.dir.join(name)) };
        let folder: String =
            cwd.to_string_lossy().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        // Long names are shortened in a way of the program's own; the id is unique wherever it lies.
        there(self.dir.join(folder).join(&name)).or_else(|| {
            let folders = self.fs.list(&self.dir).ok()?;
            folders.into_iter().take(MAX_PROJECTS).find_map(|f| there(self.dir.join(f).join(&name)))
        })
    }
}

/// The last word in `bytes` about a goal with this condition.
fn last_word(bytes: &[u8], condition: Option<&str>) -> Option<Word> {
    bytes.rsplit(|b| *b == b'\n').find_map(|line| {
        let value: Value = serde_json::from_slice(line).ok()?;
        let goal = value.get("attachment").filter(|a| str_of(a, "type") == "goal_status")?;
        let flag = |key: &str| super::flag(goal, key);
        // A word about another goal, however late, says that this one's is not written yet.
        if condition.is_some_and(|c| str_of(goal, "condition").trim() != c.trim()) {
            return Some(None);
        }
        let reason = str_of(goal, "reason").to_owned();
        Some(Some(match (flag("met"), flag("sentinel"), flag("failed")) {
            (true, false, _) => Word::Met(reason),
            (true, true, _) => Word::Cleared,
            (false, _, true) => Word::Failed(reason),
            (false, _, false) => Word::Open,
        }))
    })?
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The lines as the real program writes them, among others and cut at the front.
    #[test]
    fn the_last_word_counts() {
        let line = |goal: Value| format!("{}\n", json!({ "type": "attachment", "attachment": goal }));
        let status = |more: Value| {
            let mut goal = json!({ "type": "goal_status", "met": false, "condition": "a\nb" });
            goal.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            line(goal)
        };
        let begun = format!("ut off\"}}\n{}", status(json!({ "sentinel": true })));
        let cases = [
            (begun.clone(), Some(Word::Open)),
            (format!("{begun}{}{{\"type\":\"user\"}}\n", status(json!({ "reason": "no" }))), Some(Word::Open)),
            (format!("{begun}{}", status(json!({ "met": true, "reason": "y" }))), Some(Word::Met("y".into()))),
            (format!("{begun}{}", status(json!({ "failed": true, "reason": "n" }))), Some(Word::Failed("n".into()))),
            (format!("{begun}{}", status(json!({ "met": true, "sentinel": true }))), Some(Word::Cleared)),
            (format!("{begun}{}", status(json!({ "condition": "other", "met": true }))), None),
            (String::new(), None),
        ];
        for (text, word) in cases {
            assert_eq!(last_word(text.as_bytes(), Some(" a\nb ")), word, "{text}");
        }
    }
}
