//! Every recorded conversation of the real program, replayed.
//!
//! What the recorder asked is asked of the state machine in its own way; its requests then are given the recorded
//! answers, and answers made up here where it asks more than the recorder did.

use std::{collections::VecDeque, path::Path};

use serde_json::{Value, json};

use super::{app::App, opening::Opening, turn::str_of};
use crate::{
    engines::{
        Ask, GoalSet, Message, SessionSpec, TurnOutcome,
        dialect::{Dialect, Step},
    },
    model::Time,
    sys::{Fs, RealFs},
};

/// File, then what came of it in order. A turn is its class, tool calls, tool errors, refusals, tokens read and written.
const EXPECTED: &[(&str, &[&str])] = &[
    ("approvals_on_request", &["permission_denied 6 2 5 600 60"]),
    ("approvals_untrusted_read_only", &["permission_denied 5 1 5 500 50"]),
    ("background_terminals", &["interrupted 1 0 0 100 10"]),
    ("bad_requests", &["refused: codex refused: Invalid request: missing field `threadId`"]),
    ("basic", &["ok 0 0 0 120 12", "ok 2 0 0 400 40", "answer: nextCursor threads"]),
    (
        "errors",
        &[
            "auth 0 0 0 0 0",
            "other 0 0 0 0 0",
            "other 0 0 0 0 0",
            "quota 0 0 0 0 0",
            "quota 0 0 0 0 0",
            "quota 0 0 0 0 0",
            "overloaded 0 0 0 0 0",
            "context_overflow 0 0 0 0 0",
            "ok 0 0 0 200 20",
        ],
    ),
    ("goal_blocked_by_error", &["auth 0 0 0 0 0", "goal Failed Blocked 0", "answer: goal"]),
    (
        "goal_budget_limited",
        &["ok 0 0 0 400 60", "ok 0 0 0 400 60", "goal BudgetLimited BudgetLimited 320", "answer: goal"],
    ),
    (
        "goal_interrupt",
        &["interrupted 0 0 0 0 0", "ok 0 0 0 100 10", "ok 0 0 0 100 10", "ok 0 0 0 200 20", "answer: goal"],
    ),
    ("goal_resume_autostarts", &["ok 0 0 0 100 10", "ok 0 0 0 200 20", "goal Complete Complete 220"]),
    (
        "goal_set_get_clear",
        &[
            "answer: goal",
            "answer: goal",
            "ok 0 0 0 300 50",
            "ok 0 0 0 400 60",
            "ok 0 0 0 1200 160",
            "goal Complete Complete 1030",
            "answer: goal",
            "answer: cleared",
            "answer: goal",
            "answer: cleared",
            "refused: codex refused: cannot update goal for thread 01a22bd4-a708-76e1-98fe-7c0301d04be1: no goal exists",
            "refused: the objective is empty",
            "goal Failed Complete 1030",
        ],
    ),
    ("goal_usage_limited", &["quota 0 0 0 0 0", "goal Stalled UsageLimited 0", "answer: goal"]),
    ("goal_user_turn_merges", &["ok 0 0 0 100 10", "ok 0 0 0 200 20", "answer: goal"]),
    ("interrupt_pending_approval", &["interrupted 1 0 1 100 10"]),
    ("resume_after_sigkill", &["ok 0 0 0 100 10"]),
    (
        "resume_fork_revert_compact",
        &[
            "ok 1 0 0 200 20",
            "answer: forkedFrom threadId",
            "answer: dropped",
            "ok 0 0 0 100 10",
            "ok 0 0 0 100 10",
            "answer: nextCursor threads",
            "answer: nextCursor threads",
            "answer: compacted, ok 0 0 0 100 10",
        ],
    ),
    (
        "second_process_refused",
        &[
            "failed: codex did not open the thread: the thread is in use by another codex process; end that one or fork the thread (thread 01a22bf9-6377-7ba0-8fb9-92860b8940d8 already has an active writer)",
        ],
    ),
    (
        "steer_interrupt",
        &[
            "ok 1 0 0 200 20",
            "refused: no turn is under way; send the text as a message",
            "ok 0 0 0 100 10",
            "interrupted 1 0 0 100 10",
            "interrupted 0 0 0 0 0",
            "ok 0 0 0 300 30",
        ],
    ),
    ("thread_name", &["ok 0 0 0 100 10"]),
];

