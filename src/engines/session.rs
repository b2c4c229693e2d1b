//! What is asked of an adapter: the two traits, and what a session is opened and spoken to with.

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{
    Boxed, Capabilities, EngineError, ErrorClass, Sink, TurnOutcome,
    account::Usage,
    capabilities::{Opt, Support},
    custom::CustomEngine,
};
use crate::model::spec::{EngineChoice, SandboxMode};

/// What a session is opened with.
#[derive(Debug, Clone, Default)]
pub struct SessionSpec {
    /// Name of the session, `<runId>-<nodeId>-a<attempt>` unless pinned.
    pub name: String,
    /// Who answers; `engine` is resolved and present.
    pub choice: EngineChoice,
    /// Directory.
    pub cwd: PathBuf,
    /// Text added to the system prompt.
    pub append_system_prompt: Option<String>,
    /// Most model calls of a turn.
    pub max_turns: Option<u32>,
    /// Cap in US dollars.
    pub max_budget_usd: Option<f64>,
    /// Conversation to go on with.
    pub resume: Option<String>,
    /// Variables of the run for every process.
    pub run_env: Vec<(String, String)>,
    /// What else was chosen.
    pub options: SessionOptions,
    /// What its turns belong to.
    pub labels: Option<TurnLabels>,
}

/// What turns belong to, for the ledger. Engines never see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TurnLabels {
    /// Run.
    pub parent: Option<String>,
    /// Node of that run.
    pub node: Option<String>,
    /// Kind of that node.
    pub node_kind: Option<String>,
    /// Kind of task, when a caller declared it.
    pub task_kind: Option<String>,
    /// Whether something beyond the session bounds its money, so that a model without a price is taken for a dear one.
    pub capped: bool,
}

/// Choices that most sessions leave alone.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// What the agent may do to files.
    pub sandbox: Option<SandboxMode>,
    /// Model to use when the first one is overloaded.
    pub fallback_model: Option<String>,
    /// Replaces the engine's system prompt.
    pub system_prompt: Option<String>,
    /// Further directories for its tools.
    pub add_dirs: Vec<PathBuf>,
    /// Tools that need no asking, in the engine's words.
    pub allowed_tools: Vec<String>,
    /// Tools that are taken away.
    pub disallowed_tools: Vec<String>,
    /// Schema the reply must fit.
    pub json_schema: Option<Value>,
    /// Files with MCP servers.
    pub mcp_config: Vec<String>,
    /// Branches off the conversation in `resume` instead of going on with it.
    pub fork: bool,
    /// The engine keeps no transcript.
    pub no_persistence: bool,
    /// Another API endpoint; a price the engine states is then not believed.
    pub base_url: Option<String>,
    /// Program and arguments the engine is run under, for example `["nice", "-n", "10"]`.
    pub launcher: Vec<String>,
    /// The engine's own switches, checked against [`Engine::native_keys`].
    pub native: BTreeMap<String, Value>,
    /// Arguments passed on as they are; only from callers on this machine.
    pub extra_args: Vec<String>,
    /// The program of the `custom` engine.
    pub custom: Option<Arc<CustomEngine>>,
    /// Where its programs may write, beside their own state, when they may not everywhere. Set by the pool.
    pub writable: Option<Vec<PathBuf>>,
    /// Total of the conversation in `resume` that was counted before; see [`Counter`](super::account::Counter).
    pub counted: Option<Usage>,
    /// The goal of the conversation in `resume`, for engines that do not keep its bounds themselves.
    pub goal: Option<KnownGoal>,
}

/// What is known of a conversation's goal before its program is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownGoal {
    /// What is to be reached.
    pub objective: String,
    /// Tokens it may use.
    pub token_budget: Option<u64>,
    /// Tokens it has used.
    pub tokens_used: u64,
    /// Seconds it has taken.
    pub time_used_seconds: u64,
}

/// An adapter.
pub trait Engine: Send + Sync + fmt::Debug {
    /// Name in specs.
    fn name(&self) -> &'static str;
    /// What it can do.
    fn capabilities(&self) -> Capabilities;
    /// The program it would run; `None` when it is not installed. Engines that run what their choice names say theirs
    /// in [`program_of`](Self::program_of).
    fn program(&self) -> Option<PathBuf>;
    /// The program that would answer to `choice`.
    fn program_of(&self, _choice: &EngineChoice) -> Option<PathBuf> {
        self.program()
    }
    /// Whether its program is known only from the options of a session.
    fn program_in_options(&self) -> bool {
        false
    }
    /// Whether a sandbox of its own keeps git's folder from being written, so that an agent in a worktree can commit
    /// only where that is allowed by name.
    fn guards_git(&self) -> bool {
        false
    }
    /// What to do when no program is there.
    fn how_to_install(&self) -> String {
        let variable = self.name().to_uppercase().replace('-', "_");
        format!("install its program, or name it with CLAWO_{variable}_BIN")
    }
    /// The program's version, asked once.
    fn version(&self) -> Boxed<'_, Option<String>>;
    /// Problems with a choice (unknown effort, missing scenario), without starting anything.
    fn check(&self, choice: &EngineChoice) -> Vec<String>;
    /// What it does with an option.
    fn support(&self, option: Opt) -> Support;
    /// Keys of `engineOptions` it knows.
    fn native_keys(&self) -> &'static [&'static str] {
        &[]
    }
    /// Further problems with a whole spec; options and choice were looked at before.
    fn check_spec(&self, _spec: &SessionSpec) -> Vec<String> {
        Vec::new()
    }
    /// Starts a session; its process tree belongs to the session alone.
    fn open(&self, spec: SessionSpec, cancel: CancellationToken) -> Boxed<'_, Result<Box<dyn Session>, EngineError>>;
}

