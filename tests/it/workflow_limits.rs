//! Runs at their bounds: bad specs, budgets, odd names, own worktrees, fixers.

use claw_orchestrator::{
    git::RestoreTo,
    kernel::{Source, StartRequest, StatusQuery},
    model::{Code, NodeState, RunOutcome, RunState},
};
use serde_json::{Value, json};

use crate::support::{World, agent, check, finished, git, until, with};

/// Kernel scenarios 11 and 16: every problem at its path, all in one answer, nothing on disk.
#[tokio::test(flavor = "multi_thread")]
async fn bad_specs_are_refused_whole_and_change_nothing() {
    let world = World::new();
    let kernel = world.kernel().await;
    let before = world.listing();
    let mut deep = json!({ "type": "always" });
    for _ in 0..7 {
        deep = json!({ "type": "and", "all": [deep] });
    }
    let spec = json!({
        "name": "", "maxNodeVisits": 0, "colour": "red", "budget": { "maxCostUsd": -1 },
        "contract": { "checks": [{ "type": "comand", "cmd": "x" }, { "type": "command", "cmd": "true" }] },
        "nodes": [
            { "id": "a", "kind": "agent", "promt": "x", "retry": { "max": 101, "backoffMs": -1 }, "timeoutMs": 0 },
            { "id": "a", "kind": "agent", "prompt": 7, "onFailure": "explode" },
            { "id": "b b", "kind": "router", "routes": [{ "to": "a" }, { "when": deep, "to": "nowhere" }, { "when": { "type": "maybe" }, "to": "a" }] },
            { "id": "__verify", "kind": "verifier", "contract": "run" },
            { "id": "f", "kind": "fanout", "prompt": "x", "agents": [{ "name": "n" }, { "name": "n" }], "effort": "extreme" },
            { "id": "g", "kind": "fanout", "prompt": "x", "agents": [] },
            { "id": "s", "kind": "subflow", "workflow": "no-such-run" },
            { "kind": "gardener" },
        ],
    });
    let answer = kernel.validate(world.start(spec.clone())).await;
    assert!(!answer.ok);
    let text: Vec<String> = answer.errors.iter().map(ToString::to_string).collect();
    for path in [
        "name:",
        "maxNodeVisits:",
        "colour: unknown field",
        "budget.maxCostUsd:",
        "contract.checks[0].type:",
        "nodes[0].promt: unknown field",
        "nodes[0].prompt: missing",
        "nodes[0].retry.max:",
        "nodes[0].retry.backoffMs:",
        "nodes[0].timeoutMs:",
        "nodes[1].id:",
        "nodes[1].prompt: expected a string, found a number",
        "nodes[1].onFailure:",
        "nodes[2].id:",
        "nodes[2].routes[0].when: missing",
        "nodes[2].routes[2].when.type:",
        "nodes[3].id: '__verify' is reserved",
        "nodes[4].agents[1].name: 'n' is used twice",
        "nodes[4].effort: unknown field",
        "nodes[5].agents:",
        "nodes[7].id: missing",
        "nodes[7].kind: unknown kind 'gardener'",
    ] {
        assert!(text.iter().any(|t| t.starts_with(path)), "{path} is missing in {text:#?}");
    }
    assert!(text.iter().any(|t| t.contains("nested more than 6 deep")), "{text:#?}");
    let refused = kernel.start(world.start(spec)).await.unwrap_err();
    assert_eq!(refused.code, Code::SpecInvalid);
    assert_eq!(world.listing(), before);
}

