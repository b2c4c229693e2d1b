//! Fresh identifiers.

use uuid::Uuid;

/// A new id whose text sorts by time of creation (UUID v7, 32 hex digits).
pub fn sortable() -> String {
    Uuid::now_v7().simple().to_string()
}

/// A new hyphenated UUID, for programs that insist on the form.
pub fn uuid() -> String {
    Uuid::now_v7().hyphenated().to_string()
}

/// A short random word for temporary names (12 hex digits of the random part).
pub fn short() -> String {
    let text = Uuid::now_v7().simple().to_string();
    text.chars().skip(20).collect()
}

/// Name of this host, for people and for telling hosts apart that share a state directory.
pub fn host_name() -> String {
    nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_else(|| "localhost".to_owned())
}
