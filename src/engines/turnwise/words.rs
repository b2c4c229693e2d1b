//! What kind of error a message tells of, where a program gives little but words, and when a limit ends.

use jiff::{
    Timestamp,
    civil::{DateTime, Time as TimeOfDay},
    tz::TimeZone,
};

use super::super::{EngineError, ErrorClass, stream_json::classify::reset_time};
use crate::model::Time;

/// The error behind an HTTP status, as far as it is known, and a text for a person.
pub(crate) fn error(status: Option<u64>, text: &str, now: Time) -> EngineError {
    let class = class(status.or_else(|| stated(text)), text);
    let message = if text.trim().is_empty() { "the engine reports an error without words" } else { text.trim() };
    let retry_at = (class == ErrorClass::Quota)
        .then(|| reset_time(text, now).or_else(|| again(text, now, &TimeZone::system())))
        .flatten();
    EngineError { class, message: message.to_owned(), retry_at }
}

fn class(status: Option<u64>, text: &str) -> ErrorClass {
    let text = text.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|w| text.contains(w));
    if says(&["context_length_exceeded", "context window", "ran out of room", "prompt is too long", "contextoverflow"])
    {
        return ErrorClass::ContextOverflow;
    }
    // A used-up plan is worded, whatever the status says.
    if says(&[
        "usage limit",
        "usage_limit",
        "insufficient_quota",
        "quota exceeded",
        "exceeded your current quota",
        "credit balance",
        "limit reached",
        "out of credits",
    ]) {
        return ErrorClass::Quota;
    }
    match status {
        Some(401 | 403) => return ErrorClass::Auth,
        Some(402 | 429) => return ErrorClass::Quota,
        Some(413) => return ErrorClass::ContextOverflow,
        Some(500..=599) => return ErrorClass::Overloaded,
        _ => {}
    }
    if says(&["not logged in", "invalid api key", "invalid_api_key", "missing environment variable", "unauthorized"]) {
        return ErrorClass::Auth;
    }
    let busy = [
        "at capacity",
        "high demand",
        "overloaded",
        "stream disconnected",
        "connection failed",
        "error sending request",
        "unable to connect",
    ];
    if says(&busy) { ErrorClass::Overloaded } else { ErrorClass::Other }
}

/// The HTTP status a text names.
fn stated(text: &str) -> Option<u64> {
    ["unexpected status ", "last status: "].iter().find_map(|before| {
        let (_, rest) = text.split_once(before)?;
        rest.get(..3)?.parse().ok()
    })
}

/// When to try again, as far as a text says so: after a span, or at a time in `zone`, which a program on this machine
/// shares with us.
fn again(text: &str, now: Time, zone: &TimeZone) -> Option<Time> {
    let lower = text.to_ascii_lowercase();
    if let Some((_, rest)) = lower.split_once("try again in ") {
        return Some(Time::from_millis(now.millis().checked_add(span(rest)?)?));
    }
    let (_, rest) = lower.split_once("try again at ")?;
    let words: Vec<&str> = rest.split_whitespace().map(|w| w.trim_matches(|c: char| "().,;".contains(c))).collect();
    let here = Timestamp::from_millisecond(now.millis()).ok()?.to_zoned_datetime(zone.clone());
    let at = match words.as_slice() {
        [time, half @ ("am" | "pm"), ..] => {
            let time = TimeOfDay::strptime("%I:%M %p", format!("{time} {half}")).ok()?;
            let today = here.date().to_datetime(time).to_zoned_datetime(zone.clone()).ok()?;
            if today <= here { today.tomorrow().ok()? } else { today }
        }
        [month, day, year, time, half @ ("am" | "pm"), ..] => {
            let day = day.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let text = format!("{month} {day} {year} {time} {half}");
            DateTime::strptime("%b %d %Y %I:%M %p", text).ok()?.to_zoned_datetime(zone.clone()).ok()?
        }
        _ => return None,
    };
    Some(Time::new(at.timestamp()))
}

/// Milliseconds of a span such as `2 days 3 hours`, `5 minutes`, `6m0s` or `1.5s` at the start of `text`.
fn span(text: &str) -> Option<i64> {
    let mut rest = text;
    let mut total: Option<f64> = None;
    loop {
        rest = rest.trim_start_matches(|c: char| c == ',' || c.is_whitespace());
        rest = rest.strip_prefix("and ").unwrap_or(rest);
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let Ok(number) = number.parse::<f64>() else { break };
        let after = after.trim_start();
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let millis = match unit {
            "ms" => 1.0,
            "s" | "sec" | "secs" | "second" | "seconds" => 1e3,
            "m" | "min" | "mins" | "minute" | "minutes" => 6e4,
            "h" | "hr" | "hrs" | "hour" | "hours" => 36e5,
            "d" | "day" | "days" => 864e5,
            _ => break,
        };
        total = Some(total.unwrap_or_default() + number * millis);
        rest = after;
    }
    // Longer than any plan's window is no reset time.
    let millis = total.filter(|ms| *ms <= 40.0 * 864e5)?;
    #[expect(clippy::cast_possible_truncation, reason = "bounded just above")]
    Some(millis as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Time {
        Time::new(text.parse().unwrap())
    }

    /// QL-1: reset times are read where they are plain.
    #[test]
    fn a_time_to_try_again_is_read() {
        let now = time("2026-01-31T12:00:00Z");
        let zone = TimeZone::get("Europe/Berlin").unwrap();
        let read = |text: &str| again(text, now, &zone);
        for (text, want) in [
            ("Try again in 2 days 3 hours.", "2026-02-02T15:00:00Z"),
            ("try again in 1 hour, 5 minutes and 10 seconds", "2026-01-31T13:05:10Z"),
            ("Please try again in 1.5s. Visit", "2026-01-31T12:00:01.5Z"),
            ("Please try again in 6m0s", "2026-01-31T12:06:00Z"),
            ("or try again at 3:05 PM.", "2026-01-31T14:05:00Z"),
            ("or try again at 1:00 PM.", "2026-02-01T12:00:00Z"),
            ("or try again at Feb 3rd, 2026 3:05 PM.", "2026-02-03T14:05:00Z"),
        ] {
            assert_eq!(read(text), Some(time(want)), "{text}");
        }
        for vague in ["Try again later.", "try again in a while", "try again at noon", "try again in 900 days", ""] {
            assert_eq!(read(vague), None, "{vague}");
        }
        let limit = error(None, "You've hit your usage limit. Try again in 90 seconds.", now);
        assert_eq!((limit.class, limit.retry_at), (ErrorClass::Quota, Some(time("2026-01-31T12:01:30Z"))));
    }

    #[test]
    fn classes_follow_words_and_status() {
        for (status, text, want) in [
            (None, "unexpected status 401 Unauthorized: bad key, url: http://x", ErrorClass::Auth),
            (None, "exceeded retry limit, last status: 429 Too Many Requests", ErrorClass::Quota),
            (None, "unexpected status 502 Bad Gateway", ErrorClass::Overloaded),
            (Some(400), "insufficient_quota", ErrorClass::Quota),
            (Some(400), "context_length_exceeded", ErrorClass::ContextOverflow),
            (Some(404), "no such model", ErrorClass::Other),
            (None, "Missing environment variable: `OPENAI_API_KEY`", ErrorClass::Auth),
            (None, "unexpected status é", ErrorClass::Other),
            (None, "", ErrorClass::Other),
        ] {
            let error = error(status, text, Time::from_millis(0));
            assert_eq!(error.class, want, "{text}");
            assert!(!error.message.is_empty());
        }
    }
}
