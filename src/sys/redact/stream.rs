//! Redaction of a stream in pieces of any size, with a bounded memory. A secret cut in two is still found.

use std::sync::LazyLock;

use regex::bytes::Regex;

use super::{MASK, Redactor, shapes};

/// Held back of a line without an end, at least; shapes without an upper length are followed beyond it.
const HOLD: usize = 8 << 10;

/// A line is given out in parts when it is longer than this.
const LONG_LINE: usize = 64 << 10;

/// Longest last line of a private key.
const END_LEN: usize = 96;

static BEGIN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(&format!("(?-u){}", shapes::BEGIN_KEY)).ok());
static END: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(&format!("(?-u){}", shapes::END_KEY)).ok());

/// What is being left out at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    /// Nothing.
    Text,
    /// A private key: up to its last line.
    Key,
    /// A value longer than what is held back: up to its last character.
    Value,
}

/// Redacts one stream. Whole lines come out as soon as they are there.
#[derive(Debug)]
pub struct StreamRedactor {
    redactor: Redactor,
    buffer: Vec<u8>,
    inside: Inside,
}

impl StreamRedactor {
    pub(super) fn new(redactor: Redactor) -> Self {
        Self { redactor, buffer: Vec::new(), inside: Inside::Text }
    }

    /// Takes a piece; gives out what is certain.
    pub fn push(&mut self, chunk: &[u8]) -> Vec<u8> {
        self.buffer.extend_from_slice(chunk);
        let mut out = Vec::new();
        loop {
            let before = (self.buffer.len(), self.inside);
            self.step(&mut out);
            if before == (self.buffer.len(), self.inside) {
                return out;
            }
        }
    }

    /// Gives out the rest. The redactor can then be used for another stream.
    pub fn finish(&mut self) -> Vec<u8> {
        let mut out = self.push(&[]);
        let rest = std::mem::take(&mut self.buffer);
        if self.inside == Inside::Text {
            out.extend(self.redactor.bytes(&rest));
        }
        self.inside = Inside::Text;
        out
    }

    fn step(&mut self, out: &mut Vec<u8>) {
        match self.inside {
            Inside::Key => match END.as_ref().and_then(|end| end.find(&self.buffer)) {
                Some(found) => {
                    self.buffer.drain(..found.end());
                    self.inside = Inside::Text;
                }
                None => drop(self.buffer.drain(..self.buffer.len().saturating_sub(END_LEN))),
            },
            Inside::Value => match self.buffer.iter().position(|byte| ends_value(*byte)) {
                Some(end) => {
                    self.buffer.drain(..end);
                    self.inside = Inside::Text;
                }
                None => self.buffer.clear(),
            },
            Inside::Text => self.text(out),
        }
    }

    fn text(&mut self, out: &mut Vec<u8>) {
        // No known form and no shape except private keys crosses the end of a line.
        let lines = self.buffer.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let whole = self.buffer.get(..lines).unwrap_or_default();
        if let Some(begin) = BEGIN.as_ref().and_then(|begin| begin.find(whole)) {
            out.extend(self.redactor.bytes(whole.get(..begin.start()).unwrap_or_default()));
            out.extend_from_slice(MASK.as_bytes());
            self.buffer.drain(..begin.end());
            self.inside = Inside::Key;
            return;
        }
        out.extend(self.redactor.bytes(whole));
        self.buffer.drain(..lines);
        if self.buffer.len() > LONG_LINE.max(self.redactor.longest * 2) {
            self.part_of_line(out);
        }
    }

