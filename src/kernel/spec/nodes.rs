//! The fields of each node kind.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    AGENTS_MAX, Fields, LIMIT_MS_MAX, NOT_YET, Origin, REVIEWERS_MAX,
    fields::{shown, type_of},
    read::{condition, node_id},
};
use crate::{
    model::{
        NodeId, NodeKind, Problem,
        spec::{
            AgentNode, ContractSource, EngineChoice, FanoutAgent, FanoutNode, GateNode, Isolation, Route, RouterNode,
            SandboxMode, Select, SubflowNode, SubflowSource, VerifierNode,
        },
    },
    verify::contract,
};

pub(super) const KINDS: &[&str] =
    &["agent", "fanout", "verifier", "human_gate", "router", "subflow", "goal", "council"];
const LATER: &[&str] = &["autoloop", "ultraapp_synth", "ultraapp_deploy"];
pub(super) const EFFORTS: &[&str] = &["low", "medium", "high", "xhigh", "max", "ultra", "auto"];
pub(super) const PERMISSION_MODES: &[&str] =
    &["acceptEdits", "bypassPermissions", "plan", "auto", "manual", "default", "dontAsk"];

/// Where an agent's own choice stands.
pub(super) const OWN: [&str; 4] = ["engine", "model", "permissionMode", "acpAgent"];
/// Where the choice of who merges stands.
const SYNTHESIS: [&str; 4] = ["synthesisEngine", "synthesisModel", "synthesisPermissionMode", "synthesisAcpAgent"];

/// Reads what the node's `kind` asks for.
pub(super) fn read_kind(
    f: &mut Fields<'_>,
    origin: Origin,
    out: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) -> Option<NodeKind> {
    if f.raw("kind").is_none() {
        f.problem("kind", format!("missing; use one of {}", KINDS.join(", ")), out);
        return None;
    }
    let kind = f.string("kind", out)?;
    match kind.as_str() {
        "agent" => agent(f, out).map(NodeKind::Agent),
        "fanout" => fanout(f, origin, out).map(NodeKind::Fanout),
        "verifier" => verifier(f, out, warnings).map(NodeKind::Verifier),
        "human_gate" => f.required("prompt", out).map(|prompt| NodeKind::HumanGate(GateNode { prompt })),
        "router" => router(f, out).map(NodeKind::Router),
        "subflow" => subflow(f, out).map(NodeKind::Subflow),
        "goal" => super::goal::read(f, out).map(NodeKind::Goal),
        "council" => super::council::read(f, out).map(NodeKind::Council),
        later if LATER.contains(&later) => {
            f.problem("kind", format!("{NOT_YET}: '{later}'; use one of {}", KINDS.join(", ")), out);
            None
        }
        other => {
            f.problem("kind", format!("unknown kind '{}'; use one of {}", shown(other), KINDS.join(", ")), out);
            None
        }
    }
}

/// Engine, model, permission mode and ACP agent under the given field names.
pub(super) fn choice(f: &mut Fields<'_>, names: [&'static str; 4], out: &mut Vec<Problem>) -> EngineChoice {
    let [engine, model, mode, acp] = names;
    EngineChoice {
        engine: f.string(engine, out),
        model: f.string(model, out),
        effort: None,
        acp_agent: f.string(acp, out),
        permission_mode: f.word(mode, PERMISSION_MODES, out).map(str::to_owned),
    }
}

/// What the agent may do to files.
fn sandbox(f: &mut Fields<'_>, out: &mut Vec<Problem>) -> Option<SandboxMode> {
    let words = SandboxMode::ALL.map(SandboxMode::as_str);
    let word = f.word("sandboxMode", &words, out)?;
    SandboxMode::ALL.into_iter().find(|mode| mode.as_str() == word)
}

fn ids(f: &mut Fields<'_>, key: &'static str, out: &mut Vec<Problem>) -> Vec<NodeId> {
    let mut found = Vec::new();
    for (path, value) in f.list(key, out).unwrap_or_default() {
        match value.as_str().map(NodeId::parse) {
            Some(Ok(id)) => found.push(id),
            Some(Err(e)) => out.push(Problem::new(path, e.to_string())),
            None => out.push(Problem::new(path, format!("expected a node id, found {}", type_of(value)))),
        }
    }
    found
}

/// A credential-bearing program config is never part of a spec that is written to disk.
pub(super) fn no_custom_engine(f: &mut Fields<'_>, out: &mut Vec<Problem>) {
    if f.raw("customEngine").is_some() {
        f.problem("customEngine", "never part of a spec, because specs are written to disk", out);
    }
}

