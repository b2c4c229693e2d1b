//! `fanout_start`: several agents on one task, side by side.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    kernel::{
        Kernel,
        fanouts::FanoutView,
        spec::{AGENTS_MAX, MEMBER_RESERVED, member_name},
    },
    model::Problem,
    nodes::Customs,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, Toolset,
        args::Problems,
        registry::{About, Length},
        schema::Object,
        shapes::{ContractShape, Effort, Free, SandboxShape},
        starting::{Draft, directory, key, program, words},
    },
};

/// Longest task in characters.
const TASK_MAX: usize = 100_000;
/// Arguments that are fields of the node as they are.
const FIELDS: [&str; 11] = [
    "synthesize",
    "synthesisEngine",
    "synthesisModel",
    "synthesisAcpAgent",
    "agentTimeoutMs",
    "maxTurnsPerAgent",
    "maxBudgetUsd",
    "isolation",
    "select",
    "merge",
    "allowDirty",
];
/// Limit of one agent where nothing else is said, in milliseconds.
const TIMEOUT_MS: u64 = 600_000;
/// Tool turns of one agent where nothing else is said.
const TURNS: u64 = 30;

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// What every agent is asked, 1 to 100000 characters.
    task: String,
    /// Absolute directory they work in; a git repository when isolated.
    project_dir: String,
    /// 1 to 16 agents.
    agents: Vec<MemberShape>,
    /// Whether one more turn merges the successful answers when there are at least two. Default false.
    synthesize: Option<bool>,
    /// Engine of that turn; not custom. Default: the server's default engine.
    synthesis_engine: Option<String>,
    /// Its model.
    synthesis_model: Option<String>,
    /// Agent that engine acp runs for it.
    synthesis_acp_agent: Option<String>,
    /// Limit of one agent in milliseconds. Default 600000.
    #[schemars(range(min = 1_000, max = 14_400_000))]
    agent_timeout_ms: Option<u64>,
    /// Most tool turns of one agent. Default 30.
    #[schemars(range(min = 1, max = 500))]
    max_turns_per_agent: Option<u32>,
    /// Cap of each agent, and of the synthesis, in US dollars. Default none.
    max_budget_usd: Option<f64>,
    /// Acceptance contract that decides whether the work is verified.
    contract: Option<ContractShape>,
    /// none: all in projectDir. worktree: each on a branch in a worktree of its own. Default none.
    isolation: Option<IsolationShape>,
    /// all, or verified: the smallest isolated work that the contract passes. Default all.
    select: Option<SelectShape>,
    /// With select verified: merge the selected work into the checked-out branch. Default true.
    merge: Option<bool>,
    /// Isolated only: begin although the checkout has uncommitted changes, which the agents do not see. Default false.
    allow_dirty: Option<bool>,
    /// Any text; a second start with it within a day returns the same fan-out instead of a new one.
    #[schemars(length(min = 1, max = 256))]
    idempotency_key: Option<String>,
}

/// One agent.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct MemberShape {
    /// 1 to 32 letters, digits, '_' or '-', distinct whatever the case; not synthesis, integration, runtime or salvage.
    name: String,
    /// Engine name, for example claude, codex or scripted. Default: the server's default engine.
    engine: Option<String>,
    /// Model name as the engine knows it; a scenario for the scripted engine.
    model: Option<String>,
    /// Thinking effort.
    effort: Option<Effort>,
    /// Agent that engine acp runs, for example opencode or codex-acp.
    acp_agent: Option<String>,
    /// Another API endpoint of the engine.
    base_url: Option<String>,
    /// Own instructions that replace persona and task.
    prompt: Option<String>,
    /// Who the agent is; put before the task.
    persona: Option<String>,
    /// Permission mode. Default bypassPermissions.
    permission_mode: Option<String>,
    /// What it may do to files. A read-only agent works in a copy that is thrown away.
    sandbox_mode: Option<SandboxShape>,
    /// With engine custom, over standard input only: the program's description; kept in memory.
    custom_engine: Option<Free>,
    /// With engine custom: the server reads the description from `CLAWO_CUSTOM_ENGINE_<REF>`.
    custom_engine_ref: Option<String>,
}

/// Whose checkout agents work in.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum IsolationShape {
    None,
    Worktree,
}

/// Whose work is kept.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
enum SelectShape {
    All,
    Verified,
}

