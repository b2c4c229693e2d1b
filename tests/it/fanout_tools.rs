//! Fan-outs through their tools: what is refused, what their status shows, how they are aborted.

use std::time::Duration;

use claw_orchestrator::tools::{CallContext, KernelHandle, Registry};
use serde_json::{Value, json};

use crate::{
    mcp_wire::Wire,
    support::{World, agent, check, git, happens, with},
};

async fn opened(world: &World) -> Wire {
    let mut wire = Wire::with(world.kernel().await, &["fanout", "ultra", "default"]);
    wire.initialize("2025-11-25").await;
    wire
}

/// The structured content of an answer; errors have `ok: false`.
async fn call(wire: &mut Wire, tool: &str, args: Value) -> Value {
    let answer = wire.call(tool, args).await;
    answer["result"]["structuredContent"].clone()
}

/// Waits until the fan-out has ended.
async fn ended(wire: &mut Wire, id: &str) -> Value {
    for _ in 0..60 {
        let status = call(wire, "fanout_status", json!({ "id": id, "waitMs": 20_000 })).await;
        assert_eq!(status["ok"], true, "{status}");
        if status["status"] != "running" {
            return status;
        }
    }
    panic!("the fan-out did not end");
}

fn member(name: &str, model: &str) -> Value {
    json!({ "name": name, "engine": "scripted", "model": model })
}

/// Starts a fan-out and waits for its end.
async fn run(wire: &mut Wire, world: &World, args: Value) -> Value {
    let mut all = json!({ "task": "do it", "projectDir": world.project() });
    all.as_object_mut().unwrap().extend(args.as_object().unwrap().clone());
    let started = call(wire, "fanout_start", all).await;
    assert_eq!(started["ok"], true, "{started}");
    let id = started["id"].as_str().unwrap();
    let parts: Vec<&str> = id.split('-').collect();
    assert!(parts.len() == 3 && parts[0] == "fanout" && parts[2].len() == 8, "{id}");
    ended(wire, id).await
}

fn paths(error: &Value) -> Vec<&str> {
    error["details"]["fields"].as_array().unwrap().iter().map(|f| f["path"].as_str().unwrap()).collect()
}

/// Council scenario 26, first parts: one of three fails, all fail; what a status shows survives the server.
#[tokio::test(flavor = "multi_thread")]
async fn one_failure_is_told_and_all_are_an_error() {
    let world = World::new();
    let good =
        world.scenario("good", json!([{ "times": 0, "steps": [{ "cost": 0.25 }, { "say": "mine is better" }] }]));
    let bad = world.scenario("bad", json!([{ "times": 0, "steps": [{ "fail": "I gave up" }] }]));
    let mut wire = opened(&world).await;
    let agents = json!([member("A", &good), member("B", &bad), member("C", &good)]);
    let status = run(&mut wire, &world, json!({ "agents": agents })).await;
    assert_eq!((&status["status"], &status["error"]), (&json!("done"), &json!("1/3 agent(s) failed")), "{status}");
    assert_eq!((&status["outcome"], &status["agentCount"]), (&json!("unverified"), &json!(3)));
    let names: Vec<&Value> = status["results"].as_array().unwrap().iter().map(|r| &r["agent"]).collect();
    assert_eq!(names, ["A", "B", "C"]);
    let (first, second) = (&status["results"][0], &status["results"][1]);
    assert_eq!((&first["ok"], &first["output"]), (&json!(true), &json!("mine is better")));
    assert_eq!(
        (&first["engine"], &first["model"], &first["costUsd"]),
        (&json!("scripted"), &json!(good), &json!(0.25))
    );
    // What the engine itself reported at the end of the turn decides, not whether the call came back.
    assert_eq!(second["ok"], false, "{second}");
    assert!(second["error"].as_str().unwrap().contains("I gave up"), "{second}");

    let mut other = opened(&world).await;
    let again = call(&mut other, "fanout_status", json!({ "id": status["id"] })).await;
    assert_eq!(again, status);

    let failed = run(&mut wire, &world, json!({ "agents": [member("A", &bad), member("B", &bad)] })).await;
    assert_eq!((&failed["status"], failed["results"].as_array().unwrap().len()), (&json!("error"), 2), "{failed}");
    assert!(failed["error"].as_str().unwrap().contains("I gave up"), "{failed}");
}

