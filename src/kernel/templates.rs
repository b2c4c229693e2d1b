//! Specs built from a task: plain specs, no privileged path.

use serde_json::{Map, Value, json};

use super::spec::{Fields, LIMIT_MS_MAX, fanout_agents};
use crate::{
    model::{Problem, spec::OBJECTIVE_MAX},
    nodes::council::team,
    verify::contract,
};

/// Templates of this version.
pub const TEMPLATES: &[&str] = &["solve", "council", "fanout", "goal"];
/// Repairs of `solve` where nothing else is said.
const REPAIRS_DEFAULT: u64 = 3;
/// Repairs of `goal` where nothing else is said.
const GOAL_REPAIRS_DEFAULT: u64 = 1;
/// Arguments of `goal` that are fields of its node.
const GOAL_FIELDS: &[&str] = &[
    "engine",
    "model",
    "effort",
    "sandboxMode",
    "launcher",
    "threadId",
    "tokenBudget",
    "capacityRetry",
    "stallMs",
    "timeoutMs",
];
/// Arguments of `council` that are fields of its node.
const COUNCIL_FIELDS: &[&str] = &[
    "agents",
    "maxRounds",
    "agentTimeoutMs",
    "maxTurnsPerAgent",
    "maxBudgetUsd",
    "defaultPermissionMode",
    "allowDirty",
    "continueFrom",
    "timeoutMs",
];
/// Added to what the checks after a goal can take, in milliseconds.
const VERIFY_MARGIN_MS: u64 = 5 * 60_000;
/// Least limit of the checks after a goal, in milliseconds.
const VERIFY_MIN_MS: u64 = 30 * 60_000;
/// Most repairs.
const REPAIRS_MAX: u64 = 20;

const TRIAGE: &str = include_str!("../../prompts/triage.md");
const IMPLEMENT: &str = include_str!("../../prompts/implement.md");
const REVIEW: &str = include_str!("../../prompts/review.md");

/// Builds the spec of a template for a run with this contract.
pub(super) fn build(name: &str, task: &str, args: &Value, contract: Option<&Value>) -> Result<Value, Vec<Problem>> {
    let mut out = Vec::new();
    if task.trim().is_empty() {
        out.push(Problem::new("task", "empty; say what is to be done"));
    }
    let spec = match name {
        "solve" => solve(task, args, contract.is_some(), &mut out),
        "council" => council(task, args, &mut out),
        "fanout" => fanout(task, args, &mut out),
        "goal" => goal(task, args, contract, &mut out),
        _ => {
            out.push(Problem::new("template", format!("unknown template; use one of {}", TEMPLATES.join(", "))));
            None
        }
    };
    match spec {
        Some(spec) if out.is_empty() => Ok(spec),
        _ => Err(out),
    }
}

/// Arguments as an object; nothing at all is an empty one.
fn arguments<'v>(args: &'v Value, empty: &'v Value, out: &mut Vec<Problem>) -> Option<Fields<'v>> {
    Fields::of(if args.is_null() { empty } else { args }, "", out)
}

/// `agents` or `reviewers` as the node will hold them.
fn members(f: &mut Fields<'_>, key: &'static str, out: &mut Vec<Problem>) -> Option<Value> {
    let items = f.list(key, out)?;
    let count = items.len();
    let raw: Vec<Value> = items.iter().map(|(_, v)| (*v).clone()).collect();
    fanout_agents(items, out);
    (count > 0).then_some(Value::Array(raw))
}

/// Arguments every template takes into the spec as they are.
fn common(f: &mut Fields<'_>, spec: &mut Map<String, Value>) {
    for key in ["budget", "workspace"] {
        if let Some(value) = f.raw(key) {
            spec.insert(key.to_owned(), value.clone());
        }
    }
}

fn solve(task: &str, args: &Value, contract: bool, out: &mut Vec<Problem>) -> Option<Value> {
    let empty = json!({});
    let mut f = arguments(args, &empty, out)?;
    let mut spec = Map::new();
    common(&mut f, &mut spec);
    let scouts = members(&mut f, "agents", out);
    let reviewers = members(&mut f, "reviewers", out);
    let gate = f.boolean("humanGate", out).unwrap_or(false);
    let repairs = f.integer("maxRepairs", 0, REPAIRS_MAX, out).unwrap_or(REPAIRS_DEFAULT);
    let mut implementer = Map::new();
    if let Some(value) = f.raw("implementer") {
        let mut who = Fields::of(value, "implementer", out)?;
        for key in ["engine", "model", "effort", "permissionMode", "acpAgent"] {
            if let Some(value) = who.raw(key) {
                implementer.insert(key.to_owned(), value.clone());
            }
        }
        who.finish(out);
    }
    f.finish(out);

    let scouts = scouts.unwrap_or_else(|| {
        let mut one = implementer.clone();
        one.insert("name".to_owned(), json!("scout"));
        json!([one])
    });
    let several = |list: &Value| list.as_array().is_some_and(|l| l.len() >= 2);
    let mut nodes = vec![json!({
        "id": "triage", "kind": "fanout", "prompt": framed(TRIAGE, task),
        "synthesize": several(&scouts), "agents": scouts,
    })];
    if gate {
        nodes.push(json!({
            "id": "approve", "kind": "human_gate",
            "prompt": format!("Triage has reported. May an agent now change the project to do this task?\n\n{task}"),
        }));
    }
    let mut implement = json!({
        "id": "implement", "kind": "agent", "prompt": framed(IMPLEMENT, task),
        "inputs": if reviewers.is_some() { json!(["triage", "review"]) } else { json!(["triage"]) },
        "onFailure": "continue",
    });
    if let Some(map) = implement.as_object_mut() {
        map.extend(implementer);
    }
    nodes.push(implement);
    if let Some(reviewers) = reviewers {
        nodes.push(json!({
            "id": "review", "kind": "fanout", "prompt": framed(REVIEW, task), "inputs": ["implement"],
            "synthesize": several(&reviewers), "agents": reviewers, "onFailure": "continue",
        }));
    }
    if contract {
        nodes.push(json!({ "id": "verify", "kind": "verifier", "contract": "run", "onFailure": "continue" }));
        nodes.push(repair_gate("implement", repairs));
    }
    spec.insert("name".to_owned(), json!("solve"));
    spec.insert("maxNodeVisits".to_owned(), json!(repairs + 3));
    spec.insert("nodes".to_owned(), Value::Array(nodes));
    Some(Value::Object(spec))
}

