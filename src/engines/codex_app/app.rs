//! The protocol as a [`Dialect`]: what is under way, and whom the end of a turn is told.
//!
//! A turn need not be ours. With a goal the program begins turns by itself, and a message sent into one is merged with
//! it. So a turn is known by its id, and what nobody waits for is kept and added to what somebody does.

use serde_json::{Map, Value, json};

use super::{
    asks::Question,
    catalog::Catalog,
    classify::{refused, turn_error},
    goal::{Goal, GoalStep},
    opening::Opening,
    refuse::refusal,
    tokens::Tokens,
    turn::{Turn, str_of},
};
use crate::{
    engines::{
        Answer, Ask, EngineError, ErrorClass, GoalSet, Message, TurnEvent, TurnOutcome, Usage,
        busy::joined,
        dialect::{Dialect, Step},
        jsonrpc::{Incoming, Peer, RpcError},
    },
    model::{Time, run::Spend},
};

/// Put in front of a message in a turn that is to plan.
const PLAN: &str = "Plan only: say what you would do and how, and change nothing.\n\n";
/// How the line begins that ends a turn.
const ENDED: &[u8] = br#"{"method":"turn/completed","#;
/// How an answer begins.
const ANSWER: &[u8] = br#"{"id":"#;

/// What an answer of the program answers.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Asked {
    Initialize,
    Catalog,
    Thread,
    TurnStart,
    Interrupt,
    Steer,
    /// End commands that outlived an interrupted turn.
    Clean,
    /// Put back what a turn had of its own.
    Settings,
    /// Part of something a caller asked.
    Ask(u64, super::asks::Part),
    /// Part of following a goal.
    Goal(GoalStep),
}

/// Who waits for what.
#[derive(Debug)]
pub(super) enum Doing {
    /// The thread is not there yet.
    Opening,
    /// Nobody waits; turns that end were begun by the program itself.
    Nothing,
    /// Somebody waits for the turn with this id, once it is known.
    Turn(Option<String>),
    /// Somebody waits for an answer.
    Ask(Question),
    /// Somebody follows the goal.
    Goal,
}

/// The state of one process and its thread.
#[derive(Debug)]
pub(super) struct App {
    pub(super) peer: Peer<Asked>,
    pub(super) opening: Opening,
    /// Empty until the program confirmed it.
    pub(super) thread: String,
    pub(super) doing: Doing,
    pub(super) turn: Turn,
    pub(super) tokens: Tokens,
    pub(super) goal: Goal,
    /// Model as the program named it.
    pub(super) model: Option<String>,
    /// When the limit that was last told of ends.
    pub(super) resets_at: Option<Time>,
    /// Asks so far; a late answer to an earlier one is nobody's.
    pub(super) asks: u64,
    catalog: Catalog,
    /// The thread's own effort and sandbox, which a single turn may differ from.
    effort: Option<String>,
    policy: Value,
    /// What is to be put back when the turn is over.
    restore: Option<Value>,
    /// Turns that ended without anybody waiting for them.
    carry: Option<TurnOutcome>,
    /// A turn that ended before it was known whether it was the one waited for.
    early: Option<(Vec<String>, TurnOutcome)>,
    /// An interrupt was ordered before the turn had an id.
    interrupt_wanted: bool,
    /// Told once the commands of an interrupted turn are ended.
    held: Vec<Step>,
    /// Told in the first turn.
    notes: Vec<String>,
}

