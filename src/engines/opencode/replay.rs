//! Every recorded run of the real program, replayed.

use super::{run::Run, *};
use crate::{
    engines::{
        Message, TurnEvent,
        turnwise::{
            Program,
            replay::{brief, play, runs},
        },
    },
    model::spec::SandboxMode,
};

/// File, then for each run: class, tool calls, tool errors, refusals, input and output tokens.
const EXPECTED: &[(&str, &[&str])] = &[
    ("run_auto_compaction", &["ok 0 0 0 180300 50"]),
    ("run_bad_model", &["other 0 0 0 0 0"]),
    ("run_bad_session", &["other 0 0 0 0 0"]),
    ("run_error_401", &["auth 0 0 0 0 0"]),
    ("run_error_429_twice", &["ok 0 0 0 100 10"]),
    ("run_error_503_retries_silently", &["timeout 0 0 0 0 0"]),
    ("run_error_context", &["context_overflow 0 0 0 0 0"]),
    ("run_error_stream_cut", &["ok 0 0 0 100 10"]),
    ("run_fork", &["ok 0 0 0 100 10"]),
    ("run_outside_write_rejected", &["permission_denied 1 1 1 100 10"]),
    ("run_permission_ask_auto_rejected", &["permission_denied 1 1 1 100 10"]),
    ("run_permission_ask_with_auto", &["ok 4 1 0 500 50"]),
    ("run_plain", &["ok 0 0 0 120 12"]),
    ("run_plan_agent_bash_still_writes", &["ok 2 1 1 300 30"]),
    ("run_prompt_argument_is_quoted", &["ok 0 0 0 100 10"]),
    ("run_read_only_by_deny", &["ok 4 4 1 500 50"]),
    ("run_resume_tools", &["ok 4 1 0 500 50"]),
    ("run_session_from_other_cwd_hangs", &["timeout 0 0 0 0 0"]),
    ("run_sigterm_then_resume", &["crashed 0 0 0 0 0", "ok 0 0 0 100 10"]),
    ("run_unknown_agent_falls_back", &["ok 0 0 0 100 10"]),
];

/// A conversation as a recorded run takes it up.
fn program(name: &str, start: &serde_json::Value) -> Run {
    let argv: Vec<&str> = start["argv"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
    let id = argv.iter().position(|a| *a == "--session").map(|at| argv[at + 1].to_owned());
    let mut spec = SessionSpec { resume: id, ..SessionSpec::default() };
    spec.options.fork = argv.contains(&"--fork");
    if name == "run_read_only_by_deny" {
        spec.options.sandbox = Some(SandboxMode::ReadOnly);
    }
    Run::new(spec, None)
}

/// EN-1, EN-5 and acceptance 1 of the engines: every recording gives the outcomes of the table.
#[test]
fn recordings_give_the_expected_outcomes() {
    for (name, want) in EXPECTED {
        let runs = runs(NAME, name);
        let mut program = program(name, &runs[0].start);
        let got: Vec<String> = runs.iter().map(|run| brief(&play(&mut program, run).0)).collect();
        assert_eq!(&got, want, "{name}");
    }
}

/// Acceptance 10 of the engines: tokens and costs of the steps add up to the turn's.
#[test]
fn steps_add_up() {
    let runs = runs(NAME, "run_resume_tools");
    let (outcome, events) = play(&mut program("", &runs[0].start), &runs[0]);
    assert!((outcome.spend.cost_usd - 5.0 * 0.00012).abs() < 1e-12, "{outcome:?}");
    assert_eq!((outcome.cost_source.as_deref(), outcome.text.as_str()), (Some("engine"), "Done."));
    let call = events.iter().position(
        |e| matches!(e, TurnEvent::ToolCall { name, summary } if name == "bash" && summary.starts_with("echo oops")),
    );
    assert_eq!(
        events[call.unwrap() + 1],
        TurnEvent::ToolResult { is_error: true },
        "a status other than 0 is a failure"
    );
    let mut machine = Run::new(SessionSpec::default(), None);
    machine.command(&"go".into()).unwrap();
    let mut tally = crate::engines::turnwise::Tally::default();
    let free = br#"{"type":"step_finish","sessionID":"ses_1","part":{"reason":"stop","tokens":{"input":5,"output":2,"reasoning":3,"cache":{"read":7,"write":1}},"cost":0}}"#;
    machine.line(free, &mut tally, crate::model::Time::from_millis(0)).unwrap();
    let outcome = tally.outcome(None, None);
    assert_eq!((outcome.spend.tokens_in, outcome.spend.tokens_out, outcome.cost_source), (13, 5, None));
}

/// A refused call, the words of a summary and the engine's own prompt to go on are what they are.
#[test]
fn events_tell_the_story() {
    let told = |name: &str| {
        let runs = runs(NAME, name);
        play(&mut program(name, &runs[0].start), &runs[0]).0
    };
    let denied = told("run_read_only_by_deny");
    assert_eq!(denied.permission_denials[0].tool_name, "edit", "{denied:?}");
    assert_eq!(told("run_auto_compaction").text, "three");
    assert_eq!(told("run_outside_write_rejected").permission_denials[0].tool_name, "write");
    assert!(told("run_bad_session").error.unwrap().message.contains("Session not found"));
    let runs = runs(NAME, "run_plain");
    let other = SessionSpec { resume: Some("ses_other".into()), ..SessionSpec::default() };
    let (outcome, _) = play(&mut Run::new(other, None), &runs[0]);
    assert_eq!(outcome.error.map(|e| e.class), Some(ErrorClass::Protocol), "another conversation");
}

/// Everything is restated; what may be written follows sandbox, mode and the message.
#[test]
fn arguments_and_permissions() {
    let mut spec = SessionSpec { cwd: "/w".into(), resume: Some("ses_a1".into()), ..SessionSpec::default() };
    spec.choice.model = Some("p/m".into());
    let of = |spec: &SessionSpec, plan: bool| {
        let message = Message { plan, ..Message::from("hello world") };
        let call = Run::new(spec.clone(), Some("/t".into())).command(&message).unwrap();
        assert_eq!(call.stdin.as_deref(), Some("hello world"));
        let text = |s: std::ffi::OsString| s.into_string().unwrap();
        let env: Vec<String> = call.env.into_iter().map(|(n, v)| format!("{}={}", text(n), text(v))).collect();
        (call.args.into_iter().map(text).collect::<Vec<_>>().join(" "), env.join(" "))
    };
    let base = "run --format json --dir /w --session ses_a1 --model p/m";
    let (_, deny) = of(&spec, true);
    let held = deny.strip_prefix("OPENCODE_PERMISSION=").and_then(|d| d.strip_suffix(" TMPDIR=/t")).unwrap();
    let held: serde_json::Value = serde_json::from_str(held).unwrap();
    for tool in ["*", "bash", "edit", "task", "webfetch"] {
        assert_eq!(held[tool], "deny", "{tool}");
    }
    assert_eq!(of(&spec, false), (format!("{base} --auto"), "TMPDIR=/t".into()));
    assert_eq!(of(&spec, true), (base.into(), deny.clone()));
    spec.choice.permission_mode = Some("acceptEdits".into());
    assert_eq!(of(&spec, false), (base.into(), "TMPDIR=/t".into()));
    spec.options.sandbox = Some(SandboxMode::ReadOnly);
    assert_eq!(of(&spec, false), (base.into(), deny));
    spec.options.fork = true;
    assert!(of(&spec, false).0.ends_with("--fork"));
    assert!(is_id("ses_dd40") && !is_id("ses_") && !is_id("-c") && !is_id("ses_a b"));
}
