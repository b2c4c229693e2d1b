//! The stream-json protocol of Claude Code as a state machine: lines in, events and outcomes out.
//!
//! Owns what the lines mean. Does no I/O and reads no clock, so every recorded conversation can be
//! replayed into it.

mod asking;
pub(super) mod classify;
mod dialect;
mod goal;
pub(super) mod parse;
#[cfg(test)]
mod replay;
mod transcript;
mod usage;

use std::collections::{BTreeSet, VecDeque};

use serde_json::{Value, json};

pub use super::dialect::Step;
use super::{EngineError, ErrorClass, KnownGoal, PermissionDenial, TurnEvent, TurnOutcome, Usage};
use crate::model::Time;
use classify::{Signals, classify};
pub(crate) use transcript::Transcript;
use usage::{Partial, Totals};

/// Told to an agent whose tool call is refused; it can go on without.
const REFUSAL: &str = "Not permitted: nobody is here to answer, and the policy of this run denies it. \
                       Go on without it, or say in your reply what you would have needed.";
/// Longest one-line summary of a tool call, in characters.
const MAX_SUMMARY: usize = 200;
/// Most tool calls tracked as open; a turn with more is no turn of a sane agent.
const MAX_OPEN: usize = 1024;
/// How the line begins that ends a turn.
const RESULT: &[u8] = br#"{"type":"result","#;
/// Most refusals kept of one turn.
const MAX_DENIALS: usize = 100;

#[derive(Debug, Default)]
struct Turn {
    tool_calls: u32,
    tool_errors: u32,
    open: BTreeSet<String>,
    denials: VecDeque<PermissionDenial>,
    /// `error` of the last synthetic reply.
    error: Option<String>,
    interrupt_sent: bool,
    partial: Partial,
}

/// The state of one process.
#[derive(Debug, Default)]
pub struct StreamJson {
    session_id: Option<String>,
    totals: Totals,
    turn: Turn,
    resets_at: Option<Time>,
    /// Control requests of ours so far.
    requests: u32,
    /// The one whose answer is the first sign of life.
    hello: Option<String>,
    /// Model as the program named it.
    model: Option<String>,
    /// The goal that is followed.
    goal: Option<goal::Goal>,
    /// Something about goals that was asked.
    goal_question: Option<goal::Question>,
    /// The goal of the conversation as it was known before this process.
    known: Option<KnownGoal>,
    /// Where the program writes down how a goal ended.
    transcript: Option<Transcript>,
    /// What only the real program does.
    asking: asking::Asking,
}

/// A message of ours as a line. Text that looks like a command of the program gets a leading space, which
/// keeps it text, unless it is one.
pub fn user_line(text: &str, command: bool) -> String {
    let text = if text.starts_with('/') && !command { format!(" {text}") } else { text.to_owned() };
    json!({ "type": "user", "message": { "role": "user", "content": [{ "type": "text", "text": text }] } }).to_string()
}

/// A control request of ours as a line.
pub fn control_line(id: &str, subtype: &str) -> String {
    json!({ "type": "control_request", "request_id": id, "request": { "subtype": subtype } }).to_string()
}

impl StreamJson {
    /// A process that has said nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A program that follows goals: what is known of the conversation's, and where its session files lie.
    #[must_use]
    pub(crate) fn following(self, known: Option<KnownGoal>, transcript: Transcript) -> Self {
        Self { known, transcript: Some(transcript), ..self }
    }

    /// The conversation's id, once the program confirmed it.
    pub fn session_id(&self) -> Option<&str> {
        self.session_id.as_deref()
    }

    /// Whether a tool call is under way: silence is then no stall.
    pub fn tool_open(&self) -> bool {
        !self.turn.open.is_empty()
    }

    /// A message of ours goes out; what comes now belongs to its turn.
    pub fn begin_turn(&mut self) {
        self.turn = Turn::default();
        self.resets_at = None;
    }

    /// We are cutting the turn off, so that its end is not mistaken for the program's own doing.
    pub fn interrupting(&mut self) {
        self.turn.interrupt_sent = true;
    }

