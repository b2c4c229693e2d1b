//! The turn that makes one answer of several. Kept when it is done, so that a resume does not ask again.

use std::time::Duration;

use serde_json::{Value, json};

use super::{agent_limit, members::Gathered, session};
use crate::{
    engines::SessionOptions,
    model::spec::{FanoutNode, Isolation},
    nodes::{
        NodeCtx, NodeResult, Report, Status,
        agent::turn_data,
        prompt::{Source, cut, synthesis},
        turn::{self, Ended, Turn},
    },
    sys::ids,
};

/// Key of the document in a node's data.
const SYNTHESIS: &str = "synthesis";
/// Fewest answers that can be merged.
const LEAST: usize = 2;
/// Longest failure kept on the record, in bytes.
const ERROR_MAX: usize = 500;
/// Permission mode of a synthesis that has nothing to write.
const PLAN: &str = "plan";

/// The merged answer; `None` when there is none, whose reason is on the record. The node's work is done either way.
///
/// # Errors
/// The status of an attempt that was stopped or has used up its run's budget.
pub(super) async fn synthesise(
    ctx: &NodeCtx,
    node: &FanoutNode,
    gathered: &Gathered,
    result: &mut NodeResult,
) -> Result<Option<String>, Status> {
    if !node.synthesize {
        return Ok(None);
    }
    if let Some((data, text)) = ctx.attempt.parts.get(SYNTHESIS) {
        let ok = data.get("ok").and_then(Value::as_bool) == Some(true);
        return Ok(text.clone().filter(|_| ok));
    }
    let reports = gathered.reports();
    if reports.len() < LEAST {
        let skipped = format!("only {} of {} agents succeeded", reports.len(), node.agents.len());
        keep(ctx, json!({ "ok": false, "skipped": skipped }), None).await;
        return Ok(None);
    }
    if ctx.wind_down.is_cancelled() {
        keep(ctx, json!({ "ok": false, "skipped": "aborted" }), None).await;
        return Ok(None);
    }
    // What is left of the node's own limit after its slowest agent.
    let left = ctx.attempt.node.timeout_ms.map(|ms| Duration::from_millis(ms).saturating_sub(gathered.longest()));
    let limit = agent_limit(ctx, node).min(left.unwrap_or(Duration::MAX));
    if limit.is_zero() {
        let ms = ctx.attempt.node.timeout_ms.unwrap_or_default();
        let error = format!("timeout: nothing is left of {ms} ms to merge the reports in");
        keep(ctx, json!({ "ok": false, "error": error }), None).await;
        return Ok(None);
    }
    let mut choice = node.synthesis.clone();
    if node.isolation == Isolation::Worktree {
        // It works where the user does.
        choice.permission_mode = Some(PLAN.to_owned());
    }
    let done = turn::take(
        ctx,
        Turn {
            session: session(ctx, SYNTHESIS),
            who: Some(SYNTHESIS.to_owned()),
            choice,
            cwd: ctx.directory(node.cwd.as_deref()),
            options: SessionOptions::default(),
            env: Vec::new(),
            message: synthesis(&node.prompt, &sources(ctx, node, reports), &ids::short()),
            append_system_prompt: None,
            max_turns: node.max_turns_per_agent,
            max_budget_usd: node.max_budget_usd,
            resume: None,
            limit,
        },
    )
    .await;
    result.unkillable.extend(done.unkillable);
    let (outcome, failure) = match done.ended {
        Ended::Exhausted(why) => return Err(Status::Exhausted(why)),
        Ended::Stopped => return Err(Status::Stopped),
        Ended::Failed(why) => (None, Some(why)),
        Ended::Answered(outcome) => {
            let failure = (!outcome.ok).then(|| turn::failure(&outcome));
            (Some(*outcome), failure)
        }
    };
    let mut data = outcome.as_ref().map_or_else(
        || json!({ "ok": false, "durationMs": limit.as_millis() as u64, "costUsd": done.spend.cost_usd }),
        turn_data,
    );
    // The agents' work is done and paid for; a merge that failed costs the merge only.
    if let (Some(failure), Some(map)) = (&failure, data.as_object_mut()) {
        map.insert("error".to_owned(), json!(cut(failure, ERROR_MAX).0));
    }
    let text = outcome.filter(|outcome| outcome.ok).map(|outcome| outcome.text);
    keep(ctx, data, text.clone().filter(|text| !text.is_empty())).await;
    Ok(text)
}

/// The answers with who gave them.
fn sources(ctx: &NodeCtx, node: &FanoutNode, reports: Vec<(String, String)>) -> Vec<Source> {
    let source = |(name, text): (String, String)| {
        let choice = node.agents.iter().find(|agent| agent.name == name).map(|agent| &agent.choice);
        let engine = choice.and_then(|choice| ctx.services.registry.resolve(choice).ok()).map(|e| e.name());
        let model = choice.and_then(|choice| choice.model.as_deref());
        let by: Vec<&str> = engine.into_iter().chain(model).collect();
        Source { title: if by.is_empty() { name } else { format!("{name} ({})", by.join(", ")) }, text }
    };
    reports.into_iter().map(source).collect()
}

async fn keep(ctx: &NodeCtx, data: Value, text: Option<String>) {
    ctx.report.send(Report::Part { key: SYNTHESIS.to_owned(), data, text }).await;
}
