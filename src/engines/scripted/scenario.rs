//! Scenarios: what a scripted agent does, read from JSON with errors that name the place.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::demo;
use crate::{model::Time, sys::Fs};

/// Longest scenario file in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// Why there is no scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    /// Neither a built-in name nor a path.
    #[error("no built-in scenario is called `{name}`; use one of {}, or the path of a scenario file", demo::names())]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The file cannot be read.
    #[error("failed to read the scenario {}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The file is wrong.
    #[error("scenario {name} is not valid: {problem}")]
    Invalid {
        /// Path or built-in name.
        name: String,
        /// What and where.
        problem: String,
    },
}

/// What an agent does.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// File that gets a JSON line for every prompt.
    pub(super) record: Option<PathBuf>,
    /// Tried in order for every prompt.
    pub(super) turns: Vec<Turn>,
    /// What the judge of a goal says, one word after the other; the last one again and again.
    pub(super) judge: Vec<Judgement>,
}

/// What the judge of a goal says when the agent stops.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Judgement {
    /// The goal is reached.
    #[serde(default)]
    pub(super) ok: bool,
    /// It never can be.
    #[serde(default)]
    pub(super) impossible: bool,
    /// The judge gives no usable word.
    #[serde(default)]
    pub(super) broken: bool,
    /// Why.
    #[serde(default)]
    pub(super) reason: String,
}

/// One answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Turn {
    /// One of these must be in the prompt; empty fits every prompt.
    pub(super) any: Vec<String>,
    /// This must not be.
    pub(super) unless: Option<String>,
    /// How often it answers; 0 is without limit.
    pub(super) times: u64,
    /// What is done.
    pub(super) steps: Vec<Step>,
}

/// One thing an agent does.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub(super) enum Step {
    /// Says a text; `{{prompt}}` is the prompt. The last one is the reply.
    Say(String),
    /// Writes a file.
    Write { path: String, content: String },
    /// Adds to a file.
    Append { path: String, content: String },
    /// Removes a file or directory.
    Delete(String),
    /// Runs a program and waits for it, as a tool call.
    Run(Vec<String>),
    /// Waits, in milliseconds.
    Sleep(u64),
    /// Does nothing for ever.
    Hang,
    /// Tokens of the turn.
    Usage {
        #[serde(default)]
        input_tokens: u64,
        #[serde(default)]
        output_tokens: u64,
    },
    /// US dollars of the turn.
    Cost(f64),
    /// Asks the host to permit a tool call.
    AskPermission {
        tool: String,
        #[serde(default)]
        input: Value,
        /// The call of a sub-agent it is asked for.
        parent_tool_use_id: Option<String>,
    },
    /// Starts a program and leaves it running.
    Spawn {
        argv: Vec<String>,
        /// As a child of nobody.
        #[serde(default)]
        detach: bool,
        /// As the leader of its own session.
        #[serde(default)]
        new_session: bool,
    },
    /// Stays alive on TERM from now on.
    IgnoreSigterm,
    /// Answers interrupts but goes on.
    IgnoreInterrupt,
    /// Prints that many bytes on one line.
    PrintBytes {
        stream: Stream,
        n: u64,
        /// Whether the line is an event of the protocol.
        #[serde(default)]
        json: bool,
    },
    /// Prints a line as it is.
    RawLine(String),
    /// Says a text one byte at a time.
    SplitUtf8(String),
    /// Ends the program.
    Exit(u8),
    /// Sends itself a signal.
    KillSelf(String),
    /// Ends the turn with an error of the provider.
    Error {
        class: Class,
        /// RFC 3339, or `+<seconds>s` from now.
        retry_at: Option<String>,
        message: Option<String>,
    },
    /// Goes on only when its standard input has ended.
    ReadStdinToEof,
    /// Ends the turn as failed.
    Fail(String),
}

impl Step {
    /// Whether a model would have had to be asked for it.
    pub(super) fn replies(&self) -> bool {
        match self {
            Self::Say(_)
            | Self::SplitUtf8(_)
            | Self::Write { .. }
            | Self::Append { .. }
            | Self::Delete(_)
            | Self::Run(_)
            | Self::Spawn { .. }
            | Self::AskPermission { .. } => true,
            Self::Sleep(_)
            | Self::Hang
            | Self::Usage { .. }
            | Self::Cost(_)
            | Self::IgnoreSigterm
            | Self::IgnoreInterrupt
            | Self::PrintBytes { .. }
            | Self::RawLine(_)
            | Self::Exit(_)
            | Self::KillSelf(_)
            | Self::Error { .. }
            | Self::ReadStdinToEof
            | Self::Fail(_) => false,
        }
    }
}

/// An output of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

/// Classes of error a provider can cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Class {
    Auth,
    Quota,
    Overloaded,
    ContextOverflow,
    PermissionDenied,
    Refused,
    Interrupted,
    Other,
}

