//! Rounds, votes and when they end.

use claw_orchestrator::model::{RunOutcome, RunState};
use serde_json::{Value, json};

use super::{ABC, Ended, always, commit, member, round, sh, spec, then, vote, worker};
use crate::support::{World, check, git, untouched::Untouched, with};

/// Council scenario 1, CO-6.
#[tokio::test(flavor = "multi_thread")]
async fn all_agree_in_round_two_and_the_user_sees_nothing() {
    let world = World::new();
    let before = Untouched::of(&world.project());
    let members = ABC.map(|name| worker(&world, name)).into();
    let ended = Ended::of(&world, spec(members, json!({}))).await;
    assert_eq!(
        (ended.view.state, ended.view.outcome),
        (RunState::Completed, Some(RunOutcome::Unverified)),
        "{:#?}",
        ended.view
    );
    assert_eq!(ended.status(), ("consensus", 2));
    assert_eq!(ended.files(&world, "integration"), ["README", "a.txt", "b.txt", "c.txt", "plan.md"]);
    before.check();
    let layout = ended.doc("layout");
    assert_eq!(
        (layout["baseBranch"].as_str(), layout["councilId"].as_str()),
        (Some("main"), Some(ended.view.run_id.as_str()))
    );
    assert!(git(&world.project(), &["config", "--list", "--local"]).contains("user.name=Test User"));
    let author = git(&world.project(), &["log", "-1", "--format=%an <%ae> %cn", &ended.branch("B")]);
    assert!(author.starts_with("B (council) <B@council.invalid> B (council)"), "{author}");
    let merge = git(&world.project(), &["log", "-1", "--format=%s by %an", &ended.branch("integration")]);
    assert_eq!(merge.trim(), "council(round-2): merge C by clawo runtime");
    assert_eq!(ended.view.consensus_votes.len(), 6);
    let vote = &ended.view.consensus_votes[0];
    assert_eq!(
        (vote["round"].as_u64(), vote["vote"].as_str(), vote["source"].as_str()),
        (Some(1), Some("NO"), Some("strict"))
    );
    let session = ended.doc("reply:2:A")["sessionKey"].as_str().unwrap();
    assert_eq!(session, format!("{}-A-r2", ended.view.run_id));
    let prompts = world.prompts("A");
    assert!(
        prompts[0].contains("# Round 1 of 15: planning") && prompts[1].contains("A (you), round 1, voted NO"),
        "{}",
        prompts[1]
    );
    assert!(ended.view.nodes[0].output.as_ref().unwrap().contains("Status: consensus"));
    let log = world.home().join("council-logs").join(format!("{}.md", ended.view.run_id));
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&log).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert!(std::fs::read_to_string(log).unwrap().contains("Everything that was asked of me is done"));
}

/// Council scenario 3: the contract judges the integration worktree, where the work is and the user's tree is not.
#[tokio::test(flavor = "multi_thread")]
async fn a_contract_judges_the_members_work() {
    let world = World::new();
    let members = ABC.map(|name| worker(&world, name)).into();
    let spec = with(spec(members, json!({})), json!({ "contract": check(&["sh", "-c", "cat a.txt b.txt c.txt"]) }));
    let ended = Ended::of(&world, spec).await;
    assert_eq!(
        (ended.view.state, ended.view.outcome),
        (RunState::Completed, Some(RunOutcome::Verified)),
        "{:#?}",
        ended.view
    );
    assert!(!world.project().join("a.txt").exists());
    let bundle = world.run_dir(ended.view.run_id.as_str()).join("evidence/__verify-v01-01/bundle.json");
    let bundle: Value = serde_json::from_slice(&std::fs::read(bundle).unwrap()).unwrap();
    assert!(bundle.to_string().contains(".worktrees"), "{bundle:#}");
    assert!(!ended.worktree(".base").exists());
}

/// Council scenario 3, VF: a member that weakens a test of the base is found out.
#[tokio::test(flavor = "multi_thread")]
async fn tests_of_the_base_are_protected() {
    let world = World::new();
    world.write("tests/it_works.sh", "exit 1\n");
    git(&world.project(), &["add", "-A"]);
    git(&world.project(), &["commit", "-q", "-m", "a test"]);
    let work = then(commit("tests/it_works.sh", "exit 0\n"), vote(true));
    let members = vec![member(&world, "A", vec![always(work)])];
    let spec =
        with(spec(members, json!({ "maxRounds": 1 })), json!({ "contract": check(&["sh", "tests/it_works.sh"]) }));
    let ended = Ended::of(&world, spec).await;
    assert_eq!(ended.view.outcome, Some(RunOutcome::Refuted), "{:#?}", ended.view);
    assert!(ended.view.error.as_ref().unwrap().contains("protected-tests: 1 of 1"), "{:#?}", ended.view);
}

