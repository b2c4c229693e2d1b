//! Fan-outs as their tools show them: a projection of spec and record, so that it is the same after a restart.

mod review;
mod view;

use std::{path::Path, sync::Arc, time::Duration};

use serde_json::Value;

use super::{
    Error, Inner, Kernel, Result, control, query,
    traces::{self, Keep, Kept, beside},
};
use crate::{
    model::{
        Node, NodeKind, Problem, RunId, RunRecord, RunState, WorkflowSpec,
        run::{NodeRecord, OutputText},
        spec::{FanoutAgent, FanoutNode, Isolation},
    },
    nodes::{council::preflight, prompt::cut},
};

pub use review::{ReviewView, Reviewer, UltraStatus};
pub use view::{FanoutAborted, FanoutResult, FanoutStatus, FanoutView};

/// Workflows whose runs are fan-outs.
const WORKFLOWS: [&str; 2] = ["fanout", REVIEW];
/// Workflow of a review from many sides.
const REVIEW: &str = "ultrareview";
/// Bytes of a task in a view.
const TASK_SHOWN: usize = 2_000;
/// Bytes of a failure in a view.
const ERROR_SHOWN: usize = 1_000;
/// How long an abort looks whether the agents that wait have been told.
const ABORT_LOOKS: u32 = 10;
/// Pause between two such looks.
const ABORT_PAUSE: Duration = Duration::from_millis(200);

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
        let found = query::moved(&self.inner, &run, found, wait_ms).await?;
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
}

/// Refuses a checkout in which no isolated agent of `spec` could work; says what is worth knowing about it.
pub(super) async fn ground(kernel: &Inner, spec: &WorkflowSpec) -> Result<Vec<Problem>> {
    let isolated = spec.nodes.iter().find_map(|node| match &node.kind {
        NodeKind::Fanout(fan) => (fan.isolation == Isolation::Worktree).then_some(fan),
        NodeKind::Agent(_)
        | NodeKind::Verifier(_)
        | NodeKind::HumanGate(_)
        | NodeKind::Router(_)
        | NodeKind::Subflow(_)
        | NodeKind::Goal(_)
        | NodeKind::Council(_) => None,
    });
    let Some(fan) = isolated else { return Ok(Vec::new()) };
    let standing = preflight(&kernel.services.git, Path::new(&spec.cwd), fan.allow_dirty).await;
    let standing = standing.map_err(|(code, text)| Error::new(code, text))?;
    let mut warnings = Vec::new();
    if standing.dirty.total > 0 {
        let text = format!(
            "{} uncommitted paths are not visible to the agents, and nothing is merged into a tree with such",
            standing.dirty.total
        );
        warnings.push(Problem::new("cwd", text));
    }
    if !standing.submodules.is_empty() {
        let text = format!("submodules are empty in the agents' worktrees: {}", standing.submodules.join(", "));
        warnings.push(Problem::new("cwd", text));
    }
    Ok(warnings)
}
