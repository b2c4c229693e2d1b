//! Agents that each work in a git worktree and on a branch of their own.
//!
//! Owns what a fan-out, a single agent and a council share of that: refusals, names, seats, what becomes of
//! unfinished work, the way into the checked-out branch, and tidying up. Knows nothing of rounds or of choosing.
//!
//! Every step can be repeated from the documents it left on the record. Nothing an agent wrote is lost on any way:
//! before a worktree is set back its state is stored below `refs/clawo/runs/<run>/`, and a worktree that still holds
//! something uncommitted is not removed.

pub mod guard;
pub mod land;
pub mod layout;
pub mod refusals;
pub mod seats;
pub mod tidy;

use std::{fmt::Display, path::Path};

use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::oneshot;

use super::{NodeCtx, NodeResult, Report, Status, council};
use crate::{
    git::{self, Repo},
    model::Code,
};
use layout::{Kind, LAYOUT, Layout};

/// Why a node's work in worktrees does not go on.
#[derive(Debug)]
pub enum Cut {
    /// Stopped from outside.
    Stopped,
    /// It failed, in one sentence that begins with a stable code.
    Failed(String),
}

impl Cut {
    /// A failure with its code.
    pub fn of(code: Code, why: impl Display) -> Self {
        Self::Failed(format!("{code}: {why}"))
    }

    /// The status of the attempt.
    pub fn status(self) -> Status {
        match self {
            Self::Stopped => Status::Stopped,
            Self::Failed(why) => Status::Failed(why),
        }
    }

    /// The end of the attempt.
    pub fn result(self) -> NodeResult {
        NodeResult { status: self.status(), ..NodeResult::default() }
    }
}

impl From<git::Error> for Cut {
    fn from(error: git::Error) -> Self {
        let (code, why) = refusals::failed(&error);
        Self::of(code, why)
    }
}

/// The repository a node's agents have their worktrees in.
#[derive(Debug, Clone)]
pub struct Ground {
    /// The user's working tree.
    pub repo: Repo,
    /// The names.
    pub layout: Layout,
    /// Whether this attempt is the first to use them.
    pub fresh: bool,
}

/// Finds the ground an earlier attempt of the visit chose, or looks at `dir` and chooses one, on the record.
///
/// # Errors
/// A refusal, or a ground that is gone.
pub async fn ground(
    ctx: &NodeCtx,
    kind: Kind,
    dir: &Path,
    allow_dirty: bool,
    agents: Vec<String>,
) -> Result<Ground, Cut> {
    let git = &ctx.services.git;
    if let Some(layout) = kept::<Layout>(ctx, LAYOUT) {
        let top = Path::new(&layout.top);
        let repo = git.open(top).await?.filter(|repo| repo.top() == top);
        let Some(repo) = repo else {
            return Err(Cut::of(Code::WorktreeFailed, format!("{} is no longer the top of a checkout", layout.top)));
        };
        return Ok(Ground { repo, layout, fresh: false });
    }
    let standing = council::preflight(git, dir, allow_dirty).await.map_err(|(code, why)| Cut::of(code, why))?;
    let warnings = council::warnings(&standing);
    for warning in &warnings {
        ctx.report.log("warn", warning.clone());
    }
    let repo = standing.repo;
    let lock = repo.lock().await?;
    let attempt = &ctx.attempt;
    let mut chosen = None;
    for short_id in layout::short_ids(&attempt.run_id, attempt.node.id.as_str(), attempt.visit) {
        if !layout::is_taken(&repo, &*ctx.services.fs, &short_id).await? {
            chosen = Some(short_id);
            break;
        }
    }
    let Some(short_id) = chosen else {
        let why = "branches and folders of every name for this run exist already; remove them or start another run";
        return Err(Cut::of(Code::WorktreeFailed, why));
    };
    let layout = Layout {
        kind,
        short_id,
        top: repo.top().to_string_lossy().into_owned(),
        prefix: repo.prefix().to_owned(),
        base_branch: standing.branch,
        base_commit: standing.head,
        agents,
        warnings,
    };
    keep(ctx, LAYOUT, &layout).await?;
    recorded(ctx).await?;
    drop(lock);
    Ok(Ground { repo, layout, fresh: true })
}

/// A document an earlier attempt of the visit left.
pub fn kept<T: DeserializeOwned>(ctx: &NodeCtx, key: &str) -> Option<T> {
    let (data, _) = ctx.attempt.parts.get(key)?;
    T::deserialize(data).ok()
}

/// Puts a document on the node's data.
///
/// # Errors
/// It is no JSON.
pub async fn keep<T: Serialize>(ctx: &NodeCtx, key: &str, document: &T) -> Result<(), Cut> {
    let data = serde_json::to_value(document).map_err(|e| Cut::of(Code::Internal, e))?;
    ctx.report.send(Report::Part { key: key.to_owned(), data, text: None }).await;
    Ok(())
}

/// Waits until everything reported so far is on the record.
///
/// # Errors
/// It will not be, because the run is being stopped.
pub async fn recorded(ctx: &NodeCtx) -> Result<(), Cut> {
    let (done, answer) = oneshot::channel();
    ctx.report.send(Report::Recorded(done)).await;
    answer.await.map_err(|_| Cut::Stopped)
}

/// Ref of this attempt under which something is stored that must not be lost.
pub fn safe_ref(ctx: &NodeCtx, what: &str) -> String {
    format!("refs/clawo/runs/{}/{}-{what}", ctx.attempt.run_id, ctx.label())
}
