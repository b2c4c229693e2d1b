//! The run record: what folding a run's log over its spec gives.

use std::{collections::BTreeMap, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{NodeId, RunId, Time};

/// Version of the record's JSON form.
pub const RECORD_VERSION: u32 = 1;

/// Where a run stands. The last three are terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Created, nothing entered yet.
    #[default]
    Pending,
    /// Executing or resumable.
    Running,
    /// Parked at a gate.
    AwaitingHuman,
    /// A verifier runs.
    Verifying,
    /// Ended by reaching its end.
    Completed,
    /// Ended by a failure or a red verdict.
    Failed,
    /// Ended by request.
    Cancelled,
}

impl RunState {
    /// Whether nothing can change any more.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::AwaitingHuman => "awaiting_human",
            Self::Verifying => "verifying",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Whether anything independent of the agents checked the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    /// The contract holds for the tree as it is.
    Verified,
    /// Nothing judged it, or the judgement no longer applies.
    Unverified,
    /// The contract failed.
    Refuted,
}

impl RunOutcome {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Unverified => "unverified",
            Self::Refuted => "refuted",
        }
    }
}

/// Where a node stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// Not entered.
    #[default]
    Pending,
    /// An attempt is under way, waits for its retry, or was cut off and will run again.
    Running,
    /// A gate waits for its answer.
    AwaitingHuman,
    /// The latest visit succeeded.
    Succeeded,
    /// The latest visit failed.
    Failed,
    /// Passed over on purpose.
    Skipped,
    /// Ended by cancelling the run.
    Cancelled,
}

/// A file of the run that holds text too long for the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactRef {
    /// Path below the run's directory.
    pub path: String,
    /// Length in bytes.
    pub bytes: u64,
    /// SHA-256 of the contents, hex.
    pub sha256: String,
}

/// Text of a node, short in place, long as a file with its head in place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutputText {
    /// The text, or its beginning when `file` is present.
    pub text: String,
    /// The whole text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<ArtifactRef>,
}

/// Everything known about a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunRecord {
    /// Form of this document.
    pub v: u32,
    /// Sequence number of the last commit folded in.
    pub seq: u64,
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
    /// What went wrong, when something did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Creation.
    pub created_at: Time,
    /// Last commit.
    pub updated_at: Time,
    /// End.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// Directory given at start.
    pub cwd: String,
    /// Directory nodes work in now.
    pub work_dir: String,
    /// Top of the worktree it lies in, when a node made one for those after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_top: Option<String>,
    /// The repository as it was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
    /// Branch of a worktree run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_branch: Option<String>,
    /// Path of a worktree run's checkout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_path: Option<String>,
    /// Whether a starting server continues it by itself.
    pub auto_resume: bool,
    /// The run that started it, for a subflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentRef>,
    /// The program counter: node entered last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_node: Option<NodeId>,
    /// Nodes in the spec's order. Shared, because a record is copied with every commit and few nodes change.
    pub nodes: Vec<Arc<NodeRecord>>,
    /// Latest verdict of each verifier (or subflow) that gave one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub verdicts: BTreeMap<String, Verdict>,
    /// Finished nodes that can touch the workspace.
    pub side_effect_seq: u64,
    /// What it has used.
    pub spend: Spend,
    /// What each child run has used in all, as far as this run knows; part of `spend`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub child_spend: BTreeMap<RunId, Spend>,
    /// Operator's corrections, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steers: Vec<Steer>,
    /// Words for the rounds of councils, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub injections: Vec<Injection>,
    /// Nothing new is begun any more, and what goes on may end before the run is cancelled.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub winding_down: bool,
    /// The open gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
    /// Why nothing moves, when nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<Waiting>,
    /// Votes of councils; advisory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub consensus_votes: Vec<Value>,
    /// Equal red verdicts in a row, by the node that gave them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub red: BTreeMap<String, RedStreak>,
    /// Caller's key for a start that may be repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// A process of the run could not be ended, so it can no longer be verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unkillable: Option<String>,
}

/// The repository as a run found it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Baseline {
    /// HEAD, absent in a repository without commits or outside git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_sha: Option<String>,
    /// Commit of the uncommitted state at start, kept under a ref of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Whether the directory lies in a git repository.
    pub in_git: bool,
    /// Hashes of the protected tests, when a command check needs them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protected: Option<ArtifactRef>,
}

/// The parent of a subflow's run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ParentRef {
    /// Parent run.
    pub run_id: RunId,
    /// Node of the parent; absent for a run an agent started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeId>,
    /// Nesting depth of the child, 1 for a child of a top-level run.
    pub depth: u32,
}

