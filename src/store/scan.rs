//! Reads a log: which lines count, whether its end is torn, and whether it is damaged.
//!
//! Works on bytes alone; opens nothing and changes nothing.

use serde_json::Value;

use super::{Line, line};
use crate::model::Time;

/// A counted line: where it lies and what the next one must follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) seq: u64,
    pub(super) epoch: u64,
    pub(super) crc: u32,
    /// First byte in the file.
    pub(super) start: u64,
    /// Byte after its newline.
    pub(super) end: u64,
    /// Line of the file, from 1.
    pub(super) number: u64,
    pub(super) ts: Time,
}

/// What a log holds.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Lines that count, in order.
    pub(super) entries: Vec<Entry>,
    /// Byte after the last whole line, counted or not.
    pub(super) end: u64,
    /// Whether bytes of an incomplete write follow there.
    pub(super) torn: bool,
}

/// Why a log is not to be believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Damage {
    /// Line of the file, from 1.
    pub(super) number: u64,
    pub(super) reason: String,
    /// First bad byte in the file.
    pub(super) start: u64,
    /// Byte after the bad line.
    pub(super) end: u64,
}

/// What the first line of the bytes must follow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base {
    seq: u64,
    epoch: u64,
    crc: u32,
    offset: u64,
    number: u64,
}

impl Base {
    /// The beginning of a log. The chain starts at the incarnation, so that no line fits another run.
    pub(super) fn start(incarnation: &str) -> Self {
        Self { seq: 0, epoch: 0, crc: crc32c::crc32c(incarnation.as_bytes()), offset: 0, number: 0 }
    }

    /// Checksum the first line must name as its predecessor.
    pub(super) fn crc(&self) -> u32 {
        self.crc
    }

    /// Right after a line that is known to count.
    pub(super) fn after(entry: &Entry) -> Self {
        Self { seq: entry.seq, epoch: entry.epoch, crc: entry.crc, offset: entry.end, number: entry.number }
    }
}

/// The bytes between two offsets of the file, given bytes that begin at `from`.
pub(super) fn slice(bytes: &[u8], from: u64, start: u64, end: u64) -> &[u8] {
    let at = |n: u64| usize::try_from(n.saturating_sub(from)).unwrap_or(usize::MAX);
    bytes.get(at(start)..at(end)).unwrap_or_default()
}

/// Walks whole lines of `bytes`, which begin where `base` ends.
pub(super) fn scan(bytes: &[u8], base: Base) -> Result<Scan, Damage> {
    let mut last = base;
    let mut found = Scan { end: base.offset, ..Scan::default() };
    let mut rest = bytes;
    let mut number = base.number;
    while !rest.is_empty() {
        number += 1;
        let start = found.end;
        let newline = rest.iter().position(|b| *b == b'\n');
        let (text, tail) = match newline {
            Some(at) => (rest.get(..at).unwrap_or_default(), rest.get(at + 1..).unwrap_or_default()),
            None => (rest, Default::default()),
        };
        let end = start + (rest.len() - tail.len()) as u64;
        let damage = |reason: String| Damage { number, reason, start, end };
        let parsed = if newline.is_some() { line::parse(text) } else { Err("the line has no end".to_owned()) };
        let raw = match parsed {
            Ok(raw) => raw,
            Err(reason) => {
                if torn(rest, tail, newline.is_some()) {
                    found.torn = true;
                    return Ok(found);
                }
                return Err(damage(reason));
            }
        };
        found.end = end;
        rest = tail;
        // A writer that lost the run may have written once more; nothing it wrote counts.
        if raw.epoch < last.epoch {
            continue;
        }
        follows(&last, &raw).map_err(damage)?;
        let entry = Entry { seq: raw.seq, epoch: raw.epoch, crc: raw.crc, start, end, number, ts: raw.ts };
        last = Base::after(&entry);
        found.entries.push(entry);
    }
    Ok(found)
}

/// Whether the bytes from a bad line on are what one interrupted append leaves: no good line after it, no more
/// bytes than one line, and either no end of line or blocks that never reached the disk and read as zeros.
/// A whole last line without zeros whose checksum is wrong was acknowledged once and went bad later.
fn torn(rest: &[u8], tail: &[u8], ended: bool) -> bool {
    let good_after = tail.split(|b| *b == b'\n').any(|text| line::parse(text).is_ok());
    !good_after && rest.len() <= line::LINE_MAX && (!ended || rest.contains(&0))
}

/// Whether a line follows the last one that counted.
fn follows(last: &Base, raw: &line::Raw<'_>) -> Result<(), String> {
    if last.seq.checked_add(1) != Some(raw.seq) {
        return Err(format!("sequence {} follows {}", raw.seq, last.seq));
    }
    if raw.prev != last.crc {
        return Err(format!("the line does not follow the one before it ({:08x}, not {:08x})", raw.prev, last.crc));
    }
    if raw.epoch != last.epoch {
        let fence = raw.events()?.iter().any(is_fence);
        if last.epoch.checked_add(1) != Some(raw.epoch) || !fence {
            return Err(format!("epoch {} follows {} without a claim", raw.epoch, last.epoch));
        }
    }
    Ok(())
}

