//! The protocol as a [`Dialect`].

use super::{StreamJson, goal, user_line};
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
        let (id, line) = self.control("initialize");
        self.hello = Some(id);
        vec![line]
    }

    fn begin(&mut self, message: &Message<'_>) -> Vec<String> {
        goal::forget(self);
        self.begin_turn();
        vec![user_line(message.text, message.command)]
    }

    fn line(&mut self, bytes: &[u8], now: Time) -> Vec<Step> {
        StreamJson::line(self, bytes, now)
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
        self.goal_steer(text).ok_or_else(|| not_supported("a running turn of this engine takes no further input"))
    }

    fn ask(&mut self, ask: &Ask) -> Result<Vec<String>, EngineError> {
        let about_goals = self.goal_ask(ask);
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
