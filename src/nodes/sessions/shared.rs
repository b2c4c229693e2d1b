//! What a session's actor and those who ask something of it both see.

use std::{
    collections::VecDeque,
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::{
    SessionError,
    events::{Entry, Events},
    inbox::Inbox,
    options::StartOptions,
    records::Record,
    transcript::Transcript,
    view::{Changed, OverviewEntry, SessionEntry, SessionState, StatusView, TurnStatus, TurnView},
};
use crate::{
    engines::{Answer, Ask, ErrorClass, Order, Sink},
    model::Time,
    sys::Clock,
};

/// Things that may wait for one session; a caller that is further behind has lost control of it.
pub(super) const QUEUE_MAX: usize = 256;
/// Turns whose results are kept for `session_status`.
const TURNS_KEPT: usize = 32;

/// A turn that waits for its session.
pub(super) struct TurnJob {
    pub(super) id: String,
    pub(super) message: String,
    pub(super) effort: Option<String>,
    pub(super) plan: bool,
    pub(super) timeout: Duration,
    /// Whether what is said on the way is given back.
    pub(super) chunks: bool,
    /// Told what happens, besides the log.
    pub(super) sink: Option<Sink>,
    pub(super) state: Arc<TurnTrack>,
}

/// Something a session is asked to do, one after the other.
pub(super) enum Command {
    Turn(Box<TurnJob>),
    Ask { ask: Ask, sink: Option<Sink>, reply: oneshot::Sender<Result<Answer, SessionError>> },
    Change { change: Change, reply: oneshot::Sender<Result<Changed, SessionError>> },
}

/// A change of the options of a running session.
pub(super) enum Change {
    /// Other tools.
    Tools(Box<StartOptions>),
    /// Another model.
    Model(String),
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Turn(_) => "Turn",
            Self::Ask { .. } => "Ask",
            Self::Change { .. } => "Change",
        })
    }
}

/// How a turn ended, or why it did not.
pub(super) type TurnEnd = Result<TurnView, SessionError>;

/// Where a turn stands.
#[derive(Debug, Clone)]
pub(super) enum TurnState {
    Queued,
    Running,
    Ended(Box<TurnEnd>),
}

/// A turn that somebody may wait for. Dropped by the actor without an end only when the session ends.
#[derive(Debug)]
pub(super) struct TurnTrack {
    pub(super) id: String,
    state: watch::Sender<TurnState>,
}

impl TurnTrack {
    pub(super) fn new(id: String) -> Arc<Self> {
        Arc::new(Self { id, state: watch::Sender::new(TurnState::Queued) })
    }

    pub(super) fn set(&self, state: TurnState) {
        // An end is final: a stop must not replace a reply that was given.
        self.state.send_if_modified(|now| {
            let open = !matches!(now, TurnState::Ended(_));
            if open {
                *now = state;
            }
            open
        });
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(*self.state.borrow(), TurnState::Ended(_))
    }

    /// Waits for the end.
    pub(super) async fn end(&self) -> TurnEnd {
        let mut state = self.state.subscribe();
        loop {
            if let TurnState::Ended(end) = &*state.borrow_and_update() {
                return (**end).clone();
            }
            if state.changed().await.is_err() {
                // Cannot be: the sender is here.
                return Err(SessionError::stopped(&self.id));
            }
        }
    }

    /// For people.
    pub(super) fn status(&self) -> TurnStatus {
        let plain = |state| TurnStatus { turn_id: self.id.clone(), state, result: None, code: None, error: None };
        match &*self.state.borrow() {
            TurnState::Queued => plain("queued"),
            TurnState::Running => plain("running"),
            TurnState::Ended(end) => match &**end {
                Ok(view) => {
                    let state = if view.ok { "done" } else { "failed" };
                    TurnStatus { result: Some(view.clone()), ..plain(state) }
                }
                Err(e) => TurnStatus { code: Some(e.code().as_str()), error: Some(e.to_string()), ..plain("failed") },
            },
        }
    }
}

/// What changes while a session lives.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) record: Record,
    pub(super) state: SessionState,
    /// Options in force, also those that are not written down.
    pub(super) options: StartOptions,
    /// When its program was started, on the boot clock.
    pub(super) opened: Option<Duration>,
    pub(super) last_retry: Option<String>,
    pub(super) context_percent: Option<f64>,
    /// Put before the next message until one succeeds.
    pub(super) block: Option<String>,
    /// Told with the next turn.
    pub(super) warnings: Vec<String>,
}

/// Why an actor ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// On purpose; only a start brings the session back.
    Stop,
    /// With the process.
    Shutdown,
}