/// Council scenario 26, last parts: a synthesis of one success is skipped, one that fails costs only itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_synthesis_is_skipped_or_fails_alone() {
    let world = World::new();
    let good = world.scenario("good", json!([{ "times": 0, "steps": [{ "say": "an answer" }] }]));
    let bad = world.scenario("bad", json!([{ "times": 0, "steps": [{ "fail": "no" }] }]));
    let merges = world.scenario("merges", json!([{ "times": 0, "steps": [{ "say": "both agree" }] }]));
    let mut wire = opened(&world).await;
    for (second, merger, wanted) in
        [(&bad, &merges, "synthesisSkipped"), (&good, &bad, "synthesisError"), (&good, &merges, "synthesis")]
    {
        let args = json!({
            "agents": [member("A", &good), member("B", second)],
            "synthesize": true, "synthesisEngine": "scripted", "synthesisModel": merger,
        });
        let status = run(&mut wire, &world, args).await;
        assert_eq!(status["status"], "done", "{status}");
        for field in ["synthesis", "synthesisError", "synthesisSkipped"] {
            assert_eq!(status[field].is_string(), field == wanted, "{field}: {status}");
        }
    }
    let told = &world.prompts("merges")[0];
    for part in ["do it", "an answer", "scripted"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

/// Council scenario 24 for fan-outs: one answer lists every bad field by the path the caller knows, and nothing is
/// made.
#[tokio::test(flavor = "multi_thread")]
async fn every_bad_field_is_in_one_answer() {
    let world = World::new();
    let mut wire = opened(&world).await;
    let before = world.listing();
    let agents = json!([
        { "name": "a/b", "engine": "nobody" }, { "name": ".." }, { "name": "Synthesis" }, { "name": "A", "effort": "much" },
        { "name": "a", "colour": "red" }, {}, "x", { "name": "ok", "engine": "custom" },
    ]);
    let args = json!({
        "task": "   ", "projectDir": "relative", "agents": agents, "agentTimeoutMs": -1, "maxTurnsPerAgent": 1.5,
        "maxBudgetUsd": 0, "select": "verified", "synthesisEngine": "custom", "contract": {}, "taks": "x",
    });
    let error = call(&mut wire, "fanout_start", args).await;
    assert_eq!(error["code"], "invalid_argument", "{error}");
    let found = paths(&error);
    for path in [
        "task",
        "projectDir",
        "agents[0].name",
        "agents[0].engine",
        "agents[1].name",
        "agents[2].name",
        "agents[3].effort",
        "agents[4].name",
        "agents[4].colour",
        "agents[5].name",
        "agents[6]",
        "agents[7].customEngine",
        "agentTimeoutMs",
        "maxTurnsPerAgent",
        "maxBudgetUsd",
        "select",
        "synthesisEngine",
        "contract.checks",
        "taks",
    ] {
        assert!(found.contains(&path), "{path} not in {found:?}: {error}");
    }
    assert_eq!(found.iter().filter(|p| p.starts_with("nodes")).count(), 0, "{found:?}");
    let many: Vec<Value> = (0..17).map(|n| json!({ "name": format!("n{n}"), "engine": "scripted" })).collect();
    for (agents, path) in [(json!([]), "agents"), (json!(many), "agents")] {
        let args = json!({ "task": "x", "projectDir": world.project(), "agents": agents });
        let error = call(&mut wire, "fanout_start", args).await;
        assert!(paths(&error).contains(&path), "{error}");
    }
    assert_eq!(world.listing(), before);
}

/// Council scenario 29, and the codes of refusals that stand alone.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_their_codes() {
    let world = World::new();
    let mut wire = opened(&world).await;
    let base = json!({ "task": "x", "projectDir": world.project(), "agents": [member("A", "noop")] });
    let required = check(&["true"]);
    let mut optional = required.clone();
    optional["checks"] = json!([{ "id": "c", "required": false, "spec": { "type": "command", "cmd": "true" } }]);
    for (more, code, path) in [
        (json!({ "select": "verified", "isolation": "worktree" }), "invalid_argument", "select"),
        (json!({ "select": "verified", "contract": required }), "invalid_argument", "select"),
        (json!({ "select": "verified", "isolation": "worktree", "contract": optional }), "invalid_argument", "select"),
        (json!({ "contract": { "checks": [{ "type": "magic" }] } }), "contract_invalid", "contract"),
        (json!({ "projectDir": world.root().join("nowhere") }), "path_not_found", "projectDir"),
        (json!({ "projectDir": world.project().join("README") }), "path_not_directory", "projectDir"),
        (json!({ "projectDir": "/etc" }), "path_refused", "projectDir"),
        (
            json!({ "agents": [{ "name": "A", "engine": "custom", "customEngineRef": "gone" }] }),
            "custom_engine_ref_unknown",
            "agents[0].customEngineRef",
        ),
    ] {
        let error = call(&mut wire, "fanout_start", with(base.clone(), more.clone())).await;
        assert_eq!(error["code"], code, "{more}: {error}");
        assert!(paths(&error).iter().any(|found| found.starts_with(path)), "{more}: {error}");
    }
    for (tool, args) in [("fanout_status", json!({ "id": "fanout-x" })), ("fanout_abort", json!({ "id": "fanout-x" }))]
    {
        assert_eq!(call(&mut wire, tool, args).await["code"], "run_not_found");
    }
    let spec = json!({ "name": "work", "nodes": [agent("a", "x", "noop")] });
    call(&mut wire, "workflow_start", json!({ "spec": spec, "cwd": world.project(), "runId": "plain" })).await;
    for tool in ["fanout_status", "fanout_abort", "ultraplan_status", "ultrareview_status"] {
        let error = call(&mut wire, tool, json!({ "id": "plain" })).await;
        assert_eq!(error["code"], "run_wrong_kind", "{error}");
        assert!(error["error"].as_str().unwrap().contains("workflow 'work'"), "{error}");
    }
}