/// A conversation with a running agent.
pub trait Session: Send + fmt::Debug {
    /// One turn. Cancelling interrupts it and ends the process tree before it returns; [`Order::Interrupt`] only ends
    /// the turn, where the engine can do that.
    fn turn<'a>(&'a mut self, request: TurnRequest<'a>) -> Boxed<'a, TurnOutcome>;
    /// Something other than a turn.
    fn ask<'a>(
        &'a mut self,
        ask: Ask,
        _sink: Sink,
        _cancel: CancellationToken,
    ) -> Boxed<'a, Result<Answer, EngineError>> {
        let error = not_supported(&format!("this engine has no {}", ask.name()));
        Box::pin(std::future::ready(Err(error)))
    }
    /// Follows a goal until it ends or stalls. Cancelling interrupts the turn, pauses the goal and ends the process tree.
    fn goal<'a>(&'a mut self, _request: GoalRequest<'a>) -> Boxed<'a, GoalPass> {
        let end = GoalEnd::Failed(not_supported("this engine has no goals"));
        let pass = GoalPass { end, view: GoalView::default(), turns: TurnOutcome::default() };
        Box::pin(std::future::ready(pass))
    }
    /// Looks after what the program says while no turn is under way. Dropping it loses nothing. The default never ends.
    fn idle<'a>(&'a mut self, _sink: Sink) -> Boxed<'a, Idle> {
        Box::pin(std::future::pending())
    }
    /// Whether another turn can be taken; otherwise a new session has to go on with the conversation.
    fn alive(&self) -> bool {
        true
    }
    /// The engine's id of the conversation, once known.
    fn native_id(&self) -> Option<String>;
    /// Ends the session and its whole process tree; returns what could not be ended.
    fn stop(self: Box<Self>) -> Boxed<'static, Vec<String>>;
}

/// The engine cannot do this.
pub fn not_supported(text: &str) -> EngineError {
    EngineError::new(ErrorClass::NotSupported, text)
}

/// One turn.
#[derive(Debug)]
pub struct TurnRequest<'a> {
    /// What is said and how.
    pub message: Message<'a>,
    /// Told what happens.
    pub sink: Listener,
    /// Cuts the turn off and ends the session.
    pub cancel: CancellationToken,
    /// Orders meanwhile.
    pub orders: &'a mut Orders,
}

/// A sink that can be printed.
#[derive(Clone)]
pub struct Listener(pub Sink);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

/// What is said in a turn.
#[derive(Debug, Clone, Copy, Default)]
pub struct Message<'a> {
    /// The text.
    pub text: &'a str,
    /// Effort of this turn alone, where the engine takes one per turn.
    pub effort: Option<&'a str>,
    /// The agent is to plan and to change nothing.
    pub plan: bool,
    /// The text is a command to the program, such as `/compact`, and must reach it as one.
    pub command: bool,
}

impl<'a> From<&'a str> for Message<'a> {
    fn from(text: &'a str) -> Self {
        Self { text, ..Self::default() }
    }
}

/// What can be asked of a turn while it goes on.
#[derive(Debug)]
pub enum Order {
    /// End the turn; the session lives on where the engine can do that.
    Interrupt,
    /// Add this to the turn.
    Steer {
        /// The text.
        text: String,
        /// Told whether the engine took it.
        done: oneshot::Sender<Result<(), EngineError>>,
    },
}

/// Orders waiting for one session; more than these are refused to whoever gives them.
pub(super) const MAX_ORDERS: usize = 64;

/// Where orders arrive.
#[derive(Debug)]
pub struct Orders(mpsc::Receiver<Order>);

impl Orders {
    /// Orders, and where to give them.
    pub fn channel() -> (mpsc::Sender<Order>, Self) {
        let (sender, receiver) = mpsc::channel(MAX_ORDERS);
        (sender, Self(receiver))
    }

    /// Nobody gives any.
    pub fn none() -> Self {
        Self::channel().1
    }

    /// The next one. Never returns once nobody can give any. Dropping it loses nothing.
    pub async fn next(&mut self) -> Order {
        match self.0.recv().await {
            Some(order) => order,
            None => std::future::pending().await,
        }
    }
}

