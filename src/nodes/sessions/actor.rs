//! One task a session: it alone speaks to the agent, one thing after the other.

use std::{sync::Arc, time::Duration};

use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Hub, SessionError,
    records::Record,
    shared::{Command, Ending, Shared, TurnJob, TurnState, locked},
    turn,
    view::SessionState,
};
use crate::{
    engines::{Answer, Ask, EngineError, ErrorClass, Idle, PooledSession, Sink, TurnEvent},
    sys::{FsLock, tasks},
};

/// How often events are written down while something is under way.
pub(super) const FLUSH: Duration = Duration::from_millis(500);

/// The task's own state.
pub(super) struct Actor {
    pub(super) hub: Arc<Hub>,
    pub(super) shared: Arc<Shared>,
    pub(super) queue: mpsc::Receiver<Command>,
    /// Absent while no program runs.
    pub(super) session: Option<PooledSession>,
    /// Held for as long as this process has the session.
    pub(super) lock: Option<Box<dyn FsLock>>,
}

/// What wakes an actor.
enum Woken {
    Stop,
    Command(Command),
    Idle(Box<Idle>),
    Unload,
}

impl Actor {
    /// Works until the session is stopped or unloaded. Nothing of it runs afterwards.
    pub(super) async fn run(mut self) {
        let mut unload_at = Instant::now() + self.hub.settings.ttl;
        loop {
            let sink = self.sink(None, None);
            let idle = async {
                match &mut self.session {
                    Some(session) if session.alive() => session.idle(sink).await,
                    Some(_) | None => std::future::pending().await,
                }
            };
            let woken = tokio::select! {
                biased;
                () = self.shared.stop.cancelled() => Woken::Stop,
                command = self.queue.recv() => command.map_or(Woken::Stop, Woken::Command),
                what = idle => Woken::Idle(Box::new(what)),
                () = tokio::time::sleep_until(unload_at) => Woken::Unload,
            };
            match woken {
                Woken::Stop => break,
                Woken::Command(command) => {
                    self.shared.set_state(SessionState::Busy);
                    Box::pin(self.obey(command)).await;
                }
                Woken::Idle(what) => self.by_itself(*what).await,
                Woken::Unload => {
                    self.close().await;
                    self.shared.set_state(SessionState::Paused);
                    // One that is not written down would be lost; without its program it costs little.
                    if self.is_recorded() && self.hub.unlist(&self.shared) {
                        break;
                    }
                    unload_at = Instant::now() + self.hub.settings.ttl;
                    continue;
                }
            }
            unload_at = Instant::now() + self.hub.settings.ttl;
        }
        self.finish().await;
    }

    /// Whether another process could go on with it.
    pub(super) fn is_recorded(&self) -> bool {
        self.shared.dir.is_some() && locked(&self.shared.live).record.native_id.is_some()
    }

    /// Does what it was told. Whoever hears of the end finds the session at rest.
    async fn obey(&mut self, command: Command) {
        match command {
            Command::Turn(job) => {
                let track = Arc::clone(&job.state);
                track.set(TurnState::Running);
                let end = self.turn(*job).await;
                self.flush().await;
                self.rest();
                track.set(TurnState::Ended(Box::new(end)));
            }
            Command::Ask { ask, sink, reply } => {
                let answer = self.ask(ask, sink).await;
                self.flush().await;
                self.rest();
                // Whoever asked may be gone.
                let _ = reply.send(answer);
            }
            Command::Change { change, reply } => {
                let changed = self.change(change).await;
                self.flush().await;
                self.rest();
                let _ = reply.send(changed);
            }
        }
    }

    async fn turn(&mut self, job: TurnJob) -> Result<super::TurnView, SessionError> {
        turn::take(self, job).await
    }

    /// Something other than a turn.
    pub(super) async fn ask(&mut self, ask: Ask, sink: Option<Sink>) -> Result<Answer, SessionError> {
        self.admit()?;
        let limit = Instant::now() + self.hub.settings.open_wait;
        self.opened(limit).await?;
        let sink = self.sink(None, sink);
        let cancel = self.shared.stop.child_token();
        *locked(&self.shared.asking) = Some(cancel.clone());
        let asked = match &mut self.session {
            Some(session) => session.ask(ask, sink, cancel.clone()).await,
            None => Err(EngineError::new(ErrorClass::Crashed, "the session is closed")),
        };
        *locked(&self.shared.asking) = None;
        if self.shared.stop.is_cancelled() {
            return Err(SessionError::stopped(&self.shared.name));
        }
        let unanswered =
            asked.as_ref().is_err_and(|e| matches!(e.class, ErrorClass::Interrupted | ErrorClass::Timeout));
        if unanswered {
            // What it still says about this must not be taken for something else.
            self.close().await;
        }
        let mut answer = asked.map_err(SessionError::engine)?;
        if let Some(outcome) = &mut answer.turn {
            turn::account(self, None, outcome).await;
        }
        Ok(answer)
    }

