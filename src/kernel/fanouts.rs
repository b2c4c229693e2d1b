//! Fan-outs as their tools show them: a projection of spec and record, so that it is the same after a restart.

use std::{sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Inner, Kernel, Result, control, query,
    traces::{self, Keep, Kept, beside},
};
use crate::{
    model::{
        Node, NodeKind, RunId, RunOutcome, RunRecord, RunState, Time, WorkflowSpec,
        run::{NodeRecord, OutputText},
        spec::{FanoutAgent, FanoutNode},
    },
    nodes::prompt::cut,
};

/// Workflows whose runs are fan-outs.
const WORKFLOWS: [&str; 2] = ["fanout", REVIEW];
/// Workflow of a review from many sides.
const REVIEW: &str = "ultrareview";
/// Bytes of a task in a view.
const TASK_SHOWN: usize = 2_000;
/// Bytes of a failure in a view.
const ERROR_SHOWN: usize = 1_000;
/// Longest text of one agent in a review that nobody merged, in bytes.
const REVIEW_MAX: usize = 64 * 1024;
/// How long an abort looks whether the agents that wait have been told.
const ABORT_LOOKS: u32 = 10;
/// Pause between two such looks.
const ABORT_PAUSE: Duration = Duration::from_millis(200);

/// Where a fan-out stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FanoutStatus {
    /// Agents work, their answers are merged, or the work is judged.
    Running,
    /// At least one agent succeeded, and no contract says no.
    Done,
    /// No agent succeeded, the contract is red, or the run failed otherwise.
    Error,
    /// Aborted or cancelled.
    Aborted,
}

impl FanoutStatus {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Error => "error",
            Self::Aborted => "aborted",
        }
    }
}

/// A fan-out as callers see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FanoutView {
    /// The run.
    pub id: RunId,
    /// Where it stands.
    pub status: FanoutStatus,
    /// What was asked, shortened when long.
    pub task: String,
    /// How many agents it has.
    pub agent_count: u64,
    /// Start.
    pub started_at: Time,
    /// End.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// Agents that have ended, in the order they were given.
    pub results: Vec<FanoutResult>,
    /// The answer that merges theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synthesis: Option<String>,
    /// Why there is no such answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synthesis_error: Option<String>,
    /// Why none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synthesis_skipped: Option<String>,
    /// What went wrong, when something did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether something independent of the agents checked the work; present once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
    /// Why the outcome is what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome_reason: Option<String>,
    /// Isolated agents: what each changed and what the contract said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidates: Option<Vec<Value>>,
    /// Isolated agents: who was chosen and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selection: Option<Value>,
    /// Isolated agents: what became of the chosen work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<Value>,
    /// Isolated agents: branches and worktrees that stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Value>,
    /// Not ended and nobody executes it: workflow_resume goes on with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
}

/// How one agent ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FanoutResult {
    /// Its name.
    pub agent: String,
    /// Engine that answered.
    pub engine: String,
    /// Its model, when one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Whether the engine counted the turn as a success.
    pub ok: bool,
    /// What it said.
    pub output: String,
    /// Only the end of what it said is shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Why it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How long it took in milliseconds.
    pub duration_ms: u64,
    /// US dollars.
    pub cost_usd: f64,
}

/// What an abort leaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FanoutAborted {
    /// The run.
    pub id: RunId,
    /// Where it stands; aborted once everybody has ended.
    pub status: FanoutStatus,
    /// Agents that finish their turn.
    pub still_running: Vec<String>,
}

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

/// A run whose work is one fan-out.
struct Fan<'a> {
    spec: &'a FanoutNode,
    entry: &'a NodeRecord,
}

