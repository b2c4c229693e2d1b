//! Real agents of the Agent Client Protocol against a scripted model on loopback. `CLAWO_TEST_OPENCODE` and
//! `CLAWO_TEST_CODEX_ACP` name the programs.

use std::time::Duration;

use claw_orchestrator::engines::{ErrorClass, SessionSpec, TurnEvent};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::support::{Bench, alive, class, marked, message, open, say, silent, until, watch};
use crate::support::openai::{KEY, OpenAi, codex_home};

/// An agent that is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Agent {
    OpenCode,
    CodexAcp,
}

impl Agent {
    const ALL: [Self; 2] = [Self::OpenCode, Self::CodexAcp];

    fn name(self) -> &'static str {
        match self {
            Self::OpenCode => "opencode",
            Self::CodexAcp => "codex-acp",
        }
    }

    /// A bench whose agent talks to `script`, or `None` with the reason printed.
    fn real(self, script: &Value) -> Option<(Bench, OpenAi)> {
        let (variable, version) = match self {
            Self::OpenCode => ("CLAWO_TEST_OPENCODE", "OpenCode 1.18.33"),
            Self::CodexAcp => ("CLAWO_TEST_CODEX_ACP", "codex-acp 0.16.0"),
        };
        let Ok(program) = std::env::var(variable) else {
            println!("skipped: {variable} does not name the program of {version}");
            return None;
        };
        let mut bench = Bench::new();
        // It may take long to start on a busy machine.
        bench.limits.start = Duration::from_secs(120);
        let model = OpenAi::start(&bench.path("."), script);
        let user = bench.path("user");
        let (tmp, home) = (bench.path("tmp"), bench.path("codex"));
        std::fs::create_dir(&tmp).unwrap();
        let mut set = |name: &str, value: String| bench.config.env.insert(name.to_owned(), value);
        set("TMPDIR", tmp.to_string_lossy().into_owned());
        set(KEY, "key-of-nobody".to_owned());
        match self {
            Self::OpenCode => {
                set("OPENCODE_DISABLE_MODELS_FETCH", "1".to_owned());
                set("OPENCODE_PURE", "1".to_owned());
                let dir = user.join(".config/opencode");
                std::fs::create_dir_all(&dir).unwrap();
                let provider = json!({
                    "npm": "@ai-sdk/openai-compatible", "name": "Scripted",
                    "options": { "baseURL": format!("http://127.0.0.1:{}/v1", model.port), "apiKey": "key-of-nobody" },
                    "models": {
                        "scripted-1": { "name": "One", "limit": { "context": 200_000, "output": 8000 }, "cost": { "input": 1, "output": 2 } },
                        "scripted-2": { "name": "Two" },
                    },
                });
                let config = json!({
                    "autoupdate": false, "share": "disabled", "model": "scripted/scripted-1",
                    "disabled_providers": ["opencode"], "provider": { "scripted": provider },
                    "permission": { "edit": "ask" },
                });
                std::fs::write(dir.join("opencode.json"), config.to_string()).unwrap();
            }
            Self::CodexAcp => {
                codex_home(&home, model.port);
                set("CODEX_HOME", home.to_string_lossy().into_owned());
                bench.config.engine_env.insert("acp".into(), vec![KEY.into()]);
            }
        }
        bench.config.engine_bins.insert(self.name().into(), program.into());
        Some((bench, model))
    }

    fn spec(self, bench: &Bench) -> SessionSpec {
        let mut spec = bench.spec("unused");
        spec.choice.engine = Some("acp".into());
        spec.choice.acp_agent = Some(self.name().into());
        spec.choice.model = (self == Self::OpenCode).then(|| "scripted/scripted-1".into());
        spec
    }
}

