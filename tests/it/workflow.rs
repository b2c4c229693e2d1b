//! Workflow runs end to end through the kernel, with real agents' processes, checks and repositories.

use claw_orchestrator::{
    kernel::{ListQuery, StatusQuery},
    model::{NodeState, RunOutcome, RunState},
};
use serde_json::json;

use crate::support::{World, agent, check, finished, verifier, with};

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

/// Kernel scenarios 4 and 5: the run's contract is never reached, an inline pass does not stand in for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_contract_that_never_ran_verifies_nothing() {
    let world = World::new();
    let kernel = world.kernel().await;
    let past = json!({
        "name": "past", "contract": check(&["true"]),
        "nodes": [
            { "id": "jump", "kind": "router", "routes": [{ "when": "always", "to": "last" }] },
            { "id": "verify", "kind": "verifier", "contract": "run" },
            agent("last", "x", "noop"),
        ],
    });
    let view = world.run(&kernel, past).await;
    assert_eq!((view.state, view.outcome), (RunState::Failed, Some(RunOutcome::Unverified)), "{view:#?}");
    let inline = json!({
        "name": "inline", "contract": check(&["true"]),
        "nodes": [
            verifier("own", &["true"]),
            { "id": "jump", "kind": "router", "routes": [{ "when": { "type": "verified", "node": "own" }, "to": "last" }] },
            { "id": "verify", "kind": "verifier", "contract": "run" },
            agent("last", "x", "noop"),
        ],
    });
    let view = world.run(&kernel, inline).await;
    assert_eq!((view.state, view.outcome), (RunState::Failed, Some(RunOutcome::Unverified)), "{view:#?}");
}

/// Kernel scenario 5: a later, weaker pass never turns a red contract into verified; advisory words do not count.
#[tokio::test(flavor = "multi_thread")]
async fn a_weaker_pass_does_not_outvote_a_red_contract() {
    let world = World::new();
    let kernel = world.kernel().await;
    let weaker = json!({
        "name": "weaker", "contract": check(&["false"]),
        "nodes": [
            { "id": "verify", "kind": "verifier", "contract": "run", "onFailure": "continue" },
            verifier("own", &["true"]),
            { "id": "child", "kind": "subflow", "workflow": { "name": "c", "contract": check(&["true"]), "nodes": [agent("a", "x", "noop")] } },
        ],
    });
    let view = world.run(&kernel, weaker).await;
    assert_eq!((view.state, view.outcome), (RunState::Failed, Some(RunOutcome::Refuted)), "{view:#?}");
    let advisory = json!({
        "name": "advisory", "contract": check(&["true"]),
        "nodes": [
            with(verifier("note", &["false"]), json!({ "advisory": true, "onFailure": "continue" })),
            agent("a", "x", "noop"),
        ],
    });
    let view = world.run(&kernel, advisory).await;
    assert_eq!((view.state, view.outcome), (RunState::Completed, Some(RunOutcome::Verified)), "{view:#?}");
}

/// Kernel scenario 6, VF-3: a verdict describes one content and expires with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_expires_when_the_content_changes() {
    let cases = [
        ("tracked", json!({ "write": { "path": "README", "content": "other\n" } }), RunOutcome::Unverified),
        ("untracked", json!({ "write": { "path": "new file", "content": "x" } }), RunOutcome::Unverified),
        ("ignored", json!({ "write": { "path": "out.log", "content": "x" } }), RunOutcome::Verified),
        ("touched", json!({ "run": ["touch", "README"] }), RunOutcome::Verified),
    ];
    for (name, step, outcome) in cases {
        let world = World::new();
        world.write(".gitignore", "*.log\n");
        world.write("README", "modified before\n");
        let kernel = world.kernel().await;
        let model = world.scenario("late", json!([{ "steps": [step, { "say": "done" }] }]));
        let spec = json!({
            "name": name, "contract": check(&["true"]),
            "nodes": [{ "id": "verify", "kind": "verifier", "contract": "run" }, agent("late", "x", &model)],
        });
        let view = world.run(&kernel, spec).await;
        assert_eq!((view.state, view.outcome), (RunState::Completed, Some(outcome)), "{name}: {view:#?}");
    }
}

/// Kernel scenario 10.
#[tokio::test(flavor = "multi_thread")]
async fn retries_are_counted_and_recorded() {
    let world = World::new();
    let kernel = world.kernel().await;
    let node = with(
        json!({ "id": "flaky", "kind": "verifier",
            "contract": check(&["sh", "-c", "echo x >> tries; test $(wc -l < tries) -ge 3"]) }),
        json!({ "retry": { "max": 2, "backoffMs": 50 } }),
    );
    let view = world.run(&kernel, json!({ "name": "r", "nodes": [node] })).await;
    assert_eq!(view.state, RunState::Completed, "{view:#?}");
    assert_eq!((view.nodes[0].state, view.nodes[0].attempts), (NodeState::Succeeded, 3));
    let evidence = world.run_dir(view.run_id.as_str()).join("evidence");
    for id in ["flaky-v01-01", "flaky-v01-02", "flaky-v01-03"] {
        assert!(evidence.join(id).is_dir(), "{id}");
    }
}

