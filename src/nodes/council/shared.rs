//! What every part of a council works with, and its worktrees.

use std::{path::PathBuf, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{
    data::{INTEGRATION, Layout},
    fault::Fault,
};
use crate::{
    git::{At, Repo},
    model::{Code, spec::CouncilNode},
    nodes::NodeCtx,
    sys::{FsError, tasks},
};

/// A council at work.
#[derive(Debug)]
pub(super) struct Shared {
    /// The attempt.
    pub(super) ctx: NodeCtx,
    /// What it is to do.
    pub(super) node: CouncilNode,
    /// Where it lies.
    pub(super) layout: Layout,
    /// Where the one it goes on with lies.
    pub(super) former: Option<Layout>,
    /// The user's work tree.
    pub(super) repo: Repo,
    /// Fires when nothing may go on; the attempt's own, or its limit.
    pub(super) cancel: CancellationToken,
    /// The user's own charter.
    pub(super) charter: Option<String>,
    /// Folder with the hooks of members.
    pub(super) hooks: PathBuf,
}

impl Shared {
    /// Wall-clock limit of the attempt.
    pub(super) fn limit(&self) -> Duration {
        let own = self.ctx.attempt.node.timeout_ms;
        Duration::from_millis(own.unwrap_or_else(|| self.node.worst_case_ms()))
    }

    /// The plan, relative to the project's folder.
    pub(super) fn plan_in_project(&self) -> &str {
        let plan = self.layout.plan_file.as_str();
        let below = plan.strip_prefix(self.layout.prefix.as_str()).and_then(|rest| rest.strip_prefix('/'));
        below.filter(|_| !self.layout.prefix.is_empty()).unwrap_or(plan)
    }

    /// Tells people something.
    pub(super) fn log(&self, level: &'static str, text: String) {
        self.ctx.report.log(level, text);
    }

    /// Fails once nothing may go on.
    pub(super) fn go_on(&self) -> Result<(), Fault> {
        if self.cancel.is_cancelled() { Err(Fault::Stopped) } else { Ok(()) }
    }

    /// The worktree of a member or of integration, and whether it was made now. Its branch is made at `commit` when
    /// there is none. Under the lock of the repository.
    pub(super) async fn worktree(&self, name: &str, commit: &str) -> Result<(Repo, bool), Fault> {
        let (path, branch) = (self.layout.worktree(name), self.layout.branch(name));
        if let Some(repo) = self.repo.worktree_open(&path).await? {
            return Ok((repo, false));
        }
        // What a making that was cut off left; anything with content in it stays and is told below.
        self.repo.remove_empty(&path).await?;
        match self.repo.branch_tip(&branch).await? {
            Some(_) => Ok((self.repo.worktree_at(&path, At::Branch(&branch)).await?, true)),
            None if self.repo.has_commit(commit).await? => {
                Ok((self.repo.worktree_at(&path, At::New { branch: &branch, commit }).await?, true))
            }
            None => Err(Fault::lost(format!("branch {branch} and its commit {commit} are gone"))),
        }
    }

    /// Takes back a worktree and a branch that were just made.
    pub(super) async fn take_back(&self, name: &str, tip: &str) {
        let path = self.layout.worktree(name);
        let branch = format!("refs/heads/{}", self.layout.branch(name));
        let undone = async {
            self.repo.worktree_remove(&path).await?;
            self.repo.unpoint(&branch, tip).await?;
            self.repo.remove_empty(&self.layout.folder()).await
        };
        if let Err(e) = undone.await {
            self.log("warn", format!("{branch} stays: {e}"));
        }
    }

    /// The integration worktree.
    pub(super) async fn integration(&self) -> Result<Repo, Fault> {
        let path = self.layout.worktree(INTEGRATION);
        let gone = || Fault::lost(format!("the integration worktree {} is gone", path.display()));
        self.repo.worktree_open(&path).await?.ok_or_else(gone)
    }

    /// Commit of a worktree.
    pub(super) async fn head(&self, repo: &Repo) -> Result<String, Fault> {
        let gone = || Fault::lost(format!("{} has no commit", repo.top().display()));
        repo.head().await?.ok_or_else(gone)
    }

    /// Brings the integration worktree to the tip of its branch, whatever a merge that was cut off or somebody's hand
    /// left there; what is not committed is kept under a ref.
    pub(super) async fn settle_integration(&self, integration: &Repo) -> Result<(), Fault> {
        integration.abort_operation().await?;
        let round = 0;
        let branch = self.layout.branch(INTEGRATION);
        let tip = self.repo.branch_tip(&branch).await?;
        let tip = tip.ok_or_else(|| Fault::lost(format!("branch {branch} is gone")))?;
        if integration.current_branch().await?.as_deref() != Some(branch.as_str()) {
            self.save(integration, INTEGRATION, round).await?;
            integration.attach(&branch).await?;
        }
        if integration.dirty().await?.total > 0 {
            self.save(integration, INTEGRATION, round).await?;
            integration.reset_to(&tip).await?;
        }
        Ok(())
    }

    /// Keeps the state of a worktree, its commit included, under a ref that is free; gives that ref.
    pub(super) async fn save(&self, repo: &Repo, member: &str, round: u32) -> Result<String, Fault> {
        let name = self.free_ref(member, round).await?;
        repo.snapshot(&name, &format!("council {}: {member} in round {round}", self.layout.council_id)).await?;
        Ok(name)
    }

    /// Keeps a commit under a ref that is free; gives that ref.
    pub(super) async fn keep(&self, commit: &str, member: &str, round: u32) -> Result<String, Fault> {
        let name = self.free_ref(member, round).await?;
        self.repo.point(&name, commit, None).await?;
        Ok(name)
    }

    async fn free_ref(&self, member: &str, round: u32) -> Result<String, Fault> {
        let prefix = self.layout.salvage_prefix();
        for n in 1..10_000_u32 {
            let name = format!("{prefix}{member}-r{round}-{n}");
            if self.repo.tip(&name).await?.is_none() {
                return Ok(name);
            }
        }
        Err(Fault::failed(Code::WorktreeFailed.as_str(), format!("too many refs below {prefix}")))
    }
}

/// Blocking work on files, with its failure as text.
pub(super) async fn files<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> Result<T, FsError> + Send + 'static,
) -> Result<T, String> {
    match tasks::blocking(what, work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(e)) => Err(e.to_string()),
        Err(e) => Err(e.to_string()),
    }
}
