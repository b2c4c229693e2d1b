//! The real Claude Code against a scripted model on loopback. `CLAWO_TEST_CLAUDE` names the program.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use claw_orchestrator::engines::{ErrorClass, SessionSpec, TurnEvent};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::support::{Bench, alive, class, marked, message, open, say, silent, until, watch};

/// The version the adapter was measured against.
const MEASURED: &str = "2.1.197";

/// A model server that plays a script; ends with this.
struct Model {
    server: Child,
    log: PathBuf,
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Model {
    fn calls(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let entries = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
        entries.filter(|e| e["kind"] == "main").collect()
    }
}

/// A bench whose claude talks to `script`, or `None` with the reason printed.
fn real(script: &Value) -> Option<(Bench, Model)> {
    let Ok(program) = std::env::var("CLAWO_TEST_CLAUDE") else {
        println!("skipped: CLAWO_TEST_CLAUDE does not name the program of Claude Code {MEASURED}");
        return None;
    };
    let mut bench = Bench::new();
    let (file, log) = (bench.path("model.json"), bench.path("model.log"));
    std::fs::write(&file, script.to_string()).unwrap();
    let server = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/claude/scripted_model.py");
    let mut command = Command::new("python3");
    command.arg(server).arg(&file).arg("--log").arg(&log).arg("--set").arg(format!("repo={}", bench.repo().display()));
    let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
    for (name, value) in [
        ("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{}", port.trim())),
        ("ANTHROPIC_API_KEY", "test-key-of-nobody".to_owned()),
        ("CLAUDE_CODE_MAX_RETRIES", "0".to_owned()),
    ] {
        bench.config.env.insert(name.into(), value);
    }
    bench.config.engine_bins.insert("claude".into(), program.into());
    Some((bench, Model { server, log }))
}

fn spec(bench: &Bench) -> SessionSpec {
    let mut spec = bench.spec("claude-opus-4-8[1m]");
    spec.choice.engine = Some("claude".into());
    spec
}

/// A plain turn, a second one in the same conversation, then a third in a new process.
#[tokio::test]
async fn turns_and_resume() {
    let turns = json!({ "turns": [{ "text": "Noted: apple." }, { "text": "You said: {{last_user}}" }, { "text": "Still apple." }] });
    let Some((bench, model)) = real(&turns) else { return };
    let pool = bench.pool(1);
    let engine = pool.registry().get("claude").unwrap();
    assert!(engine.version().await.is_some());
    let mut session = open(&pool, spec(&bench)).await;
    let first = say(&mut session, "remember apple").await;
    assert!(first.ok && first.text == "Noted: apple.", "{first:?}");
    assert!(first.spend.cost_usd > 0.0 && first.spend.tokens_in == 100, "{first:?}");
    let second = say(&mut session, "/nonsense is no command").await;
    assert_eq!(second.text.trim_start_matches("You said:").trim(), "/nonsense is no command", "{second:?}");
    assert!((second.spend.cost_usd - first.spend.cost_usd).abs() < first.spend.cost_usd, "a share, not a total");
    let id = session.native_id();
    assert_eq!(session.close().await, Vec::<String>::new());
    let mut again = spec(&bench);
    again.resume.clone_from(&id);
    let mut session = open(&pool, again).await;
    let third = say(&mut session, "which fruit?").await;
    assert_eq!((third.text.as_str(), &third.native_id), ("Still apple.", &id), "{third:?}");
    session.close().await;
    let calls = model.calls();
    assert_eq!(calls.len(), 3);
    assert!(calls[2]["messages"].as_u64() > calls[0]["messages"].as_u64(), "the history was there");
    let mut unknown = spec(&bench);
    unknown.resume = Some("00000000-0000-4000-8000-000000000000".into());
    let error = pool.open(unknown, CancellationToken::new(), |_| {}).await.unwrap_err();
    assert!(error.to_string().contains("No conversation found"), "{error}");
}

/// Tools work without anybody to permit them.
#[tokio::test]
async fn a_file_is_written() {
    let write = json!({ "tool": "Write", "input": { "file_path": "{{repo}}/a.txt", "content": "hi\n" } });
    let Some((bench, _model)) = real(&json!({ "turns": [write, { "text": "Done." }] })) else { return };
    let mut session = open(&bench.pool(1), spec(&bench)).await;
    let (outcome, events) = watch(&mut session, "write a.txt").await;
    assert!(outcome.ok && outcome.tool_calls == 1 && outcome.tool_errors == 0, "{outcome:?}");
    assert!(
        events.iter().any(
            |e| matches!(e, TurnEvent::ToolCall { name, summary } if name == "Write" && summary.ends_with("a.txt"))
        )
    );
    assert_eq!(std::fs::read_to_string(bench.repo().join("a.txt")).unwrap(), "hi\n");
    session.close().await;
    // In a mode that asks, what nobody answers is refused and listed.
    let write = json!({ "tool": "Write", "input": { "file_path": "{{repo}}/b.txt", "content": "hi\n" } });
    let Some((bench, _model)) = real(&json!({ "turns": [write, { "text": "I was not allowed to." }] })) else { return };
    let mut spec = spec(&bench);
    spec.choice.permission_mode = Some("default".into());
    let mut session = open(&bench.pool(1), spec).await;
    let outcome = say(&mut session, "write b.txt").await;
    assert!(outcome.ok && outcome.tool_errors == 1 && outcome.permission_denials.len() == 1, "{outcome:?}");
    assert!(outcome.permission_denials[0].tool_name == "Write" && !bench.repo().join("b.txt").exists());
    session.close().await;
}

