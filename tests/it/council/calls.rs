//! The council tools as a caller meets them: bad input, refusals, status, messages, ends.

use claw_orchestrator::{
    kernel::{Error, Kernel},
    model::Code,
    tools::{CallContext, KernelHandle, Registry, outcome::RESULT_MAX},
};
use serde_json::{Value, json};

use super::{ABC, Ended, always, member, round, sh, spec, then, vote, worker};
use crate::support::{World, git, happens, until};

/// Calls a tool as a host on this machine, or as one over HTTP.
async fn call_from(kernel: &Kernel, tool: &str, args: Value, local: bool) -> Result<Value, Error> {
    let registry = Registry::full();
    let tool = registry.get(tool).unwrap();
    let context = CallContext { local, ..CallContext::default() };
    let Value::Object(args) = args else { panic!("an object") };
    let result = tool.call(KernelHandle::ready(kernel.clone()), args, context).await?;
    assert!(!result.text.is_empty());
    let structured = Value::Object(result.structured);
    let misfit = crate::support::schema::misfit(&Value::Object(tool.output.clone()), &structured, "");
    assert_eq!(misfit, None);
    Ok(structured)
}

async fn call(kernel: &Kernel, tool: &str, args: Value) -> Result<Value, Error> {
    call_from(kernel, tool, args, true).await
}

async fn code(kernel: &Kernel, tool: &str, args: Value) -> Code {
    call(kernel, tool, args).await.unwrap_err().code
}

fn two(world: &World) -> Value {
    json!([worker(world, "A"), worker(world, "B")])
}

/// Council scenario 24: one answer lists every path, and nothing was made.
#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_told_all_at_once() {
    let world = World::new();
    let kernel = world.kernel().await;
    let before = world.listing();
    let named = |names: &[&str]| names.iter().map(|name| json!({ "name": name })).collect::<Vec<_>>();
    let mut many = named(&["a/b", "..", "Integration", "A", "a"]);
    many.extend((0..12).map(|i| json!({ "name": format!("m{i}"), "effort": "huge", "customEngine": 3 })));
    let args = json!({
        "task": "  ab ", "projectDir": world.project(), "agents": many, "maxRounds": 1.5, "agentTimeoutMs": -1,
        "maxTurnsPerAgent": 501, "defaultPermissionMode": "never", "maxBudgetUsd": "much", "rounds": 2,
        "contract": { "checks": [] },
    });
    let error = call(&kernel, "council_start", args).await.unwrap_err();
    assert_eq!(error.code, Code::InvalidArgument);
    for path in [
        "task:",
        "agents:",
        "agents[0].name:",
        "agents[1].name:",
        "agents[2].name:",
        "agents[4].name:",
        "agents[5].effort:",
        "maxRounds:",
        "agentTimeoutMs:",
        "maxTurnsPerAgent:",
        "defaultPermissionMode:",
        "maxBudgetUsd:",
        "rounds:",
        "contract",
    ] {
        assert!(error.message.contains(path), "{path} not in {}", error.message);
    }
    assert!(!error.message.contains("agents[3].name"), "{}", error.message);
    for (field, value) in
        [("maxRounds", json!(0)), ("maxRounds", json!(51)), ("agents", json!([])), ("projectDir", json!("rel"))]
    {
        let mut args = json!({ "task": "do it well", "projectDir": world.project() });
        args[field] = value;
        let error = call(&kernel, "council_start", args).await.unwrap_err();
        assert!(error.code == Code::InvalidArgument && error.message.starts_with(field), "{error}");
    }
    let error = call(&kernel, "council_start", json!({})).await.unwrap_err();
    assert!(error.message.contains("task:") && error.message.contains("projectDir:"), "{error}");
    let gone = json!({ "task": "do it well", "projectDir": world.root().join("nowhere") });
    assert_eq!(code(&kernel, "council_start", gone).await, Code::PathNotFound);
    let unchecked = json!({ "task": "do it well", "projectDir": world.project(), "contract": { "checks": [] } });
    assert_eq!(code(&kernel, "council_start", unchecked).await, Code::ContractInvalid);
    assert_eq!(world.listing(), before);
}

