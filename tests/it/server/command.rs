//! The command line beside servers: interrupted waits, gates of dead servers, fan-outs, demonstrations.

use std::{process::Stdio, time::Duration};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::host::{Host, PATIENCE, Said, command, run, show, shown, signal, within};
use crate::support::{World, agent, processes, with};

/// Kernel scenario 12, HG-3: a gate that a dead server left is answered from a terminal, and the run goes on.
#[test]
fn a_gate_of_a_dead_server_is_answered() {
    let world = World::new();
    let model = world.scenario(
        "after",
        json!([{ "times": 0, "steps": [{ "write": { "path": "made", "content": "1" } }, { "say": "ok" }] }]),
    );
    let spec = json!({ "name": "gated", "contract": { "checks": [{ "type": "command", "cmd": "test", "args": ["-e", "made"] }] },
        "nodes": [{ "id": "ask", "kind": "human_gate", "prompt": "Go on?" }, agent("after", "x", &model)] });
    let mut host = Host::open(&world);
    for id in ["yes", "no"] {
        host.start(&world, id, spec.clone());
        host.until(id, |v| v["state"] == "awaiting_human");
    }
    host.crash();
    let parked = show(&world, "yes");
    assert_eq!((&parked["interrupted"], &parked["gate"]["prompt"]), (&json!(false), &json!("Go on?")), "{parked:#}");
    // Without a server the answer is recorded; a resume goes on with it.
    let answered = run(&world, &["workflow", "approve", "yes", "--comment", "fine", "--json"], 0).json();
    assert_eq!(answered["ok"], true, "{answered}");
    run(&world, &["workflow", "approve", "yes"], 6);
    let done = run(&world, &["workflow", "resume", "yes", "--wait", "--json"], 0).json();
    assert_eq!((&done["state"], &done["outcome"]), (&json!("completed"), &json!("verified")), "{done:#}");
    run(&world, &["verify", "yes"], 0);
    run(&world, &["workflow", "approve", "no", "reject"], 0);
    run(&world, &["workflow", "resume", "no", "--wait"], 1);
    assert_eq!(show(&world, "no")["state"], "failed");
    run(&world, &["verify", "no"], 3);
}

/// Surfaces 2.2: Ctrl-C during `solve -w` is 130, says how to come back, and the run can be resumed.
#[test]
fn an_interrupted_solve_is_resumable() {
    let world = World::new();
    let model = world.scenario(
        "once",
        json!([{ "times": 0, "steps": [
            { "run": ["sh", "-c", "test -e '../again' || { touch ../again; exec sleep 47120501; }"] }, { "say": "ok" },
        ] }]),
    );
    let args = ["solve", "Do it.", "-e", "scripted", "-m", &model, "-c", "true", "--run-id", "int", "-w"];
    let child = command(&world, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    within(PATIENCE, "the agent is at work", || !processes("sleep 47120501").is_empty());
    signal(child.id(), Signal::SIGINT);
    let said = Said::new(child.wait_with_output().unwrap());
    assert_eq!(said.status, 130, "{said:#?}");
    assert!(said.out.contains("clawo workflow resume int") && !said.out.contains('\x1b'), "{said:#?}");
    within(Duration::from_secs(5), "its agent is gone", || processes("47120501").is_empty());
    shown(&world, "int", |v| v["interrupted"] == true);
    let done = run(&world, &["workflow", "resume", "int", "--wait", "--json"], 0).json();
    assert_eq!((&done["state"], &done["outcome"]), (&json!("completed"), &json!("verified")), "{done:#}");
}

/// Surfaces 2.5: `fanout` starts every agent of its list.
#[test]
fn fanout_runs_every_agent() {
    let world = World::new();
    let model = world.scenario("opinion", json!([{ "times": 0, "steps": [{ "say": "An opinion." }] }]));
    let engine = format!("scripted:{model}");
    let engines = [engine.as_str(), engine.as_str(), engine.as_str()].join(",");
    let args = ["fanout", "Look at it.", "--engines", &engines, "-c", "true", "--run-id", "fan", "-w", "--json"];
    let done = run(&world, &args, 0).json();
    assert_eq!((&done["state"], &done["outcome"]), (&json!("completed"), &json!("verified")), "{done:#}");
    let prompts = world.prompts("opinion");
    assert!(prompts.len() == 3 && prompts.iter().all(|p| p.contains("Look at it.")), "{prompts:?}");
    let refuted = ["fanout", "Look.", "--engines", &engine, "-c", "false", "--run-id", "red", "-w", "--json"];
    assert_eq!(run(&world, &refuted, 1).json()["outcome"], "refuted");
    run(&world, &["verify", "red"], 1);
}

/// Surfaces scenario 2: a command that resumes what a server owns is refused, and one that lists sees it live.
#[test]
fn a_run_of_a_server_is_seen_live() {
    let world = World::new();
    let slow = world.scenario("slow", json!([{ "times": 0, "steps": ["hang"] }]));
    let mut host = Host::open(&world);
    let node = with(agent("a", "x", &slow), json!({ "timeoutMs": 60_000 }));
    host.start(&world, "owned", json!({ "name": "owned", "nodes": [node] }));
    let seen = shown(&world, "owned", |v| v["live"] == true && v["nodes"][0]["state"] == "running");
    assert_eq!(seen["interrupted"], false);
    let listed: Value = run(&world, &["workflow", "list", "--json"], 0).json();
    assert_eq!(listed["runs"][0]["runId"], "owned");
    let refused = run(&world, &["workflow", "resume", "owned", "--wait", "--json"], 6).json();
    assert_eq!(refused["code"], "run_owned");
    assert!(refused["error"].as_str().unwrap().contains(&host.pid().to_string()), "{refused}");
    run(&world, &["workflow", "delete", "owned", "--yes"], 6);
    run(&world, &["gc", "--older-than", "0h"], 0);
    assert_eq!(show(&world, "owned")["live"], true);
}

/// Surfaces 2.7: both demonstrations say so in words.
#[test]
fn the_demonstrations_say_verified() {
    let world = World::bare();
    for kind in ["solve", "crash"] {
        let dir = world.root().join(kind);
        let said = run(&world, &["demo", kind, "--dir", dir.to_str().unwrap()], 0);
        assert!(said.out.contains("outcome: verified") && !said.out.contains("NOT proved"), "{said:#?}");
    }
}
