//! Output of programs made fit to keep and to show: bounded, valid, without terminal tricks. Hides no secrets.

use std::collections::VecDeque;

/// First bytes of an output that are kept.
pub const HEAD_KEPT: usize = 64 << 10;

/// Last bytes of an output that are kept.
pub const TAIL_KEPT: usize = 256 << 10;

/// Longest escape sequence that is believed; beyond it the text was no sequence.
const MAX_SEQUENCE: usize = 4096;

/// The last bytes of a stream.
#[derive(Debug, Clone)]
pub struct Tail {
    max: usize,
    bytes: VecDeque<u8>,
    total: u64,
}

impl Tail {
    /// Keeps at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { max, bytes: VecDeque::new(), total: 0 }
    }

    /// Adds what came.
    pub fn push(&mut self, chunk: &[u8]) {
        self.total += chunk.len() as u64;
        let kept = chunk.get(chunk.len().saturating_sub(self.max)..).unwrap_or_default();
        let over = (self.bytes.len() + kept.len()).saturating_sub(self.max);
        self.bytes.drain(..over.min(self.bytes.len()));
        self.bytes.extend(kept);
    }

    /// Bytes that were pushed altogether.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// What is kept, from its first whole character on.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.bytes.iter().copied().collect();
        if self.total > bytes.len() as u64 {
            bytes.drain(..continuation(&bytes));
        }
        bytes
    }

    /// The same as text, invalid UTF-8 replaced.
    pub fn to_text(&self) -> String {
        lossy(&self.to_bytes())
    }
}

/// The beginning and the end of a stream; what is between is only counted.
#[derive(Debug, Clone)]
pub struct HeadTail {
    max_head: usize,
    head: Vec<u8>,
    tail: Tail,
}

impl Default for HeadTail {
    fn default() -> Self {
        Self::new(HEAD_KEPT, TAIL_KEPT)
    }
}

impl HeadTail {
    /// Keeps the first `head` and the last `tail` bytes.
    pub fn new(head: usize, tail: usize) -> Self {
        Self { max_head: head, head: Vec::new(), tail: Tail::new(tail) }
    }

    /// Adds what came.
    pub fn push(&mut self, chunk: &[u8]) {
        let room = (self.max_head - self.head.len()).min(chunk.len());
        let (first, rest) = chunk.split_at_checked(room).unwrap_or((chunk, &[]));
        self.head.extend_from_slice(first);
        self.tail.push(rest);
    }

    /// Bytes that were pushed altogether.
    pub fn total(&self) -> u64 {
        self.head.len() as u64 + self.tail.total()
    }

    /// Bytes that were not kept.
    pub fn omitted(&self) -> u64 {
        self.tail.total() - self.tail.bytes.len() as u64
    }

    /// What is kept; a line between the parts says how much is missing. Characters are not cut.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.head.clone();
        let omitted = self.omitted();
        if omitted == 0 {
            bytes.extend(&self.tail.bytes);
            return bytes;
        }
        let tail = self.tail.to_bytes();
        bytes.truncate(whole(&bytes));
        let missing = self.total() - (bytes.len() + tail.len()) as u64;
        bytes.extend_from_slice(format!("\n[... {missing} bytes left out ...]\n").as_bytes());
        bytes.extend(tail);
        bytes
    }

    /// The same as text, invalid UTF-8 replaced.
    pub fn to_text(&self) -> String {
        lossy(&self.to_bytes())
    }
}

/// Text with invalid bytes replaced.
pub fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The last lines of an output for a person: no escape sequences, no control characters, at most `max` bytes.
pub fn tail_for_people(bytes: &[u8], max: usize) -> String {
    // Sequences take room that is then removed, so look further back, but not through everything.
    let window = bytes.get(bytes.len().saturating_sub(max.saturating_mul(4).saturating_add(MAX_SEQUENCE))..);
    let plain = strip(&lossy(window.unwrap_or_default()));
    let plain = plain.trim_end();
    let mut start = plain.len().saturating_sub(max);
    while !plain.is_char_boundary(start) {
        start += 1;
    }
    let cut = plain.get(start..).unwrap_or_default();
    // Begin with a whole line when that costs little.
    match cut.find('\n') {
        Some(end) if start > 0 && end < max / 3 => cut.get(end + 1..).unwrap_or_default().to_owned(),
        _ => cut.to_owned(),
    }
}

/// Text without terminal escape sequences and control characters, except newlines and tabs.
pub fn strip(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let after = rest.get(next.len_utf8()..).unwrap_or_default();
        rest = match next {
            '\x1b' => after.get(sequence(after.as_bytes())..).unwrap_or_default(),
            '\r' => {
                // A progress bar rewrites its line; for a reader these are lines.
                if !after.starts_with(['\n', '\r']) {
                    plain.push('\n');
                }
                after
            }
            '\n' | '\t' => {
                plain.push(next);
                after
            }
            _ if next.is_control() => after,
            _ => {
                // Most text is plain: take it in one piece.
                let len = rest.find(char::is_control).unwrap_or(rest.len());
                plain.push_str(rest.get(..len).unwrap_or_default());
                rest.get(len..).unwrap_or_default()
            }
        };
    }
    plain
}

