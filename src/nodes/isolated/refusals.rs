//! Refusals that come up in the middle of the work, in the words a caller gets. What speaks against beginning at all
//! is looked at as for a council.

use crate::{
    git::{self, Dirty},
    model::Code,
};

/// Why nothing is begun: a stable code, and a sentence that says what to do.
pub type Refusal = (Code, String);

/// The paths that are not committed.
pub fn dirty_words(dirty: &Dirty) -> String {
    let more = dirty.total.saturating_sub(dirty.paths.len());
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{} paths are not committed: {}{rest}", dirty.total, dirty.paths.join(", "))
}

/// A failure of git as a refusal.
pub fn failed(error: &git::Error) -> Refusal {
    let code = match error {
        git::Error::Busy { .. } => Code::RepoBusy,
        git::Error::Program(_)
        | git::Error::Failed { .. }
        | git::Error::BaseGone(_)
        | git::Error::Fs(_)
        | git::Error::Moved { .. }
        | git::Error::Answer { .. } => Code::WorktreeFailed,
    };
    (code, error.to_string())
}
