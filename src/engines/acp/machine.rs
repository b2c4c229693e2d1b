//! The protocol as a state machine: lines in, steps out.

mod dialect;

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{
    super::{
        Answer, EngineError, ErrorClass, TurnEvent, TurnOutcome, Usage,
        dialect::Step,
        jsonrpc::{Peer, RpcError},
        not_supported,
        stream_json::{cut, str_of},
    },
    agents::Tokens,
    classify,
    permit::{self, Policy},
    setup::{Choice, Offered},
    turn::{self, Bill, Turn},
};

/// The version of the protocol that was recorded.
const VERSION: u64 = 1;
/// Refusal of whatever we cannot do, in the protocol's numbers.
const UNKNOWN_METHOD: i64 = -32601;
/// Longest text of a line that is shown although nobody understands it, in characters.
const MAX_SHOWN: usize = 200;
/// Notes kept until somebody listens; there is one for each thing that a session can be set to.
const MAX_NOTES: usize = 8;

/// What a session is to be.
#[derive(Debug, Clone, Default)]
pub(super) struct Wishes {
    /// Directory.
    pub(super) cwd: PathBuf,
    /// Conversation to go on with.
    pub(super) resume: Option<String>,
    /// Branches off it instead.
    pub(super) fork: bool,
    /// Model.
    pub(super) model: Option<String>,
    /// Effort.
    pub(super) effort: Option<String>,
    /// Modes that fit, the best first.
    pub(super) modes: &'static [&'static str],
}

/// What one of our requests was about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Initialize,
    Session,
    Set(Setting),
    SwitchModel,
    /// Number of the turn.
    Prompt(u64),
}

/// Something that is set before the first turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setting {
    Model,
    Effort,
    Mode,
    /// The mode of one turn.
    TurnMode,
}

/// The state of one process.
#[derive(Debug)]
pub(super) struct Machine {
    peer: Peer<Asked>,
    wishes: Wishes,
    policy: Policy,
    tokens: Tokens,
    remarks: &'static [&'static str],
    session: Option<String>,
    ready: bool,
    offered: Offered,
    /// Mode between turns, when one was set for a turn alone.
    mode_to_return_to: Option<String>,
    /// The model that a request under way asks for.
    switching: String,
    turns: u64,
    /// Absent between turns.
    turn: Option<Turn>,
    /// Whether the turn is to change nothing.
    planning: bool,
    bill: Bill,
    cost: Option<f64>,
    notes: Vec<String>,
}

