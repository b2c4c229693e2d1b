//! What can be asked of the real program besides turns: another model, a compaction, further input to a turn, a plan.

use serde_json::{Value, json};

use super::{Step, StreamJson, flag, parse, str_of, user_line};
use crate::{
    engines::{Answer, Ask, EngineError, ErrorClass, Message, TurnEvent, TurnOutcome, busy::joined, not_supported},
    sys::ids,
};

/// What the note says that a compaction leaves behind.
const COMPACTED: &str = "the engine compacted the conversation";

/// What is under way.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// Whether this is the real program, which the scripted one only resembles.
    real: bool,
    /// Words of sub-agents are sent too.
    forward: bool,
    /// The request whose answer is waited for, and whether it answers a question.
    control: Option<String>,
    /// A compaction is under way; whether its end was seen.
    compact: Option<bool>,
    /// Further input that the program has not taken up yet.
    steered: Vec<String>,
    /// A turn that ended before its further input was taken up.
    held: Option<Box<TurnOutcome>>,
    /// The program is in plan mode for one turn.
    planning: bool,
    /// Mode to return to.
    mode: String,
}

impl StreamJson {
    /// The same for the real program in a permission mode. `forward`: what sub-agents say is sent too.
    #[must_use]
    pub fn real(self, mode: &str, forward: bool) -> Self {
        let mode = mode.to_owned();
        Self { asking: Asking { real: true, forward, mode, ..Asking::default() }, ..self }
    }

    /// The first request.
    pub(super) fn opening(&mut self) -> (String, String) {
        let forward = self.asking.forward;
        self.request("initialize", if forward { json!({ "forwardSubagentText": true }) } else { json!({}) })
    }

    /// A turn begins.
    pub(super) fn begin_message(&mut self, message: &Message<'_>) -> Vec<String> {
        self.begin_turn();
        self.asking.held = None;
        self.asking.steered.clear();
        let mut lines = Vec::new();
        if self.asking.real && message.plan != self.asking.planning {
            self.asking.planning = message.plan;
            let mode = if message.plan { "plan".to_owned() } else { self.asking.mode.clone() };
            lines.push(self.request("set_permission_mode", json!({ "mode": mode })).1);
        }
        lines.push(user_line(message.text, message.command));
        lines
    }

    /// Further input. Only while a tool runs is it taken up by the same turn.
    pub(super) fn steer_turn(&mut self, text: &str) -> Result<Vec<String>, EngineError> {
        if !self.asking.real {
            return Err(not_supported("a running turn of this engine takes no further input"));
        }
        if !self.tool_open() {
            let text =
                "claude takes further input only while a tool of it runs; try again, or send it as the next message";
            return Err(EngineError::new(ErrorClass::Other, text));
        }
        let uuid = ids::uuid();
        let line = user_line(text, false);
        let Ok(Value::Object(mut line)) = serde_json::from_str(&line) else { return Ok(Vec::new()) };
        line.insert("uuid".to_owned(), uuid.clone().into());
        self.asking.steered.push(uuid);
        Ok(vec![Value::Object(line).to_string()])
    }

    /// Something other than a turn.
    pub(super) fn question(&mut self, ask: &Ask) -> Option<Vec<String>> {
        if !self.asking.real {
            return None;
        }
        match ask {
            Ask::SwitchModel(model) => {
                let (id, line) = self.request("set_model", json!({ "model": model }));
                self.asking.control = Some(id);
                Some(vec![line])
            }
            Ask::Compact(hint) => {
                self.begin_turn();
                self.asking.compact = Some(false);
                let hint = hint.as_deref().unwrap_or_default().trim();
                Some(vec![user_line(format!("/compact {hint}").trim_end(), true)])
            }
            Ask::Fork
            | Ask::Rollback(_)
            | Ask::Models
            | Ask::Threads { .. }
            | Ask::Review(_)
            | Ask::GoalSet(_)
            | Ask::GoalGet
            | Ask::GoalPause
            | Ask::GoalResume
            | Ask::GoalClear
            | Ask::Native { .. } => None,
        }
    }

    /// The steps of a line, seen with what is under way.
    pub(super) fn seen(&mut self, bytes: &[u8], steps: Vec<Step>) -> Vec<Step> {
        if !self.asking.real {
            return steps;
        }
        if self.asking.control.is_some() || !self.asking.steered.is_empty() {
            let answer = parse::value(bytes).and_then(|value| self.waited_for(&value));
            if let Some(answer) = answer {
                return vec![answer];
            }
        }
        steps.into_iter().filter_map(|step| self.step(step)).collect()
    }

