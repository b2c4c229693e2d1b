//! Events of a run's log. Folding them over the spec gives the record; nothing else does.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    NodeId, NodeState, RunId, RunOutcome, RunState, Time,
    run::{Baseline, Gate, Injection, OutputText, ParentRef, Spend, Steer, Verdict, Waiting},
};

/// Longest text of a `log` event, in bytes.
pub const LOG_TEXT_MAX: usize = 4096;
/// Most `log` events of one node visit; the rest are counted by a last one.
pub const LOGS_PER_VISIT: u32 = 200;

/// One thing that happened to a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Event {
    /// First event of every log.
    RunCreated {
        /// Name of the spec.
        workflow: String,
        /// Directory given at start.
        cwd: String,
        /// Creation.
        at: Time,
        /// The repository as it was found.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        baseline: Option<Baseline>,
        /// Whether a starting server continues it by itself.
        auto_resume: bool,
        /// The run that started it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<ParentRef>,
        /// Branch of a worktree run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workspace_branch: Option<String>,
        /// Path of a worktree run's checkout.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workspace_path: Option<String>,
        /// Directory nodes work in, when it is not the one given at start.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        work_dir: Option<String>,
        /// Caller's key for a start that may be repeated.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        idempotency_key: Option<String>,
    },
    /// A process took the run over. Written by the store.
    Fence {
        /// Who; for people.
        owner: Value,
    },
    /// The run moved.
    RunState {
        /// Where to.
        state: RunState,
        /// Present once terminal.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outcome: Option<RunOutcome>,
        /// Why the outcome is what it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// What went wrong.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A node moved. `running` with a new visit moves the program counter to it.
    NodeState {
        /// The node.
        node: NodeId,
        /// Where to.
        state: NodeState,
        /// Visit, from 1.
        visit: u32,
        /// Attempt, from 1.
        attempt: u32,
        /// Failed attempts of this visit so far.
        #[serde(default)]
        failures: u32,
        /// Failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        /// Answer of a gate.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approved: Option<bool>,
        /// Comment given with the answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        comment: Option<String>,
    },
    /// A node's text.
    NodeOutput {
        /// The node.
        node: NodeId,
        /// The text.
        output: OutputText,
    },
    /// A node's structured data.
    NodeData {
        /// The node.
        node: NodeId,
        /// Which part of the node's data.
        key: String,
        /// The data; small, long text is an artifact.
        data: Value,
    },
    /// A verifier's word.
    Verdict {
        /// The word.
        verdict: Verdict,
        /// Fingerprint of a red one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        fingerprint: Option<String>,
    },
    /// A bundle was written.
    Evidence {
        /// The node.
        node: NodeId,
        /// The bundle.
        evidence_id: String,
    },
    /// A council's vote; advisory.
    Vote {
        /// The vote.
        vote: Value,
    },
    /// Something was used.
    Cost {
        /// The node.
        node: NodeId,
        /// How much.
        spend: Spend,
    },
    /// An operator's correction was queued.
    Steer {
        /// The correction.
        steer: Steer,
    },
    /// An attempt of a node succeeded with these corrections in its prompt.
    SteerApplied {
        /// The node.
        node: NodeId,
        /// The corrections.
        ids: Vec<String>,
    },
    /// Words for a council's next round were queued.
    Inject {
        /// The words.
        injection: Injection,
    },
    /// A round of a council took these words.
    InjectTaken {
        /// The words.
        ids: Vec<String>,
        /// The round.
        round: u32,
    },
    /// Nothing new is begun any more; the run is cancelled when what goes on has ended.
    WindDown,
    /// Nodes without a directory of their own work there from now on, and count changes from there.
    WorkDir {
        /// The node that made it.
        node: NodeId,
        /// Absolute directory.
        path: String,
        /// Top of the worktree it lies in.
        top: String,
        /// The repository as that node's work began.
        baseline: Baseline,
    },
    /// A gate opened (present) or was answered (absent).
    Gate {
        /// The open gate.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gate: Option<Gate>,
    },
    /// The next attempt is due then.
    RetryScheduled {
        /// The node.
        node: NodeId,
        /// The attempt that will start.
        attempt: u32,
        /// When.
        retry_at: Time,
    },
    /// Something is waited for (present) or no longer (absent).
    Wait {
        /// What.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        waiting: Option<Waiting>,
    },
    /// A child run was started.
    Child {
        /// The node.
        node: NodeId,
        /// The child.
        child_run_id: RunId,
    },
    /// What a child run has used in all so far. Saying the same or less again changes nothing.
    ChildCost {
        /// The child.
        child_run_id: RunId,
        /// Node that waits for it, or at which an agent of the run started it; absent when nothing runs any more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<NodeId>,
        /// How much, in all.
        spend: Spend,
    },
    /// The workspace was stored under a ref.
    Snapshot {
        /// The node.
        node: NodeId,
        /// The ref.
        snapshot_ref: String,
    },
    /// A process of the run could not be ended.
    Unkillable {
        /// What is left.
        detail: String,
    },
    /// Something to know, for people.
    Log {
        /// The node, when it is about one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<NodeId>,
        /// `info` or `warn`.
        level: String,
        /// At most [`LOG_TEXT_MAX`] bytes.
        text: String,
    },
}

impl Event {
    /// The word of its `type`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::RunCreated { .. } => "run_created",
            Self::Fence { .. } => "fence",
            Self::RunState { .. } => "run_state",
            Self::NodeState { .. } => "node_state",
            Self::NodeOutput { .. } => "node_output",
            Self::NodeData { .. } => "node_data",
            Self::Verdict { .. } => "verdict",
            Self::Evidence { .. } => "evidence",
            Self::Vote { .. } => "vote",
            Self::Cost { .. } => "cost",
            Self::Steer { .. } => "steer",
            Self::SteerApplied { .. } => "steer_applied",
            Self::Inject { .. } => "inject",
            Self::InjectTaken { .. } => "inject_taken",
            Self::WindDown => "wind_down",
            Self::WorkDir { .. } => "work_dir",
            Self::Gate { .. } => "gate",
            Self::RetryScheduled { .. } => "retry_scheduled",
            Self::Wait { .. } => "wait",
            Self::Child { .. } => "child",
            Self::ChildCost { .. } => "child_cost",
            Self::Snapshot { .. } => "snapshot",
            Self::Unkillable { .. } => "unkillable",
            Self::Log { .. } => "log",
        }
    }
}
