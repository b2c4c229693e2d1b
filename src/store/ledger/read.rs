//! Reading shards, damaged ones too.

use std::path::{Path, PathBuf};

use super::{LINE_MAX, Row};
use crate::sys::{Fs, fs::Result};

/// Ending of a shard's name.
const ENDING: &str = ".jsonl";
/// Bytes read at once.
const CHUNK: usize = 1 << 20;
/// Longest line that is still looked at: rows of other versions may be longer than ours.
const READ_MAX: usize = 4 * LINE_MAX;

/// The rows of a UTC day.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shard {
    /// The day, `2026-01-31`.
    pub day: String,
    path: PathBuf,
}

impl Shard {
    pub(super) fn of(dir: &Path, day: &str) -> Self {
        Self { day: day.to_owned(), path: dir.join(format!("{day}{ENDING}")) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives every row to `take`, in the order of the file, and says how many lines were none.
    pub fn read(&self, fs: &dyn Fs, take: impl FnMut(Row)) -> Result<u64> {
        Ok(rows(fs, &self.path, 0, true, take)?.skipped)
    }
}

/// The shards of a ledger, oldest first. A ledger that nobody wrote has none.
pub fn shards(fs: &dyn Fs, dir: &Path) -> Result<Vec<Shard>> {
    let names = match fs.list(dir) {
        Ok(names) => names,
        Err(e) if e.is_not_found() => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let day = |name: &std::ffi::OsString| {
        let day = name.to_str()?.strip_suffix(ENDING)?;
        day.parse::<jiff::civil::Date>().ok().filter(|date| date.to_string() == day).map(|_| Shard::of(dir, day))
    };
    Ok(names.iter().filter_map(day).collect())
}

/// What was read of a file.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Read {
    /// Bytes of whole lines.
    pub(super) bytes: u64,
    /// Lines that are no rows.
    pub(super) skipped: u64,
}

/// Gives the rows of whole lines from `offset` on to `take`. What stands after the last line end counts as a line when
/// `last` says so.
pub(super) fn rows(fs: &dyn Fs, path: &Path, offset: u64, last: bool, mut take: impl FnMut(Row)) -> Result<Read> {
    let mut read = Read::default();
    let mut open: Vec<u8> = Vec::new();
    // Bytes of a line so long that they are not kept.
    let mut dropped: u64 = 0;
    let mut at = offset;
    loop {
        let chunk = match fs.read_range(path, at, CHUNK) {
            Ok(chunk) => chunk,
            Err(e) if e.is_not_found() => return Ok(read),
            Err(e) => return Err(e),
        };
        at += chunk.len() as u64;
        for piece in chunk.split_inclusive(|b| *b == b'\n') {
            open.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                read.bytes += open.len() as u64 + dropped;
                let blank = open.iter().all(u8::is_ascii_whitespace) && dropped == 0;
                match Row::parse(&open).filter(|_| dropped == 0) {
                    Some(row) => take(row),
                    None => read.skipped += u64::from(!blank),
                }
                open.clear();
                dropped = 0;
            } else if open.len() > READ_MAX {
                dropped += open.len() as u64;
                open.clear();
            }
        }
        if chunk.len() < CHUNK {
            break;
        }
    }
    if last && (!open.is_empty() || dropped > 0) {
        match Row::parse(&open).filter(|_| dropped == 0) {
            Some(row) => take(row),
            None => read.skipped += 1,
        }
    }
    Ok(read)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "real files for a test")]
mod tests {
    use super::*;
    use crate::sys::RealFs;

    /// Surface scenario 23: a half line, a binary line and an old row.
    #[test]
    fn damaged_lines_cost_only_themselves() {
        let dir = tempfile::tempdir().unwrap();
        let good = |n: u64| format!("{{\"ts\":\"2026-01-31T00:00:0{n}.000Z\",\"session\":\"s\",\"turn\":{n}}}\n");
        let mut bytes = good(1).into_bytes();
        bytes.extend(b"{\"ts\":\"2026-01-31T0\n\xff\x00\xfe\n\n");
        bytes.extend(good(2).into_bytes());
        std::fs::write(dir.path().join("2026-01-31.jsonl"), &bytes).unwrap();
        for other in ["2026-1-31.jsonl", "2026-02-30.jsonl", "x.jsonl", "2026-01-31.json"] {
            std::fs::write(dir.path().join(other), "").unwrap();
        }
        let found = shards(&RealFs, dir.path()).unwrap();
        assert_eq!(found.iter().map(|s| s.day.as_str()).collect::<Vec<_>>(), ["2026-01-31"]);
        let mut turns = Vec::new();
        assert_eq!(found[0].read(&RealFs, |row| turns.push(row.turn)).unwrap(), 2);
        assert_eq!(turns, [1, 2]);
        bytes.extend(std::iter::repeat_n(b'x', 3 * CHUNK));
        std::fs::write(dir.path().join("2026-01-31.jsonl"), &bytes).unwrap();
        assert_eq!(found[0].read(&RealFs, |_| {}).unwrap(), 3);
        assert_eq!(shards(&RealFs, &dir.path().join("none")).unwrap(), []);
    }
}
