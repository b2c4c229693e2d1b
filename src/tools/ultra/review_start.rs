//! `ultrareview_start`: reviewers look at a code base from many sides and write nothing; one more turn merges what they
//! found.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::angles::{ANGLES, SHARED};
use crate::{
    engines::{Opt, Support, acp, custom},
    kernel::{Kernel, fanouts::ReviewView},
    model::{Code, Problem, spec::EngineChoice},
    nodes::Customs,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, Toolset,
        args::Problems,
        registry::{About, Length},
        schema::Object,
        starting::{Draft, directory, key, place, words},
    },
};

/// Reviewers where nothing is said.
const REVIEWERS: u64 = 5;
/// Minutes where nothing is said.
const MINUTES: f64 = 10.0;
/// Longest focus in characters.
const FOCUS_MAX: usize = 4_000;
/// What is looked for where nothing is said.
const FOCUS: &str = "bugs, security issues and problems of quality";
/// Tool turns of a reviewer.
const TURNS: u64 = 20;
/// Engine where none is named.
const ENGINE: &str = "claude";
/// Engines whose programs are others' affair, so that nobody can hold them.
const LOOSE: [&str; 2] = [custom::NAME, acp::NAME];

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Absolute directory of the code base.
    cwd: String,
    /// How many reviewers, 1 to 20: security, logic, performance, API, tests, types, concurrency, errors and so on. Default 5.
    #[schemars(range(min = 1, max = 20))]
    agent_count: Option<u32>,
    /// Minutes for each reviewer, and for the merge. Default 10.
    #[schemars(range(min = 5, max = 25))]
    max_duration_minutes: Option<f64>,
    /// Model of the reviewers. Default: each engine's own.
    model: Option<String>,
    /// What to look for above all, at most 4000 characters. Default: bugs, security issues and problems of quality.
    focus: Option<String>,
    /// Engines that take turns, reviewer by reviewer; only those that can be kept from writing. Default claude.
    engines: Option<Vec<String>>,
    /// Any text; a second start with it within a day returns the same review instead of a new one.
    #[schemars(length(min = 1, max = 256))]
    idempotency_key: Option<String>,
}

/// The review, and what is odd about the request.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    #[serde(flatten)]
    review: ReviewView,
    /// The idempotency key belonged to a review that was started before.
    existing: bool,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "ultrareview_start",
        title: "Start an ultrareview",
        description: "Has up to 20 agents review a code base side by side, each from a side of its own, and one more merge what they \
found; returns the handle at once. Use it for a deep look at a project before a release or a rewrite. Nobody may write: \
reviewers work on a read-only copy in plan mode, and treeChanged says when the checkout changed nevertheless. Findings \
are advice: nothing checks them. Next: ultrareview_status with the id and waitMs.",
        toolset: Toolset::Ultra,
        hints: Hints::WORK,
        length: Length::Works,
        pairs: &["ultrareview_status", "fanout_status", "fanout_abort"],
    };
    Tool::gathering::<Args, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Object, problems: Vec<Problem>, context: CallContext) -> Outcome {
    let kernel = kernel.get().await?;
    let mut problems = Problems::from(problems);
    let cwd = directory(&args, "cwd", &mut problems);
    let given = args.get("focus").and_then(Value::as_str).is_some_and(|text| !text.trim().is_empty());
    let focus = if given { words(&args, "focus", (1, FOCUS_MAX), &mut problems) } else { None };
    let engines = engines(&kernel, &args, &mut problems);
    let node = node(&args, focus.as_deref().unwrap_or(FOCUS), &engines);
    let draft = Draft {
        kind: "ultrareview",
        node,
        cwd,
        cwd_field: "cwd",
        contract: None,
        idempotency_key: key(&args),
        parent: context.parent,
        customs: Customs::default(),
    };
    let own = |problem: &Problem| match reviewer(&problem.path) {
        Some(i) => (Code::InvalidArgument, format!("engines[{}]", i % engines.len().max(1))),
        None if problem.path == "nodes[0].synthesisEngine" => (Code::InvalidArgument, "engines[0]".to_owned()),
        None => place(problem, "cwd"),
    };
    let started = draft.start(&kernel, problems, Some(&own)).await?;
    let (mut review, cut) = kernel.ultrareview(started.run_id.as_str(), 0, super::FINDINGS_MAX).await?;
    review.warnings.extend(started.warnings.iter().map(ToString::to_string));
    let text = super::reviewed(&review);
    let output = Output { review, existing: started.existing };
    super::review_answer(&output.review, &output, cut, text)
}

