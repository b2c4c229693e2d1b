//! The tools of Codex threads, over MCP: on the real program, where `CLAWO_TEST_CODEX` names it, and on another engine.

use std::time::Duration;

use serde_json::{Value, json};

use super::support::echo;
use crate::{
    mcp_wire::Wire,
    support::{
        World, happens,
        openai::{OpenAi, with_codex},
    },
};

async fn wire(world: &World) -> Wire {
    let mut wire = Wire::with(world.kernel().await, &["session", "codex"]);
    wire.initialize("2025-11-25").await;
    wire
}

/// A session `c` on codex-app, whose model plays `turns`; `None` with the reason printed when there is no program.
async fn codex(turns: Value) -> Option<(World, OpenAi, Wire)> {
    let mut world = World::new();
    let model = OpenAi::start(world.root(), &json!({ "turns": turns }));
    if !with_codex(&mut world, model.port) {
        return None;
    }
    let temporary = world.root().join("user/tmp");
    std::fs::create_dir_all(&temporary).unwrap();
    world.env.insert("TMPDIR".to_owned(), temporary.to_string_lossy().into_owned());
    let mut wire = wire(&world).await;
    good(&mut wire, "session_start", json!({ "name": "c", "engine": "codex-app", "cwd": world.project() })).await;
    Some((world, model, wire))
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

async fn said(wire: &mut Wire, message: &str) -> Value {
    let turn = good(wire, "session_send", json!({ "name": "c", "message": message })).await;
    assert_eq!(turn["ok"], true, "{turn}");
    turn["output"].clone()
}

/// Sends in the background and waits until the agent has made `file`.
async fn begun(wire: &mut Wire, world: &World, message: &str, file: &str) -> Value {
    let args = json!({ "name": "c", "message": message, "background": true });
    let turn = good(wire, "session_send", args).await["turnId"].clone();
    happens("the agent works", || world.project().join(file).exists()).await;
    turn
}

async fn ended(wire: &mut Wire, turn: &Value) -> Value {
    let status = good(wire, "session_status", json!({ "name": "c", "turnId": turn, "waitMs": 20_000 })).await;
    status["turn"].clone()
}

/// Surfaces 5.6: a turn is interrupted and another one steered.
#[tokio::test(flavor = "multi_thread")]
async fn turns_are_interrupted_and_steered() {
    let turns = json!([
        { "match": "wait", "tools": [{ "sh": "touch begun; sleep 300" }] },
        { "match": "hold", "tools": [{ "sh": "touch held; while [ ! -e go ]; do sleep 0.05; done" }] },
        { "match": "use tabs", "text": "With tabs." }, { "text": "nobody said so" },
    ]);
    let Some((world, _model, mut wire)) = codex(turns).await else { return };
    let w = &mut wire;
    let turn = begun(w, &world, "wait", "begun").await;
    assert_eq!(good(w, "codex_interrupt", json!({ "name": "c" })).await["interrupted"], true);
    let end = ended(w, &turn).await;
    assert!(end["state"] == "failed" && end.to_string().contains("interrupted"), "{end}");

    let turn = begun(w, &world, "hold", "held").await;
    assert_eq!(good(w, "codex_steer", json!({ "name": "c", "text": "use tabs" })).await["steered"], true);
    // The program has the text; its model is asked only after the command.
    tokio::time::sleep(Duration::from_millis(300)).await;
    world.write("go", "");
    let end = ended(w, &turn).await;
    assert_eq!(end["result"]["output"], "With tabs.", "{end}");
    assert_eq!(code(w, "codex_steer", json!({ "name": "c", "text": "more" })).await, "invalid_argument");
    assert_eq!(good(w, "codex_interrupt", json!({ "name": "c" })).await["interrupted"], false);
}

/// Surfaces 5.6: a goal is set, paused, resumed until the agent calls it complete, and cleared.
#[tokio::test(flavor = "multi_thread")]
async fn a_goal_over_its_tools() {
    let turns = json!([
        { "match": "objective", "tools": [{ "sh": "touch begun; while [ ! -e go ]; do sleep 0.05; done" }] },
        { "match": "objective", "text": "Half of it." },
        { "match": "objective", "tools": [{ "name": "update_goal", "args": { "status": "complete" } }] },
        { "match": "objective", "text": "Reached." },
    ]);
    let Some((world, model, mut wire)) = codex(turns).await else { return };
    let w = &mut wire;
    let name = || json!({ "name": "c" });
    let none = good(w, "codex_goal_get", name()).await;
    assert!(none["active"] == false && none.get("goal").is_none(), "{none}");
    let set = good(w, "codex_goal_set", json!({ "name": "c", "objective": "Be done", "tokenBudget": 5000 })).await;
    assert!(set["active"] == true && set["goal"]["objective"] == "Be done", "{set}");
    happens("the agent works", || world.project().join("begun").exists()).await;
    let held = good(w, "codex_goal_pause", name()).await;
    assert!(held["active"] == false && held["goal"]["status"] == "paused", "{held}");
    world.write("go", "");
    happens("the turn ends", || model.calls().len() == 2).await;
    let held = good(w, "codex_goal_get", name()).await;
    assert_eq!(held["goal"]["status"], "paused", "{held}");
    assert_eq!(good(w, "codex_goal_resume", name()).await["active"], true);
    let mut goal = Value::Null;
    for _ in 0..400 {
        goal = good(w, "codex_goal_get", name()).await;
        if goal["goal"]["status"] == "complete" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(goal["goal"]["status"], "complete", "{goal}");
    happens("the last turn ends", || model.calls().len() == 4).await;
    assert_eq!(good(w, "codex_goal_clear", name()).await["cleared"], true);
    assert_eq!(good(w, "codex_goal_clear", name()).await["cleared"], false);
    assert!(good(w, "codex_goal_get", name()).await.get("goal").is_none());
}

/// Surfaces 5.6: branches, dropped turns, models, stored threads, a review, and one message to a stored thread.
#[tokio::test(flavor = "multi_thread")]
async fn threads_over_their_tools() {
    let turns = json!([
        { "text": "One." }, { "text": "Two." }, { "text": "Three." },
        { "match": "branch", "text": "On the branch." }, { "match": "after", "text": "After." },
        { "match": "changes", "text": "Looks right." },
    ]);
    let Some((_world, model, mut wire)) = codex(turns).await else { return };
    let w = &mut wire;
    for (text, reply) in [("first", "One."), ("second", "Two."), ("third", "Three.")] {
        assert_eq!(said(w, text).await, reply);
    }
    let branch = good(w, "codex_fork", json!({ "name": "c" })).await;
    assert_ne!(branch["threadId"], branch["forkedFrom"], "{branch}");
    let args = json!({ "threadId": branch["threadId"], "message": "branch" });
    let turn = good(w, "codex_resume", args).await;
    assert_eq!((&turn["output"], &turn["sessionId"]), (&json!("On the branch."), &branch["threadId"]), "{turn}");
    assert!(model.calls().last().unwrap()["body"].to_string().contains("Three."), "the thread is remembered");
    let listed = good(w, "session_list", json!({})).await["sessions"].clone();
    let of_it = listed.as_array().unwrap().iter().find(|s| s["name"] == turn["name"]).unwrap();
    assert!(of_it["live"] == false && of_it["state"] == "stopped", "{listed}");
    let args = json!({ "threadId": "00000000-0000-7000-8000-000000000000", "message": "x" });
    assert_eq!(code(w, "codex_resume", args).await, "nothing_to_resume");

    assert_eq!(good(w, "codex_rollback", json!({ "name": "c", "turns": 2 })).await["dropped"], 2);
    assert_eq!(code(w, "codex_rollback", json!({ "name": "c", "turns": 9 })).await, "engine_failed");
    assert_eq!(said(w, "after").await, "After.");
    let seen = model.calls().last().unwrap()["body"].to_string();
    assert!(seen.contains("One.") && !seen.contains("Two.") && !seen.contains("branch"), "{seen}");

    let models = good(w, "codex_models", json!({ "name": "c" })).await;
    assert_eq!(models["models"][0]["efforts"], json!(["low", "medium", "high", "xhigh"]), "{models}");
    let page = good(w, "codex_thread_list", json!({ "name": "c", "limit": 1 })).await;
    let next = json!({ "name": "c", "limit": 1, "cursor": page["nextCursor"] });
    let other = good(w, "codex_thread_list", next).await;
    assert!(page["threads"][0]["threadId"].is_string() && other["threads"][0]["threadId"].is_string());
    assert_ne!(page["threads"][0]["threadId"], other["threads"][0]["threadId"], "{page} {other}");

    let review = good(w, "codex_review", json!({ "name": "c", "uncommitted": true })).await;
    assert!(review["review"] == "Looks right." && review["tokensOut"].as_u64() > Some(0), "{review}");
    for scope in [json!({ "name": "c" }), json!({ "name": "c", "base": "main", "commit": "abc" })] {
        assert_eq!(code(w, "codex_review", scope).await, "invalid_argument");
    }
}

/// Surfaces 5.6: a session of another engine is refused by every one of them.
#[tokio::test(flavor = "multi_thread")]
async fn another_engine_is_the_wrong_one() {
    let world = World::new();
    let model = echo(&world);
    let mut wire = wire(&world).await;
    let w = &mut wire;
    let args = json!({ "name": "a", "engine": "scripted", "model": model, "cwd": world.project() });
    good(w, "session_start", args).await;
    for (tool, more) in [
        ("codex_fork", json!({})),
        ("codex_goal_clear", json!({})),
        ("codex_goal_get", json!({})),
        ("codex_goal_pause", json!({})),
        ("codex_goal_resume", json!({})),
        ("codex_goal_set", json!({ "objective": "x" })),
        ("codex_interrupt", json!({})),
        ("codex_models", json!({})),
        ("codex_review", json!({ "uncommitted": true })),
        ("codex_rollback", json!({})),
        ("codex_steer", json!({ "text": "x" })),
        ("codex_thread_list", json!({})),
    ] {
        let args = |name: &str| crate::support::with(json!({ "name": name }), more.clone());
        assert_eq!(code(w, tool, args("a")).await, "wrong_engine", "{tool}");
        assert_eq!(code(w, tool, args("nobody")).await, "session_not_found", "{tool}");
    }
    let still = good(w, "session_send", json!({ "name": "a", "message": "hi" })).await;
    assert_eq!(still["output"], "you said hi");
}
