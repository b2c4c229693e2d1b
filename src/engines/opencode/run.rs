//! The lines of `opencode run --format json`, and how one is started.

use std::{ffi::OsString, path::PathBuf};

use serde_json::Value;

use crate::{
    engines::{
        EngineError, ErrorClass, Message, PermissionDenial, SessionSpec, TurnEvent, Usage,
        process::Gone,
        stream_json::{cut, parse, str_of, summary},
        turnwise::{Invocation, Program, Tally, words},
    },
    model::{Time, spec::SandboxMode},
};

/// Longest note, in characters.
const MAX_NOTE: usize = 500;
/// Permissions of a session that must not write. What changes something is denied by name, too, because a
/// configuration may allow it by name; what is not known here is denied by the star. The order is theirs: the last
/// one that fits decides.
const HELD: &str = r#"{"*":"deny","bash":"deny","edit":"deny","external_directory":"deny","skill":"deny","task":"deny","webfetch":"deny","websearch":"deny","glob":"allow","grep":"allow","list":"allow","read":"allow","todoread":"allow","todowrite":"allow"}"#;
/// Names under which a model asks for them.
const WRITER_TOOLS: &[&str] = &["apply_patch", "bash", "edit", "multiedit", "patch", "task", "webfetch", "write"];
/// What is open while a step is.
const STEP: &str = "step";

/// A conversation.
#[derive(Debug)]
pub(crate) struct Run {
    spec: SessionSpec,
    /// Directory for temporary files: every process leaves a library of several megabytes behind.
    temp: Option<PathBuf>,
    session: Option<String>,
    /// The next turn branches off `session`.
    fork: bool,
    /// The turn under way was told not to write.
    held: bool,
    /// Reason of the latest step that finished.
    last: Option<String>,
}

/// What the agent may do without asking. It can ask nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freedom {
    /// Nothing that writes.
    Nothing,
    /// What its configuration allows.
    Configured,
    /// Everything its configuration does not deny.
    Everything,
}

impl Run {
    /// A conversation that begins, or goes on as `spec` says.
    pub(super) fn new(spec: SessionSpec, temp: Option<PathBuf>) -> Self {
        let fork = spec.options.fork && spec.resume.is_some();
        Self { session: spec.resume.clone(), fork, temp, held: false, last: None, spec }
    }

    fn freedom(&self, plan: bool) -> Freedom {
        let mode = self.spec.choice.permission_mode.as_deref();
        match self.spec.options.sandbox {
            _ if plan => Freedom::Nothing,
            Some(SandboxMode::ReadOnly) => Freedom::Nothing,
            Some(SandboxMode::DangerFullAccess) => Freedom::Everything,
            Some(SandboxMode::WorkspaceWrite) | None => match mode {
                Some("plan" | "manual" | "default" | "dontAsk") => Freedom::Nothing,
                Some("acceptEdits" | "auto") => Freedom::Configured,
                _ => Freedom::Everything,
            },
        }
    }

    /// Every line names the conversation.
    fn learn(&mut self, value: &Value) -> Result<(), EngineError> {
        let id = str_of(value, "sessionID");
        if id.is_empty() || (!self.fork && self.session.as_deref() == Some(id)) {
            return Ok(());
        }
        if let Some(session) = &self.session
            && self.fork == (session == id)
        {
            let text = format!("was to go on with conversation {session} and went on in {id} instead");
            return Err(EngineError::new(ErrorClass::Protocol, text));
        }
        self.session = Some(id.to_owned());
        self.fork = false;
        Ok(())
    }

    /// A tool call; told once, when it is over.
    fn tool(&self, part: &Value, tally: &mut Tally) -> Vec<TurnEvent> {
        let null = Value::Null;
        let state = part.get("state").unwrap_or(&null);
        let input = state.get("input").unwrap_or(&null);
        let (id, tool) = (str_of(part, "callID"), str_of(part, "tool"));
        // A tool that is not offered: the call says which one was meant.
        let invalid = tool == "invalid";
        let name = if invalid { str_of(input, "tool") } else { tool };
        let told = str_of(state, "error");
        let exit = state.get("metadata").and_then(|m| m.get("exit")).and_then(Value::as_i64).unwrap_or(0);
        let failed = invalid || str_of(state, "status") == "error" || exit != 0;
        let unavailable = invalid || told.contains("unavailable tool");
        let refused = ["rejected permission", "a rule which prevents"].iter().any(|w| told.contains(w))
            || (unavailable && self.held && WRITER_TOOLS.contains(&name));
        if refused {
            let tool_use_id = Some(id.to_owned()).filter(|id| !id.is_empty());
            let input = (!input.is_null()).then(|| input.clone());
            tally.deny(PermissionDenial { tool_name: name.to_owned(), tool_use_id, input });
        }
        vec![tally.call(id, name, &summary(input)), tally.result(id, failed)]
    }
}

