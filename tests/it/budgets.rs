//! Money that is bounded: caps of sessions, of the day, and one account for a tree of runs, also over a crash.

use claw_orchestrator::{
    app::{App, Mode},
    config::file::PriceTable,
    kernel::{Kernel, StatusQuery, ledger::LedgerQuery},
    model::{Code, RunState},
};
use serde_json::{Value, json};

use crate::support::{World, agent, finished, happens, until, with};

/// An agent of every turn at this price.
fn paid(world: &World, name: &str, usd: f64) -> String {
    world.scenario(name, json!([{ "times": 0, "steps": [{ "cost": usd }, { "say": "done" }] }]))
}

fn bounded(usd: f64, nodes: &[Value]) -> Value {
    json!({ "name": "bounded", "budget": { "maxCostUsd": usd }, "nodes": nodes })
}

async fn ledger_usd(kernel: &Kernel) -> f64 {
    kernel.ledger(LedgerQuery { limit: 10_000, ..LedgerQuery::default() }).await.unwrap().summary.cost_usd
}

/// Acceptance 11 of the engines, CB-2: three agents for five rounds at 0.30 under 1.00 stop after the turn that reaches it,
/// and log and ledger say the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_stops_at_its_bound() {
    let world = World::bare();
    let kernel = world.kernel().await;
    let model = paid(&world, "paid", 0.3);
    let member = |name: &str| json!({ "name": name, "engine": "scripted", "model": model });
    let round = |id: &str| json!({ "id": id, "kind": "fanout", "prompt": "x", "agents": [member("a"), member("b"), member("c")] });
    let rounds: Vec<Value> = ["r1", "r2", "r3", "r4", "r5"].map(round).to_vec();
    let view = world.run(&kernel, bounded(1.0, &rounds)).await;
    assert_eq!(view.state, RunState::Failed, "{view:#?}");
    assert!(view.outcome_reason.as_deref().unwrap().contains("maxCostUsd (1)"), "{view:#?}");
    // All three of the first round began before anything was known of their cost; then there is room for one.
    assert_eq!((view.spend.turns, view.cost_usd), (4, 1.2));
    assert_eq!(world.prompts("paid").len(), 4);
    assert_eq!(ledger_usd(&kernel).await, 1.2);
}

/// CB-1, CB-2: a child draws on its parent's account live, and a grandchild on both.
#[tokio::test(flavor = "multi_thread")]
async fn children_draw_on_their_parents_account() {
    let world = World::bare();
    let kernel = world.kernel().await;
    let model = paid(&world, "paid", 0.3);
    let step = |id: &str| agent(id, "x", &model);
    let grandchild = json!({ "name": "grandchild", "nodes": [step("a"), step("b"), step("c")] });
    let child =
        json!({ "name": "child", "nodes": [step("a"), { "id": "sub", "kind": "subflow", "workflow": grandchild }] });
    let nodes = [step("first"), json!({ "id": "sub", "kind": "subflow", "workflow": child }), step("last")];
    let view = world.run(&kernel, bounded(1.0, &nodes)).await;
    assert_eq!((view.state, view.spend.turns, view.cost_usd), (RunState::Failed, 4, 1.2), "{view:#?}");
    let parent = kernel.record(view.run_id.as_str()).await.unwrap();
    let below = kernel.record(view.nodes[1].child_run_id.as_ref().unwrap().as_str()).await.unwrap();
    assert_eq!((below.spend.turns, below.spend.cost_usd), (3, 0.9));
    assert_eq!(parent.child_spend[&below.run_id], below.spend);
    assert_eq!(parent.nodes[1].cost_usd, 0.9);
    assert_eq!(ledger_usd(&kernel).await, 1.2);
}

