//! The fields of a council node.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    AGENTS_MAX, Fields,
    nodes::{EFFORTS, OWN, PERMISSION_MODES, base_url, choice, member_name, no_custom_engine},
};
use crate::model::{
    Problem,
    spec::{CouncilAgent, CouncilNode},
};

/// Shortest and longest task, in characters.
pub const TASK_CHARS: (usize, usize) = (5, 100_000);
/// Longest emoji, in characters.
const EMOJI_MAX: usize = 8;
/// Names that belong to the runtime.
pub(super) const RESERVED: [&str; 3] = ["integration", "runtime", "salvage"];

/// Reads the node's own fields.
pub(super) fn read(f: &mut Fields<'_>, out: &mut Vec<Problem>) -> Option<CouncilNode> {
    let task = f.required("task", out);
    if let Some(task) = &task {
        let (least, most) = TASK_CHARS;
        let length = task.trim().chars().count();
        if !(least..=most).contains(&length) {
            f.problem("task", format!("give {least} to {most} characters, found {length}"), out);
        }
    }
    let agents = match f.list("agents", out) {
        None if f.raw("agents").is_none() => {
            f.problem("agents", format!("missing; give 1 to {AGENTS_MAX} members"), out);
            Vec::new()
        }
        None => Vec::new(),
        Some(items) => {
            if items.is_empty() || items.len() > AGENTS_MAX {
                f.problem("agents", format!("expected 1 to {AGENTS_MAX} members, found {}", items.len()), out);
            }
            members(items, out)
        }
    };
    let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let rounds = f.integer("maxRounds", 1, CouncilNode::ROUNDS_MAX.into(), out).map(small);
    let turns = f.integer("maxTurnsPerAgent", 1, CouncilNode::TURNS_MAX.into(), out).map(small);
    let max_budget_usd = cap(f, "maxBudgetUsd", out);
    let mode = f.word("defaultPermissionMode", PERMISSION_MODES, out);
    let (least, most) = (CouncilNode::TIMEOUT_MIN_MS, CouncilNode::TIMEOUT_MAX_MS);
    let timeout = f.integer("agentTimeoutMs", least, most, out);
    // The limit of the whole is also that of one send when that has none of its own.
    let whole = f.raw("timeoutMs").and_then(Value::as_u64).map(|ms| ms.clamp(least, most));
    let timeout = timeout.or(whole);
    let project_dir = f.string("projectDir", out);
    let allow_dirty = f.boolean("allowDirty", out).unwrap_or(false);
    let continue_from = f.string("continueFrom", out);
    if let Some(id) = &continue_from
        && let Err(e) = crate::model::RunId::parse(id)
    {
        f.problem("continueFrom", e.to_string(), out);
    }
    no_custom_engine(f, out);
    Some(CouncilNode {
        task: task?.trim().to_owned(),
        agents,
        project_dir,
        max_rounds: rounds.unwrap_or(CouncilNode::ROUNDS_DEFAULT),
        max_turns_per_agent: turns.unwrap_or(CouncilNode::TURNS_DEFAULT),
        max_budget_usd,
        default_permission_mode: mode.unwrap_or(CouncilNode::MODE_DEFAULT).to_owned(),
        agent_timeout_ms: timeout.unwrap_or(CouncilNode::TIMEOUT_DEFAULT_MS),
        allow_dirty,
        continue_from,
    })
}

/// A cap in US dollars; nothing above zero is no cap.
fn cap(f: &mut Fields<'_>, key: &'static str, out: &mut Vec<Problem>) -> Option<f64> {
    let value = f.raw(key)?;
    match value.as_f64() {
        Some(n) if n.is_finite() => (n > 0.0).then_some(n),
        _ => {
            f.problem(key, "expected a number of US dollars", out);
            None
        }
    }
}

/// The members, with distinct names.
fn members(items: Vec<(String, &Value)>, out: &mut Vec<Problem>) -> Vec<CouncilAgent> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (path, value) in items {
        let Some(mut f) = Fields::of(value, path, out) else { continue };
        let name = f.required("name", out);
        if let Some(name) = &name
            && let Err(why) = member_name(name, &RESERVED, &mut seen)
        {
            f.problem("name", why, out);
        }
        let emoji = f.string("emoji", out).unwrap_or_default().trim().to_owned();
        if emoji.chars().count() > EMOJI_MAX || emoji.chars().any(char::is_control) {
            f.problem("emoji", format!("use at most {EMOJI_MAX} characters"), out);
        }
        let mut who = choice(&mut f, OWN, out);
        who.effort = f.word("effort", EFFORTS, out).map(str::to_owned);
        let said = |text: &String| !text.trim().is_empty();
        let persona = f.string("persona", out).filter(said);
        let prompt = f.string("prompt", out).filter(said);
        let base_url = base_url(&mut f, out);
        let ultracode = f.boolean("ultracode", out).unwrap_or(false);
        no_custom_engine(&mut f, out);
        f.finish(out);
        found.extend(name.map(|name| CouncilAgent { name, emoji, persona, prompt, choice: who, base_url, ultracode }));
    }
    found
}
