//! `clawo agent-script`: a program that talks like Claude Code and does what a scenario says.
//!
//! Stands for somebody else's program, so it is told everything by arguments and standard input.

use std::{
    collections::VecDeque,
    ffi::OsString,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::{
    play::Flow,
    scenario::Scenario,
    wire::{Account, End, answer},
    world::{Place, World, put},
};
use crate::{
    engines::lines::{Line, LineReader},
    sys::{Fs, RealFs, fs, ids, tasks},
};

/// Exit status for wrong arguments or a wrong scenario.
const USAGE: u8 = 2;
/// Longest message in bytes; far above what a host sends.
const MAX_MESSAGE: usize = 64 << 20;
/// Lines read ahead.
const AHEAD: usize = 64;
const USAGE_TEXT: &str = "usage: clawo agent-script <scenario file or name> [--session-id <id> | --resume <id>] [--state <dir>] \
     [--append-system-prompt <text>] [--effort <level>] [--permission-mode <mode>] [--max-turns <n>]\n";

/// Arguments of the program.
#[derive(Debug, Default, PartialEq)]
struct Args {
    scenario: String,
    session_id: Option<String>,
    resume: Option<String>,
    state: Option<PathBuf>,
    /// What the real program would be told by its own options; written down with every prompt.
    options: Map<String, Value>,
}

/// Options of the real program that are accepted: flag, name in the record.
const OPTIONS: &[(&str, &str)] =
    &[("--append-system-prompt", "systemPrompt"), ("--effort", "effort"), ("--permission-mode", "permissionMode")];
const MAX_TURNS: &str = "--max-turns";

/// Something that came in.
#[derive(Debug)]
pub(super) enum Incoming {
    /// A message.
    User(String),
    /// A control request: id and kind.
    Control(String, String),
    /// The answer to a request of ours.
    Response(Value),
    /// Not a line of the protocol.
    Bad(String),
}

/// How far a conversation is, so that another process can go on with it.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Progress {
    /// Uses of each turn.
    pub(super) used: Vec<u64>,
    /// Prompts so far.
    pub(super) prompts: u64,
    /// Words of the judge so far.
    #[serde(default)]
    pub(super) judged: usize,
    /// The goal that is open.
    #[serde(default)]
    pub(super) goal: Option<OpenGoal>,
}

/// A goal that is not reached yet.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct OpenGoal {
    /// What is to be reached.
    pub(super) condition: String,
    /// Times it was judged.
    pub(super) turns: u64,
    /// Why it is not reached.
    pub(super) reason: String,
}

/// The program's state.
pub(super) struct Agent<'a> {
    pub(super) scenario: Scenario,
    pub(super) world: World<'a>,
    pub(super) account: Account,
    pub(super) progress: Progress,
    pub(super) inbox: mpsc::Receiver<Incoming>,
    pub(super) queue: VecDeque<String>,
    pub(super) input_ended: bool,
    pub(super) ignore_interrupt: bool,
    pub(super) failed: bool,
    fs: &'a dyn Fs,
    state: Option<PathBuf>,
    options: Map<String, Value>,
}

/// Runs the program; `args` come after the subcommand. Returns its exit status.
///
/// Builds a runtime of its own, so it must not be called inside one.
pub fn agent_main(args: impl IntoIterator<Item = OsString>) -> u8 {
    let args: Vec<String> = args.into_iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let args = match parse(&args) {
        Ok(args) => args,
        Err(problem) => return complain(&format!("{problem}\n{USAGE_TEXT}"), USAGE),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return complain(&format!("failed to start: {e}\n"), 1),
    };
    let status = runtime.block_on(serve(args));
    // A read of standard input may be under way for ever.
    runtime.shutdown_background();
    status
}

fn complain(text: &str, status: u8) -> u8 {
    let _ = io::stderr().write_all(text.as_bytes());
    status
}

