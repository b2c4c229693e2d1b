//! Agents that Claude Code finds for a directory: Markdown files with a head that names and describes them.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    config::Config,
    sys::{Fs, fs::Kind},
};

/// Most definitions listed; who has more cannot choose among them anyway.
const AGENTS_MAX: usize = 200;
/// Bytes of a file that are read; the head is at its beginning.
const HEAD_MAX: usize = 16 << 10;
/// Longest description, in characters.
const DESCRIPTION_MAX: usize = 200;
/// Directories above the given one that are looked at.
const LEVELS_MAX: usize = 32;
/// Directories below one with definitions that are looked into.
const DEPTH_MAX: usize = 4;

/// A definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentDefinition {
    /// What engineOptions.claude.agent takes.
    pub name: String,
    /// When to use it, shortened.
    pub description: String,
    /// Model of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Tools it is held to, as written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    /// project or user.
    pub source: &'static str,
    /// Its file.
    pub path: String,
}

/// The definitions for `cwd`: those of its project, nearest first, then the user's. Of one name the first counts.
pub fn defined(fs: &dyn Fs, config: &Config, cwd: &Path) -> Vec<AgentDefinition> {
    let set = |name: &str| config.env.get(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let home = set("HOME");
    let user = set("CLAUDE_CONFIG_DIR").or_else(|| home.as_ref().map(|home| home.join(".claude")));
    let mut places = Vec::new();
    for dir in cwd.ancestors().take(LEVELS_MAX).take_while(|dir| Some(*dir) != home.as_deref()) {
        places.push((dir.join(".claude/agents"), "project"));
        if fs.metadata(&dir.join(".git")).is_ok() {
            break;
        }
    }
    places.extend(user.map(|dir| (dir.join("agents"), "user")));
    let mut found = Vec::new();
    for (dir, source) in places {
        collect(fs, &dir, source, DEPTH_MAX, &mut found);
    }
    found
}

fn collect(fs: &dyn Fs, dir: &Path, source: &'static str, depth: usize, found: &mut Vec<AgentDefinition>) {
    for name in fs.list(dir).unwrap_or_default() {
        if found.len() >= AGENTS_MAX {
            return;
        }
        let path = dir.join(name);
        match fs.metadata(&path).map(|meta| meta.kind) {
            Ok(Kind::Dir) if depth > 0 => collect(fs, &path, source, depth - 1, found),
            Ok(Kind::File) if path.extension().is_some_and(|end| end == "md") => {
                let Ok(bytes) = fs.read_range(&path, 0, HEAD_MAX) else { continue };
                let agent = read(&String::from_utf8_lossy(&bytes), source, &path);
                found.extend(agent.filter(|agent| !found.iter().any(|there| there.name == agent.name)));
            }
            Ok(Kind::Dir | Kind::File | Kind::Symlink | Kind::Other) | Err(_) => {}
        }
    }
}

/// A definition out of a file. One without a name and a description is none to the program either.
fn read(text: &str, source: &'static str, path: &Path) -> Option<AgentDefinition> {
    let (head, _) = text.strip_prefix("---")?.split_once("\n---")?;
    let part = |key: &str| {
        let value = head.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?.trim();
        let quoted = ['"', '\''].iter().find_map(|q| value.strip_prefix(*q)?.strip_suffix(*q));
        Some(quoted.unwrap_or(value).to_owned()).filter(|value| !value.is_empty())
    };
    Some(AgentDefinition {
        name: part("name")?,
        description: part("description")?.chars().take(DESCRIPTION_MAX).collect(),
        model: part("model"),
        tools: part("tools"),
        source,
        path: path.display().to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read() {
        let read = |text| read(text, "user", Path::new("/a.md"));
        let agent = read("---\nname: \"rev\"\ndescription: Looks: twice\nmodel: opus\n---\nname: other\n").unwrap();
        assert_eq!((agent.name.as_str(), agent.description.as_str()), ("rev", "Looks: twice"));
        assert_eq!((agent.model.as_deref(), agent.tools), (Some("opus"), None));
        for none in [
            "",
            "---\nname: x\n",
            "name: x\ndescription: y\n",
            "---\nname: x\n---\n",
            "---\nname:\ndescription: y\n---\n",
        ] {
            assert_eq!(read(none), None, "{none}");
        }
    }
}
