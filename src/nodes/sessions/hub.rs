//! The table of live sessions, and what all of them share.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{
    SessionError, Settings, Started,
    records::{Record, Records},
    shared::{Command, Ending, Shared, TurnTrack, entry, locked},
    start::{How, blocking, build},
    view::{OverviewEntry, SessionState, StatusView},
};
use crate::{
    config::Config,
    engines::Pool,
    model::Code,
    sys::{Clock, Fs, redact::Redactor, tasks},
};

/// How long a shutdown waits for all sessions together; a stubborn agent takes up to three seconds.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// A session that lives, or is about to.
#[derive(Debug, Clone)]
enum Place {
    /// Its start is under way; all who ask meanwhile get the same answer.
    Starting(watch::Receiver<Option<Result<Started, SessionError>>>),
    Live(Arc<Shared>),
}

/// What became of something for a session's queue.
pub(super) enum Push {
    /// It is in the queue.
    Done,
    /// The queue is full.
    Full,
    /// The session is not live.
    Absent(Command),
}

/// What all sessions share.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) config: Arc<Config>,
    pub(super) pool: Arc<Pool>,
    pub(super) fs: Arc<dyn Fs>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) redactor: Arc<Redactor>,
    pub(super) settings: Settings,
    pub(super) records: Records,
    /// Told when a record changed.
    pub(super) dirty: Notify,
    places: Mutex<BTreeMap<String, Place>>,
    /// Fires when the process ends.
    closing: CancellationToken,
    saver: OnceLock<()>,
}

impl Hub {
    pub(super) fn new(
        config: Arc<Config>,
        pool: Arc<Pool>,
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
        redactor: Arc<Redactor>,
        settings: Settings,
    ) -> Self {
        let records = Records::new(Arc::clone(&fs), &config.home, settings.keep);
        Self {
            config,
            pool,
            fs,
            clock,
            redactor,
            settings,
            records,
            dirty: Notify::new(),
            places: Mutex::default(),
            closing: CancellationToken::new(),
            saver: OnceLock::new(),
        }
    }

    /// Model where none is said.
    pub(super) fn default_model(&self) -> Option<&str> {
        self.config.sessions.model.as_deref()
    }

    /// The live session of a name.
    pub(super) fn live(&self, name: &str) -> Option<Arc<Shared>> {
        match locked(&self.places).get(name) {
            Some(Place::Live(shared)) => Some(Arc::clone(shared)),
            Some(Place::Starting(_)) | None => None,
        }
    }

    /// Every live session.
    pub(super) fn all_live(&self) -> Vec<Arc<Shared>> {
        let places = locked(&self.places);
        let live = places.values().filter_map(|place| match place {
            Place::Live(shared) => Some(Arc::clone(shared)),
            Place::Starting(_) => None,
        });
        live.collect()
    }

    /// Puts something into a queue. Done under the lock of the table, so that a session that is just being unloaded
    /// either has it or is no longer there.
    pub(super) fn push(&self, name: &str, command: Command, track: Option<&Arc<TurnTrack>>) -> Push {
        let places = locked(&self.places);
        let Some(Place::Live(shared)) = places.get(name) else { return Push::Absent(command) };
        if shared.stop.is_cancelled() {
            return Push::Absent(command);
        }
        match shared.queue.try_send(command) {
            Ok(()) => {
                if let Some(track) = track {
                    shared.track(track);
                }
                Push::Done
            }
            Err(mpsc::error::TrySendError::Full(_)) => Push::Full,
            Err(mpsc::error::TrySendError::Closed(command)) => Push::Absent(command),
        }
    }

    /// Takes a session out of the table; not while something waits for it, unless it is being stopped.
    pub(super) fn unlist(&self, shared: &Arc<Shared>) -> bool {
        let mut places = locked(&self.places);
        let waits = shared.queue.capacity() < shared.queue.max_capacity() && !shared.queue.is_closed();
        if waits && !shared.stop.is_cancelled() {
            return false;
        }
        if matches!(places.get(&shared.name), Some(Place::Live(there)) if Arc::ptr_eq(there, shared)) {
            places.remove(&shared.name);
        }
        true
    }

