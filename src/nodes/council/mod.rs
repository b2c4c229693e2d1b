//! Several agents on one repository, in rounds, each in a worktree of its own.
//!
//! The runtime merges after every round; members vote, and votes only end the talk. Nothing here writes the user's
//! branch, index or files.

pub mod accept;
pub mod case;
pub mod charter;
pub mod data;
pub mod disagreement;
pub mod disposition;
pub mod ground;
mod history;
pub mod plan_file;
pub mod preflight;
pub mod prompt;
mod quote;
pub mod refusal;
pub mod reject;
pub mod review;
pub mod team;
pub mod transcript;
pub mod view;
pub mod votes;

use super::{NodeCtx, NodeResult};
use crate::model::spec::CouncilNode;

/// Runs the node's attempt.
pub(super) async fn run(_ctx: &NodeCtx, _node: &CouncilNode) -> NodeResult {
    NodeResult::failed("councils cannot run yet")
}
