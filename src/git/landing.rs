//! Bringing a commit into a branch of the user's. The only place that writes a branch, an index or files of the
//! user's, and only to what a fast-forward of that tree would make of them.
//!
//! Files and index come first, the ref last: a crash in between leaves a branch that has not moved and a tree
//! that is ahead of it, which `land_finish` completes. Whoever lands holds the repository's lock.

mod finish;

use std::{collections::BTreeSet, ffi::OsString, path::Path};

use serde::{Deserialize, Serialize};

use super::{
    At, Dirty, Error, MergedIn, Repo, Result, cli,
    differences::Row,
    refs::HEADS,
    scan::{self, Bytes},
};
use crate::sys::{Fs, Kind};

const LAND: &str = "bring a commit into a branch";
/// What the branch's log says.
const LOG: &str = "merge: by clawo";
/// Mode of a submodule, as git prints it.
const LINK: &str = "160000";

/// How a commit may come into a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// By a fast-forward where that is possible, else by a merge commit.
    Auto,
    /// By a fast-forward or not at all.
    FastForwardOnly,
    /// Always by a merge commit.
    Merge,
}

/// What is to come into which branch.
#[derive(Debug, Clone, Copy)]
pub struct LandRequest<'a> {
    /// Short name of the branch.
    pub branch: &'a str,
    /// The commit.
    pub commit: &'a str,
    /// How.
    pub strategy: Strategy,
    /// Message of a merge commit.
    pub message: &'a str,
    /// Where a temporary worktree may be made; nothing else may ever be there.
    pub scratch: &'a Path,
}

/// What kind of move it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LandKind {
    /// The branch moves to the commit itself.
    FastForward,
    /// The branch moves to a merge of the two.
    MergeCommit,
    /// The commit brings nothing that the branch does not have.
    None,
}

/// A move that is decided on and may be done already. Made to be noted down before it is published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landing {
    /// What kind.
    pub kind: LandKind,
    /// Short name of the branch.
    pub branch: String,
    /// Its commit when this was decided.
    pub before: String,
    /// Its commit afterwards.
    pub after: String,
}

/// Why a commit is not brought into a branch. Nothing has changed then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LandRefusal {
    /// There is no such branch (any more).
    BranchMissing,
    /// The tree that has the branch checked out is in the middle of this operation.
    Busy(&'static str),
    /// That tree is not clean.
    Dirty(Dirty),
    /// A fast-forward was asked for and the branch has commits of its own.
    NotFastForward,
    /// These files do not go together.
    Conflict(Vec<String>),
    /// These ignored files stand where files would be written.
    WouldOverwrite(Vec<String>),
    /// The branch is elsewhere by now.
    Moved,
}

