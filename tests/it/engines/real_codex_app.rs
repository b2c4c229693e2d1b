//! The real codex as an app server against a scripted model on loopback. `CLAWO_TEST_CODEX` names the program.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use claw_orchestrator::{
    engines::{
        Answer, Ask, EngineError, ErrorClass, GoalSet, Listener, Order, Orders, PooledSession, SessionSpec, TurnEvent,
        TurnOutcome, TurnRequest,
    },
    model::spec::SandboxMode,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::support::{Bench, alive, class, marked, message, open, say, silent, until, watch};
use crate::support::openai::{KEY, OpenAi, codex_home};

/// The version the adapter was measured against.
const MEASURED: &str = "0.171.0";

/// A bench whose codex talks to `script`, or `None` with the reason printed.
pub(super) fn real(script: &Value) -> Option<(Bench, OpenAi)> {
    let Ok(program) = std::env::var("CLAWO_TEST_CODEX") else {
        println!("skipped: CLAWO_TEST_CODEX does not name the program of Codex {MEASURED}");
        return None;
    };
    let mut bench = Bench::new();
    let server = OpenAi::start(&bench.path(""), script);
    codex_home(&bench.path("user/.codex"), server.port);
    std::fs::create_dir(bench.path("user/tmp")).unwrap();
    for (name, value) in [
        ("CODEX_HOME", bench.path("user/.codex").to_string_lossy().into_owned()),
        ("TMPDIR", bench.path("user/tmp").to_string_lossy().into_owned()),
        (KEY, "key-of-nobody".to_owned()),
    ] {
        bench.config.env.insert(name.into(), value);
    }
    // As with claude's: what a user has in a variable of their own is passed on when the settings name it.
    bench.config.engine_env.insert("codex-app".into(), vec![KEY.into()]);
    bench.config.engine_bins.insert("codex".into(), program.into());
    Some((bench, server))
}

pub(super) fn spec(bench: &Bench) -> SessionSpec {
    let mut spec = bench.spec("scripted-1");
    spec.choice.engine = Some("codex-app".into());
    spec
}

pub(super) async fn ask(session: &mut PooledSession, ask: Ask) -> Result<Answer, EngineError> {
    session.ask(ask, silent(), CancellationToken::new()).await
}

/// A turn with orders that are given once `when` holds.
async fn ordered(
    session: &mut PooledSession,
    text: &str,
    when: impl Fn() -> bool,
    order: Order,
) -> (TurnOutcome, Vec<TurnEvent>) {
    let (sender, mut orders) = Orders::channel();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let events = Arc::clone(&seen);
    let give = async {
        until("the moment of the order", when).await;
        sender.send(order).await.unwrap();
    };
    let request = TurnRequest {
        message: text.into(),
        sink: Listener(Arc::new(move |event| events.lock().unwrap().push(event))),
        cancel: CancellationToken::new(),
        orders: &mut orders,
    };
    let (outcome, ()) = tokio::join!(session.take(request), give);
    let seen = seen.lock().unwrap().clone();
    (outcome, seen)
}

/// Engines, acceptance 2 and 10: turns in one conversation, also in a new process, and what each of them used.
#[tokio::test]
async fn turns_and_resume() {
    let usage = json!({ "input": 100, "cached": 30, "output": 10 });
    let turns = json!({ "turns": [
        { "text": "Noted: apple.", "usage": usage }, { "text": "Apple.", "usage": usage }, { "text": "Still apple.", "usage": usage },
    ] });
    let Some((bench, model)) = real(&turns) else { return };
    let pool = bench.pool(1);
    let engine = pool.registry().get("codex-app").unwrap();
    assert!(engine.version().await.is_some_and(|v| v.starts_with("0.")));
    let mut first = spec(&bench);
    first.append_system_prompt = Some("Never say pear.".into());
    first.choice.effort = Some("ultra".into());
    let mut session = open(&pool, first.clone()).await;
    let (outcome, events) = watch(&mut session, "remember apple").await;
    assert!(outcome.ok && outcome.text == "Noted: apple.", "{outcome:?}");
    let used = outcome.usage.unwrap();
    assert_eq!((used.input, used.cached, used.output), (70, 30, 10), "cached ones are counted once");
    assert_eq!(
        (outcome.spend.tokens_in, outcome.spend.tokens_out, outcome.model.as_deref()),
        (100, 10, Some("scripted-1"))
    );
    assert!(
        events.contains(&TurnEvent::Note("the model takes no effort ultra; it was lowered to xhigh".into())),
        "{events:?}"
    );
    let second = say(&mut session, "/which fruit?").await;
    assert_eq!((second.text.as_str(), second.spend.tokens_in, second.counted.unwrap().output), ("Apple.", 100, 20));
    let id = session.native_id();
    assert!(id.is_some() && id == second.native_id);
    assert_eq!(session.close().await, Vec::<String>::new());
    first.resume.clone_from(&id);
    first.options.counted = second.counted;
    let mut session = open(&pool, first).await;
    let third = say(&mut session, "and now?").await;
    assert_eq!((third.text.as_str(), &third.native_id, third.spend.tokens_in), ("Still apple.", &id, 100), "{third:?}");
    // Nobody else can have the thread meanwhile.
    let mut other = spec(&bench);
    other.resume = id;
    let two = bench.pool(2);
    let busy = two.open(other.clone(), CancellationToken::new(), |_| {}).await.unwrap_err();
    assert!(busy.to_string().contains("in use by another codex process"), "{busy}");
    session.close().await;
    let calls = model.calls();
    assert!(calls.len() == 3 && calls.iter().all(|c| c["effort"] == "xhigh"), "{calls:?}");
    assert!(calls.iter().all(|c| c["body"].to_string().contains("Never say pear.")));
    assert!(calls[2]["body"].to_string().contains("Noted: apple."), "the history was there");
    other.resume = Some("00000000-0000-7000-8000-000000000000".into());
    let error = two.open(other, CancellationToken::new(), |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("no such thread"), "{error}");
}

