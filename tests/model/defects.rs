//! Defects the model must catch: a kernel that is served a forged past when it resumes does what a kernel that
//! forgot or ignored that part of it would do.

use claw_orchestrator::store::Line;
use serde_json::Value;

/// What a resumed kernel does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgery {
    /// Where the run was: the last entry of a node.
    Counter,
    /// Which members of a fan-out have succeeded.
    Members,
    /// When a retry is due.
    DueTime,
    /// What the run has used.
    Spent,
}

impl Forgery {
    /// The log as the defective kernel would read it.
    pub fn forge(self, mut lines: Vec<Line>) -> Vec<Line> {
        for line in &mut lines {
            line.events.retain(|event| !self.hides(event));
        }
        lines
    }

    fn hides(self, event: &Value) -> bool {
        let is = |name: &str| event["type"] == name;
        match self {
            Self::Counter => is("node_state"),
            Self::Members => is("node_data"),
            Self::DueTime => is("retry_scheduled"),
            Self::Spent => is("cost"),
        }
    }
}