fn parse(args: &[String]) -> Result<Args, String> {
    let mut parsed = Args::default();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let mut value = || rest.next().cloned().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--session-id" => parsed.session_id = Some(value()?),
            "--resume" => parsed.resume = Some(value()?),
            "--state" => parsed.state = Some(value()?.into()),
            MAX_TURNS => {
                let turns: u64 = value()?.parse().map_err(|_| format!("{arg} needs a number"))?;
                parsed.options.insert("maxTurns".to_owned(), turns.into());
            }
            flag if flag.starts_with('-') => match OPTIONS.iter().find(|(known, _)| *known == flag) {
                Some((_, name)) => drop(parsed.options.insert((*name).to_owned(), value()?.into())),
                None => return Err(format!("unknown option {flag}")),
            },
            scenario if parsed.scenario.is_empty() => scenario.clone_into(&mut parsed.scenario),
            extra => return Err(format!("unexpected argument {extra}")),
        }
    }
    if parsed.scenario.is_empty() { Err("no scenario was named".to_owned()) } else { Ok(parsed) }
}

async fn serve(args: Args) -> u8 {
    let fs = RealFs;
    let world = match World::new(&fs, Path::new(".")) {
        Ok(world) => world,
        Err(e) => return complain(&format!("{e}\n"), 1),
    };
    let scenario = match Scenario::load(&fs, &args.scenario, world.root()) {
        Ok(scenario) => scenario,
        Err(e) => return complain(&format!("{e}\n"), USAGE),
    };
    let session_id = args.resume.clone().or(args.session_id).unwrap_or_else(ids::uuid);
    let state = args.state.map(|dir| dir.join(format!("{}.json", safe(&session_id))));
    let (send, inbox) = mpsc::channel(AHEAD);
    tasks::spawn("read stdin", read(send));
    let mut agent = Agent {
        progress: Progress { used: vec![0; scenario.turns.len()], ..Progress::default() },
        scenario,
        world,
        account: Account { session_id: session_id.clone(), ..Account::default() },
        inbox,
        queue: VecDeque::new(),
        input_ended: false,
        ignore_interrupt: false,
        failed: false,
        fs: &fs,
        state,
        options: args.options,
    };
    if args.resume.is_some() && !agent.restore() {
        let text = format!("No conversation found with session ID: {session_id}");
        let mut line = agent.account.result(&End::Failed(text.clone()));
        if let Some(map) = line.as_object_mut() {
            map.insert("num_turns".into(), 0.into());
            map.remove("terminal_reason");
        }
        let _ = agent.print(&line);
        return complain(&format!("{text}\n"), 1);
    }
    agent.main().await
}

/// An id as a file name.
fn safe(id: &str) -> String {
    id.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '_').take(100).collect()
}

/// Reads on whatever the agent is doing.
async fn read(send: mpsc::Sender<Incoming>) {
    let mut lines = LineReader::new(tokio::io::stdin(), MAX_MESSAGE);
    while let Ok(Some(line)) = lines.next().await {
        let incoming = match line {
            Line::Skipped { bytes, .. } => Some(Incoming::Bad(format!("a line of {bytes} bytes is too long"))),
            Line::Text(bytes) if bytes.is_empty() => None,
            Line::Text(bytes) => understood(&bytes),
        };
        if let Some(incoming) = incoming
            && send.send(incoming).await.is_err()
        {
            return;
        }
    }
}

fn understood(bytes: &[u8]) -> Option<Incoming> {
    let value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(e) => return Some(Incoming::Bad(format!("Error parsing streaming input line: {e}"))),
    };
    let text = |v: Option<&Value>| v.and_then(Value::as_str).unwrap_or_default().to_owned();
    match value.get("type").and_then(Value::as_str) {
        Some("user") => {
            let content = value.get("message").and_then(|m| m.get("content"));
            let blocks = content.and_then(Value::as_array).into_iter().flatten();
            let joined = blocks.map(|b| text(b.get("text"))).collect::<Vec<_>>().join("\n");
            Some(Incoming::User(if joined.is_empty() { text(content) } else { joined }))
        }
        Some("control_request") => {
            let kind = text(value.get("request").and_then(|r| r.get("subtype")));
            Some(Incoming::Control(text(value.get("request_id")), kind))
        }
        Some("control_response") => value.get("response").cloned().map(Incoming::Response),
        _ => None,
    }
}

