//! Wall-clock instants as they are written to disk and shown to people.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// An instant of wall time, written as RFC 3339 UTC with milliseconds (`2026-01-31T12:00:00.000Z`).
///
/// For people and for due times only: durations and leases come from the boot-time clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(Timestamp);

impl Time {
    /// Wraps a timestamp, cut to whole milliseconds so that what is written reads back equal.
    pub fn new(at: Timestamp) -> Self {
        Self::from_millis(at.as_millisecond())
    }

    /// From milliseconds since the Unix epoch; values out of range become the epoch.
    pub fn from_millis(ms: i64) -> Self {
        Self(Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH))
    }

    /// Milliseconds since the Unix epoch.
    pub fn millis(self) -> i64 {
        self.0.as_millisecond()
    }

    /// This instant moved by `ms` milliseconds.
    #[must_use]
    pub fn plus_millis(self, ms: i64) -> Self {
        Self::from_millis(self.millis().saturating_add(ms))
    }
}

impl Default for Time {
    /// The Unix epoch.
    fn default() -> Self {
        Self(Timestamp::UNIX_EPOCH)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.0)
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        text.parse::<Timestamp>().map(Self::new).map_err(de::Error::custom)
    }
}

impl schemars::JsonSchema for Time {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "description": "RFC 3339 UTC with milliseconds" })
    }
}
