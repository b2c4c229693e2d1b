//! `ultraplan_start`: one agent explores and plans, and writes nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    kernel::ultraplans::PlanView,
    model::{Code, Problem},
    nodes::Customs,
    sys::command,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        args::Problems,
        registry::{About, Length},
        schema::Object,
        starting::{Draft, directory, key, place, words},
    },
};

/// What the agent is told besides the task.
const INSTRUCTION: &str = include_str!("../../../prompts/ultraplan.md");
/// Shortest and longest task in characters.
const TASK: (usize, usize) = (5, 100_000);
/// Model where none is named.
const MODEL: &str = "opus";
/// Limit where none is given, in milliseconds.
const TIMEOUT_MS: u64 = 1_800_000;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// What is to be planned, 5 to 100000 characters.
    task: String,
    /// Absolute directory to explore. Default: the server's own.
    cwd: Option<String>,
    /// Model of the engine claude. Default opus.
    model: Option<String>,
    /// Limit in milliseconds. Default 1800000.
    #[schemars(range(min = 10_000, max = 7_200_000))]
    timeout: Option<u64>,
    /// Any text; a second start with it within a day returns the same plan instead of a new one.
    #[schemars(length(min = 1, max = 256))]
    idempotency_key: Option<String>,
}

/// The plan, and what is odd about the request.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    #[serde(flatten)]
    plan: PlanView,
    /// The idempotency key belonged to a plan that was started before.
    existing: bool,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "ultraplan_start",
        title: "Start an ultraplan",
        description: "Has one agent of the engine claude explore a project in depth at maximum effort and write a detailed plan, \
without changing a file; returns the handle at once. Use it before large or risky work. The plan is advice: nothing \
checks it. When the checkout changed meanwhile, treeChanged says so. Next: ultraplan_status with the id and waitMs.",
        toolset: Toolset::Ultra,
        hints: Hints::WORK,
        length: Length::Works,
        pairs: &["ultraplan_status"],
    };
    Tool::gathering::<Args, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Object, problems: Vec<Problem>, context: CallContext) -> Outcome {
    let kernel = kernel.get().await?;
    let mut problems = Problems::from(problems);
    let task = words(&args, "task", TASK, &mut problems);
    let cwd = match args.get("cwd") {
        None if !problems.names("cwd") => command::here(),
        Some(_) | None => directory(&args, "cwd", &mut problems),
    };
    let text = |field: &str| args.get(field).and_then(Value::as_str).map(str::trim).filter(|t| !t.is_empty());
    let mut node = Map::new();
    for (name, value) in [
        ("kind", json!("agent")),
        // Stands in for one that was told already, so that the rest can be judged.
        ("prompt", json!(task.unwrap_or_else(|| "task".to_owned()))),
        ("engine", json!("claude")),
        ("model", json!(text("model").unwrap_or(MODEL))),
        ("permissionMode", json!("plan")),
        ("effort", json!("max")),
        ("appendSystemPrompt", json!(INSTRUCTION.trim_end())),
        ("timeoutMs", json!(args.get("timeout").and_then(Value::as_u64).unwrap_or(TIMEOUT_MS))),
    ] {
        node.insert(name.to_owned(), value);
    }
    let draft = Draft {
        kind: "ultraplan",
        node,
        cwd,
        cwd_field: "cwd",
        contract: None,
        idempotency_key: key(&args),
        parent: context.parent,
        customs: Customs::default(),
    };
    let own = |problem: &Problem| match problem.path.as_str() {
        // No argument chooses the engine, so what is wrong with it is not the caller's.
        "nodes[0].engine" => (Code::EngineUnavailable, "engine".to_owned()),
        _ => place(problem, "cwd"),
    };
    let started = draft.start(&kernel, problems, Some(&own)).await?;
    let mut plan = kernel.ultraplan(started.run_id.as_str(), 0).await?;
    plan.warnings.extend(started.warnings.iter().map(ToString::to_string));
    let text = super::planned(&plan);
    let id = plan.id.clone();
    let result = ToolResult::new(&Output { plan, existing: started.existing }, text)?;
    Ok(result.link(format!("clawo://run/{id}"), "run record", "application/json"))
}
