//! Reading a run: never writes, never blocks its owner, never older than the last commit that had returned.
//!
//! The first reading in a process verifies the whole log. Later ones verify what was added, and everything
//! again when the file changed in any other way. With a trusted checkpoint only the tail is parsed.

use serde::Deserialize;
use serde_json::Value;

use super::{
    Error, Line, Loaded, Result,
    checkpoint::{self, Checkpoint},
    layout, lease,
    scan::{self, Base, Damage, Entry, Scan},
    shared::Shared,
};
use crate::model::{RunId, Time};

/// Readings tried again when the run is deleted, made anew or recovered under the reader.
const ROUNDS: u32 = 4;
/// Bytes read from the end of the log at first when the last batches are wanted.
const TAIL: u64 = 64 * 1024;

/// Which creation of its id a run is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Incarnation {
    pub(super) incarnation_id: String,
    pub(super) created_at: Time,
}

/// A log this process has verified, up to a line.
#[derive(Debug, Clone)]
pub(super) struct Verified {
    pub(super) incarnation: String,
    pub(super) last: Entry,
    /// Length and time of change of the file when it was read.
    pub(super) len: u64,
    pub(super) mtime_ns: i128,
}

/// The part of a log that was read.
struct Part {
    bytes: Vec<u8>,
    /// Where the bytes begin in the file.
    from: u64,
    scan: Scan,
}

/// Reads which creation of the id this is.
pub(super) fn incarnation(shared: &Shared, run: &RunId) -> Result<Incarnation> {
    let what = "incarnation.json";
    let bytes = match shared.fs.read(&shared.layout.run(run).join(layout::INCARNATION)) {
        Ok(bytes) => bytes,
        Err(e) if e.is_not_found() => {
            shared.must_be_run(run)?;
            return Err(Error::Malformed { run: run.clone(), what, reason: "it is missing".to_owned() });
        }
        Err(e) => return Err(e.into()),
    };
    serde_json::from_slice(&bytes).map_err(|e| Error::Malformed { run: run.clone(), what, reason: e.to_string() })
}

/// Reads a run.
pub(super) fn load(shared: &Shared, run: &RunId) -> Result<Loaded> {
    steady(shared, run, |incarnation| {
        let what = "spec.json";
        let bytes = shared.fs.read(&shared.layout.run(run).join(layout::SPEC))?;
        let spec: Value = serde_json::from_slice(&bytes).map_err(|e| Error::Malformed {
            run: run.clone(),
            what,
            reason: e.to_string(),
        })?;
        let owner = lease::read(shared, run)?;
        let live = lease::is_live(shared, run, &owner)?;
        let (checkpoint, lines) = record(shared, run, incarnation, owner.lease.as_ref().map_or(0, |l| l.epoch))?;
        Ok(Loaded {
            spec,
            incarnation: incarnation.incarnation_id.clone(),
            created_at: incarnation.created_at,
            checkpoint: checkpoint.map(|c| (c.seq, c.record)),
            lines,
            live,
            owner: owner.value,
        })
    })
}

/// Reads again when what was read does not belong together because the run changed hands meanwhile.
fn steady<T>(shared: &Shared, run: &RunId, read: impl Fn(&Incarnation) -> Result<T>) -> Result<T> {
    let mut round = 0;
    loop {
        round += 1;
        let before = incarnation(shared, run)?;
        let outcome = read(&before);
        if matches!(&outcome, Err(Error::Io(e)) if e.is_not_found()) {
            shared.must_be_run(run)?;
        }
        let settled = outcome.is_ok() && incarnation(shared, run)? == before;
        if settled || round >= ROUNDS {
            return outcome;
        }
    }
}

