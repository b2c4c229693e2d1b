//! Opening a run after anything: claim, fold, and what the cut-off attempt means.

use std::sync::Arc;

use super::{Inner, plan, spec, state};
use crate::{
    model::{Event, NodeKind, NodeState, RunId, RunRecord, RunState, WorkflowSpec, run::RECORD_VERSION},
    store::{self, Claim, Loaded, Store},
    sys::tasks,
};

/// How a wait for the store is called on the record.
pub(super) const STORAGE: &str = "storage";

/// A run opened for writing.
#[derive(Debug)]
pub(super) struct Opened {
    /// What it executes.
    pub(super) spec: Arc<WorkflowSpec>,
    /// The record.
    pub(super) record: RunRecord,
    /// The right to write.
    pub(super) claim: Box<dyn Claim>,
}

/// Claims a run and folds its log. Blocking.
pub(super) fn open(kernel: &Inner, run: &RunId) -> store::Result<Opened> {
    let claim = kernel.store.claim(run)?;
    let loaded = kernel.store.load(run)?;
    let (spec, record) = fold(kernel.store.as_ref(), run, &loaded)?;
    Ok(Opened { spec: Arc::new(spec), record, claim })
}

/// The spec and record of a loaded run. Blocking only when the checkpoint was written by another version.
pub(super) fn fold(store: &dyn Store, run: &RunId, loaded: &Loaded) -> store::Result<(WorkflowSpec, RunRecord)> {
    let spec = stored_spec(run, &loaded.spec)?;
    let cached = loaded.checkpoint.as_ref().map(|(_, value)| serde_json::from_value::<RunRecord>(value.clone()));
    let record = match cached {
        Some(Ok(mut record)) if record.v == RECORD_VERSION => {
            state::apply_stored(&mut record, &spec, &loaded.lines);
            record
        }
        // Only the log is the truth.
        Some(_) => {
            let mut record = state::empty(run, &spec);
            state::apply_stored(&mut record, &spec, &store.lines(run, 0, usize::MAX)?);
            record
        }
        None => {
            let mut record = state::empty(run, &spec);
            state::apply_stored(&mut record, &spec, &loaded.lines);
            record
        }
    };
    Ok((spec, record))
}

/// The spec as the store holds it.
fn stored_spec(run: &RunId, value: &serde_json::Value) -> store::Result<WorkflowSpec> {
    let read = spec::read(value, "", spec::Origin::Stored, None, None);
    read.spec.ok_or_else(|| store::Error::Malformed {
        run: run.clone(),
        what: "spec.json",
        reason: read.errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
    })
}

/// What a process that takes a run over puts on the record first.
///
/// An attempt that was under way is lost and runs again under the next attempt number, which burns none of
/// its retries. A wait for a retry, a slot or a quota goes on as it was.
pub(super) fn interrupted(spec: &WorkflowSpec, record: &RunRecord) -> Vec<Event> {
    let mut events = cut_off(spec, record);
    // Whoever can write this no longer waits for storage.
    let waited = record.waiting_for.as_ref().is_some_and(|w| w.kind == STORAGE) && !record.state.is_terminal();
    if waited && !events.iter().any(|e| matches!(e, Event::Wait { .. })) {
        events.push(Event::Wait { waiting: None });
    }
    events
}

/// What becomes of the attempt that was under way.
fn cut_off(spec: &WorkflowSpec, record: &RunRecord) -> Vec<Event> {
    let Some(current) = &record.current_node else { return Vec::new() };
    let (Some((_, node)), Some(entry)) = (spec.node(current.as_str()), record.node(current.as_str())) else {
        return Vec::new();
    };
    // Of a fan-out some members may have been at work while another one waited.
    let alone = matches!(node.kind, NodeKind::Agent(_) | NodeKind::Goal(_));
    // A council's sessions are named after the attempt, and their wait may be over for some and not for others.
    let council = matches!(node.kind, NodeKind::Council(_));
    let waits = record
        .waiting_for
        .as_ref()
        .is_some_and(|w| !council && (w.kind == "quota" || w.kind == "stall" || (alone && w.kind == "slot")));
    let works = !matches!(node.kind, NodeKind::Router(_) | NodeKind::HumanGate(_));
    if record.state.is_terminal() || entry.state != NodeState::Running || entry.retry_at.is_some() || !works {
        return Vec::new();
    }
    let attempt = if waits { entry.attempts } else { entry.attempts + 1 };
    let mut events = vec![Event::Log {
        node: Some(current.clone()),
        level: "warn".to_owned(),
        text: format!("attempt {} was cut off; the run goes on with attempt {attempt}", entry.attempts),
    }];
    events.push(Event::NodeState {
        node: current.clone(),
        state: NodeState::Running,
        visit: entry.visits,
        attempt,
        failures: entry.failures,
        error: entry.error.clone(),
        approved: None,
        comment: None,
    });
    // Whoever waits again says so again.
    events.extend(record.waiting_for.is_some().then_some(Event::Wait { waiting: None }));
    events
}

/// Whether a gate was answered by a process that does not execute runs, and nobody has gone on since.
pub(super) fn answered_only(spec: &WorkflowSpec, record: &RunRecord) -> bool {
    let Some(current) = &record.current_node else { return false };
    let gate = spec.node(current.as_str()).is_some_and(|(_, n)| matches!(n.kind, NodeKind::HumanGate(_)));
    gate && record.node(current.as_str()).is_some_and(|n| n.approved.is_some())
}

/// What answering a gate puts on the record.
pub(super) fn answered(record: &RunRecord, approved: bool, comment: Option<String>) -> Option<Vec<Event>> {
    let gate = record.gate.as_ref()?;
    let entry = record.node(gate.node.as_str())?;
    let (state, error) = if approved {
        (NodeState::Succeeded, None)
    } else {
        let why = comment.as_deref().map_or_else(|| "rejected".to_owned(), |c| format!("rejected: {c}"));
        (NodeState::Failed, Some(why))
    };
    Some(vec![
        Event::NodeState {
            node: gate.node.clone(),
            state,
            visit: entry.visits,
            attempt: entry.attempts,
            failures: 0,
            error,
            approved: Some(approved),
            comment,
        },
        Event::Gate { gate: None },
        plan::run_state(RunState::Running),
    ])
}

/// Continues interrupted runs of earlier processes, oldest first. Children are continued by their parents.
pub(super) async fn auto_resume(kernel: &Arc<Inner>) {
    let store = kernel.store.clone();
    let all = kernel.services.config.auto_resume;
    let Ok(Ok(listed)) = tasks::blocking("auto resume", move || store.list()).await else { return };
    for run in listed.iter().rev() {
        let Ok(found) = super::query::load(kernel, &run.run_id).await else { continue };
        let record = &found.record;
        let child = record.parent.as_ref().is_some_and(|p| p.node.is_some());
        if let Some(path) = record.workspace_path.as_ref().filter(|_| record.state.is_terminal() && !found.live) {
            // Its process may have ended between the run's end and this.
            super::workspace::close_left(kernel, record, path).await;
        }
        if record.state == RunState::AwaitingHuman && !found.live {
            super::parked::watch(kernel, run.run_id.clone());
        }
        let wanted = (all || record.auto_resume || answered_only(&found.spec, record)) && !child;
        let interrupted = !found.live && !record.state.is_terminal() && record.state != RunState::AwaitingHuman;
        if wanted
            && interrupted
            && let Err(e) = super::start::resume(kernel, &run.run_id, crate::nodes::Customs::default()).await
        {
            tracing::warn!(run = %run.run_id, error = %e, "an interrupted run could not be continued");
        }
    }
}
