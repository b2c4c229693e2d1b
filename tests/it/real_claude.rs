//! Whole runs on the real Claude Code against a scripted model. `CLAWO_TEST_CLAUDE` names the program.

use std::time::{Duration, Instant};

use claw_orchestrator::{
    kernel::{Kernel, RunView, Source, StartRequest, StatusQuery},
    model::{NodeState, RunOutcome, RunState, Time},
};
use serde_json::{Value, json};

use crate::support::{
    World, check, finished, git, happens,
    model::{MODEL, Model, bash, node, real},
    of_run, processes, until, with,
};

/// A shell command that leaves a file and then waits, partly in a session of its own.
fn stuck(tag: &str) -> Value {
    bash(&format!("setsid sleep {tag}1 & touch begun; sleep {tag}2"))
}

/// The data of a node's last turn.
async fn turn(kernel: &Kernel, run: &str, node: &str) -> Value {
    kernel.record(run).await.unwrap().node(node).unwrap().data.clone().unwrap_or_default()["turn"].clone()
}

/// Progress lines of a run.
async fn lines(kernel: &Kernel, run: &str) -> Vec<String> {
    let view = kernel.status(run, StatusQuery { events: 500, wait_ms: 0 }).await.unwrap();
    view.events.iter().filter_map(|e| e.event["text"].as_str().map(str::to_owned)).collect()
}

async fn one(world: &World, kernel: &Kernel, node: Value) -> RunView {
    world.run(kernel, json!({ "name": "one", "nodes": [node] })).await
}

/// A project with a failing test: `add` subtracts.
fn broken(world: &World) {
    world.write("calc.py", "def add(a, b):\n    return a - b\n");
    let test = "import sys, unittest\nsys.path.insert(0, '.')\nfrom calc import add\n\n\n\
                class Add(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n\n\n\
                unittest.main()\n";
    world.write("tests/test_calc.py", test);
    git(&world.project(), &["add", "-A"]);
    git(&world.project(), &["commit", "-q", "-m", "add"]);
}

/// The model's part: a scout that runs the test, a wrong edit, and the right one after the repair brief.
fn repairer() -> Value {
    let for_prompt = |words: &str, turns: Vec<Value>| {
        let words = words.to_owned();
        turns.into_iter().map(move |t| with(t, json!({ "when": words }))).collect::<Vec<_>>()
    };
    let read = || json!({ "tool": "Read", "input": { "file_path": "{{repo}}/calc.py" } });
    let edit = |old: &str, new: &str| json!({ "tool": "Edit", "input": { "file_path": "{{repo}}/calc.py", "old_string": old, "new_string": new } });
    let test = || bash("python3 -B tests/test_calc.py");
    let report = json!({ "text": "The cause is in calc.py, line 2: it subtracts." });
    let mut turns = for_prompt("You are the scout", vec![test(), report]);
    let again = vec![read(), edit("a * b", "a + b"), test(), json!({ "text": "It adds now." })];
    turns.extend(for_prompt("Repair brief", again));
    let first = vec![read(), edit("a - b", "a * b"), json!({ "text": "Everything is fixed." })];
    turns.extend(for_prompt("Change what the task needs", first));
    json!({ "turns": turns })
}

/// RL-4: `solve` on a failing test. Triage reports, a wrong edit is refuted, the brief leads to the right one.
#[tokio::test(flavor = "multi_thread")]
async fn solve_repairs_a_failing_test() {
    let Some((world, model)) = real(&repairer()) else { return };
    broken(&world);
    let kernel = world.kernel().await;
    let started = kernel
        .start(StartRequest {
            source: Source::Template {
                name: "solve".to_owned(),
                task: "Make the test of add pass.".to_owned(),
                args: json!({ "implementer": { "engine": "claude", "model": MODEL } }),
            },
            contract: Some(check(&["python3", "-B", "tests/test_calc.py"])),
            ..world.start(Value::Null)
        })
        .await
        .unwrap();
    let run = started.run_id.as_str();
    let done = finished(&kernel, run).await;
    assert_eq!((done.state, done.outcome), (RunState::Completed, Some(RunOutcome::Verified)), "{done:#?}");
    assert_eq!(world.read("calc.py"), "def add(a, b):\n    return a + b\n");
    let prompts = model.prompts();
    assert_eq!(prompts.len(), 3, "scout, two times the implementer: {prompts:#?}");
    for prompt in &prompts[1..] {
        assert!(prompt.contains("line 2: it subtracts"), "the scout's report is missing in {prompt}");
        assert!(prompt.contains("Make the test of add pass."), "{prompt}");
    }
    assert!(!prompts[1].contains("Repair brief"), "{}", prompts[1]);
    for part in ["6 != 5", "python3 -B tests/test_calc.py", "Repair brief"] {
        assert!(prompts[2].contains(part), "{part} is missing in {}", prompts[2]);
    }
    for (id, passed) in [("verify-v01-01", false), ("verify-v02-01", true)] {
        let evidence = kernel.evidence(run, Some(id)).await.unwrap();
        let ran = evidence.bundle.results.iter().find(|r| r.kind == "command").unwrap();
        assert_eq!((evidence.bundle.passed, ran.passed), (passed, passed), "{id}");
        assert!(evidence.path.unwrap().join("bundle.json").is_file(), "{id}");
    }
    assert_eq!(done.spend.turns, 3);
    assert!(done.cost_usd > 0.0 && !done.spend.estimated, "{done:#?}");
    let last = turn(&kernel, run, "implement").await;
    assert_eq!(last["costSource"], "engine", "{last}");
    assert_eq!((&last["toolCalls"], &last["toolErrors"]), (&json!(3), &json!(0)), "{last}");
    assert!(of_run(run).is_empty(), "{:?}", of_run(run));
}

