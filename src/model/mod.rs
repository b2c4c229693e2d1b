//! Plain data shared by every layer: ids, times, specs, contracts, records, events, evidence.
//!
//! Owns names and shapes only. Never does I/O, never reads a clock, never knows a protocol.

pub mod code;
pub mod contract;
pub mod event;
pub mod evidence;
pub mod ids;
pub mod run;
pub mod spec;
pub mod time;

pub use code::Code;
pub use contract::{Check, CheckSpec, Contract};
pub use event::Event;
pub use evidence::{CheckResult, EvidenceBundle};
pub use ids::{BadId, NodeId, RunId};
pub use run::{NodeRecord, NodeState, RunOutcome, RunRecord, RunState};
pub use spec::{Node, NodeKind, WorkflowSpec};
pub use time::Time;

use serde::{Deserialize, Serialize};

/// One thing that is wrong with (or notable about) a caller's input, with the JSON path it stands at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Problem {
    /// JSON path of the offending value, for example `nodes[2].prompt`. Empty for the document itself.
    pub path: String,
    /// What is wrong there and what would be right.
    pub message: String,
}

impl Problem {
    /// A problem at `path`.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.path.is_empty() { f.write_str(&self.message) } else { write!(f, "{}: {}", self.path, self.message) }
    }
}
