//! The real OpenCode against a scripted model on loopback. `CLAWO_TEST_OPENCODE` names its native program.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use claw_orchestrator::{
    engines::{ErrorClass, Sink, TurnEvent},
    model::spec::SandboxMode,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    openai::{marked, opencode},
    support::{alive, class, marked as processes, message, open, say, silent, until, watch},
};

/// A plain turn, a second one in the same conversation, a third in a new session; the message arrives as it is.
#[tokio::test]
async fn turns_and_resume() {
    let script = json!({ "turns": [{ "text": "Noted." }, { "text": "Apple." }, { "text": "Still apple." }] });
    let Some((bench, model)) = opencode(&script) else { return };
    let pool = bench.pool(1);
    assert!(pool.registry().get("opencode").unwrap().version().await.is_some());
    let (spec, mark) = marked(&bench, "opencode", "turns");
    let mut session = open(&pool, spec.clone()).await;
    let first = say(&mut session, "remember apple").await;
    assert!(first.ok && first.text == "Noted." && first.spend.tokens_in == 100, "{first:?}");
    assert!(first.spend.cost_usd > 0.0 && first.cost_source.as_deref() == Some("engine"), "{first:?}");
    let second = say(&mut session, "which fruit?").await;
    assert_eq!((second.text.as_str(), &second.native_id), ("Apple.", &first.native_id), "{second:?}");
    session.close().await;
    let mut again = spec;
    again.resume.clone_from(&first.native_id);
    let mut session = open(&pool, again).await;
    let third = say(&mut session, "and now?").await;
    assert_eq!((third.text.as_str(), &third.native_id), ("Still apple.", &first.native_id), "{third:?}");
    session.close().await;
    assert_eq!(alive(&mark), Vec::<String>::new());
    assert!(std::fs::read_dir(bench.path("home/scratch")).unwrap().next().is_none(), "its libraries are gone");
    let told = model.requests().iter().map(ToString::to_string).collect::<String>();
    assert!(told.contains("\"remember apple\"") && !told.contains("\\\"remember apple\\\""), "{told}");
}

/// A file is written; a read-only session that tries is told no, and nothing is there.
#[tokio::test]
async fn files_and_read_only() {
    let script = json!({ "turns": [
        { "tools": [{ "write": "a.txt", "content": "hi" }] }, { "text": "Done." },
        { "tools": [{ "sh": "echo no > no.txt" }] }, { "text": "Not allowed." },
        { "tools": [{ "name": "bash", "args": { "command": "echo no > no.txt", "description": "x" } }] }, { "text": "Still not." }
    ] });
    let Some((bench, _model)) = opencode(&script) else { return };
    let (spec, _) = marked(&bench, "opencode", "write");
    let pool = bench.pool(1);
    let mut session = open(&pool, spec.clone()).await;
    let outcome = say(&mut session, "write").await;
    assert!(outcome.ok && outcome.tool_calls == 1, "{outcome:?}");
    session.close().await;
    let mut held = spec;
    held.options.sandbox = Some(SandboxMode::ReadOnly);
    let mut session = open(&bench.isolating_pool(1, true), held).await;
    for _ in 0..2 {
        let outcome = say(&mut session, "write").await;
        assert!(outcome.ok && outcome.tool_errors == 1, "{outcome:?}");
    }
    assert!(!bench.repo().join("no.txt").exists());
    session.close().await;
}

/// The program is killed in a command, then the turn is cancelled in one: the commands, which have groups of their own,
/// are ended too, and both times the conversation goes on by its id.
#[tokio::test]
async fn killed_and_interrupted_turns_go_on() {
    let wait = |name: &str| json!({ "text": "Waiting.", "tools": [{ "sh": format!("touch {name}; sleep 300") }] });
    let script =
        json!({ "turns": [wait("one"), { "text": "After the kill." }, wait("two"), { "text": "After the stop." }] });
    let Some((bench, _model)) = opencode(&script) else { return };
    let (spec, mark) = marked(&bench, "opencode", "kill");
    let mut session = open(&bench.pool(1), spec).await;
    // Its first line, and with it the id, comes a while after the command began.
    let spoke = Arc::new(AtomicBool::new(false));
    let sink: Sink = {
        let spoke = Arc::clone(&spoke);
        Arc::new(move |event| spoke.store(matches!(event, TurnEvent::Text(_)), Ordering::Relaxed))
    };
    let kill = async {
        let runs = || bench.repo().join("one").exists() && spoke.load(Ordering::Relaxed);
        until("the command runs", runs).await;
        let program = processes(&mark).into_iter().find(|(_, c)| c.contains("run --format json")).unwrap().0;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(program), nix::sys::signal::Signal::SIGKILL).unwrap();
    };
    let (outcome, ()) = tokio::join!(session.turn("wait", sink, CancellationToken::new()), kill);
    assert_eq!(class(&outcome), Some(ErrorClass::Crashed), "{outcome:?}");
    assert!(message(&outcome).contains("signal 9") && outcome.native_id.is_some(), "{outcome:?}");
    assert_eq!(alive(&mark), Vec::<String>::new());
    assert_eq!(say(&mut session, "go on").await.text, "After the kill.");
    let cancel = CancellationToken::new();
    let stop = async {
        until("the command runs", || bench.repo().join("two").exists()).await;
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(session.turn("wait", silent(), cancel.clone()), stop);
    assert_eq!(class(&outcome), Some(ErrorClass::Interrupted), "{outcome:?}");
    assert_eq!(alive(&mark), Vec::<String>::new());
    assert_eq!(say(&mut session, "go on").await.text, "After the stop.");
    session.close().await;
}

/// Errors of the provider: a bad key is told at once; a limit and a busy provider it waits out in silence for ever, which
/// only our clock ends.
#[tokio::test]
async fn errors_of_the_provider() {
    for (error, want) in [
        (json!({ "error": 401, "message": "bad key", "times": 0 }), ErrorClass::Auth),
        (json!({ "error": 429, "type": "usage_limit_reached", "message": "limit", "times": 0 }), ErrorClass::Timeout),
        (json!({ "error": 503, "message": "busy", "times": 0 }), ErrorClass::Timeout),
    ] {
        let Some((mut bench, _model)) = opencode(&json!({ "turns": [error] })) else { return };
        bench.limits.idle = Duration::from_secs(if want == ErrorClass::Timeout { 8 } else { 120 });
        let (spec, mark) = marked(&bench, "opencode", "error");
        let mut session = open(&bench.pool(1), spec).await;
        let (outcome, events) = watch(&mut session, "hello").await;
        assert_eq!(class(&outcome), Some(want), "{outcome:?}");
        assert!(!events.iter().any(|e| matches!(e, TurnEvent::Text(_))), "{events:?}");
        assert_eq!(alive(&mark), Vec::<String>::new());
        session.close().await;
    }
}
