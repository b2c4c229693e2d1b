//! What an actor does when the store fails: opens the run again, or ends it when that does not help.

use std::time::Duration;

use super::{
    actor::{Actor, Lost},
    recovery, verdict,
};
use crate::{
    model::{Event, run::Waiting},
    nodes::Stop,
    store,
    sys::tasks,
};

/// First pause between tries to open a run again after a failed write.
pub(super) const REOPEN_FIRST: Duration = Duration::from_millis(500);
/// Longest such pause.
pub(super) const REOPEN_LAST: Duration = Duration::from_secs(30);

impl Actor {
    /// Ends a run that the store keeps refusing.
    pub(super) async fn give_up(&mut self, error: &store::Error) -> Result<(), Lost> {
        let record = self.writer.record.clone();
        if record.state.is_terminal() {
            return Ok(());
        }
        let why = format!("the results of this run cannot be stored: {error}");
        super::control::cancel_child(&self.kernel, &record, Some(why.clone())).await;
        let mut events = self.stopped_node(&record, Stop::Budget);
        for event in &mut events {
            if let Event::NodeState { error, .. } = event {
                *error = Some(why.clone());
            }
        }
        self.end(&verdict::cut_short(&record, why, None), events).await
    }

    /// Puts on the log that the run waits, so that other processes see it too. A full disk has freed the reserve, and
    /// this is what it is for; where even that does not suffice, nothing is lost.
    async fn note_wait(&mut self, waiting: Waiting) {
        let (kernel, run) = (self.kernel.clone(), self.writer.record.run_id.clone());
        self.writer.drop_claim();
        let opened = tasks::blocking("reopen", move || recovery::open(&kernel, &run)).await;
        if let Ok(Ok(opened)) = opened {
            self.writer.replace(opened);
            if !self.writer.record.state.is_terminal() {
                let _ = self.writer.commit(vec![Event::Wait { waiting: Some(waiting) }]).await;
            }
        }
    }

    /// After a failed write only opening again tells what is there. Tries until it works or the process ends.
    pub(super) async fn reopen(&mut self, error: &store::Error) -> bool {
        let waiting = Waiting {
            kind: recovery::STORAGE.to_owned(),
            since: self.kernel.services.clock.wall(),
            until: None,
            detail: error.to_string(),
        };
        if error.is_full_disk() {
            self.note_wait(waiting.clone()).await;
        }
        let mut shown = (*self.writer.record).clone();
        if !shown.state.is_terminal() {
            shown.waiting_for = Some(waiting);
        }
        self.writer.show(shown);
        let run = self.writer.record.run_id.clone();
        let mut pause = REOPEN_FIRST;
        loop {
            tokio::select! {
                () = self.shutdown.cancelled() => return false,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(REOPEN_LAST);
            let (kernel, id) = (self.kernel.clone(), run.clone());
            let store = kernel.store.clone();
            if let Ok(Err(e @ store::Error::LowSpace { .. })) = tasks::blocking("room", move || store.room()).await {
                tracing::warn!(%run, error = %e, "the run waits for space");
                continue;
            }
            // The poisoned claim still holds the lock, so it goes first.
            self.writer.drop_claim();
            let opened = tasks::blocking("reopen", move || recovery::open(&kernel, &id)).await;
            match opened {
                Ok(Ok(opened)) => {
                    self.logs.clear();
                    self.writer.replace(opened);
                    let mut events = recovery::interrupted(&self.writer.spec, &self.writer.record);
                    if !self.writer.record.state.is_terminal() {
                        events.extend(self.owed.iter().cloned());
                    }
                    if self.writer.commit(events).await.is_ok() {
                        self.owed.clear();
                        return true;
                    }
                }
                Ok(Err(store::Error::Owned { .. } | store::Error::NotFound(_) | store::Error::Superseded { .. })) => {
                    self.superseded.cancel();
                    return false;
                }
                Ok(Err(e)) => tracing::warn!(%run, error = %e, "the run cannot be opened yet"),
                Err(e) => tracing::error!(%run, error = %e, "opening the run again failed abnormally"),
            }
        }
    }
}