/// The trusted checkpoint, when there is one, and the batches after it.
fn record(
    shared: &Shared,
    run: &RunId,
    incarnation: &Incarnation,
    lease_epoch: u64,
) -> Result<(Option<Checkpoint>, Vec<Line>)> {
    // The checkpoint is read before the log, so that the log is never behind it.
    let path = shared.layout.run(run).join(layout::CHECKPOINT);
    let found = shared.fs.read(&path).ok().and_then(|b| checkpoint::parse(&b, &incarnation.incarnation_id));
    #[cfg(test)]
    if let Some(found) = found.clone().filter(|_| shared.defect == Some(super::crash::Defect::TrustedCheckpoint)) {
        return Ok((Some(found), vec![]));
    }
    let part = part(shared, run, incarnation, found.as_ref())?;
    let lines = |part: &Part, after: u64| -> Result<Vec<Line>> {
        let wanted = part.scan.entries.iter().filter(|e| e.seq > after);
        wanted.map(|e| scan::expand(&part.bytes, part.from, e)).map(|l| l.map_err(|d| damaged(run, d))).collect()
    };
    if let Some(found) = found {
        let stands = part.scan.entries.iter().any(|e| found.agrees(e));
        // A checkpoint of a writer that had lost the run already stands at a line no successor knows.
        let newest = part.scan.entries.last().map_or(0, |e| e.epoch);
        if stands && newest >= lease_epoch {
            let lines = lines(&part, found.seq)?;
            return Ok((Some(found), lines));
        }
    }
    let whole = if part.from == 0 { part } else { whole(shared, run, incarnation)? };
    Ok((None, lines(&whole, 0)?))
}

/// Reads the part of the log that must be looked at: from the verified line or the checkpoint on, whichever
/// comes first, and everything when nothing is verified.
fn part(shared: &Shared, run: &RunId, incarnation: &Incarnation, found: Option<&Checkpoint>) -> Result<Part> {
    let path = shared.layout.run(run).join(layout::LOG);
    let meta = shared.fs.metadata(&path)?;
    if let (Some(known), Some(found)) = (verified(shared, run, incarnation, &meta), found) {
        let (from, base) = if found.start <= known.last.start {
            (found.start, anchor(found))
        } else {
            (known.last.start, Some(known.last))
        };
        let len = usize::try_from(meta.len.saturating_sub(from)).unwrap_or(usize::MAX);
        let bytes = shared.fs.read_range(&path, from, len)?;
        if let Some(scan) = base.and_then(|first| resume(&bytes, &first))
            && scan.entries.contains(&known.last)
        {
            remember(shared, run, incarnation, &meta, &scan);
            return Ok(Part { bytes, from, scan });
        }
    }
    whole(shared, run, incarnation)
}

/// Up to where the log is verified, when the file has at most grown since.
fn verified(shared: &Shared, run: &RunId, incarnation: &Incarnation, meta: &crate::sys::Meta) -> Option<Verified> {
    let known = shared.verified(run).filter(|v| v.incarnation == incarnation.incarnation_id)?;
    (meta.len > known.len || (meta.len == known.len && meta.mtime_ns == known.mtime_ns)).then_some(known)
}

/// The line a checkpoint claims to stand at.
fn anchor(found: &Checkpoint) -> Option<Entry> {
    let crc = found.crc()?;
    let ts = Time::from_millis(0);
    Some(Entry { seq: found.seq, epoch: found.epoch, crc, start: found.start, end: found.end, number: found.line, ts })
}

/// Scans bytes that begin with a line that must be `first`. `None` when anything is not as expected.
fn resume(bytes: &[u8], first: &Entry) -> Option<Scan> {
    let text = scan::slice(bytes, first.start, first.start, first.end.checked_sub(1)?);
    let raw = super::line::parse(text).ok()?;
    if (raw.seq, raw.epoch, raw.crc) != (first.seq, first.epoch, first.crc) {
        return None;
    }
    let rest = scan::slice(bytes, first.start, first.end, first.start + bytes.len() as u64);
    let mut scan = scan::scan(rest, Base::after(first)).ok()?;
    scan.entries.insert(0, Entry { ts: raw.ts, ..*first });
    Some(scan)
}

