//! Bringing a worktree of ours to a known state: forward, back, onto its branch, out of a half-done operation.
//!
//! Refused outside worktrees of ours, and wherever content would go that is stored nowhere else.

use super::{
    Error, Repo, Result, cli,
    refs::{HEADS, is_ours},
    scan::{self, Bytes},
    scratch::{Objects, Scratch, Untracked},
    snapshot::LARGE,
    standing::{BISECT, WORKTREES},
};
use crate::{model::run::Baseline, sys::command};

const FORWARD: &str = "bring a worktree forward";
const RESET: &str = "reset a worktree";
const ATTACH: &str = "put a worktree on its branch";
const ABORT: &str = "abort an operation";
const MOVE: &str = "update the files";

/// What somebody left half done in a worktree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OpenMerge {
    /// Which operation, as [`Repo::operation`] names it; empty for a conflict without one.
    pub operation: &'static str,
    /// Paths in conflict, sorted.
    pub unmerged: Vec<String>,
    /// The working tree as it is, as a patch to HEAD, conflict marks included. Empty when it would be over
    /// 256 MiB; [`Repo::snapshot`] keeps that too.
    pub patch: Vec<u8>,
    /// HEAD's commit when no ref reaches it. A ref must keep it before the operation can be aborted.
    pub stranded: Option<String>,
}

impl Repo {
    /// Brings the branch of a worktree of ours, its index and files forward to a commit that descends from it.
    /// Nothing uncommitted is overwritten.
    pub async fn fast_forward(&self, commit: &str) -> Result<()> {
        self.must_be_our_worktree(FORWARD).await?;
        if let Some(operation) = self.operation().await? {
            return Err(self.refuse(FORWARD, format!("it is in the middle of a {operation}")));
        }
        let Some(branch) = self.current_branch().await? else {
            return Err(self.refuse(FORWARD, "it is on no branch".to_owned()));
        };
        let (commit, head) = (self.resolve(commit).await?, self.head().await?.unwrap_or_default());
        if commit == head {
            return Ok(());
        }
        if !self.is_ancestor(&head, &commit).await? {
            return Err(self.refuse(FORWARD, format!("{commit} does not descend from its commit {head}")));
        }
        self.move_files(&head, &commit).await?;
        self.swap(&format!("{HEADS}{branch}"), &commit, Some(&head), "fast-forward by clawo").await
    }

    /// Index and files from one commit to another, as a checkout would; HEAD stays. Either all paths that differ
    /// are as in `from`, or nothing is touched and it fails.
    pub(super) async fn move_files(&self, from: &str, to: &str) -> Result<()> {
        let call = || self.git.users_call(&self.top, MOVE).limit(cli::FILES);
        // A file that was only touched must not count as changed. The status says no more than that some are.
        call().args(["update-index", "-q", "--refresh"]).output().await?;
        call().args(["read-tree", "-m", "-u", from, to]).run().await.map(drop)
    }

    /// Puts branch, index and files of a worktree of ours at `commit`: changes go, untracked files go, ignored
    /// ones and untracked ones over 50 MiB stay. Refused unless what is there is also under some ref (as
    /// [`snapshot`](Self::snapshot) stores it) and another ref, or `commit`, reaches HEAD's commit.
    pub async fn reset_to(&self, commit: &str) -> Result<()> {
        self.must_be_our_worktree(RESET).await?;
        let commit = self.resolve(commit).await?;
        let built = {
            let scratch = Scratch::new(self, Objects::Drop).await?;
            self.build(&scratch, Untracked::UpTo(LARGE)).await?
        };
        built.scan.must_be_whole(&self.top)?;
        if !self.is_stored(&built.tree).await? {
            let why = "it holds changes that are stored nowhere; take a snapshot first".to_owned();
            return Err(self.refuse(RESET, why));
        }
        if let Some(head) = self.head().await? {
            let own = self.current_branch().await?.map(|branch| format!("{HEADS}{branch}"));
            if !self.is_ancestor(&head, &commit).await? && !self.is_reached(&head, own.as_deref()).await? {
                return Err(self.refuse(RESET, format!("nothing else reaches its commit {head}; keep that first")));
            }
        }
        self.leave_operation().await?;
        // A flag would let git pass over what is in the file.
        let flagged = |wanted: fn(&scan::Tracked) -> bool| -> Vec<Bytes> {
            built.scan.tracked.iter().filter(|entry| wanted(entry)).map(|entry| entry.path.clone()).collect()
        };
        self.index_call(&[], &["--no-assume-unchanged"], &flagged(|entry| entry.assumed)).await?;
        let skipped = flagged(|entry| entry.skipped);
        if !skipped.is_empty() && !self.is_sparse().await? {
            self.index_call(&[], &["--no-skip-worktree"], &skipped).await?;
        }
        let nested = |path: &Bytes| {
            built
                .scan
                .nested
                .iter()
                .any(|dir| path.strip_prefix(dir.as_slice()).is_some_and(|rest| rest.starts_with(b"/")))
        };
        let gone: Vec<Bytes> =
            built.scan.others.iter().filter(|path| !built.large.contains(path) && !nested(path)).cloned().collect();
        let (fs, top) = (self.git.fs.clone(), self.top.clone());
        scan::blocking(RESET, move || super::merge::remove_files(&*fs, &top, &gone)).await?;
        let call = self.git.users_call(&self.top, RESET).limit(cli::FILES);
        call.args(["reset", "--quiet", "--hard", "--no-recurse-submodules", &commit]).run().await.map(drop)
    }

