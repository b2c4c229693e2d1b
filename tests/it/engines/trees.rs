//! That nothing an agent started outlives it.

use std::time::{Duration, Instant};

use claw_orchestrator::engines::ErrorClass;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::support::{Bench, alive, class, open, say, silent, until};

/// Leaves a plain child, one in a session of its own and a double-forked one behind.
fn family() -> Vec<Value> {
    vec![
        json!({ "spawn": { "argv": ["sleep", "300"] } }),
        json!({ "spawn": { "argv": ["sleep", "301"], "newSession": true } }),
        json!({ "spawn": { "argv": ["sleep", "302"], "detach": true } }),
        json!({ "spawn": { "argv": ["sleep", "303"], "detach": true, "newSession": true } }),
    ]
}

/// Each kind of sleeper, by its argument.
fn sleepers(mark: &str) -> Vec<String> {
    let mut found: Vec<String> = alive(mark).into_iter().filter(|c| c.starts_with("sleep 30")).collect();
    found.sort();
    found
}

/// ZP-1, ZP-4: closing ends a whole tree, also of an agent that ignores TERM or is stopped.
#[tokio::test]
async fn nothing_outlives_a_closed_session() {
    for (name, steps) in [
        ("polite", vec![]),
        ("deaf", vec![json!("ignoreSigterm")]),
        ("stopped", vec![json!({ "spawn": { "argv": ["sh", "-c", "sleep 0.5; kill -STOP $PPID"] } })]),
    ] {
        let bench = Bench::new();
        let mark = format!("TREE_MARK={name}-{}", std::process::id());
        let (variable, value) = mark.split_once('=').unwrap();
        let mut all = family();
        all.extend(steps);
        all.push(json!({ "say": "left them" }));
        let mut spec = bench.spec(&bench.always(name, json!(all)));
        spec.run_env.push((variable.into(), value.into()));
        let pool = bench.pool(1);
        let mut session = open(&pool, spec).await;
        assert!(say(&mut session, "go").await.ok);
        until("all four sleep", || sleepers(&mark).len() >= 4).await;
        if name == "stopped" {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let begun = Instant::now();
        assert_eq!(session.close().await, Vec::<String>::new());
        assert_eq!(alive(&mark), Vec::<String>::new(), "{name}");
        assert!(begun.elapsed() < Duration::from_secs(8), "{name}: {:?}", begun.elapsed());
        assert_eq!(pool.in_use(), 0);
    }
}

/// A cancelled turn returns soon, with everything gone, and keeps what the agent had spent.
#[tokio::test]
async fn cancelling_a_turn_ends_its_tree() {
    for (name, extra) in [("willing", None), ("unwilling", Some(json!(["ignoreSigterm", "ignoreInterrupt"])))] {
        let bench = Bench::new();
        let mark = format!("CANCEL_MARK={name}-{}", std::process::id());
        let (variable, value) = mark.split_once('=').unwrap();
        let mut steps = extra.map_or_else(Vec::new, |e| e.as_array().unwrap().clone());
        steps.extend(family());
        steps.extend([json!({ "cost": 0.5 }), json!({ "write": { "path": "ready", "content": "" } }), json!("hang")]);
        let mut spec = bench.spec(&bench.always(name, json!(steps)));
        spec.run_env.push((variable.into(), value.into()));
        let mut session = open(&bench.pool(1), spec).await;
        let cancel = CancellationToken::new();
        let ready = bench.repo().join("ready");
        let stop = async {
            until("the agent hangs", || ready.exists()).await;
            cancel.cancel();
            Instant::now()
        };
        let (outcome, begun) = tokio::join!(session.turn("go", silent(), cancel.clone()), stop);
        assert_eq!(class(&outcome), Some(ErrorClass::Interrupted), "{outcome:?}");
        assert_eq!(alive(&mark), Vec::<String>::new(), "{name}");
        assert!(begun.elapsed() < Duration::from_secs(8));
        if name == "willing" {
            assert_eq!(outcome.spend.cost_usd, 0.5);
        }
        session.close().await;
    }
}

/// A dropped session ends its tree and gives its slot back by itself.
#[tokio::test]
async fn dropping_a_session_is_enough() {
    let bench = Bench::new();
    let mark = format!("DROP_MARK={}", std::process::id());
    let (variable, value) = mark.split_once('=').unwrap();
    let mut steps = family();
    steps.push(json!({ "say": "left them" }));
    let mut spec = bench.spec(&bench.always("drop", json!(steps)));
    spec.run_env.push((variable.into(), value.into()));
    let pool = bench.pool(1);
    let mut session = open(&pool, spec).await;
    assert!(say(&mut session, "go").await.ok);
    assert_eq!(pool.in_use(), 1);
    drop(session);
    until("the slot is free", || pool.in_use() == 0).await;
    assert_eq!(alive(&mark), Vec::<String>::new());
}

/// The late reply of a turn that was given up is never the answer to the next message.
#[tokio::test]
async fn a_given_up_turn_spoils_its_session() {
    let bench = Bench::new();
    let slow = json!({ "steps": [{ "sleep": 400 }, { "say": "late" }] });
    let model = bench.scenario("late", json!({ "turns": [slow, { "steps": [{ "say": "second" }] }] }));
    let mut session = open(&bench.pool(1), bench.spec(&model)).await;
    assert!(tokio::time::timeout(Duration::from_millis(150), say(&mut session, "first")).await.is_err());
    tokio::time::sleep(Duration::from_millis(500)).await;
    let outcome = say(&mut session, "next").await;
    assert_eq!(class(&outcome), Some(ErrorClass::Crashed), "{outcome:?}");
    assert_eq!(outcome.text, "");
    session.close().await;
}
