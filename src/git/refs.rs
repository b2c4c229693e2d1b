//! Refs and how commits hang together: reading them, and moving those that are ours.
//!
//! Every move compares with the value it was decided on. The user's branches are moved by `landing` alone.

use super::{Error, Repo, Result, cli, open, scan};

const POINT: &str = "move a ref";
const UNPOINT: &str = "delete a ref";
const TIP: &str = "read a ref";
const RELATION: &str = "compare commits";

/// First parts of the names of branches that belong to one council, fan-out or agent.
pub(super) const KINDS: [&str; 3] = ["council", "fanout", "agent"];
/// Below these, refs are ours to make, move and delete.
const OURS: [&str; 5] =
    ["refs/clawo/", "refs/heads/council/", "refs/heads/fanout/", "refs/heads/agent/", "refs/heads/clawo/"];
/// Start of a branch's full name.
pub(super) const HEADS: &str = "refs/heads/";

/// Whether a ref, by full name, is ours to move.
pub(super) fn is_ours(refname: &str) -> bool {
    OURS.iter().any(|below| refname.strip_prefix(below).is_some_and(|rest| !rest.is_empty()))
}

impl Repo {
    /// Commit of a local branch, by short name; `None` when there is no such branch.
    pub async fn branch_tip(&self, branch: &str) -> Result<Option<String>> {
        self.tip(&format!("{HEADS}{branch}")).await
    }

    /// Commit of a ref, by full name; `None` when there is no such ref.
    pub async fn tip(&self, refname: &str) -> Result<Option<String>> {
        if !is_name(refname) {
            return Ok(None);
        }
        let asked = refname.to_owned();
        let found = self.library(move |repo| match repo.find_reference(&asked) {
            Ok(reference) => Ok(Some(reference.peel_to_commit()?.id().to_string())),
            Err(e) if e.code() == git2::ErrorCode::NotFound => Ok(None),
            Err(e) => Err(e),
        });
        if let Some(found) = found.await {
            return Ok(found);
        }
        let call = self.git.call(&self.top, TIP).limit(cli::QUICK);
        let call = call.args(["for-each-ref", "--format=%(refname) %(*objectname) %(objectname)", refname]);
        let listed = cli::text(TIP, call.run().await?)?;
        // The pattern also finds what lies below a name.
        let line = listed.lines().find_map(|line| line.strip_prefix(refname)?.strip_prefix(' '));
        Ok(line.and_then(|ids| ids.split_whitespace().next()).map(str::to_owned))
    }

    /// Points a ref of ours (full name) at the commit `new`, when it is at `old`; with `None` it must not
    /// exist. On disk afterwards. [`Error::Moved`] when it is elsewhere by now.
    pub async fn point(&self, refname: &str, new: &str, old: Option<&str>) -> Result<()> {
        self.must_be_our_ref(POINT, refname)?;
        self.swap(refname, new, old, "moved by clawo").await
    }

    /// Deletes a ref of ours (full name) when it is at `old`. One that is gone already is fine;
    /// [`Error::Moved`] when it is elsewhere by now.
    pub async fn unpoint(&self, refname: &str, old: &str) -> Result<()> {
        self.must_be_our_ref(UNPOINT, refname)?;
        let call = self.git.call(&self.top, UNPOINT).limit(cli::QUICK);
        let output = call.args(["update-ref", "--no-deref", "-d", refname, old]).output().await?;
        if output.status == 0 {
            return Ok(());
        }
        match self.tip(refname).await? {
            None => Ok(()),
            Some(found) if found != old => Err(self.moved(refname, Some(found))),
            Some(_) => Err(cli::failed(UNPOINT, self.top.clone(), &output)),
        }
    }

    /// Compare-and-swap of any ref.
    pub(super) async fn swap(&self, refname: &str, new: &str, old: Option<&str>, log: &str) -> Result<()> {
        if !is_name(refname) {
            return Err(self.refuse(POINT, format!("'{refname}' is not the full name of a ref")));
        }
        let call = self.git.call(&self.top, POINT).limit(cli::QUICK).args(cli::SYNCED);
        let call = call.args(["update-ref", "--no-deref", "-m", log, refname, new, old.unwrap_or_default()]);
        let output = call.output().await?;
        if output.status == 0 {
            return Ok(());
        }
        match self.tip(refname).await? {
            found if found.as_deref() != old => Err(self.moved(refname, found)),
            Some(_) | None => Err(cli::failed(POINT, self.top.clone(), &output)),
        }
    }

    fn moved(&self, refname: &str, found: Option<String>) -> Error {
        Error::Moved { repo: self.top.clone(), refname: refname.to_owned(), found }
    }

    fn must_be_our_ref(&self, what: &'static str, refname: &str) -> Result<()> {
        match is_ours(refname) && is_name(refname) {
            true => Ok(()),
            false => Err(self.refuse(what, format!("'{refname}' is not one of our refs ({})", OURS.join(", ")))),
        }
    }