    /// Makes a branch of ours the one this worktree is on, wherever its HEAD is; index and files stay as they are.
    /// Refused while the branch is checked out elsewhere, in the middle of an operation, and when no ref reaches
    /// the commit HEAD is at.
    pub async fn attach(&self, branch: &str) -> Result<()> {
        self.must_be_linked(ATTACH)?;
        let refname = format!("{HEADS}{branch}");
        if !is_ours(&refname) || self.tip(&refname).await?.is_none() {
            return Err(self.refuse(ATTACH, format!("there is no branch '{branch}' of ours")));
        }
        if self.current_branch().await?.as_deref() == Some(branch) {
            return Ok(());
        }
        if let Some(operation) = self.operation().await? {
            return Err(self.refuse(ATTACH, format!("it is in the middle of a {operation}; end that first")));
        }
        if let Some(other) = self.checked_out(branch).await? {
            return Err(self.refuse(ATTACH, format!("'{branch}' is checked out in {}", other.top.display())));
        }
        if let Some(head) = self.head().await?
            && !self.is_reached(&head, None).await?
        {
            return Err(self.refuse(ATTACH, format!("no ref reaches its commit {head}; keep that first")));
        }
        let call = self.git.call(&self.top, ATTACH).limit(cli::QUICK);
        call.args(["symbolic-ref", "-m", "checkout: by clawo", "HEAD", &refname]).run().await.map(drop)
    }

    /// A merge, rebase, cherry-pick, revert, bisection or conflict that was left half done in a worktree of ours.
    pub async fn open_merge(&self) -> Result<Option<OpenMerge>> {
        self.must_be_linked("look for an open merge")?;
        let (operation, unmerged) = (self.operation().await?, self.unmerged().await?);
        if operation.is_none() && unmerged.is_empty() {
            return Ok(None);
        }
        let head = self.head().await?;
        let stranded = match &head {
            Some(head) if !self.is_reached(head, None).await? => Some(head.clone()),
            Some(_) | None => None,
        };
        let patch = match self.patch(&Baseline { base_sha: head, ..Baseline::default() }).await {
            Ok(patch) => patch.bytes,
            Err(Error::Program(command::Error::TooLong { limit, .. })) => {
                tracing::warn!(top = %self.top.display(), limit, "a half-done state is too large for a patch");
                Vec::new()
            }
            Err(e) => return Err(e),
        };
        Ok(Some(OpenMerge {
            operation: operation.unwrap_or_default(),
            unmerged: unmerged.into_iter().map(|unmerged| unmerged.path).collect(),
            patch,
            stranded,
        }))
    }

    /// Aborts what [`open_merge`](Self::open_merge) found; whoever wants its state keeps the patch first. Refused
    /// while no ref reaches HEAD's commit. Does nothing where nothing is open. Where git refuses because files it
    /// had merged were edited further, everything goes back to HEAD, given that a snapshot has it.
    pub async fn abort_operation(&self) -> Result<()> {
        self.must_be_linked(ABORT)?;
        let operation = self.operation().await?;
        if operation.is_none() && self.unmerged().await?.is_empty() {
            return Ok(());
        }
        if let Some(head) = self.head().await?
            && !self.is_reached(&head, None).await?
        {
            return Err(self.refuse(ABORT, format!("no ref reaches its commit {head}; keep that first")));
        }
        let call = self.git.users_call(&self.top, ABORT).limit(cli::FILES);
        let call = match operation {
            Some(BISECT) => return self.abort_bisection().await,
            Some(operation) => call.args([operation, "--abort"]),
            None => call.args(["reset", "--quiet", "--merge"]),
        };
        let output = call.output().await?;
        match (output.status, self.head().await?) {
            (0, _) => Ok(()),
            // git would not go over what was edited in files that it had merged. A snapshot may have it.
            (_, Some(head)) => self.reset_to(&head).await,
            (_, None) => Err(cli::failed(ABORT, self.top.clone(), &output)),
        }
    }

    /// Takes the marks of an operation away and leaves HEAD, index and files.
    async fn leave_operation(&self) -> Result<()> {
        let Some(operation) = self.operation().await? else { return Ok(()) };
        let call = self.git.users_call(&self.top, RESET).limit(cli::FILES);
        let call = match operation {
            BISECT => return self.forget_bisection().await,
            operation => call.args([operation, "--quit"]),
        };
        call.run().await.map(drop)
    }

    /// Whether some ref's commit, or HEAD's, has this very tree.
    async fn is_stored(&self, tree: &str) -> Result<bool> {
        if let Some(head) = self.head().await?
            && self.tree_of(&head).await? == tree
        {
            return Ok(true);
        }
        let call = self.git.call(&self.top, RESET).max_stdout(scan::MAX_LISTING);
        let trees = call.args(["for-each-ref", "--format=%(tree)", "refs/clawo/", HEADS]).run().await?;
        Ok(trees.split(|b| *b == b'\n').any(|line| line == tree.as_bytes()))
    }

    /// Refuses what is no linked worktree, or one that is on a branch of the user's.
    pub(super) async fn must_be_our_worktree(&self, what: &'static str) -> Result<()> {
        self.must_be_linked(what)?;
        match self.current_branch().await? {
            Some(branch) if !is_ours(&format!("{HEADS}{branch}")) => {
                Err(self.refuse(what, format!("it is on '{branch}', which is no branch of ours")))
            }
            // Left on no branch by an agent, where only a worktree of ours lies.
            None if !self
                .top
                .ancestors()
                .skip(1)
                .any(|above| above.file_name().is_some_and(|name| name == WORKTREES)) =>
            {
                Err(self.refuse(what, "it is on no branch".to_owned()))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn must_be_linked(&self, what: &'static str) -> Result<()> {
        match self.is_linked() {
            true => Ok(()),
            false => Err(self.refuse(what, "it is the main checkout, not a worktree".to_owned())),
        }
    }
}
