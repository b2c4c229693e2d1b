//! mcp: real runs through the tools: results, waits, gates in both eras, tasks, checks, subscriptions.

use std::time::Duration;

use claw_orchestrator::kernel::StatusQuery;
use serde_json::{Value, json};

use crate::{
    mcp_wire::{Wire, modern},
    support::{World, agent, check, schema::check_result, until},
};

const FORMS: &str = r#"{"elicitation":{"form":{}}}"#;

fn forms() -> Value {
    serde_json::from_str(FORMS).unwrap()
}

/// The structured content of a good answer, checked against the tool's schema.
fn good(tool: &str, answer: &Value) -> Value {
    let result = &answer["result"];
    assert_eq!(result["isError"], false, "{tool}: {answer}");
    let structured = result["structuredContent"].clone();
    check_result(tool, result);
    assert!(result["content"][0]["text"].as_str().unwrap().len() < 2000);
    structured
}

async fn opened(world: &World) -> Wire {
    let mut wire = Wire::real(world.kernel().await);
    wire.initialize("2025-11-25").await;
    wire
}

async fn ended(wire: &mut Wire, run: &str) -> Value {
    for _ in 0..60 {
        let answer = wire.call("workflow_status", json!({ "runId": run, "waitMs": 20_000 })).await;
        let status = good("workflow_status", &answer);
        if ["completed", "failed", "cancelled"].contains(&status["state"].as_str().unwrap()) {
            return status;
        }
    }
    panic!("the run did not end");
}

