//! Every recorded run of the real program, replayed.

use serde_json::Value;

use super::{exec::Exec, *};
use crate::engines::{
    TurnEvent, Usage,
    turnwise::{
        Program,
        replay::{Run, brief, play, runs},
    },
};

/// File, then for each run: class, tool calls, tool errors, refusals, input and output tokens.
const EXPECTED: &[(&str, &[&str])] = &[
    ("exec_code_mode_model", &["ok 2 0 0 300 30"]),
    ("exec_command_outlives_turn", &["ok 1 0 0 200 20"]),
    ("exec_error_400", &["other 0 0 0 0 0"]),
    ("exec_error_401", &["auth 0 0 0 0 0"]),
    ("exec_error_429", &["quota 0 0 0 0 0"]),
    ("exec_error_429_retry_after", &["ok 0 0 0 100 10"]),
    ("exec_error_429_usage_limit", &["quota 0 0 0 0 0"]),
    ("exec_error_500", &["overloaded 0 0 0 0 0"]),
    ("exec_error_503_overloaded", &["overloaded 0 0 0 0 0"]),
    ("exec_error_context_window", &["context_overflow 0 0 0 0 0"]),
    ("exec_error_stream_cut", &["ok 0 0 0 100 10"]),
    ("exec_fork", &["ok 0 0 0 0 0"]),
    ("exec_mcp_call_approved", &["ok 1 0 0 200 20"]),
    ("exec_mcp_call_needs_approval", &["ok 1 1 1 200 20"]),
    ("exec_output_schema", &["ok 0 0 0 100 10"]),
    ("exec_plain", &["ok 0 0 0 120 12"]),
    ("exec_refused_tools_invisible", &["ok 4 4 3 500 50"]),
    ("exec_resume_unknown_id", &["other 0 0 0 0 0"]),
    ("exec_resume_with_sandbox", &["ok 1 0 0 0 0"]),
    ("exec_resume_without_sandbox", &["ok 1 0 0 0 0"]),
    ("exec_sandbox_unavailable", &["ok 2 2 0 300 30"]),
    ("exec_server_down_never_ends", &["timeout 0 0 0 0 0"]),
    ("exec_sigint_then_resume", &["crashed 1 0 0 0 0", "ok 0 0 0 200 20"]),
    ("exec_sigkill_then_resume", &["crashed 1 0 0 0 0", "ok 0 0 0 100 10"]),
    ("exec_tools", &["ok 4 1 0 1100 110"]),
    ("exec_unknown_model", &["ok 0 0 0 100 10"]),
];

