//! Runs whose engine's quota is used up: parked on the record, gone on with by themselves, given up in the end.

use claw_orchestrator::{
    kernel::RunView,
    model::{NodeState, RunState},
};
use serde_json::json;

use crate::support::{World, agent, finished, of_run, until, with};

fn parked(view: &RunView) -> bool {
    view.waiting_for.as_ref().is_some_and(|w| w.kind == "quota")
}

/// Engines scenario 9, QL-1: parked over a restart, no attempt burnt, gone on with without anybody.
#[tokio::test(flavor = "multi_thread")]
async fn a_quota_is_waited_for_over_a_restart() {
    let world = World::new();
    let first = world.kernel().await;
    let used_up = json!([{ "steps": [{ "error": { "class": "quota", "retryAt": "+4s" } }] }]);
    let model = world.scenario("quota", used_up);
    let mut start = world
        .start(json!({ "name": "q", "budget": { "maxAgentTurns": 1 }, "nodes": [agent("a", "paint it", &model)] }));
    start.auto_resume = true;
    let run = first.start(start).await.unwrap().run_id.to_string();
    let view = until(&first, &run, |v| parked(v) || v.state.is_terminal()).await;
    assert_eq!((view.state, view.nodes[0].state), (RunState::Running, NodeState::Running), "{view:#?}");
    let due = view.waiting_for.unwrap().until.unwrap();
    assert!(of_run(&run).is_empty(), "nobody holds a session while waiting: {:?}", of_run(&run));
    first.steer(&run, "in green").await.unwrap();
    first.shutdown().await;
    // From now on there is quota, for the conversation that was begun.
    let used_up = json!({ "steps": [{ "fail": "begun a second time" }] });
    world.scenario("quota", json!([used_up, { "steps": [{ "cost": 0.5 }, { "say": "done" }] }]));
    let second = world.kernel().await;
    second.auto_resume().await;
    let again = until(&second, &run, |v| v.live && parked(v) || v.state.is_terminal()).await;
    assert_eq!(again.waiting_for.as_ref().unwrap().until, Some(due), "the same wait: {again:#?}");
    let done = finished(&second, &run).await;
    assert_eq!((done.state, done.nodes[0].attempts), (RunState::Completed, 1), "{done:#?}");
    assert!(done.ended_at.unwrap() >= due && done.waiting_for.is_none(), "{done:#?}");
    let told = world.prompts("quota");
    assert_eq!(told.len(), 2, "not asked before the reset");
    assert!(told[1].contains("Go on with the task") && told[1].contains("in green"), "{told:#?}");
    assert!(told[0].contains("paint it") && !told[1].contains("paint it"), "the conversation knows it: {told:#?}");
    assert_eq!((done.spend.turns, done.cost_usd), (1, 0.5), "a refused turn is none");
}

/// An engine that lost the conversation meanwhile is told everything again.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_conversation_starts_over() {
    let world = World::new();
    let kernel = world.kernel().await;
    let used_up = json!({ "steps": [{ "error": { "class": "quota", "retryAt": "+2s" } }] });
    let model = world.scenario("lost", json!([used_up.clone()]));
    let spec = json!({ "name": "q", "nodes": [agent("a", "paint it", &model)] });
    let run = kernel.start(world.start(spec)).await.unwrap().run_id.to_string();
    until(&kernel, &run, |v| parked(v) || v.state.is_terminal()).await;
    std::fs::remove_dir_all(world.home().join("scripted")).unwrap();
    world.scenario("lost", json!([{ "steps": [{ "say": "done" }] }]));
    let done = finished(&kernel, &run).await;
    assert_eq!((done.state, done.nodes[0].attempts), (RunState::Completed, 1), "{done:#?}");
    let told = world.prompts("lost");
    assert!(told.len() == 2 && told.iter().all(|t| t.contains("paint it")), "{told:#?}");
}

