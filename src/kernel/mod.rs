//! Durable workflow runs: what runs next, what a failure means, when to stop, how to go on after a crash.
//!
//! Decides purely (`state`, `plan`) and acts at the edge (`actor`). One actor a run linearises its events.
//! Names no engine, knows no protocol, opens no file.

mod account;
mod actor;
mod attempt;
mod children;
mod control;
mod council;
pub mod councils;
mod customs;
mod evidence;
pub mod fanouts;
mod forecast;
mod index;
pub mod ledger;
mod live;
mod naming;
mod parked;
pub mod plan;
mod prepare;
mod query;
mod recovery;
pub mod spec;
mod start;
pub mod state;
mod storage;
pub mod templates;
mod traces;
pub mod ultraplans;
mod validate;
pub mod verdict;
pub mod view;
mod workspace;
mod writer;

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    model::{Code, EvidenceBundle, NodeId, Problem, RunId, RunRecord, RunState},
    nodes::{Customs, Services},
    store::{self, SharedStore},
    sys::tasks,
};

pub use traces::Keep;
pub use view::{Deleted, ListPage, RunView, Started, Validation};

/// A refusal or failure a caller meets: a stable code and a sentence saying what to do.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// For programs.
    pub code: Code,
    /// For people and models.
    pub message: String,
    /// More, for programs.
    pub details: Option<Value>,
}

impl Error {
    /// A refusal.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: None }
    }

    /// A refusal that lists problems with their paths.
    pub fn problems(code: Code, what: &str, problems: &[Problem]) -> Self {
        let list: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Self {
            code,
            message: format!("{what}: {}", list.join("; ")),
            details: Some(serde_json::json!({ "problems": problems })),
        }
    }
}

impl From<crate::nodes::sessions::SessionError> for Error {
    fn from(e: crate::nodes::sessions::SessionError) -> Self {
        Self { code: e.code(), message: e.message, details: e.details }
    }
}

/// Result of a kernel operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What a run is started from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A workflow spec as the caller wrote it.
    Spec(Value),
    /// A workflow spec that one of our own tools built, under the kind of its handle (`fanout`, `ultraplan`), which
    /// begins the id of the run.
    Tool(&'static str, Value),
    /// A template with its task and arguments (`agents`, `implementer`, `reviewers`, `humanGate`, `maxRepairs`, ...).
    Template {
        /// `solve`, `fanout`; others are refused by name until they exist.
        name: String,
        /// What is to be done.
        task: String,
        /// The template's arguments as an object; unknown ones are refused.
        args: Value,
    },
}

/// A request to start a run.
#[derive(Debug, Clone)]
pub struct StartRequest {
    /// What to run.
    pub source: Source,
    /// Overrides the spec's directory; absolute.
    pub cwd: Option<PathBuf>,
    /// Chosen id; generated when absent.
    pub run_id: Option<String>,
    /// Replaces the spec's contract.
    pub contract: Option<Value>,
    /// Whether a starting server continues the run by itself.
    pub auto_resume: bool,
    /// The same key within a day returns the same run.
    pub idempotency_key: Option<String>,
    /// Run the caller itself belongs to (an agent that connected back).
    pub parent: Option<String>,
    /// Programs of agents with engine `custom`, by the agent's name. Kept in memory only.
    pub customs: Customs,
}

/// What `status` should include.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatusQuery {
    /// Last events, at most 500.
    pub events: usize,
    /// Wait for a change this long, at most 55 000 ms.
    pub wait_ms: u64,
}

/// Which runs to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Only runs of this spec name.
    pub workflow: Option<String>,
    /// Only runs in this state.
    pub state: Option<RunState>,
    /// At most this many, 1 to 500.
    pub limit: usize,
    /// Go on after this page.
    pub cursor: Option<String>,
}

/// A request to check a directory without a run.
pub struct VerifyRequest {
    /// Absolute directory.
    pub cwd: PathBuf,
    /// The contract as the caller wrote it.
    pub contract: Value,
    /// What the change set is counted from.
    pub base_sha: Option<String>,
    /// Store the bundle under this label.
    pub label: Option<String>,
    /// Store it under a label that is only chosen while the checks run, when their caller can wait no longer.
    pub late_label: Option<Arc<OnceLock<RunId>>>,
    /// Ends the checks at once.
    pub cancel: CancellationToken,
    /// Told after each check.
    pub progress: Option<crate::verify::Progress>,
}

/// An evidence bundle and where it is.
#[derive(Debug, Clone)]
pub struct Evidence {
    /// The bundle.
    pub bundle: EvidenceBundle,
    /// Directory on this machine; absent when nothing was stored.
    pub path: Option<PathBuf>,
    /// Names of the files beside the bundle.
    pub files: Vec<String>,
    /// Warnings about the contract.
    pub warnings: Vec<Problem>,
}

