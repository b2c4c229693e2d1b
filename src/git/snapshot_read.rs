//! Reading a stored snapshot: which tree it holds and where HEAD was.

use super::{Repo, Result};

/// What a snapshot says about the checkout it was taken of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Tree of tracked and untracked, unignored files.
    pub tree: String,
    /// Commit that HEAD was at; absent before the first commit.
    pub head: Option<String>,
}

impl Repo {
    /// What the snapshot under the ref or commit `rev` holds.
    pub async fn stored(&self, rev: &str) -> Result<Stored> {
        let commit = self.resolve(rev).await?;
        let tree = self.tree_of(&commit).await?;
        let object = self.commit_object(&commit).await?;
        let text = String::from_utf8_lossy(&object);
        // A snapshot's first parent is HEAD; the others are earlier snapshots.
        let head = text.lines().take_while(|line| !line.is_empty()).find_map(|line| line.strip_prefix("parent "));
        Ok(Stored { tree, head: head.map(str::to_owned) })
    }
}
