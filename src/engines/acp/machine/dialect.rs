//! The protocol as a [`Dialect`].

use serde_json::json;

use super::{
    super::{
        super::{
            Ask, EngineError, ErrorClass, Message, TurnEvent, TurnOutcome,
            dialect::{Dialect, Step},
            jsonrpc::Incoming,
            not_supported,
            stream_json::{cut, parse},
        },
        permit,
        turn::Turn,
    },
    Asked, MAX_NOTES, MAX_SHOWN, Machine, Setting, VERSION, note,
};
use crate::model::Time;

/// Put in front of a text that agents would take for a command of theirs.
const TEXT_FOLLOWS: &str = "The following is text, not a command:";

impl Dialect for Machine {
    fn hello(&mut self) -> Vec<String> {
        // Files and terminals stay the agent's own affair: what it does is seen in the tree.
        let params = json!({
            "protocolVersion": VERSION,
            "clientCapabilities": { "fs": { "readTextFile": false, "writeTextFile": false }, "terminal": false },
            "clientInfo": { "name": "clawo", "title": "clawo", "version": env!("CARGO_PKG_VERSION") },
        });
        vec![self.peer.request(Asked::Initialize, "initialize", &params)]
    }

    fn begin(&mut self, message: &Message<'_>) -> Vec<String> {
        let mut lines = Vec::new();
        self.turns = self.turns.saturating_add(1);
        self.turn = Some(Turn::default());
        self.planning = message.plan;
        let now = self.offered.modes.as_ref().map(|m| m.current.clone()).unwrap_or_default();
        if message.plan {
            match self.offered.mode(permit::PLAN) {
                Some(plan) if plan != now && self.mode_to_return_to.is_none() => {
                    lines.push(self.setting(Setting::TurnMode, &plan));
                    self.mode_to_return_to = Some(now);
                }
                Some(_) => {}
                None => self.notes.push("the agent has no mode for planning; what it asks for is refused".to_owned()),
            }
        } else if let Some(mode) = self.mode_to_return_to.take() {
            lines.push(self.setting(Setting::TurnMode, &mode));
        }
        let defused = message.text.starts_with('/') && !message.command;
        // Agents trim what they get, so that a space in front would not keep it from being one.
        let text = if defused { format!("{TEXT_FOLLOWS}\n{}", message.text) } else { message.text.to_owned() };
        let params = json!({ "sessionId": self.id(), "prompt": [{ "type": "text", "text": text }] });
        lines.push(self.peer.request(Asked::Prompt(self.turns), "session/prompt", &params));
        lines
    }

    fn line(&mut self, bytes: &[u8], _now: Time) -> Vec<Step> {
        if bytes.iter().all(u8::is_ascii_whitespace) {
            return Vec::new();
        }
        let mut steps = Vec::new();
        if self.turn.is_some() {
            self.notes.truncate(MAX_NOTES);
            steps.extend(self.notes.drain(..).map(|text| Step::Event(TurnEvent::Note(text))));
        }
        let Some(value) = parse::value(bytes) else {
            let text = cut(&String::from_utf8_lossy(bytes), MAX_SHOWN);
            steps.extend(note(format!("not a line of the protocol: {text}")));
            return steps;
        };
        steps.extend(match self.peer.take(value) {
            Incoming::Request { id, method, params } => self.asked(&id, &method, &params),
            Incoming::Notification { method, params } => self.told(&method, &params),
            Incoming::Answer { asked, result } => self.answered(asked, result),
            Incoming::Noise => Vec::new(),
        });
        steps
    }

    fn skipped(&mut self, bytes: u64, head: &[u8]) -> Vec<Step> {
        // It may have been the end of a tool call, or, having no method, an answer.
        let mut steps = note(format!("a line of {bytes} bytes was too long and was skipped"));
        let is_answer = !head.windows(8).any(|w| w == b"\"method\"");
        if let Some(turn) = &mut self.turn {
            turn.open.clear();
            if is_answer {
                let text = format!("the turn ended with a line of {bytes} bytes, longer than any that is kept");
                steps.push(Step::Ended(Box::new(self.cut_off(EngineError::new(ErrorClass::Protocol, text)))));
            }
        }
        steps
    }

    fn interrupt(&mut self) -> Vec<String> {
        let Some(turn) = &mut self.turn else { return Vec::new() };
        turn.interrupted = true;
        vec![self.peer.notification("session/cancel", &json!({ "sessionId": self.id() }))]
    }

    fn ask(&mut self, ask: &Ask) -> Result<Vec<String>, EngineError> {
        match ask {
            Ask::SwitchModel(model) if self.offered.models.is_some() => {
                let list = self.offered.models.clone().unwrap_or_default();
                let (method, params) = list.request(self.id(), model, ("session/set_model", "modelId"));
                self.switching.clone_from(model);
                Ok(vec![self.peer.request(Asked::SwitchModel, method, &params)])
            }
            Ask::SwitchModel(_) => Err(not_supported("this agent offers no choice of models")),
            other => Err(not_supported(&format!("this engine has no {}", other.name()))),
        }
    }

    fn tool_open(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| !turn.open.is_empty())
    }

    fn cut_off(&mut self, error: EngineError) -> TurnOutcome {
        let text = self.turn.as_mut().map(Turn::reply).unwrap_or_default();
        self.outcome(text, None, None, Some(error))
    }

    fn native_id(&self) -> Option<&str> {
        self.session.as_deref().filter(|_| self.ready)
    }
}