/// Kernel scenarios 16 and 21: ids, directories, engines, kinds of later versions.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_spec_refers_to_is_checked() {
    let world = World::new();
    let kernel = world.kernel().await;
    let before = world.listing();
    let plain = |node: Value| json!({ "name": "n", "nodes": [node] });
    for id in ["../x", "a/b", "", &"a".repeat(200), "CON", "\u{1f980}"] {
        let mut start = world.start(plain(agent("a", "x", "noop")));
        start.run_id = Some((*id).to_owned());
        assert_eq!(kernel.start(start).await.unwrap_err().code, Code::SpecInvalid, "{id:?}");
        assert_eq!(kernel.status(id, StatusQuery::default()).await.unwrap_err().code, Code::InvalidArgument, "{id:?}");
    }
    for (kind, code) in
        [("council", Code::SpecInvalid), ("goal", Code::SpecInvalid), ("autoloop", Code::NotAvailableYet)]
    {
        let refused = kernel.start(world.start(plain(json!({ "id": "a", "kind": kind })))).await.unwrap_err();
        assert_eq!(refused.code, code, "{refused}");
    }
    for (engine, code) in [("custom", Code::SpecInvalid), ("gemini", Code::SpecInvalid), ("hal", Code::SpecInvalid)] {
        let refused = kernel
            .start(world.start(plain(json!({ "id": "a", "kind": "agent", "prompt": "x", "engine": engine }))))
            .await;
        assert_eq!(refused.unwrap_err().code, code, "{engine}");
    }
    let mut nowhere = world.start(plain(agent("a", "x", "noop")));
    nowhere.cwd = Some(world.root().join("missing"));
    assert_eq!(kernel.start(nowhere).await.unwrap_err().code, Code::PathNotFound);
    for dir in ["/", "/etc", "/proc/self", world.home().to_str().unwrap()] {
        let mut start = world.start(plain(agent("a", "x", "noop")));
        start.cwd = Some(dir.into());
        assert_eq!(kernel.start(start).await.unwrap_err().code, Code::PathRefused, "{dir}");
    }
    let deep =
        json!({ "id": "a", "kind": "agent", "prompt": "x", "engine": "scripted", "model": "noop", "cwd": "not/there" });
    assert!(kernel.start(world.start(plain(deep))).await.unwrap_err().message.contains("nodes[0].cwd"));
    let unknown = kernel.start(world.start(plain(agent("a", "x", "no-such-scenario")))).await.unwrap_err();
    assert!(unknown.message.contains("no-such-scenario"), "{unknown}");
    assert_eq!(world.listing(), before);
    let answer = kernel
        .validate(world.start(json!({ "name": "n", "nodes": [
            { "id": "j", "kind": "router", "routes": [{ "when": "always", "to": "b" }] },
            agent("a", "x", "noop"), agent("b", "x", "noop"),
        ] })))
        .await;
    assert!(
        answer.ok && answer.warnings.iter().any(|w| w.message.contains("nothing leads to node 'a'")),
        "{answer:#?}"
    );
    let forecast = answer.forecast.unwrap();
    assert_eq!((forecast.max_agent_turns, forecast.repair_passes), (2, 0), "nothing leads back");
}

/// Kernel scenario 17, CB-2: each bound ends the run with its reason.
#[tokio::test(flavor = "multi_thread")]
async fn budgets_end_a_run_with_their_reason() {
    let world = World::new();
    let kernel = world.kernel().await;
    let dear = world.scenario("dear", json!([{ "steps": [{ "cost": 0.4 }, { "say": "done" }] }]));
    let slow = world.scenario("slow", json!([{ "steps": [{ "sleep": 30000 }, { "say": "done" }] }]));
    let three = |model: &str| vec![agent("a", "x", model), agent("b", "x", model), agent("c", "x", model)];
    let cases = [
        (json!({ "maxAgentTurns": 2 }), three("noop"), "budget: maxAgentTurns (2) reached", 2),
        (json!({ "maxCostUsd": 0.5 }), three(&dear), "budget: maxCostUsd (0.5) reached", 2),
        (json!({ "maxWallMs": 1500 }), three(&slow), "budget: maxWallMs (1500) reached", 0),
    ];
    for (budget, nodes, reason, done) in cases {
        let view = world.run(&kernel, json!({ "name": "b", "budget": budget, "nodes": nodes })).await;
        assert_eq!((view.state, view.outcome), (RunState::Failed, Some(RunOutcome::Unverified)), "{view:#?}");
        assert!(view.outcome_reason.as_deref().unwrap().starts_with(reason), "{view:#?}");
        let succeeded = view.nodes.iter().filter(|n| n.state == NodeState::Succeeded).count();
        assert_eq!(succeeded, done, "{reason}");
    }
    // A child draws on its parent's account.
    let child = json!({ "name": "c", "nodes": three("noop") });
    let spec = json!({ "name": "p", "budget": { "maxAgentTurns": 2 }, "nodes": [{ "id": "sub", "kind": "subflow", "workflow": child }] });
    let view = world.run(&kernel, spec).await;
    assert!(view.error.unwrap().contains("maxAgentTurns (2)"));
    assert_eq!(view.spend.turns, 2);
}

