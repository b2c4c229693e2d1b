//! Runs that wait for a person: a gate may be answered by a process that executes nothing, so a server that
//! lives on looks after the runs it parked (or found parked) and goes on with them once they are answered.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use super::{Inner, query, recovery, start};
use crate::{
    model::{Code, RunId, RunState},
    sys::tasks,
};

/// Pause between two looks at a parked run; a person does not notice it.
const LOOK: Duration = Duration::from_secs(1);
/// Most runs looked after at once; the others go on with the next server start or resume.
const WATCHED_MAX: usize = 256;

/// Runs that are looked after.
#[derive(Debug, Default)]
pub(super) struct Parked(Mutex<HashSet<RunId>>);

/// Looks after a parked run until it is answered, ends, or the process does.
pub(super) fn watch(kernel: &Arc<Inner>, run: RunId) {
    if !kernel.executes {
        return;
    }
    {
        let mut watched = kernel.parked.0.lock().unwrap_or_else(PoisonError::into_inner);
        if watched.len() >= WATCHED_MAX || !watched.insert(run.clone()) {
            return;
        }
    }
    let kernel = kernel.clone();
    tasks::spawn("parked run", async move {
        while waits(&kernel, &run).await {
            tokio::select! {
                () = kernel.stop.cancelled() => break,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        kernel.parked.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&run);
    });
}

/// Whether the run still waits; goes on with one that was answered and left.
async fn waits(kernel: &Arc<Inner>, run: &RunId) -> bool {
    let found = match query::load(kernel, run).await {
        Ok(found) => found,
        // Deleted; anything else may pass.
        Err(e) => return e.code != Code::RunNotFound,
    };
    if found.record.state == RunState::AwaitingHuman {
        return true;
    }
    if !found.live
        && recovery::answered_only(&found.spec, &found.record)
        && let Err(e) = start::resume(kernel, run, crate::nodes::Customs::default()).await
        && e.code != Code::RunOwned
    {
        tracing::warn!(%run, error = %e, "an answered run could not be continued");
    }
    false
}
