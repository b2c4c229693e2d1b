//! Too much, too many, too slow: the server answers what can be answered and lives on.

use std::time::Duration;

use serde_json::{Value, json};

use super::host::{Host, PATIENCE, command, ended};
use crate::support::{World, processes};

/// Surface scenario 3: arguments of ten megabytes are refused, a line of twenty is passed over.
#[test]
fn huge_arguments_and_lines_are_survived() {
    let world = World::new();
    let mut host = Host::open(&world);
    host.call("workflow_list", json!({}));
    let before = world.listing();
    let huge = "x".repeat(10 << 20);
    for (tool, arguments) in [
        ("workflow_start", json!({ "template": "solve", "task": huge, "cwd": world.project() })),
        (
            "workflow_start",
            json!({ "spec": { "name": "n", "nodes": [{ "id": "a", "kind": "agent", "prompt": huge }] }, "cwd": world.project() }),
        ),
        ("workflow_status", json!({ "runId": huge })),
        ("workflow_steer", json!({ "runId": "x", "text": huge })),
        ("verify_run", json!({ "cwd": huge, "contract": { "checks": [] } })),
    ] {
        let id = host.send_call(tool, arguments);
        let answer = host.answer(id);
        assert_eq!(answer["result"]["isError"], true, "{tool}");
        assert!(answer.to_string().len() < 20_000, "{tool}: the answer repeats the argument");
    }
    assert_eq!(world.listing(), before);
    let line = json!({ "jsonrpc": "2.0", "id": 900, "method": "tools/call",
        "params": { "name": "workflow_list", "arguments": { "workflow": "y".repeat(20 << 20) } } });
    host.line(line.to_string().as_bytes());
    host.line(&vec![b'z'; 20 << 20]);
    assert!(host.call("workflow_list", json!({}))["runs"].is_array());
    assert_eq!(host.close().0, 0);
}

/// Surface scenario 4: two hundred calls at once on one pipe, every second one cancelled.
#[test]
fn two_hundred_calls_at_once() {
    let world = World::new();
    let mut host = Host::open(&world);
    let gate = json!({ "name": "g", "nodes": [{ "id": "ask", "kind": "human_gate", "prompt": "?" }] });
    host.start(&world, "parked", gate);
    host.until("parked", |v| v["state"] == "awaiting_human");
    let mut kept = Vec::new();
    for n in 0..200 {
        // Half wait long and are cancelled, half are answered at once.
        if n % 2 == 0 {
            let id = host.send_call("workflow_status", json!({ "runId": "parked", "waitMs": 50_000 }));
            let params = json!({ "requestId": id, "reason": "enough" });
            let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
            host.line(cancel.to_string().as_bytes());
        } else if n % 4 == 1 {
            kept.push(host.send("tools/list", json!({})));
        } else {
            kept.push(host.send_call("workflow_status", json!({ "runId": "parked", "events": 100 })));
        }
    }
    for id in kept {
        let answer = host.answer(id);
        assert!(answer["result"].is_object(), "{answer}");
    }
    let view = host.call("workflow_status", json!({ "runId": "parked" }));
    assert_eq!(view["state"], "awaiting_human", "cancelling a wait never cancels the run");
    assert_eq!(host.close().0, 0);
}

/// Surface scenario 4: a client that does not read for ten seconds gets everything in the end, and work goes on meanwhile.
#[test]
fn a_client_that_does_not_read_loses_nothing() {
    let world = World::new();
    let mut host = Host::silent(command(&world, &["mcp"]), &world.root().join("server.log"));
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let mut ids = vec![host.send("initialize", params)];
    host.line(br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    let routers = json!({ "name": "r", "nodes": [{ "id": "one", "kind": "router", "routes": [] }] });
    let arguments = json!({ "spec": routers, "cwd": world.project(), "runId": "meanwhile" });
    ids.push(host.send_call("workflow_start", arguments));
    // Far more than a pipe holds.
    ids.extend((0..100).map(|_| host.send("tools/list", json!({}))));
    std::thread::sleep(Duration::from_secs(10));
    let done = super::host::show(&world, "meanwhile");
    assert_eq!(done["state"], "completed", "{done:#}");
    host.read();
    for id in ids {
        assert!(host.answer(id)["result"].is_object());
    }
    assert_eq!(host.close().0, 0);
    // One that never reads at all does not keep its server.
    let mut deaf = Host::silent(command(&world, &["mcp"]), &world.root().join("server.log"));
    deaf.line(
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } })
        .to_string()
        .as_bytes(),
    );
    for n in 0..50 {
        deaf.line(json!({ "jsonrpc": "2.0", "id": n + 10, "method": "tools/list" }).to_string().as_bytes());
    }
    let (_, took) = deaf.close();
    assert!(took < Duration::from_secs(6), "{took:?}");
}

/// Surface section 7: hosts that come and go leave nothing behind.
#[test]
fn hosts_come_and_go() {
    let world = World::new();
    let mark = world.root().file_name().unwrap().to_string_lossy().into_owned();
    Host::open(&world).call("workflow_list", json!({}));
    let files = |dir: &str| std::fs::read_dir(world.home().join(dir)).into_iter().flatten().count();
    let threads: Vec<_> = (0..4)
        .map(|t| {
            let program: Vec<_> = (0..25).map(|_| command(&world, &["mcp"])).collect();
            let errors = world.root().join("churn.log");
            std::thread::spawn(move || {
                for (n, start) in program.into_iter().enumerate() {
                    let mut host = Host::silent(start, &errors);
                    host.read();
                    if (n + t) % 5 != 0 {
                        host.initialize("2025-11-25");
                    }
                    match n % 3 {
                        0 => assert_eq!(host.close().0, 0),
                        1 => host.crash(),
                        _ => assert!(ended(host.child(), Duration::ZERO).is_none(), "it runs until it is dropped"),
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    super::host::within(PATIENCE, "no process is left", || processes(&mark).is_empty());
    // The next server clears what the killed ones left.
    Host::open(&world).call("workflow_list", json!({}));
    let mut host = Host::open(&world);
    host.call("workflow_list", json!({}));
    assert!(files("wf/.staging") < 10 && files("wf/.trash") < 10, "{} {}", files("wf/.staging"), files("wf/.trash"));
    let names: Vec<Value> = world.listing().iter().map(|p| json!(p)).collect();
    assert!(names.len() < 200, "{} files: {names:#?}", names.len());
}
