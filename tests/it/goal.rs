//! Goals: set, followed, refused, sent back, stalled and gone on with. Every play is for each engine there is.

mod stage;

use std::process::{Command, Stdio};

use claw_orchestrator::{
    kernel::{Source, StartRequest},
    model::{Code, NodeState, RunOutcome, RunState},
};
use serde_json::{Value, json};

use crate::support::{World, check, clawo, finished, happens, of_run, until, with};
use stage::{Act, Round, Stage, Word, again, goal, judged, scripted, stages};

const NEVER: Round = (Vec::new(), "Working.", Word::No("not yet"));

fn spec(node: Value) -> Value {
    json!({ "name": "g", "nodes": [node] })
}

/// Kernel 8: the judge sends the agent on until the goal is reached, and the node succeeds.
#[tokio::test(flavor = "multi_thread")]
async fn a_goal_is_followed_until_it_is_reached() {
    let rounds = [
        (vec![], "Starting.", Word::No("no file yet")),
        (vec![Act::Write("hello.txt", "hello\n")], "Written.", Word::Yes),
    ];
    for stage in stages(&rounds) {
        let kernel = stage.world.kernel().await;
        let mut spec = spec(stage.node("hello.txt exists", json!({})));
        spec["contract"] = check(&["test", "-s", "hello.txt"]);
        let view = stage.world.run(&kernel, spec).await;
        assert_eq!((view.state, view.outcome), (RunState::Completed, Some(RunOutcome::Verified)), "{view:#?}");
        let goal = goal(&view);
        assert_eq!(
            (goal.status.as_str(), goal.resumes, goal.last_error.as_deref()),
            ("complete", 0, None),
            "{}",
            stage.name
        );
        assert_eq!((goal.objective.as_str(), goal.last_message.as_deref()), ("hello.txt exists", Some("Written.")));
        assert!(!goal.thread_id.is_empty() && goal.tokens_used > 200, "{}: {goal:?}", stage.name);
        assert_eq!(view.nodes[0].output.as_deref(), Some("Written."));
        assert!(stage.name == "codex" || stage.told().contains("no file yet"), "{}", stage.told());
        assert!(of_run(view.run_id.as_str()).is_empty(), "{:?}", of_run(view.run_id.as_str()));
        assert!(stage.name != "claude" || (goal.cost_usd > 0.0 && view.cost_usd > 0.0), "{goal:?}");
    }
}

/// Kernel 8, RL-4: a red check sends the goal back to the same conversation, with what failed before the objective.
#[tokio::test(flavor = "multi_thread")]
async fn a_refuted_goal_is_repaired_on_its_thread() {
    let rounds = [
        (vec![Act::Write("hello.txt", "bad\n")], "Reached.", Word::Yes),
        (vec![Act::Write("hello.txt", "good\n")], "Reached now.", Word::Yes),
    ];
    for stage in stages(&rounds) {
        let kernel = stage.world.kernel().await;
        let source = Source::Template { name: "goal".into(), task: "hello.txt says good".into(), args: stage.engine() };
        let script = "cat hello.txt; echo it must say good >&2; grep -q good hello.txt";
        let contract = Some(check(&["sh", "-c", script]));
        let request = StartRequest { source, contract, ..stage.world.start(Value::Null) };
        let run = kernel.start(request).await.unwrap().run_id.to_string();
        let view = finished(&kernel, &run).await;
        assert_eq!((view.state, view.outcome), (RunState::Completed, Some(RunOutcome::Verified)), "{view:#?}");
        assert_eq!((view.nodes[0].visits, stage.sessions().len()), (2, 1), "{}: {:?}", stage.name, stage.sessions());
        let record = kernel.record(&run).await.unwrap();
        let data = record.node("goal").unwrap().data.clone().unwrap();
        let objective = data["goal"]["objective"].as_str().unwrap().to_owned();
        let at = |needle: &str| objective.find(needle).unwrap_or_else(|| panic!("{needle} in {objective}"));
        assert!(at("it must say good") < at("hello.txt says good"), "{objective}");
        assert!(stage.told().contains("it must say good"), "{}", stage.told());
        assert_eq!(data["goal"]["status"], "complete");
    }
}

/// Kernel 8: a goal whose checks stay red ends the run as refuted, after as many repairs as were allowed.
#[tokio::test(flavor = "multi_thread")]
async fn repairs_end() {
    let done: Round = (vec![], "Reached.", Word::Yes);
    let stage = scripted(&[done.clone(), done.clone(), done]);
    let kernel = stage.world.kernel().await;
    let args = with(stage.engine(), json!({ "maxRepairs": 1 }));
    let source = Source::Template { name: "goal".into(), task: "x".into(), args };
    let contract = Some(check(&["false"]));
    let request = StartRequest { source, contract, ..stage.world.start(Value::Null) };
    let run = kernel.start(request).await.unwrap().run_id.to_string();
    let view = finished(&kernel, &run).await;
    assert_eq!((view.state, view.outcome), (RunState::Failed, Some(RunOutcome::Refuted)), "{view:#?}");
    assert_eq!(view.nodes[0].visits, 2);
}