    /// Looks at a line for what is waited for.
    fn waited_for(&mut self, value: &Value) -> Option<Step> {
        match str_of(value, "type") {
            "user" if flag(value, "isReplay") => {
                let uuid = str_of(value, "uuid");
                self.asking.steered.retain(|waiting| waiting != uuid);
            }
            "control_response" => {
                let response = value.get("response")?;
                if Some(str_of(response, "request_id")) != self.asking.control.as_deref() {
                    return None;
                }
                self.asking.control = None;
                let answer = if str_of(response, "subtype") == "error" {
                    Err(EngineError::new(ErrorClass::Other, str_of(response, "error")))
                } else {
                    Ok(Answer { data: response.get("response").cloned().unwrap_or_default(), turn: None })
                };
                return Some(Step::Answered(Box::new(answer)));
            }
            _ => {}
        }
        None
    }

    fn step(&mut self, step: Step) -> Option<Step> {
        match step {
            Step::Event(TurnEvent::Note(text)) if text == COMPACTED && self.asking.compact.is_some() => {
                self.asking.compact = Some(true);
                Some(Step::Event(TurnEvent::Note(text)))
            }
            Step::Ended(outcome) => match self.asking.compact.take() {
                Some(done) => Some(compacted(done, *outcome)),
                None => self.ended(outcome),
            },
            other @ (Step::Event(_)
            | Step::Reply(_)
            | Step::Ready
            | Step::Failed(_)
            | Step::Answered(_)
            | Step::Goal(_)
            | Step::GoalEnded(..)) => Some(other),
        }
    }

    /// The end of a turn, unless further input makes another one of it.
    fn ended(&mut self, outcome: Box<TurnOutcome>) -> Option<Step> {
        let went_well = outcome.ok;
        let outcome = match self.asking.held.take() {
            Some(first) => Box::new(both(*first, *outcome)),
            None => outcome,
        };
        if !self.asking.steered.is_empty() && went_well {
            // What was taken up too late is answered by a turn of its own; both are one for whoever asked.
            self.asking.steered.clear();
            self.asking.held = Some(outcome);
            return None;
        }
        self.asking.steered.clear();
        Some(Step::Ended(outcome))
    }

    fn request(&mut self, subtype: &str, more: Value) -> (String, String) {
        let (id, line) = self.control(subtype);
        let (Ok(Value::Object(mut line)), Value::Object(more)) = (serde_json::from_str(&line), more) else {
            return (id, line);
        };
        if let Some(Value::Object(request)) = line.get_mut("request") {
            request.extend(more);
        }
        (id, Value::Object(line).to_string())
    }
}

/// What a compaction led to.
fn compacted(done: bool, mut outcome: TurnOutcome) -> Step {
    let told = std::mem::take(&mut outcome.text);
    let failed = outcome.error.take().filter(|e| e.class != ErrorClass::Protocol && e.class != ErrorClass::Other);
    if let Some(error) = failed {
        return Step::Answered(Box::new(Err(error)));
    }
    outcome.ok = done;
    let data = if done {
        json!({ "compacted": true })
    } else {
        let reason = if told.trim().is_empty() { "the engine did not compact the conversation" } else { told.trim() };
        json!({ "compacted": false, "reason": reason })
    };
    Step::Answered(Box::new(Ok(Answer { data, turn: Some(outcome) })))
}

/// A turn and the one that its further input became: what both said and used.
fn both(first: TurnOutcome, then: TurnOutcome) -> TurnOutcome {
    let text = match (first.text.is_empty(), then.text.is_empty()) {
        (false, false) => format!("{}\n\n{}", first.text, then.text),
        (_, true) => first.text.clone(),
        (true, false) => then.text.clone(),
    };
    TurnOutcome { text, ..joined(first, then) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::run::Spend;

    /// What is known of the first turn only, that its cost is a guess and whose it is, holds for both together.
    #[test]
    fn a_turn_and_its_further_input_are_accounted_as_one() {
        let first = TurnOutcome {
            text: "One.".to_owned(),
            spend: Spend { cost_usd: 0.25, turns: 1, estimated: true, ..Spend::default() },
            cost_source: Some("engine".to_owned()),
            model: Some("m".to_owned()),
            ..TurnOutcome::default()
        };
        let then = TurnOutcome {
            text: "Two.".to_owned(),
            spend: Spend { cost_usd: 0.5, turns: 1, ..Spend::default() },
            ..TurnOutcome::default()
        };
        let both = both(first, then);
        assert_eq!((both.text.as_str(), both.spend.cost_usd, both.spend.turns), ("One.\n\nTwo.", 0.75, 2));
        assert!(both.spend.estimated);
        assert_eq!((both.cost_source.as_deref(), both.model.as_deref()), (Some("engine"), Some("m")));
    }
}
