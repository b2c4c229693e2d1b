//! What a step does: agents, fan-outs, goals, verifiers and subflows behind one trait.
//!
//! Knows engines, checks and git, and a run only as labels, variables and a reporter. Never writes a log
//! and never decides what comes next. Gates and routers do no work, so the kernel makes their moves itself.

pub mod agent;
pub mod budget;
pub mod council;
pub mod fanout;
pub mod goal;
pub mod isolated;
pub mod prompt;
pub mod read_only;
pub mod sessions;
pub mod subflow;
pub mod turn;
pub mod verifier;

use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use serde_json::Value;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Config,
    engines::{Pool, Registry, custom::CustomEngine},
    git::Git,
    model::{
        Contract, EvidenceBundle, NodeId, NodeKind, RunId, Time,
        run::{ArtifactRef, Baseline, Injection, OutputText, Spend, Steer, Waiting},
        spec::Node,
    },
    sys::{Clock, Fs, redact::Redactor},
    verify::{Verifier, protected},
};

use budget::{Lasted, Meter};

/// A boxed future.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Wall-clock limit of one attempt where nothing else is said.
pub const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(1_800_000);

/// What every node can use; one for the process.
#[derive(Debug)]
pub struct Services {
    /// Settings.
    pub config: Arc<Config>,
    /// All file access.
    pub fs: Arc<dyn Fs>,
    /// Times.
    pub clock: Arc<dyn Clock>,
    /// Repositories.
    pub git: Git,
    /// Acceptance.
    pub verifier: Verifier,
    /// Engines by name.
    pub registry: Arc<Registry>,
    /// Live sessions.
    pub pool: Arc<Pool>,
    /// Named sessions.
    pub sessions: sessions::Sessions,
    /// Takes secrets out of everything kept.
    pub redactor: Arc<Redactor>,
}

/// Why an attempt is being stopped; decides what its end means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The run was cancelled.
    Cancelled,
    /// The run's wall-clock bound passed.
    Budget,
    /// The process ends; the run stays resumable.
    Shutdown,
    /// Another process took the run over.
    Superseded,
}

/// Something a node reports while it works.
#[derive(Debug)]
pub enum Report {
    /// For people.
    Log {
        /// `info` or `warn`.
        level: &'static str,
        /// The text.
        text: String,
    },
    /// Something is waited for, or no longer.
    Wait {
        /// Who waits, because several agents of one node may.
        who: String,
        /// For what.
        waiting: Option<Waiting>,
    },
    /// Something was used.
    Cost(Spend),
    /// A part of the node's result that must survive a crash.
    Part {
        /// Names the part inside the node's data.
        key: String,
        /// Small data; `textFile` is added when `text` is given.
        data: Value,
        /// Long text stored beside it.
        text: Option<String>,
    },
    /// A child run is about to be started.
    Child {
        /// The child.
        run: RunId,
        /// Answered once it is on the record; dropped when it will not be, and then nothing may be started.
        recorded: oneshot::Sender<()>,
    },
    /// Corrections that an agent took in the middle of its work.
    Steered(Vec<String>),
    /// Words that a round of a council took.
    Injected {
        /// The words.
        ids: Vec<String>,
        /// The round.
        round: u32,
    },
    /// A council's vote; advisory.
    Vote(Value),
    /// An evidence bundle that must survive a crash of the attempt.
    Evidence {
        /// Its id.
        id: String,
        /// Its files.
        files: Files,
        /// Answered once it is on the record; dropped when it will not be.
        kept: oneshot::Sender<()>,
    },
    /// A file of the attempt, stored as it is.
    File {
        /// Its name: letters, digits, `.`, `_` and `-`.
        name: String,
        /// Its contents.
        bytes: Vec<u8>,
        /// Answered with where it is; dropped when it is not stored.
        kept: oneshot::Sender<ArtifactRef>,
    },
    /// Answered once everything reported before is on the record; dropped when it will not be.
    Recorded(oneshot::Sender<()>),
}

/// Sends reports to the run's actor, in order.
#[derive(Debug, Clone)]
pub struct Reporter(mpsc::Sender<Report>);

/// Reports that may wait for the actor; more block the node, or drop what only people read.
pub const REPORT_QUEUE: usize = 256;

impl Reporter {
    /// A reporter and where its reports arrive.
    pub fn new() -> (Self, mpsc::Receiver<Report>) {
        let (sender, receiver) = mpsc::channel(REPORT_QUEUE);
        (Self(sender), receiver)
    }

    /// Sends a report that must arrive.
    pub async fn send(&self, report: Report) {
        // A closed channel means that the run is being stopped, and then nobody needs the report.
        let _ = self.0.send(report).await;
    }

