//! Where the worktrees and branches of a node's visit lie, and how they are called.
//!
//! Written on the record before anything is made in the repository, so that whatever dies, its names are known.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::{git::Repo, model::RunId, nodes::council::data::WORKTREES};

/// Key of the document in a node's data.
pub const LAYOUT: &str = "layout";
/// Hexadecimal digits of a short id; more when the shorter one is taken.
const DIGITS: [usize; 3] = [8, 12, 16];

/// Whose worktrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Several agents of a fan-out.
    Fanout,
    /// The agent of an agent node.
    Agent,
}

impl Kind {
    /// First part of the branches' names.
    pub fn word(self) -> &'static str {
        match self {
            Self::Fanout => "fanout",
            Self::Agent => "agent",
        }
    }
}

/// Where the agents of one visit work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Layout {
    /// Whose.
    pub kind: Kind,
    /// Part of the names of branches and folders.
    pub short_id: String,
    /// Top of the work tree that holds the project.
    pub top: String,
    /// The project's folder below the top; empty at the top.
    pub prefix: String,
    /// Branch that was checked out.
    pub base_branch: String,
    /// Its commit, at which all begin.
    pub base_commit: String,
    /// Names of the agents in their order.
    pub agents: Vec<String>,
    /// What whoever started it should know.
    #[serde(default)]
    pub warnings: Vec<String>,
}

impl Layout {
    /// Branch of an agent.
    pub fn branch(&self, agent: &str) -> String {
        format!("{}/{}/{agent}", self.kind.word(), self.short_id)
    }

    /// The branch's full name.
    pub fn refname(&self, agent: &str) -> String {
        format!("refs/heads/{}", self.branch(agent))
    }

    /// Top of the worktree of an agent.
    pub fn worktree(&self, agent: &str) -> PathBuf {
        self.folder().join(agent)
    }

    /// A place for a temporary worktree. No agent has such a name.
    pub fn aside(&self, what: &str) -> PathBuf {
        self.folder().join(format!(".{what}"))
    }

    /// The folder that holds all of them.
    pub fn folder(&self) -> PathBuf {
        Path::new(&self.top).join(WORKTREES).join(&self.short_id)
    }

    /// The project in the worktree whose top is `top`.
    pub fn project(&self, top: &Path) -> PathBuf {
        if self.prefix.is_empty() { top.to_path_buf() } else { top.join(&self.prefix) }
    }
}

/// Short ids to try for a visit of a node, best first: the end of a generated run id, else a digest of what is unique.
pub fn short_ids(run: &RunId, node: &str, visit: u32) -> Vec<String> {
    let whole = if visit > 1 { format!("{run}-{node}-v{visit}") } else { format!("{run}-{node}") };
    let digest: String = Sha256::digest(whole.as_bytes()).iter().map(|b| format!("{b:02x}")).collect();
    let generated = (node == "main" && visit == 1).then(|| generated_end(run.as_str())).flatten();
    let digests = DIGITS.iter().filter_map(|digits| digest.get(..*digits));
    generated.into_iter().chain(digests).map(str::to_owned).collect()
}

/// The last part of an id such as `fanout-m1abc2de-9f3c1a2b`.
fn generated_end(run: &str) -> Option<&str> {
    let mut parts = run.split('-');
    let (kind, stamp, end) = (parts.next()?, parts.next()?, parts.next()?);
    let good = parts.next().is_none()
        && ["fanout", "ultrareview"].contains(&kind)
        && !stamp.is_empty()
        && stamp.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
        && end.len() == 8
        && end.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    good.then_some(end)
}

/// Whether somebody has branches or a folder of this name already.
///
/// # Errors
/// git failed.
pub async fn is_taken(repo: &Repo, fs: &dyn crate::sys::Fs, short_id: &str) -> crate::git::Result<bool> {
    for kind in ["council", Kind::Fanout.word(), Kind::Agent.word()] {
        if !repo.refs(&format!("refs/heads/{kind}/{short_id}/")).await?.is_empty() {
            return Ok(true);
        }
    }
    match fs.metadata(&repo.top().join(WORKTREES).join(short_id)) {
        Ok(_) => Ok(true),
        Err(e) if e.is_not_found() => Ok(false),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Council 4: a generated id ends in its short id; anything else is hashed, each visit otherwise.
    #[test]
    fn short_ids_come_from_what_is_unique() {
        let run = |text: &str| RunId::parse(text).unwrap();
        let ids = short_ids(&run("fanout-m1abc2de-9f3c1a2b"), "main", 1);
        assert_eq!(ids[0], "9f3c1a2b");
        assert_eq!(ids[1..].iter().map(String::len).collect::<Vec<_>>(), DIGITS);
        for (id, node, visit) in
            [("fanout-m1abc2de-9f3c1a2b", "other", 1), ("fanout-m1abc2de-9f3c1a2b", "main", 2), ("fanout-x", "main", 1)]
        {
            let ids = short_ids(&run(id), node, visit);
            assert_eq!((ids.len(), ids[0].len()), (3, 8), "{id} {node}");
            assert_ne!(ids[0], "9f3c1a2b");
        }
        assert_ne!(short_ids(&run("a"), "n", 1)[0], short_ids(&run("a"), "n", 2)[0]);
    }
}
