//! Two servers want the same thing at the same moment: exactly one gets it, the other is told who.

use serde_json::{Value, json};

use super::host::{Host, PATIENCE, run, show, shown, within};
use crate::support::{World, agent, with};

fn routers() -> Value {
    json!({ "name": "r", "nodes": [{ "id": "one", "kind": "router", "routes": [] }] })
}

/// The same call on both at once; the structured results with their refusals.
fn both(hosts: &mut [Host; 2], tool: &str, arguments: &Value) -> [(bool, Value); 2] {
    let ids = [0, 1].map(|n: usize| hosts[n].send_call(tool, arguments.clone()));
    [0, 1].map(|n: usize| {
        let answer = hosts[n].answer(ids[n]);
        (answer["result"]["isError"] == false, answer["result"]["structuredContent"].clone())
    })
}

/// OF-6, surface section 3: one id has one creator; one key is one run; an answer is given once.
#[test]
fn one_of_two_starts() {
    let world = World::new();
    let mut hosts = [Host::open(&world), Host::open(&world)];
    for round in 0..20 {
        let id = format!("same-{round}");
        // Every second one makes a worktree and a branch, which collide too.
        let workspace = ["inPlace", "worktree"][round % 2];
        let spec = with(routers(), json!({ "workspace": workspace }));
        let start = json!({ "spec": spec, "cwd": world.project(), "runId": id });
        let answers = both(&mut hosts, "workflow_start", &start);
        let refused: Vec<&Value> = answers.iter().filter(|a| !a.0).map(|a| &a.1["code"]).collect();
        assert_eq!(refused, [&json!("run_exists")], "{answers:#?}");

        let keyed = json!({ "spec": routers(), "cwd": world.project(), "idempotencyKey": format!("key-{round}") });
        let answers = both(&mut hosts, "workflow_start", &keyed);
        assert!(answers[0].0 && answers[1].0, "{answers:#?}");
        assert_eq!(answers[0].1["runId"], answers[1].1["runId"], "{answers:#?}");
        let existing = answers.iter().filter(|a| a.1["existing"] == true).count();
        assert_eq!(existing, 1, "{answers:#?}");
    }
    let listed = run(&world, &["workflow", "list", "--limit", "500", "--json"], 0).json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 40);
    for entry in listed["runs"].as_array().unwrap() {
        shown(&world, entry["runId"].as_str().unwrap(), |v| v["state"] == "completed");
    }

    let gate = json!({ "name": "g", "nodes": [{ "id": "ask", "kind": "human_gate", "prompt": "?" }] });
    for round in 0..10 {
        let id = format!("gate-{round}");
        hosts[round % 2].start(&world, &id, gate.clone());
        hosts[round % 2].until(&id, |v| v["state"] == "awaiting_human");
        let answers = both(&mut hosts, "workflow_approve", &json!({ "runId": id, "approved": true }));
        let refused: Vec<&Value> = answers.iter().filter(|a| !a.0).map(|a| &a.1["code"]).collect();
        assert_eq!(refused, [&json!("gate_not_waiting")], "{answers:#?}");
        hosts[0].until(&id, |v| v["state"] == "completed");
    }
}

/// Kernel section 5: a run that may go on by itself does so with the next server, another does not.
#[test]
fn the_next_server_goes_on_by_itself() {
    let world = World::new();
    let script = "test -e ../again || { touch ../again; exec sleep 60; }";
    let model =
        world.scenario("once", json!([{ "times": 0, "steps": [{ "run": ["sh", "-c", script] }, { "say": "ok" }] }]));
    let hang = world.scenario("hang", json!([{ "times": 0, "steps": ["hang"] }]));
    let mut first = Host::open(&world);
    let start = json!({ "spec": { "name": "auto", "nodes": [agent("a", "x", &model)] },
        "cwd": world.project(), "runId": "auto", "autoResume": true });
    first.call("workflow_start", start);
    let node = with(agent("a", "x", &hang), json!({ "timeoutMs": 60_000 }));
    first.start(&world, "manual", json!({ "name": "manual", "nodes": [node] }));
    within(PATIENCE, "the agent is at work", || world.root().join("again").exists());
    first.until("manual", |v| v["nodes"][0]["state"] == "running");
    first.crash();
    let mut second = Host::open(&world);
    let done = second.until("auto", |v| v["endedAt"].is_string());
    assert_eq!(done["state"], "completed", "{done:#}");
    assert_eq!(show(&world, "manual")["interrupted"], true);
}