/// A conversation as `run` takes it up.
fn program(run: &Run, counted: Option<Usage>) -> Exec {
    let argv: Vec<&str> = run.start["argv"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
    let word = argv.iter().position(|a| ["resume", "fork"].contains(a));
    let mut spec = SessionSpec { resume: word.map(|at| argv[at + 1].to_owned()), ..SessionSpec::default() };
    spec.options.fork = word.is_some_and(|at| argv[at] == "fork");
    spec.options.counted = counted;
    Exec::new(spec, None)
}

/// EN-1, EN-5 and acceptance 1 of the engines: every recording gives the outcomes of the table.
#[test]
fn recordings_give_the_expected_outcomes() {
    for (name, want) in EXPECTED {
        let runs = runs(NAME, name);
        let mut program = program(&runs[0], None);
        let got: Vec<String> = runs.iter().map(|run| brief(&play(&mut program, run).0)).collect();
        assert_eq!(&got, want, "{name}");
    }
}

/// Acceptance 10 of the engines: shares of a thread's totals add up over processes and a fork; without the total
/// before, a turn's own share is not made up.
#[test]
fn tokens_add_up_over_resumed_turns() {
    let mut counted = None;
    let mut sum = Usage::default();
    for name in ["exec_tools", "exec_resume_with_sandbox", "exec_fork"] {
        let runs = runs(NAME, name);
        let (outcome, _) = play(&mut program(&runs[0], counted), &runs[0]);
        sum = sum.plus(outcome.usage.unwrap());
        counted = outcome.counted;
        assert_eq!(outcome.spend.tokens_in, outcome.usage.unwrap().read());
    }
    assert_eq!((Some(sum), sum), (counted, Usage { input: 1420, cached: 180, cache_write: 0, output: 160 }));
    let again = runs(NAME, "exec_resume_with_sandbox");
    let (outcome, _) = play(&mut program(&again[0], None), &again[0]);
    assert_eq!((outcome.usage, outcome.counted.map(|c| c.output)), (None, Some(150)));
}

/// What listeners see of a turn with tools; an error that is no end; the reply is the last message.
#[test]
fn events_tell_the_story() {
    let events = |name: &str| {
        let runs = runs(NAME, name);
        play(&mut program(&runs[0], None), &runs[0])
    };
    let (outcome, told) = events("exec_tools");
    assert_eq!(
        (outcome.text.as_str(), told.first()),
        ("All done.", Some(&TurnEvent::Text("I will run a command.".into())))
    );
    let call = told.iter().position(|e| matches!(e, TurnEvent::ToolCall { name, summary } if name == "apply_patch" && summary == "add /workspace/repo/made_by_patch.txt"));
    assert_eq!(told[call.unwrap() + 1], TurnEvent::ToolResult { is_error: false });
    let (outcome, told) = events("exec_error_stream_cut");
    assert!(outcome.text == "full" && told.iter().any(|e| matches!(e, TurnEvent::Retry(t) if t.starts_with("Reconn"))));
    let (outcome, _) = events("exec_refused_tools_invisible");
    let names: Vec<&str> = outcome.permission_denials.iter().map(|d| d.tool_name.as_str()).collect();
    assert_eq!(names, ["shell", "apply_patch", "shell"]);
    let (outcome, _) = events("exec_sigkill_then_resume");
    assert!(outcome.error.unwrap().message.contains("signal 9") && outcome.native_id.is_some());
}

/// A program that goes on in another conversation than it was told is cut off: nothing is lost silently.
#[test]
fn another_thread_is_an_error() {
    let plain = runs(NAME, "exec_plain");
    let spec = SessionSpec { resume: Some("01a22bcc-0000-7000-8000-000000000000".into()), ..SessionSpec::default() };
    let mut resumed = Exec::new(spec.clone(), None);
    let (outcome, _) = play(&mut resumed, &plain[0]);
    assert_eq!(outcome.error.map(|e| e.class), Some(ErrorClass::Protocol));
    assert_eq!(resumed.native_id(), spec.resume.as_deref(), "the conversation asked for stays");
    let mut fork = spec;
    fork.options.fork = true;
    let mut fork = Exec::new(fork, None);
    assert_eq!(fork.native_id(), None, "a fork has no id before it answered");
    assert!(play(&mut fork, &plain[0]).0.ok && fork.native_id().is_some());
}

/// Everything is restated on a resumed turn, before the word `resume`.
#[test]
fn arguments_restate_everything_on_resume() {
    let id = "01a22bcc-0000-7000-8000-000000000000";
    let mut spec = SessionSpec { cwd: "/w".into(), resume: Some(id.into()), ..SessionSpec::default() };
    spec.choice.model = Some("m".into());
    spec.choice.effort = Some("ultra".into());
    spec.options.add_dirs = vec!["/a".into()];
    spec.options.native.insert("ignoreUserConfig".into(), true.into());
    spec.options.native.insert("profile".into(), "p".into());
    spec.options.base_url = Some("http://x/\"v1".into());
    let of = |spec: &SessionSpec, message: crate::engines::Message<'_>| {
        let call = Exec::new(spec.clone(), Some("/s.json".into())).command(&message).unwrap();
        assert_eq!(call.stdin.as_deref(), Some("hello"));
        assert!(call.leavings.contains(&"/w/.codex".into()));
        call.args.into_iter().map(|a| a.into_string().unwrap()).collect::<Vec<_>>().join(" ")
    };
    let got = of(&spec, "hello".into());
    let want = "exec --json --skip-git-repo-check -s workspace-write -C /w --add-dir /a -p p -m m -c model_reasoning_effort=\"xhigh\" -c shell_environment_policy.ignore_default_excludes=false";
    assert!(got.starts_with(want), "{got}");
    assert!(got.contains(r#"-c model_providers.clawo.base_url="http://x/\"v1""#), "{got}");
    assert!(got.ends_with(&format!("--ignore-user-config resume {id} -")), "{got}");
    let plan = crate::engines::Message { plan: true, effort: Some("low"), ..crate::engines::Message::from("hello") };
    assert!(of(&spec, plan).contains("-s read-only") && of(&spec, plan).contains("effort=\"low\""));
    for (mode, sandbox) in [("plan", "read-only"), ("default", "read-only"), ("bypassPermissions", "workspace-write")] {
        spec.choice.permission_mode = Some(mode.into());
        assert!(of(&spec, "hello".into()).contains(&format!("-s {sandbox} ")), "{mode}");
    }
    spec.options.sandbox = Some(crate::model::spec::SandboxMode::DangerFullAccess);
    assert!(of(&spec, "hello".into()).contains("-s danger-full-access "), "what is asked for by name rules");
    assert!(is_id(id) && !is_id("last-week") && !is_id("01a22bcc000070008000000000000000"));
    assert!(spec.options.native.values().all(|v: &Value| !v.is_null()));
}
