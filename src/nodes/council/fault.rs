//! Why a council cannot go on.

use tokio::sync::oneshot;

use crate::{
    git,
    model::Code,
    nodes::{NodeCtx, Report, Status},
};

/// No member answered in two rounds in a row.
pub(super) const ALL_FAILED: &str = "all_members_failed";
/// Nobody has money left.
pub(super) const NO_BUDGET: &str = "budget_exhausted";
/// The attempt took too long.
pub(super) const TIMEOUT: &str = "timeout";
/// git refused something that should work.
const GIT_FAILED: &str = "git_failed";

/// What ends the rounds besides their own end.
#[derive(Debug)]
pub(super) enum Fault {
    /// From outside; the attempt's context says why.
    Stopped,
    /// A bound of the run.
    Exhausted(String),
    /// Something failed.
    Failed {
        /// For programs.
        code: &'static str,
        /// For people.
        text: String,
        /// Whether the same again may end better.
        again: bool,
    },
}

impl Fault {
    /// A failure that another attempt may not meet.
    pub(super) fn failed(code: &'static str, text: impl Into<String>) -> Self {
        Self::Failed { code, text: text.into(), again: true }
    }

    /// A failure that stays.
    pub(super) fn hopeless(code: &'static str, text: impl Into<String>) -> Self {
        Self::Failed { code, text: text.into(), again: false }
    }

    /// Something the council needs is gone from the repository.
    pub(super) fn lost(text: impl Into<String>) -> Self {
        Self::hopeless(Code::CouncilStateLost.as_str(), text)
    }

    /// What it means for the node.
    pub(super) fn status(&self) -> Status {
        match self {
            Self::Stopped => Status::Stopped,
            Self::Exhausted(why) => Status::Exhausted(why.clone()),
            Self::Failed { code, text, again: true } => Status::Failed(format!("{code}: {text}")),
            Self::Failed { code, text, again: false } => Status::Hopeless(format!("{code}: {text}")),
        }
    }
}

impl From<git::Error> for Fault {
    fn from(e: git::Error) -> Self {
        match &e {
            git::Error::Busy { .. } => Self::failed(Code::RepoBusy.as_str(), e.to_string()),
            git::Error::BaseGone(_) => Self::lost(e.to_string()),
            git::Error::Program(_)
            | git::Error::Failed { .. }
            | git::Error::Fs(_)
            | git::Error::Moved { .. }
            | git::Error::Answer { .. } => Self::failed(GIT_FAILED, e.to_string()),
        }
    }
}

/// Returns once everything that was reported is on the record; fails when it will not be.
pub(super) async fn recorded(ctx: &NodeCtx) -> Result<(), Fault> {
    let (done, answer) = oneshot::channel();
    ctx.report.send(Report::Recorded(done)).await;
    answer.await.map_err(|_| Fault::Stopped)
}
