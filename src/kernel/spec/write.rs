//! The normalised JSON of a spec: what `spec.json` holds and what `workflow_validate` answers.

use serde_json::{Map, Value, json};

use crate::model::{
    Node, NodeKind, WorkflowSpec,
    spec::{
        Condition, ContractSource, CouncilNode, EngineChoice, Isolation, OnFailure, Retry, Select, SubflowSource,
        Workspace,
    },
};

/// `spec` as JSON that `read` takes back unchanged.
pub fn write(spec: &WorkflowSpec) -> Value {
    let mut map = Map::new();
    map.insert("name".into(), json!(spec.name));
    map.insert("cwd".into(), json!(spec.cwd));
    map.insert("maxNodeVisits".into(), json!(spec.max_node_visits));
    map.insert("noProgressLimit".into(), json!(spec.no_progress_limit));
    if spec.budget != crate::model::spec::Budget::default() {
        map.insert("budget".into(), json!(spec.budget));
    }
    if spec.workspace == Workspace::Worktree {
        map.insert("workspace".into(), json!(spec.workspace));
    }
    put(&mut map, "contract", spec.contract.as_ref());
    map.insert("nodes".into(), Value::Array(spec.nodes.iter().map(node).collect()));
    Value::Object(map)
}

fn put<T: serde::Serialize>(map: &mut Map<String, Value>, key: &str, value: Option<T>) {
    if let Some(value) = value {
        map.insert(key.to_owned(), json!(value));
    }
}

fn list<T: serde::Serialize>(map: &mut Map<String, Value>, key: &str, values: &[T]) {
    if !values.is_empty() {
        map.insert(key.to_owned(), json!(values));
    }
}

fn choice(map: &mut Map<String, Value>, who: &EngineChoice, names: [&str; 4]) {
    let [engine, model, mode, acp] = names;
    put(map, engine, who.engine.as_ref());
    put(map, model, who.model.as_ref());
    put(map, mode, who.permission_mode.as_ref());
    put(map, acp, who.acp_agent.as_ref());
}

fn own_choice(map: &mut Map<String, Value>, who: &EngineChoice) {
    choice(map, who, ["engine", "model", "permissionMode", "acpAgent"]);
    put(map, "effort", who.effort.as_ref());
}

