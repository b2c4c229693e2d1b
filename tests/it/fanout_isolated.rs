//! Fan-outs and agents in worktrees of their own: what is judged, what is merged, and what stays as it was.

use std::{collections::BTreeMap, path::Path};

use claw_orchestrator::{
    kernel::{Kernel, RunView},
    model::{RunOutcome, RunState},
};
use serde_json::{Value, json};

use crate::support::{World, check, finished, git, untouched::Untouched, with};

/// A project whose test wants a line `good` in `result.txt`, with everything of the user's that must stay.
fn project() -> World {
    let world = World::new();
    let dir = world.project();
    world.write("tests/check.sh", "grep -qx good result.txt\n");
    world.write(".gitignore", "*.log\nbuild/\n");
    git(&dir, &["add", "-A"]);
    git(&dir, &["commit", "-q", "-m", "a test"]);
    git(&dir, &["config", "custom.key", "a value of the user's"]);
    git(&dir, &["config", "commit.gpgSign", "true"]);
    git(&dir, &["config", "gpg.program", "/bin/false"]);
    for hook in ["pre-commit", "post-checkout", "pre-push", "post-merge", "reference-transaction"] {
        let path = dir.join(".git/hooks").join(hook);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("#!/bin/sh\necho {hook} >> '{}/hooks-ran'\n", world.root().display())).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    world.write("README", "stashed\n");
    git(&dir, &["stash", "push", "-q"]);
    let _ = std::fs::remove_file(world.root().join("hooks-ran"));
    world.write("build/out", "ignored\n");
    world.write("notes.log", "ignored too\n");
    world
}

/// No hook of the user's ran.
fn no_hooks(world: &World) {
    let ran = std::fs::read_to_string(world.root().join("hooks-ran")).unwrap_or_default();
    assert_eq!(ran, "", "hooks of the user's ran");
}

/// An agent that writes `lines` lines into `result.txt`, the first one `word`.
fn writes(world: &World, name: &str, word: &str, lines: usize) -> Value {
    let content = format!("{word}\n{}", "filler\n".repeat(lines - 1));
    does(
        world,
        name,
        json!([{ "write": { "path": "result.txt", "content": content } }, { "say": format!("{name} is done") }]),
    )
}

/// An agent that does these steps.
fn does(world: &World, name: &str, steps: Value) -> Value {
    let mut turn = json!({ "times": 0 });
    turn["steps"] = steps;
    let model = world.scenario(name, Value::Array(vec![turn]));
    json!({ "name": name, "engine": "scripted", "model": model })
}

fn fan(agents: Vec<Value>) -> Value {
    let mut node = json!({ "id": "main", "kind": "fanout", "prompt": "Make it good.", "isolation": "worktree" });
    node["agents"] = Value::Array(agents);
    node
}

fn contest(agents: Vec<Value>, more: Value) -> Value {
    let node = with(with(fan(agents), json!({ "select": "verified" })), more);
    json!({ "name": "fan", "contract": check(&["sh", "tests/check.sh"]), "nodes": [node] })
}

/// The documents on the node's data.
async fn data(kernel: &Kernel, run: &str) -> Value {
    kernel.record(run).await.unwrap().nodes[0].data.clone().unwrap_or_default()
}

async fn run(kernel: &Kernel, world: &World, spec: Value) -> (RunView, Value) {
    let view = world.run(kernel, spec).await;
    let data = data(kernel, view.run_id.as_str()).await;
    (view, data)
}

/// Branches of ours and what lies in `.worktrees`.
fn left(dir: &Path) -> (Vec<String>, Vec<String>) {
    let refs = git(dir, &["for-each-ref", "--format=%(refname:short)", "refs/heads/fanout", "refs/heads/agent"]);
    let mut trees = Vec::new();
    for short in std::fs::read_dir(dir.join(".worktrees")).into_iter().flatten().flatten() {
        trees.extend(
            std::fs::read_dir(short.path()).unwrap().flatten().map(|e| e.file_name().to_string_lossy().into_owned()),
        );
    }
    trees.sort();
    (refs.lines().map(str::to_owned).collect(), trees)
}