    /// Makes sure that the session lives. A live one is told of as it is; of several starts of one name at the same
    /// time there is one.
    pub(super) async fn ensure(self: Arc<Self>, name: &str, how: How) -> Result<Started, SessionError> {
        self.clone().save_in_background();
        loop {
            if self.closing.is_cancelled() {
                return Err(SessionError::new(Code::SessionStopped, "the server is stopping"));
            }
            let (ended, mut waiting) = match self.place(name, &how) {
                Placed::Ours(waiting) => (None, waiting),
                Placed::Theirs(waiting) => (None, waiting),
                Placed::Live(shared) if !shared.stop.is_cancelled() => return existing(&shared, &how),
                Placed::Live(shared) => (Some(shared), watch::channel(None).1),
            };
            if let Some(ended) = ended {
                ended.gone.cancelled().await;
                continue;
            }
            let started = waiting.wait_for(Option::is_some).await.ok().and_then(|r| r.clone());
            return started.unwrap_or_else(|| {
                locked(&self.places).remove(name);
                Err(SessionError::new(Code::Internal, format!("the start of session '{name}' broke")))
            });
        }
    }

    /// Looks at the table, and begins a start when there is none.
    fn place(self: &Arc<Self>, name: &str, how: &How) -> Placed {
        let mut places = locked(&self.places);
        match places.get(name) {
            Some(Place::Live(shared)) => return Placed::Live(Arc::clone(shared)),
            Some(Place::Starting(waiting)) => return Placed::Theirs(waiting.clone()),
            None => {}
        }
        let (tell, waiting) = watch::channel(None);
        places.insert(name.to_owned(), Place::Starting(waiting.clone()));
        let (hub, name, how) = (Arc::clone(self), name.to_owned(), how.clone());
        // On its own, so that a caller that goes away leaves no half-started session.
        tasks::spawn("start session", async move {
            let built = build(Arc::clone(&hub), name.clone(), how).await;
            let started = {
                let mut places = locked(&hub.places);
                match built {
                    Ok((shared, started)) => {
                        places.insert(name, Place::Live(shared));
                        Ok(started)
                    }
                    Err(e) => {
                        places.remove(&name);
                        Err(e)
                    }
                }
            };
            tell.send_replace(Some(started));
        });
        Placed::Ours(waiting)
    }

    /// The record of a name. A broken file is an error, a missing one is none.
    pub(super) async fn record(self: &Arc<Self>, name: &str) -> Result<Option<Record>, SessionError> {
        let (hub, name) = (Arc::clone(self), name.to_owned());
        blocking("session records", move || hub.records.get(&name, hub.clock.wall())).await
    }

    /// Sessions that are written down, as an overview shows them.
    pub(super) async fn recorded(self: &Arc<Self>) -> Result<BTreeMap<String, OverviewEntry>, SessionError> {
        let hub = Arc::clone(self);
        let all = blocking("session records", move || hub.records.all(hub.clock.wall())).await?;
        Ok(all.into_iter().map(|(name, record)| (name.clone(), recorded(&name, &record))).collect())
    }

    /// A session that is only written down, in detail.
    pub(super) async fn recorded_status(self: &Arc<Self>, name: &str) -> Result<StatusView, SessionError> {
        let record = self.record(name).await?.ok_or_else(|| SessionError::not_found(name))?;
        let stats = record.stats;
        Ok(StatusView {
            entry: recorded(name, &record),
            turns_succeeded: stats.turns_succeeded,
            tool_calls: stats.tool_calls,
            tool_errors: stats.tool_errors,
            retries: stats.retries,
            last_retry_error: None,
            usage: stats.usage,
            uptime_seconds: None,
            turn: None,
        })
    }

