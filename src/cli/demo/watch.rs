//! Polls a run through the tools, says every step, and counts what the demo promises.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    super::{
        context::Context,
        failure::Failure,
        out::Tone,
        wait::{duration, first_line},
    },
    client::Client,
};
use crate::{
    model::Code,
    sys::{Clock, SystemClock},
};

/// Longest wait of one poll in milliseconds; a change returns earlier.
const POLL_MS: u64 = 5_000;
/// Events asked for with each poll; a demo run has far fewer.
const EVENTS: u64 = 500;
/// The demo ends within this, or it has failed.
const LIMIT_MS: u64 = 120_000;

/// What was seen of a run.
#[derive(Debug)]
pub(super) struct Watch {
    /// The run.
    pub(super) run: String,
    /// Its outcome once it ended.
    pub(super) outcome: Option<String>,
    /// Red verdicts.
    pub(super) refuted: usize,
    /// Green verdicts.
    pub(super) verified: usize,
    /// Processes that owned the run, one after another.
    pub(super) owners: usize,
    state: String,
    repair_entered: bool,
    shown: usize,
    said: BTreeMap<String, String>,
    started_ms: u64,
}

impl Watch {
    /// Nothing seen yet.
    pub(super) fn new(run: String) -> Self {
        Self {
            run,
            outcome: None,
            refuted: 0,
            verified: 0,
            owners: 0,
            state: String::new(),
            repair_entered: false,
            shown: 0,
            said: BTreeMap::new(),
            started_ms: now_ms(),
        }
    }

    /// Watches until the run ends or `stop` says so.
    pub(super) async fn until(
        &mut self,
        context: &Context,
        client: &Client,
        stop: impl Fn(&Self) -> bool,
    ) -> Result<(), Failure> {
        // The first look does not wait, so that nothing of a fast run is missed.
        let mut wait = 0;
        loop {
            let arguments = json!({ "runId": self.run, "events": EVENTS, "waitMs": wait });
            let view = client.call("workflow_status", arguments).await?;
            self.see(context, &view);
            if self.ended() || stop(self) {
                return Ok(());
            }
            if now_ms().saturating_sub(self.started_ms) > LIMIT_MS {
                return Err(Failure::new(Code::Internal, format!("the run did not end within {}", duration(LIMIT_MS))));
            }
            wait = POLL_MS;
        }
    }

    /// Whether the run is over.
    pub(super) fn ended(&self) -> bool {
        matches!(self.state.as_str(), "completed" | "failed" | "cancelled")
    }

    /// Whether a red verdict has sent the work back to the implementer and no other verdict has come since.
    pub(super) fn repairing(&self) -> bool {
        self.refuted == 1 && self.repair_entered && self.verified == 0
    }

    /// What the demo promises and was not seen.
    pub(super) fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if self.outcome.as_deref() != Some("verified") {
            missing.push(format!(
                "the run ended {} instead of verified",
                self.outcome.as_deref().unwrap_or("without an outcome")
            ));
        }
        if self.refuted != 1 {
            missing.push(format!("{} refuted passes instead of exactly one", self.refuted));
        }
        if self.verified != 1 {
            missing.push(format!("{} verified passes instead of exactly one", self.verified));
        }
        missing
    }

    /// Takes in one answer and says what is new.
    fn see(&mut self, context: &Context, view: &Value) {
        text(view, "state").clone_into(&mut self.state);
        self.outcome = view.get("outcome").and_then(Value::as_str).map(str::to_owned);
        let events: Vec<&Value> = list(view, "events").iter().filter_map(|e| e.get("event")).collect();
        let verdicts = events.iter().filter(|e| text(e, "type") == "verdict");
        let passed = verdicts.map(|e| e.pointer("/verdict/passed").and_then(Value::as_bool) == Some(true));
        let (green, red): (Vec<bool>, Vec<bool>) = passed.partition(|passed| *passed);
        (self.verified, self.refuted) = (green.len(), red.len());
        self.owners = events.iter().filter(|e| text(e, "type") == "fence").count();
        // The demo's runs have fewer events than are asked for, so the list only grows.
        for event in events.iter().skip(self.shown) {
            self.event(context, event);
        }
        self.shown = self.shown.max(events.len());
    }

    /// Says a step; what the agent said comes with its end.
    fn event(&mut self, context: &Context, event: &Value) {
        let node = text(event, "node");
        if text(event, "type") == "node_output" {
            let said = event.pointer("/output/text").and_then(Value::as_str).unwrap_or_default();
            self.said.insert(node.to_owned(), said.to_owned());
        }
        if text(event, "type") != "node_state" {
            return;
        }
        let state = text(event, "state");
        let tone = match state {
            "succeeded" => Tone::Good,
            "failed" => Tone::Bad,
            _ => Tone::Dim,
        };
        let number = |field: &str| event.get(field).and_then(Value::as_u64).unwrap_or_default();
        self.repair_entered |= node == "implement" && number("visit") > 1;
        let elapsed = duration(now_ms().saturating_sub(self.started_ms));
        let mut line = format!("  {elapsed:>7}  {node} (visit {}", number("visit"));
        if number("attempt") > 1 {
            line.push_str(&format!(", attempt {}", number("attempt")));
        }
        line.push_str(&format!(") {}", context.out.paint(tone, state)));
        let said = self.said.remove(node).unwrap_or_default();
        let said = if state == "failed" { text(event, "error") } else { said.as_str() };
        if state != "running" && !said.is_empty() {
            line.push_str(&format!(": {}", first_line(said)));
        }
        context.out.progress(line);
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn now_ms() -> u64 {
    u64::try_from(SystemClock.boot().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(outcome: &str, refuted: usize, verified: usize) -> Watch {
        Watch { outcome: Some(outcome.to_owned()), refuted, verified, ..Watch::new("r".to_owned()) }
    }

    #[test]
    fn only_one_refuted_pass_and_one_verified_prove_it() {
        assert!(seen("verified", 1, 1).missing().is_empty());
        for bad in [seen("unverified", 1, 1), seen("refuted", 4, 0), seen("verified", 0, 1), seen("verified", 2, 1)] {
            assert!(!bad.missing().is_empty(), "{bad:?}");
        }
    }
}