/// Kernel scenario 22, PA-1, PA-2: odd names in the workspace.
#[tokio::test(flavor = "multi_thread")]
async fn odd_names_in_the_workspace_are_fine() {
    use std::os::unix::ffi::OsStrExt;
    let world = World::new();
    let dir = world.project();
    for name in [&b"a b"[..], b"quo\"te", b"new\nline", b"tab\t", b"-dash", "ünï \u{1f980}".as_bytes(), b"bad\xff\xfe"]
    {
        std::fs::write(dir.join(std::ffi::OsStr::from_bytes(name)), "x").unwrap();
    }
    std::os::unix::fs::symlink("loop", dir.join("loop")).unwrap();
    let kernel = world.kernel().await;
    let model = world.scenario(
        "odd",
        json!([{ "steps": [{ "write": { "path": "more\nlines", "content": "y" } }, { "say": "done" }] }]),
    );
    let contract = json!({ "checks": [{ "type": "diff_policy", "requirePaths": ["more\nlines"], "maxFiles": 1 }] });
    let view =
        world.run(&kernel, json!({ "name": "n", "contract": contract, "nodes": [agent("a", "x", &model)] })).await;
    assert_eq!(view.outcome, Some(RunOutcome::Verified), "{view:#?}");
    let evidence = kernel.evidence(view.run_id.as_str(), None).await.unwrap();
    assert_eq!(evidence.bundle.changed_files, ["more\nlines"]);
}

/// Kernel scenario 18, GT-3, MG-1: the user's checkout is not touched, the branch holds the work.
#[tokio::test(flavor = "multi_thread")]
async fn a_worktree_run_leaves_the_checkout_alone() {
    let world = World::new();
    world.write("README", "edited by the user\n");
    world.write("untracked", "mine\n");
    let dir = world.project();
    git(&dir, &["add", "README"]);
    let state = |dir: &std::path::Path| {
        let read = |p: &str| std::fs::read(dir.join(p)).unwrap();
        (read(".git/index"), read(".git/HEAD"), read(".git/config"), git(dir, &["status", "--porcelain"]))
    };
    let before = state(&dir);
    let kernel = world.kernel().await;
    let model = world.scenario(
        "work",
        json!([{ "steps": [{ "write": { "path": "made", "content": "by the agent\n" } }, { "say": "done" }] }]),
    );
    let spec = json!({
        "name": "w", "workspace": "worktree", "contract": check(&["test", "-e", "made"]), "nodes": [agent("a", "x", &model)],
    });
    let one = kernel.start(world.start(spec.clone())).await.unwrap();
    let two = kernel.start(world.start(spec)).await.unwrap();
    for started in [one, two] {
        let view = until(&kernel, started.run_id.as_str(), |v| v.state.is_terminal()).await;
        assert_eq!(view.outcome, Some(RunOutcome::Verified), "{view:#?}");
        let branch = view.workspace_branch.unwrap();
        assert_eq!(branch, format!("clawo/{}", view.run_id));
        // WT-1: deleting the run, even while it puts its workspace away, keeps the work and names where it is.
        let deleted = kernel.delete(view.run_id.as_str()).await.unwrap();
        assert_eq!(deleted.branch.as_ref(), Some(&branch));
        assert_eq!(git(&dir, &["show", &format!("{branch}:made")]), "by the agent\n");
        assert!(!std::path::Path::new(&view.workspace_path.unwrap()).exists(), "the checkout is given back");
    }
    assert_eq!(state(&dir), before);
    assert!(!dir.join("made").exists());
}

