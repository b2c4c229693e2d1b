//! Programs that take one turn, played by shell scripts: what counts as success, clocks, orders, what is left behind.

use std::{path::Path, time::Duration};

use claw_orchestrator::{
    engines::{ErrorClass, Listener, Order, Orders, PooledSession, SessionSpec, TurnEvent, TurnOutcome, TurnRequest},
    model::spec::{EngineChoice, SandboxMode},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::support::{Bench, alive, class, message, open, say, script, silent, until, watch};

const THREAD: &str = "01a22bcc-0000-7000-8000-000000000000";

/// The program of `engine`, played by a script.
pub(super) fn play(bench: &mut Bench, engine: &str, body: &str) {
    let path = script(&bench.path(&format!("{engine}.sh")), body);
    bench.config.engine_bins.insert(engine.into(), path);
}

pub(super) fn spec(bench: &Bench, engine: &str) -> SessionSpec {
    let choice = EngineChoice { engine: Some(engine.into()), ..EngineChoice::default() };
    SessionSpec { choice, ..bench.spec("") }
}

/// A shell command that prints these lines.
pub(super) fn print(lines: &[String]) -> String {
    lines.iter().map(|line| format!("printf '%s\\n' '{line}'\n")).collect()
}

fn codex(more: &[serde_json::Value]) -> Vec<String> {
    let first = json!({ "type": "thread.started", "thread_id": THREAD });
    [first, json!({ "type": "turn.started" })].iter().chain(more).map(ToString::to_string).collect()
}

fn said(text: &str) -> serde_json::Value {
    json!({ "type": "item.completed", "item": { "id": "i", "type": "agent_message", "text": text } })
}

fn completed(input: u64) -> serde_json::Value {
    json!({ "type": "turn.completed", "usage": { "input_tokens": input, "cached_input_tokens": 10, "output_tokens": 5 } })
}

/// Lines of each engine for a reply, with how it says that the turn went: well, badly, not at all.
fn lines(engine: &str, text: &str, went: Option<bool>) -> Vec<String> {
    let step = |reason: &str| json!({ "type": "step_finish", "sessionID": "ses_1", "part": { "reason": reason } });
    let words = |value: serde_json::Value| value.to_string();
    match engine {
        "codex" => {
            let failed = json!({ "type": "turn.failed", "error": { "message": "unexpected status 401 Unauthorized" } });
            let end = went.map(|well| if well { completed(100) } else { failed });
            codex(&[Some(said(text)), end].into_iter().flatten().collect::<Vec<_>>())
        }
        "opencode" => {
            let told = json!({ "type": "text", "sessionID": "ses_1", "part": { "type": "text", "text": text } });
            let data = json!({ "message": "bad key", "statusCode": 401 });
            let failed =
                json!({ "type": "error", "sessionID": "ses_1", "error": { "name": "APIError", "data": data } });
            let end = went.map(|well| if well { step("stop") } else { failed });
            [Some(told), end].into_iter().flatten().map(words).collect()
        }
        "agy" => {
            let init = json!({ "type": "init", "conversation_id": "c" });
            let failed = json!({ "type": "result", "error": { "message": "no", "code": 401 } });
            let end = went.map(|well| if well { json!({ "type": "result", "response": text }) } else { failed });
            [Some(init), end].into_iter().flatten().map(words).collect()
        }
        "grok" => {
            let failed = json!({ "sessionId": "g", "text": text, "error": { "message": "no", "code": 401 } });
            let end = went.map(|well| if well { json!({ "sessionId": "g", "text": text }) } else { failed });
            end.into_iter().map(words).collect()
        }
        other => panic!("{other}"),
    }
}

/// EN-1, EN-2, acceptance 1 of the engines: a turn is good when the program said so, left with status 0 and gave a
/// reply; everything else has its class.
#[tokio::test]
async fn what_counts_as_success() {
    for engine in ["codex", "opencode", "agy", "grok"] {
        for (went, exit, text) in [
            (Some(true), 0, "hi"),
            (Some(true), 0, ""),
            (Some(true), 3, "hi"),
            (Some(true), 3, ""),
            (Some(false), 0, "hi"),
            (Some(false), 3, ""),
            (None, 0, "hi"),
            (None, 0, ""),
            (None, 3, "hi"),
        ] {
            let want = match (went, exit, text) {
                (Some(true), 0, "hi") => None,
                (Some(true), 0, _) => Some(ErrorClass::Other),
                (Some(true), ..) => Some(ErrorClass::Crashed),
                (Some(false), ..) => Some(ErrorClass::Auth),
                (None, 0, _) => Some(ErrorClass::Protocol),
                // One object at the end is all it says, so without it nothing was heard.
                (None, ..) if engine == "grok" => Some(ErrorClass::StartFailed),
                (None, ..) => Some(ErrorClass::Crashed),
            };
            let mut bench = Bench::new();
            play(&mut bench, engine, &format!("{}exit {exit}", print(&lines(engine, text, went))));
            let mut session = open(&bench.pool(1), spec(&bench, engine)).await;
            let outcome = say(&mut session, "go").await;
            assert_eq!(class(&outcome), want, "{engine} {went:?} {exit} {text:?}: {outcome:?}");
            assert_eq!(session.close().await, Vec::<String>::new());
        }
    }
}

/// A turn that runs on in `session`, and an order given to it once `begun` holds.
async fn ordered(session: &mut PooledSession, order: Order, begun: impl Fn() -> bool) -> TurnOutcome {
    let (give, mut orders) = Orders::channel();
    let request = TurnRequest {
        message: "wait".into(),
        sink: Listener(silent()),
        cancel: CancellationToken::new(),
        orders: &mut orders,
    };
    let giving = async {
        until("the turn is under way", begun).await;
        give.send(order).await.unwrap();
    };
    tokio::join!(session.take(request), giving).0
}

/// An interrupted turn ends with its whole tree, what left its group included; the session lives on and goes on with
/// the conversation. A steered turn says that it cannot be (MD-2).
#[tokio::test]
async fn an_interrupted_session_lives_on() {
    let mut bench = Bench::new();
    let end = print(&codex(&[said("again"), completed(100)]));
    let body = format!(
        "echo \"$*\" >> calls\nif [ -e begun ]; then {end}exit 0; fi\n{}setsid sleep 300 &\ntouch begun\nsleep 300",
        print(&codex(&[]))
    );
    play(&mut bench, "codex", &body);
    let mark = format!("TURN_MARK=interrupt-{}", std::process::id());
    let (variable, value) = mark.split_once('=').unwrap();
    let mut spec = spec(&bench, "codex");
    spec.run_env.push((variable.into(), value.into()));
    let mut session = open(&bench.pool(1), spec).await;
    let begun = bench.repo().join("begun");
    let outcome = ordered(&mut session, Order::Interrupt, || begun.exists()).await;
    assert_eq!(class(&outcome), Some(ErrorClass::Interrupted), "{outcome:?}");
    assert_eq!(outcome.native_id.as_deref(), Some(THREAD));
    assert_eq!(alive(&mark), Vec::<String>::new());
    assert!(session.alive());
    let outcome = say(&mut session, "go on").await;
    assert!(outcome.ok && outcome.text == "again", "{outcome:?}");
    let calls = std::fs::read_to_string(bench.repo().join("calls")).unwrap();
    let second = calls.lines().nth(1).unwrap();
    assert!(second.ends_with(&format!("resume {THREAD} -")) && second.contains("-s workspace-write"), "{calls}");
    std::fs::remove_file(&begun).unwrap();
    let (done, told) = tokio::sync::oneshot::channel();
    let cancel = CancellationToken::new();
    let (give, mut orders) = Orders::channel();
    let request =
        TurnRequest { message: "wait".into(), sink: Listener(silent()), cancel: cancel.clone(), orders: &mut orders };
    let steer = async {
        until("the turn is under way", || begun.exists()).await;
        give.send(Order::Steer { text: "left".into(), done }).await.unwrap();
        let refused = told.await.unwrap().unwrap_err();
        cancel.cancel();
        refused
    };
    let (outcome, refused) = tokio::join!(session.take(request), steer);
    assert_eq!((class(&outcome), refused.class), (Some(ErrorClass::Interrupted), ErrorClass::NotSupported));
    assert_eq!(alive(&mark), Vec::<String>::new());
    assert!(session.alive(), "a cancelled turn does not end the session");
    session.close().await;
}

/// Busy is tried again in the same conversation, what was under way is not begun twice, and a bad key is not retried.
#[tokio::test]
async fn a_busy_provider_is_tried_again() {
    let mut bench = Bench::new();
    let tool = json!({ "type": "item.completed", "item": { "id": "t", "type": "command_execution", "command": "x", "status": "completed" } });
    let busy = json!({ "type": "turn.failed", "error": { "message": "Selected model is at capacity." } });
    let body = format!(
        "cat >> prompts; echo >> prompts; echo \"$*\" >> calls\nif [ $(wc -l < calls) -lt 3 ]; then {}exit 1; fi\n{}",
        print(&codex(&[tool, busy.clone()])),
        print(&codex(&[said("done"), completed(300)]))
    );
    play(&mut bench, "codex", &body);
    let mut session = open(&bench.pool(1), spec(&bench, "codex")).await;
    let (outcome, events) = watch(&mut session, "do it").await;
    assert!(outcome.ok && outcome.tool_calls == 2 && outcome.spend.tokens_in == 300, "{outcome:?}");
    assert_eq!(events.iter().filter(|e| matches!(e, TurnEvent::Retry(t) if t.contains("busy"))).count(), 2);
    let prompts = std::fs::read_to_string(bench.repo().join("prompts")).unwrap();
    let prompts: Vec<&str> = prompts.lines().collect();
    assert!(prompts[0] == "do it" && prompts[1].contains("Go on") && prompts.len() == 3, "{prompts:?}");
    session.close().await;
    let mut bench = Bench::new();
    let bad = json!({ "type": "turn.failed", "error": { "message": "unexpected status 401 Unauthorized: no" } });
    play(&mut bench, "codex", &format!("echo >> calls\n{}exit 1", print(&codex(&[bad]))));
    let mut session = open(&bench.pool(1), spec(&bench, "codex")).await;
    assert_eq!(class(&say(&mut session, "go").await), Some(ErrorClass::Auth));
    assert_eq!(std::fs::read_to_string(bench.repo().join("calls")).unwrap(), "\n");
    session.close().await;
}

/// Acceptance 8 of the engines: no sign of life, silence, and a long quiet tool call are told apart; silence before the
/// first line is no failed start where the first line comes after the model's answer.
#[tokio::test]
async fn clocks() {
    let started = json!({ "type": "item.started", "item": { "id": "t", "type": "command_execution", "command": "x" } });
    let quiet =
        format!("{}sleep 1\n{}", print(&codex(&[started])), print(&[said("ok"), completed(1)].map(|l| l.to_string())));
    let short = Duration::from_millis(400);
    for (engine, body, want) in [
        ("codex", "sleep 300".to_owned(), Some("no sign of life")),
        ("codex", format!("{}sleep 300", print(&codex(&[]))), Some("idle")),
        ("codex", quiet, None),
        ("opencode", "sleep 300".to_owned(), Some("idle")),
        ("codex", format!("{}sleep 300", print(&codex(&[said("ok"), completed(1)]))), Some("did not leave")),
    ] {
        let mut bench = Bench::new();
        (bench.limits.start, bench.limits.idle, bench.limits.soft_interrupt) = (short, short, short);
        play(&mut bench, engine, &body);
        let mut session = open(&bench.pool(1), spec(&bench, engine)).await;
        let outcome = say(&mut session, "go").await;
        match want {
            None => assert!(outcome.ok, "{outcome:?}"),
            Some("did not leave") => assert_eq!(class(&outcome), Some(ErrorClass::Protocol), "{outcome:?}"),
            Some(words) => {
                assert_eq!(class(&outcome), Some(ErrorClass::Timeout), "{outcome:?}");
                assert!(message(&outcome).contains(words), "{outcome:?}");
            }
        }
        session.close().await;
    }
}

/// A descendant that keeps the output open does not keep the turn open, and is ended.
#[tokio::test]
async fn a_descendant_does_not_hold_the_turn() {
    let mut bench = Bench::new();
    play(&mut bench, "codex", &format!("setsid sleep 300 &\n{}exit 0", print(&codex(&[said("ok"), completed(1)]))));
    let mark = format!("TURN_MARK=descendant-{}", std::process::id());
    let (variable, value) = mark.split_once('=').unwrap();
    let mut spec = spec(&bench, "codex");
    spec.run_env.push((variable.into(), value.into()));
    let mut session = open(&bench.pool(1), spec).await;
    let outcome = say(&mut session, "go").await;
    assert!(outcome.ok, "{outcome:?}");
    assert_eq!(alive(&mark), Vec::<String>::new());
    session.close().await;
}

/// A system prompt that goes in front of the first message is said until a conversation has it, and then no more.
#[tokio::test]
async fn a_system_prompt_is_not_lost_with_a_failed_start() {
    let mut bench = Bench::new();
    let body = format!(
        "cat >> prompts; echo '|' >> prompts; echo >> calls\nif [ $(wc -l < calls) -lt 2 ]; then exit 2; fi\n{}",
        print(&codex(&[said("done"), completed(1)]))
    );
    play(&mut bench, "codex", &body);
    let mut spec = spec(&bench, "codex");
    spec.append_system_prompt = Some("Be brief.".into());
    let mut session = open(&bench.pool(1), spec).await;
    assert_eq!(class(&say(&mut session, "one").await), Some(ErrorClass::StartFailed));
    assert!(say(&mut session, "two").await.ok && say(&mut session, "three").await.ok);
    session.close().await;
    let prompts = std::fs::read_to_string(bench.repo().join("prompts")).unwrap();
    assert_eq!(prompts, "Be brief.\n\none|\nBe brief.\n\ntwo|\nthree|\n");
}

fn names(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
    entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

/// What a killed sandbox leaves is removed, unless it was there before or is not empty; a session's own directory goes
/// with the session.
#[tokio::test]
async fn nothing_is_left_behind() {
    let mut bench = Bench::new();
    let body = format!("{}mkdir .agents .codex .aws/x -p\nkill -9 $$", print(&codex(&[])));
    play(&mut bench, "codex", &body);
    std::fs::create_dir(bench.repo().join(".agents")).unwrap();
    let mut session = open(&bench.pool(1), spec(&bench, "codex")).await;
    let outcome = say(&mut session, "go").await;
    assert!(message(&outcome).contains("signal 9"), "{outcome:?}");
    let dir = bench.repo();
    assert!(dir.join(".agents").exists() && dir.join(".aws/x").exists() && !dir.join(".codex").exists());
    session.close().await;
    let mut bench = Bench::new();
    play(
        &mut bench,
        "opencode",
        &format!("touch \"$TMPDIR/library.so\"\n{}", print(&lines("opencode", "hi", Some(true)))),
    );
    let pool = bench.pool(1);
    let scratch = bench.path("home/scratch");
    let mut session = open(&pool, spec(&bench, "opencode")).await;
    assert!(say(&mut session, "go").await.ok);
    let own = names(&scratch);
    assert_eq!((own.len(), names(&scratch.join(&own[0]))), (1, vec!["library.so".to_owned()]));
    session.close().await;
    assert_eq!(names(&scratch), Vec::<String>::new());
    let session = open(&pool, spec(&bench, "opencode")).await;
    session.abandon();
    assert_eq!(names(&scratch), Vec::<String>::new(), "also of one that was let go of");
}

/// What an engine cannot hold is refused before anything starts; efforts above its highest are lowered and told.
#[tokio::test]
async fn options_are_followed_refused_or_told() {
    let mut bench = Bench::new();
    for engine in ["codex", "opencode", "grok"] {
        play(&mut bench, engine, "exit 1");
    }
    let pool = bench.pool(1);
    let mut lowered = spec(&bench, "codex");
    lowered.choice.effort = Some("max".into());
    let session = open(&pool, lowered.clone()).await;
    assert!(session.warnings().iter().any(|w| w.contains("xhigh")), "{:?}", session.warnings());
    session.close().await;
    lowered.choice.engine = Some("opencode".into());
    let session = open(&pool, lowered).await;
    assert!(
        session.warnings().iter().any(|w| w.contains("effort") && w.contains("ignored")),
        "{:?}",
        session.warnings()
    );
    session.close().await;
    let mut bad = spec(&bench, "codex");
    bad.options.native.insert("profle".into(), "x".into());
    bad.resume = Some("yesterday".into());
    bad.choice.effort = Some("turbo".into());
    let error = pool.open(bad, CancellationToken::new(), |_| {}).await.unwrap_err().to_string();
    assert!(["profle", "not an id", "turbo"].iter().all(|w| error.contains(w)), "{error}");
    for (engine, sandbox) in [("grok", SandboxMode::ReadOnly), ("opencode", SandboxMode::WorkspaceWrite)] {
        let mut spec = spec(&bench, engine);
        spec.options.sandbox = Some(sandbox);
        let error = pool.open(spec, CancellationToken::new(), |_| {}).await.unwrap_err().to_string();
        assert!(error.contains("sandboxMode"), "{error}");
    }
}