/// Council scenario 10: a plan of the user's stays what it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_of_the_users_is_left_alone() {
    let world = World::new();
    world.write("plan.md", "mine\n");
    git(&world.project(), &["add", "-A"]);
    git(&world.project(), &["commit", "-q", "-m", "a plan"]);
    let ended = Ended::of(&world, spec(vec![worker(&world, "A")], json!({}))).await;
    assert_eq!(ended.doc("layout")["planFile"], "council-plan.md");
    assert_eq!(ended.show(&world, "integration", "plan.md"), "mine\n");
    assert!(ended.show(&world, "integration", "council-plan.md").contains("Build the thing."));
}

/// Council scenario 34: paths of every kind; a project below the top.
#[tokio::test(flavor = "multi_thread")]
async fn odd_paths_and_linked_worktrees() {
    let world = World::new();
    world.write("sub 'dir' ü/lib.txt", "x\n");
    git(&world.project(), &["add", "-A"]);
    git(&world.project(), &["commit", "-q", "-m", "a folder"]);
    let linked = world.root().join("linked \"tree\" é");
    git(&world.project(), &["worktree", "add", "-q", "-b", "other", linked.to_str().unwrap()]);
    let link = world.root().join("a link");
    std::os::unix::fs::symlink(&linked, &link).unwrap();
    for dir in [world.project(), linked, link] {
        let dir = dir.join("sub 'dir' ü");
        let members = ABC.map(|name| worker(&world, name)).into();
        let ended = Ended::of(&world, spec(members, json!({ "projectDir": dir }))).await;
        assert_eq!(ended.status(), ("consensus", 2), "{:#?}", ended.view);
        let files = git(&world.project(), &["ls-tree", "-rz", "--name-only", &ended.branch("integration")]);
        for file in ["a.txt", "b.txt", "c.txt", "plan.md"] {
            assert!(files.contains(&format!("sub 'dir' ü/{file}\0")), "{files}");
        }
        assert_eq!(ended.doc("layout")["prefix"], "sub 'dir' ü");
    }
    assert_eq!(git(&world.project(), &["status", "--porcelain"]), "");
}

/// The rounds are used up; a member that plans does not build.
#[tokio::test(flavor = "multi_thread")]
async fn rounds_are_used_up_and_early_code_is_noted() {
    let world = World::new();
    let turns = vec![always(then(commit("early.txt", "x\n"), vote(false)))];
    let ended = Ended::of(&world, spec(vec![member(&world, "A", turns)], json!({ "maxRounds": 2 }))).await;
    assert_eq!(ended.status(), ("max_rounds", 2));
    assert_eq!(ended.doc("end:1")["planningViolations"]["A"], json!(["early.txt"]));
    assert!(ended.files(&world, "integration").contains(&"early.txt".to_owned()));
}

/// Council scenario 19, first part: words of the operator reach every prompt of the next round once, in order, and
/// keep an agreement from being the end.
#[tokio::test(flavor = "multi_thread")]
async fn injections_reach_the_next_round() {
    let world = World::new();
    let gate = world.root().join("go");
    let wait = sh(&format!("while ! test -e '{}'; do sleep 0.02; done", gate.display()));
    let turns =
        |name: &str| member(&world, name, vec![round(1, vec![wait.clone(), vote(true)]), always(vec![vote(true)])]);
    let members = vec![turns("A"), turns("B")];
    let kernel = world.kernel().await;
    let run = kernel.start(world.start(spec(members, json!({})))).await.unwrap().run_id;
    crate::support::happens("round 1 is there", || !world.prompts("A").is_empty() && !world.prompts("B").is_empty())
        .await;
    let node = claw_orchestrator::model::NodeId::parse("main").unwrap();
    assert_eq!(kernel.inject(&run, &node, "first word").await.unwrap(), 2);
    assert_eq!(kernel.inject(&run, &node, "second word").await.unwrap(), 2);
    std::fs::write(gate, "").unwrap();
    let ended = Ended::after(&kernel, run.as_str()).await;
    assert_eq!(ended.status(), ("consensus", 2));
    for name in ["A", "B"] {
        let prompts = world.prompts(name);
        assert!(!prompts[0].contains("word") && prompts.len() == 2);
        let at = |needle: &str| prompts[1].find(needle).unwrap();
        assert!(at("# Round 2") < at("first word") && at("first word") < at("second word"));
        assert_eq!(prompts[1].matches("first word").count(), 1);
    }
}
