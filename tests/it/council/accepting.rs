//! Deciding about a council's work: review, accept, reject, and going on after a rejection.

use claw_orchestrator::{
    git::Strategy,
    kernel::{Error, Kernel, councils::CouncilDraft},
    model::{Code, RunOutcome},
    nodes::council::{
        accept::{AcceptView, Wish},
        data::Status,
        disposition::MergeKind,
        review::MergePreview,
    },
};
use serde_json::{Value, json};

use super::{ABC, Ended, always, commit, member, round, sh, spec, then, vote, worker};
use crate::support::{World, check, finished, git, untouched::Untouched};

fn wish(strategy: Strategy, force: bool) -> Wish {
    Wish { strategy, message: None, force }
}

async fn accept(kernel: &Kernel, id: &str) -> Result<AcceptView, Error> {
    kernel.council_accept(id, wish(Strategy::Auto, false)).await
}

/// A council of A, B and C that agreed; A also reviewed B.
async fn agreed(world: &World) -> Ended {
    let mut work = commit("a.txt", "by A\n");
    work.extend(commit("reviews/A-on-B.md", "[APPROVE]\n"));
    let a = member(
        world,
        "A",
        vec![round(1, vec![vote(false)]), round(2, then(work, vote(true))), always(vec![vote(true)])],
    );
    Ended::of(world, spec(vec![a, worker(world, "B"), worker(world, "C")], json!({}))).await
}

/// Refs, worktrees and files of the user's repository.
fn state(world: &World) -> (String, String, String) {
    let dir = world.project();
    (
        git(&dir, &["for-each-ref", "--format=%(refname) %(objectname)"]),
        git(&dir, &["worktree", "list", "--porcelain"]),
        format!("{:?}", Untouched::of(&dir)),
    )
}

fn heads(world: &World) -> Vec<String> {
    let listed = git(&world.project(), &["for-each-ref", "--format=%(refname:short)", "refs/heads"]);
    listed.lines().map(str::to_owned).collect()
}

/// Council scenarios 10, 21 and 22: a fast-forward without plan and reviews; only what the council made is removed.
#[tokio::test(flavor = "multi_thread")]
async fn accepted_work_is_in_the_branch_and_nothing_of_the_council_stays() {
    let world = World::new();
    let dir = world.project();
    world.write("plan.md", "the user's own plan\n");
    git(&dir, &["add", "-A"]);
    git(&dir, &["commit", "-q", "-m", "a plan"]);
    let notes = world.root().join("council-notes");
    git(&dir, &["branch", "council/mine"]);
    git(&dir, &["worktree", "add", "-q", notes.to_str().unwrap(), "council/mine"]);
    let ended = agreed(&world).await;
    let (id, kernel) = (ended.view.run_id.to_string(), &ended.kernel);

    let before = state(&world);
    let review = kernel.council_review(&id).await.unwrap();
    assert_eq!(state(&world), before, "a review changes nothing");
    assert_eq!((review.status, review.merge_preview), (Status::Consensus, MergePreview::FastForward));
    let files: Vec<(&str, &str, Vec<&str>)> = review
        .changed_files
        .iter()
        .map(|f| (f.file.as_str(), f.change, f.members.iter().map(String::as_str).collect()))
        .collect();
    assert!(files.contains(&("a.txt", "added", vec!["A"])), "{files:?}");
    assert!(files.contains(&("b.txt", "added", vec!["B"])), "{files:?}");
    assert_eq!((review.plan_file.as_str(), review.plan_exists), ("council-plan.md", true));
    assert_eq!(review.reviews, ["reviews/A-on-B.md"]);
    assert_eq!((review.branches.len(), review.worktrees.len(), review.agent_summaries.len()), (4, 4, 3));
    assert!(review.reviewer_guidance.len() > 500 && review.votes.len() == 6);

    let accepted = accept(kernel, &id).await.unwrap();
    assert_eq!((accepted.merge_kind, accepted.merged), (MergeKind::FastForward, true));
    assert_eq!((accepted.branches_deleted.len(), accepted.worktrees_removed.len()), (4, 4), "{accepted:?}");
    assert!(accepted.cleanup_errors.is_empty() && accepted.plan_deleted, "{accepted:?}");
    assert_eq!(
        (accepted.reviews_deleted.as_slice(), accepted.tree_as_verified),
        (&["reviews/A-on-B.md".to_owned()][..], None)
    );
    assert_eq!(git(&dir, &["rev-parse", "HEAD"]).trim(), accepted.after);
    assert_eq!(git(&dir, &["status", "--porcelain"]), "");
    let tree = git(&dir, &["ls-tree", "-r", "--name-only", "main"]);
    assert_eq!(tree.lines().collect::<Vec<_>>(), ["README", "a.txt", "b.txt", "c.txt", "plan.md"]);
    assert_eq!((world.read("plan.md"), world.read("a.txt")), ("the user's own plan\n".into(), "by A\n".into()));
    assert!(!dir.join(".worktrees").exists() && notes.join("README").exists());
    assert_eq!(heads(&world), ["council/mine", "main"]);

    let again = accept(kernel, &id).await.unwrap();
    assert!(again.already_accepted);
    assert_eq!(AcceptView { already_accepted: false, ..again }, accepted);
    assert_eq!(kernel.council_status(&id, Default::default()).await.unwrap().status, Status::Accepted);
    assert_eq!(kernel.council_reject(&id, "no").await.unwrap_err().code, Code::CouncilAccepted);
    assert_eq!(kernel.council_review(&id).await.unwrap_err().code, Code::CouncilStateLost);
}

