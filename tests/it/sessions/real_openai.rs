//! Sessions on the real Codex, as `exec` and as an app server, and the real OpenCode against a scripted model, over MCP.
//! `CLAWO_TEST_CODEX` and `CLAWO_TEST_OPENCODE` name the programs.

use serde_json::{Value, json};

use crate::{
    server::host::{Host, PATIENCE, command, within},
    support::{
        World,
        openai::{OpenAi, with_codex, with_opencode},
        processes, with,
    },
};

fn host(world: &World) -> Host {
    let mut host = Host::silent(command(world, &["mcp", "--toolsets", "session"]), &world.root().join("server.log"));
    host.read();
    host.initialize("2025-11-25");
    host
}

fn start(world: &World, engine: &str, name: &str, more: Value) -> Value {
    with(json!({ "name": name, "engine": engine, "cwd": world.project(), "resume": "auto" }), more)
}

fn send(host: &mut Host, name: &str, message: &str) -> Value {
    host.call("session_send", json!({ "name": name, "message": message, "timeout": 240_000 }))
}

/// Engines 8.4: two turns, a file, an interrupt, an error of the provider, a death of the server in the middle of a
/// turn, and a session that must not write and tries.
fn one_conversation_over_everything(engine: &str) {
    // A mark of its own, so that another engine's test is not mistaken for this one.
    let mark = |n: u32| format!("4711{}{n}", engine.len());
    let sleep = |n: u32| json!({ "sh": format!("sleep {}", mark(n)) });
    let script = json!({ "turns": [
        { "match": "say first", "text": "First." },
        { "match": "write it", "tools": [{ "write": "made.txt", "content": "made" }] },
        { "match": "write it", "text": "Written." },
        { "match": "wait long", "tools": [sleep(10)] },
        { "match": "fail now", "error": 400, "message": "no such thing" },
        { "match": "after the error", "text": "Still here." },
        { "match": "die in this", "tools": [sleep(20)] },
        { "match": "who are you", "text": "The same." },
        { "match": "write anyway", "tools": [{ "sh": "echo no > no.txt; sleep 0.3" }] },
        { "match": "write anyway", "text": "Tried." },
    ] });
    let mut world = World::new();
    let server = OpenAi::start(world.root(), &script);
    let there =
        if engine == "opencode" { with_opencode(&mut world, server.port) } else { with_codex(&mut world, server.port) };
    if !there {
        return;
    }
    let sleeps = |n: u32| !processes(&format!("sleep {}", mark(n))).is_empty();
    let mut first = host(&world);
    // The sandbox of codex keeps its commands' arguments from us, which the test waits for.
    let free = json!({ "permissionMode": "bypassPermissions", "sandboxMode": "danger-full-access" });
    let free = if engine == "opencode" { json!({ "permissionMode": "bypassPermissions" }) } else { free };
    first.call("session_start", start(&world, engine, "c", free.clone()));
    let turn = send(&mut first, "c", "say first");
    assert_eq!((&turn["ok"], &turn["output"]), (&json!(true), &json!("First.")), "{engine}: {turn}");
    let id = turn["sessionId"].clone();
    assert!(id.is_string(), "{turn}");
    let turn = send(&mut first, "c", "write it");
    assert_eq!((&turn["output"], &turn["sessionId"]), (&json!("Written."), &id), "{engine}: {turn}");
    assert_eq!(world.read("made.txt").trim(), "made");

    // Codex lets go of a command after ten seconds; opencode takes seconds to start one.
    let limit = if engine == "opencode" { 20_000 } else { 6_000 };
    first.send_call("session_send", json!({ "name": "c", "message": "wait long", "timeout": limit }));
    within(PATIENCE, "the tool runs", || sleeps(10));
    within(PATIENCE, "it is interrupted", || !sleeps(10));
    let turn = send(&mut first, "c", "fail now");
    assert_eq!(turn["ok"], false, "{engine}: {turn}");
    let turn = send(&mut first, "c", "after the error");
    assert_eq!((&turn["output"], &turn["sessionId"]), (&json!("Still here."), &id), "{engine}: {turn}");

    first.send_call("session_send", json!({ "name": "c", "message": "die in this" }));
    within(PATIENCE, "the tool runs", || sleeps(20));
    first.crash();
    let mut second = host(&world);
    within(PATIENCE, "what the dead server left ends", || !sleeps(20));
    let started = second.call("session_start", start(&world, engine, "c", free));
    assert_eq!((&started["resumed"], &started["sessionId"]), (&json!(true), &id), "{engine}: {started}");
    let turn = send(&mut second, "c", "who are you");
    assert_eq!((&turn["output"], &turn["sessionId"]), (&json!("The same."), &id), "{engine}: {turn}");
    let last = server.calls().pop().unwrap().to_string();
    assert!(last.contains("say first") && last.contains("write it"), "the model sees the whole conversation");

    second.call("session_start", start(&world, engine, "ro", json!({ "sandboxMode": "read-only" })));
    let turn = send(&mut second, "ro", "write anyway");
    assert!(turn["output"] == "Tried." || turn["ok"] == false, "{engine}: {turn}");
    assert!(!world.project().join("no.txt").exists(), "{engine}: {turn}");
    assert_eq!(second.close().0, 0);
}

#[test]
fn codex_has_one_conversation_over_everything() {
    one_conversation_over_everything("codex");
}

#[test]
fn codex_app_has_one_conversation_over_everything() {
    one_conversation_over_everything("codex-app");
}

#[test]
fn opencode_has_one_conversation_over_everything() {
    one_conversation_over_everything("opencode");
}