/// The reviewer a problem of the kernel is about.
fn reviewer(path: &str) -> Option<usize> {
    path.strip_prefix("nodes[0].agents[")?.split_once(']')?.0.parse().ok()
}

/// The engines that take turns. One that cannot be kept from writing is told.
fn engines(kernel: &Kernel, args: &Map<String, Value>, problems: &mut Problems) -> Vec<String> {
    let named = args.get("engines").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut engines: Vec<String> = named.iter().filter_map(Value::as_str).map(|name| name.trim().to_owned()).collect();
    for (i, name) in engines.iter_mut().enumerate() {
        let choice = EngineChoice { engine: Some(name.clone()), ..EngineChoice::default() };
        let found = kernel.services().registry.resolve(&choice).ok();
        let loose = LOOSE.contains(&name.as_str())
            || found.is_some_and(|engine| engine.support(Opt::ReadOnly) == Support::Refused);
        if loose {
            let text = format!("engine {name} cannot be kept from writing; name another one");
            problems.say(Code::EngineNotReadOnly, &format!("engines[{i}]"), text);
            // Told already; the rest is still to be judged.
            ENGINE.clone_into(name);
        }
    }
    if engines.is_empty() {
        engines.push(ENGINE.to_owned());
    }
    engines
}

/// The fan-out of the first angles.
fn node(args: &Map<String, Value>, focus: &str, engines: &[String]) -> Map<String, Value> {
    let count = args.get("agentCount").and_then(Value::as_u64).unwrap_or(REVIEWERS);
    let minutes = args.get("maxDurationMinutes").and_then(Value::as_f64).unwrap_or(MINUTES);
    let model = args.get("model").and_then(Value::as_str).map(str::trim).filter(|model| !model.is_empty());
    let shared = format!("{}\n\n## Focus\n\n{focus}", SHARED.trim_end());
    let engine_of = |i: usize| engines.get(i % engines.len().max(1)).map_or(ENGINE, String::as_str);
    let agents = ANGLES.iter().enumerate().take(usize::try_from(count).unwrap_or(usize::MAX)).map(|(i, angle)| {
        let mut agent = json!({
            "name": angle.name,
            "engine": engine_of(i),
            "prompt": format!("{}\n\n{shared}", angle.brief),
            "permissionMode": "plan",
            "sandboxMode": "read-only",
        });
        if let (Some(map), Some(model)) = (agent.as_object_mut(), model) {
            map.insert("model".to_owned(), json!(model));
        }
        agent
    });
    let mut node = Map::new();
    for (name, value) in [
        ("kind", json!("fanout")),
        ("prompt", json!(shared)),
        ("agents", agents.collect()),
        ("synthesize", json!(true)),
        ("synthesisEngine", json!(engine_of(0))),
        ("synthesisPermissionMode", json!("plan")),
        // At most 25 minutes, so that no fraction of a millisecond matters.
        ("agentTimeoutMs", json!((minutes * 60_000.0).round() as u64)),
        ("maxTurnsPerAgent", json!(TURNS)),
    ] {
        node.insert(name.to_owned(), value);
    }
    if let Some(model) = model {
        node.insert("synthesisModel".to_owned(), json!(model));
    }
    node
}
