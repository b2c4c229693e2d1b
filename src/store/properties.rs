//! What must hold for any bytes in the place of a log or a checkpoint.
//!
//! Asserted by the fuzz targets and, over their corpora, by the tests. Bytes are also looked at with the right
//! checksum put behind them, because almost nothing else gets past it.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a broken property must be loud"
)]

use serde_json::{Value, json};

use super::{
    checkpoint, line,
    scan::{self, Base, Damage, Entry, Scan},
};
use crate::model::Time;

/// Incarnation that the logs belong to.
const INCARNATION: &str = "i";

/// One line: what parses is written back byte for byte, and no changed or missing byte goes unnoticed.
pub(crate) fn log_line(data: &[u8]) {
    one_line(data);
    one_line(&sealed(data, "crc"));
}

fn one_line(bytes: &[u8]) {
    let Ok(raw) = line::parse(bytes) else { return };
    let head = format!(
        "{{\"v\":1,\"seq\":{},\"epoch\":{},\"ts\":\"{}\",\"len\":{},\"prev\":\"{:08x}\",\"events\":{}",
        raw.seq,
        raw.epoch,
        raw.ts,
        raw.events.len(),
        raw.prev,
        raw.events
    );
    assert_eq!(sealed(head.as_bytes(), "crc"), bytes, "a line has one form");
    for bad in spoiled(bytes) {
        assert!(line::parse(&bad).is_err(), "a change was not noticed");
    }
    let Ok(events) = raw.events() else { return };
    match line::encode(raw.seq, raw.epoch, raw.ts, raw.prev, &events) {
        Ok(written) => {
            let body = written.bytes.strip_suffix(b"\n").expect("a line ends");
            assert!(!body.contains(&b'\n'), "a line is one line");
            let again = line::parse(body).expect("what is written can be read");
            assert_eq!((again.seq, again.epoch, again.prev), (raw.seq, raw.epoch, raw.prev));
            assert_eq!((again.ts, again.crc), (raw.ts, written.crc));
            assert_eq!(again.events().unwrap(), events, "events read back as they were");
        }
        Err(length) => assert!(length >= line::LINE_MAX),
    }
    // What a reader does that goes on behind this line.
    let end = bytes.len() as u64;
    let entry = Entry { seq: raw.seq, epoch: raw.epoch, crc: raw.crc, start: 0, end, number: 1, ts: raw.ts };
    let _ = scan::scan(bytes, Base::after(&entry));
    if let Some(next) = next_line(Some(&entry)) {
        assert_eq!(scan::scan(&next, Base::after(&entry)).expect("the next line follows").entries.len(), 1);
    }
}

/// A whole log: as it comes, and as a play of appends, takeovers and accidents that the bytes direct.
pub(crate) fn log(data: &[u8]) {
    whole(data);
    whole(&played(data));
}

fn whole(bytes: &[u8]) {
    let found = scan::scan(bytes, Base::start(INCARNATION));
    match &found {
        Ok(found) => good(bytes, found),
        Err(damage) => bad(bytes, damage),
    }
    // A log that is cut anywhere shows a part of what it showed, never anything else.
    let (entries, sound) = match &found {
        Ok(found) => (found.entries.clone(), found.end),
        Err(damage) => (before(bytes, damage).entries, damage.start),
    };
    for cut in spread(bytes.len(), 24) {
        match scan::scan(&bytes[..cut], Base::start(INCARNATION)) {
            Ok(part) => assert!(entries.starts_with(&part.entries), "a cut log shows something new"),
            Err(_) => assert!(cut as u64 > sound, "a cut inside what is sound is damage"),
        }
    }
}