/// Council scenarios 4 and 21: two councils of one repository, the second by merge commit in the user's name.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_council_comes_in_by_a_merge_commit() {
    let world = World::new();
    let first = Ended::of(&world, spec(vec![worker(&world, "A")], json!({}))).await;
    let turns = vec![round(1, vec![vote(false)]), always(then(commit("other.txt", "x\n"), vote(true)))];
    let other = json!({ "name": "A", "engine": "scripted", "model": world.scenario("other", Value::Array(turns)) });
    let second = Ended::of(&world, spec(vec![other], json!({}))).await;
    let kernel = &second.kernel;
    accept(kernel, first.view.run_id.as_str()).await.unwrap();
    let id = second.view.run_id.as_str();
    let refused = kernel.council_accept(id, wish(Strategy::FastForwardOnly, true)).await.unwrap_err();
    assert_eq!(refused.code, Code::NotFastForward);
    assert_eq!(kernel.council_review(id).await.unwrap().merge_preview, MergePreview::MergeCommit);
    let accepted = accept(kernel, id).await.unwrap();
    assert_eq!(accepted.merge_kind, MergeKind::MergeCommit);
    let log = git(&world.project(), &["log", "-1", "--format=%an|%P|%B"]);
    assert!(log.starts_with("Test User|") && log.contains("council: Build the thing.") && log.contains(id), "{log}");
    assert_eq!((world.read("a.txt"), world.read("other.txt")), ("by A\n".into(), "x\n".into()));
    assert_eq!(heads(&world), ["main"]);
}

/// Council scenarios 6 and 21: what is in the way is named, and nothing has changed then.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_the_way_of_an_acceptance_is_named() {
    let world = World::new();
    let dir = world.project();
    world.write(".gitignore", "dist/\n");
    git(&dir, &["add", "-A"]);
    git(&dir, &["commit", "-q", "-m", "ignore"]);
    let work = vec![
        json!({ "write": { "path": "a.txt", "content": "by A\n" } }),
        json!({ "write": { "path": "dist/x", "content": "built\n" } }),
        sh("git add -A && git add -f dist/x && git commit -q -m work"),
    ];
    let turns = vec![round(1, vec![vote(false)]), round(2, then(work, vote(true))), always(vec![vote(true)])];
    let ended = Ended::of(&world, spec(vec![member(&world, "A", turns)], json!({}))).await;
    let (id, kernel) = (ended.view.run_id.to_string(), &ended.kernel);

    world.write("dist/x", "the user's\n");
    let before = state(&world);
    let error = accept(kernel, &id).await.unwrap_err();
    assert_eq!((error.code, &error.details.unwrap()["paths"]), (Code::WouldOverwrite, &json!(["dist/x"])));
    assert_eq!(state(&world), before);
    std::fs::remove_dir_all(dir.join("dist")).unwrap();

    world.write("stray.txt", "x");
    let before = state(&world);
    let error = accept(kernel, &id).await.unwrap_err();
    assert_eq!((error.code, &error.details.unwrap()["count"]), (Code::TreeDirty, &json!(1)));
    assert_eq!(state(&world), before);
    std::fs::remove_file(dir.join("stray.txt")).unwrap();

    world.write("a.txt", "by the user\n");
    git(&dir, &["add", "-A"]);
    git(&dir, &["commit", "-q", "-m", "mine"]);
    let before = state(&world);
    let review = kernel.council_review(&id).await.unwrap();
    assert_eq!((review.merge_preview, review.merge_conflicts), (MergePreview::Conflict, vec!["a.txt".to_owned()]));
    let error = accept(kernel, &id).await.unwrap_err();
    assert_eq!((error.code, &error.details.unwrap()["files"]), (Code::MergeConflict, &json!(["a.txt"])));
    assert_eq!(state(&world), before);

    // On another branch the ref moves and the files stay.
    git(&dir, &["reset", "-q", "--hard", "HEAD~1"]);
    git(&dir, &["checkout", "-q", "-b", "elsewhere"]);
    let accepted = accept(kernel, &id).await.unwrap();
    assert_eq!(git(&dir, &["rev-parse", "main"]).trim(), accepted.after);
    assert!(!dir.join("a.txt").exists());
    assert_eq!(heads(&world), ["elsewhere", "main"]);
    // The branch of a new one is gone before it is accepted.
    let ended = Ended::of(&world, spec(vec![worker(&world, "B")], json!({}))).await;
    git(&dir, &["checkout", "-q", "main"]);
    git(&dir, &["branch", "-q", "-D", "elsewhere"]);
    let error = accept(kernel, ended.view.run_id.as_str()).await.unwrap_err();
    assert_eq!(error.code, Code::BaseBranchMissing);
}

