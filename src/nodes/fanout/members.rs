//! The agents of a fan-out: who still has to work, so many at once as sessions are free, each kept when it is done.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{agent_limit, session};
use crate::{
    engines::{ErrorClass, SessionOptions},
    model::spec::{FanoutAgent, FanoutNode},
    nodes::{
        NodeCtx, NodeResult, Report, Status,
        agent::turn_data,
        isolated::seats::Seat,
        prompt::{Parts, compose, cut, member_task},
        turn::{self, Ended, Turn},
    },
    sys::ids,
};

/// Longest failure kept on the record, in bytes.
const ERROR_MAX: usize = 500;

/// One agent's end.
#[derive(Debug, Default)]
pub(super) struct Member {
    pub(super) index: usize,
    pub(super) ok: bool,
    pub(super) report: String,
    pub(super) error: Option<String>,
    /// It failed in a way that a retry cannot help.
    pub(super) hopeless: bool,
    exhausted: Option<String>,
    stopped: bool,
    unkillable: Vec<String>,
    /// How long its turn took, the wait for a slot left out.
    pub(super) took: Duration,
}

/// Where the agents work.
#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    /// All of them, when they have no place of their own.
    pub(super) shared: PathBuf,
    /// Those that have one, by name.
    pub(super) own: BTreeMap<String, Seat>,
}

/// What all agents came to.
#[derive(Debug)]
pub(super) struct Gathered {
    /// In the order of the spec.
    pub(super) members: Vec<Member>,
    /// Names in that order.
    pub(super) names: Vec<String>,
    /// The result so far; its status is not success when nothing can follow.
    pub(super) result: NodeResult,
}

impl Gathered {
    /// Name and report of those that succeeded.
    pub(super) fn reports(&self) -> Vec<(String, String)> {
        let ok = self.members.iter().filter(|m| m.ok);
        ok.map(|m| (self.names.get(m.index).cloned().unwrap_or_default(), m.report.clone())).collect()
    }

    /// The longest turn.
    pub(super) fn longest(&self) -> Duration {
        self.members.iter().map(|m| m.took).max().unwrap_or_default()
    }

    /// Everybody's report under its name, failures marked.
    pub(super) fn sections(&self) -> String {
        let section = |m: &Member| {
            let name = self.names.get(m.index).map_or("", String::as_str);
            match &m.error {
                Some(error) => format!("## {name}\n\n[failed: {error}]\n"),
                None => format!("## {name}\n\n{}\n", cut(&m.report, super::REPORT_MAX).0.trim_end()),
            }
        };
        self.members.iter().map(section).collect::<Vec<_>>().join("\n")
    }
}

/// Agents that no attempt of this visit has finished.
pub(super) fn missing<'n>(ctx: &NodeCtx, node: &'n FanoutNode) -> Vec<&'n str> {
    let agents = node.agents.iter().enumerate();
    agents.filter(|(i, agent)| finished(ctx, *i, agent).is_none()).map(|(_, agent)| agent.name.as_str()).collect()
}

/// Runs those agents that are missing, and waits for all.
pub(super) async fn all(ctx: &NodeCtx, node: &FanoutNode, places: Places) -> Gathered {
    let (node, places) = (Arc::new(node.clone()), Arc::new(places));
    let mut members: Vec<Member> = Vec::new();
    let mut waiting = Vec::new();
    for (index, agent) in node.agents.iter().enumerate() {
        match finished(ctx, index, agent) {
            Some(member) => members.push(member),
            None => waiting.push(index),
        }
    }
    let fresh = !waiting.is_empty();
    let pool = &ctx.services.pool;
    let width = pool.max().saturating_sub(pool.in_use()).max(1);
    let (mut waiting, mut running, mut abnormal) = (waiting.into_iter(), JoinSet::new(), None);
    loop {
        while running.len() < width
            && let Some(index) = waiting.next()
        {
            let (ctx, node, places) = (ctx.clone(), node.clone(), places.clone());
            running.spawn(async move { member(&ctx, &node, &places, index).await });
        }
        let joined = tokio::select! {
            joined = running.join_next() => joined,
            // Whoever waits is told at once that it will not begin, not when its turn would have come.
            () = ctx.wind_down.cancelled(), if waiting.len() > 0 => {
                for index in waiting.by_ref() {
                    let (ctx, node, places) = (ctx.clone(), node.clone(), places.clone());
                    running.spawn(async move { member(&ctx, &node, &places, index).await });
                }
                continue;
            }
        };
        match joined {
            Some(Ok(member)) => members.push(member),
            // The others go on, because their processes must have ended before anything else happens.
            Some(Err(e)) => abnormal = Some(format!("an agent's task ended abnormally: {e}")),
            None => break,
        }
    }
    members.sort_by_key(|m| m.index);
    let mut result = NodeResult {
        unkillable: members.iter().flat_map(|m| m.unkillable.clone()).collect(),
        // Reports kept from an earlier attempt were written before these corrections.
        steers_seen: ctx.attempt.steers.iter().filter(|_| fresh).map(|s| s.id.clone()).collect(),
        ..NodeResult::default()
    };
    let names: Vec<String> = node.agents.iter().map(|agent| agent.name.clone()).collect();
    result.status = status(&members, &names, abnormal);
    Gathered { members, names, result }
}

