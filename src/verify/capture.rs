//! What a program prints, kept within bounds: the beginning, the end, and how much lies between.
//!
//! Both streams go in as they arrive. Text is made of the bytes only once, at the end, so that a chatty
//! program costs a copy a byte and no more; secrets are taken out there, over whole lines, so that one
//! split over two reads is found.

use std::collections::{BTreeMap, VecDeque};

use crate::sys::{redact::Redactor, text};

/// Bytes kept from the beginning of the output.
const HEAD_MAX: usize = 64 << 10;
/// Bytes kept from its end.
const TAIL_MAX: usize = 256 << 10;
/// Most pieces kept of either part; a program that alternates streams byte by byte makes one a byte.
const PIECES_MAX: usize = 16 << 10;
/// Where bytes were left out, a word cut in two could be half a secret: it goes too, up to this length.
const CUT_WORD_MAX: usize = 8 << 10;
/// Lines shown as the end of the output.
const SHOWN_LINES: usize = 40;
/// Bytes shown as the end of the output; the marks between lines come on top.
const SHOWN_BYTES: usize = 8 << 10;
/// Lines and bytes of it that each stream has for itself.
const OWN_LINES: usize = 10;
const OWN_BYTES: usize = 3 << 10;
/// Bytes shown of one line.
const LINE_MAX: usize = 2 << 10;

/// Where bytes came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

#[derive(Debug)]
struct Piece {
    stream: Stream,
    /// Place in the order of arrival.
    order: u64,
    bytes: Vec<u8>,
    /// Bytes at the front that are no longer part of it.
    from: usize,
}

impl Piece {
    fn live(&self) -> &[u8] {
        self.bytes.get(self.from..).unwrap_or_default()
    }
}

/// The end of one stream.
#[derive(Debug, Default)]
struct Tail {
    pieces: VecDeque<Piece>,
    bytes: usize,
    left_out: u64,
    /// What was left out did not end with its line.
    cut: bool,
}

impl Tail {
    /// Drops at most `over` bytes of the oldest piece; a whole piece when that is 0.
    fn drop_oldest(&mut self, over: usize) {
        let Some(front) = self.pieces.front_mut() else { return };
        let live = front.live();
        let drop = if over == 0 { live.len() } else { over.min(live.len()) };
        self.cut = drop.checked_sub(1).and_then(|last| live.get(last)).is_some_and(|b| *b != b'\n');
        self.left_out = self.left_out.saturating_add(drop as u64);
        self.bytes = self.bytes.saturating_sub(drop);
        front.from = front.from.saturating_add(drop);
        if front.live().is_empty() {
            self.pieces.pop_front();
        }
    }
}

/// Bounded output of one program.
#[derive(Debug, Default)]
pub(super) struct Capture {
    head: Vec<Piece>,
    head_bytes: usize,
    head_full: bool,
    out: Tail,
    err: Tail,
    order: u64,
    last: Option<Stream>,
}

/// Output as text, secrets removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text {
    /// Every kept line with its mark, `out| ` or `err| `, and a line saying what was left out.
    pub log: String,
    /// The last lines without marks, colours and control characters.
    pub tail: String,
}

impl Capture {
    /// Takes what a stream gave.
    pub(super) fn push(&mut self, stream: Stream, bytes: &[u8]) {
        let same = self.last.replace(stream) == Some(stream);
        if !same {
            self.order = self.order.saturating_add(1);
        }
        let order = self.order;
        let piece = |bytes: &[u8]| Piece { stream, order, bytes: bytes.to_vec(), from: 0 };
        let room = if self.head_full { 0 } else { HEAD_MAX.saturating_sub(self.head_bytes) };
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        if !first.is_empty() {
            self.head_bytes = self.head_bytes.saturating_add(first.len());
            match self.head.last_mut() {
                Some(last) if last.stream == stream => last.bytes.extend_from_slice(first),
                Some(_) | None => self.head.push(piece(first)),
            }
        }
        self.head_full |= self.head_bytes >= HEAD_MAX || self.head.len() >= PIECES_MAX;
        if rest.is_empty() {
            return;
        }
        let tail = match stream {
            Stream::Out => &mut self.out,
            Stream::Err => &mut self.err,
        };
        tail.bytes = tail.bytes.saturating_add(rest.len());
        match tail.pieces.back_mut() {
            Some(last) if last.order == order && last.bytes.len() < HEAD_MAX => last.bytes.extend_from_slice(rest),
            Some(_) | None => tail.pieces.push_back(piece(rest)),
        }
        self.trim();
    }

