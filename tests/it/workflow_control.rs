//! Runs under interference: kills, takeovers, gates, corrections, cancels, timeouts.

use std::time::{Duration, Instant};

use claw_orchestrator::{
    kernel::{ListQuery, StatusQuery},
    model::{Code, NodeState, RunOutcome, RunState},
};
use serde_json::json;

use crate::support::{World, agent, check, finished, processes, until, with};

/// Kernel scenario 12, HG-3, HG-4: answered here, by another process after the one that parked it is gone, and once only.
#[tokio::test(flavor = "multi_thread")]
async fn gates_wait_and_are_answered_once() {
    let world = World::new();
    let kernel = world.kernel().await;
    let spec = |on_reject: &str| {
        json!({
            "name": "gated",
            "nodes": [
                { "id": "ask", "kind": "human_gate", "prompt": "May I?", "onFailure": on_reject },
                agent("after", "x", "noop"),
            ],
        })
    };
    let parked = world.run(&kernel, spec("fail")).await;
    let run = parked.run_id.as_str();
    assert_eq!(parked.state, RunState::AwaitingHuman);
    let gate = parked.gate.clone().unwrap();
    assert_eq!((gate.node.as_str(), gate.prompt.as_str()), ("ask", "May I?"));
    assert_eq!(gate.answer_with["arguments"]["runId"], run);
    assert!(!until(&kernel, run, |v| !v.live).await.interrupted, "parked is not interrupted");
    // Another process answers.
    let other = world.kernel().await;
    other.approve(run, true, Some("go".to_owned())).await.unwrap();
    let done = finished(&kernel, run).await;
    assert_eq!((done.state, done.nodes[1].state), (RunState::Completed, NodeState::Succeeded));
    let twice = kernel.approve(run, true, None).await.unwrap_err();
    assert_eq!(twice.code, Code::GateNotWaiting);
    assert!(twice.message.contains("already answered"), "{twice}");

    let parked = world.run(&kernel, spec("fail")).await;
    kernel.approve(parked.run_id.as_str(), false, Some("not now".to_owned())).await.unwrap();
    let failed = finished(&kernel, parked.run_id.as_str()).await;
    assert_eq!(failed.state, RunState::Failed);
    assert!(failed.error.unwrap().contains("rejected: not now"));

    let parked = world.run(&kernel, spec("continue")).await;
    kernel.approve(parked.run_id.as_str(), false, None).await.unwrap();
    let went_on = finished(&kernel, parked.run_id.as_str()).await;
    assert_eq!((went_on.state, went_on.nodes[1].visits), (RunState::Completed, 1));
    let missing = kernel.approve("no-such-run", true, None).await.unwrap_err();
    assert_eq!(missing.code, Code::RunNotFound);
}

/// Kernel scenario 13, LW-8: corrections reach the next prompt before the task, in order, and survive a failed attempt.
#[tokio::test(flavor = "multi_thread")]
async fn corrections_reach_the_next_prompt() {
    let world = World::new();
    let kernel = world.kernel().await;
    let slow = world.scenario("slow", json!([{ "steps": [{ "sleep": 1500 }, { "say": "done" }] }]));
    let flaky = world.scenario(
        "flaky",
        json!([{ "steps": [{ "run": ["sh", "-c", "test -e tried && mv tried again; test -e again || touch tried"] },
            { "say": "done" }] }]),
    );
    let fail = world.scenario("fail", json!([{ "steps": [{ "fail": "no luck" }] }]));
    let spec = json!({
        "name": "steered",
        "nodes": [
            agent("first", "First task.", &slow),
            with(agent("second", "Second task.", &fail), json!({ "retry": { "max": 1, "backoffMs": 10 }, "onFailure": "continue" })),
            agent("third", "Third task.", &flaky),
            agent("fourth", "Fourth task.", &flaky),
        ],
    });
    let started = kernel.start(world.start(spec)).await.unwrap();
    let run = started.run_id.as_str();
    until(&kernel, run, |v| v.current_node.as_deref() == Some("first")).await;
    assert_eq!(kernel.steer(run, "use tabs").await.unwrap(), "first");
    // From another process, through the run's inbox.
    world.kernel().await.steer(run, "no, spaces").await.unwrap();
    let done = finished(&kernel, run).await;
    assert_eq!(done.state, RunState::Completed, "{done:#?}");
    let second = world.prompts("fail");
    assert_eq!(second.len(), 2, "one retry");
    for prompt in second.iter().chain(&world.prompts("flaky")[..1]) {
        let at = |needle: &str| prompt.find(needle).unwrap_or_else(|| panic!("{needle} is missing in {prompt}"));
        assert!(at("use tabs") < at("no, spaces") && at("no, spaces") < at(" task."), "{prompt}");
    }
    assert!(!world.prompts("flaky")[1].contains("use tabs"), "acknowledged by the third node");
    let late = kernel.steer(run, "too late").await.unwrap_err();
    assert_eq!(late.code, Code::RunTerminal);
    assert_eq!(kernel.steer(run, "").await.unwrap_err().code, Code::InvalidArgument);
}

