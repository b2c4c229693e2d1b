//! Bringing a stored state back, to a new directory or a new branch, never over something that exists.

use std::path::Path;

use super::{
    Error, Repo, RestoreTo, Result, scan,
    scratch::{Objects, Scratch},
};
use crate::sys::fs;

const WHAT: &str = "restore a snapshot";

impl Repo {
    /// Brings a stored state back, never over something that exists.
    pub async fn restore(&self, refname: &str, to: &RestoreTo) -> Result<()> {
        let commit = match self.resolve(refname).await {
            Err(Error::BaseGone(_)) => return Err(self.refuse(WHAT, format!("there is no snapshot '{refname}'"))),
            other => other?,
        };
        match to {
            RestoreTo::Directory(dir) => self.restore_directory(&commit, dir).await,
            RestoreTo::Branch(branch) => self.restore_branch(&commit, branch).await,
        }
    }

    async fn restore_directory(&self, commit: &str, dir: &Path) -> Result<()> {
        if !dir.is_absolute() {
            return Err(self.refuse(WHAT, format!("{} is not an absolute path", dir.display())));
        }
        let (files, new) = (self.git.fs.clone(), dir.to_path_buf());
        scan::blocking(WHAT, move || {
            if let Some(parent) = new.parent() {
                fs::create_dir_all(&*files, parent)?;
            }
            Ok(files.create_dir(&new)?)
        })
        .await?;
        let scratch = Scratch::new(self, Objects::Keep).await?;
        // Through git's own checkout, so that line ends and filters come out as they would for the user.
        let call = self.git.call(dir, WHAT).envs(scratch.env()).env("GIT_DIR", &self.git_dir);
        let call = call.env("GIT_WORK_TREE", dir).args(["-c", "core.sparseCheckout=false"]);
        call.args(["read-tree", "--reset", "-u", commit]).run().await.map(drop)
    }

    async fn restore_branch(&self, commit: &str, branch: &str) -> Result<()> {
        self.check_branch(WHAT, branch).await?;
        let order = format!("create refs/heads/{branch} {commit}\n");
        let call = self.git.call(&self.top, WHAT).args(["update-ref", "--no-deref", "--stdin"]);
        call.stdin(order.into_bytes()).run().await.map(drop)
    }

    /// Refuses what git would not take as the name of a new branch.
    pub(super) async fn check_branch(&self, what: &'static str, branch: &str) -> Result<()> {
        let refname = format!("refs/heads/{branch}");
        let bad = branch.starts_with('-') || branch == "HEAD" || branch.contains(['\n', '\0']);
        if bad || !git2::Reference::is_valid_name(&refname) {
            return Err(self.refuse(what, format!("'{branch}' is not a name for a branch")));
        }
        if self.resolve(&refname).await.is_ok() {
            return Err(self.refuse(what, format!("there is a branch '{branch}' already")));
        }
        Ok(())
    }

    /// A refusal of ours, in the form of git's.
    pub(super) fn refuse(&self, what: &'static str, why: String) -> Error {
        Error::Failed { what, repo: self.top.clone(), stderr: why }
    }
}
