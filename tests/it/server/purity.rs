//! Standard output is the protocol's alone.

use serde_json::{Value, json};

use super::host::{Host, command};
use crate::support::{World, agent};

/// Writes junk to every descriptor it has.
const OWN: &str =
    "for fd in /proc/self/fd/*; do echo JUNK-LINE > $fd; done 2>/dev/null; echo JUNK-LINE; echo JUNK-LINE >&2; true";
/// The same, and to every one its parent has but the standard input that a parent listens to.
const PARENT: &str = "for fd in /proc/self/fd/* /proc/$PPID/fd/[1-9]*; do echo JUNK-LINE > $fd; done 2>/dev/null; \
    echo JUNK-LINE; echo JUNK-LINE >&2; true";

/// Surface scenario 10: at every log level, with loud agents and checks that try every descriptor, each line
/// of standard output is a message (held by `Host::receive`).
#[test]
fn every_line_is_a_message() {
    let world = World::new();
    let errors = world.root().join("trace.log");
    let mut noisy = command(&world, &["mcp"]);
    noisy.env("RUST_LOG", "trace");
    let mut host = Host::silent(noisy, &errors);
    host.read();
    host.initialize("2025-06-18");
    let loud = world.scenario(
        "loud",
        json!([{ "times": 0, "steps": [
            { "rawLine": "JUNK-LINE" },
            { "rawLine": "{\"jsonrpc\":\"2.0\"" },
            { "printBytes": { "stream": "stdout", "n": 300_000 } },
            { "printBytes": { "stream": "stderr", "n": 300_000 } },
            { "run": ["sh", "-c", OWN] },
            { "spawn": { "argv": ["sh", "-c", OWN], "detach": true, "newSession": true } },
            { "say": "done" },
        ] }]),
    );
    let contract = json!({ "checks": [{ "id": "flood", "type": "command", "cmd": "sh", "args": ["-c", PARENT] }] });
    let spec = json!({ "name": "loud", "contract": contract, "nodes": [agent("a", "x", &loud)] });
    host.start(&world, "loud", spec);
    let token = json!({ "_meta": { "progressToken": "p" }, "name": "verify_run",
        "arguments": { "cwd": world.project(), "contract": contract, "label": "flooded" } });
    let id = host.send("tools/call", token);
    let checked = host.answer(id)["result"]["structuredContent"].clone();
    assert_eq!(checked["passed"], true, "{checked:#}");
    let view = host.until("loud", |v| v["endedAt"].is_string());
    assert_eq!((&view["state"], &view["outcome"]), (&json!("completed"), &json!("verified")), "{view:#}");
    // The junk went where it belongs: to the evidence.
    let log = json!({ "runId": "flooded", "file": "checks/flood.log" });
    let page = host.call("workflow_evidence", log);
    assert!(page["content"].as_str().unwrap().contains("JUNK-LINE"), "{page}");
    for line in ["", "nonsense", "[]", "{\"jsonrpc\":\"2.0\",\"id\":77,\"method\":\"no/such\"}"] {
        host.line(line.as_bytes());
    }
    assert_eq!(host.answer(77)["error"]["code"], -32601);
    assert_eq!(host.close().0, 0);
    while let Ok(message) = host.receive(std::time::Duration::from_secs(1)) {
        let _: Value = message;
    }
    let log = std::fs::read_to_string(errors).unwrap();
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "the log was on: {} bytes", log.len());
}