    /// A line was too long to keep; `head` is how it began. It may have been the end of a tool call. The end of the
    /// turn is seen by its beginning, because nothing comes after it that could be waited for.
    pub fn skipped(&mut self, bytes: u64, head: &[u8]) -> Vec<Step> {
        self.turn.open.clear();
        let mut steps = note(format!("a line of {bytes} bytes was too long and was skipped"));
        if head.starts_with(RESULT) {
            let text = format!("the turn ended with a line of {bytes} bytes, longer than any that is kept");
            steps.push(Step::Ended(Box::new(self.cut_off(EngineError::new(ErrorClass::Protocol, text)))));
        }
        steps
    }

    /// The outcome of a turn that ends without the program saying so.
    pub fn cut_off(&mut self, error: EngineError) -> TurnOutcome {
        let usage = self.turn.partial.usage();
        self.outcome(String::new(), None, (usage, None), Some(error))
    }

    /// Takes a line. `now` turns a time of day in a limit message into an instant.
    pub fn line(&mut self, bytes: &[u8], now: Time) -> Vec<Step> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Vec::new();
        }
        let Some(value) = parse::value(bytes) else {
            let text = cut(&String::from_utf8_lossy(bytes), MAX_SUMMARY);
            return vec![Step::Event(TurnEvent::Note(format!("not a line of the protocol: {text}")))];
        };
        if self.goal.is_some() {
            self.goal_line(&value, now)
        } else if self.goal_question.is_some() {
            self.asked_line(&value, now)
        } else {
            self.value(&value, now)
        }
    }

    fn value(&mut self, value: &Value, now: Time) -> Vec<Step> {
        match str_of(value, "type") {
            "system" => self.system(value),
            "assistant" => self.assistant(value),
            "user" => self.user(value),
            "result" => self.result(value, now),
            "control_request" => self.asked(value),
            "control_response" => self.answered(value),
            "rate_limit_event" => {
                let info = value.get("rate_limit_info");
                if info.map(|i| str_of(i, "status")) == Some("rejected") {
                    let at = info.and_then(|i| i.get("resetsAt")).and_then(Value::as_i64);
                    self.resets_at = at.map(|s| Time::from_millis(s.saturating_mul(1000)));
                }
                Vec::new()
            }
            // Later versions say more; what is not known changes nothing.
            _ => Vec::new(),
        }
    }

    fn system(&mut self, value: &Value) -> Vec<Step> {
        match str_of(value, "subtype") {
            "init" => {
                self.learn_id(value);
                self.model = value.get("model").and_then(Value::as_str).map(str::to_owned);
                Vec::new()
            }
            "api_retry" => {
                let attempt = value.get("attempt").and_then(Value::as_u64).unwrap_or(0);
                let error = str_of(value, "error");
                vec![Step::Event(TurnEvent::Retry(format!("the engine retries after {error} (attempt {attempt})")))]
            }
            "compact_boundary" => note("the engine compacted the conversation"),
            "model_fallback" => note("the engine fell back to another model"),
            "notification" => {
                let text = [str_of(value, "text"), str_of(value, "message")].into_iter().find(|t| !t.is_empty());
                text.map_or_else(Vec::new, note)
            }
            _ => Vec::new(),
        }
    }

    fn assistant(&mut self, value: &Value) -> Vec<Step> {
        let message = value.get("message").unwrap_or(&Value::Null);
        if let Some(error) = value.get("error").and_then(Value::as_str) {
            self.turn.error = Some(error.to_owned());
        }
        self.turn.partial.assistant(message);
        let synthetic = str_of(message, "model") == "<synthetic>";
        let ours = value.get("parent_tool_use_id").is_none_or(Value::is_null);
        let mut steps = Vec::new();
        for block in blocks(message) {
            match str_of(block, "type") {
                "text" if synthetic => steps.extend(note(str_of(block, "text"))),
                "text" if ours => steps.push(Step::Event(TurnEvent::Text(str_of(block, "text").to_owned()))),
                "tool_use" => {
                    self.turn.tool_calls = self.turn.tool_calls.saturating_add(1);
                    if self.turn.open.len() < MAX_OPEN {
                        self.turn.open.insert(str_of(block, "id").to_owned());
                    }
                    let name = str_of(block, "name").to_owned();
                    let summary = summary(block.get("input").unwrap_or(&Value::Null));
                    steps.push(Step::Event(TurnEvent::ToolCall { name, summary }));
                }
                _ => {}
            }
        }
        steps
    }

    fn user(&mut self, value: &Value) -> Vec<Step> {
        let mut steps = Vec::new();
        for block in blocks(value.get("message").unwrap_or(&Value::Null)) {
            if str_of(block, "type") == "tool_result" {
                let is_error = flag(block, "is_error");
                self.turn.open.remove(str_of(block, "tool_use_id"));
                self.turn.tool_errors = self.turn.tool_errors.saturating_add(u32::from(is_error));
                steps.push(Step::Event(TurnEvent::ToolResult { is_error }));
            }
        }
        steps
    }

    /// The program asks us. Nobody can answer for certain, so the answer is no, at once, whoever asks: the
    /// agent itself or one of its sub-agents.
    fn asked(&mut self, value: &Value) -> Vec<Step> {
        let id = str_of(value, "request_id");
        let request = value.get("request").unwrap_or(&Value::Null);
        let subtype = str_of(request, "subtype");
        if subtype != "can_use_tool" {
            let error = format!("not supported by this host: {subtype}");
            let response = json!({ "subtype": "error", "request_id": id, "error": error });
            return vec![Step::Reply(json!({ "type": "control_response", "response": response }).to_string())];
        }
        let denial = denial(request, "input");
        let text = format!("refused the tool call {} that nobody could permit", denial.tool_name);
        self.deny(denial);
        let response =
            json!({ "subtype": "success", "request_id": id, "response": { "behavior": "deny", "message": REFUSAL } });
        let reply = json!({ "type": "control_response", "response": response }).to_string();
        vec![Step::Reply(reply), Step::Event(TurnEvent::Note(text))]
    }

    fn deny(&mut self, denial: PermissionDenial) {
        let known = |d: &PermissionDenial| d.tool_use_id.is_some() && d.tool_use_id == denial.tool_use_id;
        if self.turn.denials.len() < MAX_DENIALS && !self.turn.denials.iter().any(known) {
            self.turn.denials.push_back(denial);
        }
    }

    fn result(&mut self, value: &Value, now: Time) -> Vec<Step> {
        self.learn_id(value);
        if value.get("origin").map(|o| str_of(o, "kind")) == Some("task-notification") {
            // The program ran a turn by itself; its cost is in the totals and falls to our next turn.
            return note("the engine finished a turn of a background task");
        }
        for listed in value.get("permission_denials").and_then(Value::as_array).into_iter().flatten() {
            self.deny(denial(listed, "tool_input"));
        }
        let used = self.totals.share(value);
        let text = str_of(value, "result").to_owned();
        let error = self.judge(value, &text, now);
        let stop =
            ["stop_reason", "terminal_reason", "subtype"].iter().map(|k| str_of(value, k)).find(|s| !s.is_empty());
        let stop = stop.map(str::to_owned);
        vec![Step::Ended(Box::new(self.outcome(text, stop, used, error)))]
    }

    /// Whether the turn went well. `subtype` alone does not tell.
    fn judge(&self, value: &Value, text: &str, now: Time) -> Option<EngineError> {
        let fail = |class, message: String| Some(EngineError::new(class, message));
        let terminal = str_of(value, "terminal_reason");
        let subtype = str_of(value, "subtype");
        let is_error = flag(value, "is_error");
        let turns = value.get("num_turns").and_then(Value::as_u64).unwrap_or(1);
        let said = || {
            let errors = value.get("errors").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
            let errors = errors.collect::<Vec<_>>().join("; ");
            let told = [errors.as_str(), subtype].into_iter().find(|s| !s.trim().is_empty());
            told.unwrap_or("the engine ended its turn without saying how").to_owned()
        };
        if terminal.starts_with("aborted") {
            return if !self.turn.interrupt_sent && !self.turn.denials.is_empty() {
                fail(ErrorClass::PermissionDenied, format!("the turn ended on a refused tool call: {}", self.denied()))
            } else {
                fail(ErrorClass::Interrupted, "the turn was cut off".into())
            };
        }
        match subtype {
            "error_max_turns" | "error_max_budget_usd" => return fail(ErrorClass::Other, said()),
            "error_during_execution" if turns == 0 => return fail(ErrorClass::StartFailed, said()),
            "success" => {}
            _ => return fail(ErrorClass::Other, said()),
        }
        if is_error {
            let signals = Signals {
                error: self.turn.error.as_deref(),
                status: value.get("api_error_status").and_then(Value::as_u64),
                terminal,
                stop: str_of(value, "stop_reason"),
                text,
                resets_at: self.resets_at,
            };
            return Some(classify(&signals, now));
        }
        if terminal.is_empty() && turns == 0 {
            return fail(ErrorClass::Protocol, "the engine answered by itself, no model turn ran".into());
        }
        if text.trim().is_empty() {
            return if self.turn.denials.is_empty() {
                Some(EngineError::no_reply())
            } else {
                fail(ErrorClass::PermissionDenied, format!("no reply after refused tool calls: {}", self.denied()))
            };
        }
        None
    }

    fn denied(&self) -> String {
        let mut names: Vec<&str> = self.turn.denials.iter().map(|d| d.tool_name.as_str()).collect();
        names.dedup();
        names.join(", ")
    }

    fn outcome(
        &mut self,
        text: String,
        stop_reason: Option<String>,
        (usage, cost): (Option<Usage>, Option<f64>),
        error: Option<EngineError>,
    ) -> TurnOutcome {
        let turn = std::mem::take(&mut self.turn);
        TurnOutcome {
            ok: error.is_none(),
            text,
            stop_reason,
            spend: usage::spend(usage, cost),
            usage,
            cost_source: cost.map(|_| "engine".to_owned()),
            model: self.model.clone(),
            permission_denials: turn.denials.into(),
            tool_calls: turn.tool_calls,
            tool_errors: turn.tool_errors,
            duration_ms: 0,
            native_id: self.session_id.clone(),
            error,
            ..TurnOutcome::default()
        }
    }

    /// Whatever the answer to the first request is: it is one, so the program is there.
    fn answered(&mut self, value: &Value) -> Vec<Step> {
        let id = value.get("response").map(|r| str_of(r, "request_id")).unwrap_or_default();
        if self.hello.as_deref() == Some(id) {
            self.hello = None;
            return vec![Step::Ready];
        }
        Vec::new()
    }

    /// A control request of ours: its id and its line.
    fn control(&mut self, subtype: &str) -> (String, String) {
        self.requests = self.requests.saturating_add(1);
        let id = format!("clawo-{}", self.requests);
        let line = control_line(&id, subtype);
        (id, line)
    }

    fn learn_id(&mut self, value: &Value) {
        let id = str_of(value, "session_id");
        if !id.is_empty() {
            self.session_id = Some(id.to_owned());
        }
    }
}

