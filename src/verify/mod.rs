//! Acceptance: the runtime runs the checks itself and reads the answers itself.
//!
//! Owns contracts, checks, protected tests and evidence. Nothing an agent says reaches a verdict here, and
//! no contract is ever read from a node's result. Knows runs only as labels.

pub mod brief;
mod bundle;
mod capture;
mod checks;
pub mod contract;
pub mod evidence;
mod paths;
mod pattern;
pub mod protected;
pub mod relabel;
pub mod runner;

use std::{fmt, future::Future, path::PathBuf, pin::Pin, sync::Arc};

use tokio_util::sync::CancellationToken;

use crate::{
    git::Git,
    model::{CheckResult, Contract, EvidenceBundle, run::Baseline},
    sys::{Clock, Fs, redact::Redactor, supervise},
};

/// What every verification needs from the process.
#[derive(Debug, Clone)]
pub struct Verifier {
    /// All file access.
    pub fs: Arc<dyn Fs>,
    /// Times.
    pub clock: Arc<dyn Clock>,
    /// Repositories.
    pub git: Git,
    /// How process trees are started.
    pub supervisor: supervise::Options,
    /// The cleaned environment of checks, without run variables.
    pub base_env: Vec<(String, String)>,
    /// The server's whole environment, for `envFrom`.
    pub full_env: Arc<std::collections::BTreeMap<String, String>>,
    /// Takes secrets out of everything kept.
    pub redactor: Arc<Redactor>,
    /// Browser set for the server, before the usual names are looked up.
    pub chrome: Option<PathBuf>,
}

/// One verification.
pub struct Request {
    /// What must hold.
    pub contract: Contract,
    /// Directory the checks run in.
    pub cwd: PathBuf,
    /// What the change set is counted from.
    pub baseline: Baseline,
    /// Test files as they were at the start; `None` is reported as not checked.
    pub protected: Option<protected::Snapshot>,
    /// Variables of the run for every process.
    pub run_env: Vec<(String, String)>,
    /// Names the bundle, for example `verify-v01-01`.
    pub evidence_id: String,
    /// The run or label, for the bundle.
    pub run_id: Option<String>,
    /// The verifier node, for the bundle.
    pub node: Option<String>,
    /// Ends everything at once; the result is then [`Error::Cancelled`].
    pub cancel: CancellationToken,
    /// Told after each check: done, of how many, what is next.
    pub progress: Option<Progress>,
    /// Repairs between rounds, when the contract has any.
    pub fixer: Option<Arc<dyn Fixer>>,
}

/// Told after each check: checks done, checks in all, one line.
pub type Progress = Arc<dyn Fn(u64, u64, &str) + Send + Sync>;

/// A boxed future.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Repairs what a red verification found. What it says about its work is ignored.
pub trait Fixer: Send + Sync {
    /// One repair turn for the first failing required check. `Err` ends the rounds with that reason in the notes.
    fn fix<'a>(&'a self, round: u32, failing: &'a CheckResult) -> Boxed<'a, Result<(), String>>;
}

/// What a verification gives: the bundle and every file that belongs beside it.
#[derive(Debug, Clone)]
pub struct Verified {
    /// The bundle.
    pub bundle: EvidenceBundle,
    /// Names and contents, `bundle.json` and `manifest.json` included.
    pub files: Vec<(String, Vec<u8>)>,
    /// Processes that could not be ended.
    pub unkillable: Vec<String>,
}

/// Why there is no bundle.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller cancelled.
    #[error("the verification was cancelled")]
    Cancelled,
    /// The supervisor of the checks failed.
    #[error(transparent)]
    Process(#[from] supervise::Error),
    /// A file could not be read.
    #[error(transparent)]
    Fs(#[from] crate::sys::FsError),
    /// The bundle could not be written as JSON.
    #[error("failed to write the evidence as JSON: {0}")]
    Encode(#[from] serde_json::Error),
    /// Work on a blocking thread died.
    #[error("failed to {0}: its thread ended early")]
    Thread(&'static str),
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("cwd", &self.cwd)
            .field("evidence_id", &self.evidence_id)
            .finish_non_exhaustive()
    }
}

impl Verifier {
    /// Runs every check of the contract, with fixer rounds when asked for.
    pub async fn run(&self, request: Request) -> Result<Verified, Error> {
        runner::run(self, request).await
    }
}
