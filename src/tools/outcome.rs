//! What a tool answers: a structured object and a short text, or an error object.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::{kernel::Error, model::Code};

/// Answer of a tool.
pub type Outcome = Result<ToolResult, Error>;

/// Longest structured result in bytes: about 20 000 tokens, below every host's cap.
pub const RESULT_MAX: usize = 60_000;

/// A successful answer.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// `{ "ok": ..., ... }`.
    pub structured: Map<String, Value>,
    /// What happened and what to call next.
    pub text: String,
    /// Pictures and links beside it.
    pub attachments: Vec<Attachment>,
}

/// Something beside the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attachment {
    /// A PNG.
    Png {
        /// File name.
        name: String,
        /// Contents.
        bytes: Vec<u8>,
    },
    /// A resource with more.
    Link {
        /// Address.
        uri: String,
        /// Short name.
        name: String,
        /// Media type.
        mime: &'static str,
    },
}

impl ToolResult {
    /// `view` as an object with `ok: true` in front of it. A view that has its own `ok` keeps it.
    pub fn new(view: &impl Serialize, text: impl Into<String>) -> Result<Self, Error> {
        let mut structured = Map::new();
        structured.insert("ok".to_owned(), Value::Bool(true));
        structured.extend(object(view)?);
        Ok(Self { structured, text: text.into(), attachments: Vec::new() })
    }

    /// With one more field.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.structured.insert(name.to_owned(), value.into());
        self
    }

    /// With a link to a resource.
    #[must_use]
    pub fn link(mut self, uri: String, name: &str, mime: &'static str) -> Self {
        self.attachments.push(Attachment::Link { uri, name: name.to_owned(), mime });
        self
    }
}

/// A serialisable struct as an object.
pub fn object(view: &impl Serialize) -> Result<Map<String, Value>, Error> {
    match serde_json::to_value(view) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(Error::new(Code::Internal, "a result is not an object")),
        Err(e) => Err(Error::new(Code::Internal, format!("a result could not be written: {e}"))),
    }
}

/// The error object of every surface.
pub fn error_object(error: &Error) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("ok".to_owned(), json!(false));
    map.insert("code".to_owned(), json!(error.code.as_str()));
    map.insert("error".to_owned(), json!(sentence(error)));
    if let Some(details) = &error.details {
        // Output schemas promise an object here.
        let details = if details.is_object() { details.clone() } else { json!({ "value": details }) };
        map.insert("details".to_owned(), details);
    }
    map
}

/// What was wrong and what to do, in one sentence; the same words on every surface.
fn sentence(error: &Error) -> String {
    let hint = error.code.hint();
    if error.message.contains(hint) {
        return error.message.clone();
    }
    format!("{}; {hint}", error.message.trim_end_matches('.'))
}

/// The error as one text: what was wrong, what to do next.
pub fn error_text(error: &Error) -> String {
    let hint = error.code.hint();
    // Some messages end with the hint themselves; nobody needs it twice.
    let what = error.message.trim_end_matches('.').trim_end_matches(hint).trim_end_matches([';', ' ']);
    format!("{what} ({}). Next: {hint}.", error.code)
}

/// A number with its noun: `1 run`, `2 runs`.
pub fn counted(number: impl TryInto<u64>, one: &str) -> String {
    let number = number.try_into().unwrap_or(u64::MAX);
    let ending = if one.ends_with('s') { "es" } else { "s" };
    if number == 1 { format!("1 {one}") } else { format!("{number} {one}{ending}") }
}

/// Bytes of a value on the wire.
pub fn wire_len(value: &impl Serialize) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |v| v.len())
}

/// The last `max` bytes of a text at a character boundary, with a mark in front when something was cut.
pub fn tail(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut start = text.len() - max;
    while !text.is_char_boundary(start) {
        start += 1;
    }
    format!("[{start} bytes cut]\n{}", text.get(start..).unwrap_or_default())
}

/// The first `max` bytes of a text at a character boundary, with a mark behind when something was cut.
pub fn head(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut end = max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…[{} bytes cut]", text.get(..end).unwrap_or_default(), text.len() - end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_follow_their_numbers() {
        let said = [counted(0_u64, "run"), counted(1_usize, "run"), counted(2_u32, "repair pass")];
        assert_eq!(said, ["0 runs", "1 run", "2 repair passes"]);
    }

    #[test]
    fn cuts_keep_whole_characters() {
        assert_eq!(tail("ééé", 3), "[4 bytes cut]\né");
        assert_eq!(head("ééé", 3), "é…[4 bytes cut]");
        assert_eq!(head("abc", 3), "abc");
    }

    #[test]
    fn an_error_says_what_to_do() {
        let e = Error::new(Code::RunNotFound, "there is no run 'x'.");
        assert!(error_text(&e).starts_with("there is no run 'x' (run_not_found). Next: "));
        assert_eq!(
            Value::Object(error_object(&e)),
            json!({"ok": false, "code": "run_not_found", "error": "there is no run 'x'; list the runs to find the id"})
        );
    }
}
