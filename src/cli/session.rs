//! `clawo session ...`: named sessions of a running server.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::{
    context::{Context, text_or_stdin},
    failure::{EXIT_RED, Failure, Outcome},
    remote::Remote,
    table::Table,
};
use crate::model::Code;

/// How long one look at a turn waits, in milliseconds.
const LOOK_MS: u64 = 50_000;

/// What can be done with sessions.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum SessionCommand {
    /// Start a session, or go on with the conversation of its name
    Start(Box<StartArgs>),
    /// Give a session a message and print its reply; '-' reads it from standard input
    Send(SendArgs),
    /// End a session's processes; its conversation stays known
    Stop {
        /// Its name
        name: String,
    },
    /// List the sessions
    List,
    /// Show what all sessions do
    Overview,
    /// Show one session in detail
    Status {
        /// Its name
        name: String,
        /// A turn of it
        #[arg(long)]
        turn: Option<String>,
    },
    /// Search what happened in a session
    Grep {
        /// Its name
        name: String,
        /// Regular expression; case makes no difference
        pattern: String,
        /// Most events
        #[arg(short = 'n', long, default_value_t = 50)]
        limit: u64,
    },
    /// Shorten a session's conversation
    Compact {
        /// Its name
        name: String,
        /// What the summary should keep
        #[arg(long)]
        summary: Option<String>,
    },
    /// Start a session on another engine that knows what was said in this one
    Handoff {
        /// Its name
        name: String,
        /// The other engine
        #[arg(short, long)]
        engine: String,
        /// Its model
        #[arg(short, long)]
        model: Option<String>,
        /// Name of the new session
        #[arg(long)]
        new_name: Option<String>,
        /// First message to it
        #[arg(long)]
        message: Option<String>,
        /// Most characters of history
        #[arg(long)]
        max_chars: Option<u64>,
    },
    /// Show a session's messages from others
    Inbox {
        /// Its name
        name: String,
        /// Also those it was given already
        #[arg(long)]
        all: bool,
    },
    /// Pass a message from one session to another, or to all others with '*'
    SendTo {
        /// Who speaks
        from: String,
        /// Who is spoken to
        to: String,
        /// What is said; '-' reads it from standard input
        message: String,
        /// What it is about
        #[arg(long)]
        summary: Option<String>,
    },
    /// Give a session the messages that wait for it
    Deliver {
        /// Its name
        name: String,
    },
}

/// Arguments of `clawo session start`.
#[derive(Debug, Clone, Args)]
pub(crate) struct StartArgs {
    /// Its name [default: generated]
    name: Option<String>,
    /// Engine
    #[arg(short, long)]
    engine: Option<String>,
    /// Model
    #[arg(short, long)]
    model: Option<String>,
    /// Directory [default: the one it had before, else the server's]
    #[arg(short = 'd', long)]
    cwd: Option<PathBuf>,
    /// low, medium, high, xhigh, max, ultra or auto
    #[arg(long)]
    effort: Option<String>,
    /// Permission mode [default: acceptEdits]
    #[arg(long)]
    permission_mode: Option<String>,
    /// read-only, workspace-write or danger-full-access
    #[arg(long)]
    sandbox: Option<String>,
    /// Most model calls of a turn
    #[arg(long)]
    max_turns: Option<u32>,
    /// Cap in US dollars
    #[arg(long)]
    max_budget: Option<f64>,
    /// Tools that need no asking, as a,b
    #[arg(long, value_delimiter = ',')]
    allowed_tools: Option<Vec<String>>,
    /// Tools that are taken away, as a,b
    #[arg(long, value_delimiter = ',')]
    disallowed_tools: Option<Vec<String>>,
    /// Replaces the engine's system prompt
    #[arg(long)]
    system_prompt: Option<String>,
    /// Added to the engine's system prompt
    #[arg(long)]
    append_system_prompt: Option<String>,
    /// Further directories, as a,b
    #[arg(long, value_delimiter = ',')]
    add_dir: Option<Vec<String>>,
    /// JSON Schema that replies must fit
    #[arg(long)]
    json_schema: Option<String>,
    /// Files with MCP servers, as a,b
    #[arg(long, value_delimiter = ',')]
    mcp_config: Option<Vec<String>>,
    /// The engine's id of a conversation to go on with
    #[arg(long)]
    resume_session_id: Option<String>,
    /// Branch off that conversation
    #[arg(long)]
    fork: bool,
    /// Preset of engine custom
    #[arg(long)]
    custom_engine: Option<String>,
    /// Another API endpoint
    #[arg(long)]
    base_url: Option<String>,
    /// Keep nothing of it on disk
    #[arg(long)]
    skip_persistence: bool,
    /// A switch of the engine; repeatable
    #[arg(long, value_name = "ENGINE.KEY=VALUE")]
    option: Vec<String>,
}

