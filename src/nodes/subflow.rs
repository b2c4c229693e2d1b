//! Another workflow as a child run, whose verdict its parent adopts.

use super::{NodeCtx, NodeResult, Report, Status};

/// Runs the node's attempt.
pub(super) async fn run(ctx: &NodeCtx) -> NodeResult {
    let child = ctx.children.run(ctx).await;
    if ctx.cancel.is_cancelled() {
        return NodeResult { status: Status::Stopped, ..NodeResult::default() };
    }
    let child = match child {
        Ok(child) => child,
        Err(why) => return NodeResult::failed(why),
    };
    ctx.budget.adopt(&child.spend);
    ctx.report.send(Report::Cost(child.spend)).await;
    let status = if child.completed { Status::Succeeded } else { Status::Failed(child.summary.clone()) };
    let text = child.output.map(|o| o.text).unwrap_or_default();
    let output = if text.is_empty() { child.summary } else { format!("{}\n\n{text}", child.summary) };
    NodeResult { status, output: Some(output), verdict: child.verdict, ..NodeResult::default() }
}