/// Tools work in the directory and not outside of it, and keys stay with the program.
#[tokio::test]
async fn files_are_written_where_they_may_be() {
    let turns = json!({ "turns": [
        { "tools": [{ "write": "a.txt", "content": "hi" }, { "sh": "env > env.txt; echo ok > b.txt" }] }, { "text": "Done." },
        { "tools": [{ "sh": "echo no > c.txt" }, { "write": "d.txt", "content": "no" }] }, { "text": "I could not." },
    ] });
    let Some((bench, _model)) = real(&turns) else { return };
    let pool = bench.pool(1);
    let mut session = open(&pool, spec(&bench)).await;
    let (outcome, events) = watch(&mut session, "write").await;
    assert!(outcome.ok && outcome.tool_calls == 2 && outcome.tool_errors == 0, "{outcome:?} {events:?}");
    let wrote = |e: &TurnEvent| matches!(e, TurnEvent::ToolCall { name, summary } if name == "file_change" && summary.ends_with("a.txt"));
    assert!(events.iter().any(wrote), "{events:?}");
    let read = |name: &str| std::fs::read_to_string(bench.repo().join(name));
    assert_eq!((read("a.txt").unwrap(), read("b.txt").unwrap()), ("hi\n".into(), "ok\n".into()));
    assert!(!read("env.txt").unwrap().contains("key-of-nobody"));
    session.close().await;
    let mut held = spec(&bench);
    held.options.sandbox = Some(SandboxMode::ReadOnly);
    let mut session = open(&pool, held).await;
    let outcome = say(&mut session, "write again").await;
    assert!(outcome.ok && outcome.text == "I could not.", "{outcome:?}");
    assert!(read("c.txt").is_err() && read("d.txt").is_err(), "a read-only session wrote");
    session.close().await;
}

/// An interrupted turn ends with its command, and the session lives on.
#[tokio::test]
async fn a_turn_is_interrupted_and_the_next_one_works() {
    let turns = json!({ "turns": [
        { "match": "wait", "tools": [{ "sh": "touch begun; sleep 300" }] }, { "text": "Next." },
    ] });
    let Some((bench, _model)) = real(&turns) else { return };
    let mark = format!("REAL_MARK=codex-interrupt-{}", std::process::id());
    let (variable, value) = mark.split_once('=').unwrap();
    let mut spec = spec(&bench);
    spec.run_env.push((variable.into(), value.into()));
    let mut session = open(&bench.pool(1), spec).await;
    let begun = bench.repo().join("begun");
    let (outcome, _) = ordered(&mut session, "wait", || begun.exists(), Order::Interrupt).await;
    assert_eq!(class(&outcome), Some(ErrorClass::Interrupted), "{outcome:?}");
    // The command may have begun before the program told of it.
    assert!(outcome.tool_calls <= 1 && outcome.spend.tokens_in == 100, "{outcome:?}");
    assert!(session.alive());
    until("the command is ended", || !alive(&mark).iter().any(|c| c.contains("sleep 300"))).await;
    let next = say(&mut session, "and now?").await;
    assert!(next.ok && next.text == "Next." && next.spend.tokens_in == 100, "{next:?}");
    // Cancelled, it ends the whole tree.
    session.close().await;
    assert_eq!(alive(&mark), Vec::<String>::new());
}

