//! Identifiers that callers may choose, checked before any path is built from them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Longest run id, in bytes.
pub const RUN_ID_MAX: usize = 128;
/// Longest node id, in bytes.
pub const NODE_ID_MAX: usize = 64;

/// Device names that some file systems reserve; a run directory of that name would not be portable.
const RESERVED: [&str; 4] = ["con", "prn", "aux", "nul"];

/// Why an id was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{shown}' is not a valid {what}: use {rule}")]
pub struct BadId {
    what: &'static str,
    rule: &'static str,
    shown: String,
}

/// Identifies a run: `[A-Za-z0-9][A-Za-z0-9._-]{0,127}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct RunId(String);

/// Identifies a node inside one spec: `[A-Za-z0-9_-]{1,64}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct NodeId(String);

impl RunId {
    /// Checks and wraps `text`.
    pub fn parse(text: &str) -> Result<Self, BadId> {
        let mut bytes = text.bytes();
        let head = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric());
        let tail = bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        let stem = text.split('.').next().unwrap_or_default().to_ascii_lowercase();
        if head && tail && text.len() <= RUN_ID_MAX && !RESERVED.contains(&stem.as_str()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(bad("run id", "1 to 128 letters, digits, '.', '_' or '-', starting with a letter or digit", text))
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl NodeId {
    /// Checks and wraps `text`.
    pub fn parse(text: &str) -> Result<Self, BadId> {
        let good = (1..=NODE_ID_MAX).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
        if good { Ok(Self(text.to_owned())) } else { Err(bad("node id", "1 to 64 letters, digits, '_' or '-'", text)) }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Builds the error with the offending text cut short, so that a huge argument stays out of the answer.
fn bad(what: &'static str, rule: &'static str, text: &str) -> BadId {
    let mut shown: String = text.chars().take(64).flat_map(char::escape_default).collect();
    if text.chars().count() > 64 {
        shown.push('…');
    }
    BadId { what, rule, shown }
}

macro_rules! text_id {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
        impl TryFrom<String> for $name {
            type Error = BadId;
            fn try_from(text: String) -> Result<Self, BadId> {
                Self::parse(&text)
            }
        }
        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
        impl FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                Self::parse(text)
            }
        }
        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}
text_id!(RunId);
text_id!(NodeId);

#[cfg(test)]
mod tests {
    use super::*;

    /// Acceptance scenario 21 of the kernel: ids that could leave the store or surprise a file system.
    #[test]
    fn run_ids_are_checked_before_any_path_is_built() {
        let long = "a".repeat(200);
        for bad in ["../x", "a/b", "", long.as_str(), "CON", "con.log", "🦀", ".hidden", "-dash", "a\0b", "a b", "é"]
        {
            assert!(RunId::parse(bad).is_err(), "{bad:?} must be refused");
        }
        for good in ["a.b-c_1", "A", &"a".repeat(128)] {
            assert!(RunId::parse(good).is_ok(), "{good:?} must be accepted");
        }
    }

    #[test]
    fn node_ids_have_no_dots() {
        assert!(NodeId::parse("a.b").is_err());
        assert!(NodeId::parse("__verify").is_ok());
        assert!(NodeId::parse(&"n".repeat(65)).is_err());
    }
}