/// A log that is believed.
fn good(bytes: &[u8], found: &Scan) {
    assert!(found.end <= bytes.len() as u64);
    assert_eq!(found.torn, found.end < bytes.len() as u64, "what is left over is a torn write and nothing else is");
    let mut last: Option<&Entry> = None;
    for entry in &found.entries {
        assert_eq!(entry.seq, last.map_or(0, |l| l.seq) + 1, "no gap and no repeat");
        assert!(entry.epoch >= last.map_or(0, |l| l.epoch), "no older claim after a newer one");
        assert!(entry.start >= last.map_or(0, |l| l.end) && entry.start < entry.end && entry.end <= found.end);
        let text = scan::slice(bytes, 0, entry.start, entry.end);
        let raw = line::parse(text.strip_suffix(b"\n").expect("a counted line ends")).unwrap();
        assert_eq!((raw.seq, raw.epoch, raw.crc, raw.ts), (entry.seq, entry.epoch, entry.crc, entry.ts));
        assert_eq!(raw.prev, last.map_or(Base::start(INCARNATION).crc(), |l| l.crc), "the chain holds");
        assert_eq!(entry.number, bytes[..entry.start as usize].iter().filter(|b| **b == b'\n').count() as u64 + 1);
        match scan::expand(bytes, 0, entry) {
            Ok(line) => assert_eq!((line.seq, line.epoch, line.ts), (entry.seq, entry.epoch, entry.ts)),
            Err(damage) => assert_eq!((damage.number, damage.start), (entry.number, entry.start)),
        }
        last = Some(entry);
    }
    for at in spread(found.entries.len(), 6) {
        let from = &found.entries[at];
        let rest = scan::scan(&bytes[from.end as usize..], Base::after(from)).expect("the rest of a good log is good");
        assert_eq!(rest.entries, found.entries[at + 1..], "reading on from a line is reading all");
        assert_eq!((rest.end, rest.torn), (found.end, found.torn));
    }
    if let Some(next) = next_line(last) {
        let longer = [&bytes[..found.end as usize], &next].concat();
        let longer = scan::scan(&longer, Base::start(INCARNATION)).expect("the log can go on");
        assert_eq!(longer.entries.len(), found.entries.len() + 1);
        assert!(longer.entries.starts_with(&found.entries) && !longer.torn);
    }
}

/// A log that is not believed: everything before the named place is sound.
fn bad(bytes: &[u8], damage: &Damage) {
    assert!(damage.start < damage.end && damage.end <= bytes.len() as u64);
    assert!(!damage.reason.is_empty());
    let before = before(bytes, damage);
    assert!(!before.torn && before.end == damage.start);
    let lines = bytes[..damage.start as usize].iter().filter(|b| **b == b'\n').count() as u64;
    assert_eq!(damage.number, lines + 1, "the line is named");
}

fn before(bytes: &[u8], damage: &Damage) -> Scan {
    scan::scan(&bytes[..damage.start as usize], Base::start(INCARNATION)).expect("what comes before damage is sound")
}

/// A line that may follow; `None` where numbers end.
fn next_line(last: Option<&Entry>) -> Option<Vec<u8>> {
    let (seq, epoch, prev) = last.map_or((0, 1, Base::start(INCARNATION).crc()), |l| (l.seq, l.epoch, l.crc));
    let event = json!({ "type": if last.is_none() { "fence" } else { "log" } });
    Some(line::encode(seq.checked_add(1)?, epoch, Time::from_millis(0), prev, &[event]).unwrap().bytes)
}

/// A log made of steps, two bytes each.
fn played(data: &[u8]) -> Vec<u8> {
    let (mut bytes, mut seq, mut epoch, mut prev) = (Vec::new(), 0, 0, Base::start(INCARNATION).crc());
    for step in data.chunks_exact(2).take(64) {
        let (what, how) = (step[0] % 10, step[1]);
        let at = Time::from_millis(i64::from(how) * 1000);
        let mut append = |seq: u64, epoch: u64, kind: &str| {
            let event = json!({ "type": kind, "text": "x\n\u{e9}".repeat(usize::from(how)) });
            let line = line::encode(seq, epoch, at, prev, &[event]).unwrap();
            bytes.extend(&line.bytes);
            line.crc
        };
        match what {
            // What an owner writes: a claim first, then its batches.
            0..=2 if epoch > 0 => {
                seq += 1;
                prev = append(seq, epoch, "log");
            }
            0..=3 => {
                (seq, epoch) = (seq + 1, epoch + 1);
                prev = append(seq, epoch, "fence");
            }
            // What one writes that lost the run.
            4 => {
                append(seq + 1, epoch.saturating_sub(1), "log");
            }
            // What nobody writes: a gap, and a claim that is none.
            5 => {
                append(seq + 2, epoch, "log");
            }
            6 => {
                append(seq + 1, epoch + 1, "log");
            }
            // What the disk does.
            7 => bytes.truncate(bytes.len().saturating_sub(usize::from(how))),
            8 => bytes.extend(vec![if how < 128 { 0 } else { how }; usize::from(how) + 1]),
            _ => {
                let at = bytes.len().saturating_sub(usize::from(how) + 1);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << (how % 8);
                }
            }
        }
    }
    bytes
}