fn agent(f: &mut Fields<'_>, out: &mut Vec<Problem>) -> Option<AgentNode> {
    let prompt = f.required("prompt", out);
    let inputs = ids(f, "inputs", out);
    let mut who = choice(f, OWN, out);
    who.effort = f.word("effort", EFFORTS, out).map(str::to_owned);
    let cwd = f.string("cwd", out);
    let session_name = f.string("sessionName", out);
    if let Some(name) = &session_name
        && crate::model::RunId::parse(name).is_err()
    {
        f.problem("sessionName", "use 1 to 128 letters, digits, '.', '_' or '-', starting with a letter or digit", out);
    }
    let append_system_prompt = f.string("appendSystemPrompt", out);
    let isolation = isolation(f, out);
    no_custom_engine(f, out);
    Some(AgentNode { prompt: prompt?, inputs, choice: who, cwd, session_name, append_system_prompt, isolation })
}

fn fanout(f: &mut Fields<'_>, origin: Origin, out: &mut Vec<Problem>) -> Option<FanoutNode> {
    let most = match origin {
        Origin::Caller => AGENTS_MAX,
        Origin::Tool | Origin::Stored => REVIEWERS_MAX,
    };
    let prompt = f.required("prompt", out);
    let inputs = ids(f, "inputs", out);
    let agents = match f.list("agents", out) {
        None if f.raw("agents").is_none() => {
            f.problem("agents", format!("missing; give 1 to {most} agents"), out);
            Vec::new()
        }
        None => Vec::new(),
        Some(items) if items.is_empty() || items.len() > most => {
            f.problem("agents", format!("expected 1 to {most} agents, found {}", items.len()), out);
            Vec::new()
        }
        Some(items) => fanout_agents(items, out),
    };
    let synthesize = f.boolean("synthesize", out).unwrap_or(false);
    let synthesis = choice(f, SYNTHESIS, out);
    let max_turns = f.integer("maxTurnsPerAgent", 1, 100_000, out).and_then(|n| u32::try_from(n).ok());
    let max_budget_usd = f.positive("maxBudgetUsd", out);
    let cwd = f.string("cwd", out);
    let agent_timeout_ms = f.integer("agentTimeoutMs", 1, LIMIT_MS_MAX, out);
    let isolation = isolation(f, out);
    let select = match f.word("select", &["all", "verified"], out) {
        Some("verified") => Select::Verified,
        _ => Select::All,
    };
    let (merge, allow_dirty) = (f.boolean("merge", out), f.boolean("allowDirty", out));
    let isolated = isolation == Isolation::Worktree;
    if select == Select::Verified && !isolated {
        f.problem("select", "\"verified\" needs isolation \"worktree\", so that each agent's work can be judged", out);
    }
    if merge.is_some() && select != Select::Verified {
        f.problem("merge", "belongs to select \"verified\"; leave it out", out);
    }
    if allow_dirty == Some(true) && !isolated {
        f.problem("allowDirty", "belongs to isolation \"worktree\"; leave it out", out);
    }
    if isolated {
        isolated_names(f, &agents, out);
    }
    no_custom_engine(f, out);
    Some(FanoutNode {
        prompt: prompt?,
        agents,
        inputs,
        synthesize,
        synthesis,
        max_turns_per_agent: max_turns,
        max_budget_usd,
        cwd,
        agent_timeout_ms,
        isolation,
        select,
        merge: merge.unwrap_or(true),
        allow_dirty: allow_dirty.unwrap_or(false),
    })
}

/// The agents of a fan-out or a template, with distinct names.
pub(crate) fn fanout_agents(items: Vec<(String, &Value)>, out: &mut Vec<Problem>) -> Vec<FanoutAgent> {
    let mut names = BTreeSet::new();
    let mut agents = Vec::new();
    for (path, value) in items {
        let Some(mut f) = Fields::of(value, path, out) else { continue };
        let name = f.required("name", out);
        let bad = |n: &String| n.len() > 64 || !n.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        if name.as_ref().is_some_and(bad) {
            f.problem("name", "use 1 to 64 letters, digits, '.', '_' or '-'", out);
        }
        if let Some(name) = &name
            && !names.insert(name.clone())
        {
            f.problem("name", format!("'{}' is used twice", shown(name)), out);
        }
        let mut who = choice(&mut f, OWN, out);
        who.effort = f.word("effort", EFFORTS, out).map(str::to_owned);
        let persona = f.string("persona", out);
        let prompt = f.string("prompt", out).filter(|p| !p.trim().is_empty());
        let base_url = base_url(&mut f, out);
        let sandbox = sandbox(&mut f, out);
        no_custom_engine(&mut f, out);
        f.finish(out);
        if let Some(name) = name {
            agents.push(FanoutAgent { name, choice: who, sandbox, persona, prompt, base_url });
        }
    }
    agents
}

/// Names no member of a fan-out may have.
pub(crate) const MEMBER_RESERVED: &[&str] = &["integration", "runtime", "salvage", "synthesis"];