/// Council scenario 24, end: a program is taken from a caller on this machine alone, and no part of its description
/// is on disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_described_program_stays_in_memory() {
    let mut world = World::new();
    let program = json!({
        "name": "mine", "bin": "/bin/sh", "args": ["-c", "cat > /dev/null; echo answered"], "output": "text",
        "env": { "KEY": "canary-value-7" },
    });
    world.env.insert("CLAWO_CUSTOM_ENGINE_MINE".to_owned(), program.to_string());
    let kernel = world.kernel().await;
    let agents = json!([
        { "name": "inline", "engine": "custom", "customEngine": program },
        { "name": "named", "engine": "custom", "customEngineRef": "mine" },
    ]);
    let args = json!({ "task": "go", "projectDir": world.project(), "agents": agents });
    let Value::Object(map) = args.clone() else { panic!("an object") };
    let tools = Registry::full();
    let remote = tools.get("fanout_start").unwrap();
    let refused = remote.call(KernelHandle::ready(kernel.clone()), map, CallContext::default()).await.unwrap_err();
    assert_eq!(refused.code.as_str(), "custom_engine_remote");
    assert!(refused.message.starts_with("agents[0].customEngine"), "{}", refused.message);

    let mut wire = Wire::with(kernel, &["fanout"]);
    wire.initialize("2025-11-25").await;
    let started = call(&mut wire, "fanout_start", args).await;
    let status = ended(&mut wire, started["id"].as_str().unwrap()).await;
    assert_eq!(status["status"], "done", "{status}");
    for result in status["results"].as_array().unwrap() {
        assert_eq!((&result["ok"], result["output"].as_str().unwrap().trim()), (&json!(true), "answered"), "{result}");
    }
    for path in world.listing().iter().filter(|path| path.is_file()) {
        let text = std::fs::read(path).unwrap_or_default();
        let found = text.windows(14).any(|part| part == b"canary-value-7");
        assert!(!found, "{}", path.display());
    }
}

