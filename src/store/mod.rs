//! Durable state of runs. [`FileStore`] keeps it on a local file system.
//!
//! Owns the log, the checkpoint, ownership and artifacts of runs. Never interprets the body of an
//! event, never decides what happens next, and its trait has no file vocabulary.
//!
//! What it promises, on a disk that honours a sync:
//!
//! - **P1** A batch whose `commit` returned survives the death of the process, of the kernel and a power cut.
//! - **P2** A batch, with the artifacts it names, is there whole or not at all, for every reader, at every time.
//! - **P3** After an error of `commit` the batch is there or it is not; the handle refuses further work, and
//!   opening the run again tells which.
//! - **P4** The log is everything: folding it over the spec gives the record, and a lost checkpoint costs time only.
//! - **P5** One owner. A writer that lost the run adds nothing after its successor and is told so.
//! - **P6** A reader neither writes nor blocks, and sees every commit that had returned when it began.
//! - **P7** An id that is deleted and created again is another run; claims of the former are dead.
//! - **P8** Damage is named with its line, contained to its run, never repaired in silence, and its bytes are kept.
//! - **P9** A lock that is not obtained is neither held nor abandoned: contention takes nothing over.

mod artifacts;
mod checkpoint;
mod claim;
#[cfg(test)]
#[path = "../../tests/crash/mod.rs"]
mod crash;
mod create;
mod file;
mod home;
mod inbox;
mod label;
mod layout;
mod lease;
pub mod ledger;
mod line;
mod list;
mod load;
mod migrate;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
mod recover;
mod retention;
mod scan;
mod shared;

pub use file::{FileStore, MIN_FREE, Options};
pub use retention::{GcItem, GcOptions, Standing};

use std::{fmt, sync::Arc};

use serde_json::Value;

use crate::model::{RunId, Time, run::ArtifactRef};

/// Why the store refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No such run.
    #[error("there is no run '{0}'")]
    NotFound(RunId),
    /// The id is taken.
    #[error("a run '{0}' exists already")]
    Exists(RunId),
    /// Another live process executes the run.
    #[error("run '{run}' is owned by process {pid} on {host}")]
    Owned {
        /// The run.
        run: RunId,
        /// For people; liveness is the lock.
        pid: u32,
        /// For people.
        host: String,
    },
    /// This writer lost the run for good.
    #[error("run '{run}' was taken over: {reason}")]
    Superseded {
        /// The run.
        run: RunId,
        /// What does not match.
        reason: String,
    },
    /// The log is damaged and was left alone.
    #[error("run '{run}' is damaged at line {line}: {reason}")]
    Damaged {
        /// The run.
        run: RunId,
        /// Line of the log, from 1.
        line: u64,
        /// What was found.
        reason: String,
    },
    /// An earlier write of this handle failed; only opening again tells what is there.
    #[error("the handle of run '{0}' is unusable after a failed write; open the run again")]
    Poisoned(RunId),
    /// The state directory has a newer format.
    #[error("the state directory has format {found}, this version knows {known}")]
    Newer {
        /// Format found.
        found: u32,
        /// Newest known.
        known: u32,
    },
    /// A batch was larger than a line may be.
    #[error("a batch of {bytes} bytes exceeds the limit of {limit}")]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Too little space left to begin something new.
    #[error("only {free} bytes are free in the state directory, {needed} are needed")]
    LowSpace {
        /// Free bytes.
        free: u64,
        /// Needed bytes.
        needed: u64,
    },
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] crate::sys::FsError),
    /// A document of the run does not parse.
    #[error("run '{run}': {what} does not parse: {reason}")]
    Malformed {
        /// The run.
        run: RunId,
        /// Which document.
        what: &'static str,
        /// Why.
        reason: String,
    },
}

impl Error {
    /// Whether the disk was full, or the user's share of it.
    pub fn is_full_disk(&self) -> bool {
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        matches!(self, Self::Io(e) if matches!(e.kind(), StorageFull | QuotaExceeded))
    }
}

/// Result of a store operation.
pub type Result<T> = std::result::Result<T, Error>;

/// A run to be created.
#[derive(Debug, Clone)]
pub struct NewRun {
    /// Its id.
    pub run_id: RunId,
    /// The normalised spec.
    pub spec: Value,
    /// First batch, without the fence.
    pub events: Vec<Value>,
    /// Artifacts that the first batch names: path below the run, contents.
    pub artifacts: Vec<(String, Vec<u8>)>,
}

/// One committed batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Position, from 1, without gaps.
    pub seq: u64,
    /// Claim number of the writer.
    pub epoch: u64,
    /// Wall time of the commit.
    pub ts: Time,
    /// The events.
    pub events: Vec<Value>,
}

/// What a reader gets.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The normalised spec.
    pub spec: Value,
    /// Which creation of the id this is.
    pub incarnation: String,
    /// Creation.
    pub created_at: Time,
    /// A trusted checkpoint and the `seq` it stands at; absent when it must be folded from the start.
    pub checkpoint: Option<(u64, Value)>,
    /// Batches after the checkpoint (all of them without one).
    pub lines: Vec<Line>,
    /// Whether a live process (this one included) holds the run.
    pub live: bool,
    /// Lease of the owner, for people.
    pub owner: Option<Value>,
}