/// Something other than a turn that an engine may know how to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// Shorten the conversation, with a hint what to keep.
    Compact(Option<String>),
    /// Use another model from now on.
    SwitchModel(String),
    /// Branch the conversation off; the answer has `threadId`.
    Fork,
    /// Drop the last turns.
    Rollback(u32),
    /// Models and their efforts.
    Models,
    /// Stored conversations, a page of them.
    Threads {
        /// Where the page begins; from the answer before.
        cursor: Option<String>,
        /// At most so many.
        limit: u32,
    },
    /// One review of one range of changes, as the engine describes it.
    Review(Value),
    /// Set a goal and let the engine follow it by itself.
    GoalSet(GoalSet),
    /// How the goal stands.
    GoalGet,
    /// Stop following the goal for now.
    GoalPause,
    /// Follow it again.
    GoalResume,
    /// Forget the goal.
    GoalClear,
    /// Something only one engine has, by a name of its adapter.
    Native {
        /// The adapter's name for it.
        name: &'static str,
        /// What it needs.
        params: Value,
    },
}

impl Ask {
    /// What it is called in messages.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Compact(_) => "compaction",
            Self::SwitchModel(_) => "change of model in a running session",
            Self::Fork => "fork",
            Self::Rollback(_) => "rollback",
            Self::Models => "list of models",
            Self::Threads { .. } => "list of conversations",
            Self::Review(_) => "review",
            Self::GoalSet(_) | Self::GoalGet | Self::GoalPause | Self::GoalResume | Self::GoalClear => "goal",
            Self::Native { name, .. } => name,
        }
    }
}

/// What an [`Ask`] was answered with.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// The engine's data.
    pub data: Value,
    /// The turn it took, when it took one.
    pub turn: Option<TurnOutcome>,
}

/// What a session saw while nobody asked for a turn.
#[derive(Debug)]
pub enum Idle {
    /// A turn the engine took by itself, to be accounted for.
    Turn(Box<TurnOutcome>),
    /// The program is gone.
    Gone(EngineError),
}

/// Where a goal stands, in the engine's words.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum GoalStatus {
    /// Being worked on.
    #[default]
    Active,
    /// Stopped for now.
    Paused,
    /// The agent cannot go on.
    Blocked,
    /// A plan's limit is used up.
    UsageLimited,
    /// The goal's own token budget is used up.
    BudgetLimited,
    /// Reached, as the engine sees it.
    Complete,
}

/// A goal to set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GoalSet {
    /// What is to be reached, 1 to 4000 characters.
    pub objective: String,
    /// Tokens after which the engine stops.
    pub token_budget: Option<u64>,
}

/// A goal as it stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GoalView {
    /// Conversation that follows it.
    pub thread_id: String,
    /// What is to be reached.
    pub objective: String,
    /// Where it stands.
    pub status: GoalStatus,
    /// Tokens so far, as the engine counts them for goals.
    pub tokens_used: u64,
    /// Seconds so far.
    pub time_used_seconds: u64,
    /// The agent's latest words, shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_message: Option<String>,
    /// The latest failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// Told how a goal moves. Must not block.
pub type GoalNews = Arc<dyn Fn(&GoalView) + Send + Sync>;

/// Following a goal.
pub struct GoalRequest<'a> {
    /// The goal to set, replacing any other; `None` goes on with the one the conversation has.
    pub set: Option<GoalSet>,
    /// Set active again with the goal there is, after a stall.
    pub reactivate: bool,
    /// How long nothing may happen while the goal is active.
    pub stall: std::time::Duration,
    /// Told how it moves.
    pub news: GoalNews,
    /// Told what happens.
    pub sink: Sink,
    /// Interrupts the turn, pauses the goal, ends the session.
    pub cancel: CancellationToken,
    /// Orders meanwhile.
    pub orders: &'a mut Orders,
}

impl fmt::Debug for GoalRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GoalRequest").field("set", &self.set).field("stall", &self.stall).finish_non_exhaustive()
    }
}

/// How following a goal ended.
#[derive(Debug, Clone, PartialEq)]
pub struct GoalPass {
    /// How.
    pub end: GoalEnd,
    /// The goal at that moment.
    pub view: GoalView,
    /// What all its turns used together; `text` is the agent's last words.
    pub turns: TurnOutcome,
}

/// Why a goal is no longer followed.
#[derive(Debug, Clone, PartialEq)]
pub enum GoalEnd {
    /// It is reached, as the engine sees it.
    Complete,
    /// The agent gave up, with its reason.
    Blocked(String),
    /// Its token budget is used up.
    BudgetLimited,
    /// It stands still but may go on later: limits, a pause, silence, a lack of capacity.
    Stalled(EngineError),
    /// Cut off by us.
    Interrupted,
    /// It cannot go on in this session.
    Failed(EngineError),
}