/// Long answers: the end of each by itself, the whole on request; a key means one fan-out.
#[tokio::test(flavor = "multi_thread")]
async fn long_answers_are_cut_and_keys_repeat() {
    let world = World::new();
    let long = format!("{}END", "é".repeat(30_000));
    let model = world.scenario("long", json!([{ "times": 0, "steps": [{ "say": long }] }]));
    let mut wire = opened(&world).await;
    let agents: Vec<Value> = (0..16).map(|n| member(&format!("n{n}"), &model)).collect();
    let args = json!({
        "task": "talk", "projectDir": world.project(), "agents": agents, "idempotencyKey": "once",
    });
    let first = call(&mut wire, "fanout_start", args.clone()).await;
    let id = first["id"].as_str().unwrap();
    assert!(id.starts_with("fanout-"), "{id}");
    let second = call(&mut wire, "fanout_start", args).await;
    assert_eq!((&second["id"], &second["existing"], &first["existing"]), (&json!(id), &json!(true), &json!(false)));
    let status = ended(&mut wire, id).await;
    assert!(status.to_string().len() < 61_000, "{}", status.to_string().len());
    for result in status["results"].as_array().unwrap() {
        assert!(result["truncated"] == true && result["output"].as_str().unwrap().ends_with("END"), "{result}");
    }
    let whole = call(&mut wire, "fanout_status", json!({ "id": id, "full": true })).await;
    assert!(whole["results"].as_array().unwrap().iter().all(|r| r["output"] == long), "the whole texts");
    let few = run(&mut wire, &world, json!({ "agents": [member("A", &model)] })).await;
    assert_eq!(few["results"][0]["output"].as_str().unwrap().chars().count(), 4_000);
}

/// A contract makes the outcome: green is verified, red is an error although every agent is ok.
#[tokio::test(flavor = "multi_thread")]
async fn a_contract_judges_the_shared_work() {
    let world = World::new();
    let model = world.scenario(
        "work",
        json!([{ "times": 0, "steps": [{ "write": { "path": "out", "content": "1\n" } }, { "say": "done" }] }]),
    );
    let mut wire = opened(&world).await;
    for (argv, status, outcome) in [(["true"], "done", "verified"), (["false"], "error", "refuted")] {
        let args = json!({ "agents": [member("A", &model)], "contract": check(&argv) });
        let view = run(&mut wire, &world, args).await;
        assert_eq!((&view["status"], &view["outcome"]), (&json!(status), &json!(outcome)), "{view}");
        assert_eq!(view["results"][0]["ok"], true);
    }
}

/// Council scenario 30, the abort: who waits never starts, who works finishes.
#[tokio::test(flavor = "multi_thread")]
async fn an_abort_lets_those_at_work_finish() {
    let mut world = World::new();
    world.sessions = 1;
    let go = world.root().join("go");
    let begun = world.root().join("begun");
    let play = format!("touch '{}'; while ! test -e '{}'; do sleep 0.05; done", begun.display(), go.display());
    let model = world
        .scenario("slow", json!([{ "times": 0, "steps": [{ "run": ["sh", "-c", play] }, { "say": "finished" }] }]));
    let mut wire = opened(&world).await;
    let agents: Vec<Value> = ["A", "B", "C"].iter().map(|name| member(name, &model)).collect();
    let args = json!({ "task": "go", "projectDir": world.project(), "agents": agents, "synthesize": true,
        "synthesisEngine": "scripted", "synthesisModel": "echo" });
    let started = call(&mut wire, "fanout_start", args).await;
    let id = started["id"].as_str().unwrap().to_owned();
    happens("one agent at work", || begun.exists()).await;
    let aborted = call(&mut wire, "fanout_abort", json!({ "id": id })).await;
    assert_eq!((&aborted["ok"], &aborted["status"]), (&json!(true), &json!("running")), "{aborted}");
    assert_eq!(aborted["stillRunning"].as_array().unwrap().len(), 1, "{aborted}");
    std::fs::write(&go, "").unwrap();
    let status = ended(&mut wire, &id).await;
    assert_eq!(status["status"], "aborted", "{status}");
    assert!(status["synthesis"].is_null(), "{status}");
    let results = status["results"].as_array().unwrap();
    let good: Vec<&Value> = results.iter().filter(|r| r["ok"] == true).collect();
    assert_eq!((good.len(), &good[0]["output"]), (1, &json!("finished")), "{status}");
    for other in results.iter().filter(|r| r["ok"] != true) {
        assert!(other["error"].as_str().unwrap().contains("aborted before start"), "{other}");
    }
    assert_eq!(world.prompts("slow").len(), 1, "who waited was never asked");
    assert_eq!(call(&mut wire, "fanout_abort", json!({ "id": id })).await["code"], "run_terminal");
}