fn head(dir: &Path) -> String {
    git(dir, &["rev-parse", "HEAD"]).trim().to_owned()
}

/// Council scenario 27: the smallest work that passes is merged; evidence of all is kept; the user's tree is clean.
#[tokio::test(flavor = "multi_thread")]
async fn the_smallest_work_that_passes_is_merged() {
    let world = project();
    let (kernel, dir) = (world.kernel().await, world.project());
    let before = head(&dir);
    let untouched = Untouched::of(&dir);
    let cheat = json!([
        { "write": { "path": "tests/check.sh", "content": "exit 0\n" } }, { "say": "cheated" },
    ]);
    let agents = vec![
        writes(&world, "A", "good", 40),
        writes(&world, "B", "good", 12),
        writes(&world, "C", "bad", 1),
        does(&world, "D", cheat),
        does(&world, "E", json!([{ "say": "nothing to do" }])),
    ];
    let (view, data) = run(&kernel, &world, contest(agents, json!({}))).await;
    assert_eq!((view.state, view.outcome), (RunState::Completed, Some(RunOutcome::Verified)), "{view:#?} {data:#}");
    assert_eq!(data["selection"]["winner"], "B");
    assert_eq!(data["selection"]["ranking"], json!(["B", "A", "C", "D", "E"]), "{data:#}");
    let lines: Vec<&Value> = ["A", "B", "C"].map(|name| &data[format!("candidate:{name}")]["changedLines"]).into();
    assert_eq!(lines, [&json!(40), &json!(12), &json!(1)]);
    assert_eq!(data["candidate:D"]["verified"], false);
    assert!(data["candidate:D"]["reason"].as_str().unwrap().contains("protected-tests"), "{data:#}");
    assert_eq!((&data["candidate:E"]["verified"], &data["candidate:E"]["eligible"]), (&Value::Null, &json!(false)));
    for name in ["A", "B", "C", "D"] {
        let id = data[format!("candidate:{name}")]["evidenceId"].as_str().unwrap().to_owned();
        assert_eq!(id, format!("main.{name}-v01-01"));
        let evidence = world.run_dir(view.run_id.as_str()).join("evidence").join(id);
        assert!(evidence.join("bundle.json").exists());
        let patch = data[format!("candidate:{name}")]["patch"]["path"].as_str().unwrap();
        assert!(world.run_dir(view.run_id.as_str()).join(patch).exists());
    }
    assert_eq!(view.evidence_id.as_deref(), Some("main.B-v01-01"), "{view:#?}");
    assert_eq!((&data["merge"]["merged"], &data["merge"]["kind"]), (&json!(true), &json!("fast-forward")));
    assert_eq!(data["merge"]["before"], before.as_str());
    assert_eq!(world.read("result.txt").lines().count(), 12);
    assert_eq!(git(&dir, &["status", "--porcelain"]), "");
    assert_eq!(data["left"], json!({ "branches": [], "worktrees": [] }));
    assert_eq!(left(&dir), (vec![], vec![]));
    assert!(!dir.join(".worktrees").exists());
    untouched.check_merged("main");
    no_hooks(&world);
    // What lost is still there for whoever wants it.
    let lost = data["candidate:A"]["commit"].as_str().unwrap();
    let refs = git(&dir, &["for-each-ref", "--contains", lost, "refs/clawo"]);
    assert!(refs.contains(view.run_id.as_str()), "{refs}");
}