impl Program for Run {
    fn command(&mut self, message: &Message<'_>) -> Result<Invocation, EngineError> {
        let mut args: Vec<OsString> = ["run", "--format", "json", "--dir"].map(Into::into).to_vec();
        // From another directory than the conversation's own it asks the model and then never ends.
        args.push(self.spec.cwd.clone().into());
        let mut add = |flag: &str, value: &str| args.extend([flag.into(), value.into()]);
        if let Some(session) = &self.session {
            add("--session", session);
        }
        if let Some(model) = &self.spec.choice.model {
            add("--model", model);
        }
        if self.session.is_some() && self.fork {
            args.push("--fork".into());
        }
        let freedom = self.freedom(message.plan);
        let mut env: Vec<(OsString, OsString)> = Vec::new();
        match freedom {
            Freedom::Nothing => env.push(("OPENCODE_PERMISSION".into(), HELD.into())),
            Freedom::Configured => {}
            Freedom::Everything => args.push("--auto".into()),
        }
        if let Some(temp) = &self.temp {
            env.push(("TMPDIR".into(), temp.into()));
        }
        args.extend(self.spec.options.extra_args.iter().map(Into::into));
        self.held = freedom == Freedom::Nothing;
        self.last = None;
        // As an argument a message with spaces would reach the model in quotes.
        Ok(Invocation { args, stdin: Some(message.text.to_owned()), env, leavings: Vec::new() })
    }

    fn line(&mut self, bytes: &[u8], tally: &mut Tally, now: Time) -> Result<Vec<TurnEvent>, EngineError> {
        if bytes.trim_ascii().is_empty() {
            return Ok(Vec::new());
        }
        let Some(value) = parse::value(bytes) else {
            let text = cut(&String::from_utf8_lossy(bytes), MAX_NOTE);
            return Ok(vec![TurnEvent::Note(format!("not a line of the protocol: {text}"))]);
        };
        self.learn(&value)?;
        let null = Value::Null;
        let part = value.get("part").unwrap_or(&null);
        match str_of(&value, "type") {
            // It is told when the model's answer is complete: what comes until its end are tools, which are told late.
            "step_start" => tally.open(STEP),
            "step_finish" => {
                tally.close(STEP);
                let reason = str_of(part, "reason");
                self.last = Some(reason.to_owned());
                tally.stop_reason = self.last.clone();
                if let Some(tokens) = part.get("tokens") {
                    tally.add_usage(of_tokens(tokens));
                }
                tally.add_cost(part.get("cost").and_then(Value::as_f64).unwrap_or_default());
            }
            "text" if part.get("synthetic").and_then(Value::as_bool) != Some(true) => {
                str_of(part, "text").clone_into(&mut tally.text);
                return Ok(vec![TurnEvent::Text(tally.text.clone())]);
            }
            "tool_use" => return Ok(self.tool(part, tally)),
            "error" => {
                let error = value.get("error").unwrap_or(&null);
                tally.said = Some(Err(of_error(error, now)));
            }
            _ => {}
        }
        Ok(Vec::new())
    }

    fn finish(&mut self, exit: &Gone, last_words: &str, tally: &mut Tally, now: Time) {
        if tally.said.is_some() {
            return;
        }
        match self.last.as_deref() {
            Some("stop") => tally.said = Some(Ok(())),
            // Nobody was there to allow it, which ended the turn in the middle with status 0.
            Some(reason) if *exit == Gone::Clean => {
                let error = match tally.denied() {
                    Some(names) => {
                        let text = format!("the turn ended on a refused tool call: {names}");
                        EngineError::new(ErrorClass::PermissionDenied, text)
                    }
                    None => {
                        let text = format!("left in the middle of its work; its last step ended with `{reason}`");
                        EngineError::new(ErrorClass::Protocol, text)
                    }
                };
                tally.said = Some(Err(error));
            }
            Some(_) => {}
            None if last_words.contains("Session not found") => {
                tally.said = Some(Err(EngineError::new(ErrorClass::Other, last_words)));
            }
            None => {
                let error = words::error(None, last_words, now);
                tally.said = (error.class != ErrorClass::Other).then_some(Err(error));
            }
        }
    }

    fn native_id(&self) -> Option<&str> {
        self.session.as_deref().filter(|_| !self.fork)
    }

    fn speaks_late(&self) -> bool {
        true
    }
}

/// Tokens of one step: input without what was cached, output without reasoning.
fn of_tokens(tokens: &Value) -> Usage {
    let number = |value: &Value, key: &str| value.get(key).and_then(Value::as_u64).unwrap_or(0);
    let cache = |key: &str| tokens.get("cache").map_or(0, |c| number(c, key));
    Usage {
        input: number(tokens, "input"),
        cached: cache("read"),
        cache_write: cache("write"),
        output: number(tokens, "output").saturating_add(number(tokens, "reasoning")),
    }
}

fn of_error(error: &Value, now: Time) -> EngineError {
    let null = Value::Null;
    let data = error.get("data").unwrap_or(&null);
    let name = str_of(error, "name");
    let told = Some(str_of(data, "message")).filter(|m| !m.trim().is_empty()).unwrap_or(name);
    // A quota is told apart only in the body.
    let text = format!("{told} {}", str_of(data, "responseBody"));
    let mut failure = words::error(data.get("statusCode").and_then(Value::as_u64), &text, now);
    told.clone_into(&mut failure.message);
    match name {
        "ProviderAuthError" => failure.class = ErrorClass::Auth,
        "ContextOverflowError" => failure.class = ErrorClass::ContextOverflow,
        _ => {}
    }
    if failure.message.is_empty() {
        "the engine reports an error without words".clone_into(&mut failure.message);
    }
    failure
}