/// Everything the kernel's parts share.
#[derive(Debug)]
pub(crate) struct Inner {
    services: Arc<Services>,
    store: SharedStore,
    live: live::LiveRuns,
    parked: parked::Parked,
    index: index::Index,
    /// Held by a start whose id is chosen by its caller.
    named: tokio::sync::Mutex<()>,
    /// Fires when the process ends.
    stop: CancellationToken,
    /// Told whenever a run is let go of.
    idle: tokio::sync::Notify,
    /// Whether this process executes runs; otherwise it only records what it is asked.
    executes: bool,
}

/// Whether a kernel executes runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It executes what it starts, resumes and approves.
    Executor,
    /// It records requests for others: an answered gate waits for a process that goes on with the run.
    Recorder,
}

/// Handle to the kernel. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Kernel {
    inner: Arc<Inner>,
}

/// How long a shutdown waits for runs to be let go of.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(9);

fn run_id(text: &str) -> Result<RunId> {
    RunId::parse(text).map_err(|e| Error::new(Code::InvalidArgument, format!("runId: {e}")))
}

/// Does what must not be left half done when its caller stops waiting: a run that is claimed is also executed.
async fn whole<T, F>(name: &'static str, work: F) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    tasks::spawn(name, work).await.map_err(|e| internal(&e))?
}

/// A defect, not the caller's fault.
fn internal(error: &dyn std::fmt::Display) -> Error {
    Error::new(Code::Internal, error.to_string())
}

/// What a caller is told of a store's refusal or failure.
fn store_error(error: &store::Error) -> Error {
    let code = match error {
        store::Error::NotFound(_) => Code::RunNotFound,
        store::Error::Exists(_) => Code::RunExists,
        store::Error::Owned { .. } => Code::RunOwned,
        store::Error::Superseded { .. } => Code::Superseded,
        store::Error::Damaged { .. } | store::Error::Malformed { .. } => Code::RunCorrupt,
        store::Error::TooLarge { .. } => Code::PayloadTooLarge,
        store::Error::Poisoned(_)
        | store::Error::Newer { .. }
        | store::Error::LowSpace { .. }
        | store::Error::Io(_) => Code::StoreUnavailable,
    };
    let mut details = None;
    if let store::Error::Owned { pid, host, .. } = error {
        details = Some(serde_json::json!({ "pid": pid, "host": host }));
    }
    Error { code, message: error.to_string(), details }
}

