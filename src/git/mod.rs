//! Repositories: what changed, what the tree is, snapshots under refs of ours, worktrees.
//!
//! Working trees go through the git program, refs and objects through `git2` where it can open the
//! repository. The user's HEAD, index, branches, stash and config are never changed and no content that
//! a ref reaches is ever deleted. Knows nothing of runs beyond the ref names it is given.

use std::{path::PathBuf, sync::Arc};

use crate::{model::run::Baseline, sys::Fs};

/// Why git did not answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The git program is missing or does not start.
    #[error("failed to run git: {0}")]
    Program(#[from] crate::sys::command::Error),
    /// git said no.
    #[error("failed to {what} in {}: {stderr}", repo.display())]
    Failed {
        /// What was tried, as a verb phrase.
        what: &'static str,
        /// Which repository.
        repo: PathBuf,
        /// End of what git printed.
        stderr: String,
    },
    /// The commit a change set should be counted from is gone.
    #[error("commit {0} is no longer in the repository; its history was rewritten")]
    BaseGone(String),
    /// Reading a file of the working tree failed.
    #[error(transparent)]
    Fs(#[from] crate::sys::FsError),
    /// git answered something unexpected.
    #[error("failed to read git's answer to {what}: {reason}")]
    Answer {
        /// Which question.
        what: &'static str,
        /// What is odd.
        reason: String,
    },
}

/// Result of a git operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Opens repositories.
#[derive(Debug, Clone)]
pub struct Git {
    /// All file access.
    pub fs: Arc<dyn Fs>,
    /// The git program.
    pub program: PathBuf,
}

/// A working tree. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Repo {
    _git: Git,
    top: PathBuf,
}

/// How a path changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// New, untracked included.
    Created,
    /// Contents or mode.
    Modified,
    /// Gone.
    Deleted,
    /// Moved from `old_path`.
    Renamed,
}

/// One changed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Relative to the repository's top; invalid UTF-8 is replaced for show, matching uses the bytes' lossy form.
    pub path: String,
    /// Where it came from, for a rename.
    pub old_path: Option<String>,
    /// How.
    pub kind: ChangeKind,
}

/// What differs between a baseline and the working tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangeSet {
    /// Sorted by path.
    pub changes: Vec<Change>,
    /// Added plus removed lines; binary files count one line each.
    pub lines: u64,
}

/// A stored state of the working tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The commit under the ref.
    pub commit: String,
    /// Its tree.
    pub tree: String,
    /// Untracked files over the size limit, listed and not stored.
    pub skipped: Vec<String>,
}

/// Where a snapshot is brought back to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreTo {
    /// A directory that does not exist yet.
    Directory(PathBuf),
    /// A branch that does not exist yet.
    Branch(String),
}

impl Git {
    /// The repository whose working tree holds `dir`; `None` outside git and in a bare repository.
    pub async fn open(&self, dir: &std::path::Path) -> Result<Option<Repo>> {
        let _ = dir;
        todo!("helper: git")
    }

    /// Version of the program, for example `2.47.3`.
    pub async fn version(&self) -> Result<String> {
        todo!("helper: git")
    }
}

impl Repo {
    /// Top of the working tree.
    pub fn top(&self) -> &std::path::Path {
        &self.top
    }

    /// Path of the opened directory below the top, with `/` and without a trailing one; empty at the top.
    pub fn prefix(&self) -> &str {
        todo!("helper: git")
    }

    /// Commit of HEAD; `None` before the first commit.
    pub async fn head(&self) -> Result<Option<String>> {
        todo!("helper: git")
    }

    /// Digest of the content: HEAD's commit, every difference to it, and path, mode and bytes of every
    /// untracked, unignored file. Touching a file changes nothing; changing a byte does. `sha256:<hex>`.
    pub async fn digest(&self) -> Result<String> {
        todo!("helper: git")
    }

    /// What differs from the baseline: diff from its commit to the working tree, commits made meanwhile
    /// included, plus untracked files, minus what differed in the same way when the baseline was taken.
    pub async fn changes(&self, base: &Baseline) -> Result<ChangeSet> {
        let _ = base;
        todo!("helper: git")
    }

    /// The same difference as a patch git can apply to the baseline, created and binary files included.
    pub async fn patch(&self, base: &Baseline) -> Result<Vec<u8>> {
        let _ = base;
        todo!("helper: git")
    }

    /// Stores tracked and untracked, unignored files as a commit under `refname` (parent: HEAD) through an
    /// index of its own. Nothing of the user's changes.
    pub async fn snapshot(&self, refname: &str, message: &str) -> Result<Snapshot> {
        let _ = (refname, message);
        todo!("helper: git")
    }

    /// Brings a stored state back, never over something that exists.
    pub async fn restore(&self, refname: &str, to: &RestoreTo) -> Result<()> {
        let _ = (refname, to);
        todo!("helper: git")
    }

    /// Refs below `prefix` with their commits.
    pub async fn refs(&self, prefix: &str) -> Result<Vec<(String, String)>> {
        let _ = prefix;
        todo!("helper: git")
    }

    /// Deletes the refs below `prefix` (it must start with `refs/clawo/`).
    pub async fn delete_refs(&self, prefix: &str) -> Result<()> {
        let _ = prefix;
        todo!("helper: git")
    }

    /// Makes a worktree of HEAD at `path` on the new branch `branch`.
    pub async fn worktree_add(&self, path: &std::path::Path, branch: &str) -> Result<Repo> {
        let _ = (path, branch);
        todo!("helper: git")
    }

    /// Commits everything in a worktree of ours to its branch, without hooks and with our own identity.
    /// `None` when there is nothing to commit.
    pub async fn commit_all(&self, message: &str) -> Result<Option<String>> {
        let _ = message;
        todo!("helper: git")
    }

    /// Removes a worktree of ours that holds nothing uncommitted; its branch stays.
    pub async fn worktree_remove(&self, path: &std::path::Path) -> Result<()> {
        let _ = path;
        todo!("helper: git")
    }
}
