//! What callers are shown of a run: small, stable, with the next step in it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::{
    NodeState, Problem, RunId, RunOutcome, RunState, Time,
    run::{GoalState, Spend, Verdict, Waiting},
};

/// Answer of a start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Started {
    /// The run.
    pub run_id: RunId,
    /// Name of its spec.
    pub workflow: String,
    /// Where it stands.
    pub state: RunState,
    /// Ids of its nodes in order.
    pub nodes: Vec<String>,
    /// What was dropped or looks odd.
    pub warnings: Vec<Problem>,
    /// The idempotency key belonged to a run that was started before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub existing: bool,
}

/// Answer of a validation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Validation {
    /// Whether a start would be accepted.
    pub ok: bool,
    /// Every problem.
    pub errors: Vec<Problem>,
    /// What would be dropped or looks odd.
    pub warnings: Vec<Problem>,
    /// The normalised spec, when it is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Value>,
    /// The most it can use, when it is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forecast: Option<Forecast>,
}

/// What a deletion leaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deleted {
    /// The run that is gone.
    pub run_id: RunId,
    /// Always true.
    pub deleted: bool,
    /// Branch with the work of a run that had its own worktree; it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
}

/// The most a spec can use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// Agent turns, retries and fixers included.
    pub max_agent_turns: u64,
    /// Agents at the same time.
    pub fanout_width: u64,
    /// Times a verifier can send control back.
    pub repair_passes: u64,
    /// Wall time in milliseconds; absent when something has no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_wall_ms: Option<u64>,
    /// US dollars, where a cap or prices are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<f64>,
}

/// A run as callers see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunView {
    /// The run.
    pub run_id: RunId,
    /// Name of its spec.
    pub workflow: String,
    /// Where it stands.
    pub state: RunState,
    /// Present once terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
    /// Why the outcome is what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome_reason: Option<String>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The verdict in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Bundle behind the verdict in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence_id: Option<String>,
    /// Node entered last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_node: Option<String>,
    /// Creation.
    pub created_at: Time,
    /// Last commit.
    pub updated_at: Time,
    /// End.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// Directory given at start.
    pub cwd: String,
    /// Branch of a worktree run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_branch: Option<String>,
    /// Path of a worktree run's checkout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_path: Option<String>,
    /// US dollars so far, children included.
    pub cost_usd: f64,
    /// Everything used so far.
    pub spend: Spend,
    /// Nodes in order.
    pub nodes: Vec<NodeView>,
    /// How many nodes the spec has; `nodes` shows at most 100 of them.
    pub nodes_total: u64,
    /// Votes of councils; advisory.
    pub consensus_votes: Vec<Value>,
    /// Whether a live process executes it.
    pub live: bool,
    /// Not ended, not parked, no live owner: resume it.
    pub interrupted: bool,
    /// Why nothing moves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<Waiting>,
    /// The open gate with the call that answers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateView>,
    /// Corrections not yet seen by an agent.
    pub pending_steers: u64,
    /// Sequence number of the last commit; changes whenever anything does.
    pub seq: u64,
    /// Last events, when asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventView>,
}

/// A node as callers see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeView {
    /// Its id.
    pub id: String,
    /// Its kind.
    pub kind: String,
    /// Where it stands.
    pub state: NodeState,
    /// Times entered.
    pub visits: u32,
    /// Attempt of the latest visit.
    pub attempts: u32,
    /// Failure of the latest attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Beginning of the latest output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Whole length of the output in bytes, when more than the beginning is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    /// Latest evidence bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence_id: Option<String>,
    /// Where its goal stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<GoalState>,
    /// Latest child run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_run_id: Option<RunId>,
    /// When the next attempt is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Time>,
    /// Wall time of the latest visit in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// US dollars over all visits.
    pub cost_usd: f64,
}

/// An open gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GateView {
    /// The gate node.
    pub node: String,
    /// Its visit.
    pub visit: u32,
    /// What is asked.
    pub prompt: String,
    /// Since when.
    pub since: Time,
    /// What changed so far, one line.
    pub changes: String,
    /// What the contract said so far, one line.
    pub checks: String,
    /// What was spent so far.
    pub spent: String,
    /// What happens on yes.
    pub on_approve: String,
    /// What happens on no.
    pub on_reject: String,
    /// The exact tool call that answers, as `{ tool, arguments }`.
    pub answer_with: Value,
}

/// One event as callers see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventView {
    /// Sequence number of its commit.
    pub seq: u64,
    /// When.
    pub ts: Time,
    /// The event with its `type`.
    pub event: Value,
}

/// One page of a listing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListPage {
    /// Newest first.
    pub runs: Vec<ListEntry>,
    /// Pass it as `cursor` to go on; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// One run in a listing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ListEntry {
    /// The run.
    pub run_id: RunId,
    /// Name of its spec; empty for a damaged run.
    pub workflow: String,
    /// Where it stands; absent for a damaged run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<RunState>,
    /// Present once terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
    /// Creation.
    pub created_at: Time,
    /// Last commit.
    pub updated_at: Time,
    /// Node entered last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_node: Option<String>,
    /// US dollars so far.
    pub cost_usd: f64,
    /// Whether a live process executes it.
    pub live: bool,
    /// Not ended, not parked, no live owner: resume it.
    pub interrupted: bool,
    /// What is wrong with its log, when it is damaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
    /// Parent run of a child.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<RunId>,
}