impl Machine {
    /// A process that has said nothing yet.
    pub(super) fn new(wishes: Wishes, policy: Policy, tokens: Tokens, remarks: &'static [&'static str]) -> Self {
        let bill = Bill::new(wishes.resume.is_none());
        Self {
            peer: Peer::new(true),
            wishes,
            policy,
            tokens,
            remarks,
            session: None,
            ready: false,
            offered: Offered::default(),
            mode_to_return_to: None,
            switching: String::new(),
            turns: 0,
            turn: None,
            planning: false,
            bill,
            cost: None,
            notes: Vec::new(),
        }
    }

    fn id(&self) -> &str {
        self.session.as_deref().unwrap_or_default()
    }

    fn answered(&mut self, asked: Asked, result: Result<Value, RpcError>) -> Vec<Step> {
        match (asked, result) {
            (Asked::Initialize, Ok(said)) => self.initialized(&said),
            (Asked::Session, Ok(said)) => self.opened(&said),
            (Asked::Initialize, Err(e)) => vec![Step::Failed(classify::refusal(&e))],
            (Asked::Session, Err(e)) => {
                let mut error = classify::refusal(&e);
                if let Some(id) = &self.wishes.resume {
                    error.message = format!("the agent cannot go on with conversation {id}: {}", error.message);
                }
                vec![Step::Failed(error)]
            }
            (Asked::Set(setting), result) => self.set(setting, result),
            (Asked::SwitchModel, Ok(said)) => {
                self.offered.learn(&said);
                let model = std::mem::take(&mut self.switching);
                self.now_with(&model);
                let answer = Answer { data: json!({ "model": model }), turn: None };
                vec![Step::Answered(Box::new(Ok(answer)))]
            }
            (Asked::SwitchModel, Err(e)) => vec![Step::Answered(Box::new(Err(classify::refusal(&e))))],
            (Asked::Prompt(turn), result) if turn == self.turns => self.ended(result),
            // Of a turn that was given up.
            (Asked::Prompt(_), _) => Vec::new(),
        }
    }

    /// It is there; now the conversation.
    fn initialized(&mut self, said: &Value) -> Vec<Step> {
        let version = said.get("protocolVersion").and_then(Value::as_u64);
        if version != Some(VERSION) {
            let spoken = version.map_or_else(|| "no version".to_owned(), |v| format!("version {v}"));
            let text = format!(
                "the agent speaks {spoken} of the protocol, only {VERSION} is known; use another release of it"
            );
            return vec![Step::Failed(EngineError::new(ErrorClass::Protocol, text))];
        }
        let agent = said.get("agentCapabilities").unwrap_or(&Value::Null);
        let can = |what: &str| agent.get("sessionCapabilities").and_then(|c| c.get(what)).is_some_and(|c| !c.is_null());
        let mut params = json!({ "cwd": self.wishes.cwd, "mcpServers": [] });
        let method = match &self.wishes.resume {
            None => "session/new",
            Some(id) => {
                if let Some(map) = params.as_object_mut() {
                    map.insert("sessionId".to_owned(), json!(id));
                }
                let loads = agent.get("loadSession").and_then(Value::as_bool) == Some(true);
                match (self.wishes.fork, can("resume"), loads) {
                    (true, _, _) if can("fork") => "session/fork",
                    // The same without the whole history being told again.
                    (false, true, _) => "session/resume",
                    (false, false, true) => "session/load",
                    (true, _, _) => {
                        return vec![Step::Failed(not_supported("this agent cannot branch conversations off"))];
                    }
                    (false, false, false) => {
                        return vec![Step::Failed(not_supported("this agent cannot go on with earlier conversations"))];
                    }
                }
            }
        };
        vec![Step::Reply(self.peer.request(Asked::Session, method, &params))]
    }

    /// The conversation is there; now what it is to be set to.
    fn opened(&mut self, said: &Value) -> Vec<Step> {
        self.session = match (str_of(said, "sessionId"), &self.wishes.resume) {
            ("", Some(id)) => Some(id.clone()),
            ("", None) => {
                let text = "the agent opened a conversation without an id";
                return vec![Step::Failed(EngineError::new(ErrorClass::Protocol, text))];
            }
            (id, _) => Some(id.to_owned()),
        };
        self.offered.learn(said);
        self.next_setting(Some(Setting::Model))
    }

    /// Sets what is still to be set, one after the other, because one answer can change what the next may be.
    fn next_setting(&mut self, mut from: Option<Setting>) -> Vec<Step> {
        while let Some(setting) = from {
            let (wanted, then) = match setting {
                Setting::Model => (self.model(), Some(Setting::Effort)),
                Setting::Effort => (Ok(self.effort()), Some(Setting::Mode)),
                Setting::Mode | Setting::TurnMode => (Ok(self.mode()), None),
            };
            match wanted {
                Ok(Some(value)) => return vec![Step::Reply(self.setting(setting, &value))],
                Ok(None) => from = then,
                Err(e) => return vec![Step::Failed(e)],
            }
        }
        self.ready = true;
        vec![Step::Ready]
    }

    /// The model to set, if it is not the one in use.
    fn model(&self) -> Result<Option<String>, EngineError> {
        let Some(wanted) = &self.wishes.model else { return Ok(None) };
        match &self.offered.models {
            None => Err(not_supported("this agent offers no choice of models; leave the model out")),
            Some(offered) => Ok(Some(wanted.clone()).filter(|w| *w != offered.current)),
        }
    }

    fn effort(&mut self) -> Option<String> {
        let wanted = self.wishes.effort.as_deref().filter(|e| *e != "auto")?;
        let found = self.offered.effort(wanted);
        match &found {
            None => self.notes.push(format!("the agent offers no choice of efforts; {wanted} is ignored")),
            Some(found) if found != wanted => {
                self.notes.push(format!("the agent has no effort {wanted} for this model; it works with {found}"));
            }
            Some(_) => {}
        }
        found.filter(|f| self.offered.efforts.as_ref().is_some_and(|e| e.current != *f))
    }

    fn mode(&self) -> Option<String> {
        let found = self.offered.mode(self.wishes.modes)?;
        Some(found).filter(|f| self.offered.modes.as_ref().is_some_and(|m| m.current != *f))
    }

    /// The line that sets something.
    fn setting(&mut self, setting: Setting, value: &str) -> String {
        let (list, own) = match setting {
            Setting::Model => (&self.offered.models, ("session/set_model", "modelId")),
            Setting::Effort => (&self.offered.efforts, ("session/set_effort", "effort")),
            Setting::Mode | Setting::TurnMode => (&self.offered.modes, ("session/set_mode", "modeId")),
        };
        let (method, params) = list.clone().unwrap_or_default().request(self.id(), value, own);
        self.peer.request(Asked::Set(setting), method, &params)
    }

    fn set(&mut self, setting: Setting, result: Result<Value, RpcError>) -> Vec<Step> {
        let said = match result {
            Ok(said) => said,
            Err(e) if setting == Setting::TurnMode => {
                return note(format!("the agent refuses its mode: {}", e.message));
            }
            Err(e) => {
                let (what, list) = match setting {
                    Setting::Model => ("model", &self.offered.models),
                    Setting::Effort => ("effort", &self.offered.efforts),
                    Setting::Mode | Setting::TurnMode => ("mode", &self.offered.modes),
                };
                let offered = list.as_ref().map(Choice::listed).unwrap_or_default();
                let mut error = classify::refusal(&e);
                error.message = format!("the agent refuses the {what}: {}; it offers {offered}", error.message);
                return vec![Step::Failed(error)];
            }
        };
        self.offered.learn(&said);
        match setting {
            Setting::Model => {
                let model = self.wishes.model.clone().unwrap_or_default();
                self.now_with(&model);
                self.next_setting(Some(Setting::Effort))
            }
            Setting::Effort => self.next_setting(Some(Setting::Mode)),
            Setting::Mode => {
                if let (Some(mode), Some(modes)) = (self.offered.mode(self.wishes.modes), &mut self.offered.modes) {
                    modes.current = mode;
                }
                self.next_setting(None)
            }
            Setting::TurnMode => Vec::new(),
        }
    }

    fn now_with(&mut self, model: &str) {
        if let Some(models) = &mut self.offered.models {
            model.clone_into(&mut models.current);
        }
    }

    fn told(&mut self, method: &str, params: &Value) -> Vec<Step> {
        let update = params.get("update").unwrap_or(&Value::Null);
        if method != "session/update" || str_of(params, "sessionId") != self.id() && self.session.is_some() {
            return Vec::new();
        }
        match str_of(update, "sessionUpdate") {
            "config_option_update" => self.offered.learn(update),
            "current_mode_update" => {
                if let Some(modes) = &mut self.offered.modes {
                    str_of(update, "currentModeId").clone_into(&mut modes.current);
                }
            }
            "usage_update" => {
                let cost = update.get("cost").filter(|c| str_of(c, "currency") == "USD");
                self.cost = cost.and_then(|c| c.get("amount")).and_then(Value::as_f64).or(self.cost);
                if self.turn.is_none() {
                    self.bill.begins_at(self.cost);
                }
            }
            _ => {}
        }
        // What is replayed of an earlier conversation, or comes late, belongs to no turn.
        let Some(turn) = &mut self.turn else { return Vec::new() };
        let events: Vec<TurnEvent> = match str_of(update, "sessionUpdate") {
            "agent_message_chunk" => {
                let text = update.get("content").map(|c| str_of(c, "text")).unwrap_or_default();
                if self.remarks.iter().any(|begin| text.starts_with(begin)) {
                    vec![TurnEvent::Note(cut(text, MAX_SHOWN))]
                } else {
                    turn.chunk(update).into_iter().collect()
                }
            }
            "agent_thought_chunk" => turn.close().into_iter().collect(),
            "tool_call" | "tool_call_update" => turn.tool(update),
            "session_info_update" => {
                let status = update.pointer("/_meta/codex/threadStatus/type").and_then(Value::as_str);
                turn.broken |= status == Some("systemError");
                Vec::new()
            }
            // Later versions say more; what is not known changes nothing.
            _ => Vec::new(),
        };
        events.into_iter().map(Step::Event).collect()
    }

    /// The agent asks us, and is answered at once.
    fn asked(&mut self, id: &Value, method: &str, params: &Value) -> Vec<Step> {
        if method != "session/request_permission" {
            let text = format!("not supported by this client: {method}");
            return vec![Step::Reply(self.peer.refusal(id, UNKNOWN_METHOD, &text))];
        }
        let call = params.get("toolCall").unwrap_or(&Value::Null);
        let policy = if self.planning { Policy::Nothing } else { self.policy };
        let Some(turn) = self.turn.as_mut().filter(|turn| !turn.interrupted) else {
            return vec![Step::Reply(self.peer.answer(id, &permit::cancelled()))];
        };
        let kind = turn.kind(call).to_owned();
        let (answer, permitted) = policy.answer(&kind, params.get("options").unwrap_or(&Value::Null));
        let mut steps = vec![Step::Reply(self.peer.answer(id, &answer))];
        if !permitted {
            steps.push(Step::Event(turn.deny(call, &kind)));
        }
        steps
    }

    fn ended(&mut self, result: Result<Value, RpcError>) -> Vec<Step> {
        let Some(turn) = &mut self.turn else { return Vec::new() };
        let last = turn.close().map(Step::Event);
        let text = turn.reply();
        let (said, error) = match result {
            Ok(said) => {
                let error = judge(turn, str_of(&said, "stopReason"), &text);
                (said, error)
            }
            Err(e) => (Value::Null, Some(classify::refusal(&e))),
        };
        let error = match error {
            Some(e) if turn.interrupted => Some(EngineError { class: ErrorClass::Interrupted, ..e }),
            other => other,
        };
        let stop = Some(str_of(&said, "stopReason")).filter(|s| !s.is_empty()).map(str::to_owned);
        let outcome = self.outcome(text, stop, turn::usage(&said), error);
        last.into_iter().chain([Step::Ended(Box::new(outcome))]).collect()
    }

    fn outcome(
        &mut self,
        text: String,
        stop_reason: Option<String>,
        usage: Option<Usage>,
        error: Option<EngineError>,
    ) -> TurnOutcome {
        let turn = self.turn.take().unwrap_or_default();
        let cost = self.bill.share(self.cost);
        TurnOutcome {
            ok: error.is_none(),
            text,
            stop_reason,
            spend: turn::spend(usage, cost, self.tokens),
            usage,
            cost_source: cost.map(|_| "engine".to_owned()),
            model: self.offered.models.as_ref().map(|m| m.current.clone()).filter(|m| !m.is_empty()),
            permission_denials: turn.denials.into(),
            tool_calls: turn.tool_calls,
            tool_errors: turn.tool_errors,
            native_id: self.session.clone(),
            error,
            ..TurnOutcome::default()
        }
    }
}