impl Scenario {
    /// The built-in scenario or file that `model` names, relative to `cwd`.
    pub fn load(fs: &dyn Fs, model: &str, cwd: &Path) -> Result<Self, ScenarioError> {
        if let Some(text) = demo::built_in(model) {
            return Self::parse(text.as_bytes(), model, cwd);
        }
        if !is_path(model) {
            return Err(ScenarioError::Unknown { name: model.to_owned() });
        }
        let path = cwd.join(model);
        let unreadable = |reason: String| ScenarioError::Unreadable { path: path.clone(), reason };
        let bytes = fs.read(&path).map_err(|e| unreadable(e.source.to_string()))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(unreadable(format!("it is longer than {MAX_BYTES} bytes")));
        }
        Self::parse(&bytes, &path.to_string_lossy(), path.parent().unwrap_or(cwd))
    }

    /// Reads a scenario; a relative `record` lies in `base`.
    fn parse(bytes: &[u8], name: &str, base: &Path) -> Result<Self, ScenarioError> {
        read(bytes, base).map_err(|problem| ScenarioError::Invalid { name: name.to_owned(), problem })
    }
}

/// Whether `model` means a file rather than a built-in scenario.
pub(super) fn is_path(model: &str) -> bool {
    model.contains('/') || model.ends_with(".json")
}

fn read(bytes: &[u8], base: &Path) -> Result<Scenario, String> {
    let value: Value = serde_json::from_slice(bytes).map_err(|e| format!("not JSON: {e}"))?;
    let Value::Object(mut map) = value else { return Err("not an object".to_owned()) };
    let record = match map.remove("record") {
        None => None,
        Some(Value::String(path)) => Some(base.join(path)),
        Some(_) => return Err("record: must be a path".to_owned()),
    };
    let turns = match map.remove("turns") {
        Some(Value::Array(turns)) if !turns.is_empty() => turns,
        Some(_) | None => return Err("turns: must be a list of at least one turn".to_owned()),
    };
    let judge = match map.remove("judge") {
        None => Vec::new(),
        Some(list) => serde_json::from_value(list).map_err(|e| format!("judge: {e}"))?,
    };
    // For people only.
    map.remove("description");
    unknown(&map, "", "record, turns, judge, description")?;
    let turns =
        turns.into_iter().enumerate().map(|(i, t)| turn(t, &format!("turns[{i}]"))).collect::<Result<_, _>>()?;
    Ok(Scenario { record, turns, judge })
}

fn turn(value: Value, at: &str) -> Result<Turn, String> {
    let Value::Object(mut map) = value else { return Err(format!("{at}: must be an object")) };
    let any = match map.remove("match") {
        None => Vec::new(),
        Some(Value::String(one)) => vec![one],
        Some(list) => serde_json::from_value::<Vec<String>>(list)
            .map_err(|_| format!("{at}.match: must be a text or a list of texts"))?,
    };
    let unless = match map.remove("unless") {
        None => None,
        Some(Value::String(text)) => Some(text),
        Some(_) => return Err(format!("{at}.unless: must be a text")),
    };
    let times = match map.remove("times") {
        None => 1,
        Some(n) => n.as_u64().ok_or_else(|| format!("{at}.times: must be a number from 0 (without limit)"))?,
    };
    let Some(Value::Array(steps)) = map.remove("steps") else { return Err(format!("{at}.steps: must be a list")) };
    unknown(&map, at, "match, unless, times, steps")?;
    let steps =
        steps.into_iter().enumerate().map(|(i, s)| step(s, &format!("{at}.steps[{i}]"))).collect::<Result<_, _>>()?;
    Ok(Turn { any, unless, times, steps })
}

fn unknown(map: &Map<String, Value>, at: &str, known: &str) -> Result<(), String> {
    let dot = if at.is_empty() { "" } else { "." };
    match map.keys().next() {
        Some(key) => Err(format!("{at}{dot}{key}: unknown field; known are {known}")),
        None => Ok(()),
    }
}

/// A step that needs nothing may be written as a word, or with `true` or an empty object.
fn step(mut value: Value, at: &str) -> Result<Step, String> {
    for (name, argument) in value.as_object_mut().into_iter().flatten() {
        let plain = matches!(name.as_str(), "hang" | "ignoreSigterm" | "ignoreInterrupt" | "readStdinToEof");
        if plain && (*argument == Value::Bool(true) || argument.as_object().is_some_and(Map::is_empty)) {
            *argument = Value::Null;
        }
        if name == "delete"
            && let Some(path) = argument.as_object().filter(|o| o.len() == 1).and_then(|o| o.get("path"))
        {
            *argument = path.clone();
        }
    }
    let step: Step = serde_json::from_value(value).map_err(|e| format!("{at}: {e}"))?;
    match wrong(&step) {
        Some(text) => Err(format!("{at}: {text}")),
        None => Ok(step),
    }
}

