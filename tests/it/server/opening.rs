//! First words: every version, odd messages, a state directory that does not answer or cannot be used.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::host::{Host, command};
use crate::{mcp_wire::modern, support::World};

/// Names of the tools, as the server lists them.
fn tools(host: &mut Host) -> Value {
    host.request("tools/list", json!({}))["result"]["tools"].clone()
}

/// Surface scenario 1: every version of the protocol, over real pipes, with one list of tools.
#[test]
fn every_version_is_answered() {
    let world = World::new();
    let mut lists = Vec::new();
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let mut host = Host::raw(&world);
        let result = host.initialize(version);
        assert_eq!(result["protocolVersion"], version, "{result}");
        assert_eq!(result["serverInfo"]["name"], "clawo");
        lists.push(tools(&mut host));
        assert_eq!(host.close().0, 0);
    }
    let mut host = Host::raw(&world);
    let found = host.request("server/discover", modern(json!({}), &json!({})));
    assert!(found["result"]["supportedVersions"].to_string().contains("2026-07-28"), "{found}");
    lists.push(host.request("tools/list", modern(json!({}), &json!({})))["result"]["tools"].clone());
    let call = json!({ "name": "workflow_list", "arguments": {} });
    let listed = host.request("tools/call", modern(call, &json!({})));
    assert_eq!(listed["result"]["structuredContent"]["runs"], json!([]), "{listed}");
    assert!(lists[0].as_array().unwrap().len() > 8 && lists.windows(2).all(|w| w[0] == w[1]));
}

/// Surface section 7: what comes before the handshake does not end the connection.
#[test]
fn odd_first_lines_are_survived() {
    let world = World::new();
    for first in [
        &b"hello"[..],
        b"",
        b"\xff\xfe\x00\x01",
        b"{}",
        b"[1,2,3]",
        b"null",
        b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":1}}",
        b"{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{}}",
        b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"server/discover\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"1999-01-01\"}}}",
        b"{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"no/such/method\"}",
        b"{\"jsonrpc\":\"1.0\",\"id\":5,\"method\":\"initialize\"}",
        b"GET / HTTP/1.1\r\n",
    ] {
        let mut host = Host::raw(&world);
        host.line(first);
        let result = host.initialize("2025-11-25");
        assert_eq!(result["protocolVersion"], "2025-11-25", "after {:?}", String::from_utf8_lossy(first));
        assert!(!tools(&mut host).as_array().unwrap().is_empty());
        assert_eq!(host.close().0, 0);
    }
    // A version nobody knows gets one that the server knows.
    let mut host = Host::raw(&world);
    assert_eq!(host.initialize("2031-01-01")["protocolVersion"], "2025-11-25");
}

/// Surface section 6: what cannot be read is refused or passed over, and the next request is answered.
#[test]
fn malformed_requests_are_survived() {
    let world = World::new();
    let mut host = Host::open(&world);
    let deep = |open: &str, close: &str, n: usize| format!("{}1{}", open.repeat(n), close.repeat(n));
    for passed_over in [
        deep("[", "]", 20_000),
        format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"ping\"}}", deep("{\"a\":", "}", 300)),
        "\0\0{\"jsonrpc\":\"2.0\",\"id\":7000,\"method\":\"ping\"}".to_owned(),
        "[{\"jsonrpc\":\"2.0\",\"id\":7001,\"method\":\"ping\"}]".to_owned(),
        "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}".to_owned(),
        "{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}".to_owned(),
    ] {
        host.line(passed_over.as_bytes());
        assert!(host.request("ping", json!({}))["result"].is_object(), "after {passed_over:.60}");
    }
    for (method, params, code, word) in [
        ("tools/call", json!({ "name": "workflow_list", "arguments": [] }), -32602, "arguments"),
        ("tools/call", json!({ "arguments": {} }), -32602, "name"),
        ("tools/call", json!({}), -32602, "name"),
        ("tools/call", json!({ "name": "no_such_tool" }), -32602, "no_such_tool"),
        ("resources/read", json!({ "uri": 5 }), -32602, "resources/read"),
        ("tools/cal", json!({ "name": "workflow_list" }), -32601, "tools/cal"),
    ] {
        let error = host.request(method, params.clone())["error"].clone();
        assert_eq!(error["code"], code, "{method} {params}: {error}");
        assert!(error["message"].as_str().unwrap().contains(word), "{method} {params}: {error}");
    }
    let nested: Value = serde_json::from_str(&deep("{\"a\":", "}", 60)).unwrap();
    assert_eq!(host.refused("workflow_status", nested), "invalid_argument");
    for (id, ending) in [("\"text\"", "\r"), ("-5", "  ")] {
        host.line(format!("\u{feff}{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"ping\"}}{ending}").as_bytes());
        let wanted: Value = serde_json::from_str(id).unwrap();
        assert_eq!(host.answer_to(&wanted)["result"], json!({}));
    }
    assert_eq!(host.close().0, 0);
}

/// Surface section 7: a state directory that cannot be used is an answer of the tools that need it, with its reason.
#[test]
fn an_unusable_state_directory_leaves_the_list() {
    let world = World::new();
    let file = world.root().join("a-file");
    std::fs::write(&file, "not a directory").unwrap();
    for home in [file.join("home"), "/proc/clawo-home".into()] {
        let mut broken = command(&world, &["mcp"]);
        broken.env("CLAWO_HOME", &home);
        let mut host = Host::silent(broken, &world.root().join("broken.log"));
        host.read();
        host.initialize("2025-11-25");
        assert!(tools(&mut host).as_array().unwrap().len() > 8);
        for (tool, arguments) in [
            ("workflow_list", json!({})),
            ("workflow_status", json!({ "runId": "x" })),
            ("workflow_start", json!({ "template": "solve", "task": "t", "cwd": world.project() })),
        ] {
            assert_eq!(host.refused(tool, arguments), "store_unavailable", "{tool} with {}", home.display());
        }
        assert_eq!(host.close().0, 0);
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "not a directory");
}

/// Surface section 7: the first answers do not wait for the state directory; calls that need it come when it does.
#[test]
fn a_slow_state_directory_holds_nothing_up() {
    let world = World::new();
    Host::open(&world).call("workflow_list", json!({}));
    // Whoever holds this lock keeps everybody from opening the directory.
    let door = std::fs::File::options().write(true).open(world.home().join("instances/.door")).unwrap();
    door.lock().unwrap();
    let begun = Instant::now();
    let mut host = Host::open(&world);
    assert!(tools(&mut host).as_array().unwrap().len() > 8);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let id = host.send_call("workflow_list", json!({}));
    assert!(host.receive(Duration::from_millis(300)).is_err(), "nothing can be listed yet");
    assert!(host.request("ping", json!({}))["result"].is_object());
    // One that never gets its answer ends all the same.
    let mut stuck = Host::open(&world);
    stuck.send_call("workflow_list", json!({}));
    let (_, took) = stuck.close();
    assert!(took < Duration::from_secs(5), "{took:?}");
    door.unlock().unwrap();
    assert_eq!(host.answer(id)["result"]["structuredContent"]["runs"], json!([]));
}