/// One run in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The run.
    pub run_id: RunId,
    /// Creation; the epoch when it cannot be read.
    pub created_at: Time,
    /// Which creation of the id this is; empty when it cannot be read.
    pub incarnation: String,
}

/// A request another process left for the owner.
#[derive(Debug, Clone, PartialEq)]
pub struct InboxItem {
    /// Names the request.
    pub id: String,
    /// The request.
    pub body: Value,
}

/// Durable runs. Blocking; callers on async threads use the blocking pool.
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// Creates a run and claims it in one step. [`Error::Exists`] changes nothing.
    fn create(&self, run: NewRun) -> Result<Box<dyn Claim>>;
    /// Whether there is room to go on with a run whose writing failed; [`Error::LowSpace`] when there is not.
    fn room(&self) -> Result<()> {
        Ok(())
    }
    /// Takes a run over for writing, after recovering what a crash left.
    fn claim(&self, run: &RunId) -> Result<Box<dyn Claim>>;
    /// Reads a run without blocking its owner and without writing.
    fn load(&self, run: &RunId) -> Result<Loaded>;
    /// The last `limit` batches with `seq` greater than `after`.
    fn lines(&self, run: &RunId, after: u64, limit: usize) -> Result<Vec<Line>>;
    /// Every run, newest first. Cheap to call again: what did not change is not read again.
    fn list(&self) -> Result<Vec<Arc<Listed>>>;
    /// Changes whenever the run does; while it and the incarnation are equal, nothing needs to be read again.
    /// `None` when there is no such run.
    fn stamp(&self, run: &RunId) -> Result<Option<u128>>;
    /// Whether a live process (this one included) holds the run.
    fn is_live(&self, run: &RunId) -> Result<bool>;
    /// Whether the id is taken.
    fn exists(&self, run: &RunId) -> Result<bool>;
    /// Deletes a run nobody executes.
    fn delete(&self, run: &RunId) -> Result<()>;
    /// Contents of an artifact of a run; `limit` bytes from `offset`.
    fn read_artifact(&self, run: &RunId, path: &str, offset: u64, limit: usize) -> Result<Vec<u8>>;
    /// Names of the artifacts below `dir` of a run (`evidence/verify-v01-01`), sorted; empty when there is none.
    fn list_artifacts(&self, run: &RunId, dir: &str) -> Result<Vec<String>>;
    /// Stores the evidence of a labelled verification that belongs to no run, under the label's next free
    /// id (`verify-01`, `verify-02`, ...). `files` gets the id and gives names and contents. Returns the id.
    /// [`Error::Exists`] when the label is a real run's id.
    fn put_labelled(&self, label: &RunId, files: MakeFiles<'_>) -> Result<String>;
    /// Leaves a request for the owner of a run; the id names it.
    fn inbox_put(&self, run: &RunId, item: &InboxItem) -> Result<()>;
    /// Takes back a request that was not answered. False when it was taken already.
    fn inbox_withdraw(&self, run: &RunId, id: &str) -> Result<bool>;
}

/// Makes the files of a bundle, names and contents, from the id it will have.
pub type MakeFiles<'a> = &'a mut dyn FnMut(&str) -> Vec<(String, Vec<u8>)>;

/// The right to write one run. Dropping it lets go without a trace in the log.
pub trait Claim: Send + fmt::Debug {
    /// The run.
    fn run_id(&self) -> &RunId;
    /// Which creation of the id this is.
    fn incarnation(&self) -> &str;
    /// Claim number.
    fn epoch(&self) -> u64;
    /// `seq` of the last batch.
    fn seq(&self) -> u64;
    /// Adds one batch. When it returns, the batch survives a power cut. Gives its `seq` and wall time.
    fn commit(&mut self, events: &[Value]) -> Result<(u64, Time)>;
    /// Whether enough was added since the last checkpoint that readers gain by another one.
    fn checkpoint_due(&self) -> bool;
    /// Caches the record, as JSON, as it stands after the last batch. Best effort: a failure costs readers time
    /// only.
    fn checkpoint(&mut self, record: &str);
    /// Proves that this is still the owner; called right before an effect that leaves the run.
    fn check(&self) -> Result<()>;
    /// Stores long text or a file below the run, durably, before the batch that names it.
    fn put_artifact(&mut self, path: &str, bytes: &[u8]) -> Result<ArtifactRef>;
    /// Stores a directory of files below the run so that it is there whole or not at all.
    fn put_directory(&mut self, path: &str, files: &[(String, Vec<u8>)]) -> Result<()>;
    /// Requests other processes left, oldest first.
    fn inbox(&self) -> Result<Vec<InboxItem>>;
    /// Removes a request after its event was committed.
    fn inbox_done(&mut self, id: &str) -> Result<()>;
    /// Renews the heartbeat for people and other hosts.
    fn heartbeat(&mut self) -> Result<()>;
    /// Lets go at the end or when parked: removes the lease, drops the lock.
    fn release(self: Box<Self>) -> Result<()>;
}

/// The store of a process.
pub type SharedStore = Arc<dyn Store>;