    /// Short name of the branch that HEAD is; `None` when it is detached. May have no commit yet.
    pub async fn current_branch(&self) -> Result<Option<String>> {
        let what = "read HEAD";
        let call = self.git.call(&self.top, what).limit(cli::QUICK);
        let output = call.args(["symbolic-ref", "--quiet", "HEAD"]).output().await?;
        match output.status {
            0 => {
                let name = cli::text(what, output.stdout)?;
                Ok(name.trim_end_matches('\n').strip_prefix(HEADS).map(str::to_owned))
            }
            1 => Ok(None),
            _ => Err(cli::failed(what, self.top.clone(), &output)),
        }
    }

    /// The working tree that has a branch checked out, or is rebasing or bisecting it; `None` when none is.
    pub async fn checked_out(&self, branch: &str) -> Result<Option<Repo>> {
        // git names the main tree of a submodule wrongly, so this one first.
        if self.current_branch().await?.as_deref() == Some(branch) || self.has_in_hand(branch).await? {
            return Ok(Some(self.clone()));
        }
        let refname = format!("{HEADS}{branch}");
        let trees = self.worktrees().await?;
        let (on_it, others): (Vec<_>, Vec<_>) = trees
            .into_iter()
            .filter(|tree| !tree.bare && tree.path != self.top)
            .partition(|tree| tree.branch.as_deref() == Some(refname.as_bytes()));
        let detached = others.into_iter().filter(|tree| tree.branch.is_none());
        for (tree, sure) in on_it.into_iter().map(|tree| (tree, true)).chain(detached.map(|tree| (tree, false))) {
            // Folders that are gone hold nothing that could be out of step.
            let Some(repo) = self.opened(&tree.path).await? else { continue };
            if sure || repo.has_in_hand(branch).await? {
                return Ok(Some(repo));
            }
        }
        Ok(None)
    }

    /// The working tree of this repository whose top is `path`, be it the main one.
    async fn opened(&self, path: &std::path::Path) -> Result<Option<Repo>> {
        let (fs, dir) = (self.git.fs.clone(), path.to_path_buf());
        if !scan::blocking(TIP, move || Ok(scan::kind(&*fs, &dir)?.is_some())).await? {
            return Ok(None);
        }
        let repo = self.git.open(path).await?;
        Ok(repo.filter(|repo| repo.top == path && repo.common_dir == self.common_dir))
    }

    /// Whether a rebase or bisection here will go back to the branch.
    async fn has_in_hand(&self, branch: &str) -> Result<bool> {
        let (fs, git_dir) = (self.git.fs.clone(), self.git_dir.clone());
        let (full, short) = (format!("{HEADS}{branch}"), branch.to_owned());
        scan::blocking(TIP, move || {
            for name in ["rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START"] {
                match fs.read(&git_dir.join(name)) {
                    Ok(held) => {
                        let held = held.trim_ascii_end();
                        if held == full.as_bytes() || held == short.as_bytes() {
                            return Ok(true);
                        }
                    }
                    Err(e) if e.is_not_found() => {}
                    Err(e) => return Err(e.into()),
                }
            }
            Ok(false)
        })
        .await
    }

    /// Whether `newer` holds everything that `older` does; a commit is its own ancestor.
    pub async fn is_ancestor(&self, older: &str, newer: &str) -> Result<bool> {
        let call = self.git.call(&self.top, RELATION).limit(cli::QUICK);
        let output = call.args(["merge-base", "--is-ancestor", older, newer]).output().await?;
        match output.status {
            0 => Ok(true),
            1 => Ok(false),
            _ => Err(cli::failed(RELATION, self.top.clone(), &output)),
        }
    }

    /// The best common ancestor of two commits; `None` when they have none.
    pub async fn merge_base(&self, a: &str, b: &str) -> Result<Option<String>> {
        let call = self.git.call(&self.top, RELATION).limit(cli::QUICK);
        let output = call.args(["merge-base", a, b]).output().await?;
        match output.status {
            0 => Ok(cli::text(RELATION, output.stdout)?.lines().next().map(str::to_owned)),
            1 => Ok(None),
            _ => Err(cli::failed(RELATION, self.top.clone(), &output)),
        }
    }

    /// Whether a commit, by id, is in the repository.
    pub async fn has_commit(&self, commit: &str) -> Result<bool> {
        match self.resolve(commit).await {
            Ok(_) => Ok(true),
            Err(Error::BaseGone(_)) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Whether a ref other than `but` (full name) reaches a commit.
    pub(super) async fn is_reached(&self, commit: &str, but: Option<&str>) -> Result<bool> {
        let call = self.git.call(&self.top, RELATION).max_stdout(scan::MAX_LISTING);
        let listed = call.args(["for-each-ref", "--format=%(refname)", "--contains", commit]).run().await?;
        Ok(listed
            .split(|b| *b == b'\n')
            .any(|name| !name.is_empty() && Some(open::path(name).as_path()) != but.map(std::path::Path::new)))
    }
}

/// Whether git would take it as a full name.
fn is_name(refname: &str) -> bool {
    refname.starts_with("refs/") && !refname.contains(['\n', '\0']) && git2::Reference::is_valid_name(refname)
}
