//! The workflow spec as callers write it, for its schema alone: the kernel reads and judges the JSON itself.
#![expect(missing_docs, reason = "the doc comments that exist become the schema's descriptions")]

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::shapes::{AgentShape, BudgetShape, ContractShape, Effort, Free, WorkspaceShape};

/// A workflow: nodes run in order unless a node or router says otherwise.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SpecShape {
    /// Shown in lists.
    #[schemars(length(min = 1))]
    pub name: String,
    /// 1 to 1000 nodes.
    #[schemars(length(min = 1, max = 1000))]
    pub nodes: Vec<NodeShape>,
    /// Absolute directory; the start argument `cwd` overrides it.
    pub cwd: Option<String>,
    /// Run-level acceptance contract; appends a last verifier unless a node has `contract: "run"`.
    pub contract: Option<ContractShape>,
    /// Most times one node may be entered. Default 50.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_node_visits: Option<u32>,
    /// Bounds over the whole run.
    pub budget: Option<BudgetShape>,
    /// Whose checkout it works in. Default inPlace.
    pub workspace: Option<WorkspaceShape>,
    /// Equal red verdicts in a row that end a loop; 0 never does. Default 3.
    pub no_progress_limit: Option<u32>,
}

/// One step.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum NodeShape {
    /// One turn of one agent.
    Agent {
        #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,64}$"))]
        id: String,
        /// Successor instead of the following node.
        next: Option<String>,
        retry: Option<RetryShape>,
        /// Wall-clock limit of one attempt in milliseconds.
        #[schemars(range(min = 1))]
        timeout_ms: Option<u64>,
        on_failure: Option<OnFailureShape>,
        /// What it is asked.
        prompt: String,
        /// Nodes whose outputs it is shown.
        inputs: Option<Vec<String>>,
        engine: Option<String>,
        model: Option<String>,
        effort: Option<Effort>,
        /// Absolute, or relative to the run's directory.
        cwd: Option<String>,
        /// One conversation shared by every node with this name.
        session_name: Option<String>,
        /// Default bypassPermissions.
        permission_mode: Option<String>,
        /// Agent that engine acp runs.
        acp_agent: Option<String>,
        append_system_prompt: Option<String>,
        /// Whose checkout it works in. Default none: the run's.
        isolation: Option<IsolationShape>,
    },
    /// Several agents on one prompt.
    Fanout {
        #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,64}$"))]
        id: String,
        next: Option<String>,
        retry: Option<RetryShape>,
        #[schemars(range(min = 1))]
        timeout_ms: Option<u64>,
        on_failure: Option<OnFailureShape>,
        /// The shared task.
        prompt: String,
        #[schemars(length(min = 1, max = 16))]
        agents: Vec<AgentShape>,
        inputs: Option<Vec<String>>,
        /// Whether one more turn merges the answers.
        synthesize: Option<bool>,
        synthesis_engine: Option<String>,
        synthesis_model: Option<String>,
        synthesis_permission_mode: Option<String>,
        synthesis_acp_agent: Option<String>,
        max_turns_per_agent: Option<u32>,
        /// Cap of each agent in US dollars.
        max_budget_usd: Option<f64>,
        cwd: Option<String>,
        agent_timeout_ms: Option<u64>,
        /// Whose checkout each agent works in. Default none: all in the run's.
        isolation: Option<IsolationShape>,
        /// Keep all answers, or the one whose worktree passes the contract. Default all.
        select: Option<SelectShape>,
        /// With select verified: whether the winner is merged into the checked-out branch. Default true.
        merge: Option<bool>,
        /// With isolation: begin although the checkout has uncommitted changes. Default false.
        allow_dirty: Option<bool>,
    },
    /// Several agents in rounds, each in a worktree of its own; the runtime merges, votes are advisory.
    Council {
        #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,64}$"))]
        id: String,
        next: Option<String>,
        retry: Option<RetryShape>,
        /// Wall-clock limit of one attempt in milliseconds. Default: what all rounds can take.
        #[schemars(range(min = 1))]
        timeout_ms: Option<u64>,
        on_failure: Option<OnFailureShape>,
        /// What is to be done, 5 to 100000 characters.
        task: String,
        #[schemars(length(min = 1, max = 16))]
        agents: Vec<MemberShape>,
        /// A git work tree, absolute or relative to the run's directory. Default: that directory.
        project_dir: Option<String>,
        /// Default 15.
        #[schemars(range(min = 1, max = 50))]
        max_rounds: Option<u32>,
        /// Tool turns of a member in a round. Default 30.
        #[schemars(range(min = 1, max = 500))]
        max_turns_per_agent: Option<u32>,
        /// Cap of each member over all rounds in US dollars.
        max_budget_usd: Option<f64>,
        /// Permission mode of members without one. Default bypassPermissions.
        default_permission_mode: Option<String>,
        /// Limit of one message to one member in milliseconds. Default 1800000.
        #[schemars(range(min = 1_000, max = 14_400_000))]
        agent_timeout_ms: Option<u64>,
        /// Begin although the checkout has uncommitted changes, which members do not see. Default false.
        allow_dirty: Option<bool>,
        /// Council of the same repository to go on with.
        continue_from: Option<String>,
    },
    /// Runs an acceptance contract.
    Verifier {
        #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,64}$"))]
        id: String,
        next: Option<String>,
        retry: Option<RetryShape>,
        #[schemars(range(min = 1))]
        timeout_ms: Option<u64>,
        on_failure: Option<OnFailureShape>,
        contract: ContractOrRun,
        cwd: Option<String>,
        /// Recorded only, never part of the verdict. Default false.
        advisory: Option<bool>,
        engine: Option<String>,
        model: Option<String>,
    },
    /// Waits for a person's yes or no.
    HumanGate {
        #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,64}$"))]
        id: String,
        next: Option<String>,
        retry: Option<RetryShape>,
        #[schemars(range(min = 1))]
        timeout_ms: Option<u64>,
        on_failure: Option<OnFailureShape>,
        /// What is asked.
        prompt: String,
    },
    /// Jumps by closed conditions; the first match wins.
    Router {
        #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,64}$"))]
        id: String,
        routes: Vec<RouteShape>,
        /// Where control goes when none matches; otherwise to the following node.
        default: Option<String>,
    },
    /// Another workflow as a child run.
    Subflow {
        #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,64}$"))]
        id: String,
        next: Option<String>,
        retry: Option<RetryShape>,
        #[schemars(range(min = 1))]
        timeout_ms: Option<u64>,
        on_failure: Option<OnFailureShape>,
        workflow: SpecOrRun,
    },
    /// One goal on one conversation, followed until it is reached or given up.
    Goal {
        #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,64}$"))]
        id: String,
        next: Option<String>,
        retry: Option<RetryShape>,
        /// Wall-clock limit of one attempt in milliseconds. Default none.
        #[schemars(range(min = 1))]
        timeout_ms: Option<u64>,
        on_failure: Option<OnFailureShape>,
        /// What is to be reached, at most 4000 characters.
        #[schemars(length(min = 1, max = 4000))]
        objective: String,
        /// codex (an app-server thread), claude or scripted. Default codex.
        engine: Option<GoalEngineShape>,
        model: Option<String>,
        effort: Option<Effort>,
        /// Absolute, or relative to the run's directory.
        cwd: Option<String>,
        /// Not with claude.
        sandbox_mode: Option<SandboxShape>,
        /// Program and arguments the engine is run under.
        #[schemars(length(max = 64))]
        launcher: Option<Vec<String>>,
        /// Conversation to begin on; its goal is replaced, its history kept.
        thread_id: Option<String>,
        /// Tokens after which a goal ends as budgetLimited. Default 100000000.
        #[schemars(range(min = 1))]
        token_budget: Option<u64>,
        /// Tries to go on after a stall, over all visits.
        capacity_retry: Option<CapacityRetryShape>,
        /// Silence of an active goal in milliseconds that counts as a stall. Default 600000.
        #[schemars(range(min = 1))]
        stall_ms: Option<u64>,
    },
}

