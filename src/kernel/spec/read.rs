//! From a caller's JSON to a [`WorkflowSpec`], collecting every problem of shape on the way.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    AND_DEPTH_MAX, Fields, LIMIT_MS_MAX, NO_PROGRESS_DEFAULT, NODES_MAX, VISITS_DEFAULT, VISITS_MAX,
    fields::{shown, type_of},
    nodes,
};
use crate::{
    model::{
        Node, NodeId, NodeKind, Problem, WorkflowSpec,
        spec::{
            Budget, Condition, ContractSource, Isolation, OnFailure, Retry, Select, VERIFY_NODE, VerifierNode,
            Workspace,
        },
    },
    verify::contract,
};

/// What came out of reading: the spec when it has a usable shape, and what was found on the way.
#[derive(Debug, Default)]
pub struct Read {
    /// Present when nothing is wrong.
    pub spec: Option<WorkflowSpec>,
    /// Everything wrong.
    pub errors: Vec<Problem>,
    /// Dropped or odd.
    pub warnings: Vec<Problem>,
}

/// Who wrote the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A caller: the reserved id is refused.
    Caller,
    /// One of our own tools: the same, with room for every reviewer.
    Tool,
    /// The store: the appended verifier is there already.
    Stored,
}

/// Reads a spec standing at `base` (empty for the document itself). `cwd` and `contract` replace the spec's own.
pub fn read(value: &Value, base: &str, origin: Origin, cwd: Option<&str>, contract_override: Option<&Value>) -> Read {
    let mut result = Read::default();
    let out = &mut result.errors;
    let Some(mut f) = Fields::of(value, base, out) else { return result };

    let name = f.required("name", out);
    if let Some(name) = &name
        && name.len() > 200
    {
        f.problem("name", "longer than 200 bytes", out);
    }
    let own_cwd = f.string("cwd", out);
    let cwd = cwd.map(str::to_owned).or(own_cwd);
    if cwd.is_none() && !out.iter().any(|p| p.path == f.at("cwd")) {
        f.problem("cwd", "missing; give the absolute path of the project directory", out);
    }
    let max_node_visits = f.integer("maxNodeVisits", 1, VISITS_MAX, out).map_or(VISITS_DEFAULT, narrow);
    let no_progress_limit = f.integer("noProgressLimit", 0, 1000, out).map_or(NO_PROGRESS_DEFAULT, narrow);
    let budget = f.raw("budget").map(|v| read_budget(v, f.at("budget"), out)).unwrap_or_default();
    let workspace = match f.word("workspace", &["inPlace", "worktree"], out) {
        Some("worktree") => Workspace::Worktree,
        _ => Workspace::InPlace,
    };
    let own_contract = f.raw("contract");
    let (contract_value, contract_path) = match contract_override {
        Some(v) => (Some(v), "contract".to_owned()),
        None => (own_contract, f.at("contract")),
    };
    let run_contract = contract_value.and_then(|v| match contract::normalise(v, &contract_path) {
        Ok((contract, warnings)) => {
            result.warnings.extend(warnings);
            Some(contract)
        }
        Err(problems) => {
            out.extend(problems);
            None
        }
    });

    let mut list = Vec::new();
    match f.list("nodes", out) {
        Some(items) if items.is_empty() => f.problem("nodes", "empty; give at least one node", out),
        Some(items) if items.len() > NODES_MAX => f.problem("nodes", format!("more than {NODES_MAX} nodes"), out),
        Some(items) => {
            for (path, item) in items {
                if let Some(node) = read_node(item, &path, origin, out, &mut result.warnings) {
                    list.push(node);
                }
            }
            check_references(&list, &f.at("nodes"), value, out);
        }
        None if f.raw("nodes").is_none() => f.problem("nodes", "missing; give a list of nodes", out),
        None => {}
    }
    f.finish(out);

    let judged = run_contract.as_ref().is_some_and(|c| c.checks.iter().any(|check| check.required));
    for (i, node) in list.iter().enumerate() {
        if let NodeKind::Fanout(fanout) = &node.kind
            && fanout.select == Select::Verified
            && !judged
            && out.is_empty()
        {
            let why = "\"verified\" needs a contract with at least one required check";
            out.push(Problem::new(f_at(base, &format!("nodes[{i}].select")), why));
        }
    }
    if contract_value.is_some() && !list.iter().any(judges_run) {
        list.extend(verify_node());
    }
    if let (true, Some(name), Some(cwd)) = (out.is_empty(), name, cwd) {
        result.spec = Some(WorkflowSpec {
            name,
            nodes: list,
            cwd,
            contract: run_contract,
            max_node_visits,
            budget,
            workspace,
            no_progress_limit,
        });
    }
    result
}