    /// Drops what is too old, from the stream that holds more: a noisy one never pushes the other out.
    fn trim(&mut self) {
        loop {
            let over = self.out.bytes.saturating_add(self.err.bytes).saturating_sub(TAIL_MAX);
            if over > 0 {
                let larger = if self.out.bytes >= self.err.bytes { &mut self.out } else { &mut self.err };
                larger.drop_oldest(over);
            } else if self.out.pieces.len() > PIECES_MAX {
                self.out.drop_oldest(0);
            } else if self.err.pieces.len() > PIECES_MAX {
                self.err.drop_oldest(0);
            } else {
                return;
            }
        }
    }

    /// The text of it all. `intro` and `outro` are lines of ours around the log.
    pub(super) fn text(&self, redactor: &Redactor, intro: &str, outro: &str) -> Text {
        let mut tail: Vec<&Piece> = self.out.pieces.iter().chain(&self.err.pieces).collect();
        tail.sort_by_key(|piece| piece.order);
        let mut dropped = self.out.left_out.saturating_add(self.err.left_out);
        let (before, after) = if dropped == 0 {
            (Lines::of(self.head.iter().chain(tail)), None)
        } else {
            let (mut before, mut after) = (Lines::of(&self.head), Lines::of(tail));
            for (stream, end) in [(Stream::Out, &self.out), (Stream::Err, &self.err)] {
                if end.left_out > 0 {
                    dropped = dropped.saturating_add(before.cut_end(stream));
                } else {
                    before.carry(stream, &mut after);
                }
                if end.cut {
                    dropped = dropped.saturating_add(after.cut_start(stream));
                }
            }
            (before, Some(after))
        };
        let mut log = format!("run| {}\n", redactor.text(intro));
        let mut shown = Vec::new();
        before.write(redactor, &mut log, &mut shown);
        if let Some(after) = after {
            log.push_str(&format!("...| {dropped} bytes left out\n"));
            shown.clear();
            after.write(redactor, &mut log, &mut shown);
        }
        log.push_str(&format!("end| {}\n", redactor.text(outro)));
        Text { log, tail: last_lines(&shown) }
    }
}

/// Whole lines in the order in which they were completed.
struct Lines {
    lines: Vec<(Stream, Vec<u8>)>,
    /// Streams whose last line has no end.
    open: Vec<Stream>,
}

impl Lines {
    fn of<'a>(pieces: impl IntoIterator<Item = &'a Piece>) -> Self {
        let mut lines = Vec::new();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        for piece in pieces {
            let line = match piece.stream {
                Stream::Out => &mut out,
                Stream::Err => &mut err,
            };
            for part in piece.live().split_inclusive(|b| *b == b'\n') {
                line.extend_from_slice(part);
                if line.last() == Some(&b'\n') {
                    line.pop();
                    lines.push((piece.stream, std::mem::take(line)));
                }
            }
        }
        let mut open = Vec::new();
        for (stream, line) in [(Stream::Out, out), (Stream::Err, err)] {
            if !line.is_empty() {
                lines.push((stream, line));
                open.push(stream);
            }
        }
        Self { lines, open }
    }

    /// Moves the stream's unfinished line to where it goes on.
    fn carry(&mut self, stream: Stream, after: &mut Self) {
        if !self.open.contains(&stream) {
            return;
        }
        let Some(at) = self.lines.iter().rposition(|(s, _)| *s == stream) else { return };
        let (_, mut begun) = self.lines.remove(at);
        match after.lines.iter_mut().find(|(s, _)| *s == stream) {
            Some((_, rest)) => {
                begun.append(rest);
                *rest = begun;
            }
            None => after.lines.push((stream, begun)),
        }
    }

    /// Takes the cut word off the stream's last line; how many bytes that were.
    fn cut_end(&mut self, stream: Stream) -> u64 {
        if !self.open.contains(&stream) {
            return 0;
        }
        let Some((_, line)) = self.lines.iter_mut().rev().find(|(s, _)| *s == stream) else { return 0 };
        let word = line.iter().rev().take(CUT_WORD_MAX).position(u8::is_ascii_whitespace);
        let drop = word.unwrap_or(CUT_WORD_MAX).min(line.len());
        line.truncate(line.len().saturating_sub(drop));
        drop as u64
    }

    /// Takes the cut word off the stream's first line; how many bytes that were.
    fn cut_start(&mut self, stream: Stream) -> u64 {
        let Some((_, line)) = self.lines.iter_mut().find(|(s, _)| *s == stream) else { return 0 };
        let word = line.iter().take(CUT_WORD_MAX).position(u8::is_ascii_whitespace);
        let mut drop = word.unwrap_or(CUT_WORD_MAX).min(line.len());
        // Not into the middle of a character.
        while line.get(drop).is_some_and(|b| b & 0xC0 == 0x80) {
            drop = drop.saturating_add(1);
        }
        line.drain(..drop);
        drop as u64
    }

    /// Writes every line with its mark, and plain into `shown`.
    fn write(&self, redactor: &Redactor, log: &mut String, shown: &mut Vec<(Stream, String)>) {
        // Lines of one stream in a row are looked at together: a key may span several.
        for block in self.lines.chunk_by(|a, b| a.0 == b.0) {
            let joined: Vec<u8> = block.iter().map(|(_, l)| l.as_slice()).collect::<Vec<_>>().join(&b'\n');
            let Some((stream, _)) = block.first() else { continue };
            let mark = match stream {
                Stream::Err => "err| ",
                Stream::Out => "out| ",
            };
            for line in redactor.text(&String::from_utf8_lossy(&joined)).split('\n') {
                log.push_str(mark);
                log.push_str(line);
                log.push('\n');
                shown.push((*stream, line.to_owned()));
            }
        }
    }
}