/// A checkpoint: believed only with its checksum and its incarnation, and it says what was written.
pub(crate) fn checkpoint(data: &[u8]) {
    one_checkpoint(data);
    one_checkpoint(&sealed(data, "sum"));
    if let Ok(record) = serde_json::from_slice::<Value>(data) {
        let number = |at: usize| u64::from(data.get(at).copied().unwrap_or(7)) << at;
        let [seq, epoch, start, end] = [1, 2, 3, 4].map(number);
        let entry = Entry { seq, epoch, crc: crc32c::crc32c(data), start, end, number: 3, ts: Time::from_millis(0) };
        written(&entry, &record);
    }
}

fn one_checkpoint(bytes: &[u8]) {
    let Some(found) = checkpoint::parse(bytes, INCARNATION) else { return };
    assert!(checkpoint::parse(bytes, "j").is_none() && checkpoint::parse(bytes, "").is_none());
    for bad in spoiled(bytes) {
        assert!(checkpoint::parse(&bad, INCARNATION).is_none(), "a change was not noticed");
    }
    let (ts, crc) = (Time::from_millis(0), found.crc());
    let entry = |crc| Entry {
        seq: found.seq,
        epoch: found.epoch,
        crc,
        start: found.start,
        end: found.end,
        number: found.line,
        ts,
    };
    match crc {
        Some(crc) => {
            assert!(found.agrees(&entry(crc)) && !found.agrees(&entry(!crc)));
            written(&entry(crc), &found.record);
        }
        None => assert!(!found.agrees(&entry(0)), "no checksum agrees with none"),
    }
}

/// What is written at a line is read back at that line and nowhere else.
fn written(entry: &Entry, record: &Value) {
    let bytes = checkpoint::encode(INCARNATION, entry, &record.to_string());
    let found = checkpoint::parse(&bytes, INCARNATION).expect("what is written can be read");
    assert_eq!(&found.record, record);
    assert!(found.agrees(entry));
    for other in [
        Entry { seq: entry.seq ^ 1, ..*entry },
        Entry { epoch: entry.epoch ^ 1, ..*entry },
        Entry { crc: entry.crc ^ 1, ..*entry },
        Entry { start: entry.start ^ 1, ..*entry },
        Entry { end: entry.end ^ 1, ..*entry },
        Entry { number: entry.number ^ 1, ..*entry },
    ] {
        assert!(!found.agrees(&other), "{other:?}");
    }
    assert!(checkpoint::parse(&bytes, "j").is_none());
}

/// The bytes with the trailer a line or a checkpoint has.
fn sealed(head: &[u8], key: &str) -> Vec<u8> {
    let end = if key == "sum" { "\n" } else { "" };
    [head, format!(",\"{key}\":\"{:08x}\"}}{end}", crc32c::crc32c(head)).as_bytes()].concat()
}

/// The bytes with one bit changed or cut short, at places all over them.
fn spoiled(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    spread(bytes.len(), 40).flat_map(|at| {
        let mut bad = bytes.to_vec();
        bad[at] ^= 1 << (at % 8);
        [bad, bytes[..at].to_vec()]
    })
}

/// About `most` places below `len`, the first and the last among them.
fn spread(len: usize, most: usize) -> impl Iterator<Item = usize> {
    (0..len).step_by((len / most).max(1)).chain(len.checked_sub(1))
}
