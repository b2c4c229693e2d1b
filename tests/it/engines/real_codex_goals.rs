//! Goals of the real codex as an app server. `CLAWO_TEST_CODEX` names the program.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use claw_orchestrator::engines::{
    ErrorClass, GoalEnd, GoalPass, GoalRequest, GoalSet, GoalStatus, GoalView, Orders, PooledSession,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    real_codex_app::{real, spec},
    support::{alive, marked, open, say, silent, until},
};

/// How a test follows a goal.
#[derive(Default)]
struct Follow {
    set: Option<&'static str>,
    budget: Option<u64>,
    reactivate: bool,
    cancel: CancellationToken,
}

/// Follows a goal; also what was told of it.
async fn follow(session: &mut PooledSession, how: Follow) -> (GoalPass, Vec<GoalView>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let news = Arc::clone(&told);
    let request = GoalRequest {
        set: how.set.map(|text| GoalSet { objective: text.into(), token_budget: how.budget }),
        reactivate: how.reactivate,
        stall: Duration::from_secs(30),
        news: Arc::new(move |view: &GoalView| news.lock().unwrap().push(view.clone())),
        sink: silent(),
        cancel: how.cancel,
        orders: &mut Orders::none(),
    };
    let pass = session.goal(request).await;
    let told = told.lock().unwrap().clone();
    (pass, told)
}

/// The model says that the goal is so, then why.
fn update(status: &str, text: &str) -> [Value; 2] {
    [json!({ "tools": [{ "name": "update_goal", "args": { "status": status } }] }), json!({ "text": text })]
}

fn script(turns: impl IntoIterator<Item = Value>) -> Value {
    json!({ "turns": turns.into_iter().collect::<Vec<_>>() })
}

/// A goal is worked on over several turns until it is reached, all of which are counted. Another one on the same
/// thread follows, and ends with the agent's reason.
#[tokio::test]
async fn a_goal_is_reached_and_another_one_is_not() {
    let [done, said] = update("complete", "Reached.");
    let [blocked, why] = update("blocked", "There is no database here.");
    let step = json!({ "text": "Step one.", "tools": [{ "sh": "echo hi > a.txt" }] });
    let between = json!({ "match": "between", "text": "Nothing." });
    let turns = script([step, json!({ "text": "Written." }), done, said, between, blocked, why]);
    let Some((bench, model)) = real(&turns) else { return };
    let mut session = open(&bench.pool(1), spec(&bench)).await;
    let (pass, news) = follow(&mut session, Follow { set: Some("Write a.txt"), ..Follow::default() }).await;
    assert_eq!(pass.end, GoalEnd::Complete, "{pass:?}");
    assert_eq!((pass.view.status, pass.view.objective.as_str()), (GoalStatus::Complete, "Write a.txt"));
    assert_eq!(pass.view.last_message.as_deref(), Some("Reached."));
    let turns = &pass.turns;
    assert!(turns.ok && turns.text == "Reached." && turns.tool_calls == 1, "{turns:?}");
    assert_eq!((turns.spend.turns, turns.spend.tokens_in, turns.spend.tokens_out), (2, 400, 40), "{turns:?}");
    assert!(news.iter().any(|v| v.status == GoalStatus::Active && v.tokens_used > 0), "{news:?}");
    assert_eq!(pass.view.thread_id, session.native_id().unwrap());
    assert!(bench.repo().join("a.txt").exists());
    assert_eq!(say(&mut session, "between").await.text, "Nothing.");
    let (pass, _) = follow(&mut session, Follow { set: Some("Use the database"), ..Follow::default() }).await;
    assert_eq!(pass.end, GoalEnd::Blocked("There is no database here.".into()), "{pass:?}");
    assert_eq!((pass.view.objective.as_str(), pass.view.status), ("Use the database", GoalStatus::Blocked));
    session.close().await;
    assert_eq!(model.calls().len(), 7);
}

