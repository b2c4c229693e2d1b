//! Repositories: what changed, what the tree is, snapshots under refs of ours, worktrees, merges.
//!
//! Working trees go through the git program, refs and objects through `git2` where it can open the
//! repository. The user's HEAD, index, branches, stash and config are never changed, save by a landing that
//! was asked for, and no content that a ref reaches is ever deleted. Knows nothing of runs beyond the ref names it is given.

mod bisect;
mod changes;
mod cli;
mod copy;
mod differences;
mod digest;
mod edit;
mod hidden;
mod history;
mod hunks;
mod landing;
mod lock;
mod merge;
mod open;
mod read;
mod refs;
mod restore;
mod scan;
mod scratch;
mod settle;
mod snapshot;
mod snapshot_read;
mod stale;
mod standing;
mod state;
mod worktree;

use std::{path::PathBuf, sync::Arc};

use crate::sys::Fs;

pub use copy::HEAD;
pub use differences::Difference;
pub use digest::Listed;
pub use landing::{LandKind, LandRefusal, LandRequest, Landing, Strategy};
pub use lock::RepoLock;
pub use merge::{MergedIn, Unmerged, UnmergedKind};
pub use settle::OpenMerge;
pub use standing::{Dirty, Standing, Unfit};
pub use worktree::At;

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
    /// Somebody else is changing the repository and does not come to an end.
    #[error("{} is being changed by another run for {seconds} s; try again later", repo.display())]
    Busy {
        /// Which repository.
        repo: PathBuf,
        /// How long it was waited for.
        seconds: u64,
    },
    /// A ref is not where it was when its move was decided on.
    #[error("{refname} in {} is at {} by now", repo.display(), found.as_deref().unwrap_or("no commit"))]
    Moved {
        /// Which repository.
        repo: PathBuf,
        /// Full name of the ref.
        refname: String,
        /// Where it is; `None` when there is no such ref.
        found: Option<String>,
    },
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
    git: Git,
    /// Git's folder of this working tree.
    git_dir: PathBuf,
    /// Git's folder of the repository; another one in a linked worktree.
    common_dir: PathBuf,
    top: PathBuf,
    prefix: String,
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

/// What changed, as git can apply it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Patch {
    /// The patch; empty when nothing it can hold changed.
    pub bytes: Vec<u8>,
    /// Paths that changed and are not in it.
    pub left_out: Vec<String>,
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
