//! Takes secrets out of everything a session tells.

use serde_json::Value;

use super::{Answer, EngineError, GoalView, TurnEvent, TurnOutcome};
use crate::sys::redact::Redactor;

/// An event without secrets.
pub(crate) fn event(redactor: &Redactor, event: TurnEvent) -> TurnEvent {
    let clean = |text: String| redactor.text(text.as_str());
    match event {
        TurnEvent::Text(text) => TurnEvent::Text(clean(text)),
        TurnEvent::ToolCall { name, summary } => TurnEvent::ToolCall { name: clean(name), summary: clean(summary) },
        TurnEvent::ToolResult { is_error } => TurnEvent::ToolResult { is_error },
        TurnEvent::Retry(text) => TurnEvent::Retry(clean(text)),
        TurnEvent::Note(text) => TurnEvent::Note(clean(text)),
    }
}

/// An error without secrets.
pub(crate) fn error(redactor: &Redactor, mut error: EngineError) -> EngineError {
    error.message = redactor.text(&error.message);
    error
}

/// An outcome without secrets.
pub(crate) fn outcome(redactor: &Redactor, mut outcome: TurnOutcome) -> TurnOutcome {
    outcome.text = redactor.text(&outcome.text);
    outcome.error = outcome.error.map(|e| error(redactor, e));
    for denial in &mut outcome.permission_denials {
        denial.input = denial.input.take().map(|v| value(redactor, v));
    }
    outcome
}

/// An answer without secrets.
pub(crate) fn answer(redactor: &Redactor, answer: Answer) -> Answer {
    Answer { data: value(redactor, answer.data), turn: answer.turn.map(|turn| outcome(redactor, turn)) }
}

/// A goal without secrets.
pub(crate) fn goal(redactor: &Redactor, mut view: GoalView) -> GoalView {
    view.last_message = view.last_message.map(|text| redactor.text(&text));
    view.last_error = view.last_error.map(|text| redactor.text(&text));
    view
}

fn value(redactor: &Redactor, json: Value) -> Value {
    match json {
        Value::String(text) => Value::String(redactor.text(&text)),
        Value::Array(items) => Value::Array(items.into_iter().map(|v| value(redactor, v)).collect()),
        Value::Object(map) => {
            Value::Object(map.into_iter().map(|(k, v)| (redactor.text(&k), value(redactor, v))).collect())
        }
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain,
    }
}
