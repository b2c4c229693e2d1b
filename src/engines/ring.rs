//! The last part of a stream, kept while the rest is thrown away.

use std::collections::VecDeque;

/// Bytes of standard error kept of each process; enough for a stack trace.
pub(crate) const STDERR_KEPT: usize = 64 << 10;

/// A byte ring.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    bytes: VecDeque<u8>,
    max: usize,
    dropped: u64,
}

impl Ring {
    /// Keeps the last `max` bytes.
    pub(crate) fn new(max: usize) -> Self {
        Self { bytes: VecDeque::new(), max, dropped: 0 }
    }

    /// Adds bytes, dropping the oldest.
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        let keep = chunk.get(chunk.len().saturating_sub(self.max)..).unwrap_or_default();
        let over = (self.bytes.len() + keep.len()).saturating_sub(self.max);
        self.bytes.drain(..over);
        self.bytes.extend(keep);
        self.dropped += (over + chunk.len() - keep.len()) as u64;
    }

    /// What is kept. Once something was dropped the text starts at a line: a secret cut in half at the
    /// edge could not be recognised any more.
    pub(crate) fn text(&self) -> String {
        let bytes: Vec<u8> = self.bytes.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        if self.dropped == 0 {
            return text.into_owned();
        }
        text.split_once('\n').map_or_else(String::new, |(_, rest)| rest.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::Ring;

    #[test]
    fn the_end_is_kept_from_a_whole_line_on() {
        let mut ring = Ring::new(10);
        ring.push(b"abc\n");
        assert_eq!(ring.text(), "abc\n");
        ring.push(b"secret\nend");
        assert_eq!(ring.text(), "end");
        ring.push(&[b'x'; 4096]);
        assert_eq!(ring.text(), "");
        assert!(ring.bytes.len() <= 10);
    }
}