/// Council scenario 24: programs come from this machine or from the server's environment, and leave no trace.
#[tokio::test(flavor = "multi_thread")]
async fn programs_of_members_are_not_written_down() {
    let mut world = World::new();
    let script = "printf '%s\\n' 'done, and everything was looked at. [CONSENSUS: YES]' | head -c 2000; true";
    let engine = json!({ "name": "mine", "bin": "sh", "args": ["-c", script], "output": "text", "env": { "K": "c4nary-value" } });
    world.env.insert("CLAWO_CUSTOM_ENGINE_MINE".to_owned(), engine.to_string());
    world.env.insert("CLAWO_CUSTOM_ENGINE_BAD".to_owned(), "{".to_owned());
    let kernel = world.kernel().await;
    let start = |agent: Value| json!({ "task": "do it well", "projectDir": world.project(), "agents": [agent], "maxRounds": 1 });
    let inline = start(json!({ "name": "A", "engine": "custom", "customEngine": engine }));
    let error = call_from(&kernel, "council_start", inline.clone(), false).await.unwrap_err();
    assert!(error.code == Code::CustomEngineRemote && error.message.contains("agents[0].customEngine"), "{error}");
    for (reference, wanted) in [("none", Code::CustomEngineRefUnknown), ("bad", Code::CustomEngineRefInvalid)] {
        let args = start(json!({ "name": "A", "engine": "custom", "customEngineRef": reference }));
        assert_eq!(code(&kernel, "council_start", args).await, wanted);
    }
    let bare = start(json!({ "name": "A", "engine": "custom" }));
    assert!(call(&kernel, "council_start", bare).await.unwrap_err().message.contains("agents[0].customEngine:"));
    for args in [inline, start(json!({ "name": "A", "customEngineRef": "mine" }))] {
        let started = call(&kernel, "council_start", args).await.unwrap();
        let run = started["runId"].as_str().unwrap();
        crate::support::finished(&kernel, run).await;
        let view = call(&kernel, "council_status", json!({ "id": run })).await.unwrap();
        assert!(view["responses"][0]["content"].as_str().unwrap().contains("looked at"), "{view:#}");
    }
    for path in world.listing().into_iter().filter(|path| path.is_file()) {
        let bytes = std::fs::read(&path).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("c4nary-value"), "{}", path.display());
    }
}

/// Council scenarios 5 and 6: a directory that cannot carry a council is refused before anything exists.
#[tokio::test(flavor = "multi_thread")]
async fn unfit_directories_are_refused_before_anything_is_made() {
    let world = World::new();
    let kernel = world.kernel().await;
    let dir = world.project();
    let made = |name: &str, args: &[&str]| {
        let path = world.root().join(name);
        std::fs::create_dir(&path).unwrap();
        if !args.is_empty() {
            git(&path, args);
        }
        path
    };
    let start = |dir: &std::path::Path| json!({ "task": "do it well", "projectDir": dir, "agents": [{ "name": "A", "model": "noop" }] });
    let cases = [
        (made("plain", &[]), Code::GitNotARepository),
        (made("bare", &["init", "-q", "--bare"]), Code::GitBareRepository),
        (made("empty", &["init", "-q"]), Code::GitNoCommits),
    ];
    for (path, wanted) in cases {
        assert_eq!(code(&kernel, "council_start", start(&path)).await, wanted, "{}", path.display());
    }
    git(&dir, &["checkout", "-q", "--detach"]);
    assert_eq!(code(&kernel, "council_start", start(&dir)).await, Code::GitDetachedHead);
    git(&dir, &["checkout", "-q", "main"]);
    world.write("README", "changed\n");
    for i in 0..25 {
        world.write(&format!("new {i}.txt"), "x");
    }
    let error = call(&kernel, "council_start", start(&dir)).await.unwrap_err();
    assert!(
        error.code == Code::TreeDirty && error.message.contains("26") && error.message.contains("and 6 more"),
        "{error}"
    );
    assert!(!dir.join(".worktrees").exists());
    assert_eq!(git(&dir, &["for-each-ref", "--format=%(refname)"]).trim(), "refs/heads/main");
    assert!(!std::fs::read_to_string(dir.join(".git/info/exclude")).unwrap_or_default().contains(".worktrees"));
    assert_eq!(call(&kernel, "workflow_list", json!({})).await.unwrap()["runs"], json!([]));
    let mut args = start(&dir);
    args["allowDirty"] = json!(true);
    args["agents"] = json!([worker(&world, "A")]);
    let started = call(&kernel, "council_start", args).await.unwrap();
    assert!(started["warnings"][0].as_str().unwrap().contains("not visible"), "{started:#}");
    let id = started["id"].as_str().unwrap();
    crate::support::finished(&kernel, id).await;
    assert_eq!(code(&kernel, "council_accept", json!({ "id": id })).await, Code::TreeDirty);
    git(&dir, &["stash", "-q", "-u"]);
    assert_eq!(call(&kernel, "council_accept", json!({ "id": id })).await.unwrap()["merged"], true);
}

