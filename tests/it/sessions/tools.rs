//! The tools, over MCP: every answer is checked against its schema by the wire.

use serde_json::{Value, json};

use super::support::echo;
use crate::{mcp_wire::Wire, support::World};

async fn wire(world: &World) -> Wire {
    let mut wire = Wire::with(world.kernel().await, &["session"]);
    wire.initialize("2025-11-25").await;
    wire
}

async fn good(wire: &mut Wire, tool: &str, args: Value) -> Value {
    let answer = wire.call(tool, args).await;
    assert_eq!(answer["result"]["isError"], false, "{tool}: {answer}");
    answer["result"]["structuredContent"].clone()
}

async fn code(wire: &mut Wire, tool: &str, args: Value) -> String {
    let answer = wire.call(tool, args).await;
    answer["result"]["structuredContent"]["code"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// Surfaces 5.1: a session from its start to its stop, every tool once.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_over_its_tools() {
    let world = World::new();
    let model = echo(&world);
    let mut wire = wire(&world).await;
    let w = &mut wire;
    let args = json!({ "name": "a", "engine": "scripted", "model": model, "cwd": world.project(), "effort": "high" });
    let started = good(w, "session_start", args.clone()).await;
    assert_eq!((&started["resumed"], &started["engine"]), (&json!(false), &json!("scripted")), "{started}");
    assert_eq!(good(w, "session_start", args).await["existing"], true);
    let turn = good(w, "session_send", json!({ "name": "a", "message": "tool please", "stream": true })).await;
    assert_eq!((&turn["ok"], &turn["output"], &turn["toolCalls"]), (&json!(true), &json!("used"), &json!(2)), "{turn}");
    assert_eq!(turn["chunks"], json!(["used"]));
    let id = turn["sessionId"].clone();
    assert!(id.is_string());

    let handle = good(w, "session_send", json!({ "name": "a", "message": "slow one", "background": true })).await;
    assert_eq!(handle["running"], true);
    let args = json!({ "name": "a", "turnId": handle["turnId"], "waitMs": 20_000 });
    let status = good(w, "coding_session_status", args).await;
    assert_eq!(status["turn"]["result"]["output"], "slow slow one", "{status}");
    let args = json!({ "name": "a", "message": "hang!", "timeout": 200 });
    assert_eq!(code(w, "session_send", args).await, "turn_timeout");
    let status = good(w, "session_status", json!({ "name": "a" })).await;
    assert_eq!(
        (&status["turns"], &status["turnsSucceeded"], &status["toolErrors"]),
        (&json!(3), &json!(2), &json!(1)),
        "{status}"
    );

    let found = good(w, "session_grep", json!({ "name": "a", "pattern": "^SLOW slow" })).await;
    assert_eq!(found["events"].as_array().unwrap().len(), 1, "{found}");
    let compacted = good(w, "session_compact", json!({ "name": "a" })).await;
    assert!(compacted["compacted"].is_boolean());
    assert_eq!(
        code(w, "session_update_tools", json!({ "name": "a", "allowedTools": ["Read"] })).await,
        "not_supported"
    );
    assert_eq!(
        code(w, "session_switch_model", json!({ "name": "a", "model": "no-such-scenario" })).await,
        "bad_option"
    );
    let echo = good(w, "session_send", json!({ "name": "a", "message": "still there?" })).await;
    assert_eq!((&echo["output"], &echo["sessionId"]), (&json!("you said still there?"), &id), "as it was");

    let handed = good(
        w,
        "session_handoff",
        json!({ "name": "a", "engine": "scripted", "model": model, "newName": "b", "message": "hi" }),
    )
    .await;
    assert_eq!((&handed["from"], &handed["result"]["ok"]), (&json!("a"), &json!(true)), "{handed}");
    assert_eq!(
        good(w, "session_send_to", json!({ "from": "a", "to": "b", "message": "hello" })).await["delivered"],
        true
    );
    assert_eq!(good(w, "session_inbox", json!({ "name": "b", "unreadOnly": false })).await["messages"][0]["from"], "a");
    assert_eq!(good(w, "session_list", json!({})).await["sessions"].as_array().unwrap().len(), 2);
    assert_eq!(good(w, "sessions_overview", json!({})).await["inUse"], 2);
    good(w, "session_stop", json!({ "name": "a" })).await;
    assert_eq!(code(w, "session_send", json!({ "name": "a", "message": "x" })).await, "session_stopped");
    good(w, "session_deliver_inbox", json!({ "name": "a" })).await;
    assert_eq!(code(w, "session_stop", json!({ "name": "nobody" })).await, "session_not_found");
}

/// Engines 14: one name at once over one connection.
#[tokio::test(flavor = "multi_thread")]
async fn one_name_at_once_over_the_wire() {
    let world = World::new();
    let model = echo(&world);
    let mut wire = wire(&world).await;
    let args = json!({ "name": "a", "engine": "scripted", "model": model, "cwd": world.project() });
    for _ in 0..20 {
        wire.send("tools/call", json!({ "name": "session_start", "arguments": args })).await;
    }
    let mut answers = Vec::new();
    while answers.len() < 20 {
        let message = wire.receive().await;
        answers.push(message["result"]["structuredContent"].clone());
    }
    assert!(answers.iter().all(|a| a == &answers[0] && a["name"] == "a"), "{answers:#?}");
}
