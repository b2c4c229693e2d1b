//! Work that meets: conflicts, plans, what members leave half done.

use serde_json::{Value, json};

use super::{ABC, Ended, always, commit, member, round, sh, spec, then, vote};
use crate::support::{World, git};

fn world_with(path: &str, content: &str) -> World {
    let world = World::new();
    world.write(path, content);
    git(&world.project(), &["add", "-A"]);
    git(&world.project(), &["commit", "-q", "-m", "a file"]);
    world
}

/// Council scenario 7: who does not fit is told and resolves; an agreement before that is not the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_is_reported_and_resolved() {
    let world = world_with("x.txt", "base\n");
    let a = vec![
        round(1, vec![vote(false)]),
        round(2, then(commit("x.txt", "of A\n"), vote(true))),
        always(vec![vote(true)]),
    ];
    let resolve = sh("git merge -q $(git branch --list 'council/*/integration' --format '%(refname:short)') || \
                      { printf 'of A\\nof B\\n' > x.txt; git add -A; git commit -q -m 'both'; }");
    let b = vec![
        round(1, vec![vote(false)]),
        round(2, then(commit("x.txt", "of B\n"), vote(true))),
        round(3, vec![resolve, vote(true)]),
    ];
    let ended = Ended::of(&world, spec(vec![member(&world, "A", a), member(&world, "B", b)], json!({}))).await;
    assert_eq!(ended.status(), ("consensus", 3), "{:#?}", ended.view);
    let second = ended.doc("end:2");
    assert_eq!(second["merges"]["A"]["status"], "merged");
    assert_eq!(
        second["merges"]["B"],
        json!({ "status": "conflict", "files": [{ "path": "x.txt", "kind": "content" }] })
    );
    assert_eq!(second["conflicts"][0]["otherMembers"], json!(["A"]));
    assert_eq!(second["unmerged"], json!(["B"]));
    assert_eq!(second["disagreement"]["files"][0]["kind"], "conflict");
    assert_eq!(ended.doc("end:3")["unmerged"], json!([]));
    assert_eq!(ended.show(&world, "integration", "x.txt"), "of A\nof B\n");
    let told = |name: &str| world.prompts(name)[2].contains("## Conflict report");
    assert!(told("B") && !told("A"));
    let prompt = &world.prompts("B")[2];
    assert!(prompt.contains("x.txt: content") && prompt.contains("of A") && prompt.contains("work of: A"), "{prompt}");
}

/// Council scenario 8, first part.
#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_that_stays() {
    let world = world_with("x.txt", "base\n");
    let one = |name: &str| {
        let work = then(commit("x.txt", &format!("of {name}\n")), vote(true));
        member(&world, name, vec![round(1, vec![vote(false)]), round(2, work), always(vec![vote(true)])])
    };
    let ended = Ended::of(&world, spec(vec![one("A"), one("B")], json!({ "maxRounds": 4 }))).await;
    assert_eq!(ended.status(), ("max_rounds", 4));
    assert_eq!(ended.doc("ended")["unmerged"], json!(["B"]));
    let file = &ended.doc("end:4")["disagreement"]["files"][0];
    assert_eq!((file["path"].as_str(), file["kind"].as_str()), (Some("x.txt"), Some("conflict")));
    assert!(git(&ended.worktree("integration"), &["status", "--porcelain"]).is_empty());
}

/// Writes into the member's own section of the plan and commits.
fn plan(name: &str, text: &str) -> Value {
    sh(&format!(
        "sed -i 's/^### *{name}$/### {name}\\n\\n{text}/' plan.md && git add -A && git commit -q -m 'council(plan): {name} - plan'"
    ))
}

/// Council scenario 9, first part.
#[tokio::test(flavor = "multi_thread")]
async fn sections_of_the_plan_meet() {
    let world = World::new();
    let members = ABC.map(|name| {
        let line = format!("- [ ] task of {name}");
        member(&world, name, vec![round(1, vec![plan(name, &line), vote(false)]), always(vec![vote(true)])])
    });
    let ended = Ended::of(&world, spec(members.into(), json!({}))).await;
    assert_eq!(ended.status(), ("consensus", 2));
    let text = ended.show(&world, "integration", "plan.md");
    for name in ABC {
        assert!(text.contains(&format!("- [ ] task of {name}")), "{text}");
        assert_eq!(ended.doc("end:1")["merges"][name]["status"], "merged");
    }
    assert_eq!(ended.doc("end:1")["conflicts"], json!([]));
    assert!(ended.doc("end:1").get("planningViolations").is_none());
    assert_eq!(ended.doc("end:1")["disagreement"]["files"], json!([]));
}