fn node(node: &Node) -> Value {
    let mut map = Map::new();
    map.insert("id".into(), json!(node.id));
    map.insert("kind".into(), json!(node.kind.name()));
    put(&mut map, "next", node.next.as_ref());
    if node.retry != Retry::default() {
        map.insert("retry".into(), json!(node.retry));
    }
    put(&mut map, "timeoutMs", node.timeout_ms);
    if node.on_failure == OnFailure::Continue {
        map.insert("onFailure".into(), json!("continue"));
    }
    match &node.kind {
        NodeKind::Agent(a) => {
            map.insert("prompt".into(), json!(a.prompt));
            list(&mut map, "inputs", &a.inputs);
            own_choice(&mut map, &a.choice);
            put(&mut map, "cwd", a.cwd.as_ref());
            put(&mut map, "sessionName", a.session_name.as_ref());
            put(&mut map, "appendSystemPrompt", a.append_system_prompt.as_ref());
            put(&mut map, "isolation", isolated(a.isolation));
        }
        NodeKind::Fanout(n) => {
            map.insert("prompt".into(), json!(n.prompt));
            list(&mut map, "inputs", &n.inputs);
            let agents = n.agents.iter().map(|agent| {
                let mut entry = Map::new();
                entry.insert("name".into(), json!(agent.name));
                own_choice(&mut entry, &agent.choice);
                put(&mut entry, "sandboxMode", agent.sandbox.as_ref());
                put(&mut entry, "persona", agent.persona.as_ref());
                put(&mut entry, "prompt", agent.prompt.as_ref());
                put(&mut entry, "baseUrl", agent.base_url.as_ref());
                Value::Object(entry)
            });
            map.insert("agents".into(), agents.collect());
            if n.synthesize {
                map.insert("synthesize".into(), json!(true));
            }
            choice(
                &mut map,
                &n.synthesis,
                ["synthesisEngine", "synthesisModel", "synthesisPermissionMode", "synthesisAcpAgent"],
            );
            put(&mut map, "maxTurnsPerAgent", n.max_turns_per_agent);
            put(&mut map, "maxBudgetUsd", n.max_budget_usd);
            put(&mut map, "cwd", n.cwd.as_ref());
            put(&mut map, "agentTimeoutMs", n.agent_timeout_ms);
            put(&mut map, "isolation", isolated(n.isolation));
            if n.select == Select::Verified {
                map.insert("select".into(), json!(n.select));
                map.insert("merge".into(), json!(n.merge));
            }
            if n.allow_dirty {
                map.insert("allowDirty".into(), json!(true));
            }
        }
        NodeKind::Verifier(v) => {
            let contract = match &v.contract {
                ContractSource::Run => json!("run"),
                ContractSource::Inline(contract) => json!(contract),
            };
            map.insert("contract".into(), contract);
            put(&mut map, "cwd", v.cwd.as_ref());
            if v.advisory {
                map.insert("advisory".into(), json!(true));
            }
            own_choice(&mut map, &v.choice);
        }
        NodeKind::HumanGate(gate) => {
            map.insert("prompt".into(), json!(gate.prompt));
        }
        NodeKind::Router(router) => {
            let routes = router.routes.iter().map(|r| json!({ "when": condition_value(&r.when), "to": r.to }));
            map.insert("routes".into(), routes.collect());
            put(&mut map, "default", router.default.as_ref());
        }
        NodeKind::Subflow(subflow) => {
            let workflow = match &subflow.workflow {
                SubflowSource::RunId(id) => json!(id),
                SubflowSource::Inline(spec) => spec.clone(),
            };
            map.insert("workflow".into(), workflow);
        }
        NodeKind::Goal(g) => {
            map.insert("objective".into(), json!(g.objective));
            own_choice(&mut map, &g.choice);
            put(&mut map, "cwd", g.cwd.as_ref());
            put(&mut map, "sandboxMode", g.sandbox);
            list(&mut map, "launcher", &g.launcher);
            put(&mut map, "threadId", g.thread_id.as_ref());
            map.insert("tokenBudget".into(), json!(g.token_budget));
            map.insert("capacityRetry".into(), json!(g.capacity_retry));
            map.insert("stallMs".into(), json!(g.stall_ms));
        }
        NodeKind::Council(c) => council(&mut map, c),
    }
    Value::Object(map)
}

fn isolated(isolation: Isolation) -> Option<Isolation> {
    (isolation == Isolation::Worktree).then_some(isolation)
}

fn council(map: &mut Map<String, Value>, c: &CouncilNode) {
    map.insert("task".into(), json!(c.task));
    let agents = c.agents.iter().map(|agent| {
        let mut entry = Map::new();
        entry.insert("name".into(), json!(agent.name));
        if !agent.emoji.is_empty() {
            entry.insert("emoji".into(), json!(agent.emoji));
        }
        own_choice(&mut entry, &agent.choice);
        put(&mut entry, "persona", agent.persona.as_ref());
        put(&mut entry, "prompt", agent.prompt.as_ref());
        put(&mut entry, "baseUrl", agent.base_url.as_ref());
        if agent.ultracode {
            entry.insert("ultracode".into(), json!(true));
        }
        Value::Object(entry)
    });
    map.insert("agents".into(), agents.collect());
    put(map, "projectDir", c.project_dir.as_ref());
    map.insert("maxRounds".into(), json!(c.max_rounds));
    map.insert("maxTurnsPerAgent".into(), json!(c.max_turns_per_agent));
    put(map, "maxBudgetUsd", c.max_budget_usd);
    map.insert("defaultPermissionMode".into(), json!(c.default_permission_mode));
    map.insert("agentTimeoutMs".into(), json!(c.agent_timeout_ms));
    if c.allow_dirty {
        map.insert("allowDirty".into(), json!(true));
    }
    put(map, "continueFrom", c.continue_from.as_ref());
}

/// A routing condition as JSON.
pub fn condition_value(condition: &Condition) -> Value {
    match condition {
        Condition::Always => json!({ "type": "always" }),
        Condition::NodeFailed(id) => json!({ "type": "node_failed", "node": id }),
        Condition::NodeSucceeded(id) => json!({ "type": "node_succeeded", "node": id }),
        Condition::Verified(id) => json!({ "type": "verified", "node": id }),
        Condition::VisitsLt(id, n) => json!({ "type": "visits_lt", "node": id, "n": n }),
        Condition::And(all) => json!({ "type": "and", "all": all.iter().map(condition_value).collect::<Vec<_>>() }),
    }
}
