//! The checkpoint: a cache of folding the log. Its bytes, and when it may be believed.
//!
//! Written by temporary name and rename without any sync, so it can be old, absent, empty or ahead of the log
//! after a power cut; only the log's own line at the place it names makes it trustworthy.

use std::io::Write as _;

use serde::Deserialize;
use serde_json::Value;

use super::{line, scan::Entry};

/// Form of the file.
const VERSION: u32 = 1;
/// Length of `,"sum":"xxxxxxxx"}` and a newline.
const TRAILER: usize = 19;

/// A checkpoint whose checksum holds.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Checkpoint {
    v: u32,
    incarnation: String,
    pub(super) seq: u64,
    pub(super) epoch: u64,
    /// First byte of the line it stands at.
    pub(super) start: u64,
    /// Byte after that line.
    pub(super) end: u64,
    /// Number of that line in the file.
    pub(super) line: u64,
    crc: String,
    pub(super) record: Value,
}

/// The bytes of a checkpoint that stands at a line.
pub(super) fn encode(incarnation: &str, at: &Entry, record: &str) -> Vec<u8> {
    let incarnation = Value::from(incarnation);
    let mut bytes = Vec::with_capacity(record.len() + 512);
    // Writing to a vector cannot fail.
    let _ = write!(
        bytes,
        "{{\"v\":{VERSION},\"incarnation\":{incarnation},\"seq\":{},\"epoch\":{},\"start\":{},\"end\":{},\"line\":{},\"crc\":\"{:08x}\",\"record\":",
        at.seq, at.epoch, at.start, at.end, at.number, at.crc
    );
    bytes.extend_from_slice(record.as_bytes());
    let sum = crc32c::crc32c(&bytes);
    let _ = writeln!(bytes, ",\"sum\":\"{sum:08x}\"}}");
    bytes
}

/// Reads a checkpoint of this incarnation; `None` for anything that is not whole.
pub(super) fn parse(bytes: &[u8], incarnation: &str) -> Option<Checkpoint> {
    let (head, trailer) = bytes.split_at_checked(bytes.len().checked_sub(TRAILER)?)?;
    let sum = line::hex8(trailer.strip_prefix(b",\"sum\":\"")?.strip_suffix(b"\"}\n")?)?;
    if crc32c::crc32c(head) != sum {
        return None;
    }
    let found: Checkpoint = serde_json::from_slice(bytes).ok()?;
    (found.v == VERSION && found.incarnation == incarnation).then_some(found)
}

impl Checkpoint {
    /// Checksum of the line it stands at.
    pub(super) fn crc(&self) -> Option<u32> {
        line::hex8(self.crc.as_bytes())
    }

    /// Whether it stands at this very line.
    pub(super) fn agrees(&self, entry: &Entry) -> bool {
        (self.seq, self.epoch, self.start, self.end, self.line, self.crc())
            == (entry.seq, entry.epoch, entry.start, entry.end, entry.number, Some(entry.crc))
    }
}