impl Agent<'_> {
    async fn main(&mut self) -> u8 {
        loop {
            let message = match self.queue.pop_front() {
                Some(message) => message,
                None => match self.inbox.recv().await {
                    None => return u8::from(self.failed),
                    Some(Incoming::User(message)) => message,
                    Some(Incoming::Control(id, kind)) => {
                        if self.control(&id, &kind).is_err() {
                            return 1;
                        }
                        if kind == "end_session" {
                            return 0;
                        }
                        continue;
                    }
                    Some(Incoming::Response(_)) => continue,
                    Some(Incoming::Bad(text)) => return complain(&format!("{text}\n"), 1),
                },
            };
            match self.play(&message).await {
                Ok(Flow::Next) => self.save(),
                Ok(Flow::Exit(status)) => return status,
                // Nobody listens any more, or the prompt could not be written down.
                Err(e) => return complain(&format!("{e}\n"), 1),
            }
        }
    }

    /// Answers a control request like the real program does.
    pub(super) fn control(&mut self, id: &str, kind: &str) -> io::Result<()> {
        let response = match kind {
            "initialize" => {
                Ok(json!({ "commands": [], "agents": [], "models": [], "account": {}, "pid": std::process::id() }))
            }
            "interrupt" | "end_session" | "set_permission_mode" | "set_model" => Ok(json!({})),
            other => Err(format!("Unsupported control request subtype: {other}")),
        };
        self.print(&answer(id, response))
    }

    /// Prints a line at once.
    pub(super) fn print(&self, line: &Value) -> io::Result<()> {
        self.print_bytes(format!("{line}\n").as_bytes())
    }

    /// Prints bytes at once.
    pub(super) fn print_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()
    }

    /// Most replies of a turn.
    pub(super) fn max_turns(&self) -> Option<u64> {
        self.options.get("maxTurns").and_then(Value::as_u64)
    }

    /// Writes the prompt down, word for word.
    pub(super) fn record(&self, prompt: &str) -> fs::Result<()> {
        let Some(path) = &self.scenario.record else { return Ok(()) };
        let entry = json!({ "n": self.progress.prompts, "sessionId": self.account.session_id,
            "cwd": self.world.root().to_string_lossy(), "options": self.options, "prompt": prompt });
        put(self.fs, path, &format!("{entry}\n"), Place::End)
    }

    fn restore(&mut self) -> bool {
        let Some(path) = &self.state else { return false };
        let Ok(bytes) = self.fs.read(path) else { return false };
        let Ok(progress) = serde_json::from_slice::<Progress>(&bytes) else { return false };
        self.progress.prompts = progress.prompts;
        self.progress.judged = progress.judged;
        self.progress.goal = progress.goal;
        self.progress.used.iter_mut().zip(progress.used).for_each(|(now, then)| *now = then);
        true
    }

    /// Adds a line to the conversation's transcript, as the real program does about its goals.
    pub(super) fn note(&self, attachment: &Value) -> fs::Result<()> {
        let Some(path) = self.state.as_ref().map(|state| state.with_extension("jsonl")) else { return Ok(()) };
        let line = json!({ "type": "attachment", "attachment": attachment, "sessionId": self.account.session_id });
        put(self.fs, &path, &format!("{line}\n"), Place::End)
    }

    /// Keeps the conversation for another process.
    pub(super) fn save(&self) {
        let Some(path) = &self.state else { return };
        let saved = serde_json::to_vec(&self.progress).map_err(io::Error::other).and_then(|bytes| {
            if let Some(dir) = path.parent() {
                fs::create_dir_all(self.fs, dir).map_err(io::Error::other)?;
            }
            fs::write_atomic(self.fs, path, &bytes).map_err(io::Error::other)
        });
        if let Err(e) = saved {
            complain(&format!("the conversation was not saved: {e}\n"), 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let args = |text: &str| parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let full = Args {
            scenario: "a.json".into(),
            session_id: None,
            resume: Some("x".into()),
            state: Some("/s".into()),
            options: Map::from_iter([("effort".to_owned(), json!("low")), ("maxTurns".to_owned(), json!(3))]),
        };
        assert_eq!(args("a.json --resume x --effort low --state /s --max-turns 3").unwrap(), full);
        assert_eq!(args("").unwrap_err(), "no scenario was named");
        assert_eq!(args("a --bogus").unwrap_err(), "unknown option --bogus");
        assert_eq!(args("a b").unwrap_err(), "unexpected argument b");
        assert_eq!(args("a --resume").unwrap_err(), "--resume needs a value");
    }
}
