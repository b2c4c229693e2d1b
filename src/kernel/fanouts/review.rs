//! Reviews from many sides: fan-outs whose answers are findings.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Fan, FanoutResult, REVIEW, error_of, results, synthesis};
use crate::{
    kernel::{
        Kernel, Result, query, run_id,
        traces::{self, Keep, Kept},
    },
    model::{RunId, RunRecord, RunState, Time},
    nodes::prompt::cut,
};

/// Longest text of one agent in a review that nobody merged, in bytes.
const REVIEW_MAX: usize = 64 * 1024;

/// Where a review stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UltraStatus {
    /// Agents work.
    Running,
    /// There is something to read.
    Completed,
    /// There is not.
    Error,
}

impl UltraStatus {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Error => "error",
        }
    }
}

/// A review from many sides as callers see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReviewView {
    /// The run.
    pub id: RunId,
    /// Where it stands.
    pub status: UltraStatus,
    /// The same as id.
    pub council_id: RunId,
    /// How many reviewers it has.
    pub agent_count: u64,
    /// Start.
    pub start_time: Time,
    /// End.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
    /// The merged findings, else the reviews under their authors' names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub findings: Option<String>,
    /// What went wrong, when something did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Reviewers that have ended, in their order.
    pub reviewers: Vec<Reviewer>,
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

/// How one reviewer ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reviewer {
    /// Its name.
    pub name: String,
    /// Engine that answered.
    pub engine: String,
    /// Whether it gave a review.
    pub ok: bool,
    /// Why it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How long it took in milliseconds.
    pub duration_ms: u64,
}

impl Kernel {
    /// A review from many sides as it stands, after waiting for a change of at most `wait_ms`. `most` bounds the
    /// findings in bytes; the second value says whether something of them is missing.
    pub async fn ultrareview(&self, run: &str, wait_ms: u64, most: usize) -> Result<(ReviewView, bool)> {
        let run = run_id(run)?;
        let wrong = |record: &RunRecord| traces::wrong_kind(record, "an ultrareview");
        let found = query::load(&self.inner, &run).await?;
        if found.record.workflow != REVIEW {
            return Err(wrong(&found.record));
        }
        let found = query::moved(&self.inner, &run, found, wait_ms).await?;
        let (record, fan) = (&found.record, Fan::of(&found.spec, &found.record)?);
        let ended = record.state.is_terminal();
        let results = results(&self.inner, &run, &fan, Keep::Whole(if ended { REVIEW_MAX } else { 0 })).await?;
        let findings = match synthesis(&fan).1 {
            _ if !ended => Kept::default(),
            Some(stored) => traces::text(&self.inner, &run, &stored, Keep::Whole(most)).await?,
            None => listed(&results, most),
        };
        let good = results.iter().any(|r| r.ok) && !findings.text.trim().is_empty();
        let status = match record.state {
            _ if !ended => UltraStatus::Running,
            RunState::Completed if good => UltraStatus::Completed,
            RunState::Completed
            | RunState::Failed
            | RunState::Cancelled
            | RunState::Pending
            | RunState::Running
            | RunState::AwaitingHuman
            | RunState::Verifying => UltraStatus::Error,
        };
        let failed = results.iter().filter(|r| !r.ok).count();
        let error = error_of(record, failed, fan.spec.agents.len());
        let error = error.or_else(|| (status == UltraStatus::Error).then(|| "no reviewer found words".to_owned()));
        let tree_changed = if ended { traces::tree_changed(&self.inner, record, fan.entry).await } else { None };
        let reviewer = |r: FanoutResult| Reviewer {
            name: r.agent,
            engine: r.engine,
            ok: r.ok,
            error: r.error,
            duration_ms: r.duration_ms,
        };
        let view = ReviewView {
            id: run.clone(),
            status,
            council_id: run,
            agent_count: fan.spec.agents.len() as u64,
            start_time: record.created_at,
            end_time: record.ended_at,
            findings: (ended && !findings.text.is_empty()).then_some(findings.text),
            error,
            reviewers: results.into_iter().map(reviewer).collect(),
            warnings: tree_changed.filter(|c| *c).map(|_| traces::CHANGED.to_owned()).into_iter().collect(),
            tree_changed,
            interrupted: !ended && !found.live,
        };
        Ok((view, findings.cut))
    }
}

/// The reviews one after another under their authors' names, in at most `most` bytes.
fn listed(results: &[FanoutResult], most: usize) -> Kept {
    let good: Vec<&FanoutResult> = results.iter().filter(|r| r.ok).collect();
    let text: Vec<String> = good.iter().map(|r| format!("## {}\n\n{}\n", r.agent, r.output.trim_end())).collect();
    let text = text.join("\n");
    let (head, short) = cut(&text, most);
    Kept { text: head.to_owned(), cut: short || good.iter().any(|r| r.truncated) }
}
