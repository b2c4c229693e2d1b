//! Why something asked of a session was not done.

use serde_json::{Value, json};

use crate::{
    engines::{EngineError, ErrorClass, PoolError},
    model::Code,
    sys::FsError,
};

/// A refusal or failure: a stable code and a sentence.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct SessionError {
    pub(super) code: Code,
    /// For people and models.
    pub message: String,
    /// More, for programs.
    pub details: Option<Value>,
    /// The engine's class, when an engine failed.
    pub class: Option<ErrorClass>,
}

impl SessionError {
    /// A refusal.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None, class: None }
    }

    /// Its stable code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// No session and no record has the name.
    pub(super) fn not_found(name: &str) -> Self {
        Self::new(Code::SessionNotFound, format!("there is no session '{name}'"))
    }

    /// The session was stopped before it answered.
    pub(super) fn stopped(name: &str) -> Self {
        Self::new(Code::SessionStopped, format!("session '{name}' is stopped"))
    }

    /// The session has too much to do, or something that excludes this.
    pub(super) fn busy(name: &str, why: &str) -> Self {
        Self::new(Code::SessionBusy, format!("session '{name}' is busy: {why}"))
    }

    /// The cap is used up.
    pub(super) fn budget(name: &str, engine: &str, spent: f64, cap: f64) -> Self {
        let text = format!(
            "session '{name}' ({engine}) has spent {spent:.4} of its {cap:.4} US dollars; raise the cap or start a new session"
        );
        let details = json!({ "session": name, "engine": engine, "spentUsd": spent, "capUsd": cap });
        Self { details: Some(details), ..Self::new(Code::BudgetExceeded, text) }
    }

    /// What the engine cannot do or did not manage, outside of turns.
    pub(super) fn engine(error: EngineError) -> Self {
        let code = match error.class {
            ErrorClass::NotSupported => Code::NotSupported,
            ErrorClass::Interrupted => Code::Cancelled,
            ErrorClass::Timeout => Code::TurnTimeout,
            ErrorClass::BudgetExceeded => error.over.as_ref().map_or(Code::BudgetExceeded, |over| over.code()),
            ErrorClass::Auth
            | ErrorClass::Quota
            | ErrorClass::Overloaded
            | ErrorClass::ContextOverflow
            | ErrorClass::PermissionDenied
            | ErrorClass::Refused
            | ErrorClass::Crashed
            | ErrorClass::Protocol
            | ErrorClass::StartFailed
            | ErrorClass::Other => Code::EngineFailed,
        };
        let details = error.over.as_ref().map(|over| over.details());
        Self { class: Some(error.class), details, ..Self::new(code, error.message) }
    }
}

impl From<PoolError> for SessionError {
    fn from(error: PoolError) -> Self {
        let code = match &error {
            PoolError::Choice(_) => Code::BadOption,
            PoolError::Refused(_)
            | PoolError::Full { .. }
            | PoolError::CircuitOpen { .. }
            | PoolError::Engine(_)
            | PoolError::Slots(_)
            | PoolError::Cancelled => error.code(),
        };
        let mut details = None;
        if let PoolError::CircuitOpen { engine, wait, .. } = &error {
            details = Some(json!({ "engine": engine, "retryInSeconds": wait.as_secs_f64().ceil() }));
        }
        Self { details, class: Some(error.class()), ..Self::new(code, error.to_string()) }
    }
}

impl From<FsError> for SessionError {
    fn from(error: FsError) -> Self {
        Self::new(Code::StoreUnavailable, error.to_string())
    }
}
