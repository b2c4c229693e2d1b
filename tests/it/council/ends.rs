//! Other ends than an agreement, and what comes after an end.

use claw_orchestrator::model::{RunOutcome, RunState};
use serde_json::json;

use super::{Ended, always, commit, member, round, sh, spec, then, vote, worker};
use crate::support::{World, check, git, happens, of_run, untouched::Untouched};

/// Council scenario 20: the processes are gone, what was being done is on the branches, the worktrees are gone.
#[tokio::test(flavor = "multi_thread")]
async fn an_abort_keeps_the_work() {
    let world = World::new();
    let turns = |name: &str| {
        let file = json!({ "write": { "path": format!("{name}.txt"), "content": "half\n" } });
        let steps = vec![
            file,
            json!({ "spawn": { "argv": ["sleep", "600"] } }),
            sh("touch \"../begun-$(basename \"$PWD\")\""),
            json!("hang"),
        ];
        member(&world, name, vec![always(steps)])
    };
    let members = vec![turns("A"), turns("B")];
    let kernel = world.kernel().await;
    let run = kernel.start(world.start(spec(members, json!({})))).await.unwrap().run_id.to_string();
    let begun = |name: &str| {
        let found = std::fs::read_dir(world.project().join(".worktrees")).into_iter().flatten().flatten();
        found.into_iter().any(|dir| dir.path().join(format!("begun-{name}")).exists())
    };
    happens("both work", || begun("A") && begun("B")).await;
    kernel.cancel(&run, None).await.unwrap();
    let ended = Ended::after(&kernel, &run).await;
    assert_eq!(ended.view.state, RunState::Cancelled);
    assert_eq!(ended.status(), ("aborted", 0));
    assert!(of_run(&run).is_empty(), "{:?}", of_run(&run));
    for name in ["A", "B"] {
        assert!(!ended.worktree(name).exists());
        assert_eq!(ended.show(&world, name, &format!("{name}.txt")), "half\n");
        let message = git(&world.project(), &["log", "-1", "--format=%s", &ended.branch(name)]);
        assert_eq!(message.trim(), format!("council(abort): {name} - uncommitted work"));
    }
    assert!(ended.worktree("integration").exists());
}

/// LW-6: a transcript that cannot be written costs nothing but itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_transcript_that_fails_ends_nothing() {
    let world = World::new();
    std::fs::create_dir_all(world.home()).unwrap();
    std::fs::write(world.home().join("council-logs"), "in the way").unwrap();
    let ended = Ended::of(&world, spec(vec![worker(&world, "A"), worker(&world, "B")], json!({}))).await;
    assert_eq!(ended.status(), ("consensus", 2));
    assert!(ended.worktree("A").join("a.txt").exists() && ended.worktree("B").join("b.txt").exists());
}

/// A council that takes too long ends as an error and keeps what was done.
#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_the_node() {
    let world = World::new();
    let steps = vec![json!({ "write": { "path": "half.txt", "content": "x\n" } }), json!("hang")];
    let members = vec![member(&world, "A", vec![round(1, vec![vote(false)]), always(steps)])];
    let ended = Ended::of(&world, spec(members, json!({ "timeoutMs": 6_000, "agentTimeoutMs": 60_000 }))).await;
    assert_eq!(ended.status(), ("error", 1));
    assert_eq!(ended.doc("ended")["errorCode"], "timeout");
    assert_eq!((ended.view.state, ended.view.outcome), (RunState::Failed, Some(RunOutcome::Unverified)));
    assert_eq!(ended.show(&world, "A", "half.txt"), "x\n");
    assert!(!ended.worktree("A").exists());
}

/// A later visit goes on where the first one ended, knows what failed, and counts from the first base.
#[tokio::test(flavor = "multi_thread")]
async fn a_later_visit_repairs() {
    let world = World::new();
    let before = Untouched::of(&world.project());
    let base = git(&world.project(), &["rev-parse", "HEAD"]);
    let repair = json!({ "match": "Repair brief", "times": 0, "steps": then(commit("value", "2\n"), vote(true)) });
    let members = vec![member(&world, "A", vec![repair, always(then(commit("value", "1\n"), vote(true)))])];
    let mut spec = spec(members, json!({ "maxRounds": 1 }));
    spec["contract"] = check(&["grep", "-qx", "2", "value"]);
    spec["nodes"].as_array_mut().unwrap().extend([
        json!({ "id": "verify", "kind": "verifier", "contract": "run", "onFailure": "continue" }),
        json!({ "id": "again", "kind": "router", "routes": [{ "when": { "type": "node_failed", "node": "verify" }, "to": "main" }] }),
    ]);
    let ended = Ended::of(&world, spec).await;
    assert_eq!(
        (ended.view.state, ended.view.outcome),
        (RunState::Completed, Some(RunOutcome::Verified)),
        "{:#?}",
        ended.view
    );
    let (first, second) = (ended.doc("layout"), &ended.data["council:2:layout"]);
    assert_eq!(second["councilId"], format!("{}-main-v2", ended.view.run_id));
    assert_ne!(first["shortId"], second["shortId"]);
    assert_eq!((second["baseCommit"].as_str(), second["baseBranch"].as_str()), (Some(base.trim()), Some("main")));
    assert_eq!(second["startCommit"], ended.doc("ended")["integration"]);
    assert!(world.prompts("A")[1].contains("## What happened before"), "{}", world.prompts("A")[1]);
    before.check();
}