/// A plain turn, a second one in the same conversation, then a third in a new process.
#[tokio::test]
async fn turns_and_resume() {
    for agent in Agent::ALL {
        let turns = json!({ "turns": [{ "text": "Noted: apple." }, { "text": "Two." }, { "text": "Still apple." }] });
        let Some((bench, model)) = agent.real(&turns) else { continue };
        let pool = bench.pool(1);
        let mut session = open(&pool, agent.spec(&bench)).await;
        let first = say(&mut session, "remember apple").await;
        assert!(first.ok && first.text == "Noted: apple.", "{agent:?}: {first:?}");
        assert_eq!(first.cost_source.as_deref() == Some("engine"), agent == Agent::OpenCode, "{agent:?}: {first:?}");
        let second = say(&mut session, "/nonsense is no command").await;
        assert!(second.ok && second.text == "Two.", "{agent:?}: {second:?}");
        if agent == Agent::OpenCode {
            assert!(
                (first.spend.cost_usd - second.spend.cost_usd).abs() < first.spend.cost_usd,
                "a share, not a total"
            );
            assert_eq!((first.spend.tokens_in, first.spend.tokens_out), (100, 10), "{first:?}");
        }
        let id = session.native_id();
        assert_eq!(session.close().await, Vec::<String>::new());
        let mut again = agent.spec(&bench);
        again.resume.clone_from(&id);
        let mut session = open(&pool, again).await;
        let third = say(&mut session, "which fruit?").await;
        assert_eq!((third.text.as_str(), &third.native_id), ("Still apple.", &id), "{agent:?}: {third:?}");
        session.close().await;
        let calls: Vec<String> = model.calls().iter().map(|c| c["body"].to_string()).collect();
        assert_eq!(calls.len(), 3, "{agent:?}");
        assert!(calls[2].contains("remember apple") && calls[2].contains("/nonsense"), "the history was there");
        let mut unknown = agent.spec(&bench);
        unknown.resume = Some("00000000-0000-4000-8000-000000000000".into());
        let error = pool.open(unknown, CancellationToken::new(), |_| {}).await.unwrap_err().to_string();
        assert!(error.contains("cannot go on with conversation 0000"), "{agent:?}: {error}");
    }
}

/// Tools work without anybody to permit them; in a mode that asks, what nobody answers is refused and listed.
#[tokio::test]
async fn a_file_is_written_or_refused() {
    for agent in Agent::ALL {
        let script = json!({ "turns": [{ "tools": [{ "write": "a.txt", "content": "hi" }] }, { "text": "Done." }] });
        let Some((bench, _model)) = agent.real(&script) else { continue };
        let mut session = open(&bench.pool(1), agent.spec(&bench)).await;
        let (outcome, events) = watch(&mut session, "write a.txt").await;
        assert!(
            outcome.ok && outcome.text == "Done." && outcome.permission_denials.is_empty(),
            "{agent:?}: {outcome:?}"
        );
        assert_eq!((outcome.tool_calls, outcome.tool_errors), (1, 0), "{agent:?}: {outcome:?}");
        assert!(events.iter().any(|e| matches!(e, TurnEvent::ToolCall { name, .. } if name == "edit")), "{events:?}");
        assert_eq!(std::fs::read_to_string(bench.repo().join("a.txt")).unwrap(), "hi\n", "{agent:?}");
        session.close().await;
        if agent == Agent::CodexAcp {
            // Without a sandbox program of its own it asks for nothing here, it only fails.
            continue;
        }
        let Some((bench, _model)) = agent.real(&script) else { continue };
        let mut spec = agent.spec(&bench);
        spec.choice.permission_mode = Some("manual".into());
        let mut session = open(&bench.pool(1), spec).await;
        let outcome = say(&mut session, "write a.txt").await;
        assert_eq!(class(&outcome), Some(ErrorClass::PermissionDenied), "{agent:?}: {outcome:?}");
        assert!(outcome.permission_denials[0].tool_name == "edit" && outcome.tool_errors == 1, "{outcome:?}");
        assert!(!bench.repo().join("a.txt").exists());
        session.close().await;
    }
}

