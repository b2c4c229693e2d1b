//! Why a command did not do what was asked, with its exit status.

use serde_json::{Value, json};

use crate::{kernel, model::Code};

/// Result of a command: its exit status.
pub(crate) type Outcome = Result<u8, Failure>;

/// Exit status of a run that ended badly, a red bundle, a missing requirement.
pub(crate) const EXIT_RED: u8 = 1;
/// Exit status of a wait that ran out.
pub(crate) const EXIT_WAIT_TIMEOUT: u8 = 7;
/// Exit status after Ctrl-C.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// A refusal or failure of a command.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    /// For programs.
    pub(crate) code: Code,
    /// What was wrong.
    pub(crate) message: String,
    /// What to do; the code's own hint when absent.
    pub(crate) hint: Option<String>,
    /// More, for programs.
    pub(crate) details: Option<Box<Value>>,
}

impl Failure {
    /// A failure with the hint of its code.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, details: None }
    }

    /// Bad input; nothing was started.
    pub(crate) fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code: Code::InvalidArgument, message: message.into(), hint: Some(hint.into()), details: None }
    }

    /// Something of the system failed.
    pub(crate) fn io(what: &str, error: impl std::fmt::Display) -> Self {
        Self::new(Code::StoreUnavailable, format!("failed to {what}: {error}"))
    }

    /// Exit status.
    pub(crate) fn exit(&self) -> u8 {
        self.code.exit()
    }

    /// What to do next.
    fn hint(&self) -> &str {
        self.hint.as_deref().unwrap_or_else(|| self.code.hint())
    }

    /// What to do next, unless the message says it already.
    pub(crate) fn advice(&self) -> Option<&str> {
        Some(self.hint()).filter(|hint| !self.message.contains(hint))
    }

    /// The error object of the `--json` form.
    pub(crate) fn document(&self) -> Value {
        let mut document = json!({
            "ok": false,
            "error": match self.advice() {
                Some(hint) => format!("{}; {hint}", self.message.trim_end_matches('.')),
                None => self.message.clone(),
            },
            "code": self.code.as_str(),
        });
        if let (Some(details), Some(object)) = (&self.details, document.as_object_mut()) {
            object.insert("details".to_owned(), details.as_ref().clone());
        }
        document
    }
}

impl From<kernel::Error> for Failure {
    fn from(e: kernel::Error) -> Self {
        Self { code: e.code, message: e.message, hint: None, details: e.details.map(Box::new) }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(e: anyhow::Error) -> Self {
        match e.downcast::<kernel::Error>() {
            Ok(refusal) => refusal.into(),
            Err(e) => Self::new(Code::Internal, format!("{e:#}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_what_to_do_in_both_forms() {
        let failure = Failure::new(Code::RunNotFound, "there is no run 'x'");
        assert_eq!(failure.exit(), 3);
        assert_eq!(
            failure.document(),
            json!({ "ok": false, "error": "there is no run 'x'; list the runs to find the id", "code": "run_not_found" })
        );
        let wrapped: Failure = anyhow::Error::new(kernel::Error::new(Code::Busy, "busy")).into();
        assert_eq!(wrapped.code, Code::Busy);
    }
}
