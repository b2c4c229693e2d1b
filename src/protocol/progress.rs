//! Progress notifications: the first at once, then at least every 10 s, with values that always rise.

use std::{sync::Arc, time::Duration};

use rmcp::{
    Peer, RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
};
use tokio::{sync::watch, task::JoinHandle};

use crate::{sys, tools::ProgressSink};

/// Silence after which the last report is sent again. Hosts and proxies cut after about a minute.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// What a repeated report adds to its value, small enough never to look like work done.
const STEP: f64 = 0.0001;

#[derive(Debug, Clone, Default)]
struct Note {
    done: u64,
    total: u64,
    text: String,
}

/// Sends what a call reports, until it is dropped.
#[derive(Debug)]
pub struct Pump {
    notes: watch::Sender<Option<Note>>,
    task: JoinHandle<()>,
}

impl Pump {
    /// A pump for one call. Nothing is sent before the first report.
    pub fn start(peer: Peer<RoleServer>, token: ProgressToken) -> Self {
        let (notes, mut changed) = watch::channel::<Option<Note>>(None);
        let task = sys::tasks::spawn("progress", async move {
            let mut last = -STEP;
            loop {
                let started = changed.borrow().is_some();
                tokio::select! {
                    more = changed.changed() => if more.is_err() { return },
                    () = tokio::time::sleep(HEARTBEAT), if started => {}
                }
                let Some(note) = changed.borrow_and_update().clone() else { continue };
                last = next(last, note.done);
                let mut params = ProgressNotificationParam::new(token.clone(), last).with_message(note.text);
                if note.total > 0 {
                    params = params.with_total(note.total as f64);
                }
                if peer.notify_progress(params).await.is_err() {
                    return;
                }
            }
        });
        Self { notes, task }
    }

    /// Where the call reports to. Only the latest report is kept when the host reads slowly.
    pub fn sink(&self) -> ProgressSink {
        let notes = self.notes.clone();
        Arc::new(move |done, total, text: &str| {
            notes.send_replace(Some(Note { done, total, text: text.to_owned() }));
        })
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn next(last: f64, done: u64) -> f64 {
    (done as f64).max(last + STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_always_rise() {
        let mut last = -STEP;
        let mut all = Vec::new();
        for done in [0, 0, 0, 1, 1, 0, 3] {
            last = next(last, done);
            all.push(last);
        }
        assert!(all.windows(2).all(|w| w[0] < w[1]), "{all:?}");
        assert_eq!((all[0], all[3], all[6]), (0.0, 1.0, 3.0));
    }
}