impl Repo {
    /// Decides how a commit comes into a branch, and makes the merge commit when one is needed. Nothing of the
    /// user's changes, and the temporary worktree is gone afterwards. The merge is made in the name that is
    /// configured for the user, else in ours.
    pub async fn land_prepare(&self, request: &LandRequest<'_>) -> Result<std::result::Result<Landing, LandRefusal>> {
        let commit = self.resolve(request.commit).await?;
        let Some(before) = self.branch_tip(request.branch).await? else { return Ok(Err(LandRefusal::BranchMissing)) };
        let landing = |kind, after| Landing { kind, branch: request.branch.to_owned(), before: before.clone(), after };
        if self.brings_nothing(&before, &commit).await? {
            return Ok(Ok(landing(LandKind::None, before.clone())));
        }
        let holder = match self.ready(request.branch).await? {
            Ok(holder) => holder,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let forward = self.is_ancestor(&before, &commit).await?;
        let landing = match (request.strategy, forward) {
            (Strategy::Auto | Strategy::FastForwardOnly, true) => landing(LandKind::FastForward, commit),
            (Strategy::FastForwardOnly, false) => return Ok(Err(LandRefusal::NotFastForward)),
            (Strategy::Auto, false) | (Strategy::Merge, _) => match self.merged_aside(request, &before, &commit).await?
            {
                Ok(after) => landing(LandKind::MergeCommit, after),
                Err(paths) => return Ok(Err(LandRefusal::Conflict(paths))),
            },
        };
        if let Some(tree) = holder {
            let paths = tree.in_the_way(&landing).await?;
            if !paths.is_empty() {
                return Ok(Err(LandRefusal::WouldOverwrite(paths)));
            }
        }
        Ok(Ok(landing))
    }

    /// Looks again and moves the branch: where it is checked out with index and files, elsewhere the ref alone.
    pub async fn land_publish(&self, landing: &Landing) -> Result<std::result::Result<(), LandRefusal>> {
        match self.branch_tip(&landing.branch).await? {
            None => return Ok(Err(LandRefusal::BranchMissing)),
            Some(tip) if tip != landing.before => return Ok(Err(LandRefusal::Moved)),
            Some(_) => {}
        }
        match landing.kind {
            LandKind::None => return Ok(Ok(())),
            LandKind::FastForward | LandKind::MergeCommit => {}
        }
        let holder = match self.ready(&landing.branch).await? {
            Ok(holder) => holder,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let Some(tree) = holder else { return self.move_branch(landing, None).await };
        let paths = tree.in_the_way(landing).await?;
        if !paths.is_empty() {
            return Ok(Err(LandRefusal::WouldOverwrite(paths)));
        }
        if let Err(e) = tree.move_files(&landing.before, &landing.after).await {
            // The disk may have been full halfway.
            tree.put_back(landing).await?;
            // Or somebody wrote since we looked.
            let dirty = tree.dirty().await?;
            return if dirty.total > 0 { Ok(Err(LandRefusal::Dirty(dirty))) } else { Err(e) };
        }
        self.move_branch(landing, Some(&tree)).await
    }

    /// Moves the ref when it is still where it was, else takes back what `tree` was given.
    async fn move_branch(
        &self,
        landing: &Landing,
        tree: Option<&Repo>,
    ) -> Result<std::result::Result<(), LandRefusal>> {
        let Landing { branch, before, after, .. } = landing;
        // From the tree that has it checked out, so that its log of HEAD has the move too.
        let moved = tree.unwrap_or(self).swap(&format!("{HEADS}{branch}"), after, Some(before), LOG).await;
        let (back_to, answer) = match moved {
            Ok(()) => return Ok(Ok(())),
            Err(Error::Moved { found: Some(found), .. }) => (found, Ok(Err(LandRefusal::Moved))),
            Err(Error::Moved { found: None, .. }) => (before.clone(), Ok(Err(LandRefusal::BranchMissing))),
            Err(e) => (before.clone(), Err(e)),
        };
        if let Some(tree) = tree {
            tree.move_files(after, &back_to).await?;
        }
        answer
    }

    /// The tree that has the branch checked out, if any, when a branch may be moved under it.
    async fn ready(&self, branch: &str) -> Result<std::result::Result<Option<Repo>, LandRefusal>> {
        let Some(tree) = self.checked_out(branch).await? else { return Ok(Ok(None)) };
        if let Some(operation) = tree.operation().await? {
            return Ok(Err(LandRefusal::Busy(operation)));
        }
        let dirty = tree.dirty().await?;
        match dirty.total {
            0 => Ok(Ok(Some(tree))),
            _ => Ok(Err(LandRefusal::Dirty(dirty))),
        }
    }

    /// Whether a branch at `tip` has all of `commit`, or the commit has no change at all against their common past.
    async fn brings_nothing(&self, tip: &str, commit: &str) -> Result<bool> {
        if self.is_ancestor(commit, tip).await? {
            return Ok(true);
        }
        match self.merge_base(tip, commit).await? {
            Some(base) => Ok(self.tree_of(&base).await? == self.tree_of(commit).await?),
            None => Ok(false),
        }
    }

    /// The merge commit of a branch's tip and a commit, or the files in conflict.
    async fn merged_aside(
        &self,
        request: &LandRequest<'_>,
        tip: &str,
        commit: &str,
    ) -> Result<std::result::Result<String, Vec<String>>> {
        // What a process that died left there.
        self.discard(request.scratch).await?;
        let identity = self.users_identity().await?;
        let tree = self.worktree_at(request.scratch, At::Detached(tip)).await?;
        let merged = tree.merge_here(commit, request.message, &[], &identity).await;
        self.discard(request.scratch).await?;
        match merged? {
            MergedIn::Merged(after) => Ok(Ok(after)),
            MergedIn::Conflict(unmerged) => Ok(Err(unmerged.into_iter().map(|unmerged| unmerged.path).collect())),
            MergedIn::Nothing => Err(self.refuse(LAND, format!("{commit} turned out to be in the branch already"))),
        }
    }

    /// The name that is configured for the user; empty when it is not whole.
    async fn users_identity(&self) -> Result<Vec<(&'static str, OsString)>> {
        let mut identity = Vec::new();
        for (key, author, committer) in [
            ("user.name", "GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"),
            ("user.email", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"),
        ] {
            let call = self.git.call(&self.top, "read the user's name").limit(cli::QUICK);
            let output = call.args(["config", "-z", "--get", key]).output().await?;
            let value = cli::records(&output.stdout).next().filter(|value| !value.trim_ascii().is_empty());
            let (0, Some(value)) = (output.status, value) else { return Ok(Vec::new()) };
            let value = super::open::path(value).into_os_string();
            identity.extend([(author, value.clone()), (committer, value)]);
        }
        Ok(identity)
    }

    /// What stands in this tree, ignored, where the landing would write a new file; sorted.
    async fn in_the_way(&self, landing: &Landing) -> Result<Vec<String>> {
        let rows = self.plain_rows(&landing.before, &landing.after, &[]).await?;
        let (fs, top) = (self.git.fs.clone(), self.top.clone());
        scan::blocking(LAND, move || {
            let leaving: BTreeSet<&Bytes> = rows.iter().filter(|row| row.new.is_none()).map(|row| &row.path).collect();
            let mut found = BTreeSet::new();
            for row in rows.iter().filter(|row| is_new(row)) {
                found.extend(in_the_way_of(&*fs, &top, &row.path, &leaving)?);
            }
            Ok(found.into_iter().map(|path| String::from_utf8_lossy(&path).into_owned()).collect())
        })
        .await
    }
}

/// Whether a row writes a file where the tree had none.
fn is_new(row: &Row) -> bool {
    let is_link = |side: &super::differences::Side| side.mode == LINK;
    row.new.as_ref().is_some_and(|new| !is_link(new)) && row.old.as_ref().is_none_or(is_link)
}

/// What stands at a path, or where a directory above it must be, save what is `leaving`.
fn in_the_way_of(fs: &dyn Fs, top: &Path, path: &Bytes, leaving: &BTreeSet<&Bytes>) -> Result<Vec<Bytes>> {
    let above = path.iter().enumerate().filter(|(_, b)| **b == b'/').filter_map(|(at, _)| path.get(..at));
    for part in above.chain([path.as_slice()]) {
        match scan::kind(fs, &top.join(scan::as_path(part)))? {
            None => return Ok(Vec::new()),
            Some(Kind::Dir) if part != path.as_slice() => {}
            Some(Kind::Dir) => {
                if scan::kind(fs, &top.join(scan::as_path(part)).join(".git"))?.is_some() {
                    return Ok(vec![part.to_vec()]);
                }
                let files = scan::walk(fs, top, part.to_vec())?;
                return Ok(files.into_iter().filter(|file| !leaving.contains(file)).collect());
            }
            Some(Kind::File | Kind::Symlink | Kind::Other) => {
                let goes = leaving.contains(&part.to_vec());
                return Ok(if goes { Vec::new() } else { vec![part.to_vec()] });
            }
        }
    }
    Ok(Vec::new())
}
