//! Why something asked of a council was not done.

use serde_json::Value;

use crate::{git, model::Code, sys::FsError};

/// A refusal or failure: a stable code and a sentence.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// For programs.
    pub code: Code,
    /// For people and models.
    pub message: String,
    /// More, for programs.
    pub details: Option<Value>,
}

impl Refusal {
    /// A refusal.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None }
    }

    /// The same with more for programs.
    #[must_use]
    pub fn with(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// A branch or commit that the council needs is gone.
    pub fn lost(council: &str, what: &str) -> Self {
        Self::new(Code::CouncilStateLost, format!("{what} of council '{council}' is gone from the repository"))
    }
}

impl From<git::Error> for Refusal {
    fn from(e: git::Error) -> Self {
        let code = match &e {
            git::Error::Busy { .. } => Code::RepoBusy,
            git::Error::BaseGone(_) => Code::CouncilStateLost,
            git::Error::Fs(_) => Code::StoreUnavailable,
            git::Error::Program(_) => Code::GitUnavailable,
            git::Error::Failed { .. } | git::Error::Moved { .. } | git::Error::Answer { .. } => Code::WorktreeFailed,
        };
        Self::new(code, e.to_string())
    }
}

impl From<FsError> for Refusal {
    fn from(e: FsError) -> Self {
        Self::new(Code::StoreUnavailable, e.to_string())
    }
}