/// Council scenario 4, first part, CO-7: two councils with the same names at once.
#[tokio::test(flavor = "multi_thread")]
async fn two_councils_in_one_repository() {
    let world = World::new();
    let spec = || spec(vec![worker(&world, "A"), worker(&world, "B")], json!({}));
    let kernel = world.kernel().await;
    let (one, two) = tokio::join!(kernel.start(world.start(spec())), kernel.start(world.start(spec())));
    let (one, two) = (one.unwrap().run_id, two.unwrap().run_id);
    let one = Ended::after(&kernel, one.as_str()).await;
    let two = Ended::after(&kernel, two.as_str()).await;
    for ended in [&one, &two] {
        assert_eq!(ended.status(), ("consensus", 2), "{:#?}", ended.view);
        assert_eq!(ended.files(&world, "integration"), ["README", "a.txt", "b.txt", "plan.md"]);
    }
    assert_ne!(one.doc("layout")["shortId"], two.doc("layout")["shortId"]);
    assert_ne!(one.doc("reply:1:A")["sessionKey"], two.doc("reply:1:A")["sessionKey"]);
    let branches = git(&world.project(), &["for-each-ref", "--format=%(refname)", "refs/heads/council/"]);
    assert_eq!(branches.lines().count(), 6, "{branches}");
}

/// Council scenario 23, last part: a council that goes on with another one starts at its tip and is told what was.
#[tokio::test(flavor = "multi_thread")]
async fn a_council_goes_on_with_another() {
    let world = World::new();
    let one = |name: &str| {
        let work = then(commit("x.txt", &format!("of {name}\n")), vote(true));
        member(&world, name, vec![always(work)])
    };
    let first = Ended::of(&world, spec(vec![one("A"), one("B")], json!({ "maxRounds": 1 }))).await;
    assert_eq!(first.doc("ended")["unmerged"], json!(["B"]));
    let id = first.doc("layout")["councilId"].as_str().unwrap();
    let base = git(&world.project(), &["rev-parse", "main"]);
    let second =
        Ended::of(&world, spec(vec![worker(&world, "A")], json!({ "continueFrom": id, "maxRounds": 2 }))).await;
    assert_eq!(second.status(), ("consensus", 2), "{:#?}", second.view);
    let layout = second.doc("layout");
    assert_eq!(
        (&layout["startCommit"], layout["continueFrom"].as_str()),
        (&first.doc("ended")["integration"], Some(id))
    );
    assert_eq!(layout["baseCommit"].as_str(), Some(base.trim()));
    let prompts = world.prompts("A");
    assert!(
        prompts[1].contains("## What happened before") && prompts[1].contains("members whose work is not merged"),
        "{}",
        prompts[1]
    );
    assert_eq!(second.show(&world, "integration", "x.txt"), "of A\n");
    let unknown = Ended::of(&world, spec(vec![worker(&world, "A")], json!({ "continueFrom": "nobody" }))).await;
    assert!(
        unknown.view.nodes[0].error.as_ref().unwrap().starts_with("run_not_found: continueFrom"),
        "{:#?}",
        unknown.view
    );
}

/// Council scenario 5 for a council of a spec: refused before anything is made.
#[tokio::test(flavor = "multi_thread")]
async fn a_checkout_that_will_not_do() {
    let world = World::new();
    git(&world.project(), &["checkout", "-q", "--detach"]);
    let refused = Ended::of(&world, spec(vec![worker(&world, "A")], json!({}))).await;
    assert!(refused.view.nodes[0].error.as_ref().unwrap().starts_with("git_detached_head: "), "{:#?}", refused.view);
    assert_eq!(refused.doc("ended")["errorCode"], "git_detached_head");
    git(&world.project(), &["checkout", "-q", "main"]);
    git(&world.project(), &["branch", "council"]);
    let refused = Ended::of(&world, spec(vec![worker(&world, "A")], json!({}))).await;
    assert!(refused.view.nodes[0].error.as_ref().unwrap().starts_with("worktree_failed: "), "{:#?}", refused.view);
    assert!(!world.project().join(".worktrees").exists());
    let branches = git(&world.project(), &["for-each-ref", "--format=%(refname)", "refs/heads/"]);
    assert_eq!(branches.lines().collect::<Vec<_>>(), ["refs/heads/council", "refs/heads/main"]);
    world.write("loose", "x\n");
    git(&world.project(), &["branch", "-D", "-q", "council"]);
    let refused = Ended::of(&world, spec(vec![worker(&world, "A")], json!({}))).await;
    assert!(refused.view.nodes[0].error.as_ref().unwrap().starts_with("tree_dirty: 1 paths"), "{:#?}", refused.view);
    let allowed = Ended::of(&world, spec(vec![worker(&world, "A")], json!({ "allowDirty": true }))).await;
    assert_eq!(allowed.status(), ("consensus", 2));
    assert!(allowed.doc("layout")["warnings"][0].as_str().unwrap().contains("1 uncommitted"));
    assert!(!allowed.files(&world, "integration").contains(&"loose".to_owned()));
}