/// The last lines, plain, within bounds. Each stream is there with its own last lines, so that neither
/// can push the other out; lines that are not neighbours have a mark between them.
fn last_lines(lines: &[(Stream, String)]) -> String {
    let mut picked: BTreeMap<usize, String> = BTreeMap::new();
    let mut room = SHOWN_BYTES;
    for (stream, most) in [(Some(Stream::Out), OWN_LINES), (Some(Stream::Err), OWN_LINES), (None, SHOWN_LINES)] {
        let own = |s: Stream| stream.is_none_or(|stream| stream == s);
        let from = lines.iter().enumerate().rev().filter(|(_, (s, _))| own(*s));
        let plain = from.map(|(index, (_, line))| (index, keep_end(&plain_line(line), LINE_MAX)));
        let limit = if stream.is_some() { room.saturating_sub(OWN_BYTES) } else { 0 };
        for (index, line) in plain.skip_while(|(_, line)| line.trim().is_empty()).take(most) {
            if picked.contains_key(&index) {
                continue;
            }
            if picked.len() >= SHOWN_LINES || room.saturating_sub(line.len()) <= limit {
                break;
            }
            room = room.saturating_sub(line.len().saturating_add(1));
            picked.insert(index, line);
        }
    }
    let mut text = String::new();
    let mut last = None;
    for (index, line) in picked {
        if last.is_some_and(|last: usize| last.saturating_add(1) < index) {
            text.push_str("…\n");
        }
        last = Some(index);
        text.push_str(&line);
        text.push('\n');
    }
    text.pop();
    text
}

/// The last bytes of `text`, at most `max` and at a character's start, marked as cut.
pub(super) fn keep_end(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mark = '…';
    let mut from = text.len().saturating_sub(max.saturating_sub(mark.len_utf8()));
    while !text.is_char_boundary(from) {
        from = from.saturating_add(1);
    }
    format!("{mark}{}", text.get(from..).unwrap_or_default())
}