/// Council scenario 27: equal work is taken in the order of the agents; where nobody passes nothing is merged.
#[tokio::test(flavor = "multi_thread")]
async fn equal_work_and_no_work() {
    let world = project();
    let (kernel, dir) = (world.kernel().await, world.project());
    let untouched = Untouched::of(&dir);
    let agents = || {
        vec![
            does(&world, "A", json!([{ "say": "nothing" }])),
            writes(&world, "B", "bad", 3),
            writes(&world, "C", "worse", 2),
        ]
    };
    let (view, data) = run(&kernel, &world, contest(agents(), json!({}))).await;
    assert_eq!((view.state, view.outcome), (RunState::Failed, Some(RunOutcome::Refuted)), "{view:#?}");
    assert_eq!((&data["selection"]["winner"], &data["merge"]), (&Value::Null, &Value::Null));
    assert_eq!(view.evidence_id.as_deref(), Some("main.B-v01-01"));
    let short = data["layout"]["shortId"].as_str().unwrap();
    let branches: Vec<String> = ["A", "B", "C"].map(|name| format!("fanout/{short}/{name}")).into();
    assert_eq!(data["left"]["branches"], json!(branches));
    assert_eq!(left(&dir), (branches, vec![]));
    untouched.check();

    let nothing = vec![does(&world, "A", json!([{ "say": "nothing" }]))];
    let (view, _) = run(&kernel, &world, contest(nothing, json!({}))).await;
    assert_eq!((view.state, view.outcome), (RunState::Failed, Some(RunOutcome::Unverified)), "{view:#?}");

    let equal = vec![writes(&world, "Y", "good", 5), writes(&world, "X", "good", 5)];
    let (view, data) = run(&kernel, &world, contest(equal, json!({ "merge": false }))).await;
    assert_eq!((view.outcome, &data["selection"]["winner"]), (Some(RunOutcome::Verified), &json!("Y")), "{view:#?}");
    let short = data["layout"]["shortId"].as_str().unwrap();
    assert_eq!(data["left"]["worktrees"], json!([dir.join(format!(".worktrees/{short}/Y"))]));
    assert_eq!(left(&dir).1, ["Y"]);
    untouched.check();
    no_hooks(&world);
}

/// Council scenario 28: a dirty tree is not merged into; ignored files and other worktrees make none dirty.
#[tokio::test(flavor = "multi_thread")]
async fn a_dirty_tree_is_left_alone() {
    let world = project();
    let (kernel, dir) = (world.kernel().await, world.project());
    // The user's own worktree may be as it likes.
    let other = world.root().join("other tree");
    git(&dir, &["worktree", "add", "-q", "-b", "other", other.to_str().unwrap()]);
    std::fs::write(other.join("README"), "edited elsewhere\n").unwrap();
    let _ = std::fs::remove_file(world.root().join("hooks-ran"));
    let elsewhere = Untouched::of(&other);
    let refused = world.run(&kernel, {
        world.write("README", "edited\n");
        contest(vec![writes(&world, "A", "good", 2)], json!({}))
    });
    let view = refused.await;
    assert_eq!((view.state, view.outcome), (RunState::Failed, Some(RunOutcome::Unverified)));
    assert!(view.nodes[0].error.as_deref().unwrap().starts_with("tree_dirty: 1 paths"), "{view:#?}");
    assert_eq!(left(&dir), (vec![], vec![]));

    let untouched = Untouched::of(&dir);
    let spec = || contest(vec![writes(&world, "A", "good", 2)], json!({ "allowDirty": true }));
    let (view, data) = run(&kernel, &world, spec()).await;
    assert_eq!((view.state, view.outcome), (RunState::Completed, Some(RunOutcome::Unverified)), "{view:#?}");
    assert_eq!((&data["merge"]["merged"], &data["merge"]["code"]), (&json!(false), &json!("tree_dirty")));
    assert!(view.outcome_reason.as_deref().unwrap().contains("tree_dirty"), "{view:#?}");
    assert!(!data["layout"]["warnings"].as_array().unwrap().is_empty());
    let short = data["layout"]["shortId"].as_str().unwrap();
    assert_eq!(left(&dir), (vec![format!("fanout/{short}/A")], vec![]));
    untouched.check();

    git(&dir, &["checkout", "-q", "README"]);
    let _ = std::fs::remove_file(world.root().join("hooks-ran"));
    let (view, _) = run(&kernel, &world, spec()).await;
    assert_eq!(view.outcome, Some(RunOutcome::Verified), "{view:#?}");
    elsewhere.check_merged("main");
    assert_eq!(std::fs::read_to_string(other.join("README")).unwrap(), "edited elsewhere\n");
    assert_eq!(world.read("notes.log"), "ignored too\n");
    no_hooks(&world);
}