/// The budget of a goal ends it.
#[tokio::test]
async fn a_goal_ends_at_its_budget() {
    let step = |n: u32| json!({ "text": format!("step {n}"), "usage": { "input": 400, "cached": 300, "output": 60 } });
    let Some((bench, model)) = real(&script((1..9).map(step))) else { return };
    let mut session = open(&bench.pool(1), spec(&bench)).await;
    let how = Follow { set: Some("Go on"), budget: Some(300), ..Follow::default() };
    let (pass, _) = follow(&mut session, how).await;
    assert_eq!((&pass.end, pass.view.status), (&GoalEnd::BudgetLimited, GoalStatus::BudgetLimited), "{pass:?}");
    assert_eq!((pass.view.tokens_used, pass.turns.spend.tokens_in), (320, 800), "{pass:?}");
    session.close().await;
    assert_eq!(model.calls().len(), 2);
}

/// A goal that only talks to itself is paused.
#[tokio::test]
async fn a_goal_that_idles_is_paused() {
    let Some((bench, model)) = real(&script([json!({ "text": "Still here.", "times": 0 })])) else { return };
    let mut session = open(&bench.pool(1), spec(&bench)).await;
    let (pass, _) = follow(&mut session, Follow { set: Some("Never"), ..Follow::default() }).await;
    let GoalEnd::Stalled(error) = &pass.end else { panic!("{pass:?}") };
    assert!(error.message.contains("neither used a tool nor said anything new"), "{error}");
    assert_eq!(pass.view.status, GoalStatus::Paused);
    // A turn may set out just while the goal is paused; it is the last one.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let calls = model.calls().len();
    assert!((6..12).contains(&calls), "{calls}");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(model.calls().len(), calls, "it stands still");
    session.close().await;
}

/// Limits and a lack of capacity stall a goal, which goes on when it is set active again.
#[tokio::test]
async fn a_goal_stalls_and_goes_on() {
    let limit = json!({ "error": 429, "type": "usage_limit_reached" });
    let busy = json!({ "error": 503, "code": "server_is_overloaded" });
    let [done, said] = update("complete", "At last.");
    let Some((bench, _model)) = real(&script([limit, busy, done, said])) else { return };
    let mut session = open(&bench.pool(1), spec(&bench)).await;
    let (pass, _) = follow(&mut session, Follow { set: Some("Go on"), ..Follow::default() }).await;
    let GoalEnd::Stalled(error) = &pass.end else { panic!("{pass:?}") };
    assert_eq!((error.class, pass.view.status), (ErrorClass::Quota, GoalStatus::UsageLimited), "{pass:?}");
    assert!(pass.view.last_error.is_some());
    let (pass, _) = follow(&mut session, Follow { reactivate: true, ..Follow::default() }).await;
    let GoalEnd::Stalled(error) = &pass.end else { panic!("{pass:?}") };
    assert_eq!((error.class, pass.view.status), (ErrorClass::Overloaded, GoalStatus::Blocked), "{pass:?}");
    let (pass, _) = follow(&mut session, Follow { reactivate: true, ..Follow::default() }).await;
    assert_eq!((&pass.end, pass.turns.text.as_str()), (&GoalEnd::Complete, "At last."), "{pass:?}");
    session.close().await;
}

/// A key that is refused is no stall.
#[tokio::test]
async fn a_goal_without_a_key_fails() {
    let Some((bench, _model)) = real(&script([json!({ "error": 401, "times": 0 })])) else { return };
    let mut session = open(&bench.pool(1), spec(&bench)).await;
    let (pass, _) = follow(&mut session, Follow { set: Some("Go on"), ..Follow::default() }).await;
    assert!(matches!(&pass.end, GoalEnd::Failed(e) if e.class == ErrorClass::Auth), "{pass:?}");
    let (pass, _) = follow(&mut session, Follow { set: Some(" "), ..Follow::default() }).await;
    assert!(matches!(&pass.end, GoalEnd::Failed(e) if e.message.contains("objective is empty")), "{pass:?}");
    session.close().await;
}

