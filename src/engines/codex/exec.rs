//! The lines of `codex exec --json`, and how one is started.

use std::{ffi::OsString, path::PathBuf};

use serde_json::Value;

use crate::{
    engines::{
        EngineError, ErrorClass, Message, PermissionDenial, SessionSpec, TurnEvent, Usage,
        account::Counter,
        process::Gone,
        stream_json::{cut, parse, str_of},
        turnwise::{Invocation, Program, Tally, words},
    },
    model::{Time, spec::SandboxMode},
};

use super::effort;

/// Directories that a sandbox which is killed leaves empty in every place it may write to.
const LEAVINGS: &[&str] = &[".agents", ".aws", ".codex"];
/// Longest note, in characters.
const MAX_NOTE: usize = 500;
/// Sign of a line on standard error that tells of a tool call no event told of.
const ROUTER: &str = "codex_core::tools::router: error=";

/// A conversation.
#[derive(Debug)]
pub(crate) struct Exec {
    spec: SessionSpec,
    /// Where the schema of the reply is, when there is one.
    schema: Option<PathBuf>,
    thread: Option<String>,
    /// The next turn branches off `thread`.
    fork: bool,
    counter: Counter,
}

impl Exec {
    /// A conversation that begins, or goes on as `spec` says.
    pub(super) fn new(spec: SessionSpec, schema: Option<PathBuf>) -> Self {
        let counter = if spec.resume.is_some() { Counter::from(spec.options.counted) } else { Counter::fresh() };
        let fork = spec.options.fork && spec.resume.is_some();
        Self { thread: spec.resume.clone(), fork, counter, schema, spec }
    }

    fn args(&self, message: &Message<'_>) -> Vec<OsString> {
        let options = &self.spec.options;
        let mut args: Vec<OsString> = ["exec", "--json", "--skip-git-repo-check"].map(Into::into).to_vec();
        let mut add = |flag: &str, value: OsString| args.extend([flag.into(), value]);
        // Nothing but history carries over to a resumed turn, and these are only understood before the word `resume`.
        add("-s", sandbox(&self.spec, message.plan).as_str().into());
        add("-C", self.spec.cwd.clone().into());
        for dir in &options.add_dirs {
            add("--add-dir", dir.clone().into());
        }
        if let Some(profile) = options.native.get("profile").and_then(Value::as_str) {
            add("-p", profile.into());
        }
        if let Some(model) = &self.spec.choice.model {
            add("-m", model.into());
        }
        let chosen = message.effort.or(self.spec.choice.effort.as_deref());
        if let Some(level) = chosen.and_then(effort) {
            add("-c", format!("model_reasoning_effort={}", quoted(level)).into());
        }
        // What the model runs need not see what we and the program log in with.
        add("-c", "shell_environment_policy.ignore_default_excludes=false".into());
        if let Some(url) = &options.base_url {
            add("-c", "model_provider=\"clawo\"".into());
            for (key, value) in
                [("name", "clawo"), ("base_url", url.as_str()), ("wire_api", "responses"), ("env_key", super::API_KEY)]
            {
                add("-c", format!("model_providers.clawo.{key}={}", quoted(value)).into());
            }
        }
        if let Some(schema) = &self.schema {
            add("--output-schema", schema.clone().into());
        }
        // Without this it waits for a network for ever and never says that its turn failed.
        add("--disable", "unbounded_connection_retries".into());
        if options.native.get("ignoreUserConfig").and_then(Value::as_bool) == Some(true) {
            args.push("--ignore-user-config".into());
        }
        args.extend(options.extra_args.iter().map(Into::into));
        if let Some(thread) = &self.thread {
            args.push(if self.fork { "fork" } else { "resume" }.into());
            args.push(thread.into());
        }
        // The message is on standard input: an argument has a limit that messages have not.
        args.push("-".into());
        args
    }

    fn started(&mut self, value: &Value) -> Result<(), EngineError> {
        let id = str_of(value, "thread_id");
        if id.is_empty() {
            return Err(EngineError::new(ErrorClass::Protocol, "began a conversation without an id"));
        }
        match &self.thread {
            Some(thread) if self.fork == (thread == id) => {
                let text = format!("was to go on with conversation {thread} and began {id} instead");
                return Err(EngineError::new(ErrorClass::Protocol, text));
            }
            _ => self.thread = Some(id.to_owned()),
        }
        self.fork = false;
        Ok(())
    }

    fn completed(&mut self, value: &Value, tally: &mut Tally) {
        tally.said = Some(Ok(()));
        tally.stop_reason = Some("turn.completed".to_owned());
        let Some(usage) = value.get("usage").filter(|u| u.is_object()) else { return };
        tally.usage = self.counter.share(of_usage(usage));
        tally.counted = self.counter.total();
    }
}

impl Program for Exec {
    fn command(&mut self, message: &Message<'_>) -> Result<Invocation, EngineError> {
        let options = &self.spec.options;
        let roots = std::iter::once(&self.spec.cwd).chain(&options.add_dirs);
        let leavings = roots.flat_map(|root| LEAVINGS.iter().map(move |name| root.join(name))).collect();
        let stdin = Some(message.text.to_owned());
        Ok(Invocation { args: self.args(message), stdin, leavings, ..Invocation::default() })
    }

