//! Every recorded conversation of real agents, replayed.

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;

use super::{
    super::{
        EngineError, ErrorClass, Message, TurnEvent, TurnOutcome,
        dialect::{Dialect, Step},
    },
    agents,
    machine::{Machine, Wishes},
    permit::Policy,
};
use crate::{
    model::Time,
    sys::{Fs, RealFs},
};

/// File, agent, then for each of our turns: class, tool calls, tool errors, refusals, tokens in and out, cost in
/// hundred-thousandths of a dollar, reply.
const EXPECTED: &[(&str, &str, &[&str])] = &[
    (
        "codex_acp_0.16_basic",
        "codex-acp",
        &[
            "ok 0 0 0 0 0 0 Hello from the script.",
            "ok 1 0 0 0 0 0 Done.",
            "interrupted 0 0 0 0 0 0",
            "other 0 0 0 0 0 0",
        ],
    ),
    ("codex_acp_0.16_load", "codex-acp", &["ok 0 0 0 0 0 0 after load"]),
    (
        "codex_acp_2.6_basic",
        "codex-acp",
        &[
            "ok 0 0 0 100 10 0 Hello from the script.",
            "ok 4 0 0 400 40 0 Done.",
            "interrupted 0 0 0 0 0 0 ab",
            r#"other 0 0 0 0 0 0 {"error": {"message": "bad thing", "type": "scripted_error", "code": null}}"#,
        ],
    ),
    ("codex_acp_2.6_load", "codex-acp", &["ok 0 0 0 100 10 0 after load"]),
    ("opencode_answered_permission_after_cancel", "opencode", &["interrupted 1 1 0 0 0 0", "ok 1 0 0 100 10 24 Done."]),
    ("opencode_basic", "opencode", &["ok 0 0 0 120 12 11 Hello from the script.", "ok 2 0 0 100 10 36 Done."]),
    ("opencode_cancel_during_bash", "opencode", &["ok 0 0 0 100 10 12 one", "interrupted 1 0 0 0 0 0"]),
    ("opencode_load_new_process", "opencode", &["ok 0 0 0 100 10 0 after load", "ok 1 0 0 100 10 24 after load"]),
    (
        "opencode_permissions_cancel_errors",
        "opencode",
        &[
            "other 5 1 0 100 10 60",
            "other 1 1 0 100 10 12",
            "interrupted 1 1 0 0 0 0",
            "interrupted 1 1 0 0 0 0",
            "interrupted 0 0 0 0 0 0 ab",
            "ok 0 0 0 100 10 24 second answer",
            "other 0 0 0 0 0 0",
            "context_overflow 0 0 0 0 0 0",
            "interrupted 0 0 0 0 0 0",
            "ok 0 0 0 100 10 12 x",
        ],
    ),
    ("opencode_resume_fork_plan_mode_close", "opencode", &["ok 2 1 0 100 10 0 end", "other 0 0 0 0 0 0"]),
    ("opencode_unanswered_permission_blocks", "opencode", &["interrupted 1 1 0 0 0 0"]),
];

fn recorded(name: &str) -> Vec<(bool, Value)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/engines/acp");
    let text = String::from_utf8(RealFs.read(&dir.join(format!("{name}.jsonl"))).unwrap()).unwrap();
    let line = |l: &str| {
        let mut value: Value = serde_json::from_str(l).unwrap();
        (value["dir"] == "out", value["line"].take())
    };
    text.lines().map(line).collect()
}

/// What a recording led to.
struct Played {
    outcomes: Vec<TurnOutcome>,
    steps: Vec<Step>,
    machine: Machine,
    ready: usize,
}

