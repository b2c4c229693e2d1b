//! One turn while it goes on: what was said, which tools run, what was used.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;

use super::{
    super::{
        PermissionDenial, TurnEvent, Usage,
        stream_json::{cut, str_of},
    },
    agents::Tokens,
};
use crate::model::run::Spend;

/// Longest one-line summary of a tool call, in characters.
const MAX_SUMMARY: usize = 200;
/// Most tool calls tracked as open; a turn with more is no turn of a sane agent.
const MAX_OPEN: usize = 1024;
/// Most refusals kept of one turn.
const MAX_DENIALS: usize = 100;
/// Most bytes kept of one message; chunks have no bound of their own together.
const MAX_MESSAGE: usize = 8 << 20;

/// A tool call under way.
#[derive(Debug, Default)]
pub(super) struct Tool {
    title: String,
    kind: String,
    /// Whether listeners know of it.
    told: bool,
}

/// The state of a turn.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Tool calls so far.
    pub(super) tool_calls: u32,
    /// Those that failed.
    pub(super) tool_errors: u32,
    /// Tool calls under way.
    pub(super) open: BTreeMap<String, Tool>,
    /// Refused requests.
    pub(super) denials: VecDeque<PermissionDenial>,
    /// We cut it off.
    pub(super) interrupted: bool,
    /// The agent's own sign that its model failed.
    pub(super) broken: bool,
    /// The message that is being said.
    saying: String,
    /// Its id, where the agent gives one.
    message: String,
    /// The last whole message.
    said: String,
    /// Whether anything was said after the last tool call.
    spoke_last: bool,
}

impl Turn {
    /// A piece of a message; another id begins another message.
    pub(super) fn chunk(&mut self, update: &Value) -> Option<TurnEvent> {
        let id = str_of(update, "messageId");
        let closed = if id == self.message { None } else { self.close() };
        id.clone_into(&mut self.message);
        let text = update.get("content").map(|c| str_of(c, "text")).unwrap_or_default();
        if self.saying.len() + text.len() <= MAX_MESSAGE {
            self.saying.push_str(text);
        }
        closed
    }

    /// Something else came: the message is whole.
    pub(super) fn close(&mut self) -> Option<TurnEvent> {
        let text = std::mem::take(&mut self.saying);
        if text.trim().is_empty() {
            return None;
        }
        self.said.clone_from(&text);
        self.spoke_last = true;
        Some(TurnEvent::Text(text))
    }

    /// A tool call, or news of one.
    pub(super) fn tool(&mut self, update: &Value) -> Vec<TurnEvent> {
        let mut events: Vec<TurnEvent> = self.close().into_iter().collect();
        let id = str_of(update, "toolCallId");
        let status = str_of(update, "status");
        let done = matches!(status, "completed" | "failed");
        if !self.open.contains_key(id) {
            // News of a call nobody announced, or of one that is over.
            if str_of(update, "sessionUpdate") != "tool_call" || self.open.len() >= MAX_OPEN {
                return events;
            }
            self.tool_calls = self.tool_calls.saturating_add(1);
            self.spoke_last = false;
        }
        let tool = self.open.entry(id.to_owned()).or_default();
        for (field, key) in [(&mut tool.title, "title"), (&mut tool.kind, "kind")] {
            if let Some(text) = update.get(key).and_then(Value::as_str) {
                *field = cut(text, MAX_SUMMARY);
            }
        }
        // While it is pending its arguments may still be on their way, and its title with them.
        if !tool.told && status != "pending" {
            tool.told = true;
            let name = if tool.kind.is_empty() { "tool" } else { &tool.kind };
            events.push(TurnEvent::ToolCall { name: name.to_owned(), summary: tool.title.clone() });
        }
        if done {
            let is_error = status == "failed";
            self.open.remove(id);
            self.tool_errors = self.tool_errors.saturating_add(u32::from(is_error));
            events.push(TurnEvent::ToolResult { is_error });
        }
        events
    }

    /// The kind of tool that a request is about, as the request or an earlier line says.
    pub(super) fn kind<'a>(&'a self, call: &'a Value) -> &'a str {
        match str_of(call, "kind") {
            "" => self.open.get(str_of(call, "toolCallId")).map_or("", |tool| tool.kind.as_str()),
            kind => kind,
        }
    }

    /// A request was refused.
    pub(super) fn deny(&mut self, call: &Value, kind: &str) -> TurnEvent {
        let name = [kind, str_of(call, "title"), "tool"].into_iter().find(|n| !n.is_empty()).unwrap_or_default();
        let name = cut(name, MAX_SUMMARY);
        if self.denials.len() < MAX_DENIALS {
            self.denials.push_back(PermissionDenial {
                tool_name: name.clone(),
                tool_use_id: call.get("toolCallId").and_then(Value::as_str).map(str::to_owned),
                input: call.get("rawInput").cloned(),
            });
        }
        TurnEvent::Note(format!("refused the tool call {name} that nobody could permit"))
    }