impl App {
    /// A process that has said nothing yet.
    pub(super) fn new(opening: Opening) -> Self {
        let known = match opening.origin {
            super::opening::Origin::New => Some(Usage::default()),
            super::opening::Origin::Resumed(_) => opening.counted,
            super::opening::Origin::Forked(_) => None,
        };
        Self {
            peer: Peer::new(false),
            opening,
            thread: String::new(),
            doing: Doing::Opening,
            turn: Turn::default(),
            tokens: Tokens::from(known),
            goal: Goal::default(),
            model: None,
            resets_at: None,
            asks: 0,
            catalog: Catalog::default(),
            effort: None,
            policy: Value::Null,
            restore: None,
            carry: None,
            early: None,
            interrupt_wanted: false,
            held: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// A request about the thread as a line.
    pub(super) fn request(&mut self, asked: Asked, method: &str, mut params: Value) -> String {
        if let Some(params) = params.as_object_mut() {
            params.insert("threadId".to_owned(), self.thread.clone().into());
        }
        self.peer.request(asked, method, &params)
    }

    fn answered(&mut self, asked: Asked, result: Result<Value, RpcError>) -> Vec<Step> {
        match (asked, result) {
            (Asked::Initialize, Ok(_)) => {
                let list = self.peer.request(Asked::Catalog, "model/list", &json!({ "limit": 200 }));
                vec![Step::Reply(self.peer.notification("initialized", &json!({}))), Step::Reply(list)]
            }
            (Asked::Initialize, Err(e)) => vec![Step::Failed(refused("codex did not begin", &e))],
            (Asked::Catalog, listed) => {
                // Without a list efforts are passed on as they are.
                self.catalog = listed.map(|page| Catalog::read(&page)).unwrap_or_default();
                let (method, params, note) = self.opening.request(&self.catalog);
                self.notes.extend(note);
                vec![Step::Reply(self.peer.request(Asked::Thread, method, &params))]
            }
            (Asked::Thread, Ok(answer)) => vec![self.opened(&answer)],
            (Asked::Thread, Err(e)) => vec![Step::Failed(refused("codex did not open the thread", &e))],
            (Asked::TurnStart, Ok(answer)) => self.begun(&answer),
            (Asked::TurnStart, Err(e)) => self.not_begun(&e),
            // Without a turn there is nothing to interrupt.
            (Asked::Interrupt, _) | (Asked::Settings | Asked::Steer, Ok(_)) => Vec::new(),
            (Asked::Steer, Err(e)) => note(format!("the turn did not take the added text: {}", e.message)),
            (Asked::Settings, Err(e)) => note(format!("the settings of the turn before stay: {}", e.message)),
            // Ended or not, there is no more that could be done.
            (Asked::Clean, _) => std::mem::take(&mut self.held),
            (Asked::Ask(number, part), result) => self.ask_answered(number, part, result),
            (Asked::Goal(step), result) => self.goal_answered(step, result),
        }
    }

    fn opened(&mut self, answer: &Value) -> Step {
        match self.opening.thread(answer) {
            Ok(id) => self.thread = id,
            Err(e) => return Step::Failed(e),
        }
        let text = |key: &str| Some(str_of(answer, key).to_owned()).filter(|t| !t.is_empty());
        self.model = text("model");
        self.effort = text("reasoningEffort").or_else(|| self.catalog.default_effort(self.model.as_deref()));
        self.policy = answer.get("sandbox").cloned().unwrap_or_default();
        self.doing = Doing::Nothing;
        Step::Ready
    }

    /// The turn has its id, which may be that of a turn the program had begun by itself.
    fn begun(&mut self, answer: &Value) -> Vec<Step> {
        let mut steps: Vec<Step> = std::mem::take(&mut self.notes).into_iter().flat_map(note).collect();
        let id = answer.get("turn").map(|t| str_of(t, "id")).unwrap_or_default().to_owned();
        if !matches!(self.doing, Doing::Turn(None)) {
            return steps;
        }
        self.doing = Doing::Turn(Some(id.clone()));
        if let Some((ids, outcome)) = self.early.take() {
            if ids.contains(&id) {
                steps.extend(self.deliver(&ids, outcome));
                return steps;
            }
            self.keep(outcome);
        }
        self.turn.learn(&id);
        if std::mem::take(&mut self.interrupt_wanted) {
            steps.extend(self.interrupt_lines().into_iter().map(Step::Reply));
        }
        steps
    }

    fn not_begun(&mut self, error: &RpcError) -> Vec<Step> {
        if !matches!(self.doing, Doing::Turn(None)) {
            return Vec::new();
        }
        self.doing = Doing::Nothing;
        self.restore = None;
        if let Some((_, outcome)) = self.early.take() {
            self.keep(outcome);
        }
        let failed = TurnOutcome::failed(refused("codex did not begin the turn", error));
        let outcome = self.with_kept(TurnOutcome { native_id: Some(self.thread.clone()), ..failed });
        vec![Step::Ended(Box::new(outcome))]
    }

    /// A turn is over.
    pub(super) fn turn_completed(&mut self, turn: &Value, now: Time) -> Vec<Step> {
        let ids = [str_of(turn, "id"), str_of(turn, "rootTurnId")];
        if !ids.iter().any(|id| self.turn.is(id)) {
            return Vec::new();
        }
        let mut steps: Vec<Step> = self.turn.cut_message().map(Step::Event).into_iter().collect();
        let names: Vec<String> = self.turn.ids.iter().cloned().chain(ids.map(str::to_owned)).collect();
        let clean = self.turn.interrupted && str_of(turn, "status") == "interrupted";
        let waited_for = matches!(self.doing, Doing::Turn(_));
        let outcome = self.closed(turn, waited_for, now);
        let told = self.goal_turn(&outcome, waited_for);
        if let Some(line) = told {
            steps.push(Step::Reply(line));
        }
        let delivered = self.deliver(&names, outcome);
        if clean {
            // An interrupted turn leaves its commands running.
            let line = self.request(Asked::Clean, "thread/backgroundTerminals/clean", json!({}));
            steps.push(Step::Reply(line));
            self.held.extend(delivered);
        } else {
            steps.extend(delivered);
        }
        steps
    }

    /// The outcome of the turn that just ended.
    fn closed(&mut self, turn: &Value, needs_reply: bool, now: Time) -> TurnOutcome {
        let status = str_of(turn, "status");
        let items = turn.get("items").and_then(Value::as_array).into_iter().flatten();
        let last = items.filter(|i| str_of(i, "type") == "agentMessage").map(|i| str_of(i, "text")).next_back();
        if let Some(text) = last.filter(|t| !t.trim().is_empty()) {
            text.clone_into(&mut self.turn.text);
        }
        let fail = |class, text: String| Some(EngineError::new(class, text));
        let refused = !self.turn.denials.is_empty();
        let error = match status {
            "completed" if !needs_reply || !self.turn.text.trim().is_empty() => None,
            "completed" if refused => {
                fail(ErrorClass::PermissionDenied, format!("no reply after refused tool calls: {}", self.turn.denied()))
            }
            "completed" => Some(EngineError::no_reply()),
            "interrupted" if !self.turn.interrupted && refused => {
                let text = format!("the turn ended on a refused tool call: {}", self.turn.denied());
                fail(ErrorClass::PermissionDenied, text)
            }
            "interrupted" => fail(ErrorClass::Interrupted, "the turn was cut off".to_owned()),
            _ => {
                match turn.get("error").filter(|e| !e.is_null()) {
                    Some(error) => Some(turn_error(error, self.resets_at, now)),
                    None => self.turn.error.take().or_else(|| {
                        fail(ErrorClass::Other, format!("the turn ended as `{status}` without saying why"))
                    }),
                }
            }
        };
        self.outcome(Some(status.to_owned()).filter(|s| !s.is_empty()), error)
    }

    fn outcome(&mut self, stop_reason: Option<String>, error: Option<EngineError>) -> TurnOutcome {
        let turn = std::mem::take(&mut self.turn);
        let usage = self.tokens.take();
        let used = usage.unwrap_or_default();
        TurnOutcome {
            ok: error.is_none(),
            text: turn.text,
            stop_reason,
            spend: Spend { turns: 1, tokens_in: used.read(), tokens_out: used.output, ..Spend::default() },
            usage,
            counted: self.tokens.total(),
            model: self.model.clone(),
            permission_denials: turn.denials.into(),
            tool_calls: turn.tool_calls,
            tool_errors: turn.tool_errors,
            native_id: Some(self.thread.clone()).filter(|t| !t.is_empty()),
            error,
            ..TurnOutcome::default()
        }
    }

    /// Tells whoever waits for the turn called `ids`, or keeps it. What ends somebody's wait comes last.
    fn deliver(&mut self, ids: &[String], outcome: TurnOutcome) -> Vec<Step> {
        match &self.doing {
            Doing::Opening => {
                self.keep(outcome);
                Vec::new()
            }
            Doing::Turn(None) => {
                if let Some((_, before)) = self.early.replace((ids.to_vec(), outcome)) {
                    self.keep(before);
                }
                Vec::new()
            }
            Doing::Turn(Some(id)) if ids.contains(id) => {
                self.doing = Doing::Nothing;
                let put_back = self.restore.take();
                let put_back = put_back.map(|s| self.request(Asked::Settings, "thread/settings/update", s));
                let outcome = self.with_kept(outcome);
                put_back.map(Step::Reply).into_iter().chain([Step::Ended(Box::new(outcome))]).collect()
            }
            Doing::Ask(question) if question.waits_for(ids) => self.ask_turn(outcome),
            Doing::Turn(Some(_)) | Doing::Ask(_) => {
                self.keep(outcome);
                Vec::new()
            }
            Doing::Nothing => vec![Step::Ended(Box::new(self.with_kept(outcome)))],
            Doing::Goal => {
                let mut steps = vec![Step::Ended(Box::new(self.with_kept(outcome)))];
                steps.extend(self.goal_moved());
                steps
            }
        }
    }

    /// Keeps a turn that nobody waits for.
    pub(super) fn keep(&mut self, outcome: TurnOutcome) {
        let outcome = self.with_kept(outcome);
        self.carry = Some(outcome);
    }

    fn with_kept(&mut self, outcome: TurnOutcome) -> TurnOutcome {
        match self.carry.take() {
            Some(before) => joined(before, outcome),
            None => outcome,
        }
    }

    /// Ends the wait for an answer, with the turns that ended meanwhile.
    pub(super) fn answer(&mut self, data: Value, turn: Option<TurnOutcome>) -> Vec<Step> {
        self.doing = Doing::Nothing;
        let turn = match turn {
            Some(turn) => Some(self.with_kept(turn)),
            None => self.carry.take(),
        };
        vec![Step::Answered(Box::new(Ok(Answer { data, turn })))]
    }

    /// Interrupts the turn under way.
    pub(super) fn interrupt_lines(&mut self) -> Vec<String> {
        let Some(id) = self.turn.ids.front().cloned() else {
            self.interrupt_wanted = matches!(self.doing, Doing::Turn(None));
            return Vec::new();
        };
        self.turn.interrupted = true;
        vec![self.request(Asked::Interrupt, "turn/interrupt", json!({ "turnId": id }))]
    }
}

impl Dialect for App {
    fn hello(&mut self) -> Vec<String> {
        let about = json!({ "name": "clawo", "title": "Claw Orchestrator", "version": env!("CARGO_PKG_VERSION") });
        // Ending commands and changing settings between turns count as experimental there.
        let params = json!({ "clientInfo": about, "capabilities": { "experimentalApi": true } });
        vec![self.peer.request(Asked::Initialize, "initialize", &params)]
    }

    fn begin(&mut self, message: &Message<'_>) -> Vec<String> {
        // A turn that the program began by itself takes the message in, and then is ours with all it did.
        if !self.turn.active() {
            self.turn = Turn::default();
        }
        self.interrupt_wanted = false;
        self.doing = Doing::Turn(None);
        let text = if message.plan { format!("{PLAN}{}", message.text) } else { message.text.to_owned() };
        let (mut params, mut restore) = (Map::new(), Map::new());
        params.insert("input".to_owned(), json!([{ "type": "text", "text": text }]));
        // Both stay until they are changed again, so the thread's own are put back afterwards.
        if let Some(effort) = message.effort.filter(|e| *e != "auto") {
            params.insert("effort".to_owned(), self.catalog.fitting(self.model.as_deref(), effort).into());
            restore.insert("effort".to_owned(), self.effort.clone().into());
        }
        if message.plan && str_of(&self.policy, "type") != "readOnly" {
            params.insert("sandboxPolicy".to_owned(), json!({ "type": "readOnly" }));
            restore.insert("sandboxPolicy".to_owned(), self.policy.clone());
        }
        if let Some(schema) = &self.opening.schema {
            params.insert("outputSchema".to_owned(), schema.clone());
        }
        self.restore = Some(restore).filter(|r| !r.is_empty()).map(Value::Object);
        vec![self.request(Asked::TurnStart, "turn/start", Value::Object(params))]
    }

    fn line(&mut self, bytes: &[u8], now: Time) -> Vec<Step> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Vec::new();
        }
        let value = serde_json::from_slice(bytes).or_else(|_| serde_json::from_str(&String::from_utf8_lossy(bytes)));
        let Ok(value) = value else {
            let text = super::turn::one_line(&String::from_utf8_lossy(bytes));
            return note(format!("not a line of the protocol: {text}"));
        };
        match self.peer.take(value) {
            Incoming::Request { id, method, params } => {
                let (reply, denied) = refusal(&self.peer, &id, &method, &params);
                let text = format!("refused what nobody could answer: {method}");
                if let Some(denied) = denied {
                    self.turn.deny(denied);
                }
                vec![Step::Reply(reply), Step::Event(TurnEvent::Note(text))]
            }
            Incoming::Notification { method, params } => self.told(&method, &params, now),
            Incoming::Answer { asked, result } => self.answered(asked, result),
            Incoming::Noise => Vec::new(),
        }
    }