/// Whether an event is the store's own mark of a claim.
fn is_fence(event: &Value) -> bool {
    event.get("type").and_then(Value::as_str) == Some("fence")
}

/// Parses the events of a counted line, given bytes of the file that begin at `from`.
pub(super) fn expand(bytes: &[u8], from: u64, entry: &Entry) -> Result<Line, Damage> {
    let text = slice(bytes, from, entry.start, entry.end.saturating_sub(1));
    let events = line::parse(text).and_then(|raw| raw.events());
    let damage = |reason| Damage { number: entry.number, reason, start: entry.start, end: entry.end };
    Ok(Line { seq: entry.seq, epoch: entry.epoch, ts: entry.ts, events: events.map_err(damage)? })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A log of `n` lines of one owner, and the offset each line starts at.
    fn log(n: u64) -> (Vec<u8>, Vec<usize>) {
        let (mut bytes, mut starts, mut prev) = (Vec::new(), Vec::new(), Base::start("i").crc());
        for seq in 1..=n {
            let kind = if seq == 1 { "fence" } else { "log" };
            let line = line::encode(seq, 1, Time::from_millis(0), prev, &[json!({"type": kind})]).unwrap();
            starts.push(bytes.len());
            bytes.extend(&line.bytes);
            prev = line.crc;
        }
        (bytes, starts)
    }

    fn read(bytes: &[u8]) -> Result<Scan, Damage> {
        scan(bytes, Base::start("i"))
    }

    /// Numbers end: nothing follows the highest ones, and looking for it does not overflow.
    #[test]
    fn nothing_follows_the_highest_number() {
        let at = Time::from_millis(0);
        let last = Entry { seq: u64::MAX, epoch: u64::MAX, crc: 7, start: 0, end: 0, number: 1, ts: at };
        let next = line::encode(u64::MAX, u64::MAX, at, 7, &[json!({"type": "log"})]).unwrap();
        assert!(scan(&next.bytes, Base::after(&last)).is_err());
        let last = Entry { seq: 1, ..last };
        let older = line::encode(2, 1, at, 7, &[json!({"type": "log"})]).unwrap();
        assert_eq!(scan(&older.bytes, Base::after(&last)).unwrap().entries, []);
    }

    #[test]
    fn a_cut_at_every_byte_leaves_the_whole_lines() {
        let (bytes, starts) = log(4);
        for cut in starts[1]..=bytes.len() {
            let found = read(&bytes[..cut]).unwrap();
            let whole = bytes[..cut].iter().filter(|b| **b == b'\n').count();
            assert_eq!(found.entries.len(), whole, "cut at {cut}");
            assert_eq!(found.torn, bytes[cut - 1] != b'\n', "cut at {cut}");
        }
    }

    #[test]
    fn zeros_at_the_end_are_torn_and_rot_is_damage() {
        let (bytes, starts) = log(4);
        let mut zeros = bytes.clone();
        zeros[starts[3] + 5..].fill(0);
        assert!(read(&zeros).unwrap().torn);
        let mut hole = bytes.clone();
        hole[starts[3] + 5..starts[3] + 9].fill(0);
        assert!(read(&hole).unwrap().torn, "a block of the last write is missing");
        for line in 0..4 {
            let mut rot = bytes.clone();
            rot[starts[line] + 40] ^= 1;
            assert_eq!(read(&rot).unwrap_err().number, line as u64 + 1);
        }
    }

    #[test]
    fn gaps_swaps_and_lines_of_other_runs_are_damage() {
        let (bytes, starts) = log(4);
        let gap = [&bytes[..starts[1]], &bytes[starts[2]..]].concat();
        assert_eq!(read(&gap).unwrap_err().number, 2);
        assert_eq!(scan(&bytes, Base::start("other")).unwrap_err().number, 1);
        let alien = line::encode(5, 1, Time::from_millis(0), 7, &[json!({"type": "log"})]).unwrap();
        assert_eq!(read(&[bytes, alien.bytes].concat()).unwrap_err().number, 5);
    }

    /// OF-3: what a fenced-out writer adds does not count, and the chain goes on over it.
    #[test]
    fn a_line_of_an_older_epoch_does_not_count_after_a_fence() {
        let (mut bytes, _) = log(2);
        let last = *read(&bytes).unwrap().entries.last().unwrap();
        let at = Time::from_millis(0);
        let fence = line::encode(3, 2, at, last.crc, &[json!({"type": "fence"})]).unwrap();
        let zombie = line::encode(3, 1, at, last.crc, &[json!({"type": "log"})]).unwrap();
        let next = line::encode(4, 2, at, fence.crc, &[json!({"type": "log"})]).unwrap();
        let no_fence = line::encode(5, 3, at, next.crc, &[json!({"type": "log"})]).unwrap();
        for part in [&fence, &zombie, &next] {
            bytes.extend(&part.bytes);
        }
        let found = read(&bytes).unwrap();
        assert_eq!(
            found.entries.iter().map(|e| (e.seq, e.epoch)).collect::<Vec<_>>(),
            [(1, 1), (2, 1), (3, 2), (4, 2)]
        );
        bytes.extend(&no_fence.bytes);
        assert_eq!(read(&bytes).unwrap_err().number, 6);
    }
}
