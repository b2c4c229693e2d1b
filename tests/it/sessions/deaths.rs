//! Sessions over deaths and ends of the server's process.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use super::support::echo;
use crate::{
    server::host::{Host, PATIENCE, command, ended, signal, within},
    support::{World, processes},
};

/// A secret in no known shape.
const CANARY: &str = "session-canary-5a2c90e7";

fn host(world: &World) -> Host {
    let mut host = Host::silent(command(world, &["mcp", "--toolsets", "session"]), &world.root().join("server.log"));
    host.read();
    host.initialize("2025-11-25");
    host
}

/// Surfaces 29: after a kill -9 the same name goes on with the same conversation, and nothing of the old process runs.
#[test]
fn a_killed_server_loses_no_conversation() {
    let world = World::new();
    let model = echo(&world);
    let args = json!({ "name": "a", "engine": "scripted", "model": model, "cwd": world.project() });
    let mut first = host(&world);
    first.call("session_start", args.clone());
    let turn = first.call("session_send", json!({ "name": "a", "message": "one" }));
    first.send_call("session_send", json!({ "name": "a", "message": "hang!" }));
    within(PATIENCE, "the second turn begins", || world.prompts("echo").len() == 2);
    first.crash();
    within(PATIENCE, "its agent ends", || processes(&model).is_empty());

    let mut second = host(&world);
    let started = second.call("session_start", args.clone());
    assert_eq!((&started["resumed"], &started["sessionId"]), (&json!(true), &turn["sessionId"]), "{started}");
    let again = second.call("session_send", json!({ "name": "a", "message": "two" }));
    assert_eq!((&again["output"], &again["sessionId"]), (&json!("you said two"), &turn["sessionId"]));
    let found = second.call("session_grep", json!({ "name": "a", "pattern": "you said one" }));
    assert_eq!(found["events"].as_array().unwrap().len(), 1, "{found}");

    // Another process of the home does not touch what this one has.
    let mut other = host(&world);
    assert_eq!(other.refused("session_start", args.clone()), "session_busy");
    other.call("session_start", json!({ "name": "b", "engine": "scripted", "model": model, "cwd": world.project() }));
    other.call("session_send", json!({ "name": "b", "message": "x" }));
    assert_eq!(second.close().0, 0);
    assert_eq!(other.call("session_list", json!({}))["sessions"].as_array().unwrap().len(), 2);
    assert_eq!(other.call("session_start", args)["resumed"], true);
}

/// Surfaces 39: a TERM in the middle of a turn ends agent and server within ten seconds; the session goes on later.
#[test]
fn a_stopped_server_leaves_sessions_in_order() {
    let world = World::new();
    let model = echo(&world);
    let mut first = host(&world);
    first.call("session_start", json!({ "name": "a", "engine": "scripted", "model": model, "cwd": world.project() }));
    let turn = first.call("session_send", json!({ "name": "a", "message": "one" }));
    first.send_call("session_send", json!({ "name": "a", "message": "hang!" }));
    within(PATIENCE, "the second turn begins", || world.prompts("echo").len() == 2);
    signal(first.pid(), Signal::SIGTERM);
    assert!(ended(first.child(), Duration::from_secs(10)).is_some(), "it ends by itself");
    assert!(processes(&model).is_empty(), "{:?}", processes(&model));
    let mut second = host(&world);
    let listed = second.call("session_list", json!({}));
    assert_eq!((&listed["sessions"][0]["name"], &listed["sessions"][0]["state"]), (&json!("a"), &json!("paused")));
    // A message alone brings it back.
    let again = second.call("session_send", json!({ "name": "a", "message": "two" }));
    assert_eq!(again["sessionId"], turn["sessionId"]);
}

/// Engines 13: a secret of the server's environment reaches no agent, no file and no answer of a session.
#[test]
fn a_secret_of_the_server_is_nowhere() {
    let mut world = World::new();
    world.env.insert("CANARY_TOKEN".to_owned(), CANARY.to_owned());
    world.write("notes", &format!("{CANARY}\n"));
    let model = world.scenario(
        "teller",
        json!([{ "times": 0, "steps": [{ "run": ["env"] }, { "run": ["cat", "notes"] }, { "say": format!("it is {CANARY}") }] }]),
    );
    let mut server = host(&world);
    let args = json!({
        "name": "a", "engine": "scripted", "model": model, "cwd": world.project(), "appendSystemPrompt": format!("hide {CANARY}"),
    });
    let mut told = server.call("session_start", args).to_string();
    told += &server
        .call("session_send", json!({ "name": "a", "message": format!("tell {CANARY}"), "stream": true }))
        .to_string();
    told += &server.call("session_grep", json!({ "name": "a", "pattern": "." })).to_string();
    told += &server.call("session_status", json!({ "name": "a" })).to_string();
    let handoff = json!({ "name": "a", "engine": "scripted", "model": "echo", "newName": "b", "message": "go on" });
    told += &server.call("session_handoff", handoff).to_string();
    told += &server
        .call("session_send_to", json!({ "from": "b", "to": "a", "message": format!("psst {CANARY}") }))
        .to_string();
    told += &server.call("session_inbox", json!({ "name": "a", "unreadOnly": false })).to_string();
    assert!(!told.contains(CANARY), "{told}");
    assert_eq!(server.close().0, 0);
    let mut open = vec![world.home()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
                continue;
            }
            let bytes = std::fs::read(entry.path()).unwrap();
            let holds = bytes.windows(CANARY.len()).any(|w| w == CANARY.as_bytes());
            assert!(!holds, "{} holds the secret", entry.path().display());
        }
    }
    assert!(!std::fs::read_to_string(world.root().join("server.log")).unwrap().contains(CANARY));
}
