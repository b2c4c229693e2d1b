//! Reads a caller's arguments against the tool's own schema.
//!
//! Lenient where models and hosts are sloppy (`"3"`, `3.0`, `"true"`, null for nothing, an object written as
//! a JSON string), strict where it matters: unknown arguments are refused by name and every complaint names
//! its field. Only the arguments themselves are read leniently; what is inside a spec or contract goes
//! to its own validation as it came.

use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value, json};

use super::schema::Object;
use crate::{
    kernel::Error,
    model::{Code, Problem},
};

/// Longest text anywhere in the arguments, in bytes. Longer ones are mistakes or attacks.
pub const STRING_MAX: usize = 1 << 20;
/// Most problems reported at once; one bad caller should not get megabytes back.
const PROBLEMS_MAX: usize = 20;
/// Longest part of a caller's name or value that is repeated in an error.
const SHOWN_MAX: usize = 64;
/// Largest whole number a JSON float holds exactly.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Arguments of a tool call as the tool's type, or one error that names every field in question.
pub fn read<A: DeserializeOwned>(schema: &Object, raw: Map<String, Value>) -> Result<A, Error> {
    let (args, mut problems) = coerced(schema, raw);
    if let Some(Value::Array(required)) = schema.get("required") {
        for name in required.iter().filter_map(Value::as_str) {
            if !args.contains_key(name) && !problems.names(name) {
                problems.add(name, "is required".to_owned());
            }
        }
    }
    problems.into_result()?;
    serde_json::from_value(Value::Object(args))
        .map_err(|e| Error::new(Code::InvalidArgument, format!("the arguments do not fit: {e}")))
}

/// The arguments that can be read, and what is wrong with the others, for a tool that looks deeper before it refuses.
pub fn gather(schema: &Object, raw: Map<String, Value>) -> (Map<String, Value>, Vec<Problem>) {
    let (args, problems) = coerced(schema, raw);
    let problems = problems.0.into_iter().take(PROBLEMS_MAX).map(|(_, path, why)| Problem::new(path, why));
    (args, problems.collect())
}

/// The arguments as the schema wants them, without those that are not.
fn coerced(schema: &Object, raw: Map<String, Value>) -> (Map<String, Value>, Problems) {
    let empty = Object::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    let mut problems = Problems::default();
    let mut args = Map::new();
    for (name, value) in raw {
        let Some(rule) = properties.get(&name) else {
            let known: Vec<&str> = properties.keys().map(String::as_str).collect();
            problems.add(&shown(&name), format!("unknown argument; this tool takes {}", known.join(", ")));
            continue;
        };
        // Before anything else, so that a huge value is never copied into a message.
        if value.is_null() {
            continue;
        }
        match coerce(rule, value) {
            Ok(value) => match overlong(&value, &name) {
                None => {
                    args.insert(name, value);
                }
                Some((path, bytes)) => {
                    problems.add(&path, format!("is {bytes} bytes long, at most {STRING_MAX} are taken"));
                }
            },
            Err(problem) => problems.add(&name, problem),
        }
    }
    (args, problems)
}

/// One invalid argument.
pub fn invalid(field: &str, problem: impl Into<String>) -> Error {
    let mut problems = Problems::default();
    problems.add(field, problem);
    problems.into_error()
}

/// Checks the id of a run before anything else is done with it.
pub fn run_id(field: &str, text: &str) -> Result<crate::model::RunId, Error> {
    crate::model::RunId::parse(text).map_err(|e| invalid(field, e.to_string()))
}

/// Checks the name of an evidence bundle or node: words of letters, digits, `.`, `_`, `-`.
pub fn word(field: &str, text: &str) -> Result<(), Error> {
    let good = !text.is_empty()
        && text.len() <= 128
        && !text.starts_with('.')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    if good {
        Ok(())
    } else {
        Err(invalid(field, format!("'{}' is not a name; use letters, digits, '.', '_' and '-'", shown(text))))
    }
}

/// A caller's text made short and printable for a message.
pub fn shown(text: &str) -> String {
    let mut out: String = text.chars().take(SHOWN_MAX).flat_map(char::escape_default).collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        out.push('…');
    }
    out
}

/// What is wrong with arguments, each with its path and the code it has when nothing else is wrong.
#[derive(Debug, Default)]
pub struct Problems(Vec<(Code, String, String)>);

impl From<Vec<Problem>> for Problems {
    fn from(problems: Vec<Problem>) -> Self {
        Self(problems.into_iter().map(|p| (Code::InvalidArgument, p.path, p.message)).collect())
    }
}