/// ZP-2, ZP-4: cancelling in a tool call ends what the tool started in a session of its own.
#[tokio::test(flavor = "multi_thread")]
async fn cancel_ends_what_a_tool_started() {
    let Some((world, _model)) = real(&json!({ "turns": [stuck("47110901"), { "text": "never" }] })) else { return };
    let kernel = world.kernel().await;
    let spec = json!({ "name": "c", "nodes": [node("a", "Wait."), node("b", "Never.")] });
    let started = kernel.start(world.start(spec)).await.unwrap();
    let run = started.run_id.as_str();
    let file = world.project().join("begun");
    happens("the tool runs", || file.exists() && processes("sleep 47110901").len() >= 2).await;
    let begun = Instant::now();
    let view = kernel.cancel(run, None).await.unwrap();
    assert_eq!((view.state, view.nodes[0].state), (RunState::Cancelled, NodeState::Cancelled), "{view:#?}");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(processes("sleep 47110901"), Vec::<String>::new());
    assert!(of_run(run).is_empty(), "{:?}", of_run(run));
    let view = kernel.status(run, StatusQuery::default()).await.unwrap();
    assert!(view.cost_usd > 0.0, "what the cut turn used is known: {view:#?}");
    assert_eq!(view.nodes[1].state, NodeState::Pending);
}

/// LW-2: a process that ends in the middle of a turn leaves nothing alive, and another goes on.
#[tokio::test(flavor = "multi_thread")]
async fn another_process_goes_on() {
    let write = json!({ "tool": "Write", "input": { "file_path": "{{repo}}/done", "content": "yes\n" } });
    let script = json!({ "turns": [stuck("47110902"), write, { "text": "Done." }] });
    let Some((world, model)) = real(&script) else { return };
    let first = world.kernel().await;
    let spec = json!({ "name": "k", "contract": check(&["test", "-s", "done"]), "nodes": [node("a", "Write done.")] });
    let started = first.start(world.start(spec)).await.unwrap();
    let run = started.run_id.as_str();
    let file = world.project().join("begun");
    happens("the tool runs", || file.exists() && processes("sleep 47110902").len() >= 2).await;
    first.shutdown().await;
    assert_eq!(processes("sleep 47110902"), Vec::<String>::new());
    assert!(of_run(run).is_empty(), "{:?}", of_run(run));
    let second = world.kernel().await;
    assert!(second.status(run, StatusQuery::default()).await.unwrap().interrupted);
    second.resume(run).await.unwrap();
    let done = finished(&second, run).await;
    assert_eq!((done.state, done.outcome), (RunState::Completed, Some(RunOutcome::Verified)), "{done:#?}");
    assert_eq!((done.nodes[0].attempts, done.spend.turns), (2, 2), "{done:#?}");
    assert_eq!(model.prompts().len(), 2);
}

/// A refused key fails the node in seconds, however many retries it has, with the retries the program gets from us.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_key_is_not_tried_again() {
    let bad = json!({ "status": 401, "type": "authentication_error", "message": "invalid x-api-key" });
    let Some((mut world, model)) = real(&json!({ "turns": [{ "error": bad, "times": 0 }] })) else { return };
    world.env.remove("CLAUDE_CODE_MAX_RETRIES");
    let begun = std::time::Instant::now();
    let kernel = world.kernel().await;
    let retried = with(node("a", "Hello."), json!({ "retry": { "max": 3, "backoffMs": 10 } }));
    let view = one(&world, &kernel, retried).await;
    assert_eq!((view.state, view.nodes[0].attempts), (RunState::Failed, 1), "{view:#?}");
    assert!(view.nodes[0].error.as_deref().unwrap().starts_with("auth: "), "{view:#?}");
    assert_eq!(turn(&kernel, view.run_id.as_str(), "a").await["errorClass"], "auth");
    assert!((1..=3).contains(&model.calls().len()), "{}", model.calls().len());
    assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{:?}", begun.elapsed());
}