/// A council through its tools: id, key, waits, replies, and what an id can be.
#[tokio::test(flavor = "multi_thread")]
async fn a_council_is_followed_by_its_id() {
    let world = World::new();
    let kernel = world.kernel().await;
    let args = json!({ "task": "do it well", "projectDir": world.project(), "agents": two(&world), "maxRounds": "3", "idempotencyKey": "k" });
    let started = call(&kernel, "council_start", args.clone()).await.unwrap();
    let id = started["id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("council-") && id.rsplit('-').next().unwrap().len() == 8, "{id}");
    let again = call(&kernel, "council_start", args).await.unwrap();
    assert_eq!((again["id"].as_str(), &again["existing"]), (Some(id.as_str()), &json!(true)));
    loop {
        let view = call(&kernel, "council_status", json!({ "id": id, "waitMs": 20_000 })).await.unwrap();
        if view["status"] != "running" && !view["outcome"].is_null() {
            assert_eq!((view["status"].as_str(), view["round"].as_u64()), (Some("consensus"), Some(2)), "{view:#}");
            assert_eq!(view["shortId"].as_str(), id.rsplit('-').next());
            assert_eq!(
                view["consensusVotes"][0],
                json!({ "agent": "A", "round": 1, "vote": "NO", "source": "strict" })
            );
            assert_eq!(
                (&view["responses"][2]["merge"]["status"], &view["outcome"]),
                (&json!("merged"), &json!("unverified"))
            );
            assert!(!view["finalSummary"].as_str().unwrap().contains("[CONSENSUS"));
            break;
        }
    }
    let second = call(&kernel, "council_status", json!({ "id": id, "round": 2, "full": true })).await.unwrap();
    assert_eq!(second["responses"].as_array().unwrap().len(), 2);
    for tool in ["council_status", "council_abort", "council_review", "council_accept"] {
        assert_eq!(code(&kernel, tool, json!({ "id": "nobody-here" })).await, Code::RunNotFound);
        assert_eq!(code(&kernel, tool, json!({ "id": "../x" })).await, Code::InvalidArgument);
    }
    let plain = world.run(&kernel, json!({ "name": "w", "nodes": [crate::support::agent("a", "p", "noop")] })).await;
    let error = call(&kernel, "council_status", json!({ "id": plain.run_id })).await.unwrap_err();
    assert!(error.code == Code::RunWrongKind && error.message.contains("workflow 'w'"), "{error}");
    assert_eq!(code(&kernel, "council_abort", json!({ "id": id })).await, Code::RunTerminal);
    assert_eq!(code(&kernel, "council_inject", json!({ "id": id, "message": "late" })).await, Code::RunTerminal);
}

/// Several councils in one run have ids of their own, and the run's is ambiguous.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_with_two_councils_names_them() {
    let world = World::new();
    let node = |id: &str| json!({ "id": id, "kind": "council", "task": "do it well", "agents": [worker(&world, "A")] });
    let ended = Ended::after(
        &world.kernel().await,
        world
            .kernel()
            .await
            .start(world.start(json!({ "name": "w", "nodes": [node("main"), node("more")] })))
            .await
            .unwrap()
            .run_id
            .as_str(),
    )
    .await;
    let (run, kernel) = (ended.view.run_id.to_string(), &ended.kernel);
    let error = call(kernel, "council_status", json!({ "id": run })).await.unwrap_err();
    assert_eq!(error.code, Code::AmbiguousCouncil);
    let ids = error.details.unwrap()["ids"].clone();
    assert_eq!(ids, json!([format!("{run}-main"), format!("{run}-more")]));
    for id in ids.as_array().unwrap() {
        let view = call(kernel, "council_status", json!({ "id": id })).await.unwrap();
        assert_eq!(&view["id"], id);
    }
}

