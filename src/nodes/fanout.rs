//! Several agents on one prompt, each finished one kept at once, so that a crash repeats only the others.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    NodeCtx, NodeResult, Report, Status,
    agent::turn_data,
    prompt::{Parts, compose, cut, member_task, synthesis},
    turn::{self, Ended, Turn},
};
use crate::{
    engines::{ErrorClass, SessionOptions},
    model::spec::{FanoutAgent, FanoutNode},
    sys::ids,
};

/// Wall-clock limit of one agent where nothing else is said.
pub const AGENT_TIMEOUT: Duration = Duration::from_secs(600);
/// Most of one agent's report kept in the node's output, in bytes.
const REPORT_MAX: usize = 64 * 1024;

/// One agent's end.
struct Member {
    index: usize,
    ok: bool,
    report: String,
    error: Option<String>,
    /// It failed in a way that a retry cannot help.
    hopeless: bool,
    exhausted: Option<String>,
    stopped: bool,
    unkillable: Vec<String>,
    /// How long its turn took, the wait for a slot left out.
    took: Duration,
}

/// Wall-clock limit of one agent: its own, within what the node as a whole may take when that is said.
fn agent_limit(ctx: &NodeCtx, node: &FanoutNode) -> Duration {
    let own = node.agent_timeout_ms.map_or(AGENT_TIMEOUT, Duration::from_millis);
    ctx.attempt.node.timeout_ms.map_or(own, |ms| own.min(Duration::from_millis(ms)))
}

/// Runs the node's attempt.
pub(super) async fn run(ctx: &NodeCtx, node: &FanoutNode) -> NodeResult {
    let shared = Arc::new(node.clone());
    let mut members: Vec<Member> = Vec::new();
    let mut running = JoinSet::new();
    for (index, agent) in node.agents.iter().enumerate() {
        match finished(ctx, index, agent) {
            Some(member) => members.push(member),
            None => {
                let (ctx, node) = (ctx.clone(), shared.clone());
                running.spawn(async move { member(&ctx, &node, index).await });
            }
        }
    }
    let fresh = !running.is_empty();
    let mut abnormal = None;
    while let Some(joined) = running.join_next().await {
        match joined {
            Ok(member) => members.push(member),
            // The others go on, because their processes must have ended before anything else happens.
            Err(e) => abnormal = Some(format!("an agent's task ended abnormally: {e}")),
        }
    }
    members.sort_by_key(|m| m.index);

    let unkillable: Vec<String> = members.iter().flat_map(|m| m.unkillable.clone()).collect();
    let mut result = NodeResult {
        unkillable,
        touched: true,
        // Reports kept from an earlier attempt were written before these corrections.
        steers_seen: ctx.attempt.steers.iter().filter(|_| fresh).map(|s| s.id.clone()).collect(),
        ..NodeResult::default()
    };
    if let Some(why) = abnormal {
        result.status = Status::Failed(why);
        return result;
    }
    if members.iter().any(|m| m.stopped) {
        result.status = Status::Stopped;
        return result;
    }
    if let Some(why) = members.iter().find_map(|m| m.exhausted.clone()) {
        result.status = Status::Exhausted(why);
        return result;
    }
    let name = |m: &Member| node.agents.get(m.index).map_or_else(String::new, |a| a.name.clone());
    let reports: Vec<(String, String)> = members.iter().filter(|m| m.ok).map(|m| (name(m), m.report.clone())).collect();
    if reports.is_empty() {
        let why: Vec<String> =
            members.iter().map(|m| format!("{}: {}", name(m), m.error.clone().unwrap_or_default())).collect();
        let why = format!("no agent succeeded: {}", why.join("; "));
        let hopeless = members.iter().all(|m| m.hopeless);
        result.status = if hopeless { Status::Hopeless(why) } else { Status::Failed(why) };
        return result;
    }
    if node.synthesize && reports.len() >= 2 {
        // What is left of the node's own limit after its slowest agent.
        let longest = members.iter().map(|m| m.took).max().unwrap_or_default();
        let left = ctx.attempt.node.timeout_ms.map(|ms| Duration::from_millis(ms).saturating_sub(longest));
        let limit = agent_limit(ctx, node).min(left.unwrap_or(Duration::MAX));
        if limit.is_zero() {
            let ms = ctx.attempt.node.timeout_ms.unwrap_or_default();
            result.status = Status::Failed(format!("timeout: nothing is left of {ms} ms to merge the reports in"));
            return result;
        }
        let merged = synthesise(ctx, node, &reports, limit).await;
        return join(result, merged);
    }
    result.output = Some(listed(&reports));
    result
}

/// What an earlier attempt of this visit finished for an agent.
fn finished(ctx: &NodeCtx, index: usize, agent: &FanoutAgent) -> Option<Member> {
    let (data, text) = ctx.attempt.parts.get(&key(agent))?;
    let ok = data.get("ok").and_then(Value::as_bool)?;
    let same = data.get("attempt").and_then(Value::as_u64) == Some(u64::from(ctx.attempt.attempt));
    let hopeless = data.get("errorClass").and_then(Value::as_str) == Some(ErrorClass::Auth.as_str());
    // A finished success stands over crashes and retries; a failure only within the attempt it belongs to,
    // unless it would come again.
    (ok || same || hopeless).then(|| Member {
        index,
        ok,
        report: text.clone().unwrap_or_default(),
        error: data.get("error").and_then(Value::as_str).map(str::to_owned),
        hopeless,
        exhausted: None,
        stopped: false,
        unkillable: Vec::new(),
        took: Duration::ZERO,
    })
}