    /// Something happened that nobody asked for.
    async fn by_itself(&mut self, what: Idle) {
        match what {
            Idle::Turn(outcome) => {
                let reply = outcome.text.clone();
                turn::account(self, None, &outcome).await;
                turn::remember(self, "(the agent went on by itself)".to_owned(), reply).await;
            }
            Idle::Gone(error) => {
                let text = format!("the program ended while nothing was asked of it: {}", error.message);
                self.note(text);
                self.close().await;
                self.shared.set_state(SessionState::Paused);
            }
        }
        self.flush().await;
    }

    /// The state after something was done.
    fn rest(&mut self) {
        let alive = self.session.as_ref().is_some_and(PooledSession::alive);
        let mut live = locked(&self.shared.live);
        live.record.last_activity = self.hub.clock.wall();
        if !alive {
            live.opened = None;
        }
        if live.state == SessionState::Busy {
            live.state = if alive { SessionState::Idle } else { SessionState::Paused };
        }
    }

    /// Refuses everything once the cap is used up; no program is started then.
    pub(super) fn admit(&self) -> Result<(), SessionError> {
        let live = locked(&self.shared.live);
        match live.options.cap() {
            Some(cap) if live.record.spent_usd >= cap => {
                Err(SessionError::budget(&self.shared.name, &live.record.engine, live.record.spent_usd, cap))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Tells the log, and whoever listens, what happens.
    pub(super) fn sink(&self, turn_id: Option<String>, other: Option<Sink>) -> Sink {
        let (shared, clock, redactor) =
            (Arc::clone(&self.shared), Arc::clone(&self.hub.clock), Arc::clone(&self.hub.redactor));
        Arc::new(move |event: TurnEvent| {
            let (kind, text) = super::events::Entry::of(&event);
            let text = redactor.text(&text);
            if let TurnEvent::Retry(_) = &event {
                let mut live = locked(&shared.live);
                live.record.stats.retries = live.record.stats.retries.saturating_add(1);
                live.last_retry = Some(text.clone());
            }
            shared.log(clock.wall(), turn_id.as_deref(), kind, text);
            if let Some(other) = &other {
                other(event);
            }
        })
    }

    /// Adds a remark to the log.
    pub(super) fn note(&self, text: String) {
        self.shared.log(self.hub.clock.wall(), None, "note", self.hub.redactor.text(&text));
    }

    /// Ends the program.
    pub(super) async fn close(&mut self) {
        if let Some(session) = self.session.take() {
            let left = session.close().await;
            locked(&self.shared.unkillable).extend(left);
        }
        locked(&self.shared.live).opened = None;
    }

    /// Writes down what waits. A disk that refuses costs events, never the session.
    pub(super) async fn flush(&mut self) {
        flush(&self.hub, &self.shared).await;
    }

    /// Notes the record for the next save.
    pub(super) fn record(&self) {
        if self.is_recorded() {
            let (record, options) = {
                let live = locked(&self.shared.live);
                (live.record.clone(), live.options.clone())
            };
            let (options, left_out) = options.kept(&self.hub.redactor);
            self.hub.records.put(&self.shared.name, Record { options, left_out, ..record });
            self.hub.dirty.notify_one();
        }
    }

    async fn finish(mut self) {
        self.queue.close();
        let stopped = *locked(&self.shared.ending) == Some(Ending::Stop);
        while let Ok(command) = self.queue.try_recv() {
            let error = SessionError::stopped(&self.shared.name);
            match command {
                Command::Turn(job) => job.state.set(TurnState::Ended(Box::new(Err(error)))),
                Command::Ask { reply, .. } => drop(reply.send(Err(error))),
                Command::Change { reply, .. } => drop(reply.send(Err(error))),
            }
        }
        self.close().await;
        self.flush().await;
        if stopped {
            let mut live = locked(&self.shared.live);
            live.state = SessionState::Stopped;
            live.record.stopped = true;
        }
        self.record();
        // Held until here: whoever takes the session over finds everything written.
        if stopped || self.hub.records.changed() {
            self.hub.save().await;
        }
        drop(self.lock.take());
        self.hub.unlist(&self.shared);
        self.shared.gone.cancel();
    }
}

/// Writes down the events of a session.
pub(super) async fn flush(hub: &Arc<Hub>, shared: &Arc<Shared>) {
    let (fs, clock, events) = (Arc::clone(&hub.fs), Arc::clone(&hub.clock), shared.events.clone());
    let written = tasks::blocking("session events", move || events.flush(fs.as_ref(), clock.wall())).await;
    if let Ok(Err(e)) = written {
        tracing::warn!(session = shared.name, error = %e, "events of a session are lost");
    }
}

/// A token that fires with the session's stop.
pub(super) fn stop_of(shared: &Shared) -> CancellationToken {
    shared.stop.child_token()
}