/// Council scenario 2, CO-3: refuted work needs force, and the tree that comes in is the one the checks saw.
#[tokio::test(flavor = "multi_thread")]
async fn refuted_work_needs_force() {
    let world = World::new();
    let mut spec = spec(ABC.map(|name| worker(&world, name)).into(), json!({}));
    spec["contract"] = json!({ "checks": [{ "type": "command", "cmd": "false" }] });
    let ended = Ended::of(&world, spec).await;
    let (id, kernel) = (ended.view.run_id.to_string(), &ended.kernel);
    let before = state(&world);
    let error = accept(kernel, &id).await.unwrap_err();
    let reasons = error.details.unwrap()["reasons"].clone();
    assert_eq!((error.code, reasons), (Code::AcceptNeedsForce, json!(["outcome_refuted"])));
    assert_eq!(state(&world), before);
    kernel.council_reject(&id, "fix it").await.unwrap();
    let error = accept(kernel, &id).await.unwrap_err();
    assert_eq!(error.details.unwrap()["reasons"], json!(["outcome_refuted", "status_rejected"]));
    let accepted = kernel.council_accept(&id, wish(Strategy::Auto, true)).await.unwrap();
    assert_eq!((accepted.merged, accepted.tree_as_verified), (true, Some(true)), "{accepted:?}");
    assert_eq!(world.read("b.txt"), "by B\n");
}

/// Council scenario 23: feedback on the integration branch only, a council that goes on, one acceptance for both.
#[tokio::test(flavor = "multi_thread")]
async fn rejected_work_goes_on_in_a_new_council() {
    let world = World::new();
    let ended = agreed(&world).await;
    let (id, kernel) = (ended.view.run_id.to_string(), &ended.kernel);
    let feedback = format!("The greeting is missing. {}", "Look again. ".repeat(250));
    let before = Untouched::of(&world.project());
    let rejected = kernel.council_reject(&id, &format!("  {feedback}  ")).await.unwrap();
    before.check();
    assert_eq!((rejected.feedback.as_str(), rejected.continue_from.as_str()), (feedback.trim(), id.as_str()));
    let plan = ended.show(&world, "integration", "plan.md");
    assert!(plan.contains(feedback.trim()) && plan.contains(&id), "{plan}");
    assert_eq!(git(&ended.worktree("integration"), &["status", "--porcelain"]), "");
    let view = kernel.council_status(&id, Default::default()).await.unwrap();
    assert_eq!((view.status, view.integration_commit), (Status::Rejected, Some(rejected.commit.clone())));
    let second = kernel.council_reject(&id, "And the farewell.").await.unwrap();
    assert_ne!(second.commit, rejected.commit);
    assert!(ended.show(&world, "integration", "plan.md").contains("The greeting is missing."));

    let draft = |continue_from: &str| CouncilDraft {
        fields: json!({ "continueFrom": continue_from, "maxRounds": 2 }).as_object().unwrap().clone(),
        project_dir: Some(world.project()),
        ..CouncilDraft::default()
    };
    let next = kernel.council_start(draft(&id)).await.unwrap().council;
    assert_eq!((next.task.as_str(), next.config.agents.len()), ("Build the thing.", 3));
    let error = kernel.council_start(draft(&id)).await.unwrap_err();
    assert!(error.code == Code::CouncilContinued && error.message.contains(&next.id), "{error}");
    finished(kernel, next.run_id.as_str()).await;
    assert_eq!(kernel.council_status(&id, Default::default()).await.unwrap().continued_by, Some(next.id.clone()));
    let asked = world.prompts("B");
    let planning = asked.iter().rfind(|prompt| prompt.contains("# Round 1 of")).unwrap();
    assert!(planning.contains("The greeting is missing.") && planning.contains("And the farewell."), "{planning}");
    let view = kernel.council_status(&next.id, Default::default()).await.unwrap();
    assert_eq!(view.base_commit.as_deref(), Some(git(&world.project(), &["rev-parse", "HEAD"]).trim()));
    let accepted = kernel.council_accept(&next.id, wish(Strategy::Auto, true)).await.unwrap();
    assert_eq!(accepted.branches_deleted.len(), 8, "{accepted:?}");
    assert_eq!(heads(&world), ["main"]);
    let tree = git(&world.project(), &["ls-tree", "-r", "--name-only", "main"]);
    assert_eq!(tree.lines().collect::<Vec<_>>(), ["README", "a.txt", "b.txt", "c.txt"]);
}