/// Kernel 8: past its budget a goal is cut off and fails with the reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_goal_ends_at_its_budget() {
    for stage in stages(&vec![NEVER; 30]) {
        let kernel = stage.world.kernel().await;
        let node = stage.node("never", json!({ "tokenBudget": 250 }));
        let view = stage.world.run(&kernel, spec(node)).await;
        let (error, goal) = (view.nodes[0].error.clone().unwrap_or_default(), goal(&view));
        assert!(error.contains("budgetLimited") && error.contains("of 250 tokens"), "{}: {view:#?}", stage.name);
        assert_eq!((view.state, goal.status.as_str()), (RunState::Failed, "budgetLimited"));
        assert!(goal.tokens_used > 250, "{goal:?}");
    }
}

/// Kernel 8: a goal that can never be reached fails with the judge's reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_goal_that_is_impossible_fails() {
    let rounds = [NEVER, (vec![], "Tried.", Word::Impossible("there is no such file"))];
    for stage in stages(&rounds) {
        let kernel = stage.world.kernel().await;
        let view = stage.world.run(&kernel, spec(stage.node("the unreachable", json!({})))).await;
        let error = view.nodes[0].error.clone().unwrap_or_default();
        assert!(error.contains("blocked: there is no such file"), "{}: {view:#?}", stage.name);
        assert_eq!((view.state, goal(&view).status.as_str()), (RunState::Failed, "blocked"));
    }
}