/// Plays a recording: requests of the recording host become orders to the machine, whose ids replace the recorded.
fn play(name: &str, agent: &str, policy: Policy) -> Played {
    let lines = recorded(name);
    let resume =
        lines.iter().find(|(out, l)| !out && matches!(l["method"].as_str(), Some("session/load" | "session/resume")));
    let wishes = Wishes {
        cwd: "/workspace/repo".into(),
        resume: resume.map(|(_, l)| l["params"]["sessionId"].as_str().unwrap().to_owned()),
        ..Wishes::default()
    };
    let agent = agents::find(agent).unwrap();
    let mut machine = Machine::new(wishes, policy, agent.tokens, agent.remarks);
    let mut ids: BTreeMap<u64, Value> = BTreeMap::new();
    let (mut outcomes, mut steps, mut ready) = (Vec::new(), Vec::new(), 0);
    let mut waiting: Vec<Value> = Vec::new();
    for (out, mut line) in lines {
        if !out {
            let sent: Vec<String> = match line["method"].as_str() {
                Some("initialize") => machine.hello(),
                Some("session/prompt") if line["params"]["sessionId"] == *machine.native_id().unwrap() => {
                    let text = line["params"]["prompt"][0]["text"].as_str().unwrap();
                    machine.begin(&Message::from(text))
                }
                Some("session/cancel") => machine.interrupt(),
                // The machine asked for its conversation by itself.
                Some("session/new" | "session/load" | "session/resume") if !waiting.is_empty() => {
                    ids.insert(line["id"].as_u64().unwrap(), waiting.remove(0));
                    continue;
                }
                _ => continue,
            };
            let sent: Value = serde_json::from_str(&sent[0]).unwrap();
            if let Some(id) = line["id"].as_u64() {
                ids.insert(id, sent["id"].clone());
            }
            continue;
        }
        if line.get("method").is_none() {
            match line["id"].as_u64().and_then(|id| ids.get(&id)) {
                Some(id) => line["id"] = id.clone(),
                None => continue,
            }
        }
        for step in machine.line(line.to_string().as_bytes(), Time::from_millis(0)) {
            match step {
                Step::Ended(outcome) => outcomes.push(*outcome),
                Step::Ready => ready += 1,
                Step::Reply(reply) if machine.native_id().is_none() => {
                    waiting.push(serde_json::from_str::<Value>(&reply).unwrap()["id"].clone());
                }
                other @ (Step::Event(_)
                | Step::Reply(_)
                | Step::Failed(_)
                | Step::Answered(_)
                | Step::Goal(_)
                | Step::GoalEnded(..)) => steps.push(other),
            }
        }
    }
    Played { outcomes, steps, machine, ready }
}

fn shown(outcome: &TurnOutcome) -> String {
    let class = outcome.error.as_ref().map_or("ok", |e| e.class.as_str());
    assert_eq!(outcome.ok, outcome.error.is_none());
    format!(
        "{class} {} {} {} {} {} {:.0} {}",
        outcome.tool_calls,
        outcome.tool_errors,
        outcome.permission_denials.len(),
        outcome.spend.tokens_in,
        outcome.spend.tokens_out,
        outcome.spend.cost_usd * 1e5,
        outcome.text.replace('\n', " ").trim(),
    )
}

/// EN-1, EN-2: what each recorded turn comes to.
#[test]
fn every_recording_comes_to_what_it_was() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/engines/acp");
    assert_eq!(RealFs.list(&dir).unwrap().len(), EXPECTED.len(), "every recording is in the table");
    for (name, agent, expected) in EXPECTED {
        let played = play(name, agent, Policy::All);
        let turns: Vec<String> = played.outcomes.iter().map(shown).collect();
        assert_eq!(turns.iter().map(|t| t.trim_end()).collect::<Vec<_>>(), *expected, "{name}");
        assert_eq!(played.ready, 1, "{name}");
        let id = played.machine.native_id().map(str::to_owned);
        assert!(id.is_some() && played.outcomes.iter().all(|o| o.native_id == id), "{name}");
    }
}

fn replies(played: &Played) -> Vec<Value> {
    let reply = |s: &Step| if let Step::Reply(r) = s { serde_json::from_str::<Value>(r).ok() } else { None };
    played.steps.iter().filter_map(reply).collect()
}

