//! The protocol as a [`Dialect`].

use super::{StreamJson, user_line};
use crate::{
    engines::{
        EngineError, Message, TurnOutcome,
        dialect::{Dialect, Step},
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

    fn tool_open(&self) -> bool {
        StreamJson::tool_open(self)
    }

    fn cut_off(&mut self, error: EngineError) -> TurnOutcome {
        StreamJson::cut_off(self, error)
    }

    fn native_id(&self) -> Option<&str> {
        self.session_id()
    }
}