/// One session.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) name: String,
    /// Where its files are; absent when it keeps none.
    pub(super) dir: Option<PathBuf>,
    pub(super) queue: mpsc::Sender<Command>,
    /// Ends the actor.
    pub(super) stop: CancellationToken,
    /// Fires once the actor has ended and nothing of it runs.
    pub(super) gone: CancellationToken,
    pub(super) ending: Mutex<Option<Ending>>,
    pub(super) live: Mutex<Live>,
    /// Where orders for the turn under way go.
    pub(super) orders: Mutex<Option<mpsc::Sender<Order>>>,
    /// Cuts off a question under way.
    pub(super) asking: Mutex<Option<CancellationToken>>,
    pub(super) events: Events,
    pub(super) transcript: Mutex<Transcript>,
    pub(super) inbox: Mutex<Inbox>,
    pub(super) turns: Mutex<VecDeque<Arc<TurnTrack>>>,
    /// Processes that could not be ended.
    pub(super) unkillable: Mutex<Vec<String>>,
}

/// The content of a lock; a panic while it was held does not spoil plain data.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Notes that a turn waits.
    pub(super) fn track(&self, turn: &Arc<TurnTrack>) {
        let mut turns = locked(&self.turns);
        while turns.len() >= TURNS_KEPT
            && let Some(over) = turns.iter().position(|t| t.is_over())
        {
            turns.remove(over);
        }
        turns.push_back(Arc::clone(turn));
    }

    /// The turn of that id, or the latest one.
    pub(super) fn turn(&self, id: Option<&str>) -> Option<Arc<TurnTrack>> {
        let turns = locked(&self.turns);
        match id {
            Some(id) => turns.iter().find(|t| t.id == id).cloned(),
            None => turns.back().cloned(),
        }
    }

    /// Adds to the log.
    pub(super) fn log(&self, at: Time, turn_id: Option<&str>, kind: &str, text: String) {
        self.events.add(Entry { at, turn_id: turn_id.map(str::to_owned), kind: kind.to_owned(), text });
    }

    pub(super) fn state(&self) -> SessionState {
        locked(&self.live).state
    }

    pub(super) fn set_state(&self, state: SessionState) {
        locked(&self.live).state = state;
    }

    /// Whether it does something, or has something to do.
    pub(super) fn is_busy(&self) -> bool {
        let waiting = self.queue.max_capacity().saturating_sub(self.queue.capacity());
        waiting > 0 || matches!(self.state(), SessionState::Busy | SessionState::Starting)
    }

    pub(super) fn overview(&self) -> OverviewEntry {
        let unread = locked(&self.inbox).unread();
        let live = locked(&self.live);
        OverviewEntry {
            entry: entry(&self.name, &live.record, live.options.cap(), live.state, true),
            context_percent: live.context_percent,
            queued: self.queue.max_capacity().saturating_sub(self.queue.capacity()),
            unread,
        }
    }

    pub(super) fn status(&self, clock: &dyn Clock, turn: Option<TurnStatus>) -> StatusView {
        let entry = self.overview();
        let live = locked(&self.live);
        let stats = live.record.stats;
        StatusView {
            entry,
            turns_succeeded: stats.turns_succeeded,
            tool_calls: stats.tool_calls,
            tool_errors: stats.tool_errors,
            retries: stats.retries,
            last_retry_error: live.last_retry.clone(),
            usage: stats.usage,
            uptime_seconds: live.opened.map(|at| clock.boot().saturating_sub(at).as_secs()),
            turn,
        }
    }
}

/// A session as a list shows it.
pub(super) fn entry(name: &str, record: &Record, cap: Option<f64>, state: SessionState, live: bool) -> SessionEntry {
    SessionEntry {
        name: name.to_owned(),
        engine: record.engine.clone(),
        model: record.model.clone(),
        cwd: record.cwd.display().to_string(),
        session_id: record.native_id.clone(),
        state,
        live,
        created: record.created,
        last_activity: record.last_activity,
        turns: record.stats.turns,
        cost_usd: record.spent_usd,
        budget_usd: cap,
        budget_exhausted: cap.is_some_and(|cap| record.spent_usd >= cap),
    }
}

/// Whether a failed opening says that the conversation to go on with is not there.
pub(super) fn lost_conversation(class: Option<ErrorClass>) -> bool {
    match class {
        // It runs, but not with the conversation it was given.
        Some(ErrorClass::Other) => true,
        Some(
            ErrorClass::Auth
            | ErrorClass::Quota
            | ErrorClass::Overloaded
            | ErrorClass::ContextOverflow
            | ErrorClass::PermissionDenied
            | ErrorClass::Refused
            | ErrorClass::Interrupted
            | ErrorClass::Timeout
            | ErrorClass::BudgetExceeded
            | ErrorClass::Crashed
            | ErrorClass::Protocol
            | ErrorClass::StartFailed
            | ErrorClass::NotSupported,
        )
        | None => false,
    }
}
