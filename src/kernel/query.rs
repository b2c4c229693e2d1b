//! Reading runs: from the actor when this process executes them, else from the store, never blocking an owner.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    Error, Inner, Result, StatusQuery,
    live::Live,
    recovery,
    verdict::{self, InForce},
    view::{EventView, GateView, NodeView, RunView},
};
use crate::{
    model::{
        NodeState, RunId, RunRecord, RunState, WorkflowSpec,
        run::{GoalState, NodeRecord},
        spec::OnFailure,
    },
    nodes::prompt::cut,
    sys::tasks,
};

/// Most events in one answer.
pub(super) const EVENTS_MAX: usize = 500;
/// Longest wait for a change.
pub(super) const WAIT_MAX: Duration = Duration::from_millis(55_000);
/// Pause between two looks at a run that another process executes.
const POLL: Duration = Duration::from_millis(100);
/// Beginning of an output shown in a status, in bytes.
const OUTPUT_SHOWN: usize = 400;
/// Bytes of an objective and of an agent's last words in a status.
const GOAL_SHOWN: usize = 400;
/// Nodes shown in a status; a spec may have 1 000.
const NODES_SHOWN: usize = 100;

/// A run as it was read.
#[derive(Debug, Clone)]
pub(super) struct Found {
    /// What it executes.
    pub(super) spec: Arc<WorkflowSpec>,
    /// The record.
    pub(super) record: Arc<RunRecord>,
    /// Whether a live process executes it.
    pub(super) live: bool,
    /// How it is executed here, when it was read from that.
    pub(super) here: Option<Live>,
}

/// Reads a run.
pub(super) async fn load(kernel: &Arc<Inner>, run: &RunId) -> Result<Found> {
    // Its only writer is here, so what it last committed is all there is; a wait for storage is known only to it.
    if let Some(live) = kernel.live.get(run) {
        let record = live.record.borrow().clone();
        return Ok(Found { spec: Arc::clone(&live.spec), record, live: true, here: Some(live) });
    }
    let (store, id) = (kernel.store.clone(), run.clone());
    let read = tasks::blocking("load", move || {
        let loaded = store.load(&id)?;
        let (spec, record) = recovery::fold(store.as_ref(), &id, &loaded)?;
        Ok::<_, crate::store::Error>((spec, record, loaded.live))
    })
    .await
    .map_err(|e| super::internal(&e))?;
    let (spec, record, live) = read.map_err(|e| super::store_error(&e))?;
    Ok(Found { spec: Arc::new(spec), record: Arc::new(record), live, here: None })
}

/// A run as it stands, after waiting for a change when asked to.
pub(super) async fn status(kernel: &Arc<Inner>, run: &RunId, query: StatusQuery) -> Result<RunView> {
    let found = load(kernel, run).await?;
    let found = waited(kernel, run, found, query.wait_ms).await?;
    let mut view = view(kernel, &found).await;
    if query.events > 0 {
        view.events = events(kernel, run, query.events.min(EVENTS_MAX)).await?;
        // Read a moment later than the record; what is newer belongs to the next answer.
        view.events.retain(|event| event.seq <= found.record.seq);
    }
    Ok(view)
}

/// The same run after a change, or after `wait_ms`, at most [`WAIT_MAX`].
pub(super) async fn waited(kernel: &Arc<Inner>, run: &RunId, found: Found, wait_ms: u64) -> Result<Found> {
    if wait_ms == 0 || !waits(&found) {
        return Ok(found);
    }
    let wait = Duration::from_millis(wait_ms).min(WAIT_MAX);
    changed(kernel, run, found.record.seq, wait).await?;
    load(kernel, run).await
}

/// The same, but after a change of where the run stands or of what its nodes gave. Agents say a lot while they work.
pub(super) async fn moved(kernel: &Arc<Inner>, run: &RunId, found: Found, wait_ms: u64) -> Result<Found> {
    let standing = |found: &Found| {
        let given = |node: &NodeRecord| node.data.as_ref().and_then(Value::as_object).map_or(0, serde_json::Map::len);
        let nodes: Vec<_> = found.record.nodes.iter().map(|node| (node.state, given(node))).collect();
        (found.record.state, found.record.winding_down, nodes)
    };
    let deadline = tokio::time::Instant::now() + Duration::from_millis(wait_ms).min(WAIT_MAX);
    let (before, mut found) = (standing(&found), found);
    while wait_ms > 0 && waits(&found) && standing(&found) == before {
        let left = deadline.saturating_duration_since(tokio::time::Instant::now());
        if left.is_zero() {
            break;
        }
        changed(kernel, run, found.record.seq, left).await?;
        found = load(kernel, run).await?;
    }
    Ok(found)
}

/// Whether there is anything to wait for.
fn waits(found: &Found) -> bool {
    !found.record.state.is_terminal() && (found.live || found.record.state == RunState::AwaitingHuman)
}