impl Problems {
    /// Something wrong at `path`.
    pub fn add(&mut self, path: &str, problem: impl Into<String>) {
        self.say(Code::InvalidArgument, path, problem);
    }

    /// The same with a code of its own.
    pub fn say(&mut self, code: Code, path: &str, problem: impl Into<String>) {
        self.0.push((code, path.to_owned(), problem.into()));
    }

    /// Whether something is wrong at `path` or below it.
    pub fn names(&self, path: &str) -> bool {
        let below = |p: &str| p.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
        self.0.iter().any(|(_, p, _)| below(p))
    }

    /// Nothing, or all of it as one error.
    pub fn into_result(self) -> Result<(), Error> {
        if self.0.is_empty() { Ok(()) } else { Err(self.into_error()) }
    }

    fn into_error(mut self) -> Error {
        let mut codes = self.0.iter().map(|(code, _, _)| *code);
        let first = codes.next().unwrap_or(Code::InvalidArgument);
        let code = if codes.all(|code| code == first) { first } else { Code::InvalidArgument };
        let more = self.0.len().saturating_sub(PROBLEMS_MAX);
        self.0.truncate(PROBLEMS_MAX);
        let mut list: Vec<String> = self.0.iter().map(|(_, path, problem)| format!("{path}: {problem}")).collect();
        if more > 0 {
            list.push(format!("and {more} more"));
        }
        let fields: Vec<Value> =
            self.0.iter().map(|(_, path, problem)| json!({ "path": path, "problem": problem })).collect();
        Error { code, message: list.join("; "), details: Some(json!({ "fields": fields })) }
    }
}

