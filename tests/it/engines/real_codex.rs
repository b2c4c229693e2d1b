//! The real Codex against a scripted model on loopback. `CLAWO_TEST_CODEX` names its native program.

use std::time::Duration;

use claw_orchestrator::{
    engines::{ErrorClass, TurnEvent},
    model::spec::SandboxMode,
    sys::supervise::can_confine,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{
    openai::{codex, marked},
    support::{alive, class, marked as processes, message, open, say, silent, until, watch},
};

/// A plain turn, a second one in the same conversation, a third in a new session; tokens are shares of a running total.
#[tokio::test]
async fn turns_and_resume() {
    let usage = json!({ "input": 100, "cached": 20, "output": 10 });
    let turn = |text: &str| json!({ "text": text, "usage": usage });
    let Some((bench, model)) = codex(&json!({ "turns": [turn("Noted."), turn("Apple."), turn("Still apple.")] }))
    else {
        return;
    };
    let pool = bench.pool(1);
    assert!(pool.registry().get("codex").unwrap().version().await.is_some());
    let (spec, mark) = marked(&bench, "codex", "turns");
    let mut session = open(&pool, spec.clone()).await;
    let first = say(&mut session, "remember apple").await;
    assert!(first.ok && first.text == "Noted." && first.native_id.is_some(), "{first:?}");
    let second = say(&mut session, "which fruit?\nsecond line").await;
    assert_eq!((second.text.as_str(), &second.native_id), ("Apple.", &first.native_id), "{second:?}");
    session.close().await;
    let mut again = spec;
    (again.resume, again.options.counted) = (first.native_id.clone(), second.counted);
    let mut session = open(&pool, again).await;
    let third = say(&mut session, "and now?").await;
    assert_eq!((third.text.as_str(), &third.native_id), ("Still apple.", &first.native_id), "{third:?}");
    for outcome in [&first, &second, &third] {
        assert_eq!((outcome.spend.tokens_in, outcome.spend.tokens_out), (100, 10), "{outcome:?}");
        assert_eq!(outcome.usage.unwrap().cached, 20);
    }
    session.close().await;
    assert_eq!(alive(&mark), Vec::<String>::new());
    let told = model.requests().last().unwrap().to_string();
    assert!(told.contains("remember apple") && told.contains("second line"), "the history was there");
}

/// A file is written in the workspace; the commands of the model do not see the key; a resumed turn may write as well.
#[tokio::test]
async fn files_are_written_and_keys_hidden() {
    let script = json!({ "turns": [
        { "tools": [{ "sh": "env > seen; echo hi > a.txt" }] }, { "text": "Done." },
        { "tools": [{ "sh": "echo hi > b.txt" }] }, { "text": "Done again." }
    ] });
    let Some((bench, _model)) = codex(&script) else { return };
    let mut session = open(&bench.pool(1), marked(&bench, "codex", "write").0).await;
    let (outcome, events) = watch(&mut session, "write a.txt").await;
    assert!(outcome.ok && outcome.tool_calls == 1 && outcome.tool_errors == 0, "{outcome:?}");
    assert!(events.iter().any(|e| matches!(e, TurnEvent::ToolCall { summary, .. } if summary.contains("a.txt"))));
    assert!(say(&mut session, "write b.txt").await.ok);
    assert!(bench.repo().join("a.txt").exists() && bench.repo().join("b.txt").exists());
    let seen = std::fs::read_to_string(bench.repo().join("seen")).unwrap();
    assert!(seen.contains("PATH=") && !seen.contains("canary"), "{seen}");
    session.close().await;
}

/// EN-3: a read-only session cannot write, on its first turn and on a resumed one.
#[tokio::test]
async fn read_only_holds() {
    let write = json!({ "tools": [{ "sh": "echo no > no.txt; sleep 0.3" }] });
    let Some((bench, _model)) = codex(&json!({ "turns": [write, { "text": "One." }, write, { "text": "Two." }] }))
    else {
        return;
    };
    let (mut spec, _) = marked(&bench, "codex", "ro");
    spec.options.sandbox = Some(SandboxMode::ReadOnly);
    let mut session = open(&bench.pool(1), spec).await;
    for text in ["One.", "Two."] {
        let outcome = say(&mut session, "write").await;
        assert!(outcome.ok && outcome.text == text, "{outcome:?}");
    }
    assert!(!bench.repo().join("no.txt").exists());
    session.close().await;
}

/// EN-3: in a place of its own, in which the program's own sandbox cannot be set up, its commands still run. They read
/// everything; what they write there is reported and undone, and nothing reaches the user's directory.
#[tokio::test]
async fn read_only_in_a_place_of_its_own() {
    for confined in [true, false] {
        let run = |command: &str| json!({ "tools": [{ "sh": format!("{command}; sleep 0.3") }] });
        let script =
            json!({ "turns": [run("cat given"), { "text": "Read." }, run("echo no > no.txt"), { "text": "Wrote." }] });
        let Some((bench, model)) = codex(&script) else { return };
        std::fs::write(bench.repo().join("given"), "treasure\n").unwrap();
        let (mut spec, _) = marked(&bench, "codex", "place");
        spec.options.sandbox = Some(SandboxMode::ReadOnly);
        let mut session = open(&bench.isolating_pool(1, confined), spec).await;
        let outcome = say(&mut session, "read").await;
        assert!(outcome.ok && outcome.tool_calls == 1 && outcome.tool_errors == 0, "{outcome:?}");
        assert!(model.requests().last().unwrap().to_string().contains("treasure"), "the command ran");
        let outcome = say(&mut session, "write").await;
        // Where the kernel does not keep it in its place, its own sandbox keeps it from writing.
        let expected: &[&str] = if confined && can_confine() { &["no.txt"] } else { &[] };
        assert_eq!(outcome.read_only_violations, expected, "{outcome:?}");
        assert!(!bench.repo().join("no.txt").exists());
        session.close().await;
    }
}

/// The program is killed in a command, then the turn is cancelled in one: nothing of either runs on, and both times the
/// conversation goes on by its id.
#[tokio::test]
async fn killed_and_interrupted_turns_go_on() {
    let wait = |name: &str| json!({ "tools": [{ "sh": format!("touch {name}; sleep 300") }] });
    let script =
        json!({ "turns": [wait("one"), { "text": "After the kill." }, wait("two"), { "text": "After the stop." }] });
    let Some((bench, _model)) = codex(&script) else { return };
    let (spec, mark) = marked(&bench, "codex", "kill");
    let mut session = open(&bench.pool(1), spec).await;
    let kill = async {
        until("the command runs", || bench.repo().join("one").exists()).await;
        let program = processes(&mark).into_iter().find(|(_, c)| c.contains("exec --json")).unwrap().0;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(program), nix::sys::signal::Signal::SIGKILL).unwrap();
    };
    let (outcome, ()) = tokio::join!(say(&mut session, "wait"), kill);
    assert_eq!(class(&outcome), Some(ErrorClass::Crashed), "{outcome:?}");
    assert!(message(&outcome).contains("signal 9"), "{outcome:?}");
    assert_eq!(alive(&mark), Vec::<String>::new());
    assert!([".agents", ".aws", ".codex"].iter().all(|name| !bench.repo().join(name).exists()));
    assert_eq!(say(&mut session, "go on").await.text, "After the kill.");
    let cancel = CancellationToken::new();
    let stop = async {
        until("the command runs", || bench.repo().join("two").exists()).await;
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(session.turn("wait", silent(), cancel.clone()), stop);
    assert_eq!(class(&outcome), Some(ErrorClass::Interrupted), "{outcome:?}");
    assert_eq!(alive(&mark), Vec::<String>::new());
    let last = say(&mut session, "go on").await;
    assert_eq!((last.text.as_str(), last.native_id), ("After the stop.", outcome.native_id));
    session.close().await;
}

/// Errors of the provider: a bad key, a used-up plan and a busy provider, which is tried again.
#[tokio::test]
async fn errors_of_the_provider() {
    for (error, want, tries) in [
        (json!({ "error": 401, "message": "bad key", "times": 0 }), ErrorClass::Auth, 1),
        (json!({ "error": 429, "type": "usage_limit_reached", "message": "limit", "times": 0 }), ErrorClass::Quota, 1),
        (json!({ "error": 503, "code": "server_is_overloaded", "times": 0 }), ErrorClass::Overloaded, 2),
    ] {
        let Some((mut bench, _model)) = codex(&json!({ "turns": [error] })) else { return };
        bench.limits.busy_retries = 1;
        let mut session = open(&bench.pool(1), marked(&bench, "codex", "error").0).await;
        let (outcome, events) = watch(&mut session, "hello").await;
        assert_eq!(class(&outcome), Some(want), "{outcome:?}");
        let again = events.iter().filter(|e| matches!(e, TurnEvent::Retry(t) if t.contains("busy"))).count();
        assert_eq!(again + 1, tries, "{events:?}");
        session.close().await;
    }
}

/// Another endpoint than the configured one, and a schema for the reply.
#[tokio::test]
async fn another_endpoint_and_a_schema() {
    let Some((mut bench, model)) = codex(&json!({ "turns": [{ "text": "{\"n\":1}" }] })) else { return };
    bench.limits.idle = Duration::from_secs(60);
    bench.config.env.insert("OPENAI_API_KEY".into(), "sk-other-canary".into());
    let (mut spec, _) = marked(&bench, "codex", "schema");
    spec.options.base_url = Some(model.url());
    spec.options.native.insert("ignoreUserConfig".into(), true.into());
    spec.choice.model = Some("scripted-1".into());
    spec.choice.effort = Some("high".into());
    spec.options.json_schema = Some(json!({
        "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"], "additionalProperties": false
    }));
    let mut session = open(&bench.pool(1), spec).await;
    let outcome = say(&mut session, "count").await;
    assert!(outcome.ok && outcome.text == "{\"n\":1}", "{outcome:?}");
    session.close().await;
    let asked = model.requests().iter().map(ToString::to_string).collect::<String>();
    assert!(asked.contains("json_schema") && asked.contains("\"high\""), "{asked}");
}