impl<'a> Fan<'a> {
    fn of(spec: &'a WorkflowSpec, record: &'a RunRecord) -> Result<Self> {
        let wrong = || traces::wrong_kind(record, "a fan-out");
        if !WORKFLOWS.contains(&record.workflow.as_str()) {
            return Err(wrong());
        }
        let fan = |node: &'a Node| match &node.kind {
            NodeKind::Fanout(fan) => record.node(node.id.as_str()).map(|entry| Self { spec: fan, entry }),
            NodeKind::Agent(_)
            | NodeKind::Verifier(_)
            | NodeKind::HumanGate(_)
            | NodeKind::Router(_)
            | NodeKind::Subflow(_)
            | NodeKind::Goal(_)
            | NodeKind::Council(_) => None,
        };
        spec.nodes.iter().find_map(fan).ok_or_else(wrong)
    }

    fn document(&self, key: &str) -> Option<&'a Value> {
        self.entry.data.as_ref()?.get(key).filter(|document| document.is_object())
    }

    fn agent(&self, agent: &FanoutAgent) -> Option<&'a Value> {
        self.document(&format!("agent:{}", agent.name))
    }

    /// Agents that have not ended.
    fn open(&self) -> Vec<String> {
        self.spec.agents.iter().filter(|agent| self.agent(agent).is_none()).map(|agent| agent.name.clone()).collect()
    }
}

fn word(document: &Value, key: &str) -> Option<String> {
    document.get(key).and_then(Value::as_str).map(|text| cut(text, ERROR_SHOWN).0.to_owned())
}

fn status_of(record: &RunRecord) -> FanoutStatus {
    match record.state {
        RunState::Completed => FanoutStatus::Done,
        RunState::Failed => FanoutStatus::Error,
        RunState::Cancelled => FanoutStatus::Aborted,
        RunState::Pending | RunState::Running | RunState::AwaitingHuman | RunState::Verifying => FanoutStatus::Running,
    }
}

/// What went wrong as a sentence: the run's own word, else how many agents failed.
fn error_of(record: &RunRecord, failed: usize, of: usize) -> Option<String> {
    let own = match record.state {
        RunState::Failed => record.error.as_ref().or(record.outcome_reason.as_ref()),
        RunState::Cancelled => record.error.as_ref(),
        RunState::Completed | RunState::Pending | RunState::Running | RunState::AwaitingHuman | RunState::Verifying => {
            None
        }
    };
    match own {
        Some(why) => Some(cut(why, ERROR_SHOWN).0.to_owned()),
        None => (record.state.is_terminal() && failed > 0).then(|| format!("{failed}/{of} agent(s) failed")),
    }
}

/// How each agent that has ended did so, with as much of its words as is wanted.
async fn results(kernel: &Arc<Inner>, run: &RunId, fan: &Fan<'_>, keep: Keep) -> Result<Vec<FanoutResult>> {
    let mut results = Vec::new();
    for agent in &fan.spec.agents {
        let Some(document) = fan.agent(agent) else { continue };
        let kept = match beside(document) {
            Some(stored) => traces::text(kernel, run, &stored, keep).await?,
            None => Kept::default(),
        };
        let engine = word(document, "engine").or_else(|| agent.choice.engine.clone());
        results.push(FanoutResult {
            agent: agent.name.clone(),
            engine: engine.unwrap_or_else(|| default_engine(kernel)),
            model: word(document, "model").or_else(|| agent.choice.model.clone()),
            ok: document.get("ok") == Some(&Value::Bool(true)),
            output: kept.text,
            truncated: kept.cut,
            error: word(document, "error"),
            duration_ms: document.get("durationMs").and_then(Value::as_u64).unwrap_or_default(),
            cost_usd: document.get("costUsd").and_then(Value::as_f64).unwrap_or_default(),
        });
    }
    Ok(results)
}

fn default_engine(kernel: &Inner) -> String {
    kernel.services.config.default_engine.clone().unwrap_or_else(|| "claude".to_owned())
}

/// The answer that merges the others: its document, and its text when there is one.
fn synthesis<'a>(fan: &Fan<'a>) -> (Option<&'a Value>, Option<OutputText>) {
    let Some(document) = fan.document("synthesis") else { return (None, None) };
    let failed = document.get("error").is_some_and(|e| !e.is_null()) || document.get("skipped").is_some();
    let text = (!failed).then(|| beside(document).or_else(|| fan.entry.output.clone())).flatten();
    (Some(document), text)
}