    /// Sends a report that may be lost when the actor is far behind.
    pub fn offer(&self, report: Report) {
        let _ = self.0.try_send(report);
    }

    /// Sends something for people; dropped when the actor is far behind, so that a talkative agent never blocks.
    pub fn log(&self, level: &'static str, text: String) {
        self.offer(Report::Log { level, text });
    }
}

/// What a node knows about its attempt.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Label of the run.
    pub run_id: RunId,
    /// The node.
    pub node: Node,
    /// Visit, from 1.
    pub visit: u32,
    /// Attempt of the visit, from 1.
    pub attempt: u32,
    /// Attempts of the visit that failed before; one that a crash cut off did not.
    pub failures: u32,
    /// Directory the run works in.
    pub work_dir: PathBuf,
    /// The same as it was before a node of the run moved it.
    pub home_dir: PathBuf,
    /// The repository as the run found it.
    pub baseline: Baseline,
    /// The contract a verifier judges; absent when it judges nothing.
    pub contract: Option<Contract>,
    /// Protected tests of the start.
    pub protected: Option<protected::Snapshot>,
    /// Variables for every process.
    pub run_env: Vec<(String, String)>,
    /// Outputs of the nodes named as inputs.
    pub inputs: Vec<(NodeId, String)>,
    /// Bundles behind the red verdict in force, when control comes back to repair.
    pub red: Vec<EvidenceBundle>,
    /// Names of the red words in force, each different for every time one was given.
    pub red_marks: Vec<String>,
    /// How often in a row the same red verdict came.
    pub red_repeats: u32,
    /// Corrections of the operator that no attempt has acknowledged.
    pub steers: Vec<Steer>,
    /// What an earlier attempt of this visit left behind: parts by key, each with its stored text.
    pub parts: BTreeMap<String, (Value, Option<String>)>,
    /// Child run an earlier attempt of this visit started.
    pub child: Option<RunId>,
    /// What only a council needs.
    pub council: CouncilFacts,
}

/// What a council needs of the run around it.
#[derive(Debug, Clone, Default)]
pub struct CouncilFacts {
    /// No other node of the run is one.
    pub sole: bool,
    /// Votes that are on the record.
    pub votes: Vec<Value>,
    /// Protects the tests of the commit that the work begins at; absent when the run has no contract that asks for it.
    pub protecting: Option<Contract>,
    /// Where the council lies that this one goes on with; absent when there is none, or when it is unknown.
    pub continued: Option<Box<council::data::Layout>>,
}

/// Programs of `custom` agents by their agent's name. Never on disk, since they may hold credentials.
pub type Customs = Arc<BTreeMap<String, Arc<CustomEngine>>>;

/// Everything an attempt works with.
#[derive(Clone)]
pub struct NodeCtx {
    /// The process's services.
    pub services: Arc<Services>,
    /// The attempt.
    pub attempt: Arc<Attempt>,
    /// Fires when the attempt must end; its process tree ends before the node returns.
    pub cancel: CancellationToken,
    /// Why `cancel` fired; empty when the run itself goes on, here or elsewhere, so that its child must live.
    pub stop: Arc<OnceLock<Stop>>,
    /// Corrections that nobody acknowledged, as they come in while the attempt goes on.
    pub steers: watch::Receiver<Vec<Steer>>,
    /// Words for this node's rounds that no round took, as they come in.
    pub injections: watch::Receiver<Vec<Injection>>,
    /// Fires when nothing new may be begun and what goes on may end.
    pub wind_down: CancellationToken,
    /// Programs of `custom` agents.
    pub customs: Customs,
    /// Where reports go.
    pub report: Reporter,
    /// Bounds of the run.
    pub budget: Arc<Meter>,
    /// How long the run has lasted.
    pub lasted: Lasted,
    /// Child runs.
    pub children: Arc<dyn Children>,
}

impl fmt::Debug for NodeCtx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeCtx").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

impl NodeCtx {
    /// Label of the attempt inside its run: `<node>-v<visit>a<attempt>`.
    pub fn label(&self) -> String {
        format!("{}-v{}a{}", self.attempt.node.id, self.attempt.visit, self.attempt.attempt)
    }

    /// Directory of the node: its own, resolved against the run's, or the run's.
    pub fn directory(&self, own: Option<&str>) -> PathBuf {
        own.map_or_else(|| self.attempt.work_dir.clone(), |dir| self.attempt.work_dir.join(dir))
    }

    /// Wall-clock limit of the attempt.
    pub fn timeout(&self) -> Duration {
        self.attempt.node.timeout_ms.map_or(ATTEMPT_TIMEOUT, Duration::from_millis)
    }

