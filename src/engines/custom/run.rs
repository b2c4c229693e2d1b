//! One turn of a described program.

use std::{ffi::OsString, sync::Arc, time::Duration};

use serde_json::Value;

use super::{CustomEngine, MessageVia, Output, Pricing};
use crate::{
    engines::{
        EngineError, ErrorClass, Message, SessionSpec, TurnEvent, Usage,
        lines::MAX_LINE,
        not_supported,
        process::Gone,
        stream_json::{Step, StreamJson, cut, parse},
        turnwise::{Invocation, Program, Tally, argument, words},
    },
    model::Time,
};

/// Longest output that is kept as a reply.
const MAX_REPLY: usize = MAX_LINE;
/// Longest note, in characters.
const MAX_NOTE: usize = 500;
/// What is open while a tool of the stream-json protocol is.
const TOOL: &str = "tool";

/// A conversation.
#[derive(Debug)]
pub(super) struct Described {
    engine: Arc<CustomEngine>,
    spec: SessionSpec,
    id: Option<String>,
    /// A turn was begun, so that another one has to go on with its conversation.
    begun: bool,
    /// Output so far, where all of it together is read.
    whole: Vec<u8>,
    cut: bool,
    machine: StreamJson,
}

impl Described {
    /// A conversation that begins, or goes on as `spec` says.
    pub(super) fn new(engine: Arc<CustomEngine>, spec: SessionSpec) -> Self {
        let id = spec.resume.clone();
        Self { engine, spec, id, begun: false, whole: Vec::new(), cut: false, machine: StreamJson::new() }
    }

    /// Takes what a JSON object says.
    fn object(&mut self, value: &Value, tally: &mut Tally) -> Result<Vec<TurnEvent>, EngineError> {
        let paths = &self.engine.usage_paths;
        let found = |path: &Option<String>| at(value, path.as_deref()?);
        if let Some(id) = found(&self.engine.id_path).and_then(Value::as_str).filter(|id| !id.is_empty()) {
            if let Some(before) = self.id.as_deref().filter(|before| *before != id) {
                let text = format!("was to go on with conversation {before} and went on in {id} instead");
                return Err(EngineError::new(ErrorClass::Protocol, text));
            }
            self.id = Some(id.to_owned());
        }
        let number = |path: &Option<String>| found(path).and_then(Value::as_u64);
        let numbers = [&paths.input, &paths.cached, &paths.cache_write, &paths.output].map(number);
        if numbers.iter().any(Option::is_some) {
            let [input, cached, cache_write, output] = numbers.map(Option::unwrap_or_default);
            // Each line states the turn so far; the last one is the turn.
            tally.usage = Some(Usage { input, cached, cache_write, output });
        }
        if let Some(usd) = found(&paths.cost).and_then(Value::as_f64) {
            tally.cost = Some(usd).filter(|usd| usd.is_finite() && *usd > 0.0);
        }
        match found(&self.engine.text_path).and_then(Value::as_str) {
            Some(text) => {
                text.clone_into(&mut tally.text);
                Ok(vec![TurnEvent::Text(text.to_owned())])
            }
            None => Ok(Vec::new()),
        }
    }

    /// Takes a line of the stream-json protocol.
    fn claude(&mut self, steps: Vec<Step>, tally: &mut Tally) -> Vec<TurnEvent> {
        let mut events = Vec::new();
        for step in steps {
            match step {
                Step::Event(event) => events.push(event),
                Step::Ended(outcome) => tally.adopt(*outcome),
                Step::Failed(e) => tally.said = Some(Err(e)),
                Step::Reply(_) | Step::Ready | Step::Answered(_) | Step::Goal(_) | Step::GoalEnded(..) => {}
            }
        }
        if self.machine.tool_open() {
            tally.open(TOOL)
        } else {
            tally.close(TOOL)
        }
        if let Some(id) = self.machine.session_id() {
            self.id = Some(id.to_owned());
        }
        events
    }
}

/// Arguments of a whole session, as the config and the spec have it, without message and conversation.
pub(super) fn args(engine: &CustomEngine, spec: &SessionSpec, message: &Message<'_>) -> Vec<OsString> {
    let mut args: Vec<OsString> = engine.args.iter().map(Into::into).collect();
    if let Some(flag) = &engine.cwd_flag {
        args.extend([flag.into(), spec.cwd.clone().into()]);
    }
    if let (Some(flag), Some(model)) = (&engine.model_flag, &spec.choice.model) {
        args.extend([flag.into(), model.into()]);
    }
    let effort = message.effort.or(spec.choice.effort.as_deref());
    let mode = if message.plan { Some("plan") } else { spec.choice.permission_mode.as_deref() };
    let chosen = [
        mode.and_then(|m| engine.permission_modes.get(m)),
        spec.options.sandbox.and_then(|s| engine.sandbox_modes.get(s.as_str())),
        effort.and_then(|e| engine.efforts.get(e)),
    ];
    args.extend(chosen.into_iter().flatten().flatten().map(Into::into));
    args.extend(spec.options.extra_args.iter().map(Into::into));
    args
}

