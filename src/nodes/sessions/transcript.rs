//! What was said in a session, for a handoff: on disk a line a turn, bounded, the oldest dropped.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::handoff::{History, OPENING_MAX, Turn};
use crate::sys::{Fs, FsError, fs::write_atomic};

/// Characters that are kept; enough for the longest handoff.
pub(super) const KEPT: usize = 1_000_000;
/// The file is written anew when it has grown by as much again, so that a turn costs one append.
const REWRITE: usize = 2 * KEPT;
/// Name of the file.
pub(super) const FILE: &str = "transcript.jsonl";

/// A line of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", untagged)]
enum Line {
    /// Stands first when turns were dropped.
    Dropped { dropped: u64, opening: String },
    /// A turn.
    Turn(Turn),
}

/// The transcript of one session.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    history: History,
    /// Characters in `history`.
    held: usize,
    /// Characters in the file, as far as known.
    written: usize,
}

impl Transcript {
    /// Reads what is kept in `dir`; lines that cannot be read are left out.
    pub(super) fn load(fs: &dyn Fs, dir: &Path) -> Self {
        let mut transcript = Self::default();
        let bytes = match fs.read(&dir.join(FILE)) {
            Ok(bytes) => bytes,
            Err(e) => {
                if !e.is_not_found() {
                    tracing::warn!(error = %e, "a transcript cannot be read; it begins anew");
                }
                return transcript;
            }
        };
        for line in bytes.split(|b| *b == b'\n') {
            match serde_json::from_slice(line) {
                Ok(Line::Dropped { dropped, opening }) => {
                    transcript.history.dropped = dropped;
                    transcript.history.opening = Some(opening);
                }
                Ok(Line::Turn(turn)) => transcript.hold(turn),
                Err(_) => {}
            }
        }
        transcript.written = bytes.len();
        transcript
    }

    /// What is kept.
    pub(super) fn history(&self) -> &History {
        &self.history
    }

    /// Adds a turn in memory alone.
    pub(super) fn hold(&mut self, turn: Turn) {
        self.held += size(&turn);
        self.history.turns.push(turn);
        let mut gone = 0;
        // The newest turn stays, however long it is.
        while self.held > KEPT && gone + 1 < self.history.turns.len() {
            self.held -= self.history.turns.get(gone).map_or(0, size);
            gone += 1;
        }
        let dropped = self.history.turns.drain(..gone);
        for turn in dropped {
            self.history.dropped += 1;
            self.history.opening.get_or_insert_with(|| turn.request.chars().take(OPENING_MAX).collect());
        }
    }

    /// Adds a turn and writes it down. Blocking.
    pub(super) fn add(&mut self, fs: &dyn Fs, dir: &Path, turn: Turn) -> Result<(), FsError> {
        let line = line(&Line::Turn(turn.clone()));
        self.hold(turn);
        if self.written.saturating_add(line.len()) > REWRITE {
            return self.rewrite(fs, dir);
        }
        append(fs, &dir.join(FILE), &line)?;
        self.written += line.len();
        Ok(())
    }

    /// Writes what is kept as a new file. Blocking.
    pub(super) fn rewrite(&mut self, fs: &dyn Fs, dir: &Path) -> Result<(), FsError> {
        let mut text = Vec::new();
        if let Some(opening) = &self.history.opening {
            text.extend(line(&Line::Dropped { dropped: self.history.dropped, opening: opening.clone() }));
        }
        for turn in &self.history.turns {
            text.extend(line(&Line::Turn(turn.clone())));
        }
        write_atomic(fs, &dir.join(FILE), &text)?;
        self.written = text.len();
        Ok(())
    }
}

fn size(turn: &Turn) -> usize {
    turn.request.chars().count() + turn.reply.chars().count()
}

fn line(line: &Line) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Adds to a file that may not be there yet.
pub(super) fn append(fs: &dyn Fs, path: &Path, bytes: &[u8]) -> Result<(), FsError> {
    let mut file = match fs.open_append(path) {
        Err(e) if e.is_not_found() => {
            fs.create_new(path)?;
            fs.open_append(path)?
        }
        opened => opened?,
    };
    file.append(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::Time, sys::RealFs};

    fn turn(request: String, reply: &str) -> Turn {
        Turn { at: Time::from_millis(0), request, reply: reply.into() }
    }

    #[test]
    fn the_oldest_turns_are_dropped_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let mut transcript = Transcript::default();
        for n in 0..50 {
            transcript.add(&RealFs, dir.path(), turn(format!("{n} {}", "é".repeat(50_000)), "ok")).unwrap();
        }
        let history = transcript.history().clone();
        assert_eq!((history.dropped, history.turns.len()), (31, 19));
        assert!(history.opening.as_deref().unwrap().starts_with("0 é"));
        let again = Transcript::load(&RealFs, dir.path());
        assert_eq!(again.history().turns, history.turns);
        assert_eq!((again.history().dropped, &again.history().opening), (31, &history.opening));
        assert!(again.written < REWRITE + 200_000);
    }
}