/// A running turn takes further input.
#[tokio::test]
async fn a_turn_is_steered() {
    let turns = json!({ "turns": [
        { "match": "wait", "tools": [{ "sh": "touch begun; while [ ! -e go ]; do sleep 0.05; done" }] },
        { "match": "use tabs", "text": "With tabs." }, { "text": "nobody said so" },
    ] });
    let Some((bench, _model)) = real(&turns) else { return };
    let mut session = open(&bench.pool(1), spec(&bench)).await;
    let begun = bench.repo().join("begun");
    let (done, told) = tokio::sync::oneshot::channel::<Result<(), EngineError>>();
    let go = async {
        told.await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        std::fs::write(bench.repo().join("go"), "").unwrap();
    };
    let steer = Order::Steer { text: "use tabs".into(), done };
    let ((outcome, _), ()) = tokio::join!(ordered(&mut session, "wait", || begun.exists(), steer), go);
    assert!(outcome.ok && outcome.text == "With tabs.", "{outcome:?}");
    session.close().await;
}

/// The program is killed in a tool call: its orphans are ended, and the conversation goes on in a new process.
#[tokio::test]
async fn a_killed_program_can_be_resumed() {
    let turns = json!({ "turns": [
        { "match": "wait", "tools": [{ "sh": "touch begun; sleep 300" }] }, { "text": "Carrying on." },
    ] });
    let Some((bench, _model)) = real(&turns) else { return };
    let mark = format!("REAL_MARK=codex-kill-{}", std::process::id());
    let (variable, value) = mark.split_once('=').unwrap();
    let mut first = spec(&bench);
    first.options.sandbox = Some(SandboxMode::DangerFullAccess);
    first.run_env.push((variable.into(), value.into()));
    let pool = bench.pool(1);
    let mut session = open(&pool, first.clone()).await;
    let kill = async {
        until("the tool runs", || bench.repo().join("begun").exists()).await;
        let program = marked(&mark).into_iter().find(|(_, command)| command.contains("app-server -c")).unwrap().0;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(program), nix::sys::signal::Signal::SIGKILL).unwrap();
    };
    let (outcome, ()) = tokio::join!(say(&mut session, "wait"), kill);
    assert_eq!(class(&outcome), Some(ErrorClass::Crashed), "{outcome:?}");
    assert!(message(&outcome).contains("signal 9"), "{outcome:?}");
    assert_eq!(alive(&mark), Vec::<String>::new());
    session.close().await;
    (first.resume, first.options.counted) = (outcome.native_id, outcome.counted);
    let mut session = open(&pool, first).await;
    let next = say(&mut session, "go on").await;
    assert_eq!(next.text, "Carrying on.", "{next:?}");
    session.close().await;
}

/// Errors of the provider by class; a busy one is asked again in place.
#[tokio::test]
async fn errors_of_the_provider() {
    let reset = jiff::Timestamp::now().as_second() + 5400;
    let limit = json!({
        "x-codex-primary-used-percent": "100", "x-codex-primary-window-minutes": "300",
        "x-codex-primary-reset-at": reset.to_string(),
    });
    let turns = json!({ "turns": [
        { "match": "key", "error": 401, "times": 0 },
        { "match": "limit", "error": 429, "type": "usage_limit_reached", "headers": limit },
        { "match": "busy", "error": 503, "code": "server_is_overloaded", "times": 3 },
        { "match": "busy", "text": "At last." },
        { "match": "long", "failed": "context_length_exceeded" },
        { "match": "bad", "error": 400, "message": "bad thing" },
    ] });
    let Some((bench, model)) = real(&turns) else { return };
    let mut session = open(&bench.pool(1), spec(&bench)).await;
    let outcome = say(&mut session, "key").await;
    assert!(class(&outcome) == Some(ErrorClass::Auth) && message(&outcome).contains("401"), "{outcome:?}");
    let outcome = say(&mut session, "limit").await;
    assert_eq!(class(&outcome), Some(ErrorClass::Quota), "{outcome:?}");
    assert_eq!(outcome.error.unwrap().retry_at.map(|at| at.millis() / 1000), Some(reset));
    let before = model.calls().len();
    let (outcome, events) = watch(&mut session, "busy").await;
    assert!(outcome.ok && outcome.text == "At last.", "{outcome:?}");
    assert!(events.iter().any(|e| matches!(e, TurnEvent::Retry(t) if t.contains("busy"))), "{events:?}");
    assert_eq!(model.calls().len() - before, 4);
    assert_eq!(class(&say(&mut session, "long").await), Some(ErrorClass::ContextOverflow));
    let outcome = say(&mut session, "bad").await;
    assert!(class(&outcome) == Some(ErrorClass::Other) && message(&outcome) == "bad thing", "{outcome:?}");
    session.close().await;
}

/// A provider that is not there is given up, instead of waited for without end.
#[tokio::test]
async fn a_provider_that_is_not_there() {
    let Some((mut bench, model)) = real(&json!({ "turns": [] })) else { return };
    drop(model);
    bench.limits.busy_retries = 0;
    let mut session = open(&bench.pool(1), spec(&bench)).await;
    assert_eq!(class(&say(&mut session, "hello").await), Some(ErrorClass::Overloaded));
    session.close().await;
}

