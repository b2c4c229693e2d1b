//! What kind of failure an agent's refusal is. The protocol has no words for it, so the agents' own are looked at.

use serde_json::Value;

use super::super::{EngineError, ErrorClass, jsonrpc::RpcError, stream_json::str_of};

/// The protocol's number for a missing login.
const AUTH_REQUIRED: i64 = -32000;

/// The failure behind a refusal.
pub(super) fn refusal(error: &RpcError) -> EngineError {
    let inner = [str_of(&error.data, "message"), str_of(&error.data, "details")].into_iter().find(|t| !t.is_empty());
    let text = match inner {
        Some(inner) if !error.message.contains(inner) => format!("{}: {inner}", error.message),
        Some(_) | None => error.message.clone(),
    };
    let class = if error.code == AUTH_REQUIRED { ErrorClass::Auth } else { class(&text, &error.data) };
    EngineError::new(class, text)
}

/// The failure behind an agent's words.
pub(super) fn words(text: &str) -> EngineError {
    let told = if text.trim().is_empty() { "the agent reports a failure without words" } else { text.trim() };
    EngineError::new(class(told, &Value::Null), told)
}

fn class(text: &str, data: &Value) -> ErrorClass {
    // A word of its own, or an object with one key that is the word.
    let info = data.get("codex_error_info");
    let info = info.and_then(|i| i.as_str().or_else(|| i.as_object()?.keys().next().map(String::as_str)));
    match info.unwrap_or_default() {
        "context_window_exceeded" => return ErrorClass::ContextOverflow,
        "usage_limit_exceeded" | "session_budget_exceeded" => return ErrorClass::Quota,
        "server_overloaded"
        | "http_connection_failed"
        | "response_stream_connection_failed"
        | "internal_server_error" => return ErrorClass::Overloaded,
        "unauthorized" => return ErrorClass::Auth,
        _ => {}
    }
    let text = text.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|w| text.contains(w));
    if says(&["context_length_exceeded", "context length", "context window", "prompt is too long"]) {
        ErrorClass::ContextOverflow
    } else if says(&["usage limit", "insufficient_quota", "quota", "credit balance", "rate limit", "rate_limit"]) {
        ErrorClass::Quota
    } else if says(&["unauthorized", "api key", "api_key", "authentication", "not logged in", "login required"]) {
        ErrorClass::Auth
    } else if says(&["overloaded", "service unavailable", "unable to connect", "connection refused"]) {
        ErrorClass::Overloaded
    } else {
        ErrorClass::Other
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn refusals_have_classes() {
        let of = |code, message: &str, data| {
            let error = refusal(&RpcError { code, message: message.to_owned(), data });
            (error.class, error.message)
        };
        assert_eq!(of(-32000, "Authentication required", Value::Null).0, ErrorClass::Auth);
        let long = "Internal error: {\"code\":\"context_length_exceeded\"}";
        assert_eq!(of(-32603, long, Value::Null).0, ErrorClass::ContextOverflow);
        let limit = json!({ "message": "You've hit your limit", "codex_error_info": "usage_limit_exceeded" });
        assert_eq!(
            of(-32603, "Internal error", limit),
            (ErrorClass::Quota, "Internal error: You've hit your limit".into())
        );
        let down = json!({ "codex_error_info": { "http_connection_failed": { "http_status_code": 503 } } });
        assert_eq!(of(-32603, "Internal error", down).0, ErrorClass::Overloaded);
        assert_eq!(of(-32603, "Internal error: bad thing", json!([])).0, ErrorClass::Other);
        assert_eq!(words(" ").message, "the agent reports a failure without words");
    }
}