/// Kernel scenario 11: bounds of loops.
#[tokio::test(flavor = "multi_thread")]
async fn loops_are_bounded() {
    let world = World::new();
    let kernel = world.kernel().await;
    let endless = json!({
        "name": "endless", "maxNodeVisits": 7,
        "nodes": [{ "id": "spin", "kind": "router", "routes": [{ "when": "always", "to": "spin" }] }],
    });
    let view = world.run(&kernel, endless).await;
    assert_eq!(view.state, RunState::Failed);
    assert_eq!(view.error.as_deref(), Some("node 'spin' exceeded maxNodeVisits (7)"));
    let counted = json!({
        "name": "counted",
        "nodes": [
            { "id": "spin", "kind": "router", "routes": [
                { "when": { "type": "and", "all": [] }, "to": "never" },
                { "when": { "type": "visits_lt", "node": "spin", "n": 4 }, "to": "spin" },
            ], "default": "last" },
            agent("never", "x", "noop"),
            agent("last", "x", "noop"),
        ],
    });
    let view = world.run(&kernel, counted).await;
    assert_eq!(view.state, RunState::Completed, "{view:#?}");
    let visits: Vec<u32> = view.nodes.iter().map(|n| n.visits).collect();
    assert_eq!(visits, [4, 0, 1]);
}

/// RL-3: the same failure three times in a row ends a loop before its bound; 0 lets it go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_loop_without_progress_ends_early() {
    let world = World::new();
    let kernel = world.kernel().await;
    let spec = |limit: u32| {
        json!({
            "name": "stuck", "maxNodeVisits": 5, "noProgressLimit": limit, "contract": check(&["sh", "-c", "echo broken; exit 3"]),
            "nodes": [
                agent("a", "x", "noop"),
                { "id": "verify", "kind": "verifier", "contract": "run", "onFailure": "continue" },
                { "id": "again", "kind": "router", "routes": [{ "when": { "type": "node_failed", "node": "verify" }, "to": "a" }] },
            ],
        })
    };
    let view = world.run(&kernel, spec(3)).await;
    assert_eq!(
        (view.outcome, view.outcome_reason.as_deref()),
        (Some(RunOutcome::Refuted), Some("no progress")),
        "{view:#?}"
    );
    assert_eq!(view.nodes[1].visits, 3);
    let view = world.run(&kernel, spec(0)).await;
    assert_eq!((view.outcome, view.nodes[1].visits), (Some(RunOutcome::Refuted), 5), "{view:#?}");
}

/// Kernel scenario 15.
#[tokio::test(flavor = "multi_thread")]
async fn subflows_hand_up_their_verdict() {
    let world = World::new();
    let kernel = world.kernel().await;
    let parent = |child: serde_json::Value| json!({ "name": "parent", "nodes": [{ "id": "sub", "kind": "subflow", "workflow": child }] });
    let child = |contract: Option<&[&str]>| {
        let spec = json!({ "name": "child", "nodes": [agent("a", "x", "noop")] });
        contract.map_or(spec.clone(), |argv| with(spec, json!({ "contract": check(argv) })))
    };
    let green = world.run(&kernel, parent(child(Some(&["true"])))).await;
    assert_eq!(green.outcome, Some(RunOutcome::Verified), "{green:#?}");
    let red = world.run(&kernel, parent(child(Some(&["false"])))).await;
    assert_eq!((red.state, red.outcome), (RunState::Failed, Some(RunOutcome::Refuted)), "{red:#?}");
    let none = world.run(&kernel, parent(child(None))).await;
    assert_eq!((none.state, none.outcome), (RunState::Completed, Some(RunOutcome::Unverified)), "{none:#?}");
    let again = world.run(&kernel, parent(json!(green.run_id))).await;
    assert_eq!(again.outcome, Some(RunOutcome::Verified), "{again:#?}");
    let name = again.nodes[0].child_run_id.clone().unwrap();
    assert_eq!(name.as_str(), format!("{}.sub.1", again.run_id));
    let listed = kernel.list(ListQuery::default()).await.unwrap();
    assert!(listed.runs.iter().any(|r| r.run_id == name && r.parent.as_ref() == Some(&again.run_id)));
    let mut own = world.start(parent(json!("me")));
    own.run_id = Some("me".to_owned());
    let refused = kernel.start(own).await.unwrap_err();
    assert!(refused.message.contains("contain itself"), "{refused}");
}