/// The program is killed in a tool call: its orphans are ended, the turn says so, and the conversation goes on.
#[tokio::test]
async fn a_killed_program_can_be_resumed() {
    for agent in Agent::ALL {
        let wait = json!({ "tools": [{ "sh": "touch begun; sleep 300" }] });
        let Some((bench, _model)) = agent.real(&json!({ "turns": [wait, { "text": "Carrying on." }] })) else {
            continue;
        };
        let mark = format!("REAL_MARK=acp-kill-{}-{}", agent.name(), std::process::id());
        let (variable, value) = mark.split_once('=').unwrap();
        let mut first = agent.spec(&bench);
        first.run_env.push((variable.into(), value.into()));
        let pool = bench.pool(1);
        let mut session = open(&pool, first.clone()).await;
        let kill = async {
            until("the tool runs", || bench.repo().join("begun").exists()).await;
            // A wrapper and what it wraps, so that none of both goes on with the turn.
            for (program, _) in marked(&mark).into_iter().filter(|(_, command)| !command.contains("sleep")) {
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(program), nix::sys::signal::Signal::SIGKILL);
            }
        };
        let (outcome, ()) = tokio::join!(say(&mut session, "wait"), kill);
        assert_eq!(class(&outcome), Some(ErrorClass::Crashed), "{agent:?}: {outcome:?}");
        // The command may have begun before the program told of it.
        assert!(message(&outcome).contains("signal 9") && outcome.tool_calls <= 1, "{agent:?}: {outcome:?}");
        assert_eq!(alive(&mark), Vec::<String>::new());
        session.close().await;
        first.resume = outcome.native_id;
        let mut session = open(&pool, first).await;
        let outcome = say(&mut session, "go on").await;
        assert_eq!(outcome.text, "Carrying on.", "{agent:?}: {outcome:?}");
        session.close().await;
    }
}

/// An interrupted turn ends and the session takes another one; a cancelled turn ends with everything it started.
#[tokio::test]
async fn a_turn_is_interrupted() {
    for agent in Agent::ALL {
        let wait = |file: &str| json!({ "tools": [{ "sh": format!("touch {file}; sleep 300") }] });
        let script = json!({ "turns": [wait("first"), { "text": "Here." }, wait("second"), { "text": "never" }] });
        let Some((bench, _model)) = agent.real(&script) else { continue };
        let mark = format!("REAL_MARK=acp-interrupt-{}-{}", agent.name(), std::process::id());
        let (variable, value) = mark.split_once('=').unwrap();
        let mut spec = agent.spec(&bench);
        spec.run_env.push((variable.into(), value.into()));
        let mut session = open(&bench.pool(1), spec).await;
        let (orders, mut inbox) = claw_orchestrator::engines::Orders::channel();
        let request = claw_orchestrator::engines::TurnRequest {
            message: "wait".into(),
            sink: claw_orchestrator::engines::Listener(silent()),
            cancel: CancellationToken::new(),
            orders: &mut inbox,
        };
        let stop = async {
            until("the tool runs", || bench.repo().join("first").exists()).await;
            orders.send(claw_orchestrator::engines::Order::Interrupt).await.unwrap();
        };
        let (outcome, ()) = tokio::join!(session.take(request), stop);
        assert_eq!(class(&outcome), Some(ErrorClass::Interrupted), "{agent:?}: {outcome:?}");
        assert!(session.alive(), "{agent:?}");
        assert_eq!(say(&mut session, "there?").await.text, "Here.", "{agent:?}");
        let cancel = CancellationToken::new();
        let stop = async {
            until("the tool runs", || bench.repo().join("second").exists()).await;
            cancel.cancel();
        };
        let (outcome, ()) = tokio::join!(session.turn("wait", silent(), cancel.clone()), stop);
        assert_eq!(class(&outcome), Some(ErrorClass::Interrupted), "{agent:?}: {outcome:?}");
        assert_eq!(alive(&mark), Vec::<String>::new());
        session.close().await;
    }
}

/// What the provider refuses is an error of the turn, and the session goes on.
#[tokio::test]
async fn errors_of_the_provider() {
    for agent in Agent::ALL {
        let bad = json!({ "error": 400, "message": "no such thing" });
        let Some((bench, _model)) = agent.real(&json!({ "turns": [bad, { "text": "Better." }] })) else { continue };
        let mut session = open(&bench.pool(1), agent.spec(&bench)).await;
        let outcome = say(&mut session, "hello").await;
        assert_eq!(class(&outcome), Some(ErrorClass::Other), "{agent:?}: {outcome:?}");
        assert!(message(&outcome).contains("no such thing"), "{agent:?}: {}", message(&outcome));
        assert_eq!(say(&mut session, "again").await.text, "Better.", "{agent:?}");
        session.close().await;
        let mut spec = agent.spec(&bench);
        spec.choice.model = Some("nobody/nothing".into());
        let refused = bench.pool(1).open(spec, CancellationToken::new(), |_| {}).await;
        if agent == Agent::OpenCode {
            let text = refused.unwrap_err().to_string();
            assert!(text.contains("refuses the model") && text.contains("scripted/scripted-2"), "{text}");
        }
    }
}
