//! One turn as it goes on: what was said, which tools are under way, what was refused.

use std::collections::{BTreeSet, VecDeque};

use serde_json::Value;

use crate::engines::{EngineError, PermissionDenial, TurnEvent};

/// Longest one-line summary of a tool call, in characters.
const MAX_SUMMARY: usize = 200;
/// Most tool calls tracked as open; a turn with more is no turn of a sane agent.
const MAX_OPEN: usize = 1024;
/// Most refusals kept of one turn.
const MAX_DENIALS: usize = 100;
/// Bytes kept of a message that is still being said; it is needed only if it is cut off.
const MAX_PARTIAL: usize = 1 << 20;
/// Ids a turn may go by: a review has another one for the turn inside it.
const MAX_IDS: usize = 4;

/// The turn under way, or what is gathered between turns.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// What the program calls it; empty while none is under way.
    pub(super) ids: VecDeque<String>,
    /// The latest whole message.
    pub(super) text: String,
    /// A message that is not whole yet.
    partial: String,
    /// Tool calls so far.
    pub(super) tool_calls: u32,
    /// Of them failed.
    pub(super) tool_errors: u32,
    open: BTreeSet<String>,
    /// Refused calls.
    pub(super) denials: VecDeque<PermissionDenial>,
    /// The failure that the program will not try again after.
    pub(super) error: Option<EngineError>,
    /// It was interrupted by us.
    pub(super) interrupted: bool,
}

impl Turn {
    /// Whether one is under way.
    pub(super) fn active(&self) -> bool {
        !self.ids.is_empty()
    }

    /// Whether `id` means this one.
    pub(super) fn is(&self, id: &str) -> bool {
        self.ids.iter().any(|known| known == id)
    }

    /// It is also called `id`. The name it was given first is the one it is ordered about by.
    pub(super) fn learn(&mut self, id: &str) {
        if !id.is_empty() && !self.is(id) && self.ids.len() < MAX_IDS {
            self.ids.push_back(id.to_owned());
        }
    }

    /// Whether a tool call is under way.
    pub(super) fn tool_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// A line was lost that may have ended a tool call.
    pub(super) fn lost_a_line(&mut self) {
        self.open.clear();
    }

    /// A piece of a message.
    pub(super) fn delta(&mut self, text: &str) {
        if self.partial.len() + text.len() <= MAX_PARTIAL {
            self.partial.push_str(text);
        }
    }

    /// What was said of a message that will not be finished.
    pub(super) fn cut_message(&mut self) -> Option<TurnEvent> {
        let text = std::mem::take(&mut self.partial);
        if text.trim().is_empty() {
            return None;
        }
        self.text.clone_from(&text);
        Some(TurnEvent::Text(text))
    }

    /// An item began.
    pub(super) fn started(&mut self, item: &Value) -> Vec<TurnEvent> {
        if str_of(item, "type") == "agentMessage" {
            return self.cut_message().into_iter().collect();
        }
        let Some((name, summary)) = call(item) else { return Vec::new() };
        self.tool_calls = self.tool_calls.saturating_add(1);
        if self.open.len() < MAX_OPEN {
            self.open.insert(str_of(item, "id").to_owned());
        }
        vec![TurnEvent::ToolCall { name: name.to_owned(), summary }]
    }

    /// An item is complete.
    pub(super) fn completed(&mut self, item: &Value) -> Vec<TurnEvent> {
        match str_of(item, "type") {
            "agentMessage" => {
                self.partial.clear();
                let text = str_of(item, "text");
                if text.trim().is_empty() {
                    return Vec::new();
                }
                text.clone_into(&mut self.text);
                return vec![TurnEvent::Text(text.to_owned())];
            }
            "contextCompaction" => return vec![TurnEvent::Note("the engine compacted the conversation".to_owned())],
            _ => {}
        }
        let id = str_of(item, "id");
        if call(item).is_none() {
            return Vec::new();
        }
        // What is over at once may come without its beginning.
        let mut events = if self.open.remove(id) { Vec::new() } else { self.started(item) };
        self.open.remove(id);
        let status = str_of(item, "status");
        let is_error = matches!(status, "failed" | "declined");
        if status == "declined" {
            self.deny(denial(item));
        }
        self.tool_errors = self.tool_errors.saturating_add(u32::from(is_error));
        events.push(TurnEvent::ToolResult { is_error });
        events
    }

    /// A call was refused.
    pub(super) fn deny(&mut self, denial: PermissionDenial) {
        let known = |d: &PermissionDenial| d.tool_use_id.is_some() && d.tool_use_id == denial.tool_use_id;
        if self.denials.len() < MAX_DENIALS && !self.denials.iter().any(known) {
            self.denials.push_back(denial);
        }
    }

    /// Tools that were refused, for a sentence.
    pub(super) fn denied(&self) -> String {
        let mut names: Vec<&str> = self.denials.iter().map(|d| d.tool_name.as_str()).collect();
        names.dedup();
        names.join(", ")
    }
}

/// A refused item as it is reported.
fn denial(item: &Value) -> PermissionDenial {
    let name = call(item).map_or_else(|| str_of(item, "type").to_owned(), |(name, _)| name.to_owned());
    let input = ["command", "changes", "arguments"].iter().find_map(|k| item.get(k)).cloned();
    PermissionDenial { tool_name: name, tool_use_id: Some(str_of(item, "id").to_owned()), input }
}

/// Name and telling argument of an item that is a tool call.
fn call(item: &Value) -> Option<(&'static str, String)> {
    let (name, told) = match str_of(item, "type") {
        "commandExecution" => ("command_execution", str_of(item, "command").to_owned()),
        "fileChange" => {
            let changes = item.get("changes").and_then(Value::as_array).into_iter().flatten();
            let paths: Vec<&str> = changes.map(|c| str_of(c, "path")).collect();
            ("file_change", paths.join(" "))
        }
        "mcpToolCall" => ("mcp_tool_call", format!("{}.{}", str_of(item, "server"), str_of(item, "tool"))),
        "dynamicToolCall" => ("dynamic_tool_call", str_of(item, "tool").to_owned()),
        "collabAgentToolCall" => ("agent", str_of(item, "tool").to_owned()),
        "webSearch" => ("web_search", str_of(item, "query").to_owned()),
        "imageGeneration" => ("image_generation", String::new()),
        _ => return None,
    };
    Some((name, one_line(&told)))
}

/// A text member; empty when it is none.
pub(super) fn str_of<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// `text` on one line, cut to what a summary may be.
pub(super) fn one_line(text: &str) -> String {
    let mut out: String = text.chars().take(MAX_SUMMARY).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MAX_SUMMARY).is_some() {
        out.push('…');
    }
    out
}