/// Council scenario 28, WT: an ignored file in the way, and a branch that moved to where the merge is red or green.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_branch_would_become_is_judged() {
    let world = project();
    let (kernel, dir) = (world.kernel().await, world.project());
    // While the agent works the user commits.
    let meanwhile = |name: &str, file: &str, text: &str| {
        let script = format!(
            "cd '{}' && printf '{text}' > '{file}' && git add '{file}' && git -c commit.gpgSign=false commit -q -m user",
            dir.display()
        );
        does(
            &world,
            name,
            json!([
                { "run": ["env", "-u", "GIT_CONFIG_COUNT", "sh", "-c", script] },
                { "write": { "path": "result.txt", "content": format!("good\n{name}\n") } },
                { "say": "done" },
            ]),
        )
    };
    let test = check(&["sh", "-c", "grep -qx good result.txt && test ! -e blocker"]);
    let spec = |agent: Value| with(contest(vec![agent], json!({})), json!({ "contract": test }));
    let (view, data) = run(&kernel, &world, spec(meanwhile("red", "blocker", "x"))).await;
    assert_eq!((view.state, view.outcome), (RunState::Completed, Some(RunOutcome::Unverified)), "{view:#?} {data:#}");
    assert_eq!(data["merge"]["code"], "merge_not_verified", "{data:#}");
    assert_eq!(git(&dir, &["log", "-1", "--format=%s"]), "user\n");
    assert!(!dir.join("result.txt").exists());
    assert!(world.run_dir(view.run_id.as_str()).join("evidence/main.red.merge-v01-01/bundle.json").exists());

    git(&dir, &["rm", "-q", "blocker"]);
    git(&dir, &["-c", "commit.gpgSign=false", "commit", "-q", "-m", "away"]);
    let (view, data) = run(&kernel, &world, spec(meanwhile("green", "beside", "x"))).await;
    assert_eq!((view.state, view.outcome), (RunState::Completed, Some(RunOutcome::Verified)), "{view:#?} {data:#}");
    assert_eq!(data["merge"]["kind"], "merge-commit");
    assert_eq!(view.evidence_id.as_deref(), Some("main.green.merge-v01-01"));
    assert_eq!(git(&dir, &["log", "-1", "--format=%an"]), "Test User\n");
    assert_eq!(git(&dir, &["status", "--porcelain"]), "");
    assert!(dir.join("beside").exists() && dir.join("result.txt").exists());

    world.write("new.log", "mine\n");
    let untouched = Untouched::of(&dir);
    let forced = does(
        &world,
        "forced",
        json!([
            { "run": ["sh", "-c", "echo theirs > new.log && git add -f new.log && git -c commit.gpgSign=false commit -q -m forced"] }, { "say": "ok" },
        ]),
    );
    let (view, data) = run(&kernel, &world, spec(forced)).await;
    assert_eq!(
        (view.outcome, &data["merge"]["code"]),
        (Some(RunOutcome::Unverified), &json!("would_overwrite")),
        "{data:#}"
    );
    untouched.check();
}