/// CB-3, acceptance 11 of the engines: what a child had spent when everything died is spent, once, and 0.20 are left.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_gives_no_money_back() {
    let world = World::bare();
    let first = world.kernel().await;
    let model = paid(&world, "paid", 0.4);
    // It hangs the first time.
    let third = "[ -e third ] && exit 0; touch third; sleep 600";
    let slow = world.scenario(
        "slow",
        json!([{ "times": 0, "steps": [{ "run": ["sh", "-c", third] }, { "cost": 0.3 }, { "say": "done" }] }]),
    );
    let steps = [agent("a", "x", &model), agent("b", "x", &model), agent("c", "x", &slow), agent("d", "x", &model)];
    let child = json!({ "name": "child", "nodes": steps });
    let spec = bounded(1.0, &[json!({ "id": "sub", "kind": "subflow", "workflow": child })]);
    let run = first.start(world.start(spec)).await.unwrap().run_id.to_string();
    let third = world.project().join("third");
    happens("the third turn", || third.exists()).await;
    // The parent's log learns it while the child still works.
    let seen = until(&first, &run, |view| view.spend.turns >= 2).await;
    assert_eq!(seen.cost_usd, 0.8);
    first.shutdown().await;
    let second = world.kernel().await;
    second.resume(&run).await.unwrap();
    let view = finished(&second, &run).await;
    // One more turn began with 0.2 left and ended at 1.1; the last did not begin. The one cut off counts as a turn.
    assert_eq!((view.state, view.spend.turns, view.cost_usd), (RunState::Failed, 4, 1.1), "{view:#?}");
    let child = second.record(view.nodes[0].child_run_id.as_ref().unwrap().as_str()).await.unwrap();
    assert_eq!(child.spend.cost_usd, 1.1);
}

/// CB-1: a run that an agent starts in another process is a child: it draws on the same account, its spending is on the
/// parent's log, and a restart counts nothing twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_started_from_inside_a_run_is_charged_to_it() {
    let world = World::bare();
    let (outer, inner) = (world.kernel().await, world.kernel().await);
    let model = paid(&world, "paid", 0.3);
    // The outer agent works for as long as the test lets it.
    let wait = "while [ ! -e go ]; do sleep 0.05; done";
    let caller = world.scenario(
        "caller",
        json!([{ "times": 0, "steps": [{ "run": ["sh", "-c", wait] }, { "cost": 0.3 }, { "say": "ok" }] }]),
    );
    let spec = json!({
        "name": "outer", "budget": { "maxCostUsd": 1.5, "maxAgentTurns": 4 },
        "nodes": [agent("calls", "x", &caller), agent("next", "x", &caller)],
    });
    let run = outer.start(world.start(spec)).await.unwrap().run_id.to_string();
    until(&outer, &run, |view| view.current_node.is_some()).await;
    let steps = ["a", "b", "c", "d", "e"].map(|id| agent(id, "x", &model));
    let mut start = world.start(json!({ "name": "inner", "nodes": steps }));
    start.parent = Some(run.clone());
    let nested = inner.start(start).await.unwrap().run_id.to_string();
    let child = finished(&inner, &nested).await;
    // Four turns in all, one of them the outer agent's that is under way.
    assert_eq!((child.state, child.spend.turns), (RunState::Failed, 3), "{child:#?}");
    assert!(child.outcome_reason.as_deref().unwrap().contains("maxAgentTurns (4)"), "{child:#?}");
    let seen = until(&outer, &run, |view| view.spend.turns == 3).await;
    assert_eq!(seen.cost_usd, 0.9);
    std::fs::write(world.project().join("go"), "").unwrap();
    let view = finished(&outer, &run).await;
    assert_eq!((view.state, view.spend.turns, view.cost_usd), (RunState::Failed, 4, 1.2), "{view:#?}");
    assert!(view.outcome_reason.as_deref().unwrap().contains("maxAgentTurns (4)"), "{view:#?}");
    let refused = {
        let mut start = world.start(json!({ "name": "again", "nodes": [agent("a", "x", &model)] }));
        start.parent = Some(run.clone());
        inner.start(start).await.unwrap_err()
    };
    assert_eq!(refused.code, Code::BudgetExceeded, "{refused:?}");
    outer.shutdown().await;
    let third = world.kernel().await;
    let again = third.status(&run, StatusQuery { events: 0, wait_ms: 0 }).await.unwrap();
    assert_eq!((again.spend.turns, again.cost_usd), (4, 1.2));
    assert_eq!(ledger_usd(&third).await, 1.2);
}