/// A cancelled goal is paused, its command ended; a new process finds it so and goes on with it on the same thread. Once
/// it has ended, it is found ended, without another turn.
#[tokio::test]
async fn a_cancelled_goal_goes_on_in_a_new_process() {
    let wait = json!({ "tools": [{ "sh": "touch begun; sleep 300" }] });
    let [done, said] = update("complete", "Reached.");
    let Some((bench, model)) = real(&script([wait, done, said])) else { return };
    let mark = format!("REAL_MARK=codex-goal-{}", std::process::id());
    let (variable, value) = mark.split_once('=').unwrap();
    let mut first = spec(&bench);
    first.run_env.push((variable.into(), value.into()));
    let pool = bench.pool(1);
    let mut session = open(&pool, first.clone()).await;
    let how = Follow { set: Some("Wait"), ..Follow::default() };
    let cancel = how.cancel.clone();
    let stop = async {
        until("the tool runs", || bench.repo().join("begun").exists()).await;
        cancel.cancel();
    };
    let ((pass, _), ()) = tokio::join!(follow(&mut session, how), stop);
    assert_eq!((&pass.end, pass.view.status), (&GoalEnd::Interrupted, GoalStatus::Paused), "{pass:?}");
    assert_eq!(pass.turns.spend.tokens_in, 100, "{pass:?}");
    assert_eq!(alive(&mark), Vec::<String>::new());
    session.close().await;
    first.resume.clone_from(&pass.turns.native_id);
    first.options.counted = pass.turns.counted;
    let mut session = open(&pool, first.clone()).await;
    let (pass, _) = follow(&mut session, Follow::default()).await;
    assert!(matches!(&pass.end, GoalEnd::Stalled(e) if e.message.contains("paused")), "{pass:?}");
    let (pass, _) = follow(&mut session, Follow { reactivate: true, ..Follow::default() }).await;
    assert_eq!((&pass.end, &pass.turns.native_id), (&GoalEnd::Complete, &first.resume), "{pass:?}");
    assert_eq!(pass.turns.spend.tokens_in, 200, "{pass:?}");
    session.close().await;
    let mut session = open(&pool, first).await;
    for reactivate in [false, true] {
        let (pass, _) = follow(&mut session, Follow { reactivate, ..Follow::default() }).await;
        assert_eq!((&pass.end, pass.view.objective.as_str()), (&GoalEnd::Complete, "Wait"), "{pass:?}");
    }
    session.close().await;
    assert_eq!(model.calls().len(), 3);
}

/// The program is killed in a turn of its goal. A new one goes on at once, by itself, and that is followed.
#[tokio::test]
async fn a_goal_outlives_its_process() {
    let wait = json!({ "tools": [{ "sh": "touch begun; sleep 300" }] });
    let [done, said] = update("complete", "Reached.");
    let Some((bench, _model)) = real(&script([wait, done, said])) else { return };
    let mark = format!("REAL_MARK=codex-goal-kill-{}", std::process::id());
    let (variable, value) = mark.split_once('=').unwrap();
    let mut first = spec(&bench);
    first.run_env.push((variable.into(), value.into()));
    let pool = bench.pool(1);
    let mut session = open(&pool, first.clone()).await;
    let kill = async {
        until("the tool runs", || bench.repo().join("begun").exists()).await;
        let program = marked(&mark).into_iter().find(|(_, command)| command.contains("app-server -c")).unwrap().0;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(program), nix::sys::signal::Signal::SIGKILL).unwrap();
    };
    let how = Follow { set: Some("Wait"), ..Follow::default() };
    let ((pass, _), ()) = tokio::join!(follow(&mut session, how), kill);
    assert!(matches!(&pass.end, GoalEnd::Stalled(e) if e.class == ErrorClass::Crashed), "{pass:?}");
    assert_eq!(alive(&mark), Vec::<String>::new());
    session.close().await;
    first.resume = pass.turns.native_id;
    let mut session = open(&pool, first).await;
    let (pass, _) = follow(&mut session, Follow::default()).await;
    assert_eq!((&pass.end, pass.turns.text.as_str()), (&GoalEnd::Complete, "Reached."), "{pass:?}");
    assert_eq!(pass.turns.spend.tokens_in, 200, "{pass:?}");
    session.close().await;
}