/// The program is killed in a tool call: its orphans are ended, the turn says so, and the conversation goes on.
#[tokio::test]
async fn a_killed_program_can_be_resumed() {
    let wait =
        json!({ "tool": "Bash", "input": { "command": "touch {{repo}}/begun; sleep 300", "description": "Wait" } });
    let Some((bench, _model)) = real(&json!({ "turns": [wait, { "text": "Carrying on." }] })) else { return };
    let mark = format!("REAL_MARK=kill-{}", std::process::id());
    let (variable, value) = mark.split_once('=').unwrap();
    let mut first = spec(&bench);
    first.run_env.push((variable.into(), value.into()));
    let pool = bench.pool(1);
    let mut session = open(&pool, first.clone()).await;
    let kill = async {
        until("the tool runs", || bench.repo().join("begun").exists()).await;
        let program = marked(&mark).into_iter().find(|(_, command)| command.contains("--session-id")).unwrap().0;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(program), nix::sys::signal::Signal::SIGKILL).unwrap();
    };
    let (outcome, ()) = tokio::join!(say(&mut session, "wait"), kill);
    assert_eq!(class(&outcome), Some(ErrorClass::Crashed), "{outcome:?}");
    assert!(message(&outcome).contains("signal 9") && outcome.spend.tokens_in == 100, "{outcome:?}");
    assert_eq!(alive(&mark), Vec::<String>::new());
    session.close().await;
    first.resume = outcome.native_id;
    let mut session = open(&pool, first).await;
    assert_eq!(say(&mut session, "go on").await.text, "Carrying on.");
    session.close().await;
}

/// A cancelled turn ends at once with its tool's processes, which lead sessions of their own.
#[tokio::test]
async fn a_turn_is_interrupted() {
    let wait =
        json!({ "tool": "Bash", "input": { "command": "touch {{repo}}/begun; sleep 300", "description": "Wait" } });
    let Some((bench, _model)) = real(&json!({ "turns": [wait, { "text": "never" }] })) else { return };
    let mark = format!("REAL_MARK=interrupt-{}", std::process::id());
    let (variable, value) = mark.split_once('=').unwrap();
    let mut spec = spec(&bench);
    spec.run_env.push((variable.into(), value.into()));
    let mut session = open(&bench.pool(1), spec).await;
    let cancel = CancellationToken::new();
    let stop = async {
        until("the tool runs", || bench.repo().join("begun").exists()).await;
        cancel.cancel();
        Instant::now()
    };
    let (outcome, begun) = tokio::join!(session.turn("wait", silent(), cancel.clone()), stop);
    assert_eq!(class(&outcome), Some(ErrorClass::Interrupted), "{outcome:?}");
    assert_eq!(outcome.spend.tokens_in, 100, "what was used is known: {outcome:?}");
    assert_eq!(alive(&mark), Vec::<String>::new());
    assert!(begun.elapsed() < Duration::from_secs(8));
    session.close().await;
}

/// Errors of the provider: busy is tried again in place, a bad key is not.
#[tokio::test]
async fn errors_of_the_provider() {
    let busy = json!({ "error": { "status": 529, "type": "overloaded_error", "message": "Overloaded" }, "times": 0 });
    let Some((bench, model)) = real(&json!({ "turns": [busy] })) else { return };
    let mut session = open(&bench.pool(1), spec(&bench)).await;
    let (outcome, events) = watch(&mut session, "hello").await;
    assert_eq!(class(&outcome), Some(ErrorClass::Overloaded), "{outcome:?}");
    assert!(message(&outcome).contains("529"), "{}", message(&outcome));
    assert_eq!(events.iter().filter(|e| matches!(e, TurnEvent::Retry(t) if t.contains("busy"))).count(), 3);
    assert_eq!(model.calls().len(), 4);
    session.close().await;
    let bad = json!({ "error": { "status": 401, "type": "authentication_error", "message": "invalid x-api-key" }, "times": 0 });
    let Some((bench, model)) = real(&json!({ "turns": [bad] })) else { return };
    let mut session = open(&bench.pool(1), spec(&bench)).await;
    assert_eq!(class(&say(&mut session, "hello").await), Some(ErrorClass::Auth));
    assert_eq!(model.calls().len(), 1);
    session.close().await;
}