    /// Marks a session that is only written down as stopped.
    pub(super) async fn mark_stopped(self: &Arc<Self>, name: &str) -> Result<(), SessionError> {
        let record = self.record(name).await?.ok_or_else(|| SessionError::not_found(name))?;
        self.records.put(name, Record { stopped: true, ..record });
        self.save().await;
        Ok(())
    }

    /// Ends a session and waits until nothing of it runs.
    pub(super) async fn end(&self, shared: &Arc<Shared>, why: Ending) {
        locked(&shared.ending).get_or_insert(why);
        shared.stop.cancel();
        shared.gone.cancelled().await;
    }

    /// Writes down what changed. A failure is told and tried again with the next change.
    pub(super) async fn save(self: &Arc<Self>) {
        let hub = Arc::clone(self);
        let saved = blocking("session records", move || hub.records.save(hub.clock.wall())).await;
        if let Err(e) = saved {
            tracing::warn!(error = %e, "sessions are not written down; they cannot be gone on with after this process");
        }
    }

    /// Saves what changes, not too often.
    fn save_in_background(self: Arc<Self>) {
        if self.saver.set(()).is_err() {
            return;
        }
        tasks::spawn("save sessions", async move {
            loop {
                tokio::select! {
                    () = self.closing.cancelled() => return,
                    () = self.dirty.notified() => {}
                }
                self.save().await;
                tokio::select! {
                    () = self.closing.cancelled() => return,
                    () = tokio::time::sleep(self.settings.save_every) => {}
                }
            }
        });
    }

    /// Ends everything, then saves.
    pub(super) async fn shutdown(self: &Arc<Self>) {
        self.closing.cancel();
        let ends = async {
            loop {
                let live = self.all_live();
                live.iter().for_each(|shared| {
                    locked(&shared.ending).get_or_insert(Ending::Shutdown);
                    shared.stop.cancel();
                });
                for shared in &live {
                    shared.gone.cancelled().await;
                }
                // A start that was under way may have made another one.
                let starting = locked(&self.places).values().find_map(|place| match place {
                    Place::Starting(waiting) => Some(waiting.clone()),
                    Place::Live(_) => None,
                });
                match starting {
                    Some(mut waiting) => drop(waiting.wait_for(Option::is_some).await),
                    None if live.is_empty() => return,
                    None => {}
                }
            }
        };
        if tokio::time::timeout(SHUTDOWN_LIMIT, ends).await.is_err() {
            tracing::warn!("some sessions did not end in time; their processes are killed with this one");
        }
        self.save().await;
    }
}

/// What the table says of a name.
enum Placed {
    Ours(watch::Receiver<Option<Result<Started, SessionError>>>),
    Theirs(watch::Receiver<Option<Result<Started, SessionError>>>),
    Live(Arc<Shared>),
}

/// The answer to a start of a live name.
fn existing(shared: &Shared, how: &How) -> Result<Started, SessionError> {
    if matches!(how, How::Handoff { .. }) {
        return Err(SessionError::busy(
            &shared.name,
            "it is live, so nothing can be handed to it; choose another newName",
        ));
    }
    let live = locked(&shared.live);
    let record = &live.record;
    Ok(Started {
        name: shared.name.clone(),
        engine: record.engine.clone(),
        model: record.model.clone(),
        cwd: record.cwd.display().to_string(),
        session_id: record.native_id.clone(),
        created: record.created,
        resumed: false,
        existing: true,
        warnings: Vec::new(),
    })
}

fn recorded(name: &str, record: &Record) -> OverviewEntry {
    let state = if record.stopped { SessionState::Stopped } else { SessionState::Paused };
    let entry = entry(name, record, record.options.cap(), state, false);
    OverviewEntry { entry, context_percent: None, queued: 0, unread: 0 }
}