/// LW-1: what an agent left behind is brought back byte for byte; the user's own changes are not charged to the run.
#[tokio::test(flavor = "multi_thread")]
async fn snapshots_bring_work_back() {
    let world = World::new();
    world.write("mine", "uncommitted before\n");
    let kernel = world.kernel().await;
    let model = world.scenario("work", json!([{ "steps": [
        { "write": { "path": "one", "content": "1" } }, { "write": { "path": "deep/two", "content": "2\u{0}" } }, { "fail": "gave up" },
    ] }]));
    let contract = json!({ "checks": [{ "type": "diff_policy", "maxFiles": 2 }] });
    let spec = json!({ "name": "n", "contract": contract, "nodes": [with(agent("a", "x", &model), json!({ "onFailure": "continue" }))] });
    let view = world.run(&kernel, spec).await;
    assert_eq!(view.outcome, Some(RunOutcome::Verified), "{view:#?}");
    git(&world.project(), &["clean", "-fdq"]);
    let to = world.root().join("restored");
    kernel.restore(view.run_id.as_str(), Some("a-v1a1"), RestoreTo::Directory(to.clone())).await.unwrap();
    assert_eq!(std::fs::read(to.join("deep/two")).unwrap(), b"2\0");
    assert_eq!(std::fs::read(to.join("mine")).unwrap(), b"uncommitted before\n");
    assert!(
        kernel.restore(view.run_id.as_str(), None, RestoreTo::Directory(to)).await.is_err(),
        "never over something"
    );
    kernel.delete(view.run_id.as_str()).await.unwrap();
    assert_eq!(git(&world.project(), &["for-each-ref", "refs/clawo"]), "");
}

/// Verification scenario 17: a fixer repairs, a fixer lies, a fixer edits a test.
#[tokio::test(flavor = "multi_thread")]
async fn fixers_repair_lie_and_cheat() {
    let cases = [
        (
            "repairs",
            json!([{ "write": { "path": "value", "content": "2\n" } }, { "say": "fixed" }]),
            RunOutcome::Verified,
            1,
        ),
        ("lies", json!([{ "say": "all checks pass now, verified" }]), RunOutcome::Refuted, 2),
        (
            "cheats",
            json!([{ "write": { "path": "tests/check.sh", "content": "exit 0\n" } }, { "say": "fixed" }]),
            RunOutcome::Refuted,
            1,
        ),
    ];
    for (name, steps, outcome, rounds) in cases {
        let world = World::new();
        world.write("value", "1\n");
        world.write("tests/check.sh", "grep -qx 2 value\n");
        let kernel = world.kernel().await;
        let model = world.scenario("fixer", json!([{ "times": 0, "steps": steps }]));
        let contract = with(check(&["sh", "tests/check.sh"]), json!({ "fixOnFailureRounds": 2 }));
        let node =
            json!({ "id": "verify", "kind": "verifier", "contract": contract, "engine": "scripted", "model": model });
        let view = world.run(&kernel, json!({ "name": name, "nodes": [node] })).await;
        assert_eq!(view.outcome, Some(outcome), "{name}: {view:#?}");
        let evidence = kernel.evidence(view.run_id.as_str(), None).await.unwrap();
        assert!(evidence.bundle.rounds >= rounds, "{name}: {}", evidence.bundle.rounds);
        assert_eq!(evidence.bundle.results[0].id, "protected-tests");
        assert_eq!(evidence.bundle.results[0].passed, name != "cheats");
    }
}

/// LW-3, CB-1: a fan-out keeps what finished members did; all of them see the shared task.
#[tokio::test(flavor = "multi_thread")]
async fn a_fanout_gathers_its_members() {
    let world = World::new();
    let kernel = world.kernel().await;
    let model = world.scenario(
        "members",
        json!([
            { "match": "Several agents worked", "steps": [{ "say": "merged" }] },
            { "match": "Be the critic", "steps": [{ "say": "critic: fine" }] },
            { "match": "Shared?", "steps": [{ "say": "plain: fine" }] },
        ]),
    );
    let node = json!({
        "id": "fan", "kind": "fanout", "prompt": "Shared?", "synthesize": true, "synthesisEngine": "scripted", "synthesisModel": model,
        "agents": [
            { "name": "plain", "engine": "scripted", "model": model },
            { "name": "critic", "engine": "scripted", "model": model, "persona": "Be the critic." },
        ],
    });
    let view = world.run(&kernel, json!({ "name": "f", "nodes": [node] })).await;
    assert_eq!(view.nodes[0].output.as_deref(), Some("merged"), "{view:#?}");
    let prompts = world.prompts("members");
    let critic = prompts.iter().find(|p| p.starts_with("Be the critic.")).unwrap();
    assert!(critic.contains("## Shared task\n\nShared?"), "{critic}");
    let merge = prompts.iter().find(|p| p.contains("Several agents worked")).unwrap();
    assert!(merge.contains("critic: fine") && merge.contains("plain: fine"), "{merge}");
    assert_eq!(view.spend.turns, 3);
}

