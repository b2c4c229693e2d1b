//! Several agents on one prompt, each finished one kept at once, so that a crash repeats only the others.
//!
//! Owns who works when, what is made of their answers, and with worktrees of their own whose work is taken over.

mod candidates;
mod choose;
mod contest;
mod judge;
mod members;
mod merged;
mod takeover;

use std::time::Duration;

use super::{NodeCtx, NodeResult, Status};
use crate::model::{
    Contract,
    spec::{FanoutNode, Isolation, Select},
};
use members::Places;

/// Wall-clock limit of one agent where nothing else is said.
pub const AGENT_TIMEOUT: Duration = Duration::from_secs(600);
/// Room for opening and ending the session of one agent, in milliseconds.
const AGENT_MARGIN_MS: u64 = 30_000;
/// Room beyond the checks for judging one candidate, in milliseconds.
const JUDGE_MARGIN_MS: u64 = 60_000;
/// Most of one agent's report kept in the node's output, in bytes.
const REPORT_MAX: usize = 64 * 1024;
/// Begins the ids of runs that hold one fan-out and nothing else.
const GENERATED: [&str; 2] = ["fanout-", "ultrareview-"];

/// The longest a fan-out can take in milliseconds, one agent at a time: what bounds it where nothing else is said.
pub fn worst_case_ms(node: &FanoutNode, contract: Option<&Contract>) -> u64 {
    let own = node.agent_timeout_ms.unwrap_or_else(|| u64::try_from(AGENT_TIMEOUT.as_millis()).unwrap_or(u64::MAX));
    let agents = node.agents.len() as u64;
    let turns = agents.saturating_add(u64::from(node.synthesize));
    let work = own.saturating_add(AGENT_MARGIN_MS).saturating_mul(turns);
    let judging = contract.filter(|_| node.isolation == Isolation::Worktree).map_or(0, |contract| {
        // One more for the merge commit.
        let judged = agents.saturating_add(u64::from(node.select == Select::Verified));
        contract.worst_case_ms().saturating_add(JUDGE_MARGIN_MS).saturating_mul(judged)
    });
    work.saturating_add(judging)
}

/// Wall-clock limit of one agent: its own, within what the node as a whole may take when that is said.
fn agent_limit(ctx: &NodeCtx, node: &FanoutNode) -> Duration {
    let own = node.agent_timeout_ms.map_or(AGENT_TIMEOUT, Duration::from_millis);
    ctx.attempt.node.timeout_ms.map_or(own, |ms| own.min(Duration::from_millis(ms)))
}

/// Name of the session of an agent, or of the synthesis. A run that holds nothing else needs no node in it.
fn session(ctx: &NodeCtx, who: &str) -> String {
    let attempt = &ctx.attempt;
    let (run, node, n) = (&attempt.run_id, &attempt.node.id, attempt.attempt);
    let alone = node.as_str() == "main" && GENERATED.iter().any(|start| run.as_str().starts_with(start));
    match (alone, n) {
        (true, 1) => format!("{run}-{who}"),
        (true, n) => format!("{run}-{who}-a{n}"),
        (false, n) => format!("{run}-{node}-a{n}-{who}"),
    }
}

/// Runs the node's attempt.
pub(super) async fn run(ctx: &NodeCtx, node: &FanoutNode) -> NodeResult {
    match node.isolation {
        Isolation::Worktree => contest::run(ctx, node).await,
        Isolation::None => together(ctx, node).await,
    }
}

/// All agents in the run's directory.
async fn together(ctx: &NodeCtx, node: &FanoutNode) -> NodeResult {
    let places = Places { shared: ctx.directory(node.cwd.as_deref()), ..Places::default() };
    let mut gathered = members::all(ctx, node, places).await;
    let mut result = std::mem::take(&mut gathered.result);
    result.touched = true;
    if !matches!(result.status, Status::Succeeded) {
        return result;
    }
    match merged::synthesise(ctx, node, &gathered, &mut result).await {
        Ok(text) => result.output = Some(text.unwrap_or_else(|| gathered.sections())),
        Err(status) => result.status = status,
    }
    result
}