/// Arguments of `clawo session send`.
#[derive(Debug, Clone, Args)]
pub(crate) struct SendArgs {
    /// Its name
    name: String,
    /// The message
    text: String,
    /// Effort of this turn alone
    #[arg(long)]
    effort: Option<String>,
    /// Plan and change nothing
    #[arg(long)]
    plan: bool,
    /// Print what the agent says on the way
    #[arg(short, long)]
    stream: bool,
    /// Milliseconds after which the turn is interrupted
    #[arg(short, long, default_value_t = 300_000)]
    timeout: u64,
}

/// Runs a command of the family.
pub(crate) fn run(context: &Context, command: &SessionCommand) -> Outcome {
    let config = context.config()?;
    let remote = Remote::find(&config, context.global.api.as_deref())?;
    context.block_on(async {
        let (tool, arguments) = match command {
            SessionCommand::Start(args) => ("session_start", args.arguments()?),
            SessionCommand::Send(args) => return send(context, &remote, args).await,
            SessionCommand::Stop { name } => ("session_stop", json!({ "name": name })),
            SessionCommand::List => ("session_list", json!({})),
            SessionCommand::Overview => ("sessions_overview", json!({})),
            SessionCommand::Status { name, turn } => ("session_status", json!({ "name": name, "turnId": turn })),
            SessionCommand::Grep { name, pattern, limit } => {
                ("session_grep", json!({ "name": name, "pattern": pattern, "limit": limit }))
            }
            SessionCommand::Compact { name, summary } => {
                ("session_compact", json!({ "name": name, "summary": summary }))
            }
            SessionCommand::Handoff { name, engine, model, new_name, message, max_chars } => (
                "session_handoff",
                json!({
                    "name": name, "engine": engine, "model": model, "newName": new_name, "message": message,
                    "maxChars": max_chars,
                }),
            ),
            SessionCommand::Inbox { name, all } => ("session_inbox", json!({ "name": name, "unreadOnly": !all })),
            SessionCommand::SendTo { from, to, message, summary } => {
                let message = text_or_stdin(message, "message")?;
                ("session_send_to", json!({ "from": from, "to": to, "message": message, "summary": summary }))
            }
            SessionCommand::Deliver { name } => ("session_deliver_inbox", json!({ "name": name })),
        };
        let answer = remote.call(tool, object(arguments)).await?;
        show(context, command, &answer);
        Ok(0)
    })
}

/// Sends in the background and follows the turn, so that it may take longer than a call.
async fn send(context: &Context, remote: &Remote, args: &SendArgs) -> Outcome {
    let message = text_or_stdin(&args.text, "message")?;
    let request = json!({
        "name": args.name, "message": message, "effort": args.effort, "plan": args.plan, "timeout": args.timeout,
        "stream": args.stream, "background": true,
    });
    let handle = remote.call("session_send", object(request)).await?;
    let turn = loop {
        let look = json!({ "name": args.name, "turnId": handle.get("turnId"), "waitMs": LOOK_MS });
        let status = remote.call("session_status", object(look)).await?;
        let turn = status.get("turn").cloned().unwrap_or_default();
        if !matches!(turn.get("state").and_then(Value::as_str), Some("queued" | "running")) {
            break turn;
        }
    };
    let Some(result) = turn.get("result").filter(|r| r.is_object()) else {
        let word = turn.get("code").and_then(Value::as_str).unwrap_or_default();
        let code = Code::ALL.iter().find(|code| code.as_str() == word).copied().unwrap_or(Code::Internal);
        return Err(Failure::new(code, text(&turn, "error")));
    };
    context.out.document(result);
    if !context.out.json() {
        for chunk in result.get("chunks").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
            context.out.note(chunk);
        }
        context.out.line(text(result, "output"));
    }
    if result.get("ok") == Some(&Value::Bool(true)) {
        return Ok(0);
    }
    context.out.note(format!("the turn did not end well: {}", text(result, "error")));
    Ok(EXIT_RED)
}