struct Replay {
    app: App,
    /// Requests of the state machine that were not answered yet.
    open: VecDeque<(String, u64)>,
    /// Methods by the recorder's ids.
    asked: Vec<(u64, String)>,
    /// The goal as it was told last, or will be told first.
    goal: Value,
    /// The turn that a rollback goes back to.
    before: Value,
    resumes_goal: bool,
    seen: Vec<String>,
}

impl Replay {
    fn of(lines: &[Value], resumes_goal: bool) -> Vec<String> {
        let of_method = |method: &str| lines.iter().find(|l| str_of(&l["line"], "method") == method);
        let mut spec = SessionSpec { cwd: "/workspace/repo".into(), ..SessionSpec::default() };
        spec.resume = of_method("thread/resume").map(|l| str_of(&l["line"]["params"], "threadId").to_owned());
        let mut goals = lines.iter().map(|l| &l["line"]["params"]["goal"]);
        let goal = goals.find(|g| g.is_object()).cloned().unwrap_or_default();
        let app = App::new(Opening::new(&spec));
        let (open, asked, before, seen) = (VecDeque::new(), Vec::new(), Value::Null, Vec::new());
        let mut replay = Self { app, open, asked, goal, before, resumes_goal, seen };
        for line in lines {
            let message = &line["line"];
            match str_of(line, "dir") {
                "in" => replay.ask(message),
                "out" => replay.told(message.clone()),
                _ => {}
            }
        }
        replay.seen
    }

    /// Does what the recorder did.
    fn ask(&mut self, message: &Value) {
        let method = str_of(message, "method");
        if let Some(id) = message["id"].as_u64().filter(|_| !method.is_empty()) {
            self.asked.push((id, method.to_owned()));
        }
        let params = &message["params"];
        let opened = self.app.native_id().is_some();
        if method == "initialize" && self.asked.iter().filter(|(_, m)| m == method).count() == 1 {
            let lines = self.app.hello();
            return self.sent(lines);
        }
        let elsewhere = self.app.native_id() != params["threadId"].as_str() && params["threadId"].is_string();
        if !opened || elsewhere {
            return;
        }
        let text = str_of(&params["input"][0], "text");
        let lines = match method {
            "turn/start" if self.app.turn.active() && !matches!(self.app.doing, super::app::Doing::Goal) => {
                self.app.steer(text)
            }
            "turn/start" => Ok(self.app.begin(&Message::from(text))),
            "turn/steer" if str_of(params, "expectedTurnId") == "bogus" => return,
            "turn/steer" => self.app.steer(text),
            "turn/interrupt" => Ok(self.app.interrupt()),
            "model/list" => self.app.ask(&Ask::Models),
            "thread/list" => self.app.ask(&Ask::Threads { cursor: None, limit: 2 }),
            "thread/fork" => self.app.ask(&Ask::Fork),
            "thread/compact/start" => self.app.ask(&Ask::Compact(None)),
            "thread/revert" => {
                self.before = params["beforeTurnId"].clone();
                self.app.ask(&Ask::Rollback(1))
            }
            "thread/goal/set" => match (params["objective"].as_str(), params["status"].as_str()) {
                (Some(text), None) => {
                    let set = GoalSet { objective: text.to_owned(), token_budget: params["tokenBudget"].as_u64() };
                    self.app.goal(Some(&set), false)
                }
                (None, Some("active")) => self.app.goal(None, true),
                (None, Some("paused")) => Ok(self.app.goal_pause()),
                (None, None) => self.app.ask(&Ask::GoalResume),
                _ => return,
            },
            "thread/goal/get" => self.app.ask(&Ask::GoalGet),
            "thread/goal/clear" => self.app.ask(&Ask::GoalClear),
            _ => return,
        };
        match lines {
            Ok(lines) => self.sent(lines),
            Err(e) => self.seen.push(format!("refused: {}", e.message)),
        }
    }