/// Path of a field of the document at `base`.
fn f_at(base: &str, key: &str) -> String {
    if base.is_empty() { key.to_owned() } else { format!("{base}.{key}") }
}

/// A whole number that its range check has already made small.
fn narrow(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Whether the node runs the run-level contract.
fn judges_run(node: &Node) -> bool {
    match &node.kind {
        NodeKind::Verifier(v) => v.contract == ContractSource::Run,
        NodeKind::Fanout(f) => f.isolation == Isolation::Worktree,
        NodeKind::Agent(_)
        | NodeKind::HumanGate(_)
        | NodeKind::Router(_)
        | NodeKind::Subflow(_)
        | NodeKind::Goal(_)
        | NodeKind::Council(_) => false,
    }
}

/// The verifier that a run-level contract appends.
fn verify_node() -> Option<Node> {
    Some(Node {
        id: NodeId::parse(VERIFY_NODE).ok()?,
        next: None,
        retry: Retry::default(),
        timeout_ms: None,
        on_failure: OnFailure::Fail,
        kind: NodeKind::Verifier(VerifierNode {
            contract: ContractSource::Run,
            cwd: None,
            advisory: false,
            choice: crate::model::spec::EngineChoice::default(),
        }),
    })
}

fn read_budget(value: &Value, path: String, out: &mut Vec<Problem>) -> Budget {
    let Some(mut f) = Fields::of(value, path, out) else { return Budget::default() };
    let budget = Budget {
        max_cost_usd: f.positive("maxCostUsd", out),
        max_wall_ms: f.integer("maxWallMs", 1, LIMIT_MS_MAX, out),
        max_agent_turns: f.integer("maxAgentTurns", 1, 1_000_000, out),
    };
    f.finish(out);
    budget
}

fn read_node(
    value: &Value,
    path: &str,
    origin: Origin,
    out: &mut Vec<Problem>,
    warnings: &mut Vec<Problem>,
) -> Option<Node> {
    let mut f = Fields::of(value, path, out)?;
    let id = node_id(&mut f, "id", out);
    if f.raw("id").is_none() {
        f.problem("id", "missing; give every node an id", out);
    }
    if origin != Origin::Stored && id.as_ref().is_some_and(|id| id.as_str() == VERIFY_NODE) {
        f.problem("id", format!("'{VERIFY_NODE}' is reserved"), out);
    }
    let next = node_id(&mut f, "next", out);
    let retry = match f.raw("retry") {
        Some(v) => read_retry(v, f.at("retry"), out),
        None => Retry::default(),
    };
    let timeout_ms = f.integer("timeoutMs", 1, LIMIT_MS_MAX, out);
    let on_failure = match f.word("onFailure", &["fail", "continue"], out) {
        Some("continue") => OnFailure::Continue,
        _ => OnFailure::Fail,
    };
    let known = f.raw("kind").and_then(Value::as_str).is_some_and(|k| nodes::KINDS.contains(&k));
    let kind = nodes::read_kind(&mut f, origin, out, warnings);
    // Which fields belong to an unknown kind nobody can say.
    if known {
        f.finish(out);
    }
    Some(Node { id: id?, next, retry, timeout_ms, on_failure, kind: kind? })
}

fn read_retry(value: &Value, path: String, out: &mut Vec<Problem>) -> Retry {
    let Some(mut f) = Fields::of(value, path, out) else { return Retry::default() };
    let retry = Retry {
        max: f.integer("max", 0, super::RETRY_MAX, out).map_or(0, narrow),
        backoff_ms: f.integer("backoffMs", 0, LIMIT_MS_MAX, out).unwrap_or(Retry::default().backoff_ms),
    };
    f.finish(out);
    retry
}

/// A node id in a field.
pub(super) fn node_id(f: &mut Fields<'_>, key: &'static str, out: &mut Vec<Problem>) -> Option<NodeId> {
    let text = f.string(key, out)?;
    match NodeId::parse(&text) {
        Ok(id) => Some(id),
        Err(e) => {
            f.problem(key, e.to_string(), out);
            None
        }
    }
}

/// Names used twice and references to nodes that are not there.
///
/// The ids are taken from the raw document, so that a node with another problem still counts as existing.
fn check_references(list: &[Node], base: &str, document: &Value, out: &mut Vec<Problem>) {
    let mut ids = BTreeSet::new();
    let raw = document.get("nodes").and_then(Value::as_array).cloned().unwrap_or_default();
    for (i, node) in raw.iter().enumerate() {
        if let Some(id) = node.get("id").and_then(Value::as_str)
            && !ids.insert(id.to_owned())
        {
            out.push(Problem::new(format!("{base}[{i}].id"), format!("'{}' is used twice", shown(id))));
        }
    }
    let position = |id: &NodeId| raw.iter().position(|n| n.get("id").and_then(Value::as_str) == Some(id.as_str()));
    for node in list {
        let at = format!("{base}[{}]", position(&node.id).unwrap_or_default());
        let mut need = |field: String, id: &NodeId| {
            if !ids.contains(id.as_str()) {
                out.push(Problem::new(format!("{at}.{field}"), format!("names no node: '{id}'")));
            }
        };
        if let Some(next) = &node.next {
            need("next".to_owned(), next);
        }
        match &node.kind {
            NodeKind::Router(router) => {
                for (i, route) in router.routes.iter().enumerate() {
                    need(format!("routes[{i}].to"), &route.to);
                    for id in condition_nodes(&route.when) {
                        need(format!("routes[{i}].when"), id);
                    }
                }
                if let Some(id) = &router.default {
                    need("default".to_owned(), id);
                }
            }
            NodeKind::Agent(agent) => agent.inputs.iter().for_each(|id| need("inputs".to_owned(), id)),
            NodeKind::Fanout(fanout) => fanout.inputs.iter().for_each(|id| need("inputs".to_owned(), id)),
            NodeKind::Verifier(_)
            | NodeKind::HumanGate(_)
            | NodeKind::Subflow(_)
            | NodeKind::Goal(_)
            | NodeKind::Council(_) => {}
        }
    }
}

/// Every node a condition asks about.
fn condition_nodes(condition: &Condition) -> Vec<&NodeId> {
    match condition {
        Condition::Always => Vec::new(),
        Condition::NodeFailed(id)
        | Condition::NodeSucceeded(id)
        | Condition::Verified(id)
        | Condition::VisitsLt(id, _) => {
            vec![id]
        }
        Condition::And(all) => all.iter().flat_map(condition_nodes).collect(),
    }
}

/// Reads a routing condition: `"always"` or an object with `type`.
pub fn condition(value: &Value, path: &str, depth: usize, out: &mut Vec<Problem>) -> Option<Condition> {
    const TYPES: &[&str] = &["always", "node_failed", "node_succeeded", "verified", "visits_lt", "and"];
    if value.as_str() == Some("always") {
        return Some(Condition::Always);
    }
    if !value.is_object() {
        let found = value.as_str().map_or_else(|| type_of(value).to_owned(), |s| format!("'{}'", shown(s)));
        out.push(Problem::new(path, format!("unknown condition {found}; use an object with a type, or \"always\"")));
        return None;
    }
    let mut f = Fields::of(value, path, out)?;
    if f.raw("type").is_none() {
        f.problem("type", format!("missing; use one of {}", TYPES.join(", ")), out);
        return None;
    }
    let word = f.word("type", TYPES, out)?;
    let node = |f: &mut Fields<'_>, out: &mut Vec<Problem>| {
        if f.raw("node").is_none() {
            f.problem("node", "missing; name a node", out);
        }
        node_id(f, "node", out)
    };
    let read = match word {
        "always" => Some(Condition::Always),
        "node_failed" => node(&mut f, out).map(Condition::NodeFailed),
        "node_succeeded" => node(&mut f, out).map(Condition::NodeSucceeded),
        "verified" => node(&mut f, out).map(Condition::Verified),
        "visits_lt" => {
            let id = node(&mut f, out);
            if f.raw("n").is_none() {
                f.problem("n", "missing; give a whole number", out);
            }
            let n = f.integer("n", 0, VISITS_MAX, out);
            id.zip(n).map(|(id, n)| Condition::VisitsLt(id, narrow(n)))
        }
        _ => {
            if depth >= AND_DEPTH_MAX {
                f.problem("all", format!("'and' is nested more than {AND_DEPTH_MAX} deep"), out);
                return None;
            }
            if f.raw("all").is_none() {
                f.problem("all", "missing; give a list of conditions", out);
            }
            let items = f.list("all", out)?;
            let before = out.len();
            let all: Vec<_> = items.into_iter().filter_map(|(p, v)| condition(v, &p, depth + 1, out)).collect();
            (out.len() == before).then_some(Condition::And(all))
        }
    };
    f.finish(out);
    read
}
