//! What a turn leads to: events while it goes on, an outcome at its end, failures by class.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::account::Usage;
use crate::model::{Code, Time, run::Spend};

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
    /// The engine cannot do what was asked; nothing was tried.
    NotSupported,
    /// A cap in money forbids the turn; it did not begin. See [`OverBudget`].
    BudgetExceeded,
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
            Self::NotSupported => "not_supported",
            Self::BudgetExceeded => "budget_exceeded",
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
    /// The cap that forbids the turn, for a budget.
    pub over: Option<Box<OverBudget>>,
}

/// What an agent is said to have done that ended its turn well and said nothing.
const NO_REPLY: &str = "the agent ended its turn without a reply";

impl EngineError {
    /// A turn that ended well and without a word.
    pub fn no_reply() -> Self {
        Self::new(ErrorClass::Other, NO_REPLY)
    }

    /// Whether it is [`no_reply`](Self::no_reply).
    pub fn is_no_reply(&self) -> bool {
        self.class == ErrorClass::Other && self.message == NO_REPLY
    }

    /// A failure without a reset time.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), retry_at: None, over: None }
    }
}

/// What a cap in money bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// One session.
    Session,
    /// A UTC day, over everything that is written into the ledger.
    Day,
}

/// A cap that forbids a turn. Nothing was started for it.
#[derive(Debug, Clone, PartialEq)]
pub struct OverBudget {
    /// What it bounds.
    pub scope: Scope,
    /// The session that wanted a turn.
    pub session: String,
    /// Its engine.
    pub engine: String,
    /// US dollars spent.
    pub spent_usd: f64,
    /// US dollars allowed.
    pub cap_usd: f64,
}

impl OverBudget {
    /// Its stable code.
    pub fn code(&self) -> Code {
        match self.scope {
            Scope::Session => Code::BudgetExceeded,
            Scope::Day => Code::DailyBudgetExceeded,
        }
    }

    /// The numbers for programs.
    pub fn details(&self) -> Value {
        serde_json::json!({
            "session": self.session, "engine": self.engine, "spentUsd": self.spent_usd, "capUsd": self.cap_usd,
        })
    }
}

impl From<OverBudget> for EngineError {
    fn from(over: OverBudget) -> Self {
        let OverBudget { scope, session, engine, spent_usd: spent, cap_usd: cap } = &over;
        let message = match scope {
            Scope::Session => format!(
                "session '{session}' ({engine}) has spent {spent:.4} of {cap:.4} US dollars; raise the cap or start a \
                 new session"
            ),
            Scope::Day => format!(
                "the turns of this UTC day have cost {spent:.4} of {cap:.4} US dollars; raise daily_usd under [budget] \
                 or wait for the next day"
            ),
        };
        Self { over: Some(Box::new(over)), ..Self::new(ErrorClass::BudgetExceeded, message) }
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
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TurnOutcome {
    /// A terminal success was seen, and a reply.
    pub ok: bool,
    /// The reply.
    pub text: String,
    /// The engine's own word.
    pub stop_reason: Option<String>,
    /// What this turn used, for budgets. An adapter fills in tokens, the turn and what the engine stated as cost; the
    /// pool adds a price where the engine stated none.
    pub spend: Spend,
    /// Tokens of this turn by kind; absent when the engine reported none.
    pub usage: Option<Usage>,
    /// Total of the conversation after this turn, from engines that count per conversation; see [`Counter`](super::account::Counter).
    pub counted: Option<Usage>,
    /// Where `spend.cost_usd` comes from: `engine`, `registry`, `family-default`, `none`; absent until the pool prices it.
    pub cost_source: Option<String>,
    /// Model as the engine reported it.
    pub model: Option<String>,
    /// Files written by a session that must not write, undone since; see [`Isolation`](super::Isolation).
    pub read_only_violations: Vec<String>,
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

impl TurnOutcome {
    /// A turn that ended with `error` and used nothing.
    pub fn failed(error: EngineError) -> Self {
        Self { error: Some(error), ..Self::default() }
    }
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
