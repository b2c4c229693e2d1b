//! The fields of a goal node.

use serde_json::{Value, json};

use super::{
    Fields, LIMIT_MS_MAX, RETRY_MAX,
    fields::type_of,
    nodes::{EFFORTS, no_custom_engine},
};
use crate::model::{
    Problem,
    spec::{CapacityRetry, EngineChoice, GoalNode, OBJECTIVE_MAX, SandboxMode},
};

/// Engines that follow goals. `codex` means the long-running one, because `codex exec` has none.
const ENGINES: &[&str] = &["codex", "codex-app", "claude", "scripted"];
const SANDBOXES: &[&str] = &["read-only", "workspace-write", "danger-full-access"];
/// Most words of a launcher; a longer one is a script.
const LAUNCHER_MAX: usize = 64;
/// Longest word of a launcher, in bytes.
const WORD_MAX: usize = 4096;
/// Longest id of a conversation, in bytes.
const THREAD_MAX: usize = 256;

/// Reads what a node of kind `goal` has besides the common fields.
pub(super) fn read(f: &mut Fields<'_>, out: &mut Vec<Problem>) -> Option<GoalNode> {
    let objective = f.required("objective", out);
    if let Some(length) = objective.as_ref().map(|o| o.chars().count()).filter(|n| *n > OBJECTIVE_MAX) {
        f.problem("objective", format!("has {length} characters; the most is {OBJECTIVE_MAX}"), out);
    }
    let engine = match f.word("engine", ENGINES, out) {
        None | Some("codex") => GoalNode::ENGINE_DEFAULT,
        Some(engine) => engine,
    };
    let choice = EngineChoice {
        engine: Some(engine.to_owned()),
        model: f.string("model", out),
        effort: f.word("effort", EFFORTS, out).map(str::to_owned),
        ..EngineChoice::default()
    };
    let cwd = f.string("cwd", out);
    let sandbox = f.word("sandboxMode", SANDBOXES, out).map(|word| match word {
        "read-only" => SandboxMode::ReadOnly,
        "danger-full-access" => SandboxMode::DangerFullAccess,
        _ => SandboxMode::WorkspaceWrite,
    });
    if sandbox.is_some() && engine == "claude" {
        f.problem("sandboxMode", "claude has none; leave it out or use engine codex", out);
    }
    let launcher = launcher(f, out);
    let thread_id = f.string("threadId", out);
    if thread_id.as_ref().is_some_and(|id| id.trim().is_empty() || id.len() > THREAD_MAX || id.starts_with('-')) {
        f.problem("threadId", format!("expected the id of a conversation, at most {THREAD_MAX} bytes"), out);
    }
    let token_budget = f.integer("tokenBudget", 1, GoalNode::TOKENS_MAX, out);
    let capacity_retry = match f.raw("capacityRetry") {
        Some(value) => capacity_retry(value, f.at("capacityRetry"), out),
        None => CapacityRetry::default(),
    };
    let stall_ms = f.integer("stallMs", 1, LIMIT_MS_MAX, out);
    f.later("acpAgent", &[], out);
    f.later("isolation", &[json!("none"), json!("inPlace")], out);
    no_custom_engine(f, out);
    Some(GoalNode {
        objective: objective?,
        choice,
        cwd,
        sandbox,
        launcher,
        thread_id,
        token_budget: token_budget.unwrap_or(GoalNode::TOKENS_DEFAULT),
        capacity_retry,
        stall_ms: stall_ms.unwrap_or(GoalNode::STALL_MS_DEFAULT),
    })
}

