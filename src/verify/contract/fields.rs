//! Reads the fields of one JSON object and notes what is wrong with each, at its exact path.
//!
//! Knows JSON shapes and ranges, nothing of checks.

use std::{collections::BTreeMap, ops::RangeInclusive};

use serde_json::{Map, Value};

use crate::model::Problem;

/// Longest string anywhere in a contract, in bytes; the operating system takes no longer arguments anyway.
const STRING_MAX: usize = 1 << 20;
/// Most entries of one list of strings or of an environment.
const LIST_MAX: usize = 4096;
/// Characters of an offending value shown back.
const SHOWN_MAX: usize = 48;

/// What a reading found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Reasons to refuse.
    pub problems: Vec<Problem>,
    /// Things the caller should know although the contract stands.
    pub warnings: Vec<Problem>,
}

impl Findings {
    /// Notes a reason to refuse.
    pub(super) fn problem(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem::new(path, message));
    }

    /// Notes something worth knowing.
    pub(super) fn warn(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.warnings.push(Problem::new(path, message));
    }
}

/// One object with its place and the names it may have.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: &'a str,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// The object at `path`, whose fields may be `known`.
    pub(super) fn new(map: &'a Map<String, Value>, path: &'a str, known: &[&'static str]) -> Self {
        Self { map, path, known: known.to_vec() }
    }

    /// Path of the field `name`.
    pub(super) fn at(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// The value of a field; `null` is the same as absent, because many hosts send it for "not given".
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|v| !v.is_null())
    }

    /// Warns about every field that is not known.
    pub(super) fn warn_unknown(&self, found: &mut Findings) {
        for name in self.map.keys().filter(|n| !self.known.contains(&n.as_str())) {
            let squeezed = squeeze(name);
            let hint = match self.known.iter().find(|k| squeeze(k) == squeezed) {
                Some(known) => format!("did you mean '{known}'?"),
                None => format!("known fields are {}", self.known.join(", ")),
            };
            let shown: String = name.chars().take(SHOWN_MAX).collect();
            found.warn(self.at(&shown), format!("unknown field, ignored; {hint}"));
        }
    }

    /// An optional string.
    pub(super) fn text(&self, found: &mut Findings, name: &str) -> Option<String> {
        self.get(name).and_then(|value| text_at(value, self.at(name), found))
    }

    /// A string that must be there and not be empty.
    pub(super) fn need_text(&self, found: &mut Findings, name: &str) -> Option<String> {
        if self.get(name).is_none() {
            found.problem(self.at(name), "missing; give a string");
            return None;
        }
        let text = self.text(found, name)?;
        if text.is_empty() {
            found.problem(self.at(name), "must not be empty");
            return None;
        }
        Some(text)
    }

    /// An optional truth value.
    pub(super) fn flag(&self, found: &mut Findings, name: &str) -> Option<bool> {
        let value = self.get(name)?;
        let flag = value.as_bool();
        if flag.is_none() {
            found.problem(self.at(name), format!("must be true or false, got {}", show(value)));
        }
        flag
    }

    /// An optional whole number inside `range`.
    pub(super) fn number(&self, found: &mut Findings, name: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = self.get(name)?;
        let number = value.as_u64().filter(|n| range.contains(n));
        if number.is_none() {
            let (low, high) = (range.start(), range.end());
            found.problem(self.at(name), format!("must be a whole number from {low} to {high}, got {}", show(value)));
        }
        number
    }

    /// A whole number inside `range` that must be there.
    pub(super) fn need_number(&self, found: &mut Findings, name: &str, range: RangeInclusive<u64>) -> Option<u64> {
        if self.get(name).is_none() {
            let (low, high) = (range.start(), range.end());
            found.problem(self.at(name), format!("missing; give a whole number from {low} to {high}"));
            return None;
        }
        self.number(found, name, range)
    }

    /// An optional list of strings, each with its path.
    pub(super) fn texts(&self, found: &mut Findings, name: &str) -> Vec<(String, String)> {
        let list = match self.get(name) {
            None => return Vec::new(),
            Some(Value::Array(list)) => list,
            Some(other) => {
                found.problem(self.at(name), format!("must be a list of strings, got {}", show(other)));
                return Vec::new();
            }
        };
        if list.len() > LIST_MAX {
            found.problem(self.at(name), format!("has {} entries; the most is {LIST_MAX}", list.len()));
            return Vec::new();
        }
        let each = list.iter().enumerate().filter_map(|(index, value)| {
            let at = format!("{}[{index}]", self.at(name));
            text_at(value, at.clone(), found).map(|text| (at, text))
        });
        each.collect()
    }

    /// An optional object of strings.
    pub(super) fn pairs(&self, found: &mut Findings, name: &str) -> BTreeMap<String, String> {
        let map = match self.get(name) {
            None => return BTreeMap::new(),
            Some(Value::Object(map)) => map,
            Some(other) => {
                found.problem(self.at(name), format!("must be an object of strings, got {}", show(other)));
                return BTreeMap::new();
            }
        };
        if map.len() > LIST_MAX {
            found.problem(self.at(name), format!("has {} entries; the most is {LIST_MAX}", map.len()));
            return BTreeMap::new();
        }
        let mut pairs = BTreeMap::new();
        for (key, value) in map {
            let shown: String = key.chars().take(SHOWN_MAX).collect();
            let at = format!("{}.{shown}", self.at(name));
            if let Some(text) = text_at(value, at, found) {
                pairs.insert(key.clone(), text);
            }
        }
        pairs
    }
}

/// A string that a program's argument, path or variable can hold.
fn text_at(value: &Value, at: String, found: &mut Findings) -> Option<String> {
    let Value::String(text) = value else {
        found.problem(at, format!("must be a string, got {}", show(value)));
        return None;
    };
    if text.len() > STRING_MAX {
        found.problem(at, format!("is {} bytes long; the most is {STRING_MAX}", text.len()));
        return None;
    }
    if text.contains('\0') {
        found.problem(at, "holds a NUL byte, which no argument, path or variable can");
        return None;
    }
    Some(text.clone())
}

/// A value for a message, cut short.
pub(super) fn show(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => {
            let cut: String = text.chars().take(SHOWN_MAX).flat_map(char::escape_debug).collect();
            let more = if text.chars().nth(SHOWN_MAX).is_some() { "…" } else { "" };
            format!("'{cut}{more}'")
        }
    }
}

fn squeeze(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}
