//! Runs this process executes: how to reach their actors and what they last committed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    model::{Event, RunId, RunRecord, WorkflowSpec},
    nodes::budget::Meter,
};

/// Requests that may wait for one actor.
pub(super) const COMMANDS_MAX: usize = 64;

/// How long after this process lost a run requests for it are refused. They were made of a process that had the run,
/// and may have waited while it slept.
const LOST_FOR: Duration = Duration::from_secs(2);

/// What an actor can be asked.
#[derive(Debug)]
pub(super) enum Command {
    /// End the run.
    Cancel {
        /// Why.
        reason: Option<String>,
        /// Answered once it is on the record.
        done: oneshot::Sender<()>,
    },
    /// Put this on the record of a run that has not ended.
    Record {
        /// What: a correction, words for a round, the wish to wind down.
        event: Box<Event>,
        /// Answered once it is on the record.
        done: oneshot::Sender<()>,
    },
}

/// A run in execution.
#[derive(Debug, Clone)]
pub(super) struct Live {
    /// Reaches the actor.
    pub(super) commands: mpsc::Sender<Command>,
    /// What it executes.
    pub(super) spec: Arc<WorkflowSpec>,
    /// The record after its last commit.
    pub(super) record: watch::Receiver<Arc<RunRecord>>,
    /// Fires when another process has taken the run over.
    pub(super) superseded: CancellationToken,
    /// Its account.
    pub(super) meter: Arc<Meter>,
}

/// All runs in execution here.
#[derive(Debug, Default)]
pub(super) struct LiveRuns(Mutex<Runs>);

#[derive(Debug, Default)]
struct Runs {
    live: HashMap<RunId, Live>,
    /// Runs that other processes took over, and when, since boot.
    lost: HashMap<RunId, Duration>,
}

impl LiveRuns {
    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run, when it is executed here.
    pub(super) fn get(&self, run: &RunId) -> Option<Live> {
        self.runs().live.get(run).cloned()
    }

    /// Enters a run. Its claim is held, so an entry that is still there belongs to an actor that has let go.
    pub(super) fn insert(&self, run: RunId, live: Live) {
        let mut runs = self.runs();
        runs.lost.remove(&run);
        runs.live.insert(run, live);
    }

    /// Forgets a run whose actor has let go, unless a later actor has entered it meanwhile.
    pub(super) fn remove(&self, run: &RunId, commands: &mpsc::Sender<Command>, now: Duration) {
        let mut runs = self.runs();
        if !runs.live.get(run).is_some_and(|live| live.commands.same_channel(commands)) {
            return;
        }
        if runs.live.remove(run).is_some_and(|live| live.superseded.is_cancelled()) {
            runs.lost.retain(|_, at| now.saturating_sub(*at) < LOST_FOR);
            runs.lost.insert(run.clone(), now);
        }
    }

    /// Whether another process has taken the run over just now.
    pub(super) fn lost_lately(&self, run: &RunId, now: Duration) -> bool {
        self.runs().lost.get(run).is_some_and(|at| now.saturating_sub(*at) < LOST_FOR)
    }

    /// How many are executed here.
    pub(super) fn len(&self) -> usize {
        self.runs().live.len()
    }
}
