//! What callers see of a fan-out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::{RunId, RunOutcome, Time};

/// Where a fan-out stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FanoutStatus {
    /// Agents work, their answers are merged, or the work is judged.
    Running,
    /// At least one agent succeeded, and no contract says no.
    Done,
    /// No agent succeeded, the contract is red, or the run failed otherwise.
    Error,
    /// Aborted or cancelled.
    Aborted,
}

impl FanoutStatus {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Error => "error",
            Self::Aborted => "aborted",
        }
    }
}

/// A fan-out as callers see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FanoutView {
    /// The run.
    pub id: RunId,
    /// Where it stands.
    pub status: FanoutStatus,
    /// What was asked, shortened when long.
    pub task: String,
    /// How many agents it has.
    pub agent_count: u64,
    /// Start.
    pub started_at: Time,
    /// End.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// Agents that have ended, in the order they were given.
    pub results: Vec<FanoutResult>,
    /// The answer that merges theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synthesis: Option<String>,
    /// Why there is no such answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synthesis_error: Option<String>,
    /// Why none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synthesis_skipped: Option<String>,
    /// What went wrong, when something did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether something independent of the agents checked the work; present once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
    /// Why the outcome is what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome_reason: Option<String>,
    /// Isolated agents: what each changed and what the contract said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidates: Option<Vec<Value>>,
    /// Isolated agents: who was chosen and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Value>,
    /// Isolated agents: what became of the chosen work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<Value>,
    /// Isolated agents: branches and worktrees that stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Value>,
    /// Not ended and nobody executes it: workflow_resume goes on with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
}

/// How one agent ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FanoutResult {
    /// Its name.
    pub agent: String,
    /// Engine that answered.
    pub engine: String,
    /// Its model, when one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Whether the engine counted the turn as a success.
    pub ok: bool,
    /// What it said.
    pub output: String,
    /// Only the end of what it said is shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How long it took in milliseconds.
    pub duration_ms: u64,
    /// US dollars.
    pub cost_usd: f64,
}

/// What an abort leaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FanoutAborted {
    /// The run.
    pub id: RunId,
    /// Where it stands; aborted once everybody has ended.
    pub status: FanoutStatus,
    /// Agents that finish their turn.
    pub still_running: Vec<String>,
}