/// Several members wait: the run waits for the longest, and one that goes on does not hide it.
#[tokio::test(flavor = "multi_thread")]
async fn the_longest_wait_of_a_fanout_is_shown() {
    let world = World::new();
    let kernel = world.kernel().await;
    let member = |name: &str, after: &str| {
        let used_up = json!({ "steps": [{ "error": { "class": "quota", "retryAt": after } }] });
        let model = world.scenario(name, json!([used_up, { "steps": [{ "say": "done" }] }]));
        json!({ "name": name, "engine": "scripted", "model": model })
    };
    // By name the short ones come first and last.
    let agents = [member("a", "+1s"), member("b", "+6s"), member("c", "+1s")];
    let fan = json!({ "id": "f", "kind": "fanout", "prompt": "x", "agents": agents, "synthesize": false });
    let run = kernel.start(world.start(json!({ "name": "q", "nodes": [fan] }))).await.unwrap().run_id.to_string();
    let all_asked = |n: usize| ["a", "c"].iter().all(|m| world.prompts(m).len() == n) && world.prompts("b").len() == 1;
    let both = until(&kernel, &run, |v| parked(v) && all_asked(2) || v.state.is_terminal()).await;
    let left = both.waiting_for.as_ref().unwrap_or_else(|| panic!("{both:#?}")).clone();
    assert!(left.until.unwrap().millis() - left.since.millis() > 3_500, "the longest: {left:?}");
    let done = finished(&kernel, &run).await;
    assert_eq!((done.state, done.waiting_for), (RunState::Completed, None));
    assert!(done.ended_at.unwrap() >= left.until.unwrap());
    assert_eq!(world.prompts("b").len(), 2);
}

/// Engines scenario 9, QL-2: a quota that never comes back is given up after five waits, with its class.
#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_never_comes_back_is_given_up() {
    let world = World::new();
    let kernel = world.kernel().await;
    let steps = json!([{ "error": { "class": "quota", "retryAt": "+0s" } }]);
    let model = world.scenario("never", json!([{ "times": 0, "steps": steps }]));
    let view = world.run(&kernel, json!({ "name": "q", "nodes": [agent("a", "x", &model)] })).await;
    assert_eq!((view.state, view.nodes[0].attempts), (RunState::Failed, 1), "{view:#?}");
    assert!(view.nodes[0].error.as_deref().unwrap().starts_with("quota: "), "{view:#?}");
    assert_eq!(world.prompts("never").len(), 6, "five waits");
    assert!(view.waiting_for.is_none());
}

/// Cancelling while parked takes effect at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_parked_run_can_be_cancelled() {
    let world = World::new();
    let kernel = world.kernel().await;
    let model = world.scenario("long", json!([{ "steps": [{ "error": { "class": "quota", "retryAt": "+900s" } }] }]));
    let started = kernel.start(world.start(json!({ "name": "q", "nodes": [agent("a", "x", &model)] }))).await.unwrap();
    let run = started.run_id.as_str();
    until(&kernel, run, |v| parked(v) || v.state.is_terminal()).await;
    let begun = std::time::Instant::now();
    let view = kernel.cancel(run, None).await.unwrap();
    assert_eq!((view.state, view.waiting_for), (RunState::Cancelled, None));
    assert!(begun.elapsed() < std::time::Duration::from_secs(5));
}

/// A refused login is not tried again, alone or among others; what can get better is.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_is_not_tried_again() {
    let world = World::new();
    let kernel = world.kernel().await;
    let always = |name: &str, class: &str| {
        world.scenario(name, json!([{ "times": 0, "steps": [{ "error": { "class": class } }] }]))
    };
    let (alone, member, other) = (always("alone", "auth"), always("member", "auth"), always("other", "other"));
    let retry = json!({ "retry": { "max": 2, "backoffMs": 0 } });
    let view =
        world.run(&kernel, json!({ "name": "n", "nodes": [with(agent("a", "x", &alone), retry.clone())] })).await;
    assert_eq!((view.state, view.nodes[0].attempts), (RunState::Failed, 1), "{view:#?}");
    assert!(view.nodes[0].error.as_deref().unwrap().starts_with("auth: "), "{view:#?}");
    assert_eq!(world.prompts("alone").len(), 1);
    let fan = json!({ "id": "f", "kind": "fanout", "prompt": "x", "agents": [
        { "name": "one", "engine": "scripted", "model": member },
        { "name": "two", "engine": "scripted", "model": other },
    ]});
    let view = world.run(&kernel, json!({ "name": "f", "nodes": [with(fan, retry)] })).await;
    assert_eq!((view.state, view.nodes[0].attempts), (RunState::Failed, 3), "{view:#?}");
    assert_eq!((world.prompts("member").len(), world.prompts("other").len()), (1, 3));
}