/// Waits until a run's last commit is a later one than `seq`.
pub(super) async fn changed(kernel: &Arc<Inner>, run: &RunId, seq: u64, wait: Duration) -> Result<u64> {
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        if let Some(live) = kernel.live.get(run) {
            let mut record = live.record;
            let moved = tokio::time::timeout_at(deadline, record.wait_for(|r| r.seq > seq)).await;
            match moved {
                Ok(Ok(record)) => return Ok(record.seq),
                // Its actor let go without a change we saw; the store tells the rest.
                Ok(Err(_)) => {}
                Err(_) => return Ok(seq),
            }
        }
        let found = load(kernel, run).await?;
        if found.record.seq > seq || !waits(&found) {
            return Ok(found.record.seq);
        }
        if tokio::time::Instant::now() >= deadline {
            return Ok(seq);
        }
        tokio::time::sleep_until((tokio::time::Instant::now() + POLL).min(deadline)).await;
    }
}

/// The last events of a run.
async fn events(kernel: &Arc<Inner>, run: &RunId, count: usize) -> Result<Vec<EventView>> {
    let (store, id) = (kernel.store.clone(), run.clone());
    let lines = tasks::blocking("events", move || store.lines(&id, 0, count)).await.map_err(|e| super::internal(&e))?;
    let lines = lines.map_err(|e| super::store_error(&e))?;
    let mut events: Vec<EventView> = lines
        .into_iter()
        .flat_map(|line| {
            let (seq, ts) = (line.seq, line.ts);
            line.events.into_iter().map(move |event| EventView { seq, ts, event })
        })
        .collect();
    events.drain(..events.len().saturating_sub(count));
    Ok(events)
}

/// What a caller is shown.
pub(super) async fn view(kernel: &Arc<Inner>, found: &Found) -> RunView {
    let record = found.record.as_ref();
    let shown = verdict::shown(record).cloned();
    let parked = record.state == RunState::AwaitingHuman;
    let now = kernel.services.clock.wall();
    let gate = match &record.gate {
        Some(_) => gate(kernel, found).await,
        None => None,
    };
    RunView {
        run_id: record.run_id.clone(),
        workflow: record.workflow.clone(),
        state: record.state,
        outcome: record.outcome,
        outcome_reason: record.outcome_reason.clone(),
        error: record.error.clone(),
        evidence_id: shown.as_ref().and_then(|v| v.evidence_id.clone()),
        verdict: shown,
        current_node: record.current_node.as_ref().map(ToString::to_string),
        created_at: record.created_at,
        updated_at: record.updated_at,
        ended_at: record.ended_at,
        cwd: record.cwd.clone(),
        workspace_branch: record.workspace_branch.clone(),
        workspace_path: record.workspace_path.clone(),
        cost_usd: record.spend.cost_usd,
        spend: record.spend.clone(),
        nodes: shown_nodes(record).into_iter().map(|n| node_view(n, now.millis())).collect(),
        nodes_total: record.nodes.len() as u64,
        consensus_votes: record.consensus_votes.clone(),
        live: found.live,
        interrupted: !record.state.is_terminal() && !parked && !found.live,
        waiting_for: waiting(record),
        gate,
        pending_steers: record.steers.iter().filter(|s| s.applied.is_empty()).count() as u64,
        seq: record.seq,
        events: Vec::new(),
    }
}

/// The nodes worth showing: all of them, or those that were entered and the first others.
fn shown_nodes(record: &RunRecord) -> Vec<&NodeRecord> {
    if record.nodes.len() <= NODES_SHOWN {
        return record.nodes.iter().map(AsRef::as_ref).collect();
    }
    let mut nodes: Vec<&NodeRecord> = record.nodes.iter().map(AsRef::as_ref).filter(|n| n.visits > 0).collect();
    // Of very many, the ones that moved last tell most.
    nodes.sort_by_key(|n| std::cmp::Reverse(n.started_at));
    nodes.truncate(NODES_SHOWN);
    nodes
}

/// Why nothing moves, the backoff of a retry included.
fn waiting(record: &RunRecord) -> Option<crate::model::run::Waiting> {
    use crate::model::run::Waiting;
    if record.state.is_terminal() {
        return None;
    }
    if let Some(gate) = &record.gate {
        let detail = format!("gate '{}' waits for a person", gate.node);
        return Some(Waiting { kind: "gate".to_owned(), since: gate.since, until: None, detail });
    }
    let current = record.current_node.as_ref().and_then(|id| record.node(id.as_str()));
    if let Some(node) = current
        && let Some(until) = node.retry_at
    {
        let detail = format!("attempt {} of '{}' starts then", node.attempts, node.id);
        return Some(Waiting { kind: "backoff".to_owned(), since: record.updated_at, until: Some(until), detail });
    }
    if let Some(node) = current
        && node.state == NodeState::Running
        && let Some(child) = &node.child_run_id
    {
        let detail = format!("child run '{child}'");
        return Some(Waiting { kind: "child".to_owned(), since: record.updated_at, until: None, detail });
    }
    record.waiting_for.clone()
}