/// Whose checkout an agent works in.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IsolationShape {
    None,
    Worktree,
}

/// Which answers of a fan-out count.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SelectShape {
    All,
    Verified,
}

/// A member of a council.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemberShape {
    /// Distinct whatever its case; integration, runtime and salvage are taken.
    #[schemars(regex(pattern = "^[A-Za-z0-9_-]{1,32}$"))]
    pub name: String,
    /// Shown beside the name, at most 8 characters.
    pub emoji: Option<String>,
    /// Its role.
    pub persona: Option<String>,
    /// Its role when there is no persona.
    pub prompt: Option<String>,
    pub engine: Option<String>,
    pub model: Option<String>,
    pub acp_agent: Option<String>,
    /// Another API endpoint.
    pub base_url: Option<String>,
    pub effort: Option<Effort>,
    pub permission_mode: Option<String>,
    /// Claude only: more than one model at once.
    pub ultracode: Option<bool>,
}

/// Engines that follow goals.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GoalEngineShape {
    Codex,
    CodexApp,
    Claude,
    Scripted,
}

/// What an agent may do to files.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxShape {
    ReadOnly,
    WorkspaceWrite,
    DangerFullAccess,
}

/// Tries to go on with a goal; the wait before each is twice the one before, up to 15 minutes.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CapacityRetryShape {
    /// Default 20.
    #[schemars(range(min = 0, max = 100))]
    pub max: Option<u32>,
    /// Default 30000.
    pub backoff_ms: Option<u64>,
}

/// Extra attempts; the wait before each is `backoffMs` times the attempt's number.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryShape {
    /// Default 0.
    #[schemars(range(min = 0, max = 100))]
    pub max: Option<u32>,
    /// Default 1000.
    pub backoff_ms: Option<u64>,
}

/// What a failed node means for the run. Default fail.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailureShape {
    Fail,
    Continue,
}

/// The run-level contract, or one of the node's own.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ContractOrRun {
    /// The run-level contract.
    Run(RunWord),
    /// The node's own.
    Inline(ContractShape),
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunWord {
    Run,
}

/// The id of an existing run whose spec is run again, or an inline spec of this same form.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SpecOrRun {
    /// Id of an existing run.
    RunId(String),
    /// A spec of this same form.
    Inline(Free),
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RouteShape {
    pub when: ConditionShape,
    /// Node that control goes to.
    pub to: String,
}

#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ConditionShape {
    /// Always holds.
    Always,
    /// The node's current state is failed.
    NodeFailed { node: String },
    /// The node's current state is succeeded.
    NodeSucceeded { node: String },
    /// The node's own latest evidence is a pass.
    Verified { node: String },
    /// The node was entered fewer than n times.
    VisitsLt { node: String, n: u32 },
    /// All conditions of the same form hold; an empty list does not. At most 6 deep.
    And { all: Vec<Free> },
}