/// `clawo goal` in a process of its own, as far as it gets.
fn command(world: &World, args: &[&str]) -> Command {
    let mut command = Command::new(clawo());
    command.args(args).env("CLAWO_HOME", world.home()).envs(&world.env).current_dir(world.project());
    command.env_remove("CLAUDE_CONFIG_DIR");
    for (engine, bin) in &world.bins {
        command.env(format!("CLAWO_{}_BIN", engine.to_uppercase()), bin);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Kernel 8, LW-2: the process is killed in the middle of a goal; another one goes on with it where it stood.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_goal_is_gone_on_with() {
    let after: Round = (vec![Act::Write("done", "yes\n")], "Done.", Word::Yes);
    let before = [NEVER, (vec![Act::Wait(300)], "Never said.", Word::No("never heard"))];
    let mut rounds = before.to_vec();
    rounds.push(after.clone());
    for mut stage in stages(&rounds) {
        if stage.name != "scripted" {
            // The tool call that the kill cuts off is no reply, so its words go to nobody.
            let cut = [NEVER, (vec![Act::Wait(300), Act::Write("done", "yes\n")], "Done.", Word::Yes)];
            stage = again(stage.name, &cut);
        }
        let engine = stage.engine();
        let words = |key: &str| engine[key].as_str().unwrap().to_owned();
        let (name, model) = (words("engine"), words("model"));
        let line = ["goal", "done exists", "-e", &name, "-m", &model, "--run-id", "killed", "-c", "test -s done", "-w"];
        let mut line = line.to_vec();
        if name == "codex" {
            line.extend(["--sandbox", "danger-full-access"]);
        }
        let mut child = command(&stage.world, &line).spawn().unwrap();
        let begun = stage.world.project().join("begun");
        happens("the agent is at work", || begun.exists()).await;
        child.kill().unwrap();
        child.wait().unwrap();
        stage.play(&[NEVER, after.clone()]);
        let kernel = stage.world.kernel().await;
        let cut = kernel.record("killed").await.unwrap();
        let thread = cut.node("goal").unwrap().data.clone().unwrap()["goal"]["threadId"].clone();
        kernel.resume("killed").await.unwrap();
        let view = finished(&kernel, "killed").await;
        let name = stage.name;
        assert_eq!((view.state, view.outcome), (RunState::Completed, Some(RunOutcome::Verified)), "{name}: {view:#?}");
        let goal = goal(&view);
        assert_eq!((json!(goal.thread_id), goal.resumes, stage.sessions().len()), (thread, 1, 1), "{name}");
        assert!(of_run("killed").is_empty(), "{:?}", of_run("killed"));
    }
}

/// Kernel 8: a goal that had ended when the process died ends the node with that result and is not set again.
#[tokio::test(flavor = "multi_thread")]
async fn an_ended_goal_is_not_set_again() {
    for stage in judged(&[NEVER, (vec![Act::Wait(6)], "Done.", Word::Yes), NEVER]) {
        let kernel = stage.world.kernel().await;
        let run = stage.start(&kernel, spec(stage.node("reached while away", json!({})))).await;
        let begun = stage.world.project().join("begun");
        happens("the agent is at work", || begun.exists()).await;
        let thread = goal(&until(&kernel, &run, |v| v.nodes[0].goal.is_some()).await).thread_id;
        kernel.shutdown().await;
        // Meanwhile the conversation brings the same goal to its end for somebody else.
        let other = stage.world.kernel().await;
        let node = stage.node("reached while away", json!({ "threadId": thread }));
        stage.play(&[NEVER, (vec![], "Done.", Word::Yes), (vec![], "Done.", Word::Yes)]);
        let elsewhere = stage.world.run(&other, spec(node)).await;
        let there = (elsewhere.state, goal(&elsewhere).thread_id);
        assert_eq!(there, (RunState::Completed, thread), "{}: {elsewhere:#?}", stage.name);
        let told = stage.told();
        other.resume(&run).await.unwrap();
        let view = finished(&other, &run).await;
        assert_eq!(view.state, RunState::Completed, "{}: {view:#?}", stage.name);
        assert_eq!((goal(&view).status.as_str(), stage.told()), ("complete", told), "{}: nothing was said", stage.name);
    }
}

/// Kernel 8: stalls are waited for in view, counted before each try, over a restart, and given up in the end.
#[tokio::test(flavor = "multi_thread")]
async fn stalls_are_counted_over_a_restart() {
    for stage in judged(&vec![(vec![], "Working.", Word::Broken); 6]) {
        let kernel = stage.world.kernel().await;
        let retry = json!({ "capacityRetry": { "max": 2, "backoffMs": 1500 } });
        let run = stage.start(&kernel, spec(stage.node("judged by nobody", retry))).await;
        let stalled = |n: u32| {
            move |v: &claw_orchestrator::kernel::RunView| {
                let told = format!("try {n} of 2");
                v.state.is_terminal()
                    || v.waiting_for.as_ref().is_some_and(|w| w.kind == "stall" && w.detail.contains(&told))
            }
        };
        let view = until(&kernel, &run, stalled(1)).await;
        let due = view.waiting_for.clone().unwrap_or_else(|| panic!("{}: {view:#?}", stage.name)).until;
        assert!(of_run(&run).is_empty(), "nobody holds a session while waiting");
        kernel.shutdown().await;
        let kernel = stage.world.kernel().await;
        kernel.resume(&run).await.unwrap();
        let view = until(&kernel, &run, stalled(2)).await;
        let second = view.waiting_for.clone().unwrap_or_else(|| panic!("{}: {view:#?}", stage.name));
        let waits = second.until.unwrap().millis() - second.since.millis();
        assert!(second.until > due && waits > 2000, "twice as long: {second:?}");
        let view = finished(&kernel, &run).await;
        let error = view.nodes[0].error.clone().unwrap_or_default();
        assert!(error.contains("2 tries to go on did not help"), "{}: {view:#?}", stage.name);
        assert_eq!((view.state, view.nodes[0].attempts), (RunState::Failed, 1), "waits burn no attempt");
        assert_eq!((goal(&view).resumes, stage.sessions().len()), (2, 1), "{}", stage.name);
    }
}

/// Kernel 8: cancelling interrupts the turn and pauses the goal; nothing is left.
#[tokio::test(flavor = "multi_thread")]
async fn cancelling_pauses_the_goal() {
    for stage in stages(&[(vec![Act::Wait(300)], "Never said.", Word::Yes)]) {
        let kernel = stage.world.kernel().await;
        let run = stage.start(&kernel, spec(stage.node("wait for me", json!({})))).await;
        let begun = stage.world.project().join("begun");
        happens("the agent is at work", || begun.exists()).await;
        let view = kernel.cancel(&run, None).await.unwrap();
        assert_eq!((view.state, view.nodes[0].state), (RunState::Cancelled, NodeState::Cancelled), "{view:#?}");
        assert_eq!(goal(&view).status, "paused", "{}: {view:#?}", stage.name);
        assert!(of_run(&run).is_empty(), "{:?}", of_run(&run));
    }
}

/// Kernel 8: the node's own limit does the same, and the node fails.
#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_pauses_the_goal() {
    for stage in stages(&[(vec![Act::Wait(300)], "Never said.", Word::Yes)]) {
        let kernel = stage.world.kernel().await;
        let view = stage.world.run(&kernel, spec(stage.node("wait for me", json!({ "timeoutMs": 5000 })))).await;
        let error = view.nodes[0].error.clone().unwrap_or_default();
        assert!(error.contains("timeout") && error.contains("5000 ms"), "{}: {view:#?}", stage.name);
        assert_eq!(goal(&view).status, "paused", "{}: {view:#?}", stage.name);
    }
}

/// Kernel 4.7: a correction that arrives while a goal runs goes into its turn, once, and is acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_goal_is_steered() {
    let rounds = [(vec![Act::Wait(3)], "One.", Word::No("not yet")), (vec![], "Two.", Word::Yes)];
    for stage in stages(&rounds) {
        let kernel = stage.world.kernel().await;
        let run = stage.start(&kernel, spec(stage.node("paint the wall", json!({})))).await;
        let begun = stage.world.project().join("begun");
        happens("the agent is at work", || begun.exists()).await;
        kernel.steer(&run, "paint it GREEN").await.unwrap();
        kernel.steer(&run, "no, BLUE").await.unwrap();
        let view = finished(&kernel, &run).await;
        assert_eq!(view.state, RunState::Completed, "{}: {view:#?}", stage.name);
        let told = stage.told();
        let at = |needle: &str| told.find(needle).unwrap_or_else(|| panic!("{}: {needle} in {told}", stage.name));
        assert!(at("paint the wall") < at("paint it GREEN") && at("paint it GREEN") < at("no, BLUE"), "{told}");
        assert_eq!(told.matches("GREEN").count(), 1, "{told}");
        let record = kernel.record(&run).await.unwrap();
        assert!(record.steers.iter().all(|s| s.applied.len() == 1), "{:?}", record.steers);
        assert_eq!((view.pending_steers, stage.sessions().len()), (0, 1));
    }
}