/// Kernel scenarios 9 and 14, ZP-4: a stopped agent's whole tree is gone before anything else happens.
#[tokio::test(flavor = "multi_thread")]
async fn cancel_and_timeout_end_the_whole_tree() {
    let world = World::new();
    let kernel = world.kernel().await;
    let stubborn = |name: &str, marker: &str| {
        world.scenario(
            name,
            json!([{ "steps": [
                "ignoreSigterm",
                "ignoreInterrupt",
                { "spawn": { "argv": ["sleep", marker], "detach": true, "newSession": true } },
                "hang",
            ] }]),
        )
    };
    let model = stubborn("cancelled", "47110815");
    let started = kernel.start(world.start(json!({ "name": "c", "nodes": [agent("a", "x", &model)] }))).await.unwrap();
    let run = started.run_id.as_str();
    let waiting = Instant::now();
    while processes("47110815").is_empty() {
        assert!(waiting.elapsed() < Duration::from_secs(20), "the agent never started its child");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let begun = Instant::now();
    let view = kernel.cancel(run, Some("enough".to_owned())).await.unwrap();
    assert_eq!((view.state, view.outcome), (RunState::Cancelled, Some(RunOutcome::Unverified)), "{view:#?}");
    assert_eq!(view.nodes[0].state, NodeState::Cancelled);
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(processes("47110815").is_empty(), "{:?}", processes("47110815"));
    assert_eq!(kernel.cancel(run, None).await.unwrap_err().code, Code::RunTerminal);
    assert_eq!(kernel.resume(run).await.unwrap().state, RunState::Cancelled);

    let model = stubborn("late", "47110816");
    let node = with(agent("a", "x", &model), json!({ "timeoutMs": 1500, "retry": { "max": 1, "backoffMs": 0 } }));
    let view = world.run(&kernel, json!({ "name": "t", "nodes": [node] })).await;
    assert_eq!((view.state, view.nodes[0].attempts), (RunState::Failed, 2), "{view:#?}");
    assert!(view.error.unwrap().contains("timeout"));
    assert!(processes("47110816").is_empty());
}

/// VF-2: cancelling before, between and during checks never verifies.
#[tokio::test(flavor = "multi_thread")]
async fn cancelling_checks_never_verifies() {
    let world = World::new();
    let kernel = world.kernel().await;
    let contract = json!({ "checks": [
        { "type": "command", "cmd": "true" },
        { "type": "command", "cmd": "sleep", "args": ["47110817"] },
    ]});
    let spec = json!({ "name": "v", "contract": contract, "nodes": [agent("a", "x", "noop")] });
    let started = kernel.start(world.start(spec)).await.unwrap();
    let run = started.run_id.as_str();
    let waiting = Instant::now();
    while processes("sleep 47110817").is_empty() {
        assert!(waiting.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let view = kernel.cancel(run, None).await.unwrap();
    assert_eq!((view.state, view.outcome), (RunState::Cancelled, Some(RunOutcome::Unverified)), "{view:#?}");
    assert!(processes("sleep 47110817").is_empty());
}

/// Kernel scenario 9: a long loop of routers keeps nobody waiting.
#[tokio::test(flavor = "multi_thread")]
async fn a_fast_loop_blocks_nobody() {
    let world = World::new();
    let kernel = world.kernel().await;
    let spec = json!({
        "name": "spin", "maxNodeVisits": 10_000,
        "nodes": [
            { "id": "a", "kind": "router", "routes": [{ "when": "always", "to": "b" }] },
            { "id": "b", "kind": "router", "routes": [{ "when": "always", "to": "a" }] },
        ],
    });
    let started = kernel.start(world.start(spec)).await.unwrap();
    let run = started.run_id.as_str();
    until(&kernel, run, |v| v.nodes[0].visits > 50).await;
    let view = kernel.cancel(run, None).await.unwrap();
    assert_eq!(view.state, RunState::Cancelled);
    assert!(view.nodes[0].visits < 10_000, "cancelled in the middle");
}

/// Kernel scenarios 7 and 10, LW-2: a process that ends leaves a run that another one goes on with.
#[tokio::test(flavor = "multi_thread")]
async fn a_shut_down_run_goes_on_elsewhere() {
    let world = World::new();
    let first = world.kernel().await;
    let model = world.scenario(
        "slow",
        json!([{ "steps": [{ "append": { "path": "witness", "content": "x" } }, { "sleep": 1500 }, { "say": "done" }] }]),
    );
    let spec = json!({
        "name": "s", "contract": check(&["test", "-e", "witness"]),
        "nodes": [agent("quick", "q", "noop"), agent("slow", "x", &model)],
    });
    let started = first.start(world.start(spec)).await.unwrap();
    let run = started.run_id.as_str();
    until(&first, run, |v| v.current_node.as_deref() == Some("slow")).await;
    let file = world.project().join("witness");
    while !file.exists() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    first.shutdown().await;
    let second = world.kernel().await;
    let left = second.status(run, StatusQuery::default()).await.unwrap();
    assert!(left.interrupted && !left.live, "{left:#?}");
    let listed = second.list(ListQuery::default()).await.unwrap();
    assert!(listed.runs[0].interrupted);
    second.resume(run).await.unwrap();
    let done = finished(&second, run).await;
    assert_eq!(done.outcome, Some(RunOutcome::Verified), "{done:#?}");
    assert_eq!(world.read("witness"), "xx", "the attempt under way ran again");
    assert_eq!((done.nodes[0].visits, done.nodes[0].attempts), (1, 1), "what had succeeded did not");
    assert_eq!(done.nodes[1].attempts, 2);
    let refs = crate::support::git(&world.project(), &["for-each-ref", "--format=%(refname)", "refs/clawo"]);
    assert!(refs.contains(&format!("refs/clawo/runs/{run}/slow-v1a1")), "{refs}");
}

/// Kernel scenario 8, OF-2: of many that resume one run, one executes it.
#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_executes() {
    let world = World::new();
    let first = world.kernel().await;
    let model = world.scenario("slow", json!([{ "steps": [{ "sleep": 700 }, { "say": "done" }] }]));
    let spec = json!({ "name": "s", "nodes": [agent("slow", "x", &model)] });
    let started = first.start(world.start(spec)).await.unwrap();
    let run = started.run_id.to_string();
    until(&first, &run, |v| v.current_node.is_some()).await;
    first.shutdown().await;
    let mut kernels = Vec::new();
    for _ in 0..6 {
        kernels.push(world.kernel().await);
    }
    let calls = kernels.iter().map(|k| {
        let (kernel, run) = (k.clone(), run.clone());
        tokio::spawn(async move { kernel.resume(&run).await })
    });
    let calls: Vec<_> = calls.collect();
    let mut won = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(_) => won += 1,
            Err(e) => assert_eq!(e.code, Code::RunOwned, "{e}"),
        }
    }
    assert_eq!(won, 1);
    let done = finished(&kernels[0], &run).await;
    assert_eq!(done.state, RunState::Completed);
    assert!(world.prompts("slow").len() <= 2, "the first try and one more");
}