    /// Gives out the beginning of a very long line: up to a place where nothing secret is cut.
    fn part_of_line(&mut self, out: &mut Vec<u8>) {
        if let Some(begin) = BEGIN.as_ref().and_then(|begin| begin.find(&self.buffer)) {
            let before = self.buffer.get(..begin.start()).unwrap_or_default();
            out.extend(self.redactor.bytes(before));
            out.extend_from_slice(MASK.as_bytes());
            self.buffer.drain(..begin.end());
            self.inside = Inside::Key;
            return;
        }
        // What begins before this is there with all of a known value, or far enough to be seen as a shape.
        let len = self.buffer.len();
        let mut cut = len - HOLD.max(self.redactor.longest);
        let spans = self.redactor.spans(&self.buffer);
        while let Some(across) = spans.iter().find(|span| span.start < cut && cut < span.end) {
            if across.start > 0 {
                cut = across.start;
                continue;
            }
            // The whole buffer starts with one secret: it is masked, and what follows of it is left out.
            let end = spans.iter().filter(|span| span.start < cut).map(|span| span.end).max().unwrap_or(across.end);
            out.extend_from_slice(MASK.as_bytes());
            self.buffer.drain(..end);
            if end == len {
                self.inside = Inside::Value;
            }
            return;
        }
        out.extend(self.redactor.bytes(self.buffer.get(..cut).unwrap_or_default()));
        self.buffer.drain(..cut);
    }
}

/// Whether a byte cannot be part of a value without quotes.
fn ends_value(byte: u8) -> bool {
    byte.is_ascii_whitespace()
        || matches!(byte, b'"' | b'\'' | b'&' | b',' | b';' | b'<' | b'>' | b'(' | b')' | b'{' | b'}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through(redactor: &Redactor, text: &[u8], size: usize) -> Vec<u8> {
        let mut stream = redactor.stream();
        let mut out = Vec::new();
        for chunk in text.chunks(size) {
            out.extend(stream.push(chunk));
            assert!(stream.buffer.len() <= LONG_LINE + size, "held {}", stream.buffer.len());
        }
        out.extend(stream.finish());
        out
    }

    #[test]
    fn cuts_anywhere_hide_the_same() {
        // SE-2: values, base64 and shapes over every chunk border.
        let redactor = Redactor::new(["canary value 42".to_owned(), "zweite-größe".to_owned()]);
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\nBBBB\n-----END PRIVATE KEY-----";
        let text = format!(
            "start canary value 42 end\nzweite-größe Y2FuYXJ5IHZhbHVlIDQy\nBearer abcdefghijkl x\n{key}\napi_key: \"abcdefgh\"\nlast canary value 42"
        );
        let whole = redactor.bytes(text.as_bytes());
        assert!(!String::from_utf8_lossy(&whole).contains("canary"));
        for size in 1..=text.len() {
            let pieces = through(&redactor, text.as_bytes(), size);
            assert_eq!(String::from_utf8_lossy(&pieces), String::from_utf8_lossy(&whole), "size {size}");
        }
    }

    #[test]
    fn lines_without_end_stay_bounded_and_hidden() {
        // HO-1: gigantic lines, with spaces and without; a token and a key that never end.
        let redactor = Redactor::new(["canary value 42".to_owned()]);
        let line = |filler: &str| {
            let mut text = Vec::new();
            for n in 0..20 {
                text.extend(filler.repeat(700 + n * 13).into_bytes());
                text.extend_from_slice(b"canary value 42");
            }
            text
        };
        for filler in ["word and ", "unbroken", "\"q\",", "x "] {
            for size in [4096, 65_536] {
                let shown = String::from_utf8(through(&redactor, &line(filler), size)).unwrap();
                assert!(!shown.contains("canary") && !shown.contains("value 42"), "{filler} {size}");
                assert!(shown.contains(MASK));
            }
        }
        let plain = "0123456789abcdef".repeat(10_000);
        assert_eq!(through(&redactor, plain.as_bytes(), 5000), plain.as_bytes());
        let token = format!("x sk-{} after", "abc".repeat(40_000));
        assert_eq!(String::from_utf8(through(&redactor, token.as_bytes(), 5000)).unwrap(), "x [redacted] after");
        let key = format!("x -----BEGIN PRIVATE KEY-----{} ", "A ".repeat(80_000));
        assert_eq!(String::from_utf8(through(&redactor, key.as_bytes(), 5000)).unwrap(), "x [redacted]");
    }

    #[test]
    fn whole_lines_do_not_wait() {
        let mut stream = Redactor::default().stream();
        assert_eq!(stream.push(b"one\ntwo"), b"one\n");
        assert_eq!(stream.push(b"\n"), b"two\n");
        assert_eq!(stream.finish(), b"");
    }
}
