//! The tools: what each takes, does and answers, for every surface alike.
//!
//! Owns argument reading, result shapes and texts, the tool table and its schemas. Knows no protocol: a
//! surface fills a [`CallContext`] and gets an [`Outcome`]. Decides nothing about runs; the kernel does.

pub mod args;
mod claude;
mod codex;
pub mod config_shapes;
mod council;
pub mod export;
mod fanout;
pub mod handle;
pub mod outcome;
pub mod registry;
mod remote;
pub mod schema;
pub mod select;
mod session;
pub mod shapes;
pub mod spec_shapes;
pub mod start_args;
mod starting;
pub mod summary;
mod ultra;

pub mod ledger_query;
pub mod verify_run;
pub mod workflow_approve;
pub mod workflow_cancel;
pub mod workflow_delete;
pub mod workflow_evidence;
pub mod workflow_list;
pub mod workflow_resume;
pub mod workflow_start;
pub mod workflow_status;
pub mod workflow_steer;
pub mod workflow_validate;

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use tokio_util::sync::CancellationToken;

use crate::kernel::view::GateView;

pub use handle::KernelHandle;
pub use outcome::{Attachment, Outcome, ToolResult};
pub use registry::{Hints, Registry, Tool, Toolset};
pub use select::Selection;

/// A boxed future.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Longest any call waits by itself, in milliseconds: hosts cut a silent call at about a minute.
pub const WAIT_MAX_MS: u64 = 55_000;

/// Told how far a call is: done, of how many, one line. Must not block.
pub type ProgressSink = Arc<dyn Fn(u64, u64, &str) + Send + Sync>;

/// What a person answered to a gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Go on.
    Approve(Option<String>),
    /// Do not.
    Reject(Option<String>),
    /// Declined, dismissed, nobody there: the gate stays as it is.
    None,
    /// The question goes out with the result of this call; the answer comes with the next one.
    Deferred,
}

/// Asks the person at the host.
pub trait Elicit: Send + Sync {
    /// Puts the gate of `run` before the person and waits for the answer.
    fn ask<'a>(&'a self, run: &'a str, gate: &'a GateView) -> Boxed<'a, Answer>;
}

/// What a surface knows about one call.
#[derive(Clone, Default)]
pub struct CallContext {
    /// Cancelled when the caller no longer wants the answer.
    pub cancel: CancellationToken,
    /// Present when the caller asked for progress.
    pub progress: Option<ProgressSink>,
    /// Present when the caller's host can ask a person.
    pub elicit: Option<Arc<dyn Elicit>>,
    /// Run the caller itself belongs to.
    pub parent: Option<String>,
    /// Whether the caller is on this machine and speaks over standard input; only such a one may name programs.
    pub local: bool,
    /// Whether the work may go on after the call was answered (the caller polls a task).
    pub detach: Detach,
}

/// Whether long work is waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Detach {
    /// The call waits as long as its rules allow.
    #[default]
    Wait,
    /// The call answers with a handle at once.
    AtOnce,
}

impl CallContext {
    /// Reports progress when it was asked for.
    pub fn report(&self, done: u64, total: u64, text: &str) {
        if let Some(sink) = &self.progress {
            sink(done, total, text);
        }
    }
}

impl fmt::Debug for CallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext")
            .field("progress", &self.progress.is_some())
            .field("elicit", &self.elicit.is_some())
            .field("parent", &self.parent)
            .field("local", &self.local)
            .field("detach", &self.detach)
            .finish_non_exhaustive()
    }
}