/// Council scenarios 16 and 4: agents commit under their own names, cannot push, and leave nothing uncommitted or off
/// their branch; two fan-outs of the same names in one repository share nothing.
#[tokio::test(flavor = "multi_thread")]
async fn two_at_once_share_nothing() {
    let world = project();
    let (kernel, dir) = (world.kernel().await, world.project());
    let remote = world.root().join("remote.git");
    git(world.root(), &["init", "-q", "--bare", remote.to_str().unwrap()]);
    git(&dir, &["remote", "add", "origin", remote.to_str().unwrap()]);
    git(&dir, &["config", "commit.gpgSign", "false"]);
    let untouched = Untouched::of(&dir);
    let agents = |tag: &str| {
        let push = "echo good > pushed && git add pushed && git commit -q -m own && ! git push -q origin HEAD:pushed";
        let half = format!(
            "git checkout -q -b side-{tag} && echo 1 > c && git add c && git commit -q -m one && git checkout -q - \
             && echo 2 > c && git add c && git commit -q -m two; git merge side-{tag} || true"
        );
        let off = "git checkout -q --detach && echo x > off && git add off && git commit -q -m off";
        vec![
            does(&world, &format!("push-{tag}"), json!([{ "run": ["sh", "-c", push] }, { "say": "pushed" }])),
            does(
                &world,
                &format!("off-{tag}"),
                json!([{ "run": ["sh", "-c", off] }, { "write": { "path": "loose", "content": "y\n" } }, { "say": "off" }]),
            ),
            does(
                &world,
                &format!("half-{tag}"),
                json!([
                    { "run": ["sh", "-c", half] },
                    { "say": "half" },
                ]),
            ),
        ]
    };
    let spec = |tag: &str| {
        let named = agents(tag).into_iter().map(|mut agent| {
            let name = agent["name"].as_str().unwrap().replace(&format!("-{tag}"), "");
            agent["name"] = json!(name);
            agent
        });
        json!({ "name": "fan", "nodes": [fan(named.collect())] })
    };
    let (one, two) = tokio::join!(run(&kernel, &world, spec("1")), run(&kernel, &world, spec("2")));
    for (view, data) in [&one, &two] {
        assert_eq!((view.state, view.outcome), (RunState::Completed, Some(RunOutcome::Unverified)), "{view:#?}");
        let show = |name: &str, what: &str| {
            let commit = data[format!("candidate:{name}")]["commit"].as_str().unwrap();
            git(&dir, &["log", "-1", what, commit])
        };
        assert_eq!(show("push", "--format=%an <%ae>"), "push (fanout) <push@fanout.invalid>\n");
        assert_eq!(show("off", "--format=%s"), "fanout: off - uncommitted work\n");
        assert_eq!(data["candidate:off"]["changedFiles"], 2);
        assert_eq!((&data["candidate:off"]["verified"], &data["selection"]), (&Value::Null, &Value::Null));
        assert_eq!(show("half", "--format=%s"), "two\n");
        let half = git(&dir, &["for-each-ref", "--format=%(refname)", &format!("refs/clawo/runs/{}", view.run_id)]);
        assert!(half.contains("main-v1a1-half"), "{half}");
        assert_eq!(data["left"]["branches"].as_array().unwrap().len(), 3);
    }
    assert_ne!(one.1["layout"]["shortId"], two.1["layout"]["shortId"]);
    assert_eq!(left(&dir).0.len(), 6);
    assert_eq!(left(&dir).1, Vec::<String>::new());
    assert_eq!(git(&remote, &["for-each-ref"]), "");
    git(&dir, &["branch", "-q", "-D", "side-1", "side-2"]);
    untouched.check();
}

/// Council scenario 5: each reason against a directory has its code, and nothing is made.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_make_nothing() {
    let world = project();
    let (kernel, dir) = (world.kernel().await, world.project());
    let outside = world.root().join("plain");
    std::fs::create_dir(&outside).unwrap();
    let empty = world.root().join("empty");
    std::fs::create_dir(&empty).unwrap();
    git(&empty, &["init", "-q"]);
    let detached = world.root().join("detached");
    git(&dir, &["worktree", "add", "-q", "--detach", detached.to_str().unwrap()]);
    let untouched = Untouched::of(&dir);
    for (place, code) in
        [(&outside, "git_not_a_repository"), (&empty, "git_no_commits"), (&detached, "git_detached_head")]
    {
        let mut start = world.start(json!({ "name": "fan", "nodes": [fan(vec![writes(&world, "A", "good", 1)])] }));
        start.cwd = Some(place.clone());
        let started = kernel.start(start).await.unwrap();
        let view = finished(&kernel, started.run_id.as_str()).await;
        assert_eq!(view.state, RunState::Failed);
        assert!(view.nodes[0].error.as_deref().unwrap().starts_with(&format!("{code}: ")), "{view:#?}");
        assert!(!place.join(".worktrees").exists());
    }
    untouched.check();
    let exclude = std::fs::read_to_string(dir.join(".git/info/exclude")).unwrap_or_default();
    assert!(!exclude.contains(".worktrees"), "{exclude}");

    git(&dir, &["branch", "fanout"]);
    let (view, _) =
        run(&kernel, &world, json!({ "name": "fan", "nodes": [fan(vec![writes(&world, "A", "good", 1)])] })).await;
    assert!(view.nodes[0].error.as_deref().unwrap().starts_with("worktree_failed: "), "{view:#?}");
    assert!(!dir.join(".worktrees").exists());
}

