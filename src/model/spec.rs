//! Workflow specs in their normalised form. `kernel::spec` makes them from a caller's JSON.

mod council;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Contract, NodeId};

pub use council::{CouncilAgent, CouncilNode};

/// Id of the verifier that a run-level contract appends.
pub const VERIFY_NODE: &str = "__verify";

/// Longest objective of a goal, in characters; the engines take no longer one.
pub const OBJECTIVE_MAX: usize = 4000;

/// What a run executes. Written once as `spec.json` and never changed.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowSpec {
    /// Name shown in lists.
    pub name: String,
    /// Nodes in order; control flows to the next one unless told otherwise.
    pub nodes: Vec<Node>,
    /// Absolute directory the run works in.
    pub cwd: String,
    /// The run-level acceptance contract.
    pub contract: Option<Contract>,
    /// Most times one node may be entered.
    pub max_node_visits: u32,
    /// Bounds over the whole run, children included.
    pub budget: Budget,
    /// Where the work happens.
    pub workspace: Workspace,
    /// Equal red verdicts in a row that end a loop early; 0 never does.
    pub no_progress_limit: u32,
}

/// Bounds over a whole run; absent means unbounded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cost_usd: Option<f64>,
    /// Wall time in milliseconds since the run was created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_wall_ms: Option<u64>,
    /// Turns of all agents together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_agent_turns: Option<u64>,
}

/// Whose checkout a run works in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Workspace {
    /// The directory itself.
    #[default]
    InPlace,
    /// An own git worktree on branch `clawo/<runId>`.
    Worktree,
}

/// One step.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its name inside the spec.
    pub id: NodeId,
    /// Explicit successor.
    pub next: Option<NodeId>,
    /// Extra attempts.
    pub retry: Retry,
    /// Wall-clock limit of one attempt in milliseconds; absent means the kind's default.
    pub timeout_ms: Option<u64>,
    /// What a failed node means for the run.
    pub on_failure: OnFailure,
    /// What it does.
    pub kind: NodeKind,
}

/// Extra attempts per visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// Extra attempts after the first, 0 to 100.
    pub max: u32,
    /// Milliseconds; the wait is this times the attempt number.
    pub backoff_ms: u64,
}

impl Default for Retry {
    fn default() -> Self {
        Self { max: 0, backoff_ms: 1000 }
    }
}

/// What a failed node means for the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The run fails.
    #[default]
    Fail,
    /// The failure is recorded and control moves on.
    Continue,
}

/// What a node does. Kinds of later versions are refused by name when a spec is read.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeKind {
    /// One turn of one agent.
    Agent(AgentNode),
    /// Several agents on one prompt.
    Fanout(FanoutNode),
    /// The acceptance contract.
    Verifier(VerifierNode),
    /// A person's decision.
    HumanGate(GateNode),
    /// A jump by closed conditions.
    Router(RouterNode),
    /// Another workflow as a child run.
    Subflow(SubflowNode),
    /// One goal, followed until it ends.
    Goal(GoalNode),
    /// Several agents in rounds, each in a worktree of its own.
    Council(CouncilNode),
}

impl NodeKind {
    /// The word a caller writes as `kind`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Agent(_) => "agent",
            Self::Fanout(_) => "fanout",
            Self::Verifier(_) => "verifier",
            Self::HumanGate(_) => "human_gate",
            Self::Router(_) => "router",
            Self::Subflow(_) => "subflow",
            Self::Goal(_) => "goal",
            Self::Council(_) => "council",
        }
    }

    /// Whether it can change the workspace.
    pub fn has_side_effects(&self) -> bool {
        matches!(self, Self::Agent(_) | Self::Fanout(_) | Self::Subflow(_) | Self::Goal(_) | Self::Council(_))
    }
}

/// Which engine answers and how; absent values keep the engine's default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineChoice {
    /// Engine name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Model name as the engine knows it; a scenario for the scripted engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `low medium high xhigh max ultra auto`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// Permission mode of the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<String>,
    /// Agent that engine `acp` runs: a preset, or a name from the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acp_agent: Option<String>,
}

/// What an agent may do to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// Nothing.
    ReadOnly,
    /// Write inside its directory.
    WorkspaceWrite,
    /// Whatever its user may.
    DangerFullAccess,
}

impl SandboxMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::ReadOnly, Self::WorkspaceWrite, Self::DangerFullAccess];

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::WorkspaceWrite => "workspace-write",
            Self::DangerFullAccess => "danger-full-access",
        }
    }
}

/// One turn of one agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentNode {
    /// What it is asked.
    pub prompt: String,
    /// Nodes whose outputs it is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<NodeId>,
    /// Who answers.
    #[serde(default)]
    pub choice: EngineChoice,
    /// Directory, absolute or relative to the run's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// One named conversation shared by several nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_name: Option<String>,
    /// Text added to the system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub append_system_prompt: Option<String>,
    /// Whose checkout it works in.
    #[serde(default)]
    pub isolation: Isolation,
}

/// Whose checkout the agents of a node work in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Isolation {
    /// The run's.
    #[default]
    None,
    /// A worktree of its own for each.
    Worktree,
}

/// Whose work a fan-out keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Select {
    /// Everybody's.
    #[default]
    All,
    /// The best of those that the run's contract passes.
    Verified,
}

