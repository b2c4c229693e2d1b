//! What programs say that are known from their documentation only: the same things under any of the usual names.

use serde_json::Value;

use super::{EngineError, ErrorClass, Usage, turnwise::words};
use crate::model::Time;

/// The first of `keys` that holds a text.
pub(super) fn text<'a>(value: &'a Value, keys: &[&str]) -> Option<&'a str> {
    keys.iter().find_map(|key| value.get(*key)?.as_str()).filter(|text| !text.is_empty())
}

/// The id of the conversation.
pub(super) fn id(value: &Value) -> Option<&str> {
    text(value, &["conversationId", "conversation_id", "sessionId", "session_id"])
}

/// The reply.
pub(super) fn reply(value: &Value) -> Option<&str> {
    text(value, &["response", "result", "text", "output"])
}

/// Tokens of the turn.
pub(super) fn usage(value: &Value) -> Option<Usage> {
    let counts = ["usage", "stats", "tokens"].iter().find_map(|key| value.get(*key).filter(|v| v.is_object()))?;
    let number = |keys: &[&str]| keys.iter().find_map(|key| counts.get(*key)?.as_u64());
    let input = number(&["input_tokens", "inputTokens", "prompt_tokens", "input"]);
    let output = number(&["output_tokens", "outputTokens", "completion_tokens", "output"]);
    (input.is_some() || output.is_some()).then(|| Usage {
        input: input.unwrap_or_default(),
        cached: number(&["cache_read_input_tokens", "cached_input_tokens", "cachedTokens", "cached"])
            .unwrap_or_default(),
        cache_write: number(&["cache_creation_input_tokens"]).unwrap_or_default(),
        output: output.unwrap_or_default(),
    })
}

/// The error a result says it is.
pub(super) fn error(value: &Value, now: Time) -> Option<EngineError> {
    let failed = value.get("is_error").and_then(Value::as_bool) == Some(true)
        || text(value, &["status", "subtype"]).is_some_and(|word| word.starts_with("error") || word == "failed");
    let stated = value.get("error").filter(|e| !e.is_null());
    if !failed && stated.is_none() {
        return None;
    }
    let told = stated.and_then(|e| e.as_str().or_else(|| text(e, &["message", "type"])));
    let status = stated.and_then(|e| e.get("status").or_else(|| e.get("code"))?.as_u64());
    Some(words::error(status, told.or_else(|| reply(value)).unwrap_or_default(), now))
}

/// The conversation a turn belongs to, which is not to change.
pub(super) fn same(known: &mut Option<String>, value: &Value) -> Result<(), EngineError> {
    let Some(id) = id(value) else { return Ok(()) };
    if let Some(before) = known.as_deref().filter(|before| *before != id) {
        let text = format!("was to go on with conversation {before} and went on in {id} instead");
        return Err(EngineError::new(ErrorClass::Protocol, text));
    }
    *known = Some(id.to_owned());
    Ok(())
}
