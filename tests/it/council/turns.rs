//! A member's turn: empty and short answers, failures, sessions, money.

use serde_json::{Value, json};

use super::{Ended, always, commit, member, round, sh, spec, then, vote, worker};
use crate::support::{World, until};

fn say(text: &str) -> Vec<Value> {
    vec![json!({ "say": text })]
}

fn once(steps: Vec<Value>) -> Value {
    let mut turn = json!({});
    turn["steps"] = Value::Array(steps);
    turn
}

/// Council scenarios 11 and 12: who says nothing is asked again, who says too little is asked for the report, and who
/// says much without a vote is not asked.
#[tokio::test(flavor = "multi_thread")]
async fn empty_short_and_long_answers() {
    let world = World::new();
    let members = vec![
        member(&world, "A", vec![once(say("")), once(say("")), always(vec![vote(true)])]),
        member(&world, "B", vec![once(say("done")), once(say("still done")), always(say("[CONSENSUS: YES]"))]),
        member(&world, "C", vec![always(say(&"long ".repeat(8_000)))]),
    ];
    let ended = Ended::of(&world, spec(members, json!({ "maxRounds": 1 }))).await;
    let a = ended.doc("reply:1:A");
    assert_eq!((&a["emptyRetries"], &a["followUps"], &a["consensus"]), (&json!(2), &json!(0), &json!(true)), "{a:#}");
    let b = ended.doc("reply:1:B");
    assert_eq!((&b["emptyRetries"], &b["followUps"], &b["consensus"]), (&json!(0), &json!(2), &json!(true)), "{b:#}");
    assert_eq!(b["tail"], "[CONSENSUS: YES]");
    let c = ended.doc("reply:1:C");
    assert_eq!((&c["followUps"], &c["consensus"], &c["consensusSource"]), (&json!(0), &json!(false), &json!("none")));
    assert_eq!((c["truncated"].as_bool(), c["tail"].as_str().unwrap().len()), (Some(true), 4_000));
    assert_eq!(["A", "B", "C"].map(|name| world.prompts(name).len()), [3, 3, 1]);
}

/// Council scenario 13, first part, CO-1: who does not answer is a no and is shown.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_member_counts_as_no_and_its_work_is_merged() {
    let world = World::new();
    let work = then(commit("c.txt", "x\n"), json!({ "exit": 1 }));
    let c = member(&world, "C", vec![round(2, work), always(vec![vote(true)])]);
    let ended = Ended::of(&world, spec(vec![worker(&world, "A"), worker(&world, "B"), c], json!({}))).await;
    assert_eq!(ended.status(), ("consensus", 3));
    let reply = ended.doc("reply:2:C");
    assert!(reply["tail"].as_str().unwrap().starts_with("Error: crashed"), "{reply:#}");
    assert_eq!((&reply["consensus"], reply["error"].is_string()), (&json!(false), true));
    assert_eq!(ended.doc("end:2")["merges"]["C"]["status"], "merged");
    assert!(ended.files(&world, "integration").contains(&"c.txt".to_owned()));
}

/// Council scenario 13, second part.
#[tokio::test(flavor = "multi_thread")]
async fn two_silent_rounds_end_the_council() {
    let world = World::new();
    let turns = || vec![round(1, vec![vote(false)]), always(vec![json!({ "exit": 1 })])];
    let members = vec![member(&world, "A", turns()), member(&world, "B", turns())];
    let ended = Ended::of(&world, spec(members, json!({}))).await;
    assert_eq!(ended.status(), ("error", 3));
    assert_eq!(ended.doc("ended")["errorCode"], "all_members_failed");
    assert!(ended.view.nodes[0].error.as_ref().unwrap().starts_with("all_members_failed: "), "{:#?}", ended.view);
    assert!(!ended.worktree("A").exists() && ended.worktree("integration").exists());
}

/// Council scenario 14, CC-1: never more sessions than there may be, and everybody's turn comes.
#[tokio::test(flavor = "multi_thread")]
async fn members_share_the_sessions() {
    let mut world = World::new();
    world.sessions = 2;
    let log = world.root().join("log");
    let mark = |sign: &str| sh(&format!("echo {sign} >> '{}'", log.display()));
    let members = ["A", "B", "C", "D"];
    let members = members.map(|name| {
        member(&world, name, vec![always(vec![mark("+"), json!({ "sleep": 200 }), mark("-"), vote(true)])])
    });
    let ended = Ended::of(&world, spec(members.into(), json!({}))).await;
    assert_eq!(ended.status(), ("consensus", 1));
    let text = std::fs::read_to_string(log).unwrap();
    let (mut now, mut most) = (0, 0);
    for sign in text.lines() {
        now += if sign == "+" { 1 } else { -1 };
        most = most.max(now);
    }
    assert_eq!((text.lines().count(), most), (8, 2), "{text}");
}