impl Kernel {
    /// A kernel over its services and store.
    pub fn new(services: Arc<Services>, store: SharedStore, role: Role) -> Self {
        let inner = Inner {
            services,
            store,
            live: live::LiveRuns::default(),
            parked: parked::Parked::default(),
            index: index::Index::default(),
            named: tokio::sync::Mutex::default(),
            stop: CancellationToken::new(),
            idle: tokio::sync::Notify::new(),
            executes: role == Role::Executor,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The services nodes use.
    pub fn services(&self) -> &Arc<Services> {
        &self.inner.services
    }

    /// The store.
    pub fn store(&self) -> &SharedStore {
        &self.inner.store
    }

    /// Everything `start` would check, without starting: problems, warnings, the normalised spec, a forecast.
    pub async fn validate(&self, request: StartRequest) -> Validation {
        let inner = self.inner.clone();
        match tasks::blocking("validate", move || validate::answer(&inner, &request)).await {
            Ok(answer) => answer,
            Err(e) => Validation {
                ok: false,
                errors: vec![Problem::new("", e.to_string())],
                warnings: Vec::new(),
                spec: None,
                forecast: None,
            },
        }
    }

    /// Validates, records the baseline, creates the run durably and begins to execute it in the background.
    pub async fn start(&self, request: StartRequest) -> Result<Started> {
        let inner = self.inner.clone();
        whole("start", async move { start::start(&inner, request).await }).await
    }

    /// A run as it stands. Cancelling the wait never cancels the run.
    pub async fn status(&self, run: &str, query: StatusQuery) -> Result<RunView> {
        query::status(&self.inner, &run_id(run)?, query).await
    }

    /// The whole record of a run.
    pub async fn record(&self, run: &str) -> Result<Arc<RunRecord>> {
        Ok(query::load(&self.inner, &run_id(run)?).await?.record)
    }

    /// Runs of every process, newest first.
    pub async fn list(&self, query: ListQuery) -> Result<ListPage> {
        index::list(&self.inner, query).await
    }

    /// Turns of every process and what they cost, with the verdicts of their runs.
    pub async fn ledger(&self, query: ledger::LedgerQuery) -> Result<ledger::LedgerPage> {
        ledger::query(&self.inner, query).await
    }

    /// Continues a run whose owner is gone. A terminal or parked run is returned as it is.
    pub async fn resume(&self, run: &str) -> Result<RunView> {
        self.resume_with(run, Customs::default()).await
    }

    /// The same, with the programs of its agents of engine `custom`, which no log holds.
    pub async fn resume_with(&self, run: &str, customs: Customs) -> Result<RunView> {
        let run = run_id(run)?;
        let (inner, id) = (self.inner.clone(), run.clone());
        whole("resume", async move { start::resume(&inner, &id, customs).await }).await?;
        self.view(&run).await
    }

    /// Ends a run wherever it is executed.
    pub async fn cancel(&self, run: &str, reason: Option<String>) -> Result<RunView> {
        let run = run_id(run)?;
        control::cancel(&self.inner, &run, reason).await?;
        self.view(&run).await
    }

    /// Queues an operator's correction for the next agent prompt; returns the node it waits for.
    pub async fn steer(&self, run: &str, text: &str) -> Result<String> {
        control::steer(&self.inner, &run_id(run)?, text).await
    }

    /// Queues words for the next round of a council; returns the round. `node` is the council's node.
    pub async fn inject(&self, run: &RunId, node: &NodeId, text: &str) -> Result<u32> {
        control::inject(&self.inner, run, node, text).await
    }

    /// Lets a run end: nothing new begins in it, and it is cancelled when what goes on has ended.
    pub async fn wind_down(&self, run: &RunId) -> Result<RunView> {
        control::wind_down(&self.inner, run).await?;
        self.view(run).await
    }

    /// Answers the open gate of a run.
    pub async fn approve(&self, run: &str, approved: bool, comment: Option<String>) -> Result<RunView> {
        let run = run_id(run)?;
        let (inner, id) = (self.inner.clone(), run.clone());
        whole("approve", async move { control::approve(&inner, &id, approved, comment).await }).await?;
        self.view(&run).await
    }

    /// A bundle of a run or label; by default the one behind the verdict in force, else the newest.
    pub async fn evidence(&self, run: &str, evidence_id: Option<&str>) -> Result<Evidence> {
        evidence::bundle(&self.inner, &run_id(run)?, evidence_id).await
    }

    /// A file of a bundle named in its manifest; nothing else.
    pub async fn evidence_file(&self, run: &str, evidence_id: &str, file: &str) -> Result<Vec<u8>> {
        evidence::file(&self.inner, &run_id(run)?, evidence_id, file).await
    }

    /// Full text of a node's latest output, `limit` bytes from `offset`.
    pub async fn node_output(&self, run: &str, node: &str, offset: u64, limit: usize) -> Result<String> {
        evidence::output(&self.inner, &run_id(run)?, node, offset, limit).await
    }

    /// Deletes a run nobody executes, its snapshots with it. A branch of its own stays and is named.
    pub async fn delete(&self, run: &str) -> Result<Deleted> {
        control::delete(&self.inner, &run_id(run)?).await
    }

    /// Runs a contract once in a directory: no run, no fixer, no protected tests.
    pub async fn verify(&self, request: VerifyRequest) -> Result<Evidence> {
        evidence::verify(&self.inner, request).await
    }

    /// Brings a snapshot of a run back into a new directory or branch; returns the ref it came from.
    pub async fn restore(&self, run: &str, at: Option<&str>, to: crate::git::RestoreTo) -> Result<String> {
        evidence::restore(&self.inner, &run_id(run)?, at, &to).await
    }

    /// Waits until the run changes after `seq`, ends, or `wait` passes; returns its last `seq`.
    pub async fn changed(&self, run: &RunId, seq: u64, wait: Duration) -> Result<u64> {
        query::changed(&self.inner, run, seq, wait).await
    }

    /// Continues, oldest first, every interrupted run that asked for it (or all, when the configuration says so).
    pub async fn auto_resume(&self) {
        recovery::auto_resume(&self.inner).await;
    }

    /// How many runs this process executes.
    pub fn executing(&self) -> usize {
        self.inner.live.len()
    }

    /// Stops accepting, ends what runs, leaves every run resumable. At most about 9 s.
    pub async fn shutdown(&self) {
        self.inner.stop.cancel();
        let drained = async {
            loop {
                let idle = self.inner.idle.notified();
                let mut idle = std::pin::pin!(idle);
                idle.as_mut().enable();
                if self.inner.live.len() == 0 {
                    return;
                }
                idle.await;
            }
        };
        if tokio::time::timeout(SHUTDOWN_LIMIT, drained).await.is_err() {
            tracing::warn!(left = self.inner.live.len(), "some runs were not let go of in time");
        }
    }

    async fn view(&self, run: &RunId) -> Result<RunView> {
        let found = query::load(&self.inner, run).await?;
        Ok(query::view(&self.inner, &found).await)
    }
}
