//! Reads one JSON object field by field, remembers which were asked for, and reports the rest.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::model::Problem;

/// Longest string anywhere in a spec, in bytes.
pub const STRING_MAX: usize = 1 << 20;
/// How a refusal of something that a later version brings begins; decides the error code.
pub const NOT_YET: &str = "not available yet";

/// An object under examination.
#[derive(Debug)]
pub struct Fields<'v> {
    path: String,
    map: &'v Map<String, Value>,
    seen: BTreeSet<&'static str>,
}

/// The word for a value's type in messages.
pub(super) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

impl<'v> Fields<'v> {
    /// Begins with the object at `path`; anything else is a problem.
    pub fn of(value: &'v Value, path: impl Into<String>, out: &mut Vec<Problem>) -> Option<Self> {
        let path = path.into();
        match value.as_object() {
            Some(map) => Some(Self { path, map, seen: BTreeSet::new() }),
            None => {
                out.push(Problem::new(path, format!("expected an object, found {}", type_of(value))));
                None
            }
        }
    }

    /// Path of a field.
    pub fn at(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Path of the object.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The raw value; null counts as absent.
    pub fn raw(&mut self, key: &'static str) -> Option<&'v Value> {
        self.seen.insert(key);
        self.map.get(key).filter(|v| !v.is_null())
    }

    /// A problem at a field.
    pub fn problem(&self, key: &str, message: impl Into<String>, out: &mut Vec<Problem>) {
        out.push(Problem::new(self.at(key), message));
    }

    /// A string of at most [`STRING_MAX`] bytes.
    pub fn string(&mut self, key: &'static str, out: &mut Vec<Problem>) -> Option<String> {
        let value = self.raw(key)?;
        match value {
            Value::String(text) if text.len() > STRING_MAX => {
                self.problem(key, format!("longer than {STRING_MAX} bytes"), out);
                None
            }
            Value::String(text) if text.contains('\0') => {
                self.problem(key, "contains a NUL character", out);
                None
            }
            Value::String(text) => Some(text.clone()),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                self.problem(key, format!("expected a string, found {}", type_of(other)), out);
                None
            }
        }
    }

    /// A string that must be there and not be blank.
    pub fn required(&mut self, key: &'static str, out: &mut Vec<Problem>) -> Option<String> {
        if self.raw(key).is_none() {
            self.problem(key, "missing; give a non-empty string", out);
            return None;
        }
        let text = self.string(key, out)?;
        if text.trim().is_empty() {
            self.problem(key, "empty; give a non-empty string", out);
            return None;
        }
        Some(text)
    }

    /// A whole number between `min` and `max`.
    pub fn integer(&mut self, key: &'static str, min: u64, max: u64, out: &mut Vec<Problem>) -> Option<u64> {
        let value = self.raw(key)?;
        match value.as_u64() {
            Some(n) if (min..=max).contains(&n) => Some(n),
            _ => {
                let found = if value.is_number() { value.to_string() } else { type_of(value).to_owned() };
                self.problem(key, format!("expected a whole number from {min} to {max}, found {found}"), out);
                None
            }
        }
    }

    /// A number above zero.
    pub fn positive(&mut self, key: &'static str, out: &mut Vec<Problem>) -> Option<f64> {
        let value = self.raw(key)?;
        match value.as_f64() {
            Some(n) if n > 0.0 && n.is_finite() => Some(n),
            _ => {
                let found = if value.is_number() { value.to_string() } else { type_of(value).to_owned() };
                self.problem(key, format!("expected a number above 0, found {found}"), out);
                None
            }
        }
    }

    /// A boolean.
    pub fn boolean(&mut self, key: &'static str, out: &mut Vec<Problem>) -> Option<bool> {
        let value = self.raw(key)?;
        if value.as_bool().is_none() {
            self.problem(key, format!("expected true or false, found {}", type_of(value)), out);
        }
        value.as_bool()
    }

    /// One of `words`.
    pub fn word(&mut self, key: &'static str, words: &[&'static str], out: &mut Vec<Problem>) -> Option<&'static str> {
        let text = self.string(key, out)?;
        let found = words.iter().find(|w| **w == text).copied();
        if found.is_none() {
            self.problem(key, format!("unknown value '{}'; use one of {}", shown(&text), words.join(", ")), out);
        }
        found
    }

    /// A list; the values with their paths.
    pub fn list(&mut self, key: &'static str, out: &mut Vec<Problem>) -> Option<Vec<(String, &'v Value)>> {
        let value = self.raw(key)?;
        match value.as_array() {
            Some(items) => {
                let base = self.at(key);
                Some(items.iter().enumerate().map(|(i, v)| (format!("{base}[{i}]"), v)).collect())
            }
            None => {
                self.problem(key, format!("expected a list, found {}", type_of(value)), out);
                None
            }
        }
    }

    /// A field that a later version brings: only its neutral values are taken.
    pub fn later(&mut self, key: &'static str, neutral: &[Value], out: &mut Vec<Problem>) {
        if let Some(value) = self.raw(key)
            && !neutral.contains(value)
        {
            self.problem(key, format!("{NOT_YET}; leave it out"), out);
        }
    }

    /// Reports every field that nobody asked for.
    pub fn finish(self, out: &mut Vec<Problem>) {
        for key in self.map.keys() {
            if !self.seen.contains(key.as_str()) {
                out.push(Problem::new(self.at(&shown(key)), "unknown field"));
            }
        }
    }
}

/// `text` cut for a message.
pub(super) fn shown(text: &str) -> String {
    let mut cut: String = text.chars().take(80).flat_map(char::escape_default).collect();
    if text.chars().count() > 80 {
        cut.push('…');
    }
    cut
}
