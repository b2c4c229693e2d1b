//! Takes secrets out of text before it is stored, logged or answered.
//!
//! The one choke point: known secret values and common key shapes, chunk by chunk or whole. Time is linear in
//! the text. The mask is always the same, and masking twice changes nothing.

mod shapes;
mod stream;

use std::{fmt, sync::Arc};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use regex::bytes::{Regex, RegexBuilder};

pub use stream::StreamRedactor;

/// What stands in place of a secret.
pub const MASK: &str = "[redacted]";

/// Shorter values are not looked for: they would hide ordinary text.
const MIN_VALUE: usize = 6;

/// Longer values are looked for by their beginning.
const MAX_VALUE: usize = 4096;

/// Lines of a value of several lines are looked for one by one from this length on.
const MIN_LINE: usize = 12;

/// Most memory for the values' automaton; beyond it each value is looked for by itself.
const MAX_AUTOMATON: usize = 32 << 20;

/// Knows what must not be shown.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Known values, several together.
    values: Arc<Vec<Regex>>,
    /// Length of the longest form of a value.
    longest: usize,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The patterns are the secrets.
        f.debug_struct("Redactor").finish_non_exhaustive()
    }
}

impl Redactor {
    /// Hides `values` (those of at least 6 bytes, and their base64 forms) and every common key shape.
    pub fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut forms: Vec<String> = values.into_iter().flat_map(|value| forms(&value)).collect();
        // The first alternative wins, so the longer of two values with one beginning comes first.
        forms.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        forms.dedup();
        let longest = forms.first().map_or(0, String::len);
        let escaped: Vec<String> = forms.iter().map(|form| regex::escape(form)).collect();
        let build = |pattern: &str| RegexBuilder::new(pattern).unicode(false).size_limit(MAX_AUTOMATON).build();
        let values = match build(&escaped.join("|")) {
            _ if escaped.is_empty() => Vec::new(),
            Ok(all) => vec![all],
            Err(_) => escaped.iter().filter_map(|one| build(one).ok()).collect(),
        };
        Self { values: Arc::new(values), longest }
    }

    /// `text` with every secret replaced by `[redacted]`.
    pub fn text(&self, text: &str) -> String {
        // Matches begin and end at ASCII bytes or whole values, so this stays valid.
        String::from_utf8(self.bytes(text.as_bytes()))
            .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
    }

    /// The same for bytes that need not be text.
    pub fn bytes(&self, bytes: &[u8]) -> Vec<u8> {
        shapes::mask(&self.known(bytes))
    }

    /// Every string inside a JSON value, names of members included.
    pub fn json(&self, value: &mut serde_json::Value) {
        use serde_json::Value;
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.json(item)),
            Value::Object(members) => {
                for (name, mut member) in std::mem::take(members) {
                    // A name such as `api_key` gives its value away.
                    match &member {
                        Value::String(text) if text.len() >= MIN_VALUE && shapes::names_secret(&name) => {
                            member = Value::String(MASK.to_owned());
                        }
                        _ => self.json(&mut member),
                    }
                    members.insert(self.text(&name), member);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// A redactor for one stream.
    pub fn stream(&self) -> StreamRedactor {
        StreamRedactor::new(self.clone())
    }

    /// Where something would be masked.
    fn spans(&self, bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
        let known = self.values.iter().flat_map(|values| values.find_iter(bytes).map(|found| found.range()));
        known.chain(shapes::spans(bytes)).collect()
    }

    fn known(&self, bytes: &[u8]) -> Vec<u8> {
        let mut masked = bytes.to_vec();
        for values in self.values.iter() {
            if let std::borrow::Cow::Owned(changed) = values.replace_all(&masked, MASK.as_bytes()) {
                masked = changed;
            }
        }
        masked
    }
}

/// Everything that a value may look like.
fn forms(value: &str) -> Vec<String> {
    let value = value.trim();
    let mut parts = vec![value];
    if value.contains('\n') {
        parts.extend(value.lines().map(str::trim).filter(|line| line.len() >= MIN_LINE));
    }
    // Text that is part of the mask would be found in its own mask again.
    parts.retain(|part| part.len() >= MIN_VALUE && !MASK.contains(part));
    let mut forms = Vec::new();
    for part in parts {
        let start = part.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= MAX_VALUE).last();
        let part = part.get(..start.unwrap_or_default()).unwrap_or_default();
        forms.push(part.to_owned());
        // As JSON writes it.
        if let Ok(quoted) = serde_json::to_string(part) {
            forms.extend(quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).map(str::to_owned));
        }
        // Inside other data the value starts at one of three places of a base64 group; only characters that
        // it alone decides are looked for.
        for (before, skip) in [(0, 0), (1, 2), (2, 3)] {
            let mut data = vec![0; before];
            data.extend_from_slice(part.as_bytes());
            let sure = data.len() * 8 / 6;
            for coded in [STANDARD_NO_PAD.encode(&data), URL_SAFE_NO_PAD.encode(&data)] {
                forms.extend(coded.get(skip..sure).filter(|form| form.len() >= MIN_VALUE).map(str::to_owned));
            }
        }
    }
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANARY: &str = "c4n4ry/va+lue-42?";

    #[test]
    fn known_values_are_hidden_in_every_form() {
        // SE-1, SE-2: raw, inside JSON, base64 at any place of other data.
        let redactor =
            Redactor::new([CANARY.to_owned(), "short".to_owned(), "line one of it\nline two of it".to_owned()]);
        assert_eq!(redactor.text(&format!("a{CANARY}b short")), "a[redacted]b short");
        assert_eq!(redactor.text("  line two of it!"), "  [redacted]!");
        assert_eq!(redactor.text(r"x line one of it\nline two of it y"), "x [redacted] y");
        for before in 0..4 {
            for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
                let data = format!("{}{CANARY}{}", "ä".repeat(before) + &"p".repeat(before), "tail");
                let coded = engine.encode(&data);
                let shown = redactor.text(&coded);
                assert!(shown.contains(MASK), "{before} {coded} {shown}");
                let left: Vec<u8> = shown.split(MASK).flat_map(|part| part.bytes()).collect();
                assert!(left.len() < coded.len() - CANARY.len());
            }
        }
        assert!(!format!("{redactor:?}").contains("c4n4ry"));
        // Stable: once more changes nothing, also when a value is a piece of the mask.
        let odd = Redactor::new(["redacted".to_owned(), CANARY.to_owned()]);
        let once = odd.text(&format!("token={CANARY} {CANARY}"));
        assert_eq!(odd.text(&once), once);
    }

    #[test]
    fn json_is_hidden_inside() {
        let redactor = Redactor::new([CANARY.to_owned()]);
        let mut value = serde_json::json!({
            "text": format!("x {CANARY}"), "list": [CANARY, 1, null], CANARY: true,
            "api_key": "not known to anybody", "apiKeyCount": 3, "tokens": "many of them"
        });
        redactor.json(&mut value);
        let expected = serde_json::json!({
            "text": "x [redacted]", "list": ["[redacted]", 1, null], "[redacted]": true,
            "api_key": "[redacted]", "apiKeyCount": 3, "tokens": "many of them"
        });
        assert_eq!(value, expected);
    }

    #[test]
    fn many_and_huge_values_are_no_problem() {
        let values: Vec<String> = (0..60).map(|n| format!("value-{n:04}-{}", "xyz".repeat(n * 8))).collect();
        let redactor = Redactor::new(values.clone());
        for value in &values {
            let shown = redactor.text(&format!("<{value}>"));
            assert!(shown.starts_with("<[redacted]") && !shown.contains("value-"), "{shown}");
        }
    }
}
