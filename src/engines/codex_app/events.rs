//! What the program tells without being asked.

use serde_json::Value;

use super::{
    app::{App, Doing, note},
    classify::{resets_at, turn_error},
    turn::str_of,
};
use crate::{
    engines::{TurnEvent, dialect::Step},
    model::Time,
};

impl App {
    /// Takes a notification. What is said of another thread, a sub-agent's or a branch's, is not ours.
    pub(super) fn told(&mut self, method: &str, params: &Value, now: Time) -> Vec<Step> {
        let thread = str_of(params, "threadId");
        if !thread.is_empty() && !self.thread.is_empty() && thread != self.thread {
            return Vec::new();
        }
        let ours = self.turn.is(str_of(params, "turnId"));
        let item = params.get("item").unwrap_or(&Value::Null);
        let events = |events: Vec<TurnEvent>| events.into_iter().map(Step::Event).collect();
        match method {
            "turn/started" => self.turn_started(params.get("turn").unwrap_or(&Value::Null)),
            "turn/completed" => self.turn_completed(params.get("turn").unwrap_or(&Value::Null), now),
            "item/started" if ours => events(self.turn.started(item)),
            "item/completed" if ours => events(self.turn.completed(item)),
            "item/agentMessage/delta" if ours => {
                self.turn.delta(str_of(params, "delta"));
                Vec::new()
            }
            "error" if ours => self.failed(params, now),
            "thread/tokenUsage/updated" => {
                self.tokens.told(params.get("tokenUsage").unwrap_or(&Value::Null), ours);
                Vec::new()
            }
            "thread/reverted" => {
                self.tokens.cut_back();
                Vec::new()
            }
            "thread/goal/updated" => self.goal_told(params.get("goal").unwrap_or(&Value::Null)),
            "thread/goal/cleared" => self.goal_cleared(),
            "account/rateLimits/updated" => {
                let at = params.get("rateLimits").and_then(resets_at);
                self.resets_at = at.or(self.resets_at);
                Vec::new()
            }
            "model/rerouted" => note(format!("the engine went over to model {}", str_of(params, "toModel"))),
            "warning" | "guardianWarning" => note(str_of(params, "message")),
            // Later versions say more; what is not known changes nothing.
            _ => Vec::new(),
        }
    }

    /// A turn began: ours, one of the goal, or the one inside a review.
    fn turn_started(&mut self, turn: &Value) -> Vec<Step> {
        let (id, root) = (str_of(turn, "id"), str_of(turn, "rootTurnId"));
        if self.turn.active() && !self.turn.is(id) && !self.turn.is(root) {
            // The end of the one before was not told; what it did belongs to this one.
            self.turn.ids.clear();
        }
        let (id, root) = if root.is_empty() { (id, id) } else { (id, root) };
        self.turn.learn(root);
        self.turn.learn(id);
        self.ask_turn_started(root);
        // It set out while its goal was being paused.
        let stray = self.goal.stands_still() && matches!(self.doing, Doing::Nothing | Doing::Goal);
        if stray { self.interrupt_lines().into_iter().map(Step::Reply).collect() } else { Vec::new() }
    }

    /// A failure that the program tries again after is only told; the other kind ends the turn soon.
    fn failed(&mut self, params: &Value, now: Time) -> Vec<Step> {
        let error = turn_error(params.get("error").unwrap_or(&Value::Null), self.resets_at, now);
        if params.get("willRetry").and_then(Value::as_bool).unwrap_or(false) {
            return vec![Step::Event(TurnEvent::Retry(error.message))];
        }
        self.turn.error = Some(error);
        Vec::new()
    }
}
