//! Councils whose process dies: what is finished stays, what is not begins again, merges are done once.

use std::path::Path;

use claw_orchestrator::kernel::{Kernel, Role};
use serde_json::{Value, json};

use super::{ABC, Ended, always, commit, data, member, round, sh, spec, then, vote, worker};
use crate::{
    support::{World, git, happens},
    workflow_crash::Death,
};

/// A kernel of a process that dies with `death`.
async fn mortal(world: &World, death: &std::sync::Arc<Death>) -> Kernel {
    let base = world.kernel().await;
    Kernel::new(base.services().clone(), death.store(base.store().clone()), Role::Executor)
}

/// Waits until the process that has died does nothing any more.
async fn at_rest(kernel: &Kernel) {
    for _ in 0..2_000 {
        if kernel.executing() == 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the run is still executed");
}

/// Goes on with a run in another process.
async fn resumed(world: &World, run: &str) -> Ended {
    let kernel = world.kernel().await;
    kernel.resume(run).await.unwrap();
    Ended::after(&kernel, run).await
}

/// Council scenario 17.
#[tokio::test(flavor = "multi_thread")]
async fn finished_members_are_not_asked_again() {
    let world = World::new();
    let unfinished = |name: &str| {
        let work = sh(&format!(
            "if test $CLAWO_ATTEMPT = 1; then echo half > half-{name}; git add -A; git commit -q -m half; echo more > more-{name}; \
             touch ../working-{name}; sleep 600; fi"
        ));
        let steps = [vec![work], commit(&format!("{}.txt", name.to_lowercase()), "x\n"), vec![vote(true)]].concat();
        member(&world, name, vec![round(1, vec![vote(false)]), always(steps)])
    };
    let members = vec![worker(&world, "A"), unfinished("B"), unfinished("C")];
    let death = Death::new(u64::MAX);
    let first = mortal(&world, &death).await;
    let run = first.start(world.start(spec(members, json!({})))).await.unwrap().run_id.to_string();
    let working = |name: &str| {
        let found = std::fs::read_dir(world.project().join(".worktrees")).into_iter().flatten().flatten();
        found.into_iter().any(|dir| dir.path().join(format!("working-{name}")).exists())
    };
    happens("B and C work", || working("B") && working("C")).await;
    for _ in 0..500 {
        if data(&first, &run).await.get("council:1:reply:2:A").is_some() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    death.come();
    at_rest(&first).await;
    let ended = resumed(&world, &run).await;
    assert_eq!(ended.status(), ("consensus", 2), "{:#?}", ended.view);
    assert_eq!(world.prompts("A").len(), 2);
    assert_eq!((world.prompts("B").len(), world.prompts("C").len()), (3, 3));
    assert_eq!(ended.doc("reply:2:A")["sessionKey"].as_str().unwrap(), format!("{run}-A-r2"));
    let start = ended.doc("start:2")["members"]["B"].as_str().unwrap();
    for name in ["B", "C"] {
        let reply = ended.doc(&format!("reply:2:{name}"));
        assert_eq!(reply["sessionKey"].as_str().unwrap(), format!("{run}-{name}-r2-a2"));
        let kept = reply["salvageRef"].as_str().unwrap();
        assert!(kept.ends_with(&format!("/salvage/{name}-r2-1")), "{kept}");
        let files = git(&world.project(), &["ls-tree", "-r", "--name-only", kept]);
        assert!(files.contains(&format!("half-{name}")) && files.contains(&format!("more-{name}")), "{files}");
        let parent = git(&world.project(), &["rev-parse", &format!("{}^", reply["commit"].as_str().unwrap())]);
        assert_eq!(parent.trim(), start, "{name} began where the round began");
    }
    let files = ended.files(&world, "integration");
    assert_eq!(files, ["README", "a.txt", "b.txt", "c.txt", "plan.md"]);
    assert_eq!(ended.view.consensus_votes.len(), 6, "{:#?}", ended.view.consensus_votes);
}

/// Everything a council must come to, whatever happened on the way.
fn essence(world: &World, ended: &Ended) -> Value {
    let mut votes: Vec<String> =
        ended.view.consensus_votes.iter().map(|v| format!("{}{}{}", v["round"], v["agent"], v["vote"])).collect();
    votes.sort();
    json!({
        "state": ended.view.state.as_str(), "status": ended.doc("ended")["status"], "unmerged": ended.doc("ended")["unmerged"],
        "rounds": ended.doc("ended")["rounds"], "votes": votes, "merges": ended.doc("end:2")["merges"],
        "tree": git(&world.project(), &["rev-parse", &format!("{}^{{tree}}", ended.branch("integration"))]),
        "clean": git(&ended.worktree("integration"), &["status", "--porcelain"]),
    })
}

/// Two members that fit and one that does not fit the first.
fn meeting(world: &World) -> Value {
    let one = |name: &str, path: &str| {
        let work = then(commit(path, &format!("of {name}\n")), vote(true));
        member(world, name, vec![round(1, vec![vote(false)]), always(work)])
    };
    spec(vec![one("A", "x.txt"), one("B", "y.txt"), one("C", "x.txt")], json!({ "maxRounds": 2 }))
}

/// Council scenario 18, the record: a death with every commit of the log leads to the same end.
#[tokio::test(flavor = "multi_thread")]
async fn every_death_leads_to_the_same_end() {
    let life = async |after: u64| {
        let world = World::new();
        let death = Death::new(after);
        let first = mortal(&world, &death).await;
        let Ok(started) = first.start(world.start(meeting(&world))).await else { panic!("not started") };
        let run = started.run_id.to_string();
        let ended = loop {
            let record = first.record(&run).await;
            if death.has_come() {
                at_rest(&first).await;
                break resumed(&world, &run).await;
            }
            if record.is_ok_and(|record| record.state.is_terminal()) {
                break Ended::after(&first, &run).await;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        };
        (essence(&world, &ended), death.commits())
    };
    let (calm, commits) = life(u64::MAX).await;
    assert_eq!((calm["status"].as_str(), &calm["unmerged"]), (Some("max_rounds"), &json!(["C"])), "{calm:#}");
    // The first commits of a life make the run and enter the node; every third one keeps the test short.
    for after in (2..commits).step_by(3) {
        assert_eq!(life(after).await.0, calm, "after {after} of {commits} commits");
    }
}

/// Council scenario 18, merges: whatever part of a round's merges was done, and with one left open, the rest is done once.
#[tokio::test(flavor = "multi_thread")]
async fn merges_are_taken_up_where_they_stopped() {
    let mut calm = None;
    for (done, open) in
        [(0, None), (0, Some("A")), (1, None), (1, Some("B")), (1, Some("C")), (2, None), (2, Some("C"))]
    {
        let world = World::new();
        let death = Death::at("council:1:end:2");
        let first = mortal(&world, &death).await;
        let run = first.start(world.start(meeting(&world))).await.unwrap().run_id.to_string();
        happens("the merges are done", || death.has_come()).await;
        at_rest(&first).await;
        let data = data(&first, &run).await;
        let layout = &data["council:1:layout"];
        let short = layout["shortId"].as_str().unwrap();
        let tree = Path::new(layout["top"].as_str().unwrap()).join(".worktrees").join(short).join("integration");
        let start = data["council:1:start:2"]["integration"].as_str().unwrap();
        git(&tree, &["reset", "-q", "--hard", start]);
        let name = |member: &str| format!("council/{short}/{member}");
        for member in ABC.iter().take(done) {
            git(
                &tree,
                &["-c", "user.name=x", "-c", "user.email=x", "merge", "-q", "--no-ff", "-m", "by hand", &name(member)],
            );
        }
        if let Some(member) = open {
            // It ends with a conflict for some.
            let merge = ["merge", "-q", "--no-ff", "--no-commit", &name(member)];
            std::process::Command::new("git").args(merge).current_dir(&tree).output().unwrap();
            assert!(!git(&tree, &["status", "--porcelain"]).is_empty(), "{done} {open:?}");
        }
        let ended = resumed(&world, &run).await;
        let essence = essence(&world, &ended);
        assert_eq!(*calm.get_or_insert_with(|| essence.clone()), essence, "{done} merges done, {open:?} open");
        assert_eq!(world.prompts("A").len(), 2);
        let merges = git(
            &world.project(),
            &["log", "--merges", "--format=%s", &format!("{start}..{}", ended.branch("integration"))],
        );
        assert_eq!(merges.lines().count(), 2, "{merges}");
    }
}

/// Council section 8: what is missing is made again, and a commit that is gone is told.
#[tokio::test(flavor = "multi_thread")]
async fn missing_worktrees_and_branches_are_made_again() {
    for lose_commit in [false, true] {
        let world = World::new();
        let death = Death::at("council:1:end:2");
        let first = mortal(&world, &death).await;
        let run = first.start(world.start(meeting(&world))).await.unwrap().run_id.to_string();
        happens("the merges are done", || death.has_come()).await;
        at_rest(&first).await;
        let data = data(&first, &run).await;
        let short = data["council:1:layout"]["shortId"].as_str().unwrap();
        let folder = world.project().join(".worktrees").join(short);
        std::fs::remove_dir_all(folder.join("A")).unwrap();
        std::fs::remove_dir_all(folder.join("integration")).unwrap();
        git(&world.project(), &["worktree", "prune"]);
        git(&world.project(), &["branch", "-q", "-D", &format!("council/{short}/A")]);
        let commit = data["council:1:reply:2:C"]["commit"].as_str().unwrap();
        if lose_commit {
            git(&folder.join("C"), &["update-ref", &format!("refs/heads/council/{short}/C"), "main"]);
            let object = world.project().join(".git/objects").join(&commit[..2]).join(&commit[2..]);
            std::fs::remove_file(object).unwrap();
        }
        let ended = resumed(&world, &run).await;
        if lose_commit {
            let error = ended.view.nodes[0].error.clone().unwrap();
            assert!(error.starts_with("council_state_lost: ") && error.contains(commit), "{error}");
            continue;
        }
        assert_eq!((ended.status(), &ended.doc("ended")["unmerged"]), (("max_rounds", 2), &json!(["C"])));
        assert_eq!(ended.show(&world, "integration", "x.txt"), "of A\n");
    }
}