/// Council scenario 30, end: with stopRunning those at work are ended too.
#[tokio::test(flavor = "multi_thread")]
async fn an_abort_can_stop_those_at_work() {
    let world = World::new();
    let begun = world.root().join("begun");
    let model = world.scenario("hangs", json!([{ "times": 0, "steps": [{ "run": ["touch", begun] }, "hang"] }]));
    let mut wire = opened(&world).await;
    let args = json!({ "task": "go", "projectDir": world.project(), "agents": [member("A", &model)] });
    let started = call(&mut wire, "fanout_start", args).await;
    let id = started["id"].as_str().unwrap().to_owned();
    happens("the agent at work", || begun.exists()).await;
    let aborted = call(&mut wire, "fanout_abort", json!({ "id": id, "stopRunning": true })).await;
    assert_eq!((&aborted["status"], &aborted["stillRunning"]), (&json!("aborted"), &json!([])), "{aborted}");
    assert_eq!(ended(&mut wire, &id).await["status"], "aborted");
    tokio::time::timeout(Duration::from_secs(20), async {
        while !crate::support::of_run(&id).is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("its processes have ended");
}

/// An isolated start is refused where no branch could receive the work, before there is a run.
#[tokio::test(flavor = "multi_thread")]
async fn an_isolated_start_needs_a_usable_checkout() {
    let world = World::new();
    let mut wire = opened(&world).await;
    let args =
        json!({ "task": "x", "projectDir": world.project(), "isolation": "worktree", "agents": [member("A", "noop")] });
    world.write("left", "over\n");
    let before = world.listing();
    let error = call(&mut wire, "fanout_start", args.clone()).await;
    assert_eq!(error["code"], "tree_dirty", "{error}");
    assert!(error["error"].as_str().unwrap().contains("left"), "{error}");
    assert_eq!(world.listing(), before);
    std::fs::remove_file(world.project().join("left")).unwrap();
    git(&world.project(), &["checkout", "-q", "--detach"]);
    assert_eq!(call(&mut wire, "fanout_start", args).await["code"], "git_detached_head");
    let bare = World::bare();
    let mut wire = opened(&bare).await;
    let args =
        json!({ "task": "x", "projectDir": bare.project(), "isolation": "worktree", "agents": [member("A", "noop")] });
    assert_eq!(call(&mut wire, "fanout_start", args).await["code"], "git_not_a_repository");
}

/// Council scenario 27 through the tools: the smallest green work is merged, and the status tells of all of them.
#[tokio::test(flavor = "multi_thread")]
async fn the_smallest_green_work_is_merged_and_shown() {
    let world = World::new();
    let writes = |name: &str, lines: usize| {
        let content = "line\n".repeat(lines);
        let steps = json!([{ "write": { "path": "out", "content": content } }, { "say": "done" }]);
        world.scenario(name, json!([{ "times": 0, "steps": steps }]))
    };
    let (long, short, wrong) = (writes("long", 40), writes("short", 12), writes("wrong", 1));
    let mut wire = opened(&world).await;
    let args = json!({
        "agents": [member("A", &long), member("B", &short), member("C", &wrong)],
        "isolation": "worktree", "select": "verified", "contract": check(&["sh", "-c", "test $(wc -l < out) -gt 5"]),
    });
    let status = run(&mut wire, &world, args).await;
    assert_eq!((&status["status"], &status["outcome"]), (&json!("done"), &json!("verified")), "{status}");
    assert_eq!((&status["selection"]["winner"], &status["merge"]["merged"]), (&json!("B"), &json!(true)), "{status}");
    let verified: Vec<&Value> = status["candidates"].as_array().unwrap().iter().map(|c| &c["verified"]).collect();
    assert_eq!(verified, [true, true, false], "{status}");
    assert_eq!(world.read("out").lines().count(), 12);
    assert_eq!(git(&world.project(), &["status", "--porcelain"]), "");
}
