//! Programs of the caller's own, described by a config.
//!
//! A config can hold credentials, so it is never written to disk and never shown.

use std::fmt;

/// A described program.
#[derive(Clone)]
pub struct CustomEngine {
    /// Name in messages.
    pub name: String,
}

impl fmt::Debug for CustomEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomEngine").field("name", &self.name).finish_non_exhaustive()
    }
}
