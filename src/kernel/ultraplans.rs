//! Long plans as their tools show them: a projection of spec and record.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Kernel, Result,
    fanouts::UltraStatus,
    query,
    traces::{self, Keep},
};
use crate::{
    model::{NodeKind, RunId, RunState, Time},
    nodes::prompt::cut,
};

/// Workflow of a long plan.
const PLAN: &str = "ultraplan";
/// Longest plan shown in bytes: as long as the longest reply an engine may give in one line would be no plan.
const PLAN_MAX: usize = 4 << 20;
/// A reply of fewer characters that begins like an engine's error is one.
const ERROR_CHARS: usize = 200;
/// How such errors begin.
const ERRORS: [&str; 5] = ["error", "not logged in", "authentication", "auth failed", "permission denied"];
/// Bytes of a failure in a view.
const ERROR_SHOWN: usize = 1_000;

/// A long plan as callers see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanView {
    /// The run.
    pub id: RunId,
    /// Where it stands.
    pub status: UltraStatus,
    /// Session of the agent that plans.
    pub session_name: String,
    /// Start.
    pub start_time: Time,
    /// End.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
    /// The whole plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// What went wrong, when something did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether the checkout is another one than at the start; absent outside a repository and until the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_changed: Option<bool>,
    /// What is worth a look.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Not ended and nobody executes it: workflow_resume goes on with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
}

/// Whether a reply is an engine's complaint and no plan.
fn complains(reply: &str) -> bool {
    let start = reply.trim_start().to_ascii_lowercase();
    reply.trim().chars().count() < ERROR_CHARS && ERRORS.iter().any(|word| start.starts_with(word))
}

impl Kernel {
    /// A long plan as it stands, after waiting for a change of at most `wait_ms`. Refuses the id of another kind of run
    /// with `run_wrong_kind`.
    pub async fn ultraplan(&self, run: &str, wait_ms: u64) -> Result<PlanView> {
        let run = super::run_id(run)?;
        let found = query::load(&self.inner, &run).await?;
        let planner = found.spec.nodes.iter().find(|node| matches!(node.kind, NodeKind::Agent(_)));
        let Some(planner) = planner.filter(|_| found.record.workflow == PLAN).map(|node| node.id.clone()) else {
            return Err(traces::wrong_kind(&found.record, "an ultraplan"));
        };
        let found = query::moved(&self.inner, &run, found, wait_ms).await?;
        let record = &found.record;
        let entry = record.node(planner.as_str());
        let ended = record.state.is_terminal();
        let (mut plan, mut error) = (None, None);
        if record.state == RunState::Completed {
            let output = entry.and_then(|entry| entry.output.clone()).unwrap_or_default();
            let reply = traces::text(&self.inner, &run, &output, Keep::Whole(PLAN_MAX)).await?.text;
            if reply.trim().is_empty() {
                error = Some("the agent's reply is empty".to_owned());
            } else if complains(&reply) {
                error = Some(reply.trim().to_owned());
            } else {
                plan = Some(reply);
            }
        } else if ended {
            let why = record.error.as_ref().or(record.outcome_reason.as_ref());
            let why = why.map_or_else(|| format!("the run ended as {}", record.state.as_str()), Clone::clone);
            error = Some(cut(&why, ERROR_SHOWN).0.to_owned());
        }
        let tree_changed = match entry.filter(|_| ended) {
            Some(entry) => traces::tree_changed(&self.inner, record, entry).await,
            None => None,
        };
        Ok(PlanView {
            status: match (ended, &plan) {
                (false, _) => UltraStatus::Running,
                (true, Some(_)) => UltraStatus::Completed,
                (true, None) => UltraStatus::Error,
            },
            session_name: format!("{run}-{planner}-a{}", entry.map_or(1, |entry| entry.attempts.max(1))),
            id: run,
            start_time: record.created_at,
            end_time: record.ended_at,
            plan,
            error,
            warnings: tree_changed.filter(|c| *c).map(|_| traces::CHANGED.to_owned()).into_iter().collect(),
            tree_changed,
            interrupted: !ended && !found.live,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Council scenario 32.
    #[test]
    fn short_complaints_are_no_plans() {
        let long = format!("Error handling strategy\n\n{}", "retry with a pause. ".repeat(250));
        for (reply, complaint) in [
            ("Error: not logged in", true),
            ("  not logged in; run the login command", true),
            ("Authentication failed", true),
            ("auth failed", true),
            ("Permission denied (publickey)", true),
            ("1. Read the code\n2. Error handling", false),
            (long.as_str(), false),
        ] {
            assert_eq!(complains(reply), complaint, "{reply:.40}");
        }
    }
}