fn key(agent: &FanoutAgent) -> String {
    format!("agent:{}", agent.name)
}

async fn member(ctx: &NodeCtx, node: &FanoutNode, index: usize) -> Member {
    let mut member = Member {
        index,
        ok: false,
        report: String::new(),
        error: None,
        hopeless: false,
        exhausted: None,
        stopped: false,
        unkillable: Vec::new(),
        took: Duration::ZERO,
    };
    let Some(agent) = node.agents.get(index) else { return member };
    let attempt = &ctx.attempt;
    let parts =
        Parts { steers: &attempt.steers, red: &attempt.red, red_repeats: attempt.red_repeats, inputs: &attempt.inputs };
    let task = member_task(&node.prompt, agent.persona.as_deref(), agent.prompt.as_deref());
    let limit = agent_limit(ctx, node);
    let done = turn::take(
        ctx,
        Turn {
            session: format!("{}-{}-a{}-{}", attempt.run_id, attempt.node.id, attempt.attempt, agent.name),
            who: Some(agent.name.clone()),
            choice: agent.choice.clone(),
            cwd: ctx.directory(node.cwd.as_deref()),
            options: member_options(ctx, agent),
            env: Vec::new(),
            message: compose(&task, &parts, &ids::short()),
            append_system_prompt: None,
            max_turns: node.max_turns_per_agent,
            max_budget_usd: node.max_budget_usd,
            resume: None,
            limit,
        },
    )
    .await;
    member.unkillable = done.unkillable;
    let mut data = json!({ "ok": false, "attempt": attempt.attempt });
    match done.ended {
        Ended::Answered(outcome) => {
            data = turn_data(&outcome);
            member.took = Duration::from_millis(outcome.duration_ms);
            member.ok = outcome.ok;
            if !outcome.ok {
                member.error = Some(turn::failure(&outcome));
                member.hopeless = turn::hopeless(&outcome);
            }
            member.report = outcome.text;
        }
        Ended::Failed(why) => {
            member.took = limit;
            member.error = Some(why);
        }
        Ended::Exhausted(why) => member.exhausted = Some(why),
        Ended::Stopped => member.stopped = true,
    }
    if !member.stopped && member.exhausted.is_none() {
        if let Some(map) = data.as_object_mut() {
            map.insert("attempt".to_owned(), json!(attempt.attempt));
            if let Some(error) = &member.error {
                map.insert("error".to_owned(), json!(cut(error, 500).0));
            }
        }
        let text = Some(member.report.clone()).filter(|t| !t.is_empty());
        ctx.report.send(Report::Part { key: key(agent), data, text }).await;
    }
    member
}

/// What was chosen for an agent's session besides who answers.
fn member_options(ctx: &NodeCtx, agent: &FanoutAgent) -> SessionOptions {
    SessionOptions {
        sandbox: agent.sandbox,
        base_url: agent.base_url.clone(),
        custom: ctx.customs.get(&agent.name).cloned(),
        ..SessionOptions::default()
    }
}

/// One more turn that merges the reports.
async fn synthesise(ctx: &NodeCtx, node: &FanoutNode, reports: &[(String, String)], limit: Duration) -> NodeResult {
    let attempt = &ctx.attempt;
    let done = turn::take(
        ctx,
        Turn {
            session: format!("{}-{}-a{}-synthesis", attempt.run_id, attempt.node.id, attempt.attempt),
            who: Some("synthesis".to_owned()),
            choice: node.synthesis.clone(),
            cwd: ctx.directory(node.cwd.as_deref()),
            options: SessionOptions::default(),
            env: Vec::new(),
            message: synthesis(&node.prompt, reports, &ids::short()),
            append_system_prompt: None,
            max_turns: node.max_turns_per_agent,
            max_budget_usd: node.max_budget_usd,
            resume: None,
            limit,
        },
    )
    .await;
    match turn::answered(done) {
        Err(result) => *result,
        Ok((outcome, unkillable)) => {
            let data = [("synthesis".to_owned(), turn_data(&outcome))].into();
            if outcome.ok {
                return NodeResult { output: Some(outcome.text), data, unkillable, ..NodeResult::default() };
            }
            // The members' work is done and paid for; a failed merge costs the merge only.
            let note = format!("[the merge failed: {}]\n\n", turn::failure(&outcome));
            NodeResult { output: Some(note + &listed(reports)), data, unkillable, ..NodeResult::default() }
        }
    }
}

fn join(mut result: NodeResult, merged: NodeResult) -> NodeResult {
    result.status = merged.status;
    result.output = merged.output;
    result.data = merged.data;
    result.unkillable.extend(merged.unkillable);
    result
}

/// The reports one after another under their authors' names.
fn listed(reports: &[(String, String)]) -> String {
    let part = |(name, report): &(String, String)| format!("### {name}\n\n{}\n", cut(report, REPORT_MAX).0.trim_end());
    match reports {
        [(_, only)] => only.clone(),
        many => many.iter().map(part).collect::<Vec<_>>().join("\n"),
    }
}