/// What else can be asked of a thread.
#[tokio::test]
async fn fork_rollback_models_threads_compact_review_and_switch() {
    let turns = json!({ "turns": [
        { "text": "One." }, { "text": "Two." }, { "text": "Three." },
        { "match": "branch", "text": "On the branch." }, { "match": "after", "text": "After." },
        { "match": "changes", "text": "Looks right." }, { "match": "other model", "text": "Yes." },
    ] });
    let Some((bench, model)) = real(&turns) else { return };
    let pool = bench.pool(2);
    let mut session = open(&pool, spec(&bench)).await;
    for text in ["first", "second", "third"] {
        assert!(say(&mut session, text).await.ok);
    }
    let fork = ask(&mut session, Ask::Fork).await.unwrap().data;
    let mut branch = spec(&bench);
    branch.resume = Some(fork["threadId"].as_str().unwrap().to_owned());
    assert_ne!(branch.resume, session.native_id());
    let mut branch = open(&pool, branch).await;
    assert_eq!(say(&mut branch, "branch").await.text, "On the branch.");
    branch.close().await;
    assert_eq!(ask(&mut session, Ask::Rollback(2)).await.unwrap().data, json!({ "dropped": 2 }));
    assert!(ask(&mut session, Ask::Rollback(9)).await.unwrap_err().message.contains("only 1 turns"));
    let after = say(&mut session, "after").await;
    assert!(after.ok && after.spend.tokens_in == 100, "{after:?}");
    let seen = model.calls().last().unwrap()["body"].to_string();
    assert!(seen.contains("One.") && !seen.contains("Two.") && !seen.contains("branch"), "{seen}");
    let models = ask(&mut session, Ask::Models).await.unwrap().data;
    assert_eq!(models["models"].as_array().unwrap().len(), 2, "{models}");
    assert_eq!(models["models"][0]["efforts"], json!(["low", "medium", "high", "xhigh"]));
    let threads = ask(&mut session, Ask::Threads { cursor: None, limit: 1 }).await.unwrap().data;
    let more = Ask::Threads { cursor: threads["nextCursor"].as_str().map(str::to_owned), limit: 1 };
    let more = ask(&mut session, more).await.unwrap().data;
    assert_ne!(threads["threads"][0]["threadId"], more["threads"][0]["threadId"], "{threads} {more}");
    let compacted = ask(&mut session, Ask::Compact(None)).await.unwrap();
    assert_eq!((compacted.data, compacted.turn.unwrap().spend.tokens_in), (json!({ "compacted": true }), 100));
    let review = ask(&mut session, Ask::Review(json!({ "uncommitted": true }))).await.unwrap();
    assert_eq!(review.data, json!({ "review": "Looks right." }));
    assert!(ask(&mut session, Ask::Review(json!({ "base": "a", "commit": "b" }))).await.is_err());
    ask(&mut session, Ask::SwitchModel("scripted-2".into())).await.unwrap();
    assert_eq!(say(&mut session, "other model").await.model.as_deref(), Some("scripted-2"));
    assert_eq!(model.calls().last().unwrap()["model"], "scripted-2");
    session.close().await;
}

/// A goal that was set in passing goes on between our turns; its turns are told and counted.
#[tokio::test]
async fn turns_of_the_engine_itself_are_told() {
    let turns = json!({ "turns": [
        { "match": "objective", "tools": [{ "name": "update_goal", "args": { "status": "complete" } }] }, { "text": "Reached." },
    ] });
    let Some((bench, _model)) = real(&turns) else { return };
    let mut session = open(&bench.pool(1), spec(&bench)).await;
    let set = GoalSet { objective: "Be done".into(), token_budget: Some(5000) };
    let answer = ask(&mut session, Ask::GoalSet(set)).await.unwrap();
    assert_eq!(answer.data["goal"]["status"], "active", "{answer:?}");
    let idle = tokio::time::timeout(Duration::from_secs(20), session.idle(silent())).await.unwrap();
    let claw_orchestrator::engines::Idle::Turn(turn) = idle else { panic!("{idle:?}") };
    assert_eq!((turn.text.as_str(), turn.spend.tokens_in), ("Reached.", 200), "{turn:?}");
    let goal = ask(&mut session, Ask::GoalGet).await.unwrap().data;
    assert_eq!((&goal["goal"]["status"], &goal["goal"]["objective"]), (&json!("complete"), &json!("Be done")));
    assert_eq!(ask(&mut session, Ask::GoalClear).await.unwrap().data, json!({ "cleared": true }));
    assert_eq!(ask(&mut session, Ask::GoalGet).await.unwrap().data, json!({ "goal": null }));
    session.close().await;
}
