//! Fresh identifiers.

use uuid::Uuid;

use crate::model::Time;

fn fresh() -> Uuid {
    #[cfg(test)]
    if let Some(id) = fixed::next() {
        return id;
    }
    Uuid::now_v7()
}

/// A new id whose text sorts by time of creation (UUID v7, 32 hex digits).
pub fn sortable() -> String {
    fresh().simple().to_string()
}

/// A new hyphenated UUID, for programs that insist on the form.
pub fn uuid() -> String {
    Uuid::now_v7().hyphenated().to_string()
}

/// A short random word for temporary names (12 hex digits of the random part).
pub fn short() -> String {
    let text = fresh().simple().to_string();
    text.chars().skip(20).collect()
}

/// A new id of a handle that callers keep: `kind`, the moment in milliseconds in base 36, 8 random hex digits.
pub fn handle(kind: &str, at: Time) -> String {
    let text = fresh().simple().to_string();
    let word: String = text.chars().skip(24).collect();
    format!("{kind}-{}-{word}", base36(u64::try_from(at.millis()).unwrap_or(0)))
}

/// The same form made of a digest in hex, so that whoever has the digest finds the id again.
pub fn handle_of(kind: &str, digest: &str) -> String {
    let (moment, rest) = digest.split_at_checked(12).unwrap_or((digest, ""));
    let word: String = rest.chars().chain(std::iter::repeat('0')).take(8).collect();
    format!("{kind}-{}-{word}", base36(u64::from_str_radix(moment, 16).unwrap_or(0)))
}

fn base36(mut number: u64) -> String {
    let mut digits = Vec::new();
    loop {
        digits.extend(char::from_digit(u32::try_from(number % 36).unwrap_or(0), 36));
        number /= 36;
        if number == 0 {
            return digits.into_iter().rev().collect();
        }
    }
}

/// Name of this host, for people and for telling hosts apart that share a state directory.
pub fn host_name() -> String {
    nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_else(|| "localhost".to_owned())
}

/// Ids of a test's thread that are the same each time. For tests that compare what they made.
#[cfg(test)]
pub(crate) mod fixed {
    use std::cell::Cell;

    thread_local!(static NEXT: Cell<Option<u64>> = const { Cell::new(None) });

    /// From now on the ids of this thread count from here.
    pub(crate) fn start(from: u64) {
        NEXT.set(Some(from));
    }

    pub(super) fn next() -> Option<uuid::Uuid> {
        let next = NEXT.get()? + 1;
        NEXT.set(Some(next));
        Some(uuid::Uuid::from_u64_pair(0, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_tell_their_kind_and_moment() {
        let at: Time = serde_json::from_str("\"2026-01-02T03:04:05.678Z\"").unwrap();
        let id = handle("council", at);
        let parts: Vec<&str> = id.split('-').collect();
        assert_eq!((parts.len(), parts[0]), (3, "council"));
        assert_eq!(i64::from_str_radix(parts[1], 36).unwrap(), at.millis());
        assert!(parts[2].len() == 8 && parts[2].bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')), "{id}");
        assert_ne!(handle("council", at), id);
        let digest = "0123456789abcdef0123456789abcdef";
        assert_eq!(handle_of("fanout", digest), format!("fanout-{}-cdef0123", base36(0x0123_4567_89ab)));
        assert_eq!(base36(0), "0");
        assert_eq!(u64::from_str_radix(&base36(u64::MAX), 36).unwrap(), u64::MAX);
    }
}
