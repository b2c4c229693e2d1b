//! What happened in a session, for people and for `session_grep`: lines on disk, bounded, rotated once.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{SessionError, transcript::append};
use crate::{
    engines::TurnEvent,
    model::{Code, Time},
    sys::{Fs, FsError},
};

/// Bytes after which the file is rotated; the one before is kept.
const FILE_MAX: u64 = 10 << 20;
/// Longest text of one event, in bytes.
const TEXT_MAX: usize = 64 << 10;
/// Bytes that wait to be written; a disk that is slower than the agent loses events, which is counted.
const BUFFER_MAX: usize = 4 << 20;
/// Events of sessions that keep nothing on disk.
const MEMORY_MAX: usize = 500;
/// Most events one search gives.
pub const FOUND_MAX: usize = 500;
/// Most memory of a caller's pattern.
const PATTERN_MAX: usize = 1 << 20;
/// Name of the file.
pub(super) const FILE: &str = "events.jsonl";
/// Name of the one before.
pub(super) const BEFORE: &str = "events.1.jsonl";

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// When.
    pub at: Time,
    /// Turn it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    /// message, text, tool_call, tool_result, retry, note, turn_end.
    #[serde(rename = "type")]
    pub kind: String,
    /// What.
    pub text: String,
}

impl Entry {
    /// The event of a turn as an entry.
    pub(super) fn of(event: &TurnEvent) -> (&'static str, String) {
        match event {
            TurnEvent::Text(text) => ("text", text.clone()),
            TurnEvent::ToolCall { name, summary } => ("tool_call", format!("{name}: {summary}")),
            TurnEvent::ToolResult { is_error } => ("tool_result", if *is_error { "failed" } else { "done" }.to_owned()),
            TurnEvent::Retry(text) => ("retry", text.clone()),
            TurnEvent::Note(text) => ("note", text.clone()),
        }
    }
}

#[derive(Debug, Default)]
struct Buffer {
    waiting: Vec<u8>,
    lost: u64,
    /// The newest, for sessions without a file.
    memory: VecDeque<Entry>,
}

/// The events of one session. Cheap to clone; adding never blocks.
#[derive(Debug, Clone)]
pub(super) struct Events {
    buffer: Arc<Mutex<Buffer>>,
    /// Absent when nothing is kept on disk.
    dir: Option<PathBuf>,
}

impl Events {
    /// Events that are kept in `dir`, or in memory.
    pub(super) fn new(dir: Option<PathBuf>) -> Self {
        Self { buffer: Arc::default(), dir }
    }

    /// Adds one.
    pub(super) fn add(&self, mut entry: Entry) {
        if entry.text.len() > TEXT_MAX {
            let cut = entry.text.floor_char_boundary(TEXT_MAX);
            entry.text.truncate(cut);
            entry.text.push('…');
        }
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        if self.dir.is_none() {
            if buffer.memory.len() >= MEMORY_MAX {
                buffer.memory.pop_front();
            }
            buffer.memory.push_back(entry);
            return;
        }
        if buffer.waiting.len() > BUFFER_MAX {
            buffer.lost += 1;
            return;
        }
        if let Ok(line) = serde_json::to_vec(&entry) {
            buffer.waiting.extend(line);
            buffer.waiting.push(b'\n');
        }
    }

    /// Writes down what waits. Blocking.
    pub(super) fn flush(&self, fs: &dyn Fs, now: Time) -> Result<(), FsError> {
        let Some(dir) = &self.dir else { return Ok(()) };
        let (mut bytes, lost) = {
            let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
            (std::mem::take(&mut buffer.waiting), std::mem::take(&mut buffer.lost))
        };
        if lost > 0 {
            let text = format!("{lost} events were not written down in time");
            let entry = Entry { at: now, turn_id: None, kind: "note".to_owned(), text };
            bytes.extend(serde_json::to_vec(&entry).unwrap_or_default());
            bytes.push(b'\n');
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let path = dir.join(FILE);
        let len = fs.metadata(&path).map_or(0, |meta| meta.len);
        if len > 0 && len + bytes.len() as u64 > FILE_MAX {
            fs.rename(&path, &dir.join(BEFORE))?;
        }
        append(fs, &path, &bytes)
    }

    /// The newest `limit` events that fit, oldest first. Blocking.
    pub(super) fn grep(&self, fs: &dyn Fs, pattern: &Regex, limit: usize) -> Vec<Entry> {
        let mut found = VecDeque::new();
        let mut look = |entry: Entry| {
            if pattern.is_match(&entry.text) || pattern.is_match(&entry.kind) {
                if found.len() >= limit {
                    found.pop_front();
                }
                found.push_back(entry);
            }
        };
        match &self.dir {
            Some(dir) => {
                for name in [BEFORE, FILE] {
                    lines(fs, &dir.join(name)).into_iter().for_each(&mut look);
                }
            }
            None => {
                let memory = self.buffer.lock().unwrap_or_else(PoisonError::into_inner).memory.clone();
                memory.into_iter().for_each(&mut look);
            }
        }
        found.into()
    }
}

fn lines(fs: &dyn Fs, path: &Path) -> Vec<Entry> {
    // Twice the size at which it is rotated, whatever somebody put there.
    let bytes = fs.read_range(path, 0, 2 * FILE_MAX as usize).unwrap_or_default();
    bytes.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// A caller's pattern: linear time, case makes no difference.
pub(super) fn pattern(text: &str) -> Result<Regex, SessionError> {
    RegexBuilder::new(text)
        .case_insensitive(true)
        .size_limit(PATTERN_MAX)
        .build()
        .map_err(|e| SessionError::new(Code::BadPattern, format!("the pattern cannot be used: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::RealFs;

    fn entry(text: String) -> Entry {
        Entry { at: Time::from_millis(0), turn_id: Some("t".into()), kind: "text".into(), text }
    }

    #[test]
    fn the_file_is_rotated_once() {
        let dir = tempfile::tempdir().unwrap();
        let events = Events::new(Some(dir.path().to_owned()));
        let now = Time::from_millis(0);
        for n in 0..700 {
            events.add(entry(format!("{n} {}", "x".repeat(70_000))));
            events.flush(&RealFs, now).unwrap();
        }
        let names = RealFs.list(dir.path()).unwrap();
        assert_eq!(names, [BEFORE, FILE]);
        for name in [BEFORE, FILE] {
            assert!(RealFs.metadata(&dir.path().join(name)).unwrap().len <= FILE_MAX);
        }
        let found = events.grep(&RealFs, &pattern("^699 X").unwrap(), 50);
        assert_eq!(found.len(), 1);
        assert!(found[0].text.len() < 70_000 && found[0].text.ends_with('…'));
        assert!(events.grep(&RealFs, &pattern("^1 x").unwrap(), 50).is_empty(), "dropped with the rotation");
        let newest = events.grep(&RealFs, &pattern("x").unwrap(), 3);
        assert_eq!(newest.len(), 3);
        assert!(newest[2].text.starts_with("699 "));
        assert_eq!(pattern("(").unwrap_err().code(), Code::BadPattern);
    }

    #[test]
    fn a_slow_disk_loses_events_with_a_word() {
        let dir = tempfile::tempdir().unwrap();
        let events = Events::new(Some(dir.path().to_owned()));
        for _ in 0..200 {
            events.add(entry("y".repeat(60_000)));
        }
        events.flush(&RealFs, Time::from_millis(0)).unwrap();
        let found = events.grep(&RealFs, &pattern("not written down").unwrap(), 5);
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