/// A busy provider is asked again inside the turn: one attempt, one session.
#[tokio::test(flavor = "multi_thread")]
async fn a_busy_provider_is_asked_again() {
    let busy = json!({ "status": 529, "type": "overloaded_error", "message": "Overloaded" });
    let Some((world, model)) = real(&json!({ "turns": [{ "error": busy }, { "text": "Here I am." }] })) else { return };
    let kernel = world.kernel().await;
    let view = one(&world, &kernel, node("a", "Hello.")).await;
    assert_eq!((view.state, view.nodes[0].attempts), (RunState::Completed, 1), "{view:#?}");
    assert_eq!(view.nodes[0].output.as_deref(), Some("Here I am."));
    assert_eq!((model.calls().len(), model.prompts().len()), (2, 1), "two calls of one conversation");
    let told = lines(&kernel, view.run_id.as_str()).await;
    assert!(told.iter().any(|l| l.contains("busy")), "{told:#?}");
}

/// Engines scenario 9, QL-1: a used-up quota parks the run until it is over, also over a restart.
#[tokio::test(flavor = "multi_thread")]
async fn a_used_up_quota_parks_the_run() {
    let reset = Time::new(jiff::Timestamp::now()).plus_millis(6000);
    let used_up = json!({ "status": 429, "type": "rate_limit_error",
        "message": format!("You've hit your usage limit, resets at {reset}") });
    let script = json!({ "turns": [{ "error": used_up }, { "text": "Back again." }] });
    let Some((world, model)) = real(&script) else { return };
    let first = world.kernel().await;
    let mut start = world.start(json!({ "name": "q", "nodes": [node("a", "Hello.")] }));
    start.auto_resume = true;
    let run = first.start(start).await.unwrap().run_id.to_string();
    let quota = |v: &RunView| v.waiting_for.as_ref().is_some_and(|w| w.kind == "quota");
    let parked = until(&first, &run, |v| quota(v) || v.state.is_terminal()).await;
    let waiting = parked.waiting_for.clone().unwrap_or_else(|| panic!("{parked:#?}"));
    assert!(waiting.until.unwrap() >= reset, "{waiting:?}");
    assert_eq!((parked.state, parked.nodes[0].state), (RunState::Running, NodeState::Running));
    assert!(of_run(&run).is_empty(), "nobody holds a session while waiting: {:?}", of_run(&run));
    first.shutdown().await;
    let second = world.kernel().await;
    second.auto_resume().await;
    until(&second, &run, |v| v.live && quota(v)).await;
    let done = finished(&second, &run).await;
    assert_eq!((done.state, done.nodes[0].attempts), (RunState::Completed, 1), "{done:#?}");
    assert!(done.ended_at.unwrap() >= reset && done.waiting_for.is_none(), "{done:#?}");
    assert_eq!(done.nodes[0].output.as_deref(), Some("Back again."));
    assert_eq!(model.calls().len(), 2, "not asked before the reset");
}

/// What nobody may permit is refused, told, and the turn goes on to its end.
#[tokio::test(flavor = "multi_thread")]
async fn refused_tool_calls_are_told() {
    let write = json!({ "tool": "Write", "input": { "file_path": "{{repo}}/b.txt", "content": "hi\n" } });
    let Some((world, model)) = real(&json!({ "turns": [write, { "text": "I was not allowed to." }] })) else { return };
    let kernel = world.kernel().await;
    let careful = with(node("a", "Write b.txt."), json!({ "permissionMode": "default" }));
    let view = one(&world, &kernel, careful).await;
    assert_eq!(view.state, RunState::Completed, "{view:#?}");
    assert_eq!(view.nodes[0].output.as_deref(), Some("I was not allowed to."));
    let data = turn(&kernel, view.run_id.as_str(), "a").await;
    assert_eq!((&data["permissionDenials"], &data["toolErrors"]), (&json!(["Write"]), &json!(1)), "{data}");
    assert!(!world.project().join("b.txt").exists());
    assert_eq!(model.calls().len(), 2);
}

/// Engines scenario 16: a server that itself runs inside a session of claude starts one that knows nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn an_enclosing_session_is_not_passed_on() {
    let show = bash("env > tool.env");
    let Some((mut world, _model)): Option<(World, Model)> =
        real(&json!({ "turns": [show, { "text": "Shown.", "delay": 1.5 }] }))
    else {
        return;
    };
    for name in ["CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_SSE_PORT", "CLAUDE_PID"]
    {
        world.env.insert(name.to_owned(), "47110903".to_owned());
    }
    let kernel = world.kernel().await;
    let started = kernel.start(world.start(json!({ "name": "n", "nodes": [node("a", "Show.")] }))).await.unwrap();
    let run = started.run_id.as_str();
    let file = world.project().join("tool.env");
    happens("the tool ran", || file.exists() && !world.read("tool.env").is_empty()).await;
    let agents = of_run(run);
    let (_, command, env) =
        agents.iter().find(|(_, command, _)| command.contains("--session-id")).unwrap_or_else(|| panic!("{agents:?}"));
    assert!(!env.contains("47110903") && !env.contains("CLAUDECODE"), "{command}\n{env}");
    assert!(env.contains("ANTHROPIC_BASE_URL=http://127.0.0.1"), "{env}");
    let view = finished(&kernel, run).await;
    assert_eq!((view.state, view.nodes[0].output.as_deref()), (RunState::Completed, Some("Shown.")), "{view:#?}");
    assert!(!world.read("tool.env").contains("47110903"), "{}", world.read("tool.env"));
}