    /// Lines of the state machine; what was not recorded is answered.
    fn sent(&mut self, lines: Vec<String>) {
        for line in lines {
            let line: Value = serde_json::from_str(&line).unwrap();
            let Some(id) = line["id"].as_u64().filter(|_| line["method"].is_string()) else { continue };
            let method = str_of(&line, "method");
            let following = matches!(self.app.doing, super::app::Doing::Goal);
            let result = match method {
                "model/list" if self.app.native_id().is_none() => json!({ "data": [] }),
                "thread/goal/clear" if following => json!({ "cleared": false }),
                "thread/goal/get" if following => json!({ "goal": self.goal }),
                "thread/backgroundTerminals/clean" if !self.recorded(method) => json!({}),
                "thread/turns/list" => json!({ "data": [{ "id": self.before }] }),
                "thread/unsubscribe" => json!({ "status": "unsubscribed" }),
                _ => {
                    self.open.push_back((method.to_owned(), id));
                    continue;
                }
            };
            self.steps(&json!({ "id": id, "result": result }));
        }
    }

    fn recorded(&self, method: &str) -> bool {
        self.asked.iter().any(|(_, m)| m == method)
    }

    /// Takes a recorded line; an answer gets the id of the request it answers here.
    fn told(&mut self, mut message: Value) {
        if message["params"]["goal"].is_object() {
            self.goal = message["params"]["goal"].clone();
        }
        if message.get("method").is_none() {
            let Some((_, method)) = self.asked.iter().find(|(id, _)| message["id"].as_u64() == Some(*id)) else {
                return;
            };
            let Some(at) = self.open.iter().position(|(m, _)| m == method) else { return };
            message["id"] = self.open.remove(at).unwrap().1.into();
        }
        self.steps(&message);
    }

    fn steps(&mut self, message: &Value) {
        for step in self.app.line(message.to_string().as_bytes(), Time::from_millis(0)) {
            match step {
                Step::Reply(line) => self.sent(vec![line]),
                Step::Ready if self.resumes_goal => {
                    let lines = self.app.goal(None, false).unwrap();
                    self.sent(lines);
                }
                Step::Ready | Step::Event(_) | Step::Goal(_) => {}
                Step::Failed(e) => self.seen.push(format!("failed: {}", e.message)),
                Step::Ended(outcome) => self.seen.push(told(&outcome)),
                Step::Answered(answer) => self.seen.push(match *answer {
                    Ok(answer) => {
                        let keys: Vec<&str> = answer.data.as_object().unwrap().keys().map(String::as_str).collect();
                        let turn = answer.turn.map(|t| format!(", {}", told(&t))).unwrap_or_default();
                        format!("answer: {}{turn}", keys.join(" "))
                    }
                    Err(e) => format!("refused: {}", e.message),
                }),
                Step::GoalEnded(end, view) => {
                    let end = format!("{end:?}");
                    let end = end.split(|c: char| "( {".contains(c)).next().unwrap();
                    self.seen.push(format!("goal {end} {:?} {}", view.status, view.tokens_used));
                }
            }
        }
    }
}

fn told(outcome: &TurnOutcome) -> String {
    assert_eq!(outcome.ok, outcome.error.is_none());
    let class = outcome.error.as_ref().map_or("ok", |e| e.class.as_str());
    let (spend, denials) = (&outcome.spend, outcome.permission_denials.len());
    let (calls, errors) = (outcome.tool_calls, outcome.tool_errors);
    format!("{class} {calls} {errors} {denials} {} {}", spend.tokens_in, spend.tokens_out)
}