/// What an agent asks is answered at once and by the kind of the option; what we cannot do is refused by number.
#[test]
fn requests_of_agents_are_answered() {
    let name = "opencode_permissions_cancel_errors";
    let asked = |method: &str| recorded(name).iter().filter(|(out, l)| *out && l["method"] == method).count();
    let (permissions, files) = (asked("session/request_permission"), asked("fs/write_text_file"));
    assert!(permissions > 3 && files > 0);
    let played = play(name, "opencode", Policy::All);
    let all = replies(&played);
    assert_eq!(all.len(), permissions + files);
    assert_eq!(all.iter().filter(|r| r["error"]["code"] == -32601).count(), files);
    assert_eq!(all.iter().filter(|r| r["result"]["outcome"]["optionId"] == "once").count(), permissions);
    assert!(played.outcomes.iter().all(|o| o.permission_denials.is_empty()));
    let codex = replies(&play("codex_acp_0.16_basic", "codex-acp", Policy::All));
    assert_eq!(codex[0]["result"]["outcome"]["optionId"], "approved");
    assert_eq!(codex[0]["id"], "5bc857ed-5429-401f-a8fa-06cf6fbe1b69", "ids are echoed as they came");
}

/// What is refused is listed; a turn that ends on it without a word more has no reply.
#[test]
fn refusals_are_listed() {
    let played = play("opencode_permissions_cancel_errors", "opencode", Policy::Nothing);
    let second = &played.outcomes[1];
    let error = second.error.as_ref().unwrap();
    assert!(error.class == ErrorClass::PermissionDenied && error.message.contains("execute"), "{error}");
    let denial = &second.permission_denials[0];
    assert!(denial.tool_name == "execute" && denial.tool_use_id.is_some() && denial.input.is_some());
    assert!(replies(&played).iter().any(|r| r["result"]["outcome"]["optionId"] == "reject"));
    let edits = play("opencode_permissions_cancel_errors", "opencode", Policy::Edits);
    let kinds: Vec<&str> = edits.outcomes[0].permission_denials.iter().map(|d| d.tool_name.as_str()).collect();
    assert!(!kinds.is_empty() && !kinds.contains(&"edit"), "{kinds:?}");
}

/// What listeners see: whole messages, tools with what they do, and no words the model never said.
#[test]
fn events_tell_the_story() {
    let events = |name: &str, agent: &str| -> Vec<TurnEvent> {
        let event = |s| if let Step::Event(e) = s { Some(e) } else { None };
        play(name, agent, Policy::All).steps.into_iter().filter_map(event).collect()
    };
    let text = |t: &str| TurnEvent::Text(t.to_owned());
    let call = |name: &str, summary: &str| TurnEvent::ToolCall { name: name.into(), summary: summary.into() };
    let done = TurnEvent::ToolResult { is_error: false };
    let told = events("opencode_basic", "opencode");
    let expected = [
        text("Hello from the script."),
        text("Working."),
        call("execute", "echo hi > a.txt; cat a.txt"),
        done.clone(),
        call("edit", "write"),
        done,
        text("Done."),
    ];
    assert_eq!(told, expected);
    let codex = events("codex_acp_0.16_basic", "codex-acp");
    assert!(codex.contains(&text("Hello from the script.")), "{codex:?}");
    assert!(codex.iter().any(|e| matches!(e, TurnEvent::Note(t) if t.starts_with("Model metadata"))));
}

/// A process that dies in a tool call leaves what is known.
#[test]
fn a_dead_process_leaves_its_part() {
    let mut played = play("opencode_unanswered_permission_blocks", "opencode", Policy::All);
    assert!(played.machine.tool_open());
    let outcome = played.machine.cut_off(EngineError::new(ErrorClass::Crashed, "gone"));
    assert_eq!((outcome.ok, outcome.tool_calls, outcome.usage), (false, 1, None));
    assert!(outcome.native_id.is_some() && !played.machine.tool_open());
}

/// HO-1: an answer too long to keep ends the turn; other lines are only passed over.
#[test]
fn an_answer_too_long_to_keep_ends_the_turn() {
    let mut machine = play("opencode_unanswered_permission_blocks", "opencode", Policy::All).machine;
    let passed = machine.skipped(1 << 30, br#"{"jsonrpc":"2.0","method":"session/update","params":{"#);
    assert!(matches!(&passed[..], [Step::Event(TurnEvent::Note(text))] if text.contains("1073741824")), "{passed:?}");
    assert!(!machine.tool_open());
    let steps = machine.skipped(1 << 30, br#"{"jsonrpc":"2.0","id":3,"result":{"_meta":"xxx"#);
    let [Step::Event(_), Step::Ended(outcome)] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!(outcome.error.as_ref().map(|e| e.class), Some(ErrorClass::Protocol));
}
