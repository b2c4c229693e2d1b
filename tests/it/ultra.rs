//! Ultraplans and ultrareviews through their tools.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::{
    mcp_wire::Wire,
    support::{World, clawo, git},
};

async fn opened(world: &World) -> Wire {
    let mut wire = Wire::with(world.kernel().await, &["ultra", "fanout"]);
    wire.initialize("2025-11-25").await;
    wire
}

async fn call(wire: &mut Wire, tool: &str, args: Value) -> Value {
    wire.call(tool, args).await["result"]["structuredContent"].clone()
}

async fn ended(wire: &mut Wire, tool: &str, id: &Value) -> Value {
    for _ in 0..60 {
        let status = call(wire, tool, json!({ "id": id, "waitMs": 20_000 })).await;
        assert_eq!(status["ok"], true, "{status}");
        if status["status"] != "running" {
            return status;
        }
    }
    panic!("{id} did not end");
}

fn paths(error: &Value) -> Vec<&str> {
    error["details"]["fields"].as_array().unwrap().iter().map(|f| f["path"].as_str().unwrap()).collect()
}

/// A scenario without a record of its prompts, which a confined agent could not write.
fn scenario(world: &World, name: &str, turns: &Value) -> String {
    let path = world.root().join(format!("{name}.json"));
    std::fs::write(&path, json!({ "turns": turns }).to_string()).unwrap();
    path.to_string_lossy().into_owned()
}

/// The engine claude is played by this scenario; the arguments of its program are kept beside it.
fn claude_plays(world: &mut World, name: &str, turns: Value) {
    let scenario = world.scenario(name, turns);
    let seen = world.root().join(format!("{name}.args"));
    let keep = format!("printf '%s\\n' \"$@\" > '{}'", seen.display());
    stand_in(world, &keep, &scenario);
}

/// A program for the engine claude that does this first and then plays a scenario.
fn stand_in(world: &mut World, first: &str, scenario: &str) {
    let program = world.root().join("claude");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo 2.1.197; exit; }}\n{first}\nexec '{}' agent-script '{scenario}'\n",
        clawo().display(),
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    world.bins.insert("claude".to_owned(), program);
}

/// Council scenario 32: a long plan comes back whole after a restart, with the rules its agent worked under.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_plan_is_whole_after_a_restart() {
    let mut world = World::new();
    let plan = format!("# Plan\n\n{}the end", "- a step with é\n".repeat(4_000));
    assert!(plan.len() > 60_000);
    claude_plays(&mut world, "planner", json!([{ "times": 0, "steps": [{ "say": plan }] }]));
    let mut wire = opened(&world).await;
    let started =
        call(&mut wire, "ultraplan_start", json!({ "task": "  plan the move  ", "cwd": world.project() })).await;
    assert_eq!(started["ok"], true, "{started}");
    let id = started["id"].as_str().unwrap();
    assert!(id.starts_with("ultraplan-") && started["sessionName"] == format!("{id}-main-a1"), "{started}");
    ended(&mut wire, "ultraplan_status", &started["id"]).await;
    drop(wire);
    let mut wire = opened(&world).await;
    let status = call(&mut wire, "ultraplan_status", json!({ "id": id })).await;
    assert_eq!((&status["status"], &status["treeChanged"]), (&json!("completed"), &json!(false)), "{status:.300}");
    assert_eq!(status["plan"].as_str().unwrap().trim_end(), plan);
    assert!(status["endTime"].is_string() && status.get("error").is_none());
    assert_eq!(world.prompts("planner")[0].trim(), "plan the move");
    let args = std::fs::read_to_string(world.root().join("planner.args")).unwrap();
    let words: Vec<&str> = args.lines().collect();
    for pair in [["--permission-mode", "plan"], ["--model", "opus"], ["--effort", "max"]] {
        assert!(words.windows(2).any(|w| w == pair), "{pair:?}: {args}");
    }
    assert!(args.contains("Write no code"), "{args}");
}

/// Council scenario 32: an engine's complaint is an error, a plan about errors is a plan.
#[tokio::test(flavor = "multi_thread")]
async fn complaints_are_errors_and_plans_about_errors_are_plans() {
    let strategy = format!("Error handling strategy\n\n{}", "Retry, then report. ".repeat(250));
    for (reply, status) in [("Error: not logged in", "error"), ("  ", "error"), (strategy.as_str(), "completed")] {
        let mut world = World::bare();
        claude_plays(&mut world, "planner", json!([{ "times": 0, "steps": [{ "say": reply }] }]));
        let mut wire = opened(&world).await;
        let started = call(&mut wire, "ultraplan_start", json!({ "task": "think", "cwd": world.project() })).await;
        let view = ended(&mut wire, "ultraplan_status", &started["id"]).await;
        assert_eq!(view["status"], status, "{reply:.30}: {view:.500}");
        assert_eq!(view["plan"].is_string(), status == "completed");
        assert_eq!(view["error"].is_string(), status == "error");
        assert!(view.get("treeChanged").is_none(), "outside a repository nothing is known");
    }
}