/// Whether a turn that ended by itself went well.
fn judge(turn: &Turn, stop: &str, text: &str) -> Option<EngineError> {
    let fail = |class, message: String| Some(EngineError::new(class, message));
    let denied =
        || fail(ErrorClass::PermissionDenied, format!("the turn ended on a refused tool call: {}", turn.denied()));
    if turn.interrupted {
        return fail(ErrorClass::Interrupted, "the turn was cut off".into());
    }
    match stop {
        "end_turn" if turn.broken => Some(classify::words(text)),
        "end_turn" if !text.trim().is_empty() => None,
        "end_turn" | "cancelled" if !turn.denials.is_empty() => denied(),
        "end_turn" => Some(EngineError::no_reply()),
        "cancelled" => fail(ErrorClass::Interrupted, "the turn was cut off".into()),
        "refusal" => fail(ErrorClass::Refused, "the model refused".into()),
        "max_tokens" => fail(ErrorClass::Other, "the reply was longer than the model may write".into()),
        "max_turn_requests" => fail(ErrorClass::Other, "the turn took more model calls than it may".into()),
        "" => fail(ErrorClass::Protocol, "the agent ended its turn without saying how".into()),
        other => fail(ErrorClass::Other, format!("the turn ended with {}", cut(other, MAX_SHOWN))),
    }
}

fn note(text: String) -> Vec<Step> {
    vec![Step::Event(TurnEvent::Note(text))]
}
