//! Sessions on the real Claude Code against a scripted model, over MCP. `CLAWO_TEST_CLAUDE` names the program.

use serde_json::{Value, json};

use crate::{
    server::host::{Host, PATIENCE, command, within},
    support::{
        World,
        model::{MODEL, bash, real},
        processes, with,
    },
};

fn host(world: &World) -> Host {
    let mut command = command(world, &["mcp", "--toolsets", "session"]);
    command.env("CLAWO_CLAUDE_BIN", &world.bins["claude"]);
    let mut host = Host::silent(command, &world.root().join("server.log"));
    host.read();
    host.initialize("2025-11-25");
    host
}

fn start(world: &World, more: Value) -> Value {
    with(json!({ "name": "c", "engine": "claude", "model": MODEL, "cwd": world.project() }), more)
}

fn send(host: &mut Host, message: &str) -> Value {
    host.call("session_send", json!({ "name": "c", "message": message }))
}

/// Engines 8.4: turns, a file, an interrupt, an error of the provider, a death and a new process, one conversation.
#[test]
fn one_conversation_over_everything() {
    let write = json!({ "tool": "Write", "input": { "file_path": "{{repo}}/made.txt", "content": "made\n" } });
    let script = json!({ "turns": [
        { "text": "First." },
        with(write, json!({ "when": "write it" })),
        { "text": "Written." },
        with(bash("sleep 47110931"), json!({ "when": "wait long" })),
        { "when": "fail now", "error": { "status": 400, "type": "invalid_request_error" } },
        { "when": "after the error", "text": "Still here." },
        with(bash("sleep 47110932"), json!({ "when": "die in this" })),
        { "when": "who are you", "text": "The same." },
    ] });
    let Some((world, model)) = real(&script) else { return };
    let mut first = host(&world);
    first.call("session_start", start(&world, json!({ "permissionMode": "bypassPermissions" })));
    let turn = send(&mut first, "say first");
    assert_eq!((&turn["ok"], &turn["output"]), (&json!(true), &json!("First.")), "{turn}");
    assert!(turn["costUsd"].as_f64().unwrap() > 0.0 && turn["costSource"] == "engine", "{turn}");
    let id = turn["sessionId"].clone();
    let turn = send(&mut first, "write it");
    assert_eq!((&turn["output"], &turn["sessionId"]), (&json!("Written."), &id), "{turn}");
    assert_eq!(world.read("made.txt"), "made\n");

    let args = json!({ "name": "c", "message": "wait long", "timeout": 4_000 });
    assert_eq!(first.refused("session_send", args), "turn_timeout");
    within(PATIENCE, "the tool's process ends", || processes("sleep 47110931").is_empty());
    let turn = send(&mut first, "fail now");
    assert_eq!(turn["ok"], false, "{turn}");
    assert_eq!(send(&mut first, "after the error")["output"], "Still here.");

    first.send_call("session_send", json!({ "name": "c", "message": "die in this" }));
    within(PATIENCE, "the tool runs", || !processes("sleep 47110932").is_empty());
    first.crash();
    let mut second = host(&world);
    within(PATIENCE, "what the dead server left ends", || processes("sleep 47110932").is_empty());
    let started = second.call("session_start", start(&world, json!({})));
    assert_eq!((&started["resumed"], &started["sessionId"]), (&json!(true), &id), "{started}");
    let turn = send(&mut second, "who are you");
    assert_eq!((&turn["output"], &turn["sessionId"]), (&json!("The same."), &id), "{turn}");
    let last = model.calls().pop().unwrap()["body"].to_string();
    assert!(last.contains("say first") && last.contains("write it"), "the model sees the whole conversation");
    assert_eq!(second.close().0, 0);
}

/// EN-3, engines 8.4: a session that must not write tries with a tool and with a shell. Nothing reaches the user's
/// directory, and the conversation goes on, in a new process too.
#[test]
fn a_read_only_session_writes_nothing() {
    let write = json!({ "tool": "Write", "input": { "file_path": "{{repo}}/no.txt", "content": "no\n" } });
    let script = json!({ "turns": [
        with(write, json!({ "when": "write anyway" })),
        with(bash("echo no > {{repo}}/no.txt; echo no > no-too.txt"), json!({ "when": "write anyway" })),
        { "when": "write anyway", "text": "I could not." },
        { "when": "and now", "text": "Still here." },
    ] });
    let Some((world, _model)) = real(&script) else { return };
    let mut first = host(&world);
    first.call("session_start", start(&world, json!({ "sandboxMode": "read-only" })));
    let turn = send(&mut first, "write anyway");
    assert_eq!(turn["output"], "I could not.", "{turn}");
    assert!(!world.project().join("no.txt").exists() && !world.project().join("no-too.txt").exists(), "{turn}");
    let id = turn["sessionId"].clone();
    assert_eq!(first.close().0, 0);
    let mut second = host(&world);
    let started = second.call("session_start", start(&world, json!({ "sandboxMode": "read-only" })));
    assert_eq!((&started["resumed"], &started["sessionId"]), (&json!(true), &id), "{started}");
    assert_eq!(send(&mut second, "and now")["output"], "Still here.");
    assert_eq!(second.close().0, 0);
}