/// Council scenarios 19 and 20: a message for the next round, a message too late, and an end in the middle.
#[tokio::test(flavor = "multi_thread")]
async fn a_council_under_way_is_spoken_to_and_ended() {
    let world = World::new();
    let kernel = world.kernel().await;
    let gate = world.root().join("gate");
    let hold = sh(&format!("until test -e '{}'; do sleep 0.05; done", gate.display()));
    let turns = vec![
        round(1, vec![hold.clone(), vote(false)]),
        always(vec![sh("echo half > half.txt"), sh("sleep 60"), vote(true)]),
    ];
    let spec = spec(vec![member(&world, "A", turns)], json!({ "maxRounds": 2 }));
    let run = kernel.start(world.start(spec)).await.unwrap().run_id.to_string();
    until(&kernel, &run, |view| view.nodes[0].attempts > 0).await;
    happens("the first turn", || !world.prompts("A").is_empty()).await;
    for bad in ["  ", &"x".repeat(20_001)] {
        assert_eq!(code(&kernel, "council_inject", json!({ "id": run, "message": bad })).await, Code::InvalidArgument);
    }
    assert_eq!(code(&kernel, "council_accept", json!({ "id": run })).await, Code::CouncilRunning);
    assert_eq!(code(&kernel, "council_reject", json!({ "id": run, "feedback": "x" })).await, Code::CouncilRunning);
    let told = call(&kernel, "council_inject", json!({ "id": run, "message": "mind the gap" })).await.unwrap();
    assert_eq!(told["deliverAtRound"], 2);
    let view = call(&kernel, "council_status", json!({ "id": run })).await.unwrap();
    assert_eq!((&view["pendingInjections"][0]["message"], &view["live"]), (&json!("mind the gap"), &json!(true)));
    std::fs::write(&gate, "").unwrap();
    happens("the second turn", || world.prompts("A").len() > 1).await;
    assert!(world.prompts("A")[1].contains("mind the gap"));
    let late = code(&kernel, "council_inject", json!({ "id": run, "message": "late" })).await;
    assert_eq!(late, Code::LastRoundRunning);
    let review = call(&kernel, "council_review", json!({ "id": run })).await.unwrap();
    assert_eq!(review["status"], "running");
    let half = world.project().join(".worktrees");
    happens("half a work", || {
        std::fs::read_dir(&half).unwrap().flatten().any(|d| d.path().join("A/half.txt").exists())
    })
    .await;
    let aborted = call(&kernel, "council_abort", json!({ "id": run })).await.unwrap();
    assert_eq!((&aborted["status"], &aborted["sessionsStopped"]), (&json!("aborted"), &json!(1)));
    assert_eq!(aborted["branchesKept"].as_array().unwrap().len(), 2, "{aborted:#}");
    assert!(!half.exists(), "worktrees are removed");
    let branch = aborted["branchesKept"][0].as_str().unwrap();
    assert!(git(&world.project(), &["ls-tree", "--name-only", branch]).contains("half.txt"));
    let review = call(&kernel, "council_review", json!({ "id": run })).await.unwrap();
    assert_eq!((&review["status"], &review["unmergedMembers"]), (&json!("aborted"), &json!(["A"])));
    assert_eq!(code(&kernel, "council_abort", json!({ "id": run })).await, Code::RunTerminal);
    let error = call(&kernel, "council_accept", json!({ "id": run })).await.unwrap_err();
    assert_eq!(error.details.unwrap()["reasons"], json!(["status_aborted", "unmerged_members"]));
}

/// Council scenario 33: a status stays small whatever members say, and the whole of it can be had.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_stays_small() {
    let world = World::new();
    let big = "é\u{1b}[31m\"x\" ".repeat(40_000);
    let say = json!({ "say": format!("{big}\n[CONSENSUS: NO]") });
    let members: Vec<Value> = ABC.iter().map(|name| member(&world, name, vec![always(vec![say.clone()])])).collect();
    let ended = Ended::of(&world, spec(members, json!({ "maxRounds": 8, "task": "t\u{1}é".repeat(30_000) }))).await;
    let run = ended.view.run_id.as_str();
    let view = call(&ended.kernel, "council_status", json!({ "id": run })).await.unwrap();
    let size = view.to_string().len();
    assert!(size <= RESULT_MAX + 1000, "{size} bytes");
    assert_eq!(view["status"], "max_rounds");
    let latest = view["responses"].as_array().unwrap().last().unwrap();
    assert!(latest["content"].as_str().unwrap().contains("[CONSENSUS: NO]") && latest["truncated"] == true);
    assert!(!view["truncated"].as_array().unwrap().is_empty());
    let whole = call(&ended.kernel, "council_status", json!({ "id": run, "round": 8, "full": true })).await.unwrap();
    assert!(whole["responses"][0]["content"].as_str().unwrap().len() > 400_000 || whole["truncated"].is_array());
    let review = call(&ended.kernel, "council_review", json!({ "id": run })).await.unwrap();
    assert!(review.to_string().len() <= RESULT_MAX + 1000);
}

/// A caller that waits is woken by what comes of the members' work, not by every word of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_when_something_came_of_it() {
    let world = World::new();
    let talk: Vec<Value> = (0..40).map(|n| json!({ "say": format!("thought {n}") })).collect();
    let chatty = |name: &str| member(&world, name, vec![always(then(talk.clone(), vote(true)))]);
    let kernel = world.kernel().await;
    let spec = spec(vec![chatty("A"), chatty("B")], json!({ "maxRounds": 1 }));
    let run = kernel.start(world.start(spec)).await.unwrap().run_id.to_string();
    let mut looks = 0;
    loop {
        let view = call(&kernel, "council_status", json!({ "id": run, "waitMs": 50_000 })).await.unwrap();
        looks += 1;
        if view["outcome"].is_string() {
            break;
        }
    }
    // The start, two replies, the end of the round, of the council and of the run.
    assert!(looks <= 9, "{looks} looks at one round");
}