fn note(text: impl Into<String>) -> Vec<Step> {
    vec![Step::Event(TurnEvent::Note(text.into()))]
}

fn denial(value: &Value, input: &str) -> PermissionDenial {
    PermissionDenial {
        tool_name: str_of(value, "tool_name").to_owned(),
        tool_use_id: value.get("tool_use_id").and_then(Value::as_str).map(str::to_owned),
        input: value.get(input).cloned(),
    }
}

fn blocks(message: &Value) -> impl Iterator<Item = &Value> {
    message.get("content").and_then(Value::as_array).into_iter().flatten()
}

/// A text member; empty when there is none.
pub(super) fn str_of<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn flag(value: &Value, key: &str) -> bool {
    value.get(key).and_then(Value::as_bool).unwrap_or(false)
}

/// The telling argument of a tool call on one line.
pub(super) fn summary(input: &Value) -> String {
    let told = ["command", "file_path", "path", "pattern", "url", "query", "description"];
    let found = told.iter().map(|k| str_of(input, k)).find(|s| !s.is_empty());
    let text = found.map_or_else(|| if input.is_null() { String::new() } else { input.to_string() }, str::to_owned);
    cut(&text, MAX_SUMMARY)
}

/// `text` on one line, at most `max` characters.
pub(super) fn cut(text: &str, max: usize) -> String {
    let mut out: String = text.chars().take(max).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(max).is_some() {
        out.push('…');
    }
    out
}