/// Council scenario 26: who fails is marked, one answer is not merged with itself, and a merge that fails costs itself.
#[tokio::test(flavor = "multi_thread")]
async fn answers_and_failures() {
    let world = World::bare();
    let kernel = world.kernel().await;
    let say = |name: &str| does(&world, name, json!([{ "say": format!("{name} says") }]));
    let fail = |name: &str| does(&world, name, json!([{ "say": "half" }, { "fail": "no luck" }]));
    let node = |agents: Vec<Value>, model: &str| {
        json!({ "name": "f", "nodes": [{
            "id": "main", "kind": "fanout", "prompt": "x", "agents": agents, "synthesize": true,
            "synthesisEngine": "scripted", "synthesisModel": model,
        }] })
    };
    let good = world.scenario("merging", json!([{ "times": 0, "steps": [{ "say": "merged" }] }]));
    let bad = world.scenario("failing", json!([{ "times": 0, "steps": [{ "fail": "cannot" }] }]));
    let (view, data) = run(&kernel, &world, node(vec![say("a"), fail("b"), say("c")], &good)).await;
    assert_eq!((view.state, view.nodes[0].output.as_deref()), (RunState::Completed, Some("merged")));
    assert_eq!((&data["agent:b"]["ok"], &data["agent:b"]["engine"]), (&json!(false), &json!("scripted")));
    assert!(data["agent:b"]["error"].as_str().unwrap().contains("no luck"));
    assert_eq!(data["synthesis"]["text"]["text"], "merged");

    let (view, data) = run(&kernel, &world, node(vec![say("a"), fail("b")], &good)).await;
    assert_eq!(view.state, RunState::Completed);
    assert_eq!(data["synthesis"]["skipped"], "only 1 of 2 agents succeeded");
    let output = view.nodes[0].output.clone().unwrap();
    assert!(output.starts_with("## a\n\na says\n\n## b\n\n[failed: "), "{output}");

    let (view, data) = run(&kernel, &world, node(vec![say("a"), say("c")], &bad)).await;
    assert_eq!(view.state, RunState::Completed, "{view:#?}");
    assert!(data["synthesis"]["error"].as_str().unwrap().contains("cannot"), "{data:#}");
    assert!(view.nodes[0].output.as_deref().unwrap().contains("## c\n\nc says"));

    let (view, _) = run(&kernel, &world, node(vec![fail("a"), fail("b")], &good)).await;
    assert_eq!(view.state, RunState::Failed);
}

/// Council 14: a run that holds one fan-out names its sessions after itself.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_a_run_of_its_own() {
    let world = World::bare();
    let kernel = world.kernel().await;
    let env = |name: &str| {
        let agent = does(&world, name, json!([{ "say": "fine" }]));
        with(agent, json!({}))
    };
    let mut start = world.start(json!({ "name": "f", "nodes": [
        { "id": "main", "kind": "fanout", "prompt": "x", "agents": [env("a"), env("b")] },
    ] }));
    start.run_id = Some("fanout-m1abc2de-9f3c1a2b".to_owned());
    kernel.start(start).await.unwrap();
    let view = finished(&kernel, "fanout-m1abc2de-9f3c1a2b").await;
    assert_eq!(view.state, RunState::Completed);
    let mut names = Vec::new();
    for day in std::fs::read_dir(world.home().join("runs")).unwrap().flatten() {
        let text = std::fs::read_to_string(day.path()).unwrap_or_default();
        names.extend(text.lines().filter_map(|line| {
            let row: Value = serde_json::from_str(line).ok()?;
            row["session"].as_str().map(str::to_owned)
        }));
    }
    names.sort();
    assert_eq!(names, ["fanout-m1abc2de-9f3c1a2b-a", "fanout-m1abc2de-9f3c1a2b-b"]);
}

