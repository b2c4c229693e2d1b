//! Another workflow as a child run, whose verdict its parent adopts.

use super::{NoChild, NodeCtx, NodeResult, Status, Stop};

/// Runs the node's attempt.
pub(super) async fn run(ctx: &NodeCtx) -> NodeResult {
    let scoped = NodeCtx { cancel: ctx.cancel.child_token(), ..ctx.clone() };
    let (child, timed_out) = {
        let mut work = std::pin::pin!(ctx.children.run(&scoped));
        tokio::select! {
            child = &mut work => (child, None),
            ms = limit(ctx) => {
                let _ = ctx.stop.set(Stop::Budget);
                scoped.cancel.cancel();
                (work.await, Some(ms))
            }
        }
    };
    if let Ok(child) = &child {
        ctx.budget.charge(&child.run, &child.spend);
    }
    if ctx.cancel.is_cancelled() {
        return NodeResult { status: Status::Stopped, ..NodeResult::default() };
    }
    if let Some(ms) = timed_out {
        return NodeResult::failed(format!("timeout: the child run took more than {ms} ms"));
    }
    let child = match child {
        Ok(child) => child,
        Err(NoChild::Failed(why)) => return NodeResult::failed(why),
        Err(NoChild::Exhausted(why)) => {
            return NodeResult { status: Status::Exhausted(why), ..NodeResult::default() };
        }
    };
    let status = if child.completed { Status::Succeeded } else { Status::Failed(child.summary.clone()) };
    let text = child.output.map(|o| o.text).unwrap_or_default();
    let output = if text.is_empty() { child.summary } else { format!("{}\n\n{text}", child.summary) };
    NodeResult { status, output: Some(output), verdict: child.verdict, ..NodeResult::default() }
}

/// Passes when the attempt has lasted as long as its spec allows. Without a limit of its own it never does:
/// every node of the child has one, and a gate in it may wait for a person for days.
async fn limit(ctx: &NodeCtx) -> u64 {
    match ctx.attempt.node.timeout_ms {
        Some(ms) => {
            tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
            ms
        }
        None => std::future::pending().await,
    }
}
