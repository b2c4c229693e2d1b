//! Coding agents as subprocesses, driven over their own structured protocols, never by reading a screen.
//!
//! Owns the adapters and the pool of sessions. Nothing outside an adapter asks which engine it is; what
//! differs is declared as capabilities. Knows runs only as labels and variables.

pub mod breaker;
pub mod claude;
mod cleaning;
mod environment;
pub mod lines;
pub mod pool;
mod process_session;
pub mod registry;
pub mod scripted;
pub mod slots;
pub mod stream_json;

pub use pool::{Pool, PoolError, PooledSession, WaitKind};
pub use process_session::Limits;
pub use registry::{Refusal, Registry};

use std::{fmt, future::Future, path::PathBuf, pin::Pin, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::model::{Time, run::Spend, spec::EngineChoice};

/// A boxed future.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why a turn or a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// Not logged in, bad key. Never retried.
    Auth,
    /// A plan's or account's limit, with the reset time when stated.
    Quota,
    /// The provider is busy.
    Overloaded,
    /// The conversation is too long.
    ContextOverflow,
    /// A tool call was refused.
    PermissionDenied,
    /// The model refused.
    Refused,
    /// Cut off by us.
    Interrupted,
    /// A clock of ours ran out.
    Timeout,
    /// The program died.
    Crashed,
    /// The program spoke something else.
    Protocol,
    /// The program did not start.
    StartFailed,
    /// Anything else.
    Other,
}

impl ErrorClass {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Quota => "quota",
            Self::Overloaded => "overloaded",
            Self::ContextOverflow => "context_overflow",
            Self::PermissionDenied => "permission_denied",
            Self::Refused => "refused",
            Self::Interrupted => "interrupted",
            Self::Timeout => "timeout",
            Self::Crashed => "crashed",
            Self::Protocol => "protocol",
            Self::StartFailed => "start_failed",
            Self::Other => "other",
        }
    }
}

/// An engine's failure.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{}: {message}", class.as_str())]
pub struct EngineError {
    /// What kind.
    pub class: ErrorClass,
    /// One sentence for a person.
    pub message: String,
    /// When trying again makes sense, for a quota.
    pub retry_at: Option<Time>,
}

impl EngineError {
    /// A failure without a reset time.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), retry_at: None }
    }
}

/// A tool call the engine refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PermissionDenial {
    /// Tool.
    pub tool_name: String,
    /// Call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_use_id: Option<String>,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
}

/// How one turn ended.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnOutcome {
    /// A terminal success was seen, and a reply.
    pub ok: bool,
    /// The reply.
    pub text: String,
    /// The engine's own word.
    pub stop_reason: Option<String>,
    /// This turn only.
    pub spend: Spend,
    /// `engine` or `table`.
    pub cost_source: Option<String>,
    /// Refused tool calls.
    pub permission_denials: Vec<PermissionDenial>,
    /// Tool calls made.
    pub tool_calls: u32,
    /// Tool calls that failed.
    pub tool_errors: u32,
    /// Wall time in milliseconds.
    pub duration_ms: u64,
    /// The engine's id of the conversation.
    pub native_id: Option<String>,
    /// Present unless `ok`.
    pub error: Option<EngineError>,
}

/// Something that happened during a turn.
#[derive(Debug, Clone, PartialEq)]
pub enum TurnEvent {
    /// The agent said something.
    Text(String),
    /// A tool call began.
    ToolCall {
        /// Tool.
        name: String,
        /// One line.
        summary: String,
    },
    /// A tool call ended.
    ToolResult {
        /// Whether it failed.
        is_error: bool,
    },
    /// The engine retries by itself.
    Retry(String),
    /// Something to know.
    Note(String),
}

/// Told while a turn goes on. Must not block.
pub type Sink = Arc<dyn Fn(TurnEvent) + Send + Sync>;

/// What a session is opened with.
#[derive(Debug, Clone)]
pub struct SessionSpec {
    /// Name of the session, `<runId>-<nodeId>-a<attempt>` unless pinned.
    pub name: String,
    /// Who answers; `engine` is resolved and present.
    pub choice: EngineChoice,
    /// Directory.
    pub cwd: PathBuf,
    /// Text added to the system prompt.
    pub append_system_prompt: Option<String>,
    /// Most model calls of a turn.
    pub max_turns: Option<u32>,
    /// Cap in US dollars.
    pub max_budget_usd: Option<f64>,
    /// Conversation to go on with.
    pub resume: Option<String>,
    /// Variables of the run for every process.
    pub run_env: Vec<(String, String)>,
}

/// What an engine can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capabilities {
    /// Conversations can be resumed by id.
    pub resume: bool,
    /// A text can be added to the system prompt.
    pub append_system_prompt: bool,
    /// A turn can be interrupted over the protocol.
    pub interrupt: bool,
    /// It reports its own cost.
    pub own_cost: bool,
    /// Takes an effort.
    pub effort: bool,
    /// Takes permission modes.
    pub permission_modes: bool,
}

/// An adapter.
pub trait Engine: Send + Sync + fmt::Debug {
    /// Name in specs.
    fn name(&self) -> &'static str;
    /// What it can do.
    fn capabilities(&self) -> Capabilities;
    /// The program it would run; `None` when it is not installed.
    fn program(&self) -> Option<PathBuf>;
    /// The program's version, asked once.
    fn version(&self) -> Boxed<'_, Option<String>>;
    /// Problems with a choice (unknown effort, missing scenario), without starting anything.
    fn check(&self, choice: &EngineChoice) -> Vec<String>;
    /// Starts a session; its process tree belongs to the session alone.
    fn open(&self, spec: SessionSpec, cancel: CancellationToken) -> Boxed<'_, Result<Box<dyn Session>, EngineError>>;
}

/// A conversation with a running agent.
pub trait Session: Send + fmt::Debug {
    /// One turn. Cancelling interrupts it and ends the process tree before it returns.
    fn turn<'a>(&'a mut self, message: &'a str, sink: Sink, cancel: CancellationToken) -> Boxed<'a, TurnOutcome>;
    /// The engine's id of the conversation, once known.
    fn native_id(&self) -> Option<String>;
    /// Ends the session and its whole process tree; returns what could not be ended.
    fn stop(self: Box<Self>) -> Boxed<'static, Vec<String>>;
}