    /// What was refused, for a message.
    pub(super) fn denied(&self) -> String {
        let mut names: Vec<&str> = self.denials.iter().map(|d| d.tool_name.as_str()).collect();
        names.dedup();
        names.join(", ")
    }

    /// The reply: the last message. One before a refused tool call is no answer, since the turn ended on the refusal.
    pub(super) fn reply(&mut self) -> String {
        self.close();
        if self.spoke_last || self.denials.is_empty() { std::mem::take(&mut self.said) } else { String::new() }
    }
}

/// Tokens out of the answer to a prompt; `None` when it has none.
///
/// Some agents count cached input inside the input and thoughts inside the output, others beside them. Their own
/// total tells which.
pub(super) fn usage(answer: &Value) -> Option<Usage> {
    let usage = answer.get("usage").filter(|u| u.is_object())?;
    let number = |key: &str| usage.get(key).and_then(Value::as_u64).unwrap_or(0);
    let (input, output, total) = (number("inputTokens"), number("outputTokens"), number("totalTokens"));
    let (cached, cache_write) = (number("cachedReadTokens"), number("cachedWriteTokens"));
    let within = total > 0 && input.saturating_add(output) == total;
    let found = Usage {
        input: if within { input.saturating_sub(cached).saturating_sub(cache_write) } else { input },
        cached,
        cache_write,
        output: if within { output } else { output.saturating_add(number("thoughtTokens")) },
    };
    Some(found).filter(|u| *u != Usage::default())
}

/// Cost of one turn out of the running cost of its conversation.
#[derive(Debug, Default)]
pub(super) struct Bill {
    /// Cost before the turn; `None` when a conversation is taken up whose cost nobody kept.
    before: Option<f64>,
}

impl Bill {
    /// `fresh` conversations have cost nothing.
    pub(super) fn new(fresh: bool) -> Self {
        Self { before: fresh.then_some(0.0) }
    }

    /// A total stated before the first turn of a conversation that is taken up: where the count goes on.
    pub(super) fn begins_at(&mut self, total: Option<f64>) {
        self.before = self.before.or(total);
    }

    /// The share that leads to `total`.
    pub(super) fn share(&mut self, total: Option<f64>) -> Option<f64> {
        let total = total.filter(|t| t.is_finite() && *t >= 0.0)?;
        let before = self.before.replace(total)?;
        // A program without a price for its model states zero, which is no cost.
        Some(if total < before { total } else { total - before }).filter(|share| *share > 0.0)
    }
}

/// Both as budgets count them.
pub(super) fn spend(usage: Option<Usage>, cost: Option<f64>, tokens: Tokens) -> Spend {
    let used = usage.unwrap_or_default();
    Spend {
        cost_usd: cost.unwrap_or(0.0),
        turns: 1,
        tokens_in: used.read(),
        tokens_out: used.output,
        estimated: cost.is_none() && tokens == Tokens::Part,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_of_tokens_do_not_overlap() {
        let beside = json!({ "usage": { "inputTokens": 80, "outputTokens": 7, "totalTokens": 132, "thoughtTokens": 5, "cachedReadTokens": 40 } });
        assert_eq!(usage(&beside), Some(Usage { input: 80, cached: 40, cache_write: 0, output: 12 }));
        let within = json!({ "usage": { "inputTokens": 100, "outputTokens": 10, "totalTokens": 110, "thoughtTokens": 4, "cachedReadTokens": 30 } });
        assert_eq!(usage(&within), Some(Usage { input: 70, cached: 30, cache_write: 0, output: 10 }));
        assert_eq!(usage(&json!({ "usage": null })), None);
        assert_eq!(usage(&json!({ "usage": { "inputTokens": 0, "totalTokens": 0 } })), None);
    }

    /// Scenario 10 on this protocol: shares of the stated running cost add up, also when its beginning is not known.
    #[test]
    fn a_running_cost_is_shared_out() {
        let mut bill = Bill::new(true);
        let shares: Vec<_> = [Some(0.25), Some(1.0), None, Some(1.0), Some(0.5)].map(|t| bill.share(t)).into();
        assert_eq!(shares, [Some(0.25), Some(0.75), None, None, Some(0.5)]);
        let mut resumed = Bill::new(false);
        assert_eq!((resumed.share(Some(3.0)), resumed.share(Some(3.5))), (None, Some(0.5)));
        assert_eq!((resumed.share(Some(-1.0)), resumed.share(Some(f64::NAN))), (None, None));
    }
}
