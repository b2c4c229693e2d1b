//! The protocol as a [`Dialect`].

use super::{StreamJson, goal};
use crate::{
    engines::{
        Ask, EngineError, GoalSet, Message, TurnOutcome,
        dialect::{Dialect, Step},
        not_supported,
    },
    model::Time,
};

impl Dialect for StreamJson {
    fn hello(&mut self) -> Vec<String> {
        let (id, line) = self.opening();
        self.hello = Some(id);
        vec![line]
    }

    fn begin(&mut self, message: &Message<'_>) -> Vec<String> {
        goal::forget(self);
        self.begin_message(message)
    }

    fn line(&mut self, bytes: &[u8], now: Time) -> Vec<Step> {
        let steps = StreamJson::line(self, bytes, now);
        self.seen(bytes, steps)
    }

    fn skipped(&mut self, bytes: u64, head: &[u8]) -> Vec<Step> {
        StreamJson::skipped(self, bytes, head)
    }

    fn interrupt(&mut self) -> Vec<String> {
        self.interrupting();
        vec![self.control("interrupt").1]
    }

    fn steer(&mut self, text: &str) -> Result<Vec<String>, EngineError> {
        // Outside a goal a message can become a turn of its own, whose end nobody would expect.
        match self.goal_steer(text) {
            Some(lines) => Ok(lines),
            None => self.steer_turn(text),
        }
    }

    fn ask(&mut self, ask: &Ask) -> Result<Vec<String>, EngineError> {
        let about_goals = self.goal_ask(ask).or_else(|| self.question(ask).map(Ok));
        about_goals.unwrap_or_else(|| Err(not_supported(&format!("this engine has no {}", ask.name()))))
    }

    fn goal(&mut self, set: Option<&GoalSet>, _reactivate: bool) -> Result<Vec<String>, EngineError> {
        // A goal that stands still here is one nobody says anything to, so going on is all it takes.
        self.goal_lines(set)
    }

    fn goal_pause(&mut self) -> Vec<String> {
        self.pausing();
        self.interrupt()
    }

    fn tool_open(&self) -> bool {
        StreamJson::tool_open(self)
    }

    fn cut_off(&mut self, error: EngineError) -> TurnOutcome {
        goal::cut(self, error)
    }

    fn native_id(&self) -> Option<&str> {
        self.session_id()
    }
}
