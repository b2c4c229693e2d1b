//! What the lines of a long process mean: the part of an adapter that does no I/O.

use std::fmt;

use super::{Answer, Ask, EngineError, GoalEnd, GoalSet, GoalView, Message, TurnEvent, TurnOutcome, not_supported};
use crate::model::Time;

/// What a line leads to.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Tell whoever listens.
    Event(TurnEvent),
    /// Write this line to the program.
    Reply(String),
    /// The program is there and has the conversation; turns can begin.
    Ready,
    /// It is there, but not with what it was given.
    Failed(EngineError),
    /// The turn is over.
    Ended(Box<TurnOutcome>),
    /// What was asked is answered.
    Answered(Box<Result<Answer, EngineError>>),
    /// The goal moved.
    Goal(GoalView),
    /// The goal is over, or stands still.
    GoalEnded(GoalEnd, GoalView),
}

/// A protocol as a state machine: lines in, steps out.
pub(crate) trait Dialect: Send + fmt::Debug {
    /// Lines that open the conversation. [`Step::Ready`] or [`Step::Failed`] answers them.
    fn hello(&mut self) -> Vec<String>;

    /// A turn begins: its lines. What comes now belongs to it, until [`Step::Ended`].
    fn begin(&mut self, message: &Message<'_>) -> Vec<String>;

    /// Takes a line. `now` turns a time of day in a limit message into an instant.
    fn line(&mut self, bytes: &[u8], now: Time) -> Vec<Step>;

    /// A line was too long to keep; `head` is how it began.
    fn skipped(&mut self, bytes: u64, head: &[u8]) -> Vec<Step>;

    /// Lines that interrupt the turn, whose end then is no doing of the program.
    fn interrupt(&mut self) -> Vec<String>;

    /// Lines that add `text` to the turn under way.
    fn steer(&mut self, _text: &str) -> Result<Vec<String>, EngineError> {
        Err(not_supported("a running turn of this engine takes no further input"))
    }

    /// Lines that ask for something other than a turn. [`Step::Answered`] answers them.
    fn ask(&mut self, ask: &Ask) -> Result<Vec<String>, EngineError> {
        Err(not_supported(&format!("this engine has no {}", ask.name())))
    }

    /// Lines that set a goal, or go on with the one there is (`set` is `None`), set active again if `reactivate`.
    /// [`Step::GoalEnded`] ends it; every turn on the way ends with [`Step::Ended`].
    fn goal(&mut self, _set: Option<&GoalSet>, _reactivate: bool) -> Result<Vec<String>, EngineError> {
        Err(not_supported("this engine has no goals"))
    }

    /// Lines that interrupt the turn of a goal and keep the goal from going on by itself.
    fn goal_pause(&mut self) -> Vec<String> {
        self.interrupt()
    }

    /// Whether a tool call is under way: silence is then no stall.
    fn tool_open(&self) -> bool;

    /// The outcome of a turn that ends without the program saying so, with what it is known to have used.
    fn cut_off(&mut self, error: EngineError) -> TurnOutcome;

    /// The conversation's id, once the program confirmed it.
    fn native_id(&self) -> Option<&str>;
}
