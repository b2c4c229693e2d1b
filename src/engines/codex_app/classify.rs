//! What kind of failure an error of the program is, and when a limit ends.

use serde_json::Value;

use super::turn::str_of;
use crate::{
    engines::{EngineError, ErrorClass, jsonrpc::RpcError},
    model::Time,
};

/// The failure behind an `error` object of a turn. `resets_at` is when the limit that was last told of ends.
pub(super) fn turn_error(error: &Value, resets_at: Option<Time>, now: Time) -> EngineError {
    let text = words(error);
    let class = class(error.get("codexErrorInfo").unwrap_or(&Value::Null), &text);
    let retry_at = resets_at.filter(|at| class == ErrorClass::Quota && *at > now);
    EngineError { class, message: text, retry_at, over: None }
}

/// A refused request of ours.
pub(super) fn refused(what: &str, error: &RpcError) -> EngineError {
    let told = &error.message;
    let text = if told.contains("already has an active writer") {
        format!("{what}: the thread is in use by another codex process; end that one or fork the thread ({told})")
    } else if ["no rollout found", "thread not found", "invalid session id"].iter().any(|w| told.contains(w)) {
        format!("{what}: codex has no such thread; leave the id out to begin a new one ({told})")
    } else {
        format!("{what}: {told}")
    };
    EngineError::new(ErrorClass::Other, text)
}

/// When the limit that is used up ends, out of a report of limits.
pub(super) fn resets_at(limits: &Value) -> Option<Time> {
    let windows = ["primary", "secondary"].iter().filter_map(|k| limits.get(k));
    let full = windows.filter(|w| w.get("usedPercent").and_then(Value::as_f64).is_some_and(|p| p >= 100.0));
    let ends = full.filter_map(|w| w.get("resetsAt").and_then(Value::as_i64));
    ends.max().map(|seconds| Time::from_millis(seconds.saturating_mul(1000)))
}

/// What an error says, for a person. The body of an HTTP answer is reduced to its message.
fn words(error: &Value) -> String {
    let text = str_of(error, "message");
    let body = serde_json::from_str::<Value>(text).ok();
    let inner = body.as_ref().and_then(|b| b.get("error")).map(|e| str_of(e, "message")).filter(|m| !m.is_empty());
    let text = inner.unwrap_or(text);
    let more = str_of(error, "additionalDetails");
    match (text.trim().is_empty(), more.is_empty()) {
        (true, true) => "codex reports an error without words".to_owned(),
        (true, false) => more.to_owned(),
        (false, true) => text.to_owned(),
        (false, false) => format!("{text} ({more})"),
    }
}

fn class(info: &Value, text: &str) -> ErrorClass {
    if let Some(name) = info.as_str() {
        return named(name, text);
    }
    let status = info.as_object().and_then(|o| o.values().next()).and_then(|v| v.get("httpStatusCode"));
    match (info.is_object(), status.and_then(Value::as_u64)) {
        (_, Some(401 | 403)) => ErrorClass::Auth,
        (_, Some(402 | 429)) => ErrorClass::Quota,
        (_, Some(413)) => ErrorClass::ContextOverflow,
        (_, Some(500..=599)) => ErrorClass::Overloaded,
        // No answer came at all: the connection is what failed.
        (true, None) if info.get("activeTurnNotSteerable").is_none() => ErrorClass::Overloaded,
        (_, _) => worded(text),
    }
}

fn named(name: &str, text: &str) -> ErrorClass {
    match name {
        "unauthorized" => ErrorClass::Auth,
        "usageLimitExceeded" | "rateLimitExceeded" | "sessionBudgetExceeded" => ErrorClass::Quota,
        "serverOverloaded" | "flexUnavailable" | "policyCapacityUnavailable" | "internalServerError" => {
            ErrorClass::Overloaded
        }
        "contextWindowExceeded" => ErrorClass::ContextOverflow,
        "cyberPolicy" | "bioPolicy" | "misalignmentPolicyViolation" | "inferenceHookDenied" => ErrorClass::Refused,
        "tooManyDenials" => ErrorClass::PermissionDenied,
        _ => worded(text),
    }
}

/// By its words, where nothing else tells.
fn worded(text: &str) -> ErrorClass {
    let text = text.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|w| text.contains(w));
    if says(&["usage limit", "quota exceeded"]) {
        ErrorClass::Quota
    } else if says(&["at capacity", "overloaded"]) {
        ErrorClass::Overloaded
    } else if says(&["context window"]) {
        ErrorClass::ContextOverflow
    } else if says(&["401 unauthorized", "missing environment variable", "not logged in", "invalid api key"]) {
        ErrorClass::Auth
    } else {
        ErrorClass::Other
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_of_errors() {
        let status = |kind: &str, code: Value| {
            let mut info = serde_json::Map::new();
            info.insert(kind.to_owned(), json!({ "httpStatusCode": code }));
            Value::Object(info)
        };
        for (info, text, want) in [
            (json!("usageLimitExceeded"), "", ErrorClass::Quota),
            (json!("serverOverloaded"), "", ErrorClass::Overloaded),
            (json!("contextWindowExceeded"), "", ErrorClass::ContextOverflow),
            (json!("cyberPolicy"), "", ErrorClass::Refused),
            (json!("modelNotFound"), "model not found", ErrorClass::Other),
            (json!("of a later version"), "You hit your usage limit.", ErrorClass::Quota),
            (status("httpConnectionFailed", json!(401)), "", ErrorClass::Auth),
            (status("responseTooManyFailedAttempts", json!(429)), "", ErrorClass::Quota),
            (status("httpConnectionFailed", json!(502)), "", ErrorClass::Overloaded),
            (status("httpConnectionFailed", Value::Null), "", ErrorClass::Overloaded),
            (status("httpConnectionFailed", json!(418)), "", ErrorClass::Other),
            (json!({ "activeTurnNotSteerable": { "turnKind": "review" } }), "", ErrorClass::Other),
            (Value::Null, "Missing environment variable: `X`", ErrorClass::Auth),
        ] {
            assert_eq!(class(&info, text), want, "{info} {text}");
        }
    }

    #[test]
    fn a_limit_has_an_end_when_it_is_told_and_ahead() {
        let window = |percent: u64, at: u64| json!({ "usedPercent": percent, "resetsAt": at });
        let at = resets_at(&json!({ "primary": window(100, 2000), "secondary": window(99, 9000) }));
        assert_eq!(at, Some(Time::from_millis(2_000_000)));
        assert_eq!(resets_at(&json!({ "primary": window(40, 2000), "secondary": null })), None);
        let error =
            json!({ "message": "{\"error\":{\"message\":\"enough\"}}", "codexErrorInfo": "usageLimitExceeded" });
        let told = |now: i64| turn_error(&error, at, Time::from_millis(now));
        assert_eq!((told(1000).retry_at, told(1000).message.as_str()), (at, "enough"));
        assert_eq!(told(3_000_000).retry_at, None, "a limit of yesterday");
    }
}