/// MG-5: what each passed alone is checked together before the branch moves; taken apart again, it comes in.
#[tokio::test(flavor = "multi_thread")]
async fn a_merge_that_breaks_the_contract_does_not_come_in() {
    let world = World::new();
    let dir = world.project();
    let apart = check(&["sh", "-c", "test -f a.txt && ! test -f users.txt"]);
    let mut spec = spec(ABC.iter().map(|name| worker(&world, name)).collect(), json!({}));
    spec["contract"] = apart;
    let ended = Ended::of(&world, spec).await;
    assert_eq!(ended.view.outcome, Some(RunOutcome::Verified), "{:#?}", ended.view);
    world.write("users.txt", "the user's\n");
    git(&dir, &["add", "-A"]);
    git(&dir, &["commit", "-q", "-m", "meanwhile"]);
    let (id, before) = (ended.view.run_id.to_string(), state(&world));
    for force in [false, true] {
        let error = ended.kernel.council_accept(&id, wish(Strategy::Auto, force)).await.unwrap_err();
        assert_eq!(error.code, Code::MergeNotVerified, "{error}");
        assert_eq!(state(&world), before);
    }
    git(&dir, &["rm", "-q", "users.txt"]);
    git(&dir, &["commit", "-q", "-m", "not after all"]);
    let accepted = accept(&ended.kernel, &id).await.unwrap();
    assert_eq!((accepted.merge_kind, accepted.tree_as_verified), (MergeKind::MergeCommit, Some(true)));
    assert!(dir.join("a.txt").exists());
}

/// WT-1: a member's work that nobody merged outlives its branch, under a ref of the run.
#[tokio::test(flavor = "multi_thread")]
async fn work_that_was_not_merged_is_still_there_after_a_forced_acceptance() {
    let world = World::new();
    let dir = world.project();
    let one = |name: &str| {
        let work = then(commit("x.txt", &format!("of {name}\n")), vote(true));
        member(&world, name, vec![round(1, vec![vote(false)]), round(2, work), always(vec![vote(true)])])
    };
    let ended = Ended::of(&world, spec(vec![one("A"), one("B")], json!({ "maxRounds": 2 }))).await;
    let id = ended.view.run_id.to_string();
    let tip = git(&dir, &["rev-parse", &ended.branch("B")]);
    assert_eq!(accept(&ended.kernel, &id).await.unwrap_err().code, Code::AcceptNeedsForce);
    let accepted = ended.kernel.council_accept(&id, wish(Strategy::Auto, true)).await.unwrap();
    assert!(accepted.cleanup_errors.is_empty(), "{accepted:?}");
    assert_eq!(heads(&world), ["main"]);
    let kept = git(&dir, &["for-each-ref", "--contains", tip.trim(), "--format=%(refname)"]);
    assert!(kept.contains(&format!("refs/clawo/runs/{id}/council/")), "{kept}");
    assert_eq!(world.read("x.txt"), "of A\n");
}
