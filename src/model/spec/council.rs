//! A council as a node of a workflow, with its bounds.

use super::EngineChoice;

/// Several agents in rounds, each in a worktree of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct CouncilNode {
    /// What is to be done.
    pub task: String,
    /// 1 to 16 members with distinct names.
    pub agents: Vec<CouncilAgent>,
    /// The project, absolute or relative to the run's directory.
    pub project_dir: Option<String>,
    /// Most rounds, 1 to 50; the first one plans.
    pub max_rounds: u32,
    /// Most tool turns of a member in a round, 1 to 500.
    pub max_turns_per_agent: u32,
    /// Cap of one member over all rounds, in US dollars.
    pub max_budget_usd: Option<f64>,
    /// Permission mode of members without one.
    pub default_permission_mode: String,
    /// Wall-clock limit of one send to one member, in milliseconds.
    pub agent_timeout_ms: u64,
    /// Begins although the checkout has uncommitted changes, which members do not see.
    pub allow_dirty: bool,
    /// Council to go on with.
    pub continue_from: Option<String>,
}

impl CouncilNode {
    /// Rounds where nothing else is said.
    pub const ROUNDS_DEFAULT: u32 = 15;
    /// Most rounds.
    pub const ROUNDS_MAX: u32 = 50;
    /// Tool turns where nothing else is said.
    pub const TURNS_DEFAULT: u32 = 30;
    /// Most tool turns.
    pub const TURNS_MAX: u32 = 500;
    /// Limit of one send where nothing else is said, in milliseconds.
    pub const TIMEOUT_DEFAULT_MS: u64 = 1_800_000;
    /// Least limit of one send.
    pub const TIMEOUT_MIN_MS: u64 = 1_000;
    /// Most of one send.
    pub const TIMEOUT_MAX_MS: u64 = 14_400_000;
    /// Permission mode where nothing else is said.
    pub const MODE_DEFAULT: &'static str = "bypassPermissions";
    /// Milliseconds a session may take to open and to end, per send.
    const SEND_MARGIN_MS: u64 = 35_000;
    /// Sends of a round whose answer was empty, the first one included.
    const SENDS: u64 = 3;
    /// Follow-ups of a round, and how long each may take with its pause, in milliseconds.
    const FOLLOW_UPS: (u64, u64) = (2, 65_000);
    /// Pause between two rounds in milliseconds.
    pub const ROUND_PAUSE_MS: u64 = 3_000;

    /// The longest all rounds can take, in milliseconds, with one member at a time.
    pub fn worst_case_ms(&self) -> u64 {
        let send = self.agent_timeout_ms.saturating_add(Self::SEND_MARGIN_MS).saturating_mul(Self::SENDS);
        let member = send.saturating_add(Self::FOLLOW_UPS.0 * Self::FOLLOW_UPS.1);
        let round = member.saturating_mul(self.agents.len() as u64).saturating_add(Self::ROUND_PAUSE_MS);
        round.saturating_mul(self.max_rounds.into())
    }
}

/// A member of a council.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CouncilAgent {
    /// Distinct inside the node, whatever its case.
    pub name: String,
    /// Shown beside the name; may be empty.
    pub emoji: String,
    /// Its role.
    pub persona: Option<String>,
    /// Its role when there is no persona.
    pub prompt: Option<String>,
    /// Who answers.
    pub choice: EngineChoice,
    /// Another API endpoint.
    pub base_url: Option<String>,
    /// More than one model at once, where the engine has that.
    pub ultracode: bool,
}