impl Program for Described {
    fn command(&mut self, message: &Message<'_>) -> Result<Invocation, EngineError> {
        if message.plan && !self.engine.permission_modes.contains_key("plan") {
            return Err(not_supported("this custom engine maps no permission mode plan; add it to permissionModes"));
        }
        let mut args = args(&self.engine, &self.spec, message);
        match (&self.engine.resume_flag, &self.id) {
            (Some(flag), Some(id)) => args.extend([flag.into(), id.into()]),
            (None, _) | (_, None) if self.begun || self.id.is_some() => {
                let text = "this custom engine cannot go on with a conversation; describe it by idPath and resumeFlag, \
                            or open a new session";
                return Err(not_supported(text));
            }
            (None, _) | (_, None) => {}
        }
        let stdin = match self.engine.message_via {
            MessageVia::Arg => {
                args.push(argument(message.text)?);
                None
            }
            MessageVia::Stdin => Some(message.text.to_owned()),
        };
        self.whole.clear();
        self.cut = false;
        // Its totals run over one process.
        self.machine = StreamJson::new();
        self.machine.begin_turn();
        Ok(Invocation { args, stdin, ..Invocation::default() })
    }

    fn line(&mut self, bytes: &[u8], tally: &mut Tally, now: Time) -> Result<Vec<TurnEvent>, EngineError> {
        self.begun = true;
        match self.engine.output {
            Output::Text | Output::Json => {
                let room = MAX_REPLY.saturating_sub(self.whole.len());
                self.cut |= bytes.len() >= room;
                self.whole.extend(bytes.iter().chain(b"\n").take(room));
                let text = self.engine.output == Output::Text && !bytes.is_empty();
                let told = text.then(|| TurnEvent::Text(crate::sys::text::lossy(bytes)));
                Ok(told.into_iter().collect())
            }
            Output::Ndjson if bytes.trim_ascii().is_empty() => Ok(Vec::new()),
            Output::Ndjson => match parse::value(bytes) {
                Some(value) => self.object(&value, tally),
                None => {
                    let text = cut(&String::from_utf8_lossy(bytes), MAX_NOTE);
                    Ok(vec![TurnEvent::Note(format!("not a line of JSON: {text}"))])
                }
            },
            Output::Claude => {
                let steps = self.machine.line(bytes, now);
                Ok(self.claude(steps, tally))
            }
        }
    }

    fn skipped(&mut self, bytes: u64, head: &[u8], tally: &mut Tally) -> Vec<TurnEvent> {
        if self.engine.output == Output::Claude {
            let steps = self.machine.skipped(bytes, head);
            return self.claude(steps, tally);
        }
        // Another line may hold the reply; where all of it together is read, a part of it is gone.
        self.cut |= self.engine.output != Output::Ndjson;
        vec![TurnEvent::Note(format!("a line of {bytes} bytes was too long and was skipped"))]
    }

    fn finish(&mut self, exit: &Gone, last_words: &str, tally: &mut Tally, now: Time) {
        let clean = *exit == Gone::Clean;
        match self.engine.output {
            Output::Claude => {}
            Output::Text => {
                tally.text = String::from_utf8_lossy(self.whole.trim_ascii_end()).into_owned();
                self.whole = Vec::new();
            }
            Output::Json => {
                let whole = std::mem::take(&mut self.whole);
                match last_object(&whole) {
                    Some(value) => {
                        if let Err(e) = self.object(&value, tally) {
                            tally.said = Some(Err(e));
                        }
                    }
                    None if clean => {
                        tally.said = Some(Err(EngineError::new(ErrorClass::Protocol, "its output is no JSON object")));
                    }
                    None => {}
                }
            }
            Output::Ndjson => {}
        }
        if tally.said.is_none() && self.engine.output != Output::Claude {
            // Without an event for it, its status is how it says that the turn is over.
            tally.said = match exit {
                Gone::Clean if self.cut => {
                    let text = format!("its output is longer than the {MAX_REPLY} bytes that are kept");
                    Some(Err(EngineError::new(ErrorClass::Protocol, text)))
                }
                Gone::Clean => Some(Ok(())),
                Gone::Failed(_) | Gone::Unknown | Gone::Running => {
                    let error = words::error(None, last_words, now);
                    (error.class != ErrorClass::Other).then_some(Err(error))
                }
            };
        }
        if let Some(pricing) = self.engine.pricing.filter(|_| tally.cost.is_none()) {
            tally.price(tally.usage.map(|u| priced(pricing, u)));
        }
    }

    fn native_id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    fn speaks_late(&self) -> bool {
        // Nobody knows when it begins to speak, except in the protocol that begins with a line.
        self.engine.output != Output::Claude
    }

    fn timeout(&self) -> Option<Duration> {
        self.engine.timeout
    }
}

#[expect(clippy::cast_precision_loss, reason = "no count of tokens has 52 bits")]
fn priced(pricing: Pricing, usage: Usage) -> f64 {
    let fresh = usage.input.saturating_add(usage.cache_write) as f64;
    let cached = usage.cached as f64;
    let sum =
        fresh * pricing.input + cached * pricing.cached.unwrap_or(pricing.input) + usage.output as f64 * pricing.output;
    sum / 1e6
}

/// What stands at a path of member names and indexes.
pub(super) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, step| match value {
        Value::Object(map) => map.get(step),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

/// The object that `bytes` are, or that stands on their last line.
pub(in crate::engines) fn last_object(bytes: &[u8]) -> Option<Value> {
    parse::value(bytes.trim_ascii()).or_else(|| {
        bytes.trim_ascii_end().rsplit(|b| *b == b'\n').next().and_then(|line| parse::value(line.trim_ascii()))
    })
}