/// A planner that writes or commits is told on.
#[tokio::test(flavor = "multi_thread")]
async fn a_planner_that_changes_the_checkout_is_told_on() {
    for act in [
        json!({ "write": { "path": "sneaky", "content": "x" } }),
        json!({ "run": ["git", "-c", "user.name=A", "-c", "user.email=a@b.invalid", "commit", "-q", "--allow-empty", "-m", "x"] }),
    ] {
        let mut world = World::new();
        claude_plays(&mut world, "planner", json!([{ "times": 0, "steps": [act, { "say": "a plan" }] }]));
        let mut wire = opened(&world).await;
        let started = call(&mut wire, "ultraplan_start", json!({ "task": "think", "cwd": world.project() })).await;
        let view = ended(&mut wire, "ultraplan_status", &started["id"]).await;
        assert_eq!((&view["status"], &view["treeChanged"]), (&json!("completed"), &json!(true)), "{act}: {view}");
        assert!(view["warnings"][0].as_str().unwrap().contains("checkout changed"), "{view}");
    }
}

/// What a user does after the end is not the agent's doing.
#[tokio::test(flavor = "multi_thread")]
async fn later_changes_are_not_the_planners() {
    let mut world = World::new();
    claude_plays(&mut world, "planner", json!([{ "times": 0, "steps": [{ "say": "a plan" }] }]));
    let mut wire = opened(&world).await;
    let started = call(&mut wire, "ultraplan_start", json!({ "task": "think", "cwd": world.project() })).await;
    ended(&mut wire, "ultraplan_status", &started["id"]).await;
    world.write("mine", "x\n");
    git(&world.project(), &["add", "-A"]);
    git(&world.project(), &["commit", "-q", "-m", "mine"]);
    let view = call(&mut wire, "ultraplan_status", json!({ "id": started["id"] })).await;
    assert_eq!(view["treeChanged"], false, "{view}");
}

/// Bad arguments of both, all in one answer each.
#[tokio::test(flavor = "multi_thread")]
async fn bad_plans_are_refused_with_every_field() {
    let mut world = World::new();
    claude_plays(&mut world, "planner", json!([{ "times": 0, "steps": [{ "say": "a plan" }] }]));
    let mut wire = opened(&world).await;
    let before = world.listing();
    let error = call(&mut wire, "ultraplan_start", json!({ "task": "  abc ", "cwd": "x", "timeout": 9_999 })).await;
    assert_eq!(
        (&error["code"], paths(&error)),
        (&json!("invalid_argument"), vec!["timeout", "task", "cwd"]),
        "{error}"
    );
    let gone = json!({ "task": "think", "cwd": world.root().join("gone") });
    assert_eq!(call(&mut wire, "ultraplan_start", gone).await["code"], "path_not_found");
    assert_eq!(world.listing(), before);
    world.bins.insert("claude".to_owned(), "/nowhere/claude".into());
    let mut wire = opened(&world).await;
    let error = call(&mut wire, "ultraplan_start", json!({ "task": "think", "cwd": world.project() })).await;
    assert_eq!(error["code"], "engine_unavailable", "{error}");
}

/// Council scenario 31: what an ultrareview refuses.
#[tokio::test(flavor = "multi_thread")]
async fn reviews_have_bounds_and_engines_that_can_be_held() {
    let world = World::new();
    let mut wire = opened(&world).await;
    let before = world.listing();
    for (more, code, path) in [
        (json!({ "agentCount": 0 }), "invalid_argument", "agentCount"),
        (json!({ "agentCount": 21 }), "invalid_argument", "agentCount"),
        (json!({ "agentCount": 5.5 }), "invalid_argument", "agentCount"),
        (json!({ "maxDurationMinutes": 4 }), "invalid_argument", "maxDurationMinutes"),
        (json!({ "maxDurationMinutes": 26 }), "invalid_argument", "maxDurationMinutes"),
        (json!({ "focus": "x".repeat(4_001) }), "invalid_argument", "focus"),
        (json!({ "engines": ["acp"] }), "engine_not_read_only", "engines[0]"),
        (json!({ "engines": ["scripted", "custom"] }), "engine_not_read_only", "engines[1]"),
        (json!({ "engines": ["nobody"] }), "invalid_argument", "engines[0]"),
    ] {
        let mut args = json!({ "cwd": world.project(), "engines": ["scripted"], "model": "noop" });
        args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let error = call(&mut wire, "ultrareview_start", args).await;
        assert_eq!((&error["code"], paths(&error)), (&json!(code), vec![path]), "{more}: {error}");
    }
    assert_eq!(world.listing(), before);
}

