//! Workflow runs end to end through the kernel, with real agents' processes, checks and repositories.

use claw_orchestrator::{
    kernel::StatusQuery,
    model::{NodeState, RunOutcome, RunState},
};
use serde_json::json;

use crate::support::{World, check, finished};

/// Kernel scenario 1, RL-4: wrong fix, red, brief, right fix, green.
#[tokio::test(flavor = "multi_thread")]
async fn a_refuted_fix_is_repaired_with_what_failed() {
    let world = World::new();
    world.write("value", "0\n");
    let model = world.scenario(
        "fixer",
        json!([
            { "match": "failing check", "steps": [{ "write": { "path": "value", "content": "2\n" } }, { "say": "now 2" }] },
            { "match": "Make it two", "steps": [{ "write": { "path": "value", "content": "1\n" } }, { "say": "it is two" }] },
        ]),
    );
    let kernel = world.kernel().await;
    let spec = json!({
        "name": "loop",
        "contract": check(&["sh", "-c", "cat value; grep -qx 2 value"]),
        "nodes": [
            { "id": "implement", "kind": "agent", "prompt": "Make it two.", "engine": "scripted", "model": model },
            { "id": "verify", "kind": "verifier", "contract": "run", "onFailure": "continue" },
            { "id": "again", "kind": "router", "routes": [{ "when": { "type": "node_failed", "node": "verify" }, "to": "implement" }] },
        ],
    });
    let view = world.run(&kernel, spec).await;
    assert_eq!((view.state, view.outcome), (RunState::Completed, Some(RunOutcome::Verified)), "{view:#?}");
    assert_eq!(world.read("value"), "2\n");
    let prompts = world.prompts("fixer");
    assert_eq!(prompts.len(), 2);
    assert!(prompts[1].contains("grep -qx 2 value") && prompts[1].contains("Make it two."), "{}", prompts[1]);
    let evidence = world.run_dir(view.run_id.as_str()).join("evidence");
    for id in ["verify-v01-01", "verify-v02-01"] {
        assert!(evidence.join(id).join("bundle.json").is_file(), "{id}");
    }
    assert_eq!(view.evidence_id.as_deref(), Some("verify-v02-01"));
    assert_eq!(view.spend.turns, 2);
}

/// Kernel scenario 2: nothing judges, nothing is verified.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_contract_nothing_is_verified() {
    let world = World::new();
    let kernel = world.kernel().await;
    let view = world
        .run(&kernel, json!({ "name": "n", "nodes": [{ "id": "a", "kind": "agent", "prompt": "hello", "engine": "scripted", "model": "echo" }] }))
        .await;
    assert_eq!((view.state, view.outcome), (RunState::Completed, Some(RunOutcome::Unverified)), "{view:#?}");
    assert_eq!(view.outcome_reason.as_deref(), Some("no acceptance contract"));
    assert_eq!(view.nodes[0].state, NodeState::Succeeded);
    let again = kernel.status(view.run_id.as_str(), StatusQuery { events: 50, wait_ms: 1000 }).await.unwrap();
    assert!(again.events.iter().any(|e| e.event["type"] == "node_output"));
}

/// Kernel scenario 3.
#[tokio::test(flavor = "multi_thread")]
async fn red_at_the_end_is_refuted() {
    let world = World::new();
    let kernel = world.kernel().await;
    let spec = json!({ "name": "n", "contract": check(&["false"]), "nodes": [{ "id": "a", "kind": "agent", "prompt": "x", "engine": "scripted", "model": "noop" }] });
    let started = kernel.start(world.start(spec)).await.unwrap();
    let view = finished(&kernel, started.run_id.as_str()).await;
    assert_eq!((view.state, view.outcome), (RunState::Failed, Some(RunOutcome::Refuted)), "{view:#?}");
}