/// Names of isolated agents become parts of branches and folders.
fn isolated_names(f: &Fields<'_>, agents: &[FanoutAgent], out: &mut Vec<Problem>) {
    let mut seen = BTreeSet::new();
    for (i, agent) in agents.iter().enumerate() {
        if let Err(why) = member_name(&agent.name, MEMBER_RESERVED, &mut seen) {
            f.problem(&format!("agents[{i}].name"), why, out);
        }
    }
}

/// Whether a name can be a member's: part of a branch, a folder and an address, also where case does not count.
pub(crate) fn member_name(name: &str, reserved: &[&str], seen: &mut BTreeSet<String>) -> Result<(), String> {
    let lower = name.to_ascii_lowercase();
    let plain =
        (1..=32).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    if !plain {
        Err("use 1 to 32 letters, digits, '_' or '-'".to_owned())
    } else if reserved.contains(&lower.as_str()) {
        Err(format!("'{name}' is reserved; choose another name"))
    } else if !seen.insert(lower) {
        Err(format!("'{name}' is used twice; case does not count"))
    } else {
        Ok(())
    }
}

/// Whose checkout the agents work in.
fn isolation(f: &mut Fields<'_>, out: &mut Vec<Problem>) -> Isolation {
    match f.word("isolation", &["none", "worktree"], out) {
        Some("worktree") => Isolation::Worktree,
        _ => Isolation::None,
    }
}

/// Another API endpoint.
pub(super) fn base_url(f: &mut Fields<'_>, out: &mut Vec<Problem>) -> Option<String> {
    let url = f.string("baseUrl", out)?;
    let plain = url.starts_with("http://") || url.starts_with("https://");
    if !plain || url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        f.problem("baseUrl", "give a URL that begins with http:// or https://", out);
        return None;
    }
    Some(url)
}

fn verifier(f: &mut Fields<'_>, out: &mut Vec<Problem>, warnings: &mut Vec<Problem>) -> Option<VerifierNode> {
    let contract = match f.raw("contract") {
        None => {
            f.problem("contract", "missing; give a contract, or \"run\" for the run's own", out);
            None
        }
        Some(Value::String(word)) if word == "run" => Some(ContractSource::Run),
        Some(Value::String(word)) => {
            f.problem("contract", format!("unknown word '{}'; use \"run\" or a contract", shown(word)), out);
            None
        }
        Some(value) => match contract::normalise(value, &f.at("contract")) {
            Ok((contract, dropped)) => {
                warnings.extend(dropped);
                Some(ContractSource::Inline(contract))
            }
            Err(problems) => {
                out.extend(problems);
                None
            }
        },
    };
    let cwd = f.string("cwd", out);
    let advisory = f.boolean("advisory", out).unwrap_or(false);
    f.later("cleanroom", &[json!(false)], out);
    let mut who = choice(f, OWN, out);
    who.effort = f.word("effort", EFFORTS, out).map(str::to_owned);
    Some(VerifierNode { contract: contract?, cwd, advisory, choice: who })
}

fn router(f: &mut Fields<'_>, out: &mut Vec<Problem>) -> Option<RouterNode> {
    let mut routes = Vec::new();
    match f.list("routes", out) {
        None if f.raw("routes").is_none() => f.problem("routes", "missing; give a list of routes", out),
        None => {}
        Some(items) if items.len() > 1000 => f.problem("routes", "more than 1000 routes", out),
        Some(items) => {
            for (path, value) in items {
                let Some(mut route) = Fields::of(value, path, out) else { continue };
                let when = match route.raw("when") {
                    Some(value) => condition(value, &route.at("when"), 0, out),
                    None => {
                        route.problem("when", "missing; give a condition, or \"always\"", out);
                        None
                    }
                };
                if route.raw("to").is_none() {
                    route.problem("to", "missing; name a node", out);
                }
                let to = node_id(&mut route, "to", out);
                route.finish(out);
                routes.extend(when.zip(to).map(|(when, to)| Route { when, to }));
            }
        }
    }
    let default = node_id(f, "default", out);
    Some(RouterNode { routes, default })
}

fn subflow(f: &mut Fields<'_>, out: &mut Vec<Problem>) -> Option<SubflowNode> {
    let workflow = match f.raw("workflow") {
        None => {
            f.problem("workflow", "missing; give an inline spec or the id of an existing run", out);
            return None;
        }
        Some(Value::String(id)) => match crate::model::RunId::parse(id) {
            Ok(id) => SubflowSource::RunId(id.into()),
            Err(e) => {
                f.problem("workflow", e.to_string(), out);
                return None;
            }
        },
        Some(value @ Value::Object(_)) => SubflowSource::Inline(value.clone()),
        Some(other) => {
            f.problem("workflow", format!("expected a spec or a run id, found {}", type_of(other)), out);
            return None;
        }
    };
    Some(SubflowNode { workflow })
}