/// Council scenario 9, second part.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_without_markers_is_quoted_to_its_author() {
    let world = World::new();
    let lost = sh("printf 'my own plan\\n' > plan.md; git add -A; git commit -q -m plan");
    let a = member(&world, "A", vec![round(1, vec![plan("A", "- [ ] of A"), vote(false)]), always(vec![vote(true)])]);
    let b = member(&world, "B", vec![round(1, vec![lost, vote(false)]), always(vec![vote(true)])]);
    let ended = Ended::of(&world, spec(vec![a, b], json!({}))).await;
    assert_eq!(ended.status(), ("consensus", 2));
    let text = ended.show(&world, "integration", "plan.md");
    assert!(text.contains("- [ ] of A") && !text.contains("my own plan"), "{text}");
    assert!(world.prompts("B")[1].contains("my own plan") && !world.prompts("A")[1].contains("my own plan"));
}

/// Council scenario 15: uncommitted files, commits beside the branch, a merge left half done.
#[tokio::test(flavor = "multi_thread")]
async fn what_members_leave_lying_is_collected() {
    let world = world_with("x.txt", "base\n");
    let loose = vec![json!({ "write": { "path": "loose.txt", "content": "x\n" } }), vote(false)];
    let detached =
        [sh("git checkout -q --detach")].into_iter().chain(commit("ahead.txt", "x\n")).chain([vote(true)]).collect();
    let half = sh("git checkout -q -b side && echo one > x.txt && git commit -qam one && git checkout -q - && \
                   echo two > x.txt && git commit -qam two && git merge -q side; true");
    let members = vec![
        member(&world, "A", vec![round(2, loose), always(vec![vote(false)])]),
        member(&world, "B", vec![round(2, detached), always(vec![vote(false)])]),
        member(&world, "C", vec![round(2, vec![half, vote(true)]), always(vec![vote(false)])]),
    ];
    let ended = Ended::of(&world, spec(members, json!({ "maxRounds": 3 }))).await;
    assert_eq!(ended.status(), ("max_rounds", 3), "{:#?}", ended.view);
    let files = ended.files(&world, "integration");
    assert!(files.contains(&"loose.txt".to_owned()) && files.contains(&"ahead.txt".to_owned()), "{files:?}");
    assert_eq!(ended.show(&world, "integration", "x.txt"), "two\n");
    assert_eq!(ended.doc("reply:2:A")["autoCommitted"], true);
    let message =
        git(&world.project(), &["log", "-1", "--format=%s", ended.doc("reply:2:A")["commit"].as_str().unwrap()]);
    assert_eq!(message.trim(), "council(round-2): A - uncommitted work");
    let note = ended.doc("reply:2:C")["notes"][0].as_str().unwrap();
    assert!(note.contains("half done") && note.contains("x.txt"), "{note}");
    let patch = &ended.doc("saved:2:C")["text"];
    assert!(patch.to_string().contains("<<<<<<<"), "{patch:#}");
    assert!(world.prompts("C")[2].contains("half done"));
    assert!(ended.view.nodes[0].error.is_none());
}

/// Council scenario 16: pushing fails, and who writes the user's branch is reported.
#[tokio::test(flavor = "multi_thread")]
async fn pushes_fail_and_the_users_branch_is_watched() {
    let world = World::new();
    let remote = world.root().join("remote.git");
    git(world.root(), &["init", "-q", "--bare", remote.to_str().unwrap()]);
    git(&world.project(), &["remote", "add", "origin", remote.to_str().unwrap()]);
    let push =
        sh("git push origin HEAD:refs/heads/stolen 2>push.log; echo status $? >> push.log; mv push.log ../pushed.txt");
    let touch = sh("git update-ref refs/heads/main $(git commit-tree -p main -m evil main^{tree})");
    let members = vec![
        member(&world, "A", vec![always(vec![push, vote(true)])]),
        member(&world, "B", vec![round(1, vec![touch, vote(true)]), always(vec![vote(true)])]),
    ];
    let before = git(&world.project(), &["rev-parse", "main"]);
    let ended = Ended::of(&world, spec(members, json!({}))).await;
    assert_eq!(git(&remote, &["for-each-ref"]), "");
    let pushed = std::fs::read_to_string(ended.worktree("pushed.txt")).unwrap();
    assert!(pushed.contains("council members never push") && pushed.contains("status 1"), "{pushed}");
    let moved = &ended.doc("end:1")["userMoved"];
    let after = git(&world.project(), &["rev-parse", "main"]);
    assert_eq!((moved["from"].as_str(), moved["to"].as_str()), (Some(before.trim()), Some(after.trim())));
    assert_ne!(before, after, "nothing is undone");
}