/// Surfaces scenario 4: an objective of 4001 characters is refused before anything exists.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_objective_creates_nothing() {
    let stage = scripted(&[NEVER]);
    let kernel = stage.world.kernel().await;
    let (before, long) = (stage.world.listing(), "é".repeat(4001));
    let refused = kernel.start(stage.world.start(spec(stage.node(&long, json!({}))))).await.unwrap_err();
    assert!(refused.code == Code::SpecInvalid && refused.message.contains("4001 characters"), "{refused}");
    let source = Source::Template { name: "goal".into(), task: long.clone(), args: stage.engine() };
    let request = StartRequest { source, ..stage.world.start(Value::Null) };
    assert_eq!(kernel.start(request).await.unwrap_err().code, Code::SpecInvalid);
    assert_eq!(stage.world.listing(), before);
    let file = stage.world.root().join("objective.md");
    std::fs::write(&file, &long).unwrap();
    let file = file.to_string_lossy().into_owned();
    for line in [&["goal", &long, "-w"][..], &["goal", "--objective-file", &file, "-w"]] {
        let answer = command(&stage.world, line).output().unwrap();
        assert_eq!(answer.status.code(), Some(2), "{answer:?}");
        assert!(String::from_utf8_lossy(&answer.stderr).contains("4001 characters"), "{answer:?}");
    }
    let runs = std::fs::read_dir(stage.world.home().join("wf")).into_iter().flatten().flatten();
    assert_eq!(runs.filter(|e| e.path().join("spec.json").exists()).count(), 0);
}

/// Kernel 8: an engine that goes on with another conversation fails the node, and the goal is left alone.
#[tokio::test(flavor = "multi_thread")]
async fn landing_elsewhere_fails() {
    let stage: Stage = scripted(&[(vec![], "Reached.", Word::Yes)]);
    let kernel = stage.world.kernel().await;
    let first = stage.world.run(&kernel, spec(stage.node("x", json!({})))).await;
    let thread = goal(&first).thread_id;
    let stray = json!({ "type": "system", "subtype": "init", "session_id": "somebody-else" }).to_string();
    let turn = json!({ "steps": [{ "say": "Over there." }] });
    let astray = json!({ "steps": [{ "rawLine": stray }, "hang"] });
    let scenario = json!({ "turns": [turn, astray], "judge": [{ "ok": true }] });
    std::fs::write(stage.world.root().join("goal.json"), scenario.to_string()).unwrap();
    let node = stage.node("y", json!({ "threadId": thread, "retry": { "max": 2, "backoffMs": 0 } }));
    let view = stage.world.run(&kernel, spec(node)).await;
    let error = view.nodes[0].error.clone().unwrap_or_default();
    assert!(error.contains("'somebody-else' instead of") && error.contains(&thread), "{view:#?}");
    assert_eq!((view.state, view.nodes[0].attempts), (RunState::Failed, 1), "the same again cannot end better");
    assert_eq!(goal(&view).thread_id, thread);
}