fn recorded() -> Vec<(String, Vec<Value>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/engines/codex_app");
    let mut found = Vec::new();
    for name in RealFs.list(&dir).unwrap() {
        let text = String::from_utf8(RealFs.read(&dir.join(&name)).unwrap()).unwrap();
        let lines = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let name = name.to_str().unwrap().trim_start_matches("app_server_").trim_end_matches(".jsonl").to_owned();
        found.push((name, lines));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found
}

/// Engines, how they are tested, 1: each recorded conversation leads to its outcome.
#[test]
fn recorded_conversations_lead_to_their_outcomes() {
    let mut wrong = Vec::new();
    let recorded = recorded();
    for (name, lines) in &recorded {
        let seen = Replay::of(lines, name == "goal_resume_autostarts");
        let expected = EXPECTED.iter().find(|(known, _)| known == name);
        if expected.is_none_or(|(_, expected)| seen != *expected) {
            wrong.push(format!("{name}: {seen:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(recorded.len(), EXPECTED.len(), "a line without its file");
}

/// A state machine whose thread `t` is there.
fn opened() -> App {
    let mut app = App::new(Opening::new(&SessionSpec { cwd: "/repo".into(), ..SessionSpec::default() }));
    app.hello();
    tell(&mut app, &json!({ "id": 1, "result": {} }));
    tell(&mut app, &json!({ "id": 2, "result": { "data": [] } }));
    let thread = json!({ "thread": { "id": "t" }, "model": "m", "sandbox": { "type": "workspaceWrite" } });
    assert_eq!(tell(&mut app, &json!({ "id": 3, "result": thread })), [Step::Ready]);
    app
}

fn tell(app: &mut App, message: &Value) -> Vec<Step> {
    app.line(message.to_string().as_bytes(), Time::from_millis(0))
}

fn turn(method: &str, id: &str) -> Value {
    let turn =
        json!({ "id": id, "status": "completed", "items": [{ "type": "agentMessage", "text": format!("of {id}") }] });
    json!({ "method": method, "params": { "threadId": "t", "turn": turn } })
}

/// HG-1: whatever the program asks is answered at once, and never with yes; refused tool calls are listed.
#[test]
fn questions_are_refused() {
    let mut app = opened();
    let asked = [
        "item/commandExecution/requestApproval",
        "item/fileChange/requestApproval",
        "item/permissions/requestApproval",
        "execCommandApproval",
        "applyPatchApproval",
        "item/tool/requestUserInput",
        "mcpServer/elicitation/request",
        "item/tool/call",
        "account/chatgptAuthTokens/refresh",
        "of/a/later/version",
    ];
    for (id, method) in asked.iter().enumerate() {
        let steps = tell(&mut app, &json!({ "id": id, "method": method, "params": { "itemId": method } }));
        let Some(Step::Reply(reply)) = steps.first() else { panic!("{method}: {steps:?}") };
        let reply: Value = serde_json::from_str(reply).unwrap();
        assert_eq!(reply["id"], id);
        let word = reply["result"]["decision"].as_str().or(reply["result"]["action"].as_str());
        let nothing = reply["result"]["permissions"] == json!({}) || reply["error"].is_object();
        assert!(nothing || matches!(word, Some("decline" | "denied")), "{method}: {reply}");
    }
    assert_eq!(app.turn.denials.len(), 5);
}

/// A turn of the program's own that ends while ours is asked for is not taken for ours, and yet accounted for.
#[test]
fn the_end_of_another_turn_is_not_ours() {
    let mut app = opened();
    tell(&mut app, &turn("turn/started", "a"));
    app.begin(&Message::from("hello"));
    assert_eq!(tell(&mut app, &turn("turn/completed", "a")), []);
    tell(&mut app, &json!({ "id": 4, "result": { "turn": { "id": "b" } } }));
    tell(&mut app, &turn("turn/started", "b"));
    assert_eq!(tell(&mut app, &turn("turn/completed", "a")), [], "told twice");
    let steps = tell(&mut app, &turn("turn/completed", "b"));
    let [Step::Ended(outcome)] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!((outcome.text.as_str(), outcome.spend.turns), ("of b", 2));
    // Merged with ours, it is ours.
    tell(&mut app, &turn("turn/started", "c"));
    app.begin(&Message::from("hello"));
    tell(&mut app, &json!({ "id": 5, "result": { "turn": { "id": "c" } } }));
    assert!(matches!(&tell(&mut app, &turn("turn/completed", "c"))[..], [Step::Ended(o)] if o.spend.turns == 1));
}

/// Lines too long to keep end what they would have ended; an answer nobody waits for any more answers nothing else.
#[test]
fn lost_and_late_lines() {
    let mut app = opened();
    app.begin(&Message::from("hello"));
    tell(&mut app, &json!({ "id": 4, "result": { "turn": { "id": "b" } } }));
    let steps = app.skipped(1 << 30, br#"{"method":"turn/completed","params":{"threadId":"t","turn"#);
    assert!(
        matches!(&steps[..], [Step::Event(_), Step::Ended(o)] if o.error.as_ref().unwrap().message.contains("1073741824"))
    );
    app.ask(&Ask::Models).unwrap();
    app.ask(&Ask::GoalGet).unwrap();
    assert_eq!(tell(&mut app, &json!({ "id": 5, "result": { "data": [] } })), [], "of the ask before");
    let steps = app.skipped(1 << 30, br#"{"id":6,"result":{"goal":{"#);
    let [Step::Event(_), Step::Answered(answer)] = &steps[..] else { panic!("{steps:?}") };
    assert!(answer.as_ref().as_ref().unwrap_err().message.contains("too long"));
}
