//! Making worktrees: new or known branch, or no branch at all. Nothing is left when it fails.

use std::path::Path;

use super::super::{Repo, Result, cli, refs::HEADS, scan};
use crate::sys::Kind;

const ADD: &str = "make a worktree";
const DISCARD: &str = "remove a temporary worktree";

/// What a new worktree has checked out.
#[derive(Debug, Clone, Copy)]
pub enum At<'a> {
    /// A branch that does not exist yet.
    New {
        /// Its short name.
        branch: &'a str,
        /// Where it starts.
        commit: &'a str,
    },
    /// An existing branch, by short name, that is checked out nowhere.
    Branch(&'a str),
    /// A commit, on no branch.
    Detached(&'a str),
}

impl Repo {
    /// Makes a worktree of HEAD at `path` on the new branch `branch`.
    pub async fn worktree_add(&self, path: &Path, branch: &str) -> Result<Repo> {
        self.must_be_absolute(path)?;
        self.check_branch(ADD, branch).await?;
        let Some(head) = self.head().await? else {
            return Err(self.refuse(ADD, "there is no commit yet; make one first".to_owned()));
        };
        self.worktree_at(path, At::New { branch, commit: &head }).await
    }

    /// Makes a worktree at `path`, which must be absolute and free; folders above it are made. No configuration
    /// is written and no hook runs. Returns it once it has shown to be a worktree of its own: else an agent
    /// started there would work on whatever repository lies around the folder. A new branch is taken back
    /// when the worktree cannot be made.
    pub async fn worktree_at(&self, path: &Path, at: At<'_>) -> Result<Repo> {
        self.must_be_absolute(path)?;
        let (commit, branch) = match at {
            At::New { branch, commit } => {
                self.check_branch(ADD, branch).await?;
                (self.resolve(commit).await?, Some(branch))
            }
            At::Branch(branch) => match self.branch_tip(branch).await? {
                Some(commit) => (commit, Some(branch)),
                None => return Err(self.refuse(ADD, format!("there is no branch '{branch}'"))),
            },
            At::Detached(commit) => (self.resolve(commit).await?, None),
        };
        let (fs, new) = (self.git.fs.clone(), path.to_path_buf());
        if scan::blocking(ADD, move || Ok(scan::kind(&*fs, &new)?)).await?.is_some() {
            return Err(self.refuse(ADD, format!("{} exists already", path.display())));
        }
        // git does not make a worktree where it still has one registered.
        self.forget_missing(path).await?;
        let At::New { branch, .. } = at else { return self.checkout(path, &commit, branch).await };
        let refname = format!("{HEADS}{branch}");
        self.swap(&refname, &commit, None, "branch: made by clawo").await?;
        let added = self.checkout(path, &commit, Some(branch)).await;
        if added.is_err() {
            let call = self.git.call(&self.top, ADD).limit(cli::QUICK);
            if let Err(e) = call.args(["update-ref", "--no-deref", "-d", &refname, &commit]).run().await {
                tracing::warn!(error = %e, branch, "a branch without its worktree stays");
            }
        }
        added
    }

    async fn checkout(&self, path: &Path, commit: &str, branch: Option<&str>) -> Result<Repo> {
        let call = self.git.call(&self.top, ADD).limit(cli::FILES);
        // Relative links would be announced in the repository's configuration.
        let call = call.args(["-c", "worktree.useRelativePaths=false", "worktree", "add", "--quiet"]);
        let made = match branch {
            Some(branch) => call.arg(path).arg(branch).run().await,
            None => call.arg("--detach").arg(path).arg(commit).run().await,
        };
        if let Err(e) = made {
            if let Some(parent) = path.parent() {
                self.remove_empty(parent).await?;
            }
            return Err(e);
        }
        let (fs, given) = (self.git.fs.clone(), path.to_path_buf());
        let real = scan::blocking(ADD, move || Ok(fs.canonicalize(&given)?)).await?;
        let Some(repo) = self.worktree_open(&real).await? else {
            let why = format!("{} came out as no worktree of its own", real.display());
            return Err(self.refuse(ADD, why));
        };
        let (head, on) = (repo.head().await?, repo.current_branch().await?);
        if head.as_deref() != Some(commit) || on.as_deref() != branch {
            let why = format!("{} came out at {head:?} on {on:?}", real.display());
            return Err(self.refuse(ADD, why));
        }
        Ok(repo)
    }

    /// Removes a temporary worktree at `path` with everything in it. Only one that is on no branch; nothing there
    /// is fine.
    pub async fn discard(&self, path: &Path) -> Result<()> {
        self.forget_missing(path).await?;
        let (fs, given) = (self.git.fs.clone(), path.to_path_buf());
        let real = scan::blocking(DISCARD, move || match scan::kind(&*fs, &given)? {
            Some(Kind::Dir) => Ok(Some(fs.canonicalize(&given)?)),
            Some(Kind::File | Kind::Symlink | Kind::Other) => Ok(Some(given)),
            None => Ok(None),
        });
        let Some(real) = real.await? else { return Ok(()) };
        let trees = self.worktrees().await?;
        if !trees.iter().any(|tree| !tree.main && tree.path == real && tree.branch.is_none()) {
            let why = format!("{} is no temporary worktree of this repository", real.display());
            return Err(self.refuse(DISCARD, why));
        }
        let call = self.git.call(&self.common_dir, DISCARD).limit(cli::FILES);
        call.args(["worktree", "remove", "--force"]).arg(real).run().await.map(drop)
    }

    fn must_be_absolute(&self, path: &Path) -> Result<()> {
        match path.is_absolute() {
            true => Ok(()),
            false => Err(self.refuse(ADD, format!("{} is not an absolute path", path.display()))),
        }
    }
}