/// Council scenario 30: an abort lets running agents finish, starts no other, and chooses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_abort_starts_nothing_more() {
    let mut world = project();
    world.sessions = 2;
    let (kernel, dir) = (world.kernel().await, world.project());
    let untouched = Untouched::of(&dir);
    let go = world.root().join("go");
    let wait = |name: &str| {
        let script = format!("while [ ! -e '{}' ]; do sleep 0.05; done; echo good > result.txt", go.display());
        does(&world, name, json!([{ "run": ["sh", "-c", script] }, { "say": name }]))
    };
    let agents = vec![wait("a"), wait("b"), writes(&world, "c", "good", 1), writes(&world, "d", "good", 1)];
    let started = kernel
        .start(world.start(contest(
            agents,
            json!({ "synthesize": true, "synthesisEngine": "scripted", "synthesisModel": "noop" }),
        )))
        .await
        .unwrap();
    let id = started.run_id.as_str();
    crate::support::happens("both work", || crate::support::processes(&go.display().to_string()).len() >= 2).await;
    kernel.wind_down(&started.run_id).await.unwrap();
    std::fs::write(&go, "").unwrap();
    let view = finished(&kernel, id).await;
    assert_eq!((view.state, view.outcome), (RunState::Cancelled, Some(RunOutcome::Unverified)), "{view:#?}");
    let data = data(&kernel, id).await;
    assert_eq!((&data["agent:a"]["ok"], &data["agent:b"]["ok"]), (&json!(true), &json!(true)), "{data:#}");
    for name in ["c", "d"] {
        assert_eq!(data[format!("agent:{name}")]["error"], "aborted before start");
    }
    assert_eq!((&data["selection"], &data["merge"]), (&Value::Null, &Value::Null));
    assert_eq!(data["synthesis"]["skipped"], "aborted");
    assert_eq!(data["candidate:a"]["changedLines"], 1);
    assert_eq!(left(&dir).1, Vec::<String>::new());
    assert_eq!(left(&dir).0.len(), 4);
    untouched.check();
}

/// Council 14.1: a cancelled one keeps what was written, and nothing of it in the user's tree.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_keeps_half_work_on_the_branch() {
    let world = project();
    let (kernel, dir) = (world.kernel().await, world.project());
    let untouched = Untouched::of(&dir);
    let script = format!("echo half > half.txt; touch '{0}'; sleep 600", world.root().join("begun").display());
    let agent = does(&world, "a", json!([{ "run": ["sh", "-c", script] }, { "say": "never" }]));
    let started = kernel.start(world.start(contest(vec![agent], json!({})))).await.unwrap();
    crate::support::happens("it works", || world.root().join("begun").exists()).await;
    kernel.cancel(started.run_id.as_str(), None).await.unwrap();
    let view = finished(&kernel, started.run_id.as_str()).await;
    assert_eq!(view.state, RunState::Cancelled);
    let (branches, trees) = left(&dir);
    assert_eq!((branches.len(), trees.len()), (1, 0), "{branches:?} {trees:?}");
    assert_eq!(git(&dir, &["show", &format!("{}:half.txt", branches[0])]), "half\n");
    untouched.check();
}