/// Everything known about one node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecord {
    /// Its id.
    pub id: String,
    /// Its kind.
    pub kind: String,
    /// Where it stands.
    pub state: NodeState,
    /// Times entered.
    pub visits: u32,
    /// Attempt of the latest visit, from 1.
    pub attempts: u32,
    /// Failed attempts of the latest visit; an attempt that a crash cut off is none.
    #[serde(default)]
    pub failures: u32,
    /// Failure of the latest attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Latest output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputText>,
    /// Latest structured data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// Latest evidence bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence_id: Option<String>,
    /// Latest child run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child_run_id: Option<RunId>,
    /// When the next attempt is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Time>,
    /// Start of the latest visit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// End of the latest visit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// US dollars over all visits.
    pub cost_usd: f64,
    /// Answer of a gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved: Option<bool>,
    /// Comment given with the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Ref of the latest snapshot of the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_ref: Option<String>,
}

/// One verifier's latest word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// The node.
    pub node: NodeId,
    /// The bundle behind it; for a subflow the child's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence_id: Option<String>,
    /// Run that holds the bundle when it is not this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence_run: Option<RunId>,
    /// Green or red.
    pub passed: bool,
    /// Content of the tree the checks saw.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_digest: Option<String>,
    /// Directory the digest was taken in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest_cwd: Option<String>,
    /// `sideEffectSeq` when it was given.
    pub side_effect_seq: u64,
    /// Recorded only, not part of the verdict in force.
    #[serde(default)]
    pub advisory: bool,
    /// Given by the run-level contract.
    #[serde(default)]
    pub run_contract: bool,
    /// Why a green one does not make the run verified, such as work that passed and could not be merged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
}

/// Equal red verdicts of one node in a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedStreak {
    /// What was equal.
    pub fingerprint: String,
    /// Visit of the last one; attempts of one visit count once, because nothing was repaired between them.
    pub visit: u32,
    /// How many visits.
    pub count: u32,
}

/// What a run has used, children included.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Spend {
    /// US dollars.
    pub cost_usd: f64,
    /// Agent turns.
    pub turns: u64,
    /// Input tokens.
    pub tokens_in: u64,
    /// Output tokens.
    pub tokens_out: u64,
    /// Some of it is a guess: tokens nobody counted, a turn that was cut off, or a model whose price nobody knows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

/// An operator's correction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Steer {
    /// Names it in later events.
    pub id: String,
    /// What was said.
    pub text: String,
    /// When it was queued.
    pub at: Time,
    /// Nodes an attempt of which succeeded with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub applied: Vec<NodeId>,
}

/// Words an operator puts into a council's next round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Injection {
    /// Names it in later events.
    pub id: String,
    /// The council node it is for.
    pub node: NodeId,
    /// What was said; shortened once a round took it.
    pub text: String,
    /// When it was queued.
    pub at: Time,
    /// The round that took it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<u32>,
}

/// Where the goal of a node stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GoalState {
    /// Conversation that follows it; empty until the engine named it.
    #[serde(default)]
    pub thread_id: String,
    /// What is to be reached, as it was set; empty until it was.
    #[serde(default)]
    pub objective: String,
    /// `active paused blocked usageLimited budgetLimited complete`.
    #[serde(default)]
    pub status: String,
    /// Tokens so far.
    #[serde(default)]
    pub tokens_used: u64,
    /// Seconds so far.
    #[serde(default)]
    pub time_used_seconds: u64,
    /// Times an engine process went on with it.
    #[serde(default)]
    pub resumes: u32,
    /// The latest failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The agent's latest words, shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_message: Option<String>,
    /// US dollars so far.
    #[serde(default)]
    pub cost_usd: f64,
}

/// A question to a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    /// The gate node.
    pub node: NodeId,
    /// Its visit.
    pub visit: u32,
    /// What is asked.
    pub prompt: String,
    /// Since when.
    pub since: Time,
}

/// Why nothing moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// `slot backoff quota stall gate child storage`.
    pub kind: String,
    /// Since when.
    pub since: Time,
    /// Until when, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// One sentence.
    pub detail: String,
}

impl RunRecord {
    /// The node called `id`.
    pub fn node(&self, id: &str) -> Option<&NodeRecord> {
        self.nodes.iter().find(|n| n.id == id).map(AsRef::as_ref)
    }

    /// The node called `id`, to change.
    pub fn node_mut(&mut self, id: &str) -> Option<&mut NodeRecord> {
        self.nodes.iter_mut().find(|n| n.id == id).map(Arc::make_mut)
    }
}