/// The fan-out, and what is odd about the request.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    #[serde(flatten)]
    fanout: FanoutView,
    /// What was dropped or looks odd.
    warnings: Vec<Problem>,
    /// The idempotency key belonged to a fan-out that was started before.
    existing: bool,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "fanout_start",
        title: "Start a fan-out",
        description: "Gives several agents the same task side by side and returns the handle at once; use it to compare \
engines or to get several independent answers. With synthesize one more turn merges the answers. With isolation \
worktree each agent works on a branch of its own, and with select verified and a contract the smallest work that passes \
is merged. It is a durable run: it goes on in the background and survives restarts. Nothing is started when anything in \
the request is wrong; every problem is listed with its path. Next: fanout_status with the id and waitMs.",
        toolset: Toolset::Fanout,
        hints: Hints::WORK,
        length: Length::Works,
        pairs: &["fanout_status", "fanout_abort"],
    };
    Tool::gathering::<Args, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Object, problems: Vec<Problem>, context: CallContext) -> Outcome {
    let kernel = kernel.get().await?;
    let mut problems = Problems::from(problems);
    let task = words(&args, "task", (1, TASK_MAX), &mut problems);
    let cwd = directory(&args, "projectDir", &mut problems);
    let mut node = Map::new();
    node.insert("kind".to_owned(), json!("fanout"));
    // Stands in for one that was told already, so that the rest can be judged.
    node.insert("prompt".to_owned(), json!(task.unwrap_or_else(|| "task".to_owned())));
    let (agents, customs) = members(&kernel, &args, context.local, &mut problems);
    node.insert("agents".to_owned(), agents);
    node.insert("agentTimeoutMs".to_owned(), json!(TIMEOUT_MS));
    node.insert("maxTurnsPerAgent".to_owned(), json!(TURNS));
    for field in FIELDS {
        if let Some(value) = args.get(field) {
            node.insert(field.to_owned(), trimmed(value));
        }
    }
    if node.get("synthesisEngine").and_then(Value::as_str) == Some(crate::engines::custom::NAME) {
        problems.add("synthesisEngine", "custom cannot merge the answers; name another engine");
        node.remove("synthesisEngine");
    }
    let draft = Draft {
        kind: "fanout",
        node,
        cwd,
        cwd_field: "projectDir",
        contract: args.get("contract").cloned(),
        idempotency_key: key(&args),
        parent: context.parent,
        customs,
    };
    let started = draft.start(&kernel, problems, None).await?;
    let fanout = super::view(&kernel, started.run_id.as_str(), 0, false).await?;
    let mut text = if started.existing {
        "It was started before with this idempotency key; nothing new was started. ".to_owned()
    } else {
        String::new()
    };
    for warning in started.warnings.iter().take(5) {
        text.push_str(&format!("Warning: {warning}. "));
    }
    text.push_str(&super::summary(&fanout));
    let output = Output { fanout, warnings: started.warnings, existing: started.existing };
    super::answer(&output.fanout, &output, text)
}

/// Texts without blanks at their ends.
fn trimmed(value: &Value) -> Value {
    value.as_str().map_or_else(|| value.clone(), |text| json!(text.trim()))
}

/// The agents as the node has them, each with a usable name, and the programs of those that bring one.
fn members(kernel: &Kernel, args: &Map<String, Value>, local: bool, problems: &mut Problems) -> (Value, Customs) {
    let mut given = args.get("agents").and_then(Value::as_array).cloned().unwrap_or_default();
    if !problems.names("agents") && !(1..=AGENTS_MAX).contains(&given.len()) {
        problems.add("agents", format!("give 1 to {AGENTS_MAX} agents, not {}", given.len()));
    }
    let mut seen = BTreeSet::new();
    let mut agents = Vec::new();
    let mut customs = BTreeMap::new();
    for (i, value) in given.iter_mut().enumerate() {
        let at = format!("agents[{i}]");
        let Some(map) = value.as_object_mut() else {
            problems.add(&at, "must be an object with a name");
            continue;
        };
        for value in map.values_mut() {
            *value = trimmed(value);
        }
        let custom = program(kernel, map, &at, local, problems);
        let name = match map.get("name") {
            Some(Value::String(name)) => member_name(name, MEMBER_RESERVED, &mut seen).map(|()| name.clone()),
            Some(Value::Null) | None => Err("is required".to_owned()),
            Some(_) => Err("must be a text".to_owned()),
        };
        let name = name.unwrap_or_else(|why| {
            problems.add(&format!("{at}.name"), why);
            format!("unnamed-{i}")
        });
        if let Some(engine) = custom {
            customs.insert(name.clone(), engine);
        }
        map.insert("name".to_owned(), json!(name));
        agents.push(Value::Object(std::mem::take(map)));
    }
    agents.truncate(AGENTS_MAX);
    if agents.is_empty() {
        agents.push(json!({ "name": "unnamed" }));
    }
    (Value::Array(agents), Arc::new(customs))
}