    fn line(&mut self, bytes: &[u8], tally: &mut Tally, now: Time) -> Result<Vec<TurnEvent>, EngineError> {
        if bytes.trim_ascii().is_empty() {
            return Ok(Vec::new());
        }
        let Some(value) = parse::value(bytes) else {
            let text = cut(&String::from_utf8_lossy(bytes), MAX_NOTE);
            return Ok(vec![TurnEvent::Note(format!("not a line of the protocol: {text}"))]);
        };
        match str_of(&value, "type") {
            "thread.started" => self.started(&value)?,
            "item.started" | "item.updated" | "item.completed" => {
                let done = str_of(&value, "type") == "item.completed";
                return Ok(value.get("item").map(|item| of_item(item, done, tally)).unwrap_or_default());
            }
            "turn.completed" => self.completed(&value, tally),
            "turn.failed" => {
                let text = value.get("error").map(|e| str_of(e, "message")).unwrap_or_default();
                tally.said = Some(Err(words::error(None, text, now)));
            }
            // It retries by itself; only the failed turn is the end.
            "error" => return Ok(vec![TurnEvent::Retry(cut(str_of(&value, "message"), MAX_NOTE))]),
            _ => {}
        }
        Ok(Vec::new())
    }

    fn finish(&mut self, exit: &Gone, last_words: &str, tally: &mut Tally, now: Time) {
        for line in last_words.lines().filter(|l| l.contains(ROUTER)) {
            unseen(line, tally);
        }
        // A program that never began its turn says why only here.
        if tally.said.is_none() && !tally.heard() && matches!(exit, Gone::Failed(_)) {
            let known = ["no rollout found", "already has an active writer", "not a valid"];
            if known.iter().any(|k| last_words.contains(k)) {
                tally.said = Some(Err(EngineError::new(ErrorClass::Other, last_words)));
            } else {
                let error = words::error(None, last_words, now);
                tally.said = (error.class != ErrorClass::Other).then_some(Err(error));
            }
        }
    }

    fn native_id(&self) -> Option<&str> {
        // Until the fork answered, the conversation is another one's.
        self.thread.as_deref().filter(|_| !self.fork)
    }
}

/// What the agent may do to files. It can ask nobody, so a mode in which everything is asked writes nothing.
fn sandbox(spec: &SessionSpec, plan: bool) -> SandboxMode {
    if spec.options.writable.is_some() {
        // Confined from outside, where its own sandbox cannot be set up: every command of it would fail. It works in a
        // copy of which nothing stays.
        return SandboxMode::DangerFullAccess;
    }
    if plan {
        return SandboxMode::ReadOnly;
    }
    spec.options.sandbox.unwrap_or(match spec.choice.permission_mode.as_deref() {
        Some("plan" | "manual" | "default" | "dontAsk") => SandboxMode::ReadOnly,
        _ => SandboxMode::WorkspaceWrite,
    })
}

/// A text as a TOML value.
fn quoted(text: &str) -> String {
    // JSON strings are TOML strings, too.
    Value::from(text).to_string()
}

fn of_item(item: &Value, done: bool, tally: &mut Tally) -> Vec<TurnEvent> {
    let (id, kind) = (str_of(item, "id"), str_of(item, "type"));
    let (name, summary) = match kind {
        "agent_message" if done => {
            str_of(item, "text").clone_into(&mut tally.text);
            return vec![TurnEvent::Text(tally.text.clone())];
        }
        "error" if done => return vec![TurnEvent::Note(cut(str_of(item, "message"), MAX_NOTE))],
        "agent_message" | "error" | "reasoning" | "todo_list" => return Vec::new(),
        "command_execution" => ("shell".to_owned(), str_of(item, "command").to_owned()),
        "file_change" => ("apply_patch".to_owned(), changes(item)),
        "mcp_tool_call" => (format!("{}.{}", str_of(item, "server"), str_of(item, "tool")), arguments(item)),
        // Kinds of later versions are calls as well; each begins and completes.
        other => (other.to_owned(), str_of(item, "query").to_owned()),
    };
    let mut events = Vec::new();
    if !tally.is_open(id) {
        events.push(tally.call(id, &name, &summary));
    }
    if done {
        let failed = matches!(str_of(item, "status"), "failed" | "declined");
        events.push(tally.result(id, failed));
        let told = item.get("error").map(|e| str_of(e, "message")).unwrap_or_default();
        if failed && (told.contains("requires approval") || str_of(item, "status") == "declined") {
            let input = item.get("arguments").cloned();
            tally.deny(PermissionDenial { tool_name: name, tool_use_id: Some(id.to_owned()), input });
        }
    }
    events
}

fn changes(item: &Value) -> String {
    let list = item.get("changes").and_then(Value::as_array).into_iter().flatten();
    list.map(|c| format!("{} {}", str_of(c, "kind"), str_of(c, "path"))).collect::<Vec<_>>().join(", ")
}

fn arguments(item: &Value) -> String {
    item.get("arguments").map(Value::to_string).unwrap_or_default()
}

/// A call that was refused, or failed, without any event.
fn unseen(line: &str, tally: &mut Tally) {
    let refused = ["reject", "not permitted"].iter().any(|w| line.contains(w));
    if !refused {
        return;
    }
    let name = if line.contains("patch rejected") { "apply_patch" } else { "shell" };
    tally.call("", name, "");
    tally.result("", true);
    let told = line.split_once(ROUTER).map_or(line, |(_, rest)| rest);
    let input = Some(Value::from(cut(told, MAX_NOTE)));
    tally.deny(PermissionDenial { tool_name: name.to_owned(), tool_use_id: None, input });
}

/// Totals of the thread. Its input includes what was cached; reasoning is part of its output.
fn of_usage(usage: &Value) -> Usage {
    let number = |key: &str| usage.get(key).and_then(Value::as_u64).unwrap_or(0);
    let (cached, cache_write) = (number("cached_input_tokens"), number("cache_write_input_tokens"));
    let input = number("input_tokens").saturating_sub(cached).saturating_sub(cache_write);
    Usage { input, cached, cache_write, output: number("output_tokens") }
}
