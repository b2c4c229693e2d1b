//! Runs inside runs, and runs that are spoken to while their agents are loud or nobody executes them.

use std::time::Duration;

use claw_orchestrator::{
    kernel::StatusQuery,
    model::{NodeState, RunOutcome, RunState},
};
use serde_json::{Value, json};

use crate::support::{World, agent, check, finished, processes, until, with};

fn parent(child: &Value, more: &Value) -> Value {
    let node = with(json!({ "id": "sub", "kind": "subflow", "workflow": child }), more.clone());
    json!({ "name": "parent", "nodes": [node] })
}

/// Kernel 4.4, 4.10: a retry starts a child of its own, and what both used is charged once each.
#[tokio::test(flavor = "multi_thread")]
async fn a_retried_subflow_starts_another_child() {
    let world = World::bare();
    let kernel = world.kernel().await;
    let model = world.scenario(
        "second",
        json!([{ "times": 0, "steps": [{ "run": ["sh", "-c", "echo x >> tries"] }, { "cost": 0.25 }, { "say": "done" }] }]),
    );
    let contract = check(&["sh", "-c", "test $(wc -l < tries) -ge 2"]);
    let child = json!({ "name": "child", "contract": contract, "nodes": [agent("a", "x", &model)] });
    let spec = parent(&child, &json!({ "retry": { "max": 1, "backoffMs": 10 } }));
    let view = world.run(&kernel, spec).await;
    assert_eq!((view.state, view.outcome), (RunState::Completed, Some(RunOutcome::Verified)), "{view:#?}");
    assert_eq!(view.nodes[0].attempts, 2);
    assert_eq!(view.nodes[0].child_run_id.as_ref().unwrap().as_str(), format!("{}.sub.1.2", view.run_id));
    assert_eq!((view.spend.turns, view.cost_usd), (2, 0.5));
}

/// Kernel 4.5: a subflow's own limit ends its child and everything in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_subflow_that_takes_too_long_is_ended() {
    let world = World::bare();
    let kernel = world.kernel().await;
    let model = world.scenario("slow", json!([{ "steps": [{ "run": ["sleep", "47110841"] }, { "say": "done" }] }]));
    let child = json!({ "name": "child", "nodes": [agent("a", "x", &model)] });
    let view = world.run(&kernel, parent(&child, &json!({ "timeoutMs": 1500 }))).await;
    assert_eq!(view.state, RunState::Failed, "{view:#?}");
    assert!(view.error.unwrap().contains("timeout"));
    let child = kernel.record(view.nodes[0].child_run_id.as_ref().unwrap().as_str()).await.unwrap();
    assert_eq!(child.state, RunState::Cancelled);
    assert!(processes("sleep 47110841").is_empty());
}

/// VT-5: an agent that makes a run under the name of a child to come gives its parent no verdict.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_in_a_childs_name_is_not_adopted() {
    let world = World::bare();
    let kernel = world.kernel().await;
    let mut fake =
        world.start(json!({ "name": "fake", "contract": check(&["true"]), "nodes": [agent("a", "x", "noop")] }));
    fake.run_id = Some("victim.sub.1".to_owned());
    kernel.start(fake).await.unwrap();
    finished(&kernel, "victim.sub.1").await;
    let child = json!({ "name": "child", "contract": check(&["false"]), "nodes": [agent("a", "x", "noop")] });
    let mut start = world.start(parent(&child, &json!({})));
    start.run_id = Some("victim".to_owned());
    kernel.start(start).await.unwrap();
    let view = finished(&kernel, "victim").await;
    assert_eq!((view.state, view.outcome), (RunState::Failed, Some(RunOutcome::Unverified)), "{view:#?}");
}

