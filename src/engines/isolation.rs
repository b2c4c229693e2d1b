//! Where a session works that must not write. Implemented above, where git is known.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use super::{Boxed, EngineError};

/// Gives sessions that must not write a place where they can do no harm.
pub trait Isolation: Send + Sync + fmt::Debug {
    /// A place that shows the content of `cwd`. `name` is the session's.
    fn enter<'a>(&'a self, name: &'a str, cwd: &'a Path) -> Boxed<'a, Result<Box<dyn Isolated>, EngineError>>;
}

/// The place of one session.
pub trait Isolated: Send + fmt::Debug {
    /// Directory the agent works in.
    fn dir(&self) -> PathBuf;
    /// Paths that changed since it was entered, here or in the directory it shows; they are put back here.
    fn check<'a>(&'a mut self) -> Boxed<'a, Result<Vec<String>, EngineError>>;
    /// Removes it.
    fn leave(self: Box<Self>) -> Boxed<'static, ()>;
}