/// Several agents on one prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FanoutNode {
    /// The shared task.
    pub prompt: String,
    /// 1 to 16 agents with distinct names.
    pub agents: Vec<FanoutAgent>,
    /// Nodes whose outputs they are shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<NodeId>,
    /// Whether one more turn merges the answers.
    #[serde(default)]
    pub synthesize: bool,
    /// Who merges.
    #[serde(default)]
    pub synthesis: EngineChoice,
    /// Most model calls of one agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns_per_agent: Option<u32>,
    /// Cap of one agent in US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_budget_usd: Option<f64>,
    /// Directory, absolute or relative to the run's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Wall-clock limit of one agent in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_timeout_ms: Option<u64>,
    /// Whose checkout they work in.
    #[serde(default)]
    pub isolation: Isolation,
    /// Whose work is kept.
    #[serde(default)]
    pub select: Select,
    /// Whether the selected work is merged into the checked-out branch.
    #[serde(default = "yes")]
    pub merge: bool,
    /// Begins although the checkout has uncommitted changes, which isolated agents do not see.
    #[serde(default)]
    pub allow_dirty: bool,
}

fn yes() -> bool {
    true
}

/// One member of a fan-out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FanoutAgent {
    /// Distinct inside the node.
    pub name: String,
    /// Who answers.
    #[serde(default)]
    pub choice: EngineChoice,
    /// What it may do to files; absent leaves it to the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxMode>,
    /// Put before the shared task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persona: Option<String>,
    /// Replaces persona and shared task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Another API endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
}

/// Where a verifier's contract comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContractSource {
    /// The run-level contract.
    Run,
    /// The node's own.
    Inline(Contract),
}

/// The acceptance contract as a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifierNode {
    /// What is checked.
    pub contract: ContractSource,
    /// Directory, absolute or relative to the run's.
    pub cwd: Option<String>,
    /// Recorded, but never part of the verdict in force.
    pub advisory: bool,
    /// Who repairs when the contract has fixer rounds.
    pub choice: EngineChoice,
}

/// A person's decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GateNode {
    /// What is asked.
    pub prompt: String,
}

/// A jump by closed conditions, first match wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouterNode {
    /// Tried in order.
    pub routes: Vec<Route>,
    /// Where control goes when none matches; otherwise to the next node.
    pub default: Option<NodeId>,
}

/// One possible jump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// When it is taken.
    pub when: Condition,
    /// Where it leads.
    pub to: NodeId,
}

/// Closed conditions; there is no expression language because a spec can come from an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Always holds.
    Always,
    /// The node's current state is failed.
    NodeFailed(NodeId),
    /// The node's current state is succeeded.
    NodeSucceeded(NodeId),
    /// The node's own latest evidence is a pass.
    Verified(NodeId),
    /// The node was entered fewer than `n` times.
    VisitsLt(NodeId, u32),
    /// All hold; an empty list does not.
    And(Vec<Condition>),
}

/// Another workflow as a child run.
#[derive(Debug, Clone, PartialEq)]
pub struct SubflowNode {
    /// What the child executes.
    pub workflow: SubflowSource,
}

/// One goal on one conversation, followed until it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoalNode {
    /// What is to be reached, 1 to [`OBJECTIVE_MAX`] characters.
    pub objective: String,
    /// Who follows it; the engine is named.
    pub choice: EngineChoice,
    /// Directory, absolute or relative to the run's.
    pub cwd: Option<String>,
    /// What it may do to files; absent means the engine's own default.
    pub sandbox: Option<SandboxMode>,
    /// Program and arguments the engine is run under.
    pub launcher: Vec<String>,
    /// Conversation to begin on: its goal is replaced, its history kept.
    pub thread_id: Option<String>,
    /// Tokens after which one goal ends.
    pub token_budget: u64,
    /// Tries to go on after a stall.
    pub capacity_retry: CapacityRetry,
    /// Milliseconds without a turn or news after which an active goal has stalled.
    pub stall_ms: u64,
}

/// Tries to go on with a goal that stands still, over all visits of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityRetry {
    /// Most tries, 0 to 100.
    pub max: u32,
    /// Milliseconds before the first; every further wait is twice as long, up to 15 minutes.
    pub backoff_ms: u64,
}

impl Default for CapacityRetry {
    fn default() -> Self {
        Self { max: 20, backoff_ms: 30_000 }
    }
}

impl GoalNode {
    /// Tokens of a goal where nothing else is said: enough for days of work, and an end to a loop that has none.
    pub const TOKENS_DEFAULT: u64 = 100_000_000;
    /// Most tokens that may be asked for.
    pub const TOKENS_MAX: u64 = 1_000_000_000_000;
    /// Silence where nothing else is said, in milliseconds.
    pub const STALL_MS_DEFAULT: u64 = 600_000;
    /// Engine where none is named.
    pub const ENGINE_DEFAULT: &'static str = "codex-app";
}

/// What a child run executes.
#[derive(Debug, Clone, PartialEq)]
pub enum SubflowSource {
    /// The stored spec of an existing run.
    RunId(String),
    /// A spec of its own, kept as the caller wrote it and validated with its parent.
    Inline(Value),
}

impl WorkflowSpec {
    /// The node called `id` and its position.
    pub fn node(&self, id: &str) -> Option<(usize, &Node)> {
        self.nodes.iter().enumerate().find(|(_, n)| n.id.as_str() == id)
    }
}