/// MC-1, MC-11: start, follow, evidence, its files, resources, list, delete: each answer says what changed and what is next.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_from_start_to_evidence() {
    let world = World::new();
    let long = "é".repeat(60_000);
    let model = world.scenario(
        "work",
        json!([{ "match": "", "steps": [{ "write": { "path": "out", "content": "1\n" } }, { "say": long }] }]),
    );
    let mut wire = opened(&world).await;
    let spec = json!({ "name": "work", "contract": check(&["sh", "-c", "echo looking; cat out"]), "nodes": [agent("a", "go", &model)] });
    let args = json!({ "spec": spec, "cwd": world.project(), "runId": "run-1" });
    let validated = good("workflow_validate", &wire.call("workflow_validate", args.clone()).await);
    assert_eq!((&validated["ok"], &validated["forecast"]["maxAgentTurns"]), (&json!(true), &json!(1)), "{validated}");
    let answer = wire.call("workflow_start", args).await;
    let started = good("workflow_start", &answer);
    assert_eq!(started["runId"], "run-1");
    assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains("workflow_status {\"runId\": \"run-1\""));
    assert_eq!(answer["result"]["content"][1]["uri"], "clawo://run/run-1");
    let keyed = json!({ "spec": { "name": "n", "nodes": [agent("a", "x", "noop")] }, "cwd": world.project(), "idempotencyKey": "k" });
    let first = good("workflow_start", &wire.call("workflow_start", keyed.clone()).await);
    let again = good("workflow_start", &wire.call("workflow_start", keyed).await);
    assert_eq!((&again["existing"], &again["runId"]), (&json!(true), &first["runId"]));
    ended(&mut wire, first["runId"].as_str().unwrap()).await;

    let status = ended(&mut wire, "run-1").await;
    assert_eq!((&status["state"], &status["outcome"]), (&json!("completed"), &json!("verified")), "{status}");
    let answer = wire.call("workflow_status", json!({ "runId": "run-1", "events": 500 })).await;
    assert!(answer.to_string().len() < 100_000);
    assert!(good("workflow_status", &answer)["events"].as_array().unwrap().len() > 5);

    let mut whole = String::new();
    let mut offset = json!(0);
    while !offset.is_null() {
        let args = json!({ "runId": "run-1", "node": "a", "offset": offset });
        let page = good("workflow_status", &wire.call("workflow_status", args).await)["nodeOutput"].clone();
        whole.push_str(page["text"].as_str().unwrap());
        offset = page["nextOffset"].clone();
    }
    assert_eq!(whole.trim_end(), long, "pages joined are the output");

    let evidence = good("workflow_evidence", &wire.call("workflow_evidence", json!({ "runId": "run-1" })).await);
    assert_eq!((&evidence["passed"], &evidence["evidenceId"]), (&json!(true), &json!("__verify-v01-01")));
    let log =
        evidence["files"].as_array().unwrap().iter().find(|f| f.as_str().unwrap().ends_with(".log")).unwrap().clone();
    let page =
        good("workflow_evidence", &wire.call("workflow_evidence", json!({ "runId": "run-1", "file": log })).await);
    assert!(page["content"].as_str().unwrap().contains("looking"), "{page}");
    let answer = wire.call("workflow_evidence", json!({ "runId": "run-1", "file": "../../spec.json" })).await;
    assert_eq!(answer["result"]["structuredContent"]["code"], "invalid_argument");

    for uri in [
        "clawo://runs".to_owned(),
        "clawo://run/run-1".to_owned(),
        "clawo://run/run-1/events".to_owned(),
        "clawo://run/run-1/node/a/output".to_owned(),
        "clawo://evidence/run-1/__verify-v01-01".to_owned(),
        format!("clawo://evidence/run-1/__verify-v01-01/{}", log.as_str().unwrap()),
    ] {
        let answer = wire.request("resources/read", json!({ "uri": uri })).await;
        assert!(answer["result"]["contents"][0]["text"].as_str().is_some_and(|t| t.len() > 5), "{uri}: {answer}");
    }
    let listed = wire.request("resources/list", json!({})).await;
    assert!(listed.to_string().contains("clawo://run/run-1"));
    let completion = json!({ "ref": { "type": "ref/prompt", "name": "explain-run" }, "argument": { "name": "runId", "value": "run-" } });
    assert_eq!(
        wire.request("completion/complete", completion).await["result"]["completion"]["values"],
        json!(["run-1"])
    );

    let list =
        good("workflow_list", &wire.call("workflow_list", json!({ "state": "completed", "workflow": "work" })).await);
    assert_eq!(list["runs"][0]["runId"], "run-1");
    let refused = wire.call("workflow_cancel", json!({ "runId": "run-1" })).await;
    assert_eq!(refused["result"]["structuredContent"]["code"], "run_terminal", "{refused}");
    assert_eq!(
        good("workflow_delete", &wire.call("workflow_delete", json!({ "runId": "run-1" })).await)["deleted"],
        true
    );
    let gone = wire.call("workflow_status", json!({ "runId": "run-1" })).await;
    assert_eq!(gone["result"]["structuredContent"]["code"], "run_not_found");
}

/// MC-8: the kernel's refusals come through with every path, and a template of a later version by its name.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_of_the_kernel_come_through() {
    let world = World::new();
    let mut wire = opened(&world).await;
    let before = world.listing();
    let spec =
        json!({ "name": "", "nodes": [{ "id": "a b", "kind": "agnt" }, { "id": "x", "kind": "agent", "promt": "y" }] });
    let answer = wire.call("workflow_start", json!({ "spec": spec, "cwd": world.project() })).await;
    let error = &answer["result"]["structuredContent"];
    assert_eq!(error["code"], "spec_invalid", "{answer}");
    for path in ["name", "nodes[0]", "nodes[1]"] {
        assert!(error["error"].as_str().unwrap().contains(path), "{path}: {error}");
    }
    assert!(error["details"]["problems"].as_array().unwrap().len() >= 3);
    for template in ["councils", "autoloop"] {
        let answer =
            wire.call("workflow_start", json!({ "template": template, "task": "t", "cwd": world.project() })).await;
        assert!(answer["result"]["structuredContent"]["error"].as_str().unwrap().contains("template"), "{answer}");
    }
    assert_eq!(world.listing(), before);
}

fn gated(world: &World, run: &str) -> Value {
    let spec = json!({ "name": "gated", "nodes": [
        { "id": "ask", "kind": "human_gate", "prompt": "Go on?" }, agent("a", "x", "noop") ] });
    json!({ "spec": spec, "cwd": world.project(), "runId": run })
}

