//! Fresh identifiers.

use uuid::Uuid;

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