/// What the types alone do not tell.
fn wrong(step: &Step) -> Option<&'static str> {
    if let Step::Run(argv) | Step::Spawn { argv, .. } = step {
        return argv.is_empty().then_some("argv must name a program");
    }
    if let Step::Cost(usd) = step {
        return (!usd.is_finite() || *usd < 0.0).then_some("cost must be a number of US dollars");
    }
    if let Step::KillSelf(name) = step {
        return signal(name).is_none().then_some("killSelf must name a signal, for example KILL");
    }
    if let Step::Error { retry_at: Some(at), .. } = step {
        let good = retry_at(at, Time::from_millis(0)).is_some();
        return (!good).then_some("retryAt must be an RFC 3339 time, or +<seconds>s");
    }
    None
}

/// `KILL`, `SIGKILL`.
pub(super) fn signal(name: &str) -> Option<nix::sys::signal::Signal> {
    let name = if name.starts_with("SIG") { name.to_owned() } else { format!("SIG{name}") };
    name.parse().ok()
}

/// The instant behind a `retryAt`.
pub(super) fn retry_at(text: &str, now: Time) -> Option<Time> {
    if let Some(seconds) = text.strip_prefix('+').and_then(|t| t.strip_suffix('s')) {
        return Some(now.plus_millis(i64::from(seconds.parse::<u32>().ok()?) * 1000));
    }
    text.parse().ok().map(Time::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        read(text.as_bytes(), Path::new("/base")).unwrap_err()
    }

    #[test]
    fn built_in_scenarios_are_valid() {
        for (name, text) in demo::BUILT_IN {
            Scenario::parse(text.as_bytes(), name, Path::new("/")).unwrap();
        }
    }

    #[test]
    fn every_step_is_read() {
        let text = r#"{"record":"r.jsonl","description":"x","turns":[{"match":"a","unless":"b","times":3,"steps":[
            {"say":"x"},{"write":{"path":"a","content":"b"}},{"append":{"path":"a","content":"b"}},{"delete":"a"},{"delete":{"path":"a"}},
            {"run":["ls"]},{"sleep":5},"hang",{"hang":true},{"hang":{}},{"usage":{"inputTokens":1}},{"cost":0.5},
            {"askPermission":{"tool":"Bash","input":{}}},{"spawn":{"argv":["x"],"detach":true,"newSession":true}},"ignoreSigterm","ignoreInterrupt",
            {"printBytes":{"stream":"stderr","n":9}},{"rawLine":"x"},{"splitUtf8":"é"},{"exit":3},{"killSelf":"KILL"},
            {"error":{"class":"quota","retryAt":"+90s"}},"readStdinToEof",{"fail":"x"}]}]}"#;
        let scenario = read(text.as_bytes(), Path::new("/base")).unwrap();
        assert_eq!(scenario.record, Some("/base/r.jsonl".into()));
        assert_eq!(scenario.turns[0].steps.len(), 24);
        let judged = br#"{"turns":[{"steps":[]}],"judge":[{"reason":"no"},{"ok":true}]}"#;
        let judge = read(judged, Path::new("/")).unwrap().judge;
        assert!(!judge[0].ok && judge[0].reason == "no" && judge[1].ok);
    }

    #[test]
    fn problems_name_their_place() {
        assert!(problem("{").starts_with("not JSON"));
        assert!(problem("[]").starts_with("not an object"));
        assert!(problem(r#"{"turns":[]}"#).starts_with("turns:"));
        assert!(problem(r#"{"turns":[{"steps":[]}],"judge":[{"okay":true}]}"#).starts_with("judge: unknown field"));
        assert!(problem(r#"{"turns":[{"steps":[]}],"x":1}"#).starts_with("x: unknown field"));
        assert!(problem(r#"{"turns":[{"steps":[],"stpes":1}]}"#).starts_with("turns[0].stpes: unknown field"));
        assert!(
            problem(r#"{"turns":[{"steps":["hang",{"sya":"x"}]}]}"#)
                .starts_with("turns[0].steps[1]: unknown variant `sya`")
        );
        assert!(problem(r#"{"turns":[{"steps":[{"write":{"path":"x"}}]}]}"#).contains("missing field `content`"));
        assert!(problem(r#"{"turns":[{"steps":[{"killSelf":"NOPE"}]}]}"#).contains("signal"));
        assert!(
            problem(r#"{"turns":[{"steps":[{"error":{"class":"quota","retryAt":"later"}}]}]}"#).contains("retryAt")
        );
        assert!(problem(r#"{"turns":[{"steps":[{"error":{"class":"crashed"}}]}]}"#).contains("unknown variant"));
        assert!(problem(r#"{"turns":[{"steps":[{"run":[]}]}]}"#).contains("argv"));
    }
}
