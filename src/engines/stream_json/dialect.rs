//! The protocol as a [`Dialect`].

use super::StreamJson;
use crate::{
    engines::{
        Ask, EngineError, Message, TurnOutcome,
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
        self.steer_turn(text)
    }

    fn ask(&mut self, ask: &Ask) -> Result<Vec<String>, EngineError> {
        self.question(ask).ok_or_else(|| not_supported(&format!("this engine has no {}", ask.name())))
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