fn show(context: &Context, command: &SessionCommand, answer: &Value) {
    context.out.document(answer);
    if context.out.json() {
        return;
    }
    let list = |key: &str| answer.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    match command {
        SessionCommand::List | SessionCommand::Overview => {
            let mut table = Table::new(["NAME", "ENGINE", "STATE", "TURNS", "COST", "DIRECTORY"]);
            for session in list("sessions") {
                let cost = format!("{:.4}", session.get("costUsd").and_then(Value::as_f64).unwrap_or(0.0));
                let of = |key: &str| text(&session, key);
                table.row([of("name"), of("engine"), of("state"), of("turns"), cost, of("cwd")]);
            }
            context.out.table(&table, "there are no sessions");
        }
        SessionCommand::Grep { .. } => {
            if list("events").is_empty() {
                context.out.line("Nothing matches.");
            }
            for event in list("events") {
                context.out.line(format!(
                    "{} {:<11} {}",
                    text(&event, "at"),
                    text(&event, "type"),
                    text(&event, "text")
                ));
            }
        }
        SessionCommand::Inbox { .. } => {
            if list("messages").is_empty() {
                context.out.line("There are no messages.");
            }
            for message in list("messages") {
                context.out.line(format!(
                    "{} {}: {}",
                    text(&message, "at"),
                    text(&message, "from"),
                    text(&message, "message")
                ));
            }
        }
        SessionCommand::Start(_)
        | SessionCommand::Send(_)
        | SessionCommand::Stop { .. }
        | SessionCommand::Status { .. }
        | SessionCommand::Compact { .. }
        | SessionCommand::Handoff { .. }
        | SessionCommand::SendTo { .. }
        | SessionCommand::Deliver { .. } => {
            for (key, value) in answer.as_object().into_iter().flatten().filter(|(key, _)| *key != "ok") {
                let told = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                context.out.line(format!("{key:<18} {told}"));
            }
        }
    }
}

impl StartArgs {
    fn arguments(&self) -> Result<Value, Failure> {
        let parse = |what: &str, text: &str| {
            serde_json::from_str::<Value>(text)
                .map_err(|e| Failure::usage(format!("{what} is not JSON: {e}"), "correct it and try again"))
        };
        let cwd = self.cwd.as_deref().map(std::path::absolute).transpose();
        let cwd = cwd.map_err(|e| Failure::io("make the directory absolute", e))?;
        let schema = self.json_schema.as_deref().map(|text| parse("--json-schema", text)).transpose()?;
        let mut options: Map<String, Value> = Map::new();
        for option in &self.option {
            let wrong =
                || Failure::usage(format!("'{option}' is not engine.key=value"), "for example claude.bare=true");
            let (key, value) = option.split_once('=').ok_or_else(wrong)?;
            let (engine, key) = key.split_once('.').ok_or_else(wrong)?;
            let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
            let of = options.entry(engine).or_insert_with(|| json!({}));
            if let Value::Object(of) = of {
                of.insert(key.to_owned(), value);
            }
        }
        Ok(json!({
            "name": self.name, "engine": self.engine, "model": self.model, "cwd": cwd, "effort": self.effort,
            "permissionMode": self.permission_mode, "sandboxMode": self.sandbox, "maxTurns": self.max_turns,
            "maxBudgetUsd": self.max_budget, "allowedTools": self.allowed_tools, "disallowedTools": self.disallowed_tools,
            "systemPrompt": self.system_prompt, "appendSystemPrompt": self.append_system_prompt, "addDir": self.add_dir,
            "jsonSchema": schema, "mcpConfig": self.mcp_config, "resumeSessionId": self.resume_session_id,
            "forkSession": self.fork.then_some(true), "customEngine": self.custom_engine, "baseUrl": self.base_url,
            "noSessionPersistence": self.skip_persistence.then_some(true),
            "engineOptions": (!options.is_empty()).then_some(options),
        }))
    }
}

/// The members that say something.
fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map.into_iter().filter(|(_, v)| !v.is_null()).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    }
}

/// A member as text.
fn text(value: &Value, key: &str) -> String {
    match value.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}
