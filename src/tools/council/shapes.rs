//! Arguments of `council_start`, for their schema alone: the kernel reads and judges the JSON itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tools::shapes::{Effort, Free};

/// What a council is started from.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct StartShape {
    /// What is to be done, 5 to 100000 characters. Required unless continueFrom is given.
    task: Option<String>,
    /// Absolute directory in a git work tree with a commit and a checked-out branch.
    project_dir: String,
    /// 1 to 16 members. Default: Planner, Generator and Evaluator.
    #[schemars(length(min = 1, max = 16))]
    agents: Option<Vec<MemberShape>>,
    /// Most rounds; the first one plans. Default 15.
    #[schemars(range(min = 1, max = 50))]
    max_rounds: Option<u32>,
    /// Limit of one message to one member in milliseconds. Default 1800000.
    #[schemars(range(min = 1_000, max = 14_400_000))]
    agent_timeout_ms: Option<u64>,
    /// Tool turns of a member in a round. Default 30.
    #[schemars(range(min = 1, max = 500))]
    max_turns_per_agent: Option<u32>,
    /// Cap of each member over all rounds in US dollars.
    max_budget_usd: Option<f64>,
    /// Permission mode of members without one. Default bypassPermissions.
    default_permission_mode: Option<PermissionMode>,
    /// Acceptance contract { checks: [...] } as in workflow_start; it decides, votes do not.
    contract: Option<Free>,
    /// Start although the checkout has uncommitted changes, which members do not see. Default false.
    allow_dirty: Option<bool>,
    /// Id of a council of this repository to go on with; task and agents default to its own.
    continue_from: Option<String>,
    /// Any text; a second start with it within a day returns the same council.
    #[schemars(length(min = 1, max = 256))]
    idempotency_key: Option<String>,
}

/// A member.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
pub(super) struct MemberShape {
    /// Distinct name, 1 to 32 letters, digits, '_' or '-'.
    name: String,
    /// Shown beside the name.
    emoji: Option<String>,
    /// Its role.
    persona: Option<String>,
    /// Its role when there is no persona.
    prompt: Option<String>,
    /// Engine. Default: the server's.
    engine: Option<String>,
    /// Model.
    model: Option<String>,
    /// Agent that engine acp runs.
    acp_agent: Option<String>,
    /// Another API endpoint.
    base_url: Option<String>,
    /// Thinking effort.
    effort: Option<Effort>,
    /// What it may do without asking.
    permission_mode: Option<PermissionMode>,
    /// Claude only: more than one model at once.
    ultracode: Option<bool>,
    /// For engine custom, from callers on this machine only: the program's description.
    custom_engine: Option<Free>,
    /// For engine custom: REF of the server's variable CLAWO_CUSTOM_ENGINE_REF.
    custom_engine_ref: Option<String>,
}

/// What an agent may do without asking.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum PermissionMode {
    AcceptEdits,
    BypassPermissions,
    Manual,
    Default,
    DontAsk,
    Plan,
    Auto,
}

/// What the answers about a council promise; they carry all of its view.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct CouncilBrief {
    /// The council.
    id: String,
    /// The run it is part of.
    run_id: String,
    /// running, consensus, max_rounds, error, aborted, accepted or rejected.
    status: String,
    /// The round that goes on, or the last one.
    round: u32,
    /// For programs, when it is an error.
    error_code: Option<String>,
    /// Replies, each with agent, round, content, consensus and merge.
    responses: Vec<Free>,
    /// Outcome of the run, once it has ended.
    outcome: Option<String>,
    /// Members whose work is not merged.
    unmerged_members: Vec<String>,
    /// US dollars.
    cost_usd: f64,
    /// What the caller should know.
    warnings: Vec<String>,
}

/// What a review promises; it carries more.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct ReviewBrief {
    /// The council.
    council_id: String,
    /// Where it stands.
    status: String,
    /// The plan.
    plan_content: Option<String>,
    /// Files, each with change, insertions, deletions and members.
    changed_files: Vec<Free>,
    /// Branch with the work.
    integration_branch: String,
    /// fast-forward, merge-commit, conflict or none.
    merge_preview: String,
    /// Members whose work is not merged.
    unmerged_members: Vec<String>,
    /// How to review it.
    reviewer_guidance: String,
}

/// What an acceptance promises; it carries more.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct AcceptBrief {
    /// The council.
    council_id: String,
    /// Whether the branch moved.
    merged: bool,
    /// fast-forward, merge-commit or none.
    merge_kind: String,
    /// The branch's commit afterwards.
    after: String,
    /// What could not be removed; accept again to try again.
    cleanup_errors: Vec<String>,
}