/// Whether anything can follow.
fn status(members: &[Member], names: &[String], abnormal: Option<String>) -> Status {
    if let Some(why) = abnormal {
        return Status::Failed(why);
    }
    if members.iter().any(|m| m.stopped) {
        return Status::Stopped;
    }
    if let Some(why) = members.iter().find_map(|m| m.exhausted.clone()) {
        return Status::Exhausted(why);
    }
    if members.iter().any(|m| m.ok) {
        return Status::Succeeded;
    }
    let name = |m: &Member| names.get(m.index).map_or("", String::as_str);
    let why: Vec<String> =
        members.iter().map(|m| format!("{}: {}", name(m), m.error.as_deref().unwrap_or_default())).collect();
    let why = format!("no agent succeeded: {}", why.join("; "));
    if members.iter().all(|m| m.hopeless) { Status::Hopeless(why) } else { Status::Failed(why) }
}

/// What an earlier attempt of this visit finished for an agent.
fn finished(ctx: &NodeCtx, index: usize, agent: &FanoutAgent) -> Option<Member> {
    let (data, text) = ctx.attempt.parts.get(&key(agent))?;
    let ok = data.get("ok").and_then(Value::as_bool)?;
    let same = data.get("attempt").and_then(Value::as_u64) == Some(u64::from(ctx.attempt.attempt));
    let hopeless = data.get("errorClass").and_then(Value::as_str) == Some(ErrorClass::Auth.as_str());
    // A finished success stands over crashes and retries; a failure only until the next failed attempt, unless it
    // would come again.
    let failures = data.get("failures").and_then(Value::as_u64) == Some(u64::from(ctx.attempt.failures));
    (ok || same || failures || hopeless).then(|| Member {
        index,
        ok,
        report: text.clone().unwrap_or_default(),
        error: data.get("error").and_then(Value::as_str).map(str::to_owned),
        hopeless,
        ..Member::default()
    })
}

fn key(agent: &FanoutAgent) -> String {
    format!("agent:{}", agent.name)
}

async fn member(ctx: &NodeCtx, node: &FanoutNode, places: &Places, index: usize) -> Member {
    let mut member = Member { index, ..Member::default() };
    let Some(agent) = node.agents.get(index) else { return member };
    let attempt = &ctx.attempt;
    let parts =
        Parts { steers: &attempt.steers, red: &attempt.red, red_repeats: attempt.red_repeats, inputs: &attempt.inputs };
    let task = member_task(&node.prompt, agent.persona.as_deref(), agent.prompt.as_deref());
    let limit = agent_limit(ctx, node);
    let seat = places.own.get(&agent.name);
    let began = ctx.services.clock.boot();
    let done = turn::take(
        ctx,
        Turn {
            session: session(ctx, &agent.name),
            who: Some(agent.name.clone()),
            choice: agent.choice.clone(),
            cwd: seat.map_or_else(|| places.shared.clone(), |seat| seat.cwd.clone()),
            options: options(ctx, agent),
            env: seat.map(|seat| seat.env.clone()).unwrap_or_default(),
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
    let lasted = u64::try_from(ctx.services.clock.boot().saturating_sub(began).as_millis()).unwrap_or(u64::MAX);
    let mut data = json!({ "ok": false, "durationMs": lasted, "costUsd": done.spend.cost_usd });
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
        let engine = ctx.services.registry.resolve(&agent.choice).ok().map(|engine| engine.name());
        let more = [
            ("attempt", json!(attempt.attempt)),
            ("failures", json!(attempt.failures)),
            ("engine", json!(engine)),
            ("model", json!(agent.choice.model)),
            ("error", json!(member.error.as_deref().map(|error| cut(error, ERROR_MAX).0))),
        ];
        if let Some(map) = data.as_object_mut() {
            let more = more.into_iter().filter(|(_, value)| !value.is_null());
            map.extend(more.map(|(key, value)| (key.to_owned(), value)));
        }
        let text = Some(member.report.clone()).filter(|t| !t.is_empty());
        ctx.report.send(Report::Part { key: key(agent), data, text }).await;
    }
    member
}

/// What was chosen for an agent's session besides who answers.
fn options(ctx: &NodeCtx, agent: &FanoutAgent) -> SessionOptions {
    SessionOptions {
        sandbox: agent.sandbox,
        base_url: agent.base_url.clone(),
        custom: ctx.customs.get(&agent.name).cloned(),
        ..SessionOptions::default()
    }
}
