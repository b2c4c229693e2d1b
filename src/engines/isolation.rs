//! Where a session works that must not write. Implemented above, where git is known.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use super::{Boxed, EngineError, ErrorClass, TurnOutcome};

/// Most paths named in a message; the outcome has them all.
const NAMED: usize = 10;

/// Gives sessions that must not write a place where they can do no harm.
pub trait Isolation: Send + Sync + fmt::Debug {
    /// A place that shows the content of `cwd`. `name` is the session's.
    fn enter<'a>(&'a self, name: &'a str, cwd: &'a Path) -> Boxed<'a, Result<Box<dyn Isolated>, EngineError>>;
}

/// The place of one session.
pub trait Isolated: Send + fmt::Debug {
    /// Directory the agent works in.
    fn dir(&self) -> PathBuf;
    /// Directory for its temporary files.
    fn temp(&self) -> PathBuf;
    /// Whether the system keeps its programs from writing anywhere else.
    fn confined(&self) -> bool;
    /// Paths that changed since it was entered, here or in the directory it shows; they are put back here.
    fn check<'a>(&'a mut self) -> Boxed<'a, Result<Vec<String>, EngineError>>;
    /// Removes it.
    fn leave(self: Box<Self>) -> Boxed<'static, ()>;
}

/// Looks at what a turn left behind. One that wrote, or of which nobody can tell, is no success.
pub(super) async fn judge(isolated: &mut dyn Isolated, outcome: &mut TurnOutcome) {
    let error = match isolated.check().await {
        Ok(paths) if paths.is_empty() => return,
        Ok(paths) => {
            let named = paths.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
            let more = if paths.len() > NAMED { format!(" and {} more", paths.len() - NAMED) } else { String::new() };
            outcome.read_only_violations = paths;
            let text = format!("read_only_violated: the agent must not write and changed {named}{more}");
            EngineError::new(ErrorClass::PermissionDenied, text)
        }
        Err(e) => e,
    };
    outcome.ok = false;
    outcome.error = Some(match outcome.error.take() {
        Some(first) => EngineError { message: format!("{}; {}", first.message, error.message), ..first },
        None => error,
    });
}