    fn skipped(&mut self, bytes: u64, head: &[u8]) -> Vec<Step> {
        self.turn.lost_a_line();
        let text = format!("a line of {bytes} bytes was too long and was skipped");
        let mut steps = note(text.clone());
        if head.starts_with(ENDED) && self.turn.active() {
            let error = EngineError::new(ErrorClass::Protocol, format!("the turn ended, but {text}"));
            let names: Vec<String> = self.turn.ids.iter().cloned().collect();
            let outcome = self.outcome(None, Some(error));
            steps.extend(self.deliver(&names, outcome));
        } else if let Some(digits) = head.strip_prefix(ANSWER) {
            let digits: Vec<u8> = digits.iter().copied().take_while(u8::is_ascii_digit).collect();
            let id = String::from_utf8_lossy(&digits).parse::<u64>().ok();
            let lost = json!({ "id": id, "error": { "message": text } });
            if let Incoming::Answer { asked, result } = self.peer.take(lost) {
                steps.extend(self.answered(asked, result));
            }
        }
        steps
    }

    fn interrupt(&mut self) -> Vec<String> {
        self.interrupt_lines()
    }

    fn steer(&mut self, text: &str) -> Result<Vec<String>, EngineError> {
        let input = json!([{ "type": "text", "text": text }]);
        if let Some(id) = self.turn.ids.front().cloned() {
            let params = json!({ "expectedTurnId": id, "input": input });
            return Ok(vec![self.request(Asked::Steer, "turn/steer", params)]);
        }
        if matches!(self.doing, Doing::Turn(None)) {
            // The turn has no id yet; a second start is merged with it.
            return Ok(vec![self.request(Asked::Steer, "turn/start", json!({ "input": input }))]);
        }
        Err(EngineError::new(ErrorClass::Other, "no turn is under way; send the text as a message"))
    }

    fn ask(&mut self, ask: &Ask) -> Result<Vec<String>, EngineError> {
        self.asked_for(ask)
    }

    fn goal(&mut self, set: Option<&GoalSet>, reactivate: bool) -> Result<Vec<String>, EngineError> {
        self.follow_goal(set, reactivate)
    }

    fn goal_pause(&mut self) -> Vec<String> {
        self.pause_goal()
    }

    fn tool_open(&self) -> bool {
        self.turn.tool_open()
    }

    fn cut_off(&mut self, error: EngineError) -> TurnOutcome {
        self.turn.cut_message();
        self.doing = Doing::Nothing;
        if let Some((_, outcome)) = self.early.take() {
            self.keep(outcome);
        }
        let outcome = self.outcome(None, Some(error));
        self.with_kept(outcome)
    }

    fn native_id(&self) -> Option<&str> {
        Some(self.thread.as_str()).filter(|t| !t.is_empty())
    }
}

/// Something to know, as a step.
pub(super) fn note(text: impl Into<String>) -> Vec<Step> {
    vec![Step::Event(TurnEvent::Note(text.into()))]
}