/// Council scenario 31: reviewers are merged, the findings survive a restart, and its id is a fan-out's too.
#[tokio::test(flavor = "multi_thread")]
async fn findings_survive_a_restart() {
    let world = World::new();
    let model = scenario(
        &world,
        "review",
        &json!([
            { "match": "## Reports", "times": 0, "steps": [{ "say": "merged findings" }] },
            { "match": "crypto", "times": 0, "steps": [{ "fail": "no time" }] },
            { "match": "only the parser", "times": 0, "steps": [{ "say": "a finding" }] },
        ]),
    );
    let mut wire = opened(&world).await;
    let args = json!({
        "cwd": world.project(), "agentCount": 20, "engines": ["scripted"], "model": model, "focus": "only the parser",
    });
    let started = call(&mut wire, "ultrareview_start", args).await;
    assert_eq!(started["ok"], true, "{started}");
    let id = &started["id"];
    assert!(id.as_str().unwrap().starts_with("ultrareview-") && started["councilId"] == *id, "{started}");
    ended(&mut wire, "ultrareview_status", id).await;
    drop(wire);
    let mut wire = opened(&world).await;
    let status = call(&mut wire, "ultrareview_status", json!({ "id": id })).await;
    assert_eq!((&status["status"], &status["findings"]), (&json!("completed"), &json!("merged findings")), "{status}");
    assert_eq!((&status["agentCount"], &status["treeChanged"]), (&json!(20), &json!(false)));
    let reviewers = status["reviewers"].as_array().unwrap();
    assert_eq!((reviewers.len(), &reviewers[0]["name"]), (20, &json!("SecurityReviewer")), "{status}");
    let bad: Vec<&Value> = reviewers.iter().filter(|r| r["ok"] == false).map(|r| &r["name"]).collect();
    assert_eq!(bad, ["CryptoReviewer"], "{status}");
    let fan = call(&mut wire, "fanout_status", json!({ "id": id })).await;
    assert_eq!((&fan["status"], &fan["error"]), (&json!("done"), &json!("1/20 agent(s) failed")), "{fan}");
    assert_eq!(call(&mut wire, "ultraplan_status", json!({ "id": id })).await["code"], "run_wrong_kind");
}

/// Council scenario 31: engines take turns, and a reviewer that tries to write cannot.
#[tokio::test(flavor = "multi_thread")]
async fn engines_alternate_and_reviewers_cannot_write() {
    let mut world = World::new();
    let looks = scenario(&world, "looks", &json!([{ "times": 0, "steps": [{ "say": "seen by claude" }] }]));
    stand_in(&mut world, ":", &looks);
    let sneaky = scenario(
        &world,
        "sneaky",
        &json!([
            { "match": "## Reports", "times": 0, "steps": [{ "say": "merged" }] },
            { "times": 0, "steps": [{ "write": { "path": "sneaky", "content": "x" } }, { "say": "seen" }] },
        ]),
    );
    let mut wire = opened(&world).await;
    let args = json!({ "cwd": world.project(), "agentCount": 7, "engines": ["scripted", "claude"], "model": sneaky });
    let started = call(&mut wire, "ultrareview_start", args).await;
    assert_eq!(started["ok"], true, "{started}");
    let status = ended(&mut wire, "ultrareview_status", &started["id"]).await;
    let engines: Vec<&str> =
        status["reviewers"].as_array().unwrap().iter().map(|r| r["engine"].as_str().unwrap()).collect();
    assert_eq!(engines, ["scripted", "claude", "scripted", "claude", "scripted", "claude", "scripted"], "{status}");
    assert!(!world.project().join("sneaky").exists());
    assert_eq!(status["treeChanged"], false, "{status}");
    for reviewer in status["reviewers"].as_array().unwrap() {
        assert_eq!(reviewer["ok"], reviewer["engine"] == "claude", "what was written is told on: {status}");
    }
}

/// No reviewer succeeded: an error; only one did: its review is the finding.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_review_there_is_an_error() {
    let world = World::new();
    let model = scenario(
        &world,
        "few",
        &json!([
            { "match": "an attacker", "times": 0, "steps": [{ "say": "one hole" }] },
            { "times": 0, "steps": [{ "fail": "no time" }] },
        ]),
    );
    let none = scenario(&world, "none", &json!([{ "times": 0, "steps": [{ "fail": "no time" }] }]));
    let mut wire = opened(&world).await;
    for (model, status) in [(&model, "completed"), (&none, "error")] {
        let args = json!({ "cwd": world.project(), "agentCount": 3, "engines": ["scripted"], "model": model });
        let started = call(&mut wire, "ultrareview_start", args).await;
        let view = ended(&mut wire, "ultrareview_status", &started["id"]).await;
        assert_eq!(view["status"], status, "{view}");
        match status {
            "completed" => assert!(view["findings"].as_str().unwrap().contains("one hole"), "{view}"),
            _ => assert!(view.get("findings").is_none() && view["error"].is_string(), "{view}"),
        }
    }
}