impl Kernel {
    /// A fan-out as it stands, after waiting for a change of at most `wait_ms`; runs of `ultrareview` are fan-outs too.
    /// Refuses the id of another kind of run with `run_wrong_kind`.
    pub async fn fanout(&self, run: &str, wait_ms: u64, keep: Keep) -> Result<FanoutView> {
        let run = super::run_id(run)?;
        let found = query::load(&self.inner, &run).await?;
        Fan::of(&found.spec, &found.record)?;
        let found = query::waited(&self.inner, &run, found, wait_ms).await?;
        let (record, fan) = (&found.record, Fan::of(&found.spec, &found.record)?);
        let count = fan.spec.agents.len();
        // One bound for all texts together.
        let keep = match keep {
            Keep::Tail(chars) => Keep::Tail(chars),
            Keep::Whole(most) => Keep::Whole(most / (count + 1)),
        };
        let results = results(&self.inner, &run, &fan, keep).await?;
        let (document, text) = synthesis(&fan);
        let merged = match &text {
            Some(stored) => Some(traces::text(&self.inner, &run, stored, keep).await?.text),
            None => None,
        };
        let candidates: Vec<Value> = fan
            .spec
            .agents
            .iter()
            .filter_map(|agent| fan.document(&format!("candidate:{}", agent.name)).cloned())
            .collect();
        Ok(FanoutView {
            id: run.clone(),
            status: status_of(record),
            task: match keep {
                Keep::Tail(_) => cut(&fan.spec.prompt, TASK_SHOWN).0.to_owned(),
                Keep::Whole(_) => fan.spec.prompt.clone(),
            },
            agent_count: count as u64,
            started_at: record.created_at,
            finished_at: record.ended_at,
            error: error_of(record, results.iter().filter(|r| !r.ok).count(), count),
            results,
            synthesis: merged,
            synthesis_error: document.and_then(|d| word(d, "error")),
            synthesis_skipped: document.and_then(|d| word(d, "skipped")),
            outcome: record.outcome,
            outcome_reason: record.outcome_reason.clone(),
            candidates: (!candidates.is_empty()).then_some(candidates),
            selection: fan.document("selection").cloned(),
            merge: fan.document("merge").cloned(),
            left: fan.document("left").cloned(),
            interrupted: !record.state.is_terminal() && !found.live,
        })
    }

    /// Ends a fan-out: agents that wait never begin, those at work finish, or are stopped with `stop_running`.
    pub async fn fanout_abort(&self, run: &str, stop_running: bool) -> Result<FanoutAborted> {
        let run = super::run_id(run)?;
        let found = query::load(&self.inner, &run).await?;
        Fan::of(&found.spec, &found.record)?;
        // Of a run that nobody executes nothing is at work.
        if stop_running || (!found.live && !found.record.state.is_terminal()) {
            control::cancel(&self.inner, &run, Some("the fan-out was aborted".to_owned())).await?;
        } else {
            control::wind_down(&self.inner, &run).await?;
        }
        let mut found = query::load(&self.inner, &run).await?;
        // Those that wait are told one by one; who has not ended after that is at work.
        for _ in 0..ABORT_LOOKS {
            let seq = found.record.seq;
            if stop_running
                || found.record.state.is_terminal()
                || query::changed(&self.inner, &run, seq, ABORT_PAUSE).await? == seq
            {
                break;
            }
            found = query::load(&self.inner, &run).await?;
        }
        let open = Fan::of(&found.spec, &found.record)?.open();
        let ended = found.record.state.is_terminal();
        Ok(FanoutAborted {
            id: run,
            status: status_of(&found.record),
            still_running: if ended { Vec::new() } else { open },
        })
    }

    /// A review from many sides as it stands, after waiting for a change of at most `wait_ms`. `most` bounds the
    /// findings in bytes; the second value says whether something of them is missing.
    pub async fn ultrareview(&self, run: &str, wait_ms: u64, most: usize) -> Result<(ReviewView, bool)> {
        let run = super::run_id(run)?;
        let wrong = |record: &RunRecord| traces::wrong_kind(record, "an ultrareview");
        let found = query::load(&self.inner, &run).await?;
        if found.record.workflow != REVIEW {
            return Err(wrong(&found.record));
        }
        let found = query::waited(&self.inner, &run, found, wait_ms).await?;
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
