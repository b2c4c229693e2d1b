//! Worktrees of ours: made, committed to, removed.
//!
//! A removal never forces: it refuses whatever would lose content that no ref reaches, and there is no
//! fallback that deletes a folder.

mod add;
mod list;

use std::path::Path;

pub use add::At;
use list::missing;

use super::{
    Repo, Result, cli,
    scan::{self, GITLINK},
    scratch::{Age, Objects, Scratch, Untracked},
};
use crate::sys::Kind;

const COMMIT: &str = "commit a worktree";
const DELETE: &str = "delete a branch";
const REMOVE: &str = "remove a worktree";

impl Repo {
    /// Commits everything in a worktree of ours to its branch, without hooks and with our own identity.
    /// `None` when there is nothing to commit. Refused outside a linked worktree.
    pub async fn commit_all(&self, message: &str) -> Result<Option<String>> {
        if !self.is_linked() {
            return Err(self.refuse(COMMIT, "it is the main checkout, not a worktree".to_owned()));
        }
        let head = self.head().await?;
        // The worktree's own index: afterwards it must agree with the commit.
        let scan = self.scan(&[]).await?;
        let built = self.update(&[], Age::Own, scan, Untracked::Whole).await?;
        if let Some(head) = &head
            && self.tree_of(head).await? == built.tree
        {
            return Ok(None);
        }
        let parent = head.iter().flat_map(|head| ["-p", head.as_str()]);
        let call = self.git.call(&self.top, COMMIT).args(cli::SENT).args(["commit-tree", "--no-gpg-sign"]).args(parent);
        let commit = call.arg(&built.tree).stdin(message.as_bytes().to_vec()).word().await?;
        let call = self.git.call(&self.top, COMMIT).args(cli::SYNCED).args([
            "update-ref",
            "-m",
            "commit: by clawo",
            "HEAD",
            &commit,
        ]);
        call.arg(head.unwrap_or_default()).run().await?;
        Ok(Some(commit))
    }

    /// Deletes a local branch that has nothing HEAD does not have; any other is refused and stays.
    pub async fn branch_delete_merged(&self, branch: &str) -> Result<()> {
        let call = self.git.call(&self.top, DELETE).args(["branch", "--quiet", "--delete", "--", branch]);
        call.run().await.map(drop)
    }

    /// Removes a worktree of ours that holds nothing uncommitted; its branch stays.
    pub async fn worktree_remove(&self, path: &Path) -> Result<()> {
        let (fs, given) = (self.git.fs.clone(), path.to_path_buf());
        let (real, kind) = scan::blocking(REMOVE, move || {
            Ok(match fs.canonicalize(&given) {
                Ok(real) => {
                    let kind = scan::kind(&*fs, &real)?;
                    (real, kind)
                }
                Err(e) if e.is_not_found() => (missing(&*fs, &given), None),
                Err(e) => return Err(e.into()),
            })
        })
        .await?;
        if !self.worktrees().await?.iter().any(|tree| !tree.main && tree.path == real) {
            let why = format!("{} is not a linked worktree of this repository", real.display());
            return Err(self.refuse(REMOVE, why));
        }
        match kind {
            Some(Kind::Dir) => self.must_be_committed(&real).await?,
            // Nothing there any more: only the registration goes.
            None => {}
            Some(Kind::File | Kind::Symlink | Kind::Other) => {
                return Err(self.refuse(REMOVE, format!("{} is not a directory", real.display())));
            }
        }
        let call = self.git.call(&self.common_dir, REMOVE).limit(cli::FILES).args(["worktree", "remove"]).arg(real);
        call.run().await.map(drop)
    }

    /// Refuses when removing the worktree at `path` would lose something.
    async fn must_be_committed(&self, path: &Path) -> Result<()> {
        let lost = |why: String| Err(self.refuse(REMOVE, format!("{}: {why}", path.display())));
        let repo = match self.git.open(path).await? {
            Some(repo) if repo.top == path && repo.common_dir == self.common_dir && repo.is_linked() => repo,
            Some(_) | None => {
                let (fs, dir) = (self.git.fs.clone(), path.to_path_buf());
                return match scan::blocking(
                    REMOVE,
                    move || Ok(fs.list(&dir)?.is_empty() && fs.remove_dir(&dir).is_ok()),
                )
                .await?
                {
                    true => Ok(()),
                    false => lost(
                        "it is registered as a worktree but its link is gone; look at it and remove it by hand".into(),
                    ),
                };
            }
        };
        let Some(head) = repo.head().await? else { return lost("it has no commit".into()) };
        let scratch = Scratch::new(&repo, Objects::Drop).await?;
        let built = repo.build(&scratch, Untracked::Whole).await?;
        built.scan.must_be_whole(&repo.top)?;
        if !built.scan.nested.is_empty() {
            return lost("it holds another repository".into());
        }
        for entry in built.scan.tracked.iter().filter(|entry| entry.mode == GITLINK) {
            if repo.submodule(&entry.path).await?.is_some() {
                return lost("it holds a checked-out submodule".into());
            }
        }
        if repo.tree_of(&head).await? != built.tree {
            return lost("it holds changes that are not committed".into());
        }
        let call = self.git.call(&self.top, REMOVE).args(["for-each-ref", "--count=1", "--contains"]).arg(&head);
        if call.run().await?.is_empty() {
            return lost(format!("no branch or ref reaches its commit {head}"));
        }
        Ok(())
    }
}
