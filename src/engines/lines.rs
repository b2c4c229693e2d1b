//! Lines out of a pipe, each with a bound: one gigantic line costs neither memory nor the turn.
//!
//! Knows nothing of what the lines mean.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// Longest line that is kept. An agent that writes a whole file puts it on one line, and a reply of 20 MB with all
/// its quotes and newlines escaped must still fit, so this is generous.
pub const MAX_LINE: usize = 32 << 20;
/// Bytes kept of the beginning of a longer one: enough to see what kind of line it was.
pub const HEAD: usize = 64;

/// Bytes read at once.
const CHUNK: usize = 64 << 10;

/// One line, without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// The bytes as they came; they need not be UTF-8.
    Text(Vec<u8>),
    /// Was too long and is gone.
    Skipped {
        /// How long it was.
        bytes: u64,
        /// Its first bytes, at most [`HEAD`].
        head: Vec<u8>,
    },
}

/// Reads lines. A call of [`next`](Self::next) that is dropped loses nothing.
#[derive(Debug)]
pub struct LineReader<R> {
    inner: BufReader<R>,
    max: usize,
    line: Vec<u8>,
    /// Length so far of a line that is being skipped; then `line` holds only its first bytes.
    skipping: Option<u64>,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    /// Lines of `inner`, each at most `max` bytes.
    pub fn new(inner: R, max: usize) -> Self {
        Self { inner: BufReader::with_capacity(CHUNK, inner), max, line: Vec::new(), skipping: None }
    }

    /// The next line; `None` at the end. A last line without an end counts.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let available = self.inner.fill_buf().await?;
            if available.is_empty() {
                return Ok(self.rest());
            }
            let end = available.iter().position(|b| *b == b'\n');
            let part = available.get(..end.unwrap_or(available.len())).unwrap_or_default();
            match &mut self.skipping {
                Some(bytes) => *bytes += part.len() as u64,
                None if self.line.len() + part.len() > self.max => {
                    self.skipping = Some((self.line.len() + part.len()) as u64);
                    self.line = self.line.iter().chain(part).take(HEAD).copied().collect();
                }
                None => self.line.extend_from_slice(part),
            }
            let used = part.len() + usize::from(end.is_some());
            self.inner.consume(used);
            if end.is_some() {
                return Ok(Some(self.take()));
            }
        }
    }

    fn rest(&mut self) -> Option<Line> {
        if self.line.is_empty() && self.skipping.is_none() { None } else { Some(self.take()) }
    }

    fn take(&mut self) -> Line {
        match self.skipping.take() {
            Some(bytes) => Line::Skipped { bytes, head: std::mem::take(&mut self.line) },
            None => {
                let mut line = std::mem::take(&mut self.line);
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                Line::Text(line)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(bytes: &[u8], max: usize) -> Vec<Line> {
        let mut reader = LineReader::new(bytes, max);
        let mut lines = Vec::new();
        while let Some(line) = reader.next().await.unwrap() {
            lines.push(line);
        }
        lines
    }

    fn text(s: &[u8]) -> Line {
        Line::Text(s.to_vec())
    }

    /// HO-1, HO-3: too long is skipped and counted, everything else comes out byte for byte.
    #[tokio::test]
    async fn lines_keep_their_bytes_and_their_bound() {
        let got = all(b"one\r\n\n\xff\0\x1b[1m\nabcdefgh\nabcdefghi\nlast", 8).await;
        let want = [
            text(b"one"),
            text(b""),
            text(b"\xff\0\x1b[1m"),
            text(b"abcdefgh"),
            Line::Skipped { bytes: 9, head: b"abcdefghi".to_vec() },
            text(b"last"),
        ];
        assert_eq!(got, want);
        assert_eq!(all(b"123456789", 8).await, [Line::Skipped { bytes: 9, head: b"123456789".to_vec() }]);
        assert_eq!(all(b"", 8).await, []);
    }

    /// HO-1: a line of 80 MiB never has more than the bound in memory; the line after it is whole.
    #[tokio::test]
    async fn a_gigantic_line_is_passed_over() {
        let (mut write, read) = tokio::io::duplex(CHUNK);
        let feed = crate::sys::tasks::spawn("feed", async move {
            use tokio::io::AsyncWriteExt;
            let chunk = vec![b'x'; 1 << 20];
            for _ in 0..80 {
                write.write_all(&chunk).await.unwrap();
            }
            write.write_all("\nnäch".as_bytes()).await.unwrap();
            write.write_all("ste\n".as_bytes()).await.unwrap();
        });
        let mut reader = LineReader::new(read, MAX_LINE);
        assert_eq!(reader.next().await.unwrap(), Some(Line::Skipped { bytes: 80 << 20, head: vec![b'x'; HEAD] }));
        assert!(reader.line.capacity() <= HEAD, "nothing of it stays");
        assert_eq!(reader.next().await.unwrap(), Some(text("nächste".as_bytes())));
        assert_eq!(reader.next().await.unwrap(), None);
        feed.await.unwrap();
    }

    /// HO-3: a reader that is given up in the middle of a character goes on where it was.
    #[tokio::test]
    async fn giving_up_a_read_loses_nothing() {
        let (mut write, read) = tokio::io::duplex(16);
        let mut reader = LineReader::new(read, MAX_LINE);
        for byte in "é€😀\n".as_bytes() {
            use tokio::io::AsyncWriteExt;
            write.write_all(&[*byte]).await.unwrap();
            let poll = tokio::time::timeout(std::time::Duration::from_millis(5), reader.next()).await;
            if *byte == b'\n' {
                assert_eq!(poll.unwrap().unwrap(), Some(text("é€😀".as_bytes())));
            } else {
                assert!(poll.is_err());
            }
        }
    }
}