/// Kernel 4.6, 4.13: a cancel of a parent that nobody executes reaches the child that waits for a person.
#[tokio::test(flavor = "multi_thread")]
async fn cancelling_an_interrupted_parent_ends_its_child() {
    let world = World::bare();
    let first = world.kernel().await;
    let child = json!({ "name": "child", "nodes": [{ "id": "ask", "kind": "human_gate", "prompt": "May I?" }] });
    let run = first.start(world.start(parent(&child, &json!({})))).await.unwrap().run_id.to_string();
    let waiting = until(&first, &run, |v| v.waiting_for.as_ref().is_some_and(|w| w.kind == "child")).await;
    let child = waiting.nodes[0].child_run_id.clone().unwrap().to_string();
    // Its name is on the parent's record before it is made.
    for _ in 0..500 {
        match first.record(&child).await {
            Ok(_) => break,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    until(&first, &child, |v| v.state == RunState::AwaitingHuman && !v.live).await;
    first.shutdown().await;
    let second = world.kernel().await;
    let view = second.cancel(&run, Some("enough".to_owned())).await.unwrap();
    assert_eq!((view.state, view.nodes[0].state), (RunState::Cancelled, NodeState::Cancelled), "{view:#?}");
    assert_eq!(second.record(&child).await.unwrap().state, RunState::Cancelled);
}

/// Kernel 4.13, DS-6: an agent that never stops talking does not drown out a cancel of another process.
#[tokio::test(flavor = "multi_thread")]
async fn a_loud_agent_is_cancelled_from_elsewhere() {
    let world = World::bare();
    let kernel = world.kernel().await;
    let chatter: Vec<Value> =
        (0..2000).flat_map(|i| [json!({ "say": format!("line {i}") }), json!({ "sleep": 20 })]).collect();
    let model = world.scenario("loud", json!([{ "steps": chatter }]));
    let run =
        kernel.start(world.start(json!({ "name": "l", "nodes": [agent("a", "x", &model)] }))).await.unwrap().run_id;
    until(&kernel, run.as_str(), |v| v.current_node.is_some()).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let view = world.kernel().await.cancel(run.as_str(), None).await.unwrap();
    assert_eq!(view.state, RunState::Cancelled, "{view:#?}");
}

/// HG-3, LW-4: an answer recorded by a process that executes nothing is acted on when a server starts.
#[tokio::test(flavor = "multi_thread")]
async fn an_answered_run_goes_on_when_a_server_starts() {
    use claw_orchestrator::kernel::{Kernel, Role};
    let world = World::bare();
    let kernel = world.kernel().await;
    let spec = json!({ "name": "g", "nodes": [{ "id": "ask", "kind": "human_gate", "prompt": "?" }, agent("a", "x", "noop")] });
    let view = world.run(&kernel, spec).await;
    let run = view.run_id.as_str();
    let recorder = Kernel::new(kernel.services().clone(), kernel.store().clone(), Role::Recorder);
    let answered = recorder.approve(run, true, None).await.unwrap();
    assert_eq!((answered.state, answered.gate), (RunState::Running, None));
    let later = world.kernel().await;
    assert!(later.status(run, StatusQuery::default()).await.unwrap().interrupted);
    later.auto_resume().await;
    assert_eq!(finished(&later, run).await.state, RunState::Completed);
}

/// HG-3: a server that lives on goes on with the run it parked, whoever recorded the answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_living_server_goes_on_with_an_answered_run() {
    use claw_orchestrator::kernel::{Kernel, Role};
    let world = World::bare();
    let kernel = world.kernel().await;
    let spec = json!({ "name": "g", "nodes": [{ "id": "ask", "kind": "human_gate", "prompt": "?" }, agent("a", "x", "noop")] });
    let view = world.run(&kernel, spec).await;
    let recorder = Kernel::new(kernel.services().clone(), kernel.store().clone(), Role::Recorder);
    recorder.approve(view.run_id.as_str(), true, None).await.unwrap();
    until(&kernel, view.run_id.as_str(), |v| v.state == RunState::Completed).await;
}
