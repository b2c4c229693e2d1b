//! One turn of one agent.

mod isolated;

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{
    NodeCtx, NodeResult, Report, Status,
    prompt::{Parts, compose},
    turn::{self, Turn},
};
use crate::{
    engines::{SessionOptions, TurnOutcome},
    model::spec::{AgentNode, Isolation},
    sys::ids,
};

/// Most refused tool calls kept on the record.
const DENIALS_MAX: usize = 20;

/// Runs the node's attempt.
pub(super) async fn run(ctx: &NodeCtx, node: &AgentNode) -> NodeResult {
    match node.isolation {
        Isolation::Worktree => isolated::run(ctx, node).await,
        Isolation::None => one(ctx, node, ctx.directory(node.cwd.as_deref()), Vec::new()).await,
    }
}

/// The turn, in `cwd` and with further variables.
async fn one(ctx: &NodeCtx, node: &AgentNode, cwd: PathBuf, env: Vec<(String, String)>) -> NodeResult {
    let attempt = &ctx.attempt;
    let parts =
        Parts { steers: &attempt.steers, red: &attempt.red, red_repeats: attempt.red_repeats, inputs: &attempt.inputs };
    let message = compose(&node.prompt, &parts, &ids::short());
    let default = format!("{}-{}-a{}", attempt.run_id, attempt.node.id, attempt.attempt);
    let done = turn::take(
        ctx,
        Turn {
            session: node.session_name.clone().unwrap_or(default),
            who: None,
            choice: node.choice.clone(),
            cwd,
            options: SessionOptions::default(),
            env,
            message,
            append_system_prompt: node.append_system_prompt.clone(),
            max_turns: None,
            max_budget_usd: None,
            resume: resumable(ctx, node),
            limit: ctx.timeout(),
        },
    )
    .await;
    let (outcome, unkillable) = match turn::answered(done) {
        Ok(answer) => answer,
        Err(result) => return *result,
    };
    if let (Some(name), Some(id)) = (&node.session_name, &outcome.native_id) {
        let data = json!({ "engine": node.choice.engine, "nativeId": id });
        ctx.report.send(Report::Part { key: session_key(name), data, text: None }).await;
    }
    let status = if outcome.ok { Status::Succeeded } else { turn::failed(&outcome) };
    NodeResult {
        status,
        data: [("turn".to_owned(), turn_data(&outcome))].into(),
        output: Some(outcome.text),
        steers_seen: attempt.steers.iter().map(|s| s.id.clone()).collect(),
        unkillable,
        touched: true,
        ..NodeResult::default()
    }
}

/// Key under which a named session's conversation is kept in a node's data.
pub fn session_key(name: &str) -> String {
    format!("session:{name}")
}

/// The conversation to go on with, when the node shares a named session with an earlier one.
fn resumable(ctx: &NodeCtx, node: &AgentNode) -> Option<String> {
    let name = node.session_name.as_deref()?;
    let (data, _) = ctx.attempt.parts.get(&session_key(name))?;
    let same = data.get("engine").and_then(Value::as_str) == node.choice.engine.as_deref();
    same.then(|| data.get("nativeId").and_then(Value::as_str).map(str::to_owned)).flatten()
}

/// What is kept of a turn besides its text.
pub(super) fn turn_data(outcome: &TurnOutcome) -> Value {
    let mut data = json!({
        "ok": outcome.ok,
        "durationMs": outcome.duration_ms,
        "toolCalls": outcome.tool_calls,
        "toolErrors": outcome.tool_errors,
        "costUsd": outcome.spend.cost_usd,
    });
    let optional = [
        ("stopReason", outcome.stop_reason.as_ref().map(|v| json!(v))),
        ("nativeId", outcome.native_id.as_ref().map(|v| json!(v))),
        ("costSource", outcome.cost_source.as_ref().map(|v| json!(v))),
        ("errorClass", outcome.error.as_ref().map(|e| json!(e.class))),
    ];
    if let Some(map) = data.as_object_mut() {
        for (key, value) in optional {
            if let Some(value) = value {
                map.insert(key.to_owned(), value);
            }
        }
        if !outcome.permission_denials.is_empty() {
            let shown: Vec<&str> =
                outcome.permission_denials.iter().take(DENIALS_MAX).map(|d| d.tool_name.as_str()).collect();
            map.insert("permissionDenials".to_owned(), json!(shown));
        }
    }
    data
}