/// The router that sends control back to `worker` while `verify` is red.
fn repair_gate(worker: &str, repairs: u64) -> Value {
    json!({
        "id": "repair-gate", "kind": "router",
        "routes": [{
            "when": { "type": "and", "all": [
                { "type": "node_failed", "node": "verify" },
                { "type": "visits_lt", "node": worker, "n": repairs + 1 },
            ]},
            "to": worker,
        }],
    })
}

fn goal(task: &str, args: &Value, contract: Option<&Value>, out: &mut Vec<Problem>) -> Option<Value> {
    let empty = json!({});
    let mut f = arguments(args, &empty, out)?;
    let mut spec = Map::new();
    common(&mut f, &mut spec);
    let repairs = f.integer("maxRepairs", 0, REPAIRS_MAX, out).unwrap_or(GOAL_REPAIRS_DEFAULT);
    let length = task.chars().count();
    if length > OBJECTIVE_MAX {
        let text = format!("an objective has at most {OBJECTIVE_MAX} characters, this one has {length}");
        out.push(Problem::new("task", text));
    }
    let mut node = Map::from_iter([("id".to_owned(), json!("goal")), ("kind".to_owned(), json!("goal"))]);
    node.insert("objective".to_owned(), json!(task));
    for key in GOAL_FIELDS {
        if let Some(value) = f.raw(key) {
            node.insert((*key).to_owned(), value.clone());
        }
    }
    f.finish(out);
    let mut nodes = Vec::new();
    if let Some(contract) = contract {
        // The check says whether the work is done, whatever the engine thinks of its goal.
        node.insert("onFailure".to_owned(), json!("continue"));
        nodes.push(Value::Object(node));
        let checks = contract::normalise(contract, "contract").ok();
        let timeout = checks.map_or(0, |(contract, _)| {
            let rounds = u64::from(contract.fix_on_failure_rounds).saturating_add(1);
            contract.worst_case_ms().saturating_mul(rounds).saturating_add(VERIFY_MARGIN_MS)
        });
        let timeout = timeout.clamp(VERIFY_MIN_MS, LIMIT_MS_MAX);
        nodes.push(json!({
            "id": "verify", "kind": "verifier", "contract": "run", "onFailure": "continue", "timeoutMs": timeout,
        }));
        nodes.push(repair_gate("goal", repairs));
    } else {
        nodes.push(Value::Object(node));
    }
    spec.insert("name".to_owned(), json!("goal"));
    spec.insert("maxNodeVisits".to_owned(), json!(repairs + 3));
    spec.insert("nodes".to_owned(), Value::Array(nodes));
    Some(Value::Object(spec))
}

fn council(task: &str, args: &Value, out: &mut Vec<Problem>) -> Option<Value> {
    let empty = json!({});
    let mut f = arguments(args, &empty, out)?;
    let mut spec = Map::new();
    common(&mut f, &mut spec);
    let mut node = Map::from_iter([("id".to_owned(), json!("main")), ("kind".to_owned(), json!("council"))]);
    node.insert("task".to_owned(), json!(task));
    for key in COUNCIL_FIELDS {
        if let Some(value) = f.raw(key) {
            node.insert((*key).to_owned(), value.clone());
        }
    }
    if !node.contains_key("agents") {
        node.insert("agents".to_owned(), default_team());
    }
    f.finish(out);
    spec.insert("name".to_owned(), json!("council"));
    spec.insert("nodes".to_owned(), json!([node]));
    Some(Value::Object(spec))
}

fn fanout(task: &str, args: &Value, out: &mut Vec<Problem>) -> Option<Value> {
    let empty = json!({});
    let mut f = arguments(args, &empty, out)?;
    let mut spec = Map::new();
    common(&mut f, &mut spec);
    let agents = members(&mut f, "agents", out).unwrap_or_else(|| json!([{ "name": "agent" }]));
    let mut node = json!({ "id": "fanout", "kind": "fanout", "prompt": task, "agents": agents });
    if let Some(map) = node.as_object_mut() {
        for key in [
            "synthesize",
            "synthesisEngine",
            "synthesisModel",
            "synthesisAcpAgent",
            "maxTurnsPerAgent",
            "maxBudgetUsd",
            "agentTimeoutMs",
            "select",
            "isolation",
            "merge",
            "allowDirty",
        ] {
            if let Some(value) = f.raw(key) {
                map.insert(key.to_owned(), value.clone());
            }
        }
    }
    f.finish(out);
    spec.insert("name".to_owned(), json!("fanout"));
    spec.insert("nodes".to_owned(), json!([node]));
    Some(Value::Object(spec))
}

/// Members of a council nobody chose.
fn default_team() -> Value {
    let team = team::default_team().into_iter();
    team.map(|(name, emoji, persona)| json!({ "name": name, "emoji": emoji, "persona": persona })).collect()
}

/// A role's charter before the task.
fn framed(charter: &str, task: &str) -> String {
    format!("{}\n\n## Task\n\n{}", charter.trim_end(), task.trim())
}