/// Surface scenario 7, HG-1, HG-8: legacy hosts are asked while a wait is open; declining leaves the gate parked and
/// is not asked again; an explicit answer is given to the kernel.
#[tokio::test(flavor = "multi_thread")]
async fn a_gate_is_asked_of_a_legacy_host() {
    let world = World::new();
    let kernel = world.kernel().await;
    let mut wire = Wire::real(kernel.clone());
    wire.initialize_with("2025-06-18", forms()).await;
    for (run, reply, state) in [
        ("declined", json!({ "action": "decline" }), "awaiting_human"),
        ("dismissed", json!({ "action": "cancel" }), "awaiting_human"),
        (
            "approved",
            json!({ "action": "accept", "content": { "decision": "approve", "comment": "fine" } }),
            "completed",
        ),
        ("rejected", json!({ "action": "accept", "content": { "decision": "reject" } }), "failed"),
    ] {
        good("workflow_start", &wire.call("workflow_start", gated(&world, run)).await);
        until(&kernel, run, |v| v.gate.is_some()).await;
        let call = json!({ "name": "workflow_status", "arguments": { "runId": run, "waitMs": 3000 } });
        let id = wire.send("tools/call", call.clone()).await;
        let question = wire.receive().await;
        assert_eq!(question["method"], "elicitation/create", "{question}");
        let message = question["params"]["message"].as_str().unwrap();
        for part in ["Go on?", "Changes:", "Checks:", "Spent:", "On approve:", "On reject:"] {
            assert!(message.contains(part), "{part}: {message}");
        }
        wire.line(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": reply }).to_string()).await;
        let answer = wire.receive().await;
        assert_eq!(answer["id"], id, "{answer}");
        good("workflow_status", &answer);
        let view = until(&kernel, run, |v| v.state.as_str() == state).await;
        if state == "awaiting_human" {
            let answer = wire.request("tools/call", call).await;
            let text = answer["result"]["content"][0]["text"].as_str().unwrap();
            assert!(text.contains("workflow_approve"), "asked once, then shown: {text}");
            good("workflow_approve", &wire.call("workflow_approve", json!({ "runId": run, "approved": true })).await);
            let twice = wire.call("workflow_approve", json!({ "runId": run, "approved": true })).await;
            assert_eq!(twice["result"]["structuredContent"]["code"], "gate_not_waiting", "{twice}");
        } else {
            assert!(view.gate.is_none());
        }
    }
}

/// Surface scenario 7: modern hosts get the question as the result and answer with the next call.
#[tokio::test(flavor = "multi_thread")]
async fn a_gate_is_asked_of_a_modern_host() {
    let world = World::new();
    let kernel = world.kernel().await;
    let mut wire = Wire::real(kernel.clone());
    let start = json!({ "name": "workflow_start", "arguments": gated(&world, "g") });
    good("workflow_start", &wire.request("tools/call", modern(start, &forms())).await);
    until(&kernel, "g", |v| v.gate.is_some()).await;
    let call = json!({ "name": "workflow_status", "arguments": { "runId": "g", "waitMs": 3000 } });
    let silent = wire.request("tools/call", modern(call.clone(), &json!({}))).await;
    good("workflow_status", &silent);
    let asked = wire.request("tools/call", modern(call.clone(), &forms())).await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let mut retry = modern(call.clone(), &forms());
    retry["requestState"] = json!("forged");
    assert_eq!(wire.request("tools/call", retry).await["error"]["code"], -32602);
    let mut retry = modern(call, &forms());
    retry["requestState"] = asked["result"]["requestState"].clone();
    retry["inputResponses"] = json!({ "gate": { "action": "accept", "content": { "decision": "approve" } } });
    good("workflow_status", &wire.request("tools/call", retry).await);
    until(&kernel, "g", |v| v.state.as_str() == "completed").await;
}

/// Surface scenario 8: a host that declares tasks gets one, whose id is the run id; another does not.
#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_views_of_runs() {
    let world = World::new();
    let kernel = world.kernel().await;
    let mut wire = Wire::real(kernel.clone());
    let capabilities = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} }, "elicitation": { "form": {} } });
    let start = json!({ "name": "workflow_start", "arguments": gated(&world, "t") });
    let answer = wire.request("tools/call", modern(start, &capabilities)).await;
    assert_eq!(
        (&answer["result"]["resultType"], &answer["result"]["taskId"]),
        (&json!("task"), &json!("t")),
        "{answer}"
    );
    until(&kernel, "t", |v| v.gate.is_some()).await;
    // Another server of the same home resolves the same task.
    let mut other = Wire::real(kernel.clone());
    let get = modern(json!({ "taskId": "t" }), &capabilities);
    let task = other.request("tasks/get", get.clone()).await;
    assert_eq!(task["result"]["status"], "input_required", "{task}");
    let question = task["result"]["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let reply = json!({ "taskId": "t", "inputResponses": { question: { "action": "accept", "content": { "decision": "approve" } } } });
    let acknowledged = other.request("tasks/update", modern(reply, &capabilities)).await;
    assert!(acknowledged["error"].is_null(), "{acknowledged}");
    until(&kernel, "t", |v| v.state.is_terminal()).await;
    let task = wire.request("tasks/get", get).await;
    assert_eq!(task["result"]["status"], "completed", "{task}");
    assert_eq!(task["result"]["result"]["structuredContent"]["state"], "completed");
    for bad in ["../x", "nope", ""] {
        let task = wire.request("tasks/get", modern(json!({ "taskId": bad }), &capabilities)).await;
        assert_eq!(task["error"]["code"], -32602, "{bad}: {task}");
    }

    // A check that still runs is joined by its label.
    let joined = json!({ "name": "verify_run", "arguments": { "cwd": world.project(), "contract": check(&["sleep", "1"]), "label": "j" } });
    let answer = wire.request("tools/call", modern(joined, &capabilities)).await;
    assert_eq!(answer["result"]["taskId"], "j", "{answer}");
    let other = json!({ "name": "verify_run", "arguments": { "cwd": world.project(), "contract": check(&["true"]), "label": "j" } });
    let busy = wire.request("tools/call", modern(other, &json!({}))).await;
    assert_eq!(busy["result"]["structuredContent"]["code"], "busy", "{busy}");
    let pick_up = json!({ "name": "verify_run", "arguments": { "label": "j" } });
    let answer = wire.request("tools/call", modern(pick_up, &json!({}))).await;
    assert_eq!(good("verify_run", &answer)["passed"], true);

    let verify = json!({ "name": "verify_run", "arguments": { "cwd": world.project(), "contract": check(&["sleep", "600"]), "label": "v" } });
    let answer = wire.request("tools/call", modern(verify, &capabilities)).await;
    assert_eq!(answer["result"]["taskId"], "v", "{answer}");
    let get = modern(json!({ "taskId": "v" }), &capabilities);
    assert_eq!(wire.request("tasks/get", get.clone()).await["result"]["status"], "working");
    wire.request("tasks/cancel", modern(json!({ "taskId": "v" }), &capabilities)).await;
    for _ in 0..100 {
        let task = wire.request("tasks/get", get.clone()).await;
        if task["result"]["status"] != "working" {
            assert_eq!(task["result"]["result"]["structuredContent"]["code"], "cancelled", "{task}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the check was not cancelled");
}

/// verify_run: progress at once and rising, evidence under the label, pick-up by label, and a cancelled call kills its check.
#[tokio::test(flavor = "multi_thread")]
async fn a_check_without_a_run() {
    let world = World::new();
    let mut wire = opened(&world).await;
    let contract = json!({ "checks": [
        { "type": "command", "cmd": "true" }, { "type": "file", "path": "README" }, { "type": "command", "cmd": "false" } ] });
    let call = json!({ "name": "verify_run", "_meta": { "progressToken": "p" },
        "arguments": { "cwd": world.project(), "contract": contract, "label": "mine" } });
    let id = wire.send("tools/call", call).await;
    let mut values = Vec::new();
    let answer = loop {
        let message = wire.receive().await;
        if message["id"] == id {
            break message;
        }
        assert_eq!(
            (&message["method"], &message["params"]["progressToken"]),
            (&json!("notifications/progress"), &json!("p"))
        );
        values.push(message["params"]["progress"].as_f64().unwrap());
    };
    assert!(!values.is_empty() && values.windows(2).all(|w| w[0] < w[1]), "{values:?}");
    let evidence = good("verify_run", &answer);
    assert_eq!(
        (&evidence["passed"], &evidence["label"], &evidence["evidenceId"]),
        (&json!(false), &json!("mine"), &json!("verify-01")),
        "{evidence}"
    );
    assert_eq!(
        good("verify_run", &wire.call("verify_run", json!({ "label": "mine" })).await)["evidenceId"],
        "verify-01"
    );
    assert_eq!(
        good("workflow_evidence", &wire.call("workflow_evidence", json!({ "runId": "mine" })).await)["passed"],
        false
    );
    let none = wire.call("verify_run", json!({ "label": "other" })).await;
    assert_eq!(none["result"]["structuredContent"]["code"], "no_evidence", "{none}");
    let bad = wire
        .call("verify_run", json!({ "cwd": world.project(), "contract": { "checks": [{ "type": "comand" }] } }))
        .await;
    assert_eq!(bad["result"]["structuredContent"]["code"], "contract_invalid", "{bad}");

    let pid = world.root().join("pid");
    let script = format!("echo $$ > '{}'; exec sleep 600", pid.display());
    let call = json!({ "name": "verify_run", "arguments": { "cwd": world.project(), "contract": check(&["sh", "-c", &script]) } });
    let id = wire.send("tools/call", call).await;
    let process = loop {
        if let Ok(text) = std::fs::read_to_string(&pid)
            && text.ends_with('\n')
        {
            break text.trim().to_owned();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    wire.line(&note.to_string()).await;
    for _ in 0..200 {
        if !std::path::Path::new(&format!("/proc/{process}")).exists() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the check outlived its call");
}

/// MC-7: cancelling a wait does not cancel the run; a finished run wakes waiters; subscriptions tell of changes.
#[tokio::test(flavor = "multi_thread")]
async fn waits_and_subscriptions_follow_a_run() {
    let world = World::new();
    let kernel = world.kernel().await;
    let mut wire = Wire::real(kernel.clone());
    wire.initialize("2025-11-25").await;
    good("workflow_start", &wire.call("workflow_start", gated(&world, "w")).await);
    until(&kernel, "w", |v| v.gate.is_some()).await;
    let id = wire
        .send("tools/call", json!({ "name": "workflow_status", "arguments": { "runId": "w", "waitMs": 55_000 } }))
        .await;
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    wire.line(&note.to_string()).await;
    assert!(kernel.status("w", StatusQuery::default()).await.unwrap().gate.is_some());

    assert_eq!(wire.request("resources/subscribe", json!({ "uri": "clawo://run/w" })).await["result"], json!({}));
    let mut listener = Wire::real(kernel.clone());
    let filter = json!({ "notifications": { "resourceSubscriptions": ["clawo://run/w", "clawo://docs/contracts"] } });
    listener.send("subscriptions/listen", modern(filter, &json!({}))).await;
    assert_eq!(listener.receive().await["method"], "notifications/subscriptions/acknowledged");
    let waiting = wire
        .send("tools/call", json!({ "name": "workflow_status", "arguments": { "runId": "w", "waitMs": 55_000 } }))
        .await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    kernel.approve("w", true, None).await.unwrap();
    let (mut updated, mut woken) = (false, false);
    while !(updated && woken) {
        let message = wire.receive().await;
        updated |=
            message["method"] == "notifications/resources/updated" && message["params"]["uri"] == "clawo://run/w";
        woken |= message["id"] == waiting;
    }
    let told = listener.receive().await;
    assert_eq!(
        (&told["method"], &told["params"]["uri"]),
        (&json!("notifications/resources/updated"), &json!("clawo://run/w"))
    );
}
