//! Everything a command prints goes through here, and nothing else prints.
//!
//! With `--json` standard output carries exactly one document and people's text goes to standard error. Text
//! that may come from an agent is shown without control characters. A reader that went away is no error.

use std::{
    io::{IsTerminal, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use serde_json::{Value, json};

use super::{failure::Failure, table::Table};
use crate::model::Time;

/// Width assumed where the terminal does not tell its own.
const FALLBACK_WIDTH: usize = 100;

/// What the caller asked of the output.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Style {
    /// One JSON document on standard output.
    pub(crate) json: bool,
    /// No notes.
    pub(crate) quiet: bool,
    /// Colours are unwanted.
    pub(crate) plain: bool,
    /// Cells are never cut.
    pub(crate) whole: bool,
}

/// Where a command's words go.
#[derive(Debug)]
pub(crate) struct Out {
    style: Style,
    terminal: bool,
    live_shown: AtomicBool,
}

/// Meaning of a coloured word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    /// Good.
    Good,
    /// Bad.
    Bad,
    /// Neither.
    Dim,
}

impl Out {
    /// Output in this style.
    pub(crate) fn new(style: Style) -> Self {
        let terminal = if style.json { std::io::stderr().is_terminal() } else { std::io::stdout().is_terminal() };
        Self { style, terminal, live_shown: AtomicBool::new(false) }
    }

    /// Whether standard output is one JSON document.
    pub(crate) fn json(&self) -> bool {
        self.style.json
    }

    /// A line for people: standard output, or standard error when that is JSON.
    pub(crate) fn line(&self, text: impl AsRef<str>) {
        self.end_live();
        let text = printable(text.as_ref(), self.terminal);
        self.people(&format!("{text}\n"));
    }

    /// A line of progress; left out with `-q`.
    pub(crate) fn progress(&self, text: impl AsRef<str>) {
        if !self.style.quiet {
            self.line(text);
        }
    }

    /// A remark on standard error; left out with `-q`.
    pub(crate) fn note(&self, text: impl AsRef<str>) {
        if !self.style.quiet {
            self.end_live();
            to_stderr(&format!("{}\n", printable(text.as_ref(), false)));
        }
    }

    /// A line that is replaced by the next one; nothing where there is no terminal.
    pub(crate) fn live(&self, text: &str) {
        if !self.terminal || self.style.quiet {
            return;
        }
        let width = self.width().unwrap_or(FALLBACK_WIDTH).saturating_sub(1);
        let shown: String = printable(text, false).chars().take(width).collect();
        let text = format!("\r\x1b[K{shown}");
        self.people(&text);
        self.live_shown.store(true, Ordering::Relaxed);
    }

    /// The result of a command in its `--json` form; `ok: true` is put in front.
    pub(crate) fn document(&self, value: &Value) {
        if !self.style.json {
            return;
        }
        self.end_live();
        let mut document = json!({ "ok": true });
        match (value, document.as_object_mut()) {
            (Value::Object(fields), Some(object)) => {
                object.extend(fields.iter().map(|(name, value)| (name.clone(), value.clone())));
            }
            (other, Some(object)) => {
                object.insert("result".to_owned(), other.clone());
            }
            (_, None) => {}
        }
        to_stdout(&format!("{document:#}\n"));
    }

    /// Text that is itself the result, byte for byte.
    pub(crate) fn raw(&self, text: &str) {
        to_stdout(text);
    }

    /// A table; `empty` is the sentence for one without rows.
    pub(crate) fn table(&self, table: &Table, empty: &str) {
        if self.style.json {
            return;
        }
        if table.is_empty() {
            self.line(empty);
            return;
        }
        let width = if self.terminal && !self.style.whole { self.width() } else { None };
        for row in table.render(width) {
            self.line(row);
        }
    }

    /// Why a command failed: the error object on standard output, or words on standard error.
    pub(crate) fn failure(&self, failure: &Failure) {
        self.end_live();
        if self.style.json {
            to_stdout(&format!("{:#}\n", failure.document()));
        } else {
            let message = printable(&failure.message, false);
            let advice = failure.advice().map_or(String::new(), |hint| format!("  what to do: {hint}\n"));
            to_stderr(&format!("error: {message}\n{advice}"));
        }
    }

    /// `word` in colour where colours are wanted.
    pub(crate) fn paint(&self, tone: Tone, word: &str) -> String {
        if self.style.plain || !self.terminal {
            return word.to_owned();
        }
        let code = match tone {
            Tone::Good => "32",
            Tone::Bad => "31",
            Tone::Dim => "2",
        };
        format!("\x1b[{code}m{word}\x1b[0m")
    }

    /// An instant: local on a terminal, UTC when piped.
    pub(crate) fn time(&self, at: Time) -> String {
        if !self.terminal {
            return at.to_string();
        }
        match jiff::Timestamp::from_millisecond(at.millis()) {
            Ok(stamp) => {
                stamp.to_zoned_datetime(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string()
            }
            Err(_) => at.to_string(),
        }
    }

    fn width(&self) -> Option<usize> {
        if self.terminal {
            let measured = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
            Some(measured.unwrap_or(FALLBACK_WIDTH))
        } else {
            None
        }
    }

    /// Where text for people goes.
    fn people(&self, text: &str) {
        if self.style.json {
            to_stderr(text);
        } else {
            to_stdout(text);
        }
    }

    fn end_live(&self) {
        if self.live_shown.swap(false, Ordering::Relaxed) {
            self.people("\r\x1b[K");
        }
    }
}

/// Takes control characters out, so that text of an agent cannot steer the terminal. Our own colours stay.
fn printable(text: &str, colours: bool) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if colours && let Some(sequence) = OWN_COLOURS.iter().find(|s| rest.starts_with(**s)) {
            shown.push_str(sequence);
            rest = rest.get(sequence.len()..).unwrap_or_default();
            continue;
        }
        if !c.is_control() || matches!(c, '\n' | '\t') {
            shown.push(c);
        }
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
    }
    shown
}

/// The sequences [`Out::paint`] writes.
const OWN_COLOURS: [&str; 4] = ["\x1b[32m", "\x1b[31m", "\x1b[2m", "\x1b[0m"];

/// Writes and forgets: the only failure that matters, a reader that went away, must not change the exit status.
fn to_stdout(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

fn to_stderr(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_others_are_not_shown() {
        assert_eq!(printable("a\x1b]0;evil\x07b\r\nc\u{9b}d", true), "a]0;evilb\ncd");
        assert_eq!(printable("\x1b[32mok\x1b[0m", true), "\x1b[32mok\x1b[0m");
        assert_eq!(printable("\x1b[32mok\x1b[0m", false), "[32mok[0m");
    }
}
