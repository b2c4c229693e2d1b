//! The bytes of one line of the log. Knows the form of a line and its checksum, not what lines mean together.

use std::fmt::Write as _;

use serde_json::Value;

use crate::model::Time;

/// A line, newline included, stays under this, so that a torn write is bounded and a reader never holds more.
pub(super) const LINE_MAX: usize = 256 * 1024;
/// Form of a line.
const VERSION: u64 = 1;
/// Length of `,"crc":"xxxxxxxx"}`.
const TRAILER: usize = 18;

/// A line ready to be written, newline included.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) bytes: Vec<u8>,
    pub(super) crc: u32,
}

/// A line whose checksum holds. The events are not parsed yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw<'a> {
    pub(super) seq: u64,
    pub(super) epoch: u64,
    pub(super) ts: Time,
    pub(super) prev: u32,
    pub(super) crc: u32,
    pub(super) events: &'a str,
}

/// Writes a line. The error is the length it would have.
pub(super) fn encode(seq: u64, epoch: u64, ts: Time, prev: u32, events: &[Value]) -> Result<Encoded, usize> {
    let mut body = String::from("[");
    for (i, event) in events.iter().enumerate() {
        if i > 0 {
            body.push(',');
        }
        // Writing to a string cannot fail.
        let _ = write!(body, "{event}");
    }
    body.push(']');
    let mut text = format!(
        "{{\"v\":{VERSION},\"seq\":{seq},\"epoch\":{epoch},\"ts\":\"{ts}\",\"len\":{},\"prev\":\"{prev:08x}\",\"events\":{body}",
        body.len()
    );
    let crc = crc32c::crc32c(text.as_bytes());
    let _ = writeln!(text, ",\"crc\":\"{crc:08x}\"}}");
    if text.len() >= LINE_MAX { Err(text.len()) } else { Ok(Encoded { bytes: text.into_bytes(), crc }) }
}

/// Reads a line, given without its newline. The error says what is wrong with it.
pub(super) fn parse(line: &[u8]) -> Result<Raw<'_>, String> {
    if line.len() >= LINE_MAX {
        return Err(format!("a line of {} bytes is longer than any that is written", line.len()));
    }
    let cut = line.len().checked_sub(TRAILER).ok_or("the line is too short")?;
    let (head, trailer) = line.split_at_checked(cut).ok_or("the line is too short")?;
    let crc = trailer
        .strip_prefix(b",\"crc\":\"")
        .and_then(|t| t.strip_suffix(b"\"}"))
        .and_then(hex8)
        .ok_or("the line does not end with its checksum")?;
    if crc32c::crc32c(head) != crc {
        return Err("the checksum does not match".to_owned());
    }
    let head = std::str::from_utf8(head).map_err(|_| "the line is not UTF-8")?;
    let mut rest = head;
    let version = number(&mut rest, "{\"v\":")?;
    if version != VERSION {
        return Err(format!("the line has version {version}, this program knows {VERSION}"));
    }
    let seq = number(&mut rest, ",\"seq\":")?;
    let epoch = number(&mut rest, ",\"epoch\":")?;
    let (ts, tail) = rest.strip_prefix(",\"ts\":\"").and_then(|r| r.split_once('"')).ok_or("the line has no time")?;
    let ts = time(ts)?;
    rest = tail;
    let len = number(&mut rest, ",\"len\":")?;
    let (prev, events) = rest
        .strip_prefix(",\"prev\":\"")
        .and_then(|r| r.split_once("\",\"events\":"))
        .ok_or("the line has no link to the one before")?;
    let prev = hex8(prev.as_bytes()).ok_or("the link to the line before is not a checksum")?;
    if events.len() as u64 != len {
        return Err(format!("the events have {} bytes, the line says {len}", events.len()));
    }
    Ok(Raw { seq, epoch, ts, prev, crc, events })
}

impl Raw<'_> {
    /// The events as values.
    pub(super) fn events(&self) -> Result<Vec<Value>, String> {
        serde_json::from_str(self.events).map_err(|e| format!("the events do not parse: {e}"))
    }
}

/// A time exactly as it is written: a line has one form, so that what is read is what was written.
fn time(text: &str) -> Result<Time, String> {
    let ts: Time =
        serde_json::from_value(Value::String(text.to_owned())).map_err(|e| format!("the time is wrong: {e}"))?;
    if ts.to_string() == text { Ok(ts) } else { Err("the time is not written as this program writes it".to_owned()) }
}