/// Council scenario 14, last part: sessions of others are not waited for longer than a turn may take.
#[tokio::test(flavor = "multi_thread")]
async fn without_a_free_session_members_fail() {
    let mut world = World::new();
    world.sessions = 1;
    let slots = world.home().join("slots");
    std::fs::create_dir_all(&slots).unwrap();
    let held = std::fs::File::create(slots.join("0.lock")).unwrap();
    held.lock().unwrap();
    let members = vec![worker(&world, "A"), worker(&world, "B")];
    let ended = Ended::of(&world, spec(members, json!({ "agentTimeoutMs": 1_000 }))).await;
    assert_eq!(ended.status(), ("error", 2));
    for name in ["A", "B"] {
        let reply = ended.doc(&format!("reply:1:{name}"));
        assert!(reply["error"].as_str().unwrap().starts_with("session_cap_reached: "), "{reply:#}");
        assert_eq!(reply["sessionKey"], "");
        assert!(world.prompts(name).is_empty());
    }
}

/// Council scenario 25: a member's money is for all rounds.
#[tokio::test(flavor = "multi_thread")]
async fn money_runs_out() {
    let world = World::new();
    let cost = json!({ "cost": 0.06 });
    // In round 2 it has 0.04 left, so that there is no second send for its report.
    let a = vec![round(1, vec![cost.clone(), vote(false)]), always(vec![cost.clone(), json!({ "say": "done" })])];
    let b = vec![always([vec![cost], commit("b.txt", "x\n"), vec![vote(false)]].concat())];
    let members = vec![member(&world, "A", a), member(&world, "B", b)];
    let ended = Ended::of(&world, spec(members, json!({ "maxBudgetUsd": 0.1 }))).await;
    assert_eq!(ended.status(), ("error", 2));
    assert_eq!(ended.doc("ended")["errorCode"], "budget_exhausted");
    assert!(ended.doc("ended")["error"].as_str().unwrap().contains("0.1200 of 0.1000"));
    assert_eq!(world.prompts("A").len(), 2, "the question for the report was not paid for");
    assert_eq!(ended.doc("reply:2:A")["tail"], "done");
    assert!(ended.files(&world, "integration").contains(&"b.txt".to_owned()));
    assert!((ended.view.cost_usd - 0.24).abs() < 1e-9, "{}", ended.view.cost_usd);
}

/// A member that is cut off in the middle of a git command leaves its locks, and its work is taken over all the same.
#[tokio::test(flavor = "multi_thread")]
async fn locks_of_a_killed_git_are_no_end() {
    let world = World::new();
    let locks = sh("git add -A && d=$(git rev-parse --git-dir) && touch \"$d/index.lock\" \"$d/HEAD.lock\" && \
                    touch \"$(git rev-parse --git-common-dir)/$(git symbolic-ref HEAD).lock\"");
    let steps = vec![json!({ "write": { "path": "half.txt", "content": "x\n" } }), locks, json!("hang")];
    let a = member(&world, "A", vec![round(1, steps), always(vec![vote(true)])]);
    let ended = Ended::of(&world, spec(vec![a], json!({ "agentTimeoutMs": 2_000 }))).await;
    assert_eq!(ended.status(), ("consensus", 2), "{:#?}", ended.view);
    assert!(ended.doc("reply:1:A")["error"].as_str().unwrap().starts_with("timeout: "));
    assert!(ended.files(&world, "integration").contains(&"half.txt".to_owned()));
}

/// A used-up quota is waited for; neither the member nor the round is lost to it.
#[tokio::test(flavor = "multi_thread")]
async fn a_quota_is_waited_for() {
    let world = World::new();
    let kernel = world.kernel().await;
    let yes = |name: &str| member(&world, name, vec![always(vec![vote(true)])]);
    let used_up = json!({ "error": { "class": "quota", "retryAt": "+3s" } });
    let members = vec![member(&world, "A", vec![always(vec![used_up])]), yes("B")];
    let run = kernel.start(world.start(spec(members, json!({})))).await.unwrap().run_id.to_string();
    let parked = until(&kernel, &run, |v| v.waiting_for.is_some() || v.state.is_terminal()).await;
    assert_eq!(parked.waiting_for.as_ref().map(|w| w.kind.as_str()), Some("quota"), "{parked:#?}");
    yes("A");
    let ended = Ended::after(&kernel, &run).await;
    assert_eq!(ended.status(), ("consensus", 1), "{:#?}", ended.view);
    let reply = ended.doc("reply:1:A");
    assert_eq!((&reply["error"], reply["consensus"].as_bool()), (&Value::Null, Some(true)), "{reply:#}");
    assert_eq!(world.prompts("A").len(), 2);
}
