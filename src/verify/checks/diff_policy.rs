//! Bounds on what the run changed.
//!
//! A change set that cannot be read is a failure with its reason, never an empty one.

use super::{Context, Outcome, Repository, blocking, log_name, or_cancelled};
use crate::{
    git::{Change, ChangeKind, ChangeSet},
    verify::{Error, capture, paths},
};

/// Paths named in the one-sentence answer.
const NAMED_MAX: usize = 5;
/// Lines of the change set shown as the end of the answer.
const SHOWN_MAX: usize = 40;
/// Lines of the change set kept in the log; a change set is a list of paths, not a patch.
const LOG_LINES_MAX: usize = 20_000;

/// The fields of the check.
pub(super) struct Asked<'a> {
    /// Names the log.
    pub id: &'a str,
    /// Most changed files.
    pub max_files: Option<u64>,
    /// Most added plus removed lines.
    pub max_lines: Option<u64>,
    /// Prefixes nothing may lie under.
    pub forbid_paths: &'a [String],
    /// Prefixes something must lie under.
    pub require_paths: &'a [String],
}

pub(super) async fn run(asked: &Asked<'_>, context: &mut Context<'_>) -> Result<Outcome, Error> {
    let repo = match context.repo {
        Repository::Found(repo) => repo,
        Repository::None => {
            let detail = "not a git repository, so what changed cannot be known; run it inside one";
            return Ok(Outcome::not_run(detail));
        }
        Repository::Unreadable(reason) => return Ok(Outcome::not_run(format!("what changed is not known: {reason}"))),
    };
    let set = match or_cancelled(context.cancel, repo.changes(context.baseline)).await? {
        Ok(set) => set,
        Err(error) => return Ok(Outcome::not_run(format!("what changed is not known: {error}"))),
    };
    let broken = judge(asked, &set, repo.prefix());
    let counted = format!("{} files changed, {} lines", set.changes.len(), set.lines);
    if broken.is_empty() {
        return Ok(Outcome::passed(counted));
    }
    let detail = format!("{}; {counted}", broken.join("; "));
    let mut lines: Vec<String> = set.changes.iter().take(LOG_LINES_MAX).map(line).collect();
    let over = set.changes.len().saturating_sub(LOG_LINES_MAX);
    if over > 0 {
        lines.push(format!("and {over} more"));
    }
    let (redactor, head) = (context.verifier.redactor.clone(), detail.clone());
    let hidden = blocking(move || {
        let shown: Vec<&str> = lines.iter().take(SHOWN_MAX).map(String::as_str).collect();
        (redactor.text(&shown.join("\n")), redactor.text(&format!("{head}\n\n{}\n", lines.join("\n"))))
    });
    let (tail, log) = hidden.await.unwrap_or_default();
    Ok(Outcome {
        tail: Some(tail).filter(|t| !t.is_empty()),
        files: vec![(log_name(asked.id), log.into_bytes())],
        ..Outcome::failed(detail)
    })
}

/// Every bound that is broken, in words.
fn judge(asked: &Asked<'_>, set: &ChangeSet, below: &str) -> Vec<String> {
    let mut broken = Vec::new();
    let files = set.changes.len() as u64;
    if let Some(max) = asked.max_files.filter(|max| files > *max) {
        broken.push(format!("{files} files changed, at most {max} may"));
    }
    if let Some(max) = asked.max_lines.filter(|max| set.lines > *max) {
        broken.push(format!("{} lines changed, at most {max} may", set.lines));
    }
    let under = |prefixes: &[String], path: &str| {
        let relative = below_of(below, path);
        prefixes.iter().any(|p| paths::covers(p, path) || relative.is_some_and(|r| paths::covers(p, r)))
    };
    let touched = set.changes.iter().flat_map(|c| [Some(&c.path), c.old_path.as_ref()]).flatten();
    let forbidden: Vec<&String> = touched.filter(|p| under(asked.forbid_paths, p)).collect();
    if !forbidden.is_empty() {
        let names: Vec<String> = forbidden.iter().take(NAMED_MAX).map(|p| show(p)).collect();
        let more = if forbidden.len() > NAMED_MAX { ", …" } else { "" };
        broken.push(format!("{} forbidden paths changed: {}{more}", forbidden.len(), names.join(", ")));
    }
    if !asked.require_paths.is_empty() && !set.changes.iter().any(|c| under(asked.require_paths, &c.path)) {
        broken.push(format!("nothing changed under {}", asked.require_paths.join(", ")));
    }
    broken
}

/// `path` relative to the checks' directory, when it lies below it.
fn below_of<'a>(below: &str, path: &'a str) -> Option<&'a str> {
    if below.is_empty() { None } else { path.strip_prefix(below)?.strip_prefix('/') }
}

/// A path for a sentence: control characters escaped.
fn show(path: &str) -> String {
    let safe: String =
        path.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect();
    capture::keep_end(&safe, 300)
}

fn line(change: &Change) -> String {
    let kind = match change.kind {
        ChangeKind::Created => "created ",
        ChangeKind::Modified => "modified",
        ChangeKind::Deleted => "deleted ",
        ChangeKind::Renamed => "renamed ",
    };
    match &change.old_path {
        Some(old) => format!("{kind} {} <- {}", show(&change.path), show(old)),
        None => format!("{kind} {}", show(&change.path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, old: Option<&str>) -> Change {
        let kind = if old.is_some() { ChangeKind::Renamed } else { ChangeKind::Modified };
        Change { path: path.into(), old_path: old.map(Into::into), kind }
    }

    fn broken(forbid: &[&str], require: &[&str], max: Option<u64>, changes: Vec<Change>, below: &str) -> Vec<String> {
        let (forbid, require): (Vec<String>, Vec<String>) =
            (forbid.iter().map(ToString::to_string).collect(), require.iter().map(ToString::to_string).collect());
        let asked =
            Asked { id: "d", max_files: max, max_lines: Some(10), forbid_paths: &forbid, require_paths: &require };
        judge(&asked, &ChangeSet { changes, lines: 10 }, below)
    }

    /// Acceptance scenario 10: whole segments, both ends of a rename, paths from the top and from below.
    #[test]
    fn prefixes_are_matched_from_the_top_and_from_the_directory() {
        let none: [String; 0] = [];
        assert_eq!(broken(&["src"], &["srcfoo"], Some(1), vec![change("srcfoo/a.ts", None)], ""), none);
        assert_eq!(broken(&["secret"], &[], None, vec![change("b", Some("secret/a"))], "").len(), 1);
        assert_eq!(broken(&["src"], &[], None, vec![change("pkg/src/a", None)], "pkg").len(), 1);
        assert_eq!(broken(&["src"], &[], None, vec![change("pkgs/src/a", None)], "pkg"), none);
        assert_eq!(broken(&["pkg/src"], &[], None, vec![change("pkg/src/a", None)], "pkg").len(), 1);
        assert_eq!(broken(&[], &["."], None, vec![], "").len(), 1);
        assert_eq!(broken(&[], &["."], None, vec![change("é\n", None)], ""), none);
        assert_eq!(broken(&[], &[], Some(0), vec![change("a", None)], "").len(), 1);
        assert!(broken(&["é"], &[], None, vec![change("é/a\nb", None)], "")[0].contains("a\\nb"));
    }
}