/// One line without escape sequences and control characters; what a carriage return overwrote is gone.
pub(super) fn plain_line(line: &str) -> String {
    let last = line.trim_end_matches('\r').rsplit('\r').next().unwrap_or_default();
    text::strip(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(capture: &Capture) -> Text {
        capture.text(&Redactor::default(), "prog", "exit 0")
    }

    /// Case VF-5: a warning on one stream never hides the failure on the other.
    #[test]
    fn streams_are_interleaved_by_line_and_marked() {
        let mut capture = Capture::default();
        capture.push(Stream::Out, b"test a ... FAI");
        capture.push(Stream::Err, b"warning: old\n");
        capture.push(Stream::Out, b"LED\nlast");
        let text = text(&capture);
        assert_eq!(text.log, "run| prog\nerr| warning: old\nout| test a ... FAILED\nout| last\nend| exit 0\n");
        assert_eq!(text.tail, "warning: old\ntest a ... FAILED\nlast");
    }

    /// Acceptance scenario 7 and case HO-2: the middle is counted, not kept.
    #[test]
    fn only_the_ends_of_a_long_output_are_kept() {
        let mut capture = Capture::default();
        capture.push(Stream::Err, b"begins\n");
        for n in 0..100_000 {
            capture.push(Stream::Out, format!("line number {n}\n").as_bytes());
        }
        capture.push(Stream::Err, b"ends\n");
        let text = text(&capture);
        assert!(text.log.len() < 500_000, "{}", text.log.len());
        assert!(text.log.starts_with("run| prog\nerr| begins\nout| line number 0\n"));
        assert!(text.log.contains("...| "));
        assert!(text.tail.ends_with("line number 99999\nends"), "{}", text.tail);
        assert_eq!(text.tail.lines().count(), SHOWN_LINES);
        capture.push(Stream::Err, "noise\n".repeat(2_000).as_bytes());
        capture.push(Stream::Err, "noise\n".repeat(100_000).as_bytes());
        let noisy = self::text(&capture);
        assert!(noisy.tail.contains("line number 99999\n…\nnoise"), "one stream never hides the other");
        assert!(noisy.log.contains("out| line number 99000\n"));
        assert!(!text.log.contains("number 50000\n"));
    }

    /// Acceptance scenario 8 and case HO-3.
    #[test]
    fn odd_bytes_become_clean_text() {
        let mut capture = Capture::default();
        for byte in "héllo 🦀\n".as_bytes() {
            capture.push(Stream::Out, &[*byte]);
        }
        capture.push(Stream::Out, b"\xff\xfe bad\0nul\n");
        capture.push(Stream::Out, b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07end 10%\r 50%\r100%\r\n");
        let mut long = vec![b'x'; 1 << 20];
        long.extend_from_slice("é\n".as_bytes());
        let short = text(&capture);
        assert_eq!(short.tail, "héllo 🦀\n\u{fffd}\u{fffd} badnul\n100%");
        assert_eq!(plain_line("\u{1b}[1;31mred\u{1b}[0m \u{1b}]0;t\u{1b}\\x \u{1b}(B"), "red x ");
        capture.push(Stream::Out, &long);
        let text = text(&capture);
        assert!(text.tail.len() <= SHOWN_BYTES && text.tail.ends_with("xé"), "{}", text.tail.len());
        assert!(serde_json::to_string(&text.tail).is_ok());
    }

    /// Case SE-2: a secret that the gap cuts, or that stands on both sides of it, is not half shown.
    #[test]
    fn no_half_secret_stands_at_a_gap() {
        for at in 0..16 {
            let mut capture = Capture::default();
            capture.push(Stream::Err, b"err-SECRET");
            capture.push(Stream::Out, &vec![b' '; HEAD_MAX - 10 - at]);
            capture.push(Stream::Out, b"out-SECRET-VALUE");
            capture.push(Stream::Err, b"-VALUE\n");
            capture.push(Stream::Out, &vec![b' '; TAIL_MAX]);
            capture.push(Stream::Out, b"end-SECRET-VALUE");
            capture.push(Stream::Out, &vec![b' '; TAIL_MAX - 7 - at]);
            let log = capture.text(&Redactor::default(), "", "").log;
            assert!(log.contains("err| err-SECRET-VALUE\n"), "whole, where it can be found");
            for half in ["out-S", "SECRET \n", "SECRET\n", "ECRET", "ALUE"] {
                let shown = log.replace("SECRET-VALUE", "");
                assert!(!shown.contains(half), "{half} at {at}: {}", shown.replace(' ', ""));
            }
        }
    }

    #[test]
    fn streams_that_alternate_every_byte_stay_bounded() {
        let mut capture = Capture::default();
        for _ in 0..200_000 {
            capture.push(Stream::Out, b"o");
            capture.push(Stream::Err, b"e");
        }
        assert!(capture.head.len() <= PIECES_MAX && capture.out.pieces.len() <= PIECES_MAX);
        assert!(text(&capture).log.contains("bytes left out"));
    }
}