/// Kernel 4.15 and mcp.md 3: an id that exists is left alone; an idempotency key finds its run again.
#[tokio::test(flavor = "multi_thread")]
async fn starts_are_not_repeated_by_accident() {
    let world = World::new();
    let kernel = world.kernel().await;
    let spec = json!({ "name": "n", "nodes": [agent("a", "x", "noop")] });
    let mut named = world.start(spec.clone());
    named.run_id = Some("a.b-c_1".to_owned());
    kernel.start(named.clone()).await.unwrap();
    finished(&kernel, "a.b-c_1").await;
    let log = std::fs::read(world.run_dir("a.b-c_1").join("events.jsonl")).unwrap();
    assert_eq!(kernel.start(named).await.unwrap_err().code, Code::RunExists);
    assert_eq!(std::fs::read(world.run_dir("a.b-c_1").join("events.jsonl")).unwrap(), log);
    let mut keyed = world.start(spec.clone());
    keyed.idempotency_key = Some("tonight".to_owned());
    let calls = (0..8).map(|_| {
        let (kernel, start) = (kernel.clone(), keyed.clone());
        tokio::spawn(async move { kernel.start(start).await.unwrap() })
    });
    let mut ids = std::collections::BTreeSet::new();
    for call in calls.collect::<Vec<_>>() {
        ids.insert(call.await.unwrap().run_id);
    }
    assert_eq!(ids.len(), 1);
    // With an id of its own the key means that run, and no other key does.
    let both = StartRequest { run_id: Some("chosen".to_owned()), ..keyed };
    let first = kernel.start(both.clone()).await.unwrap();
    let again = kernel.start(both.clone()).await.unwrap();
    assert_eq!((first.existing, again.existing, again.run_id.as_str()), (false, true, "chosen"));
    let other = StartRequest { idempotency_key: Some("tomorrow".to_owned()), ..both };
    assert_eq!(kernel.start(other).await.unwrap_err().code, Code::RunExists);
    let template = kernel
        .validate(StartRequest {
            source: Source::Template {
                name: "solve".to_owned(),
                task: "Do it".to_owned(),
                args: json!({ "maxRepairs": 2, "humanGate": true, "implementer": { "engine": "scripted", "model": "noop" }, "reviewers": [{ "name": "r", "engine": "scripted", "model": "noop" }] }),
            },
            contract: Some(check(&["true"])),
            ..world.start(spec)
        })
        .await;
    assert!(template.ok, "{template:#?}");
    let ids: Vec<String> = template.spec.unwrap()["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids, ["triage", "approve", "implement", "review", "verify", "repair-gate"]);
    assert_eq!(template.forecast.unwrap().repair_passes, 2);
}

/// WT-5, WT-9: an agent never works in a folder that is no longer the run's own worktree.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_worktree_is_not_worked_in() {
    for breaking in ["rm -rf .git", "rm -rf .git && git init -q ..", "cd .. && rm -rf \"$OLDPWD\""] {
        let world = World::new();
        let kernel = world.kernel().await;
        let first =
            world.scenario("break", json!([{ "steps": [{ "run": ["sh", "-c", breaking] }, { "say": "done" }] }]));
        let second = world.scenario(
            "after",
            json!([{ "steps": [{ "write": { "path": "made", "content": "x" } }, { "say": "done" }] }]),
        );
        let spec = json!({ "name": "w", "workspace": "worktree", "nodes": [agent("a", "x", &first), agent("b", "x", &second)] });
        let view = world.run(&kernel, spec).await;
        assert_eq!(view.state, RunState::Failed, "{breaking}: {view:#?}");
        assert!(view.error.as_deref().unwrap().contains("workspace_missing"), "{breaking}: {view:#?}");
        assert!(world.prompts("after").is_empty(), "{breaking}: nobody was started");
        assert_eq!(git(&world.project(), &["status", "--porcelain"]), "");
    }
}