    /// Now, for people and due times.
    pub fn now(&self) -> Time {
        self.services.clock.wall()
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, Default)]
pub enum Status {
    /// It did what it should.
    #[default]
    Succeeded,
    /// It did not.
    Failed(String),
    /// It did not, and the same again cannot end better: no retries are spent on it.
    Hopeless(String),
    /// A bound of the run was reached; the run ends with this reason.
    Exhausted(String),
    /// It was stopped from outside; `Stop` of the actor says why.
    Stopped,
}

/// Names and contents of files.
pub type Files = Vec<(String, Vec<u8>)>;

/// What an attempt gives.
#[derive(Debug, Clone, Default)]
pub struct NodeResult {
    /// How it ended.
    pub status: Status,
    /// Its text.
    pub output: Option<String>,
    /// Its data, by key.
    pub data: BTreeMap<String, Value>,
    /// A verdict it gives.
    pub verdict: Option<NodeVerdict>,
    /// Evidence to store, the one behind the verdict last: id, files. Without files it is stored already.
    pub evidence: Vec<(String, Files)>,
    /// Why a green verdict of the attempt does not make the run verified, although all checks passed.
    pub unverified: Option<String>,
    /// Where later nodes work, when that changes.
    pub work_dir: Option<NewWorkDir>,
    /// Corrections that were in its prompt.
    pub steers_seen: Vec<String>,
    /// Processes that could not be ended.
    pub unkillable: Vec<String>,
    /// Whether agents may have changed the workspace, so that it is worth a snapshot.
    pub touched: bool,
}

/// Where later nodes of the run work.
#[derive(Debug, Clone)]
pub struct NewWorkDir {
    /// Absolute directory.
    pub path: PathBuf,
    /// Top of the worktree of ours it lies in; what later nodes leave there is committed to its branch.
    pub top: PathBuf,
    /// Commit that changes are counted from.
    pub base: String,
    /// The protected tests as of that commit as the bytes of an artifact, when the run's contracts need them.
    pub protected: Option<Vec<u8>>,
}

/// A verdict as a node gives it.
#[derive(Debug, Clone)]
pub struct NodeVerdict {
    /// Green or red.
    pub passed: bool,
    /// The bundle.
    pub evidence_id: Option<String>,
    /// Run that holds the bundle when it is not this one.
    pub evidence_run: Option<RunId>,
    /// Content of the tree the checks saw.
    pub tree_digest: Option<String>,
    /// Directory the digest was taken in.
    pub digest_cwd: Option<String>,
    /// Recorded only.
    pub advisory: bool,
    /// Given by the run-level contract.
    pub run_contract: bool,
    /// Tells equal failures apart from others.
    pub fingerprint: Option<String>,
}

impl NodeResult {
    /// A failed attempt.
    pub fn failed(why: impl Into<String>) -> Self {
        Self { status: Status::Failed(why.into()), ..Self::default() }
    }
}

/// A child run as its parent sees it.
#[derive(Debug, Clone)]
pub struct ChildOutcome {
    /// The child.
    pub run: RunId,
    /// How it ended, in words.
    pub summary: String,
    /// Whether it ended `completed`.
    pub completed: bool,
    /// Its verdict, unless it ended unverified.
    pub verdict: Option<NodeVerdict>,
    /// What it used in all.
    pub spend: Spend,
    /// Text of its last node that has one.
    pub output: Option<OutputText>,
}

/// Why there is no child run whose end could be told.
#[derive(Debug, Clone)]
pub enum NoChild {
    /// It could not be started or followed.
    Failed(String),
    /// A bound of the run forbids it.
    Exhausted(String),
}

impl From<String> for NoChild {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// Child runs, given to nodes by the kernel.
pub trait Children: Send + Sync {
    /// Starts the child of this attempt, or takes up the one an earlier attempt started; waits for its end.
    /// Stopping the attempt for good cancels the child and waits until it has ended.
    fn run<'a>(&'a self, ctx: &'a NodeCtx) -> Boxed<'a, Result<ChildOutcome, NoChild>>;
}

/// Runs an attempt to its end.
pub fn run(ctx: NodeCtx) -> Boxed<'static, NodeResult> {
    Box::pin(async move {
        match &ctx.attempt.node.kind {
            NodeKind::Agent(node) => agent::run(&ctx, node).await,
            NodeKind::Fanout(node) => fanout::run(&ctx, node).await,
            NodeKind::Verifier(node) => verifier::run(&ctx, node).await,
            NodeKind::Subflow(_) => subflow::run(&ctx).await,
            NodeKind::Goal(node) => goal::run(&ctx, node).await,
            NodeKind::Council(node) => Box::pin(council::run(&ctx, node)).await,
            NodeKind::HumanGate(_) | NodeKind::Router(_) => NodeResult::default(),
        }
    })
}