/// Council 14.1: an agent of its own worktree is merged and tidied away, and refused where a fan-out would be.
#[tokio::test(flavor = "multi_thread")]
async fn an_isolated_agent_is_merged_or_refused() {
    let world = project();
    let (kernel, dir) = (world.kernel().await, world.project());
    let untouched = Untouched::of(&dir);
    let spec = |model: String, more: Value| {
        let node = json!({ "id": "work", "kind": "agent", "prompt": "Write it.", "engine": "scripted", "model": model, "isolation": "worktree" });
        json!({ "name": "one", "contract": check(&["sh", "tests/check.sh"]), "nodes": [with(node, more)] })
    };
    let good = world.scenario(
        "good",
        json!([{ "times": 0, "steps": [
        { "write": { "path": "result.txt", "content": "good\n" } }, { "say": "written" },
    ] }]),
    );
    let (view, data) = run(&kernel, &world, spec(good, json!({}))).await;
    assert_eq!((view.state, view.outcome), (RunState::Completed, Some(RunOutcome::Verified)), "{view:#?} {data:#}");
    assert_eq!(view.nodes[0].output.as_deref(), Some("written"));
    assert_eq!(data["merge"]["kind"], "fast-forward");
    assert_eq!(left(&dir), (vec![], vec![]));
    assert_eq!(git(&dir, &["status", "--porcelain"]), "");
    untouched.check_merged("main");
    no_hooks(&world);

    // The user began to edit while it worked.
    let script = format!("echo mine >> '{}/README'; echo more > more.txt", dir.display());
    let late =
        world.scenario("late", json!([{ "times": 0, "steps": [{ "run": ["sh", "-c", script] }, { "say": "late" }] }]));
    let (view, data) = run(&kernel, &world, spec(late.clone(), json!({ "onFailure": "continue" }))).await;
    assert_eq!(view.state, RunState::Completed, "{view:#?}");
    assert_eq!(data["merge"]["code"], "tree_dirty", "{data:#}");
    assert_eq!(left(&dir), (vec![data["left"]["branches"][0].as_str().unwrap().to_owned()], vec![]));
    assert!(!dir.join("more.txt").exists());
    let (view, _) = run(&kernel, &world, spec(late, json!({}))).await;
    assert!(view.nodes[0].error.as_deref().unwrap().starts_with("tree_dirty: "), "{view:#?}");
}

/// WT: a worktree whose link is gone is not worked around, and what lies there stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_worktree_is_never_worked_around() {
    let world = project();
    let (kernel, dir) = (world.kernel().await, world.project());
    let untouched = Untouched::of(&dir);
    let broken = does(
        &world,
        "a",
        json!([
            { "write": { "path": "kept.txt", "content": "only here\n" } },
            { "run": ["rm", ".git"] },
            { "say": "broken" },
        ]),
    );
    let (view, data) = run(&kernel, &world, json!({ "name": "fan", "nodes": [fan(vec![broken])] })).await;
    assert_eq!(view.state, RunState::Failed, "{view:#?}");
    assert!(view.nodes[0].error.as_deref().unwrap().starts_with("worktree_failed: "), "{view:#?}");
    let tree = data["left"]["worktrees"][0].as_str().unwrap();
    assert_eq!(std::fs::read_to_string(Path::new(tree).join("kept.txt")).unwrap(), "only here\n");
    untouched.check();
}

/// What the map of a retry sees: work of a failed attempt is stored before the next one begins at the base again.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_begins_anew_and_loses_nothing() {
    let world = project();
    let (kernel, dir) = (world.kernel().await, world.project());
    let model = world.scenario("twice", json!([{ "times": 0, "steps": [
        { "run": ["sh", "-c", "test ! -e first.txt; echo \"$CLAWO_ATTEMPT\" > first.txt; test \"$CLAWO_ATTEMPT\" = 2 && echo good > result.txt || true"] },
        { "run": ["sh", "-c", "test \"$CLAWO_ATTEMPT\" = 2 || kill -9 $PPID"] },
        { "say": "done" },
    ] }]));
    let agents = vec![json!({ "name": "a", "engine": "scripted", "model": model })];
    let spec = contest(agents, json!({ "retry": { "max": 1, "backoffMs": 10 } }));
    let (view, data) = run(&kernel, &world, spec).await;
    assert_eq!((view.state, view.outcome), (RunState::Completed, Some(RunOutcome::Verified)), "{view:#?} {data:#}");
    assert_eq!(world.read("first.txt"), "2\n");
    let refs: BTreeMap<String, String> =
        git(&dir, &["for-each-ref", "--format=%(refname) %(objectname)", "refs/clawo"])
            .lines()
            .filter_map(|line| line.split_once(' ').map(|(name, id)| (name.to_owned(), id.to_owned())))
            .collect();
    let stored = refs.values().any(|id| {
        let found =
            std::process::Command::new("git").args(["show", &format!("{id}:first.txt")]).current_dir(&dir).output();
        found.unwrap().stdout == b"1\n"
    });
    assert!(stored, "the first attempt's work is gone: {refs:?}");
}