/// Path and length of the first text that is too long.
fn overlong(value: &Value, path: &str) -> Option<(String, usize)> {
    match value {
        Value::String(text) => (text.len() > STRING_MAX).then(|| (path.to_owned(), text.len())),
        Value::Array(items) => items.iter().enumerate().find_map(|(i, v)| overlong(v, &format!("{path}[{i}]"))),
        Value::Object(map) => map.iter().find_map(|(key, v)| {
            let inner = format!("{path}.{}", shown(key));
            if key.len() > STRING_MAX { Some((inner, key.len())) } else { overlong(v, &inner) }
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// The value as the schema wants it, or what is wrong with it.
fn coerce(rule: &Value, value: Value) -> Result<Value, String> {
    let kind = rule.get("type").and_then(Value::as_str).unwrap_or("object");
    let value = match (kind, value) {
        ("string", Value::String(text)) => return string(rule, text),
        // The JSON of something may be given as it is.
        ("string", value @ Value::Object(_)) if rule.get("contentMediaType").is_some() => {
            return Ok(Value::String(value.to_string()));
        }
        ("boolean", Value::Bool(b)) => return Ok(Value::Bool(b)),
        ("boolean", Value::String(text)) => {
            return match text.trim().to_ascii_lowercase().as_str() {
                "true" => Ok(Value::Bool(true)),
                "false" => Ok(Value::Bool(false)),
                _ => Err(format!("must be true or false, not '{}'", shown(&text))),
            };
        }
        ("integer", Value::Number(n)) => return integer(rule, &n),
        ("number", Value::Number(n)) => return number(rule, n),
        ("integer", Value::String(text)) => {
            return match text.trim().parse::<Number>() {
                Ok(n) => integer(rule, &n),
                Err(_) => Err(format!("must be a whole number, not '{}'", shown(&text))),
            };
        }
        ("number", Value::String(text)) => {
            return match text.trim().parse::<Number>() {
                Ok(n) => number(rule, n),
                Err(_) => Err(format!("must be a number, not '{}'", shown(&text))),
            };
        }
        ("object", Value::Object(map)) => return Ok(Value::Object(map)),
        ("array", Value::Array(items)) => return array(rule, items),
        ("object" | "array", Value::String(text)) => match serde_json::from_str::<Value>(&text) {
            Ok(Value::Object(map)) if kind == "object" => return Ok(Value::Object(map)),
            Ok(Value::Array(items)) if kind == "array" => return array(rule, items),
            Ok(other) => other,
            Err(e) => return Err(format!("must be {} or the JSON text of one: {e}", a(kind))),
        },
        (_, other) => other,
    };
    Err(format!("must be {}, not {}", a(kind), a(kind_of(&value))))
}

fn a(kind: &str) -> &'static str {
    match kind {
        "string" => "a text",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "array" => "a list",
        "null" => "null",
        _ => "an object",
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn string(rule: &Value, text: String) -> Result<Value, String> {
    if let Some(Value::Array(words)) = rule.get("enum")
        && !words.iter().any(|w| w == &text)
    {
        let list: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        return Err(format!("must be one of {}, not '{}'", list.join(", "), shown(&text)));
    }
    if let Some(least) = rule.get("minLength").and_then(Value::as_u64)
        && (text.chars().count() as u64) < least
    {
        return Err("must not be empty".to_owned());
    }
    if let Some(most) = rule.get("maxLength").and_then(Value::as_u64)
        && text.len() as u64 > most
    {
        return Err(format!("is {} bytes long, at most {most} are taken", text.len()));
    }
    Ok(Value::String(text))
}

fn integer(rule: &Value, n: &Number) -> Result<Value, String> {
    let whole = if n.is_i64() || n.is_u64() {
        n.clone()
    } else {
        match n.as_f64() {
            // Bounded above, so that the conversion is exact.
            Some(f) if f.fract() == 0.0 && f.abs() < EXACT_MAX => Number::from(f as i64),
            _ => return Err(format!("must be a whole number, not {n}")),
        }
    };
    number(rule, whole)
}

fn number(rule: &Value, n: Number) -> Result<Value, String> {
    let value = n.as_f64().unwrap_or(f64::NAN);
    let least = rule.get("minimum").and_then(Value::as_f64);
    let most = rule.get("maximum").and_then(Value::as_f64);
    if !value.is_finite() || least.is_some_and(|l| value < l) || most.is_some_and(|m| value > m) {
        return Err(match (least, most) {
            (Some(l), Some(m)) => format!("must be from {l} to {m}, not {n}"),
            (Some(l), None) => format!("must be at least {l}, not {n}"),
            (None, Some(m)) => format!("must be at most {m}, not {n}"),
            (None, None) => format!("must be a finite number, not {n}"),
        });
    }
    Ok(Value::Number(n))
}

/// Lists of texts are checked here; lists of objects have their own validation.
fn array(rule: &Value, items: Vec<Value>) -> Result<Value, String> {
    let texts = rule.pointer("/items/type").is_some_and(|t| t == "string");
    match items.iter().position(|v| texts && !v.is_string()) {
        Some(i) => Err(format!("entry {i} must be a text")),
        None => Ok(Value::Array(items)),
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;

    use super::*;
    use crate::tools::schema;

    #[derive(Debug, Deserialize, JsonSchema, PartialEq)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    struct Args {
        /// Id.
        run_id: String,
        /// Count.
        #[serde(default)]
        #[schemars(range(min = 0, max = 500))]
        events: u32,
        /// Flag.
        approved: Option<bool>,
        /// Free-form.
        spec: Option<Value>,
        /// Money.
        cost: Option<f64>,
    }

    fn parse(value: Value) -> Result<Args, Error> {
        let Value::Object(map) = value else { panic!("object") };
        read(&schema::input::<Args>(), map)
    }

    #[test]
    fn sloppy_values_are_understood() {
        let args = parse(json!({
            "runId": "a", "events": "3", "approved": "True", "spec": "{\"name\": 1}", "cost": null
        }))
        .unwrap();
        assert_eq!(
            args,
            Args { run_id: "a".into(), events: 3, approved: Some(true), spec: Some(json!({"name": 1})), cost: None }
        );
        assert_eq!(parse(json!({"runId": "a", "events": 3.0, "cost": "1.5"})).unwrap().cost, Some(1.5));
    }

    /// Case MC-8: every error names its field and several come at once.
    #[test]
    fn errors_name_their_fields() {
        let long = "x".repeat(10 << 20);
        for (args, words) in [
            (json!({}), vec!["runId: is required"]),
            (json!({"runId": null}), vec!["runId: is required"]),
            (json!({"runId": 3, "evnts": 1}), vec!["runId: must be a text", "evnts: unknown argument"]),
            (json!({"runId": "a", "events": -1}), vec!["events: must be from 0 to 500"]),
            (json!({"runId": "a", "events": 2.5}), vec!["events: must be a whole number"]),
            (json!({"runId": "a", "approved": "yes"}), vec!["approved: must be true or false"]),
            (json!({"runId": "a", "spec": "nope"}), vec!["spec: must be an object"]),
            (json!({"runId": "a", "spec": [1]}), vec!["spec: must be an object, not a list"]),
            (json!({"runId": long}), vec!["runId: is 10485760 bytes long"]),
            (json!({"runId": "a", "spec": {"nodes": [{"prompt": long}]}}), vec!["spec.nodes[0].prompt: is 10485760"]),
        ] {
            let error = parse(args).unwrap_err();
            assert_eq!(error.code, Code::InvalidArgument);
            for word in words {
                assert!(error.message.contains(word), "{word:?} not in {:?}", error.message);
            }
            assert!(error.message.len() < 4000);
        }
    }
}
