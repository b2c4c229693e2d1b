//! Durable workflow runs: what runs next, what a failure means, when to stop, how to go on after a crash.
//!
//! Decides purely (`state`, `plan`) and acts at the edge (`actor`). One actor a run linearises its events.
//! Names no engine, knows no protocol, opens no file.

pub mod spec;
pub mod view;

use std::{path::PathBuf, sync::Arc};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::model::{Code, EvidenceBundle, Problem, RunId, RunState};

pub use view::{ListPage, RunView, Started, Validation};

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
    pub fn problems(code: Code, what: &str, problems: Vec<Problem>) -> Self {
        let list: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Self {
            code,
            message: format!("{what}: {}", list.join("; ")),
            details: Some(serde_json::json!({ "problems": problems })),
        }
    }
}

/// Result of a kernel operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What a run is started from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A workflow spec as the caller wrote it.
    Spec(Value),
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
#[derive(Debug, Clone, PartialEq)]
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

/// Handle to the kernel. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Kernel {
    _inner: Arc<()>,
}

impl Kernel {
    /// Everything `start` would check, without starting: problems, warnings, the normalised spec, a forecast.
    pub async fn validate(&self, request: StartRequest) -> Validation {
        let _ = request;
        todo!("kernel")
    }

    /// Validates, records the baseline, creates the run durably and begins to execute it in the background.
    pub async fn start(&self, request: StartRequest) -> Result<Started> {
        let _ = request;
        todo!("kernel")
    }

    /// A run as it stands. Cancelling the wait never cancels the run.
    pub async fn status(&self, run: &str, query: StatusQuery) -> Result<RunView> {
        let _ = (run, query);
        todo!("kernel")
    }

    /// Runs of every process, newest first.
    pub async fn list(&self, query: ListQuery) -> Result<ListPage> {
        let _ = query;
        todo!("kernel")
    }

    /// Continues a run whose owner is gone. A terminal or parked run is returned as it is.
    pub async fn resume(&self, run: &str) -> Result<RunView> {
        let _ = run;
        todo!("kernel")
    }

    /// Ends a run wherever it is executed.
    pub async fn cancel(&self, run: &str, reason: Option<String>) -> Result<RunView> {
        let _ = (run, reason);
        todo!("kernel")
    }

    /// Queues an operator's correction for the next agent prompt; returns the node it waits for.
    pub async fn steer(&self, run: &str, text: &str) -> Result<String> {
        let _ = (run, text);
        todo!("kernel")
    }

    /// Answers the open gate of a run.
    pub async fn approve(&self, run: &str, approved: bool, comment: Option<String>) -> Result<RunView> {
        let _ = (run, approved, comment);
        todo!("kernel")
    }

    /// A bundle of a run or label; by default the one behind the verdict in force, else the newest.
    pub async fn evidence(&self, run: &str, evidence_id: Option<&str>) -> Result<Evidence> {
        let _ = (run, evidence_id);
        todo!("kernel")
    }

    /// A file of a bundle named in its manifest; nothing else.
    pub async fn evidence_file(&self, run: &str, evidence_id: &str, file: &str) -> Result<Vec<u8>> {
        let _ = (run, evidence_id, file);
        todo!("kernel")
    }

    /// Full text of a node's latest output, `limit` bytes from `offset`.
    pub async fn node_output(&self, run: &str, node: &str, offset: u64, limit: usize) -> Result<String> {
        let _ = (run, node, offset, limit);
        todo!("kernel")
    }

    /// Deletes a run nobody executes, its snapshots with it.
    pub async fn delete(&self, run: &str) -> Result<()> {
        let _ = run;
        todo!("kernel")
    }

    /// Runs a contract once in a directory: no run, no fixer, no protected tests.
    pub async fn verify(&self, request: VerifyRequest) -> Result<Evidence> {
        let _ = request;
        todo!("kernel")
    }

    /// Brings a snapshot of a run back into a new directory or branch.
    pub async fn restore(&self, run: &str, at: Option<&str>, to: crate::git::RestoreTo) -> Result<String> {
        let _ = (run, at, to);
        todo!("kernel")
    }

    /// Waits until the run changes after `seq`, ends, or `wait` passes; returns its last `seq`.
    pub async fn changed(&self, run: &RunId, seq: u64, wait: std::time::Duration) -> Result<u64> {
        let _ = (run, seq, wait);
        todo!("kernel")
    }

    /// Stops accepting, ends what runs, leaves every run resumable.
    pub async fn shutdown(&self) {
        todo!("kernel")
    }
}