/// CB-1, CB-3: what a nested run spends while nobody executes its parent is on the parent's log once somebody does.
#[tokio::test(flavor = "multi_thread")]
async fn a_parent_that_was_away_learns_what_its_child_spent() {
    let world = World::bare();
    let (outer, inner) = (world.kernel().await, world.kernel().await);
    let model = paid(&world, "paid", 0.25);
    let once = "[ -e began ] && exit 0; touch began; sleep 600";
    let caller = world.scenario(
        "caller",
        json!([{ "times": 0, "steps": [{ "run": ["sh", "-c", once] }, { "cost": 0.25 }, { "say": "ok" }] }]),
    );
    let run = outer.start(world.start(bounded(5.0, &[agent("calls", "x", &caller)]))).await.unwrap().run_id.to_string();
    let began = world.project().join("began");
    happens("the outer agent", || began.exists()).await;
    outer.shutdown().await;
    let mut start =
        world.start(json!({ "name": "inner", "nodes": [agent("a", "x", &model), agent("b", "x", &model)] }));
    start.parent = Some(run.clone());
    let nested = inner.start(start).await.unwrap().run_id.to_string();
    assert_eq!(finished(&inner, &nested).await.cost_usd, 0.5);
    let third = world.kernel().await;
    third.resume(&run).await.unwrap();
    let view = finished(&third, &run).await;
    // Two of the child, its own, and the one that was cut off.
    assert_eq!((view.state, view.spend.turns, view.cost_usd), (RunState::Completed, 4, 0.75), "{view:#?}");
}

/// Surface 4.5: once the day's turns have cost as much as a day may, no turn of any process begins.
#[tokio::test(flavor = "multi_thread")]
async fn the_day_has_a_bound() {
    let world = World::bare();
    let mut config = world.config();
    config.daily_usd = Some(0.5);
    let app = App::open(config, Mode::Serve).await.unwrap();
    let other = world.kernel().await;
    let model = paid(&world, "paid", 0.3);
    let spec = || json!({ "name": "w", "nodes": [with(agent("a", "x", &model), json!({ "retry": { "max": 3, "backoffMs": 1 } }))] });
    world.run(&other, spec()).await;
    assert_eq!(world.run(&app.kernel, spec()).await.state, RunState::Completed, "0.3 are less than 0.5");
    let refused = world.run(&app.kernel, spec()).await;
    assert_eq!((refused.state, refused.spend.cost_usd), (RunState::Failed, 0.0), "{refused:#?}");
    let why = refused.error.unwrap();
    assert!(why.contains("0.6000 of 0.5000") && why.contains("daily_usd"), "{why}");
    assert_eq!(refused.nodes[0].attempts, 1, "the same again would be refused again");
    assert_eq!(world.prompts("paid").len(), 2);
    app.shutdown().await;
}

/// CB-4: a turn that dies before it is billed is counted by the dearest price while money is bounded, and as an estimate.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_crashed_turn_used_is_counted() {
    let world = World::bare();
    let mut config = world.config();
    let model = world.scenario(
        "dies",
        json!([{ "times": 0, "steps": [{ "usage": { "inputTokens": 10_000, "outputTokens": 1000 } }, { "say": "half" }, { "exit": 3 }] }]),
    );
    let spec = bounded(5.0, &[agent("a", "x", &model)]);
    let kernel = world.kernel().await;
    let view = world.run(&kernel, spec.clone()).await;
    assert_eq!(view.state, RunState::Failed);
    let rows = kernel.ledger(LedgerQuery { limit: 10, ..LedgerQuery::default() }).await.unwrap().rows;
    assert_eq!((rows.len(), rows[0].ok, rows[0].cost_source.as_str()), (1, false, "none"), "{rows:#?}");
    assert!(view.cost_usd > 0.0 && view.spend.estimated, "{view:#?}");
    assert!((view.cost_usd - rows[0].cost_usd).abs() < 1e-9);
    // With a price of its own it is that price.
    let price = PriceTable { input: Some(1.0), output: Some(2.0), cached: Some(0.0), cache_write: Some(0.0) };
    config.prices.insert(model, price);
    let app = App::open(config, Mode::Serve).await.unwrap();
    let priced = world.run(&app.kernel, spec).await;
    let rows = app.kernel.ledger(LedgerQuery { limit: 10, ..LedgerQuery::default() }).await.unwrap().rows;
    let row = rows.last().unwrap();
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let expected = (row.tokens_in as f64 + 2.0 * row.tokens_out as f64) / 1e6;
    assert_eq!((row.cost_source.as_str(), row.ok), ("registry", false), "{row:#?}");
    assert!((priced.cost_usd - expected).abs() < 1e-9 && expected > 0.0, "{row:#?}");
    app.shutdown().await;
}