fn node_view(node: &NodeRecord, now_ms: i64) -> NodeView {
    let (output, output_bytes) = match &node.output {
        None => (None, None),
        Some(output) => {
            let whole = output.file.as_ref().map_or(output.text.len() as u64, |f| f.bytes);
            let (head, cut) = cut(&output.text, OUTPUT_SHOWN);
            (Some(head.to_owned()), (cut || output.file.is_some()).then_some(whole))
        }
    };
    let ended = node.ended_at.map(|t| t.millis()).or((node.state == NodeState::Running).then_some(now_ms));
    let duration = node.started_at.zip(ended).map(|(start, end)| end.saturating_sub(start.millis()));
    NodeView {
        id: node.id.clone(),
        kind: node.kind.clone(),
        state: node.state,
        visits: node.visits,
        attempts: node.attempts,
        error: node.error.as_deref().map(|e| cut(e, 1000).0.to_owned()),
        output,
        output_bytes,
        evidence_id: node.evidence_id.clone(),
        goal: goal_view(node),
        child_run_id: node.child_run_id.clone(),
        retry_at: node.retry_at,
        duration_ms: duration.and_then(|ms| u64::try_from(ms).ok()),
        cost_usd: node.cost_usd,
    }
}

/// Where a node's goal stands, with long texts cut.
fn goal_view(node: &NodeRecord) -> Option<GoalState> {
    let mut goal = crate::nodes::goal::shown(node.data.as_ref())?;
    goal.objective = cut(&goal.objective, GOAL_SHOWN).0.to_owned();
    goal.last_message = goal.last_message.map(|words| cut(&words, GOAL_SHOWN).0.to_owned());
    Some(goal)
}

/// What a person needs to decide, with the exact call that answers.
async fn gate(kernel: &Arc<Inner>, found: &Found) -> Option<GateView> {
    let record = found.record.as_ref();
    let gate = record.gate.as_ref()?;
    let (index, node) = found.spec.node(gate.node.as_str())?;
    let next = match &node.next {
        Some(id) => Some(id.to_string()),
        None => found.spec.nodes.get(index + 1).map(|n| n.id.to_string()),
    };
    let onward = next.map_or_else(|| "the run ends".to_owned(), |id| format!("the run goes on with '{id}'"));
    let on_reject = match node.on_failure {
        OnFailure::Fail => "the run ends as failed".to_owned(),
        OnFailure::Continue => format!("the gate counts as failed and {onward}"),
    };
    let checks = match verdict::in_force(record) {
        InForce::None => "nothing was checked yet".to_owned(),
        InForce::Red(list) => format!("red: {}", list.iter().map(|v| v.node.as_str()).collect::<Vec<_>>().join(", ")),
        InForce::Green(_) => "green".to_owned(),
    };
    Some(GateView {
        node: gate.node.to_string(),
        visit: gate.visit,
        prompt: gate.prompt.clone(),
        since: gate.since,
        changes: changes(kernel, record).await,
        checks,
        spent: format!("{:.4} USD in {} turns", record.spend.cost_usd, record.spend.turns),
        on_approve: onward,
        on_reject,
        answer_with: json!({
            "tool": "workflow_approve",
            "arguments": { "runId": record.run_id, "approved": Value::Bool(true) },
        }),
    })
}

/// One line about what the run has changed so far.
async fn changes(kernel: &Inner, record: &RunRecord) -> String {
    let Some(base) = record.baseline.as_ref().filter(|b| b.in_git) else {
        return "not in a git repository, so changes are not known".to_owned();
    };
    let found = async {
        match kernel.services.git.open(std::path::Path::new(&record.work_dir)).await? {
            Some(repo) => repo.changes(base).await.map(Some),
            None => Ok(None),
        }
    };
    match found.await {
        Ok(Some(set)) if set.changes.is_empty() => "no file changed yet".to_owned(),
        Ok(Some(set)) => {
            let names: Vec<&str> = set.changes.iter().take(10).map(|c| c.path.as_str()).collect();
            let more = if set.changes.len() > 10 { ", ..." } else { "" };
            format!("{} files, {} lines: {}{more}", set.changes.len(), set.lines, names.join(", "))
        }
        Ok(None) => "the repository is gone".to_owned(),
        Err(e) => format!("changes are not known: {e}"),
    }
}

/// The error of a node that is not there.
pub(super) fn no_node(run: &RunId, node: &str) -> Error {
    Error::new(crate::model::Code::InvalidArgument, format!("run '{run}' has no output of a node '{node}'"))
}