/// Eight lower-case hex digits.
pub(super) fn hex8(text: &[u8]) -> Option<u32> {
    let good = text.len() == 8 && text.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if good { std::str::from_utf8(text).ok().and_then(|t| u32::from_str_radix(t, 16).ok()) } else { None }
}

/// Takes `name` and the decimal number after it off the front.
fn number(rest: &mut &str, name: &str) -> Result<u64, String> {
    let after = rest.strip_prefix(name).ok_or_else(|| format!("the line lacks {name}"))?;
    let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    let (digits, tail) = after.split_at_checked(end).unwrap_or((after, ""));
    if digits.len() > 1 && digits.starts_with('0') {
        return Err(format!("{name} is followed by a number with a leading zero"));
    }
    *rest = tail;
    digits.parse().map_err(|_| format!("{name} is not followed by a number"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample() -> Encoded {
        let at = Time::from_millis(1_700_000_000_123);
        encode(17, 3, at, 0x9a0b_11c2, &[json!({"type": "log", "text": "ü\n\"crc\":\""}), json!(1)]).unwrap()
    }

    #[test]
    fn a_line_reads_back_and_is_the_documented_json() {
        let line = sample();
        let body = line.bytes.strip_suffix(b"\n").unwrap();
        assert!(!body.contains(&b'\n'));
        let raw = parse(body).unwrap();
        assert_eq!((raw.seq, raw.epoch, raw.prev, raw.crc), (17, 3, 0x9a0b_11c2, line.crc));
        assert_eq!(raw.events().unwrap().len(), 2);
        let json: Value = serde_json::from_slice(body).unwrap();
        let text = std::str::from_utf8(body).unwrap();
        let places =
            ["v", "seq", "epoch", "ts", "len", "prev", "events", "crc"].map(|key| text.find(&format!("\"{key}\":")));
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{text}");
        assert_eq!(json.as_object().unwrap().len(), 8);
        assert_eq!(json["prev"], "9a0b11c2");
    }

    #[test]
    fn every_changed_bit_and_every_cut_is_noticed() {
        let line = sample();
        let body = line.bytes.strip_suffix(b"\n").unwrap();
        for at in 0..body.len() {
            for bit in 0..8 {
                let mut bad = body.to_vec();
                bad[at] ^= 1 << bit;
                assert!(parse(&bad).is_err(), "bit {bit} of byte {at}");
            }
            assert!(parse(&body[..at]).is_err(), "cut at {at}");
        }
    }

    /// P4: a number of any length is the same after it was written and read, however often.
    #[test]
    fn numbers_read_back_to_the_last_bit() {
        for text in ["1844.000073709557615", "99999999999994999999999", "0.1", "5e-324", "1.7976931348623157e308"] {
            let number: f64 = text.parse().unwrap();
            let line = encode(1, 1, Time::from_millis(0), 0, &[json!({ "n": number })]).unwrap();
            let read = parse(line.bytes.strip_suffix(b"\n").unwrap()).unwrap().events().unwrap();
            assert_eq!(read[0]["n"].as_f64(), Some(number));
        }
    }

    /// A line has one form: a number or a time written otherwise is not what was written, whatever its checksum.
    #[test]
    fn a_line_in_another_form_is_refused() {
        let line = String::from_utf8(sample().bytes).unwrap();
        let (head, _) = line.split_once(",\"crc\":\"").unwrap();
        let sealed = |head: &str| format!("{head},\"crc\":\"{:08x}\"}}", crc32c::crc32c(head.as_bytes()));
        assert!(parse(sealed(head).as_bytes()).is_ok());
        for (from, to) in [("\"seq\":17", "\"seq\":017"), (".123Z", ".1230Z"), ("\"epoch\":3", "\"epoch\":+3")] {
            assert!(head.contains(from));
            assert!(parse(sealed(&head.replace(from, to)).as_bytes()).is_err(), "{to}");
        }
    }

    #[test]
    fn too_long_a_line_is_refused_with_its_length() {
        let text = "x".repeat(LINE_MAX);
        let len = encode(1, 1, Time::from_millis(0), 0, &[json!(text)]).unwrap_err();
        assert!(len > LINE_MAX);
        let fits = "x".repeat(LINE_MAX - 200);
        assert!(encode(1, 1, Time::from_millis(0), 0, &[json!(fits)]).is_ok());
    }
}
