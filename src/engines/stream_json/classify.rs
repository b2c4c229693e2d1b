//! What kind of error an API error is, and when a limit ends.

use jiff::{Timestamp, ToSpan, ZonedDateTime, tz::TimeZone};

use super::super::{EngineError, ErrorClass};
use crate::model::Time;

/// Everything that tells.
#[derive(Debug, Default)]
pub(super) struct Signals<'a> {
    /// `error` of the synthetic reply.
    pub(super) error: Option<&'a str>,
    /// HTTP status.
    pub(super) status: Option<u64>,
    /// `terminal_reason`.
    pub(super) terminal: &'a str,
    /// `stop_reason`.
    pub(super) stop: &'a str,
    /// The text for a person.
    pub(super) text: &'a str,
    /// A reset time stated on a line of its own.
    pub(super) resets_at: Option<Time>,
}

/// The error behind a result that says it is one.
pub(super) fn classify(signals: &Signals<'_>, now: Time) -> EngineError {
    let class = class(signals);
    let message = if signals.text.trim().is_empty() {
        let named = signals.error.filter(|e| !e.trim().is_empty());
        named.unwrap_or("the engine reports an error without words").to_owned()
    } else {
        signals.text.to_owned()
    };
    let retry_at =
        (class == ErrorClass::Quota).then(|| signals.resets_at.or_else(|| reset_time(signals.text, now))).flatten();
    EngineError { class, message, retry_at }
}

fn class(signals: &Signals<'_>) -> ErrorClass {
    let text = signals.text.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|w| text.contains(w));
    if signals.terminal == "prompt_too_long"
        || says(&["prompt is too long", "conversation is too long", "context window"])
    {
        return ErrorClass::ContextOverflow;
    }
    if signals.stop == "refusal" {
        return ErrorClass::Refused;
    }
    // A used-up plan is worded, whatever the rest says.
    if says(&["usage limit", "hit your limit", "credit balance", "limit reached"]) {
        return ErrorClass::Quota;
    }
    match signals.error.unwrap_or_default() {
        "authentication_failed" | "oauth_org_not_allowed" => return ErrorClass::Auth,
        "billing_error" | "rate_limit" => return ErrorClass::Quota,
        "server_error" | "overloaded" => return ErrorClass::Overloaded,
        _ => {}
    }
    match signals.status {
        Some(401 | 403) => ErrorClass::Auth,
        Some(402 | 429) => ErrorClass::Quota,
        Some(413) => ErrorClass::ContextOverflow,
        Some(500..=599) => ErrorClass::Overloaded,
        _ if says(&["not logged in", "run /login", "invalid api key"]) => ErrorClass::Auth,
        _ if says(&["overloaded", "unable to connect"]) => ErrorClass::Overloaded,
        _ => ErrorClass::Other,
    }
}

/// When a limit ends, as far as a message says so unmistakably: an epoch after a bar, an RFC 3339 instant,
/// or a time of day with its zone.
pub(crate) fn reset_time(text: &str, now: Time) -> Option<Time> {
    if let Some((_, tail)) = text.rsplit_once('|') {
        let digits: String = tail.trim().chars().take_while(char::is_ascii_digit).collect();
        match (digits.len(), digits.parse::<i64>()) {
            (10, Ok(seconds)) => return Some(Time::from_millis(seconds * 1000)),
            (13, Ok(millis)) => return Some(Time::from_millis(millis)),
            _ => {}
        }
    }
    let lower = text.to_ascii_lowercase();
    let tail = text.get(lower.rfind("reset")?..)?;
    let trim = |word: &str| word.trim_matches(|c: char| "()[].,;:·".contains(c)).to_owned();
    let mut words = tail.split_whitespace().skip(1).map(trim).filter(|w| !w.eq_ignore_ascii_case("at"));
    let first = words.next()?;
    if let Ok(at) = first.parse::<Timestamp>() {
        return Some(Time::new(at));
    }
    let (hour, minute) = time_of_day(&first)?;
    let zone = TimeZone::get(&words.next()?).ok()?;
    let now = ZonedDateTime::new(Timestamp::from_millisecond(now.millis()).ok()?, zone);
    let today = now.with().hour(hour).minute(minute).second(0).subsec_nanosecond(0).build().ok()?;
    let at = if today <= now { today.checked_add(1.day()).ok()? } else { today };
    Some(Time::new(at.timestamp()))
}

/// `3pm`, `3:30pm`, `15:30`.
fn time_of_day(word: &str) -> Option<(i8, i8)> {
    let word = word.to_ascii_lowercase();
    let (digits, add) = match (word.strip_suffix("am"), word.strip_suffix("pm")) {
        (Some(rest), _) => (rest, Some(0)),
        (_, Some(rest)) => (rest, Some(12)),
        (None, None) => (word.as_str(), None),
    };
    let (hour, minute) = match digits.split_once(':') {
        Some((h, m)) => (h.parse::<i8>().ok()?, m.parse::<i8>().ok()?),
        None if add.is_some() => (digits.parse::<i8>().ok()?, 0),
        None => return None,
    };
    let hour = match add {
        Some(add) if (1..=12).contains(&hour) => hour % 12 + add,
        Some(_) => return None,
        None => hour,
    };
    ((0..24).contains(&hour) && (0..60).contains(&minute)).then_some((hour, minute))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Time {
        Time::new(text.parse().unwrap())
    }

    /// QL-1.
    #[test]
    fn reset_times_are_read_where_they_are_plain() {
        let now = time("2026-01-31T12:00:00Z");
        let read = |text: &str| reset_time(text, now);
        assert_eq!(read("Claude AI usage limit reached|1769864400"), Some(time("2026-01-31T13:00:00Z")));
        assert_eq!(read("limit reached, resets at 2026-01-31T12:01:30.5Z."), Some(time("2026-01-31T12:01:30.5Z")));
        assert_eq!(read("You've hit your limit · resets 3pm (UTC)"), Some(time("2026-01-31T15:00:00Z")));
        assert_eq!(read("limit will reset at 11:30am (UTC)"), Some(time("2026-02-01T11:30:00Z")));
        assert_eq!(read("resets 12am (UTC)"), Some(time("2026-02-01T00:00:00Z")));
        for vague in
            ["resets 3pm", "resets Feb 3, 3pm (UTC)", "resets soon", "slow down", "resets 25:00 (UTC)", "resets"]
        {
            assert_eq!(read(vague), None, "{vague}");
        }
    }

    #[test]
    fn classes_follow_error_status_and_words() {
        let of =
            |error, status, text| class(&Signals { error, status, text, terminal: "completed", ..Signals::default() });
        assert_eq!(of(Some("billing_error"), Some(400), "Credit balance is too low"), ErrorClass::Quota);
        assert_eq!(of(Some("invalid_request"), Some(400), "prompt is too long: 9 > 8"), ErrorClass::ContextOverflow);
        assert_eq!(of(None, Some(403), "forbidden"), ErrorClass::Auth);
        assert_eq!(of(None, Some(503), "busy"), ErrorClass::Overloaded);
        assert_eq!(of(Some("model_not_found"), Some(404), "no such model"), ErrorClass::Other);
        assert_eq!(of(Some("rate_limit"), Some(429), "slow down"), ErrorClass::Quota);
    }
}
