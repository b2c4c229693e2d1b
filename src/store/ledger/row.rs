//! One turn as the ledger keeps it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LINE_MAX;
use crate::model::Time;

/// Longest text of an error, in characters.
const ERROR_MAX: usize = 500;
/// Longest of the other texts in a line that is too long, in characters. All of them fit then, however they are escaped.
const TEXT_MAX: usize = 200;

/// A turn that ended. Fields that a row of another version lacks are empty; what it has beyond them is not kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Unlike that of any other row.
    #[serde(default)]
    pub row_id: String,
    /// End of the turn.
    pub ts: Time,
    /// Name of the session.
    #[serde(default)]
    pub session: String,
    /// Engine.
    #[serde(default)]
    pub engine: String,
    /// Model as configured, else as the engine reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Directory.
    #[serde(default)]
    pub cwd: String,
    /// Which turn of the session in its process, from 1.
    #[serde(default)]
    pub turn: u64,
    /// Tokens read in this turn, from the cache and into it included.
    #[serde(default)]
    pub tokens_in: u64,
    /// Tokens written in this turn.
    #[serde(default)]
    pub tokens_out: u64,
    /// Of the tokens read, those from the cache.
    #[serde(default)]
    pub cached_tokens: u64,
    /// Of the tokens read, those written into the cache; absent when there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_tokens: Option<u64>,
    /// US dollars of this turn.
    #[serde(default)]
    pub cost_usd: f64,
    /// `engine`, `registry`, `family-default` or `none`.
    #[serde(default)]
    pub cost_source: String,
    /// The engine reported no tokens, so that they were counted from the length of the texts.
    #[serde(default)]
    pub tokens_estimated: bool,
    /// Wall time in milliseconds.
    #[serde(default)]
    pub duration_ms: u64,
    /// Tool calls made.
    #[serde(default)]
    pub tool_calls: u32,
    /// Tool calls that failed.
    #[serde(default)]
    pub tool_errors: u32,
    /// Tool calls refused; absent when there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_denials: Option<u64>,
    /// The engine's own verdict on its turn; no check stands behind it.
    #[serde(default)]
    pub ok: bool,
    /// Why it failed, at most 500 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Run it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Node of that run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Kind of that node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_kind: Option<String>,
    /// Language of the project, when a manifest tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo_lang: Option<String>,
    /// Kind of task, when the caller declared it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_kind: Option<String>,
    /// Whether the checks of its run passed; absent when none judged it. Never stored.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub verified: Option<bool>,
    /// The bundle behind it. Never stored.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub evidence_id: Option<String>,
    /// The contract behind it. Never stored.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub contract_id: Option<String>,
}

impl Row {
    /// The row of a line; `None` when it is none.
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        let mut row: Self = serde_json::from_slice(line).ok()?;
        // Somebody else's number must not spoil a sum.
        if !row.cost_usd.is_finite() || row.cost_usd < 0.0 {
            row.cost_usd = 0.0;
        }
        Some(row)
    }

    /// The line of the row, its end included; `None` when it cannot be written.
    pub(super) fn line(&self) -> Option<Vec<u8>> {
        let mut row = self.clone();
        (row.verified, row.evidence_id, row.contract_id) = (None, None, None);
        cut(&mut row.error, ERROR_MAX);
        let mut line = serde_json::to_vec(&row).ok()?;
        if line.len() >= LINE_MAX {
            row.shorten();
            line = serde_json::to_vec(&row).ok()?;
        }
        line.push(b'\n');
        (line.len() <= LINE_MAX).then_some(line)
    }

    fn shorten(&mut self) {
        let texts = [&mut self.row_id, &mut self.session, &mut self.engine, &mut self.cwd, &mut self.cost_source];
        for text in texts {
            *text = text.chars().take(TEXT_MAX).collect();
        }
        let texts = [
            &mut self.model,
            &mut self.error,
            &mut self.parent,
            &mut self.node,
            &mut self.node_kind,
            &mut self.repo_lang,
            &mut self.task_kind,
        ];
        for text in texts {
            cut(text, TEXT_MAX);
        }
    }

    /// The UTC day it belongs to, as in the name of its shard.
    pub(super) fn day(&self) -> String {
        day(self.ts)
    }
}

/// `2026-01-31` of an instant.
pub(super) fn day(at: Time) -> String {
    at.to_string().chars().take(10).collect()
}

fn cut(text: &mut Option<String>, max: usize) {
    if let Some(text) = text
        && let Some((at, _)) = text.char_indices().nth(max)
    {
        text.truncate(at);
    }
}

/// A row with nothing but a time, for tests.
#[cfg(test)]
pub(super) fn blank(ts: Time) -> Row {
    let text = format!("{{\"ts\":\"{ts}\"}}");
    Row::parse(text.as_bytes()).expect("a row")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_never_too_long_and_holds_no_verdict() {
        let mut row = blank(Time::from_millis(0));
        row.error = Some("é".repeat(900));
        row.cwd = "\u{1}".repeat(4096);
        row.parent = Some("\u{1}".repeat(200));
        row.verified = Some(true);
        row.evidence_id = Some("e".to_owned());
        let line = row.line().unwrap();
        assert!(line.len() <= LINE_MAX, "{}", line.len());
        let read = Row::parse(&line).unwrap();
        assert_eq!((read.verified, read.evidence_id, read.cwd.len()), (None, None, 200));
        row.cwd.clear();
        assert_eq!(Row::parse(&row.line().unwrap()).unwrap().error.unwrap().chars().count(), ERROR_MAX);
        // A stored verdict is nobody's.
        let read = Row::parse(br#"{"ts":"2026-01-01T00:00:00.000Z","verified":true,"new":1,"costUsd":-4}"#).unwrap();
        assert_eq!((read.verified, read.cost_usd), (None, 0.0));
    }
}