/// Reads and verifies the whole log. Damage is looked at twice: an owner may just be cutting a torn end.
fn whole(shared: &Shared, run: &RunId, incarnation: &Incarnation) -> Result<Part> {
    let path = shared.layout.run(run).join(layout::LOG);
    let mut round = 0;
    loop {
        round += 1;
        let meta = shared.fs.metadata(&path)?;
        let bytes = shared.fs.read(&path)?;
        match checked(&bytes, &incarnation.incarnation_id) {
            Ok(scan) => {
                remember(shared, run, incarnation, &meta, &scan);
                return Ok(Part { bytes, from: 0, scan });
            }
            Err(damage) if round >= 2 => return Err(damaged(run, damage)),
            Err(_) => {}
        }
    }
}

/// Scans a whole log, which must hold at least its first line.
pub(super) fn checked(bytes: &[u8], incarnation: &str) -> std::result::Result<Scan, Damage> {
    let scan = scan::scan(bytes, Base::start(incarnation))?;
    if scan.entries.is_empty() {
        let reason = "the log has no whole line".to_owned();
        return Err(Damage { number: 1, reason, start: 0, end: bytes.len() as u64 });
    }
    Ok(scan)
}

/// Notes up to where the log is verified.
fn remember(shared: &Shared, run: &RunId, incarnation: &Incarnation, meta: &crate::sys::Meta, scan: &Scan) {
    if let Some(last) = scan.entries.last() {
        let incarnation = incarnation.incarnation_id.clone();
        let (len, mtime_ns) = (meta.len, meta.mtime_ns);
        shared.note_verified(run, Verified { incarnation, last: *last, len, mtime_ns });
    }
}

/// The error for a damaged log.
pub(super) fn damaged(run: &RunId, damage: Damage) -> Error {
    Error::Damaged { run: run.clone(), line: damage.number, reason: damage.reason }
}

/// The last `limit` batches after `after`.
pub(super) fn lines(shared: &Shared, run: &RunId, after: u64, limit: usize) -> Result<Vec<Line>> {
    steady(shared, run, |incarnation| {
        let part = tail(shared, run, incarnation, after, limit)?;
        let wanted: Vec<&Entry> = part.scan.entries.iter().filter(|e| e.seq > after).collect();
        let skip = wanted.len().saturating_sub(limit);
        let last = wanted.into_iter().skip(skip);
        last.map(|e| scan::expand(&part.bytes, part.from, e)).map(|l| l.map_err(|d| damaged(run, d))).collect()
    })
}

/// Reads from the end of the log until it reaches far enough; the whole log when the end alone is not conclusive.
fn tail(shared: &Shared, run: &RunId, incarnation: &Incarnation, after: u64, limit: usize) -> Result<Part> {
    let path = shared.layout.run(run).join(layout::LOG);
    let meta = shared.fs.metadata(&path)?;
    let known = verified(shared, run, incarnation, &meta);
    let mut window = TAIL;
    while let Some(known) = known.as_ref().filter(|_| window < meta.len) {
        let from = meta.len - window;
        let bytes = shared.fs.read_range(&path, from, usize::try_from(window).unwrap_or(usize::MAX))?;
        let Some(scan) = aligned(&bytes, from, known) else { break };
        let first = scan.entries.first().map_or(u64::MAX, |e| e.seq);
        if first <= after.saturating_add(1) || scan.entries.len() >= limit {
            return Ok(Part { bytes, from, scan });
        }
        window = window.saturating_mul(4);
    }
    whole(shared, run, incarnation)
}

/// Scans bytes that begin somewhere inside a line. Conclusive only when the verified line is among them.
fn aligned(bytes: &[u8], from: u64, known: &Verified) -> Option<Scan> {
    let skip = bytes.iter().position(|b| *b == b'\n')? as u64 + 1;
    let text = bytes.get(usize::try_from(skip).ok()?..)?.split(|b| *b == b'\n').next()?;
    let raw = super::line::parse(text).ok()?;
    let start = from + skip;
    let end = start + text.len() as u64 + 1;
    let first = Entry { seq: raw.seq, epoch: raw.epoch, crc: raw.crc, start, end, number: 0, ts: raw.ts };
    let scan = resume(scan::slice(bytes, from, start, from + bytes.len() as u64), &first)?;
    let same = |e: &Entry| (e.seq, e.crc, e.start) == (known.last.seq, known.last.crc, known.last.start);
    scan.entries.iter().any(same).then_some(scan)
}