/// Words the engine is run under; one that is no word would change which program runs.
fn launcher(f: &mut Fields<'_>, out: &mut Vec<Problem>) -> Vec<String> {
    let items = f.list("launcher", out).unwrap_or_default();
    if items.len() > LAUNCHER_MAX {
        f.problem("launcher", format!("more than {LAUNCHER_MAX} words"), out);
        return Vec::new();
    }
    let mut words = Vec::new();
    for (index, (path, value)) in items.into_iter().enumerate() {
        match value.as_str() {
            Some(word) if word.contains('\0') => out.push(Problem::new(path, "contains a NUL character")),
            Some(word) if word.len() > WORD_MAX => {
                out.push(Problem::new(path, format!("longer than {WORD_MAX} bytes")));
            }
            Some(word) if index == 0 && word.trim().is_empty() => out.push(Problem::new(path, "names no program")),
            Some(word) => words.push(word.to_owned()),
            None => out.push(Problem::new(path, format!("expected a string, found {}", type_of(value)))),
        }
    }
    words
}

fn capacity_retry(value: &Value, path: String, out: &mut Vec<Problem>) -> CapacityRetry {
    let default = CapacityRetry::default();
    let Some(mut f) = Fields::of(value, path, out) else { return default };
    let retry = CapacityRetry {
        max: f.integer("max", 0, RETRY_MAX, out).and_then(|n| u32::try_from(n).ok()).unwrap_or(default.max),
        backoff_ms: f.integer("backoffMs", 0, LIMIT_MS_MAX, out).unwrap_or(default.backoff_ms),
    };
    f.finish(out);
    retry
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::spec::{Origin, read as read_spec, write};

    fn spec(node: &Value) -> crate::kernel::spec::Read {
        let mut node = node.clone();
        node["id"] = json!("g");
        node["kind"] = json!("goal");
        read_spec(&json!({ "name": "n", "nodes": [node] }), "", Origin::Caller, Some("/p"), None)
    }

    /// What is written is read back the same, and `codex` means the engine that has goals.
    #[test]
    fn goals_survive_the_round_trip() {
        let full = json!({
            "objective": "é".repeat(4000), "engine": "codex", "model": "m", "effort": "high", "cwd": "sub",
            "sandboxMode": "read-only", "launcher": ["nice", "-n", "5", ""], "threadId": "t-1", "tokenBudget": 7,
            "capacityRetry": { "max": 0, "backoffMs": 5 }, "stallMs": 9,
        });
        for node in [full, json!({ "objective": "x" })] {
            let first = spec(&node).spec.unwrap();
            let again = read_spec(&write(&first), "", Origin::Caller, None, None);
            assert_eq!(again.spec.as_ref(), Some(&first), "{:?}", again.errors);
            let crate::model::NodeKind::Goal(goal) = &first.nodes[0].kind else { panic!("a goal") };
            assert_eq!(goal.choice.engine.as_deref(), Some("codex-app"));
        }
    }

    /// Every field of a wrong type or size is named, all in one answer.
    #[test]
    fn every_problem_is_told() {
        let wrong = json!({
            "objective": "é".repeat(4001), "engine": "opencode", "model": 1, "effort": "most", "cwd": [],
            "sandboxMode": "none", "launcher": ["", 1, "a\u{0}b"], "threadId": " ", "tokenBudget": 0,
            "capacityRetry": { "max": "3", "backoffMs": -1, "x": 1 }, "stallMs": "9", "customEngine": {}, "prompt": "x",
        });
        let paths: Vec<String> = spec(&wrong).errors.into_iter().map(|p| p.path).collect();
        for field in [
            "objective",
            "engine",
            "model",
            "effort",
            "cwd",
            "sandboxMode",
            "launcher[0]",
            "launcher[1]",
            "launcher[2]",
            "threadId",
            "tokenBudget",
            "capacityRetry.max",
            "capacityRetry.backoffMs",
            "capacityRetry.x",
            "stallMs",
            "customEngine",
            "prompt",
        ] {
            assert!(paths.contains(&format!("nodes[0].{field}")), "{field} in {paths:?}");
        }
        assert_eq!(paths.len(), 17, "{paths:?}");
        let told = |node: Value| spec(&node).errors.iter().map(|p| p.to_string()).collect::<Vec<_>>().join("\n");
        assert!(told(json!({})).contains("objective: missing"));
        assert!(
            told(json!({ "objective": "x", "engine": "claude", "sandboxMode": "read-only" }))
                .contains("claude has none")
        );
    }
}
