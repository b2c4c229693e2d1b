//! What an adapter of a program that takes one turn says about it: the part that does no I/O.

use std::{ffi::OsString, fmt, path::PathBuf, time::Duration};

use super::{
    super::{EngineError, Message, TurnEvent, process::Gone},
    tally::Tally,
};
use crate::model::Time;

/// How one turn is started.
#[derive(Debug, Default)]
pub(crate) struct Invocation {
    /// Arguments.
    pub(crate) args: Vec<OsString>,
    /// Written to its standard input as it is; without it the input is empty. It is closed in either case.
    pub(crate) stdin: Option<String>,
    /// Variables of this turn, over those of the session.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Empty directories that it may leave behind when it is killed. Those that were not there before are removed.
    pub(crate) leavings: Vec<PathBuf>,
}

/// A program that is started for every turn and finds the conversation by its id.
pub(crate) trait Program: Send + fmt::Debug {
    /// A turn begins: how it is started.
    fn command(&mut self, message: &Message<'_>) -> Result<Invocation, EngineError>;

    /// Takes a line of its output. An error ends the turn at once, for example when it works in another conversation
    /// than it was told. `now` turns a time of day in a limit message into an instant.
    fn line(&mut self, bytes: &[u8], tally: &mut Tally, now: Time) -> Result<Vec<TurnEvent>, EngineError>;

    /// A line was too long to keep; `head` is how it began. It may have been the end of a tool call.
    fn skipped(&mut self, bytes: u64, _head: &[u8], tally: &mut Tally) -> Vec<TurnEvent> {
        tally.close_all();
        vec![TurnEvent::Note(format!("a line of {bytes} bytes was too long and was skipped"))]
    }

    /// It ended. `last_words` is the end of its standard error.
    fn finish(&mut self, _exit: &Gone, _last_words: &str, _tally: &mut Tally, _now: Time) {}

    /// The conversation's id, once the program confirmed it or it was given.
    fn native_id(&self) -> Option<&str>;

    /// Whether its first line may take as long as an answer of the model, so that only the idle clock can tell.
    fn speaks_late(&self) -> bool {
        false
    }

    /// Longest turn, where the program's own description sets one.
    fn timeout(&self) -> Option<Duration> {
        None
    }
}