/// Length of the escape sequence after its first byte; always ends at a character.
fn sequence(bytes: &[u8]) -> usize {
    let at = |test: fn(&u8) -> bool, from: usize| {
        bytes.iter().take(MAX_SEQUENCE).skip(from).position(test).map(|found| found + from)
    };
    match bytes.first() {
        // Control sequence: parameters, then one final byte.
        Some(b'[') => match at(|byte| !(0x20..=0x3f).contains(byte), 1) {
            Some(end) if bytes.get(end).is_some_and(|byte| (0x40..=0x7e).contains(byte)) => end + 1,
            Some(end) => end,
            None => 1,
        },
        // Strings (titles, links): up to BEL or ESC \, but never past a line.
        Some(b']' | b'P' | b'X' | b'^' | b'_') => match at(|byte| matches!(byte, 0x07 | 0x1b | b'\n'), 1) {
            Some(end) if bytes.get(end) == Some(&0x07) => end + 1,
            Some(end) if bytes.get(end) == Some(&0x1b) && bytes.get(end + 1) == Some(&b'\\') => end + 2,
            Some(end) => end,
            None => 1,
        },
        // Character sets and the like: intermediate bytes, then one final byte.
        Some(0x20..=0x2f) => match at(|byte| !(0x20..=0x2f).contains(byte), 0) {
            Some(end) if bytes.get(end).is_some_and(|byte| (0x30..=0x7e).contains(byte)) => end + 1,
            Some(end) => end,
            None => 0,
        },
        Some(0x30..=0x7e) => 1,
        Some(_) | None => 0,
    }
}

/// Bytes at the start that belong to a character cut off before.
fn continuation(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|byte| **byte & 0xc0 == 0x80).count()
}

/// Length without a character that is cut off at the end.
fn whole(bytes: &[u8]) -> usize {
    for back in 1..=3.min(bytes.len()) {
        let at = bytes.len() - back;
        let Some(byte) = bytes.get(at) else { break };
        let needed = match byte {
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf7 => 4,
            0x80..=0xbf => continue,
            _ => return bytes.len(),
        };
        return if needed > back { at } else { bytes.len() };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_tail_are_kept_and_the_rest_counted() {
        // HO-2, HO-3: any chunking, nothing held beyond the bounds, no character cut.
        let text = "äöü€🦀".repeat(1000);
        for size in [1, 2, 3, 7, 1000, 100_000] {
            let mut kept = HeadTail::new(101, 203);
            for chunk in text.as_bytes().chunks(size) {
                kept.push(chunk);
                assert!(kept.head.len() <= 101 && kept.tail.bytes.len() <= 203);
            }
            assert_eq!(kept.total(), text.len() as u64);
            let shown = kept.to_text();
            assert!(!shown.contains('\u{fffd}'), "{shown}");
            let (head, rest) = shown.split_once("\n[... ").unwrap();
            let (missing, tail) = rest.split_once(" bytes left out ...]\n").unwrap();
            assert!(text.starts_with(head) && text.ends_with(tail) && head.len() > 97 && tail.len() > 199);
            assert_eq!(missing.parse::<usize>().unwrap(), text.len() - head.len() - tail.len());
        }
        let mut small = HeadTail::new(4, 4);
        small.push("aäöb".as_bytes());
        assert_eq!((small.to_text().as_str(), small.omitted()), ("aäöb", 0));
    }

    #[test]
    fn people_see_plain_text() {
        let raw =
            "a\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b]8;;http://x\x1b\\link\x1b(B\x00\x08!\r\n10%\r20%\r\nend\x1b";
        assert_eq!(strip(raw), "ared link!\n10%\n20%\nend");
        // What only looks like a sequence does not swallow the text.
        assert_eq!(strip("\x1b]never closed\nnext \x1bäx \x1b[3ä"), "\nnext äx ä");
        assert_eq!(strip(&format!("\x1b]{}", "y".repeat(10_000))), "y".repeat(10_000));
        assert_eq!(tail_for_people(b"first line\nsecond line that stays\n", 30), "second line that stays");
        assert_eq!(tail_for_people(b"\xff\xfeok\n\n", 100), "\u{fffd}\u{fffd}ok");
        // HO-1: one gigantic line is cut at a character.
        let tail = tail_for_people("é".repeat(1_000_000).as_bytes(), 99);
        assert_eq!((tail.len(), tail.chars().all(|c| c == 'é')), (98, true));
    }
}
