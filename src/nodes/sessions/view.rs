//! What is told about sessions and their turns.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::handoff::Carried;
use crate::{
    engines::{ErrorClass, PermissionDenial, Usage},
    model::Time,
};

/// How a session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// Its program is being started.
    Starting,
    /// It waits for something to do.
    Idle,
    /// A turn, or something else, is under way.
    Busy,
    /// No program runs; the next message brings it back.
    Paused,
    /// It was stopped; a start under its name goes on with the conversation.
    Stopped,
    /// It could not be brought back.
    Failed,
}

impl SessionState {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

/// A started session.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Started {
    /// Name.
    pub name: String,
    /// Engine.
    pub engine: String,
    /// Model, when one was chosen or reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Directory, links resolved.
    pub cwd: String,
    /// The engine's id of the conversation, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// When the conversation began.
    pub created: Time,
    /// Whether an earlier conversation goes on.
    pub resumed: bool,
    /// Whether it was live already; nothing was changed then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub existing: bool,
    /// What the caller should know.
    pub warnings: Vec<String>,
}

/// How a turn ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnView {
    /// Whether the engine counts it as done.
    pub ok: bool,
    /// Names the turn.
    pub turn_id: String,
    /// The reply.
    pub output: String,
    /// The engine's id of the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Why it did not end well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What kind of failure that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_class: Option<ErrorClass>,
    /// When trying again makes sense, after a quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Time>,
    /// Tool calls the engine refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub permission_denials: Vec<PermissionDenial>,
    /// Files a session wrote that must not write; they were put back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read_only_violations: Vec<String>,
    /// Tokens of the turn, when the engine reported them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// US dollars of the turn.
    pub cost_usd: f64,
    /// Where the cost comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_source: Option<String>,
    /// Tool calls.
    pub tool_calls: u32,
    /// Failed ones.
    pub tool_errors: u32,
    /// Wall time in milliseconds.
    pub duration_ms: u64,
    /// What the agent said on the way, when that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunks: Option<Vec<String>>,
    /// What the caller should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A session in a list.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionEntry {
    /// Name.
    pub name: String,
    /// Engine.
    pub engine: String,
    /// Model, when known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Directory.
    pub cwd: String,
    /// The engine's id of the conversation, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// How it stands.
    pub state: SessionState,
    /// Whether this process has it.
    pub live: bool,
    /// When the conversation began.
    pub created: Time,
    /// When something was last asked of it.
    pub last_activity: Time,
    /// Turns that ended.
    pub turns: u64,
    /// US dollars.
    pub cost_usd: f64,
    /// Cap in US dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_usd: Option<f64>,
    /// Whether the cap is used up.
    pub budget_exhausted: bool,
}

/// A session in the overview.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverviewEntry {
    /// What a list says.
    #[serde(flatten)]
    pub entry: SessionEntry,
    /// How full the context is, when known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_percent: Option<f64>,
    /// Things that wait for their turn.
    pub queued: usize,
    /// Messages in its inbox that were not read.
    pub unread: usize,
}

/// Sessions of this process against its cap.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// The sessions.
    pub sessions: Vec<OverviewEntry>,
    /// Agents this process has running.
    pub in_use: usize,
    /// Most agents at once.
    pub max: usize,
}

/// A session in detail.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusView {
    /// What the overview says.
    #[serde(flatten)]
    pub entry: OverviewEntry,
    /// Turns that went well.
    pub turns_succeeded: u64,
    /// Tool calls.
    pub tool_calls: u64,
    /// Failed ones.
    pub tool_errors: u64,
    /// Retries of the engine.
    pub retries: u64,
    /// Why it last retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_retry_error: Option<String>,
    /// Tokens of all turns.
    pub usage: Usage,
    /// Seconds since the program was started; absent while none runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uptime_seconds: Option<u64>,
    /// The latest turn, or the one that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnStatus>,
}

/// Where a turn stands.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnStatus {
    /// Names it.
    pub turn_id: String,
    /// queued, running, done or failed.
    pub state: &'static str,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<TurnView>,
    /// Stable code of what kept it from ending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<&'static str>,
    /// The same as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a stop did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Stopped {
    /// Name.
    pub name: String,
    /// Processes that could not be ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unkillable: Vec<String>,
}

/// What a compaction did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Compacted {
    /// Whether the conversation was shortened.
    pub compacted: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The turn it took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnView>,
}

/// A changed session.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Changed {
    /// Name.
    pub name: String,
    /// Model, when one was chosen or reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Tools that need no asking.
    pub allowed_tools: Vec<String>,
    /// Tools that are taken away.
    pub disallowed_tools: Vec<String>,
    /// Whether the program was started anew with the same conversation.
    pub restarted: bool,
}

/// A conversation that was handed on.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HandedOff {
    /// The new session.
    pub name: String,
    /// Its engine.
    pub engine: String,
    /// The session it comes from, which runs on.
    pub from: String,
    /// What was carried over.
    pub carried: Carried,
    /// What the caller should know.
    pub warnings: Vec<String>,
    /// The first turn of the new session, when a message was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<TurnView>,
}

/// What became of a message to others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SentTo {
    /// Some session was idle and got it at once.
    pub delivered: bool,
    /// Some session was busy and has it in its inbox.
    pub queued: bool,
}

/// What was delivered from an inbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Delivered {
    /// Messages.
    pub delivered: usize,
    /// The turn that has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
}
