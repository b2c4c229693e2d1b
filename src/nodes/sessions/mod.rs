//! Named sessions: conversations with agents that callers start, speak to, hand on and find again by name.
//!
//! One actor a session speaks to its agent, strictly one thing after the other. What a later process needs to go on
//! is in `sessions.json` and in the session's own directory. Knows neither runs nor protocols.

mod actor;
mod change;
mod error;
mod events;
mod handoff;
mod hub;
mod inbox;
mod messages;
mod options;
mod records;
mod reopen;
mod shared;
mod start;
mod tags;
mod transcript;
mod turn;
mod view;

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::oneshot;

pub use error::SessionError;
pub use events::{Entry, FOUND_MAX};
pub use handoff::{Carried, MAX_LEAST as HANDOFF_LEAST, MAX_MOST as HANDOFF_MOST};
pub use inbox::{InboxMessage, MESSAGE_MAX, SUMMARY_MAX};
pub use messages::HandoffRequest;
pub use options::{Caller, Resume, StartOptions};
pub use records::FILE as RECORDS_FILE;
pub use view::{
    Changed, Compacted, Delivered, HandedOff, Overview, OverviewEntry, SentTo, SessionEntry, SessionState, Started,
    StatusView, Stopped, TurnStatus, TurnView,
};

use crate::{
    config::Config,
    engines::{Answer, Ask, Order, Pool, Sink},
    model::Code,
    sys::{Clock, Fs, ids, redact::Redactor},
};
use hub::{Hub, Push};
use shared::{Change, Command, TurnJob, TurnTrack, locked};
use start::How;

/// Longest time a turn may take.
pub const TIMEOUT_MOST: Duration = Duration::from_secs(7_200);
/// Time a turn may take where nothing is said.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(300);
/// Longest message in bytes: above, a program's own limit on a line comes near.
pub const TEXT_MAX: usize = 1 << 20;
/// How long a steering text waits for the engine to take it.
const STEER_WAIT: Duration = Duration::from_secs(10);
/// Longest name of a session, in bytes.
const NAME_MAX: usize = 128;

/// How sessions behave in this process.
#[derive(Debug, Clone)]
pub struct Settings {
    /// After so long without work a session's program is ended.
    pub ttl: Duration,
    /// So long after its last activity a session is forgotten.
    pub keep: Duration,
    /// Shortest time between two writes of what changed.
    pub save_every: Duration,
    /// How long something other than a turn waits for a free slot.
    pub open_wait: Duration,
}

impl Settings {
    /// Settings with this time to live; the rest is as the product has it.
    pub fn with_ttl(ttl: Duration) -> Self {
        Self {
            ttl,
            keep: Duration::from_secs(7 * 24 * 60 * 60),
            save_every: Duration::from_secs(5),
            open_wait: Duration::from_secs(60),
        }
    }
}

/// A message to an agent.
#[derive(Clone, Default)]
pub struct SendRequest {
    /// The text.
    pub message: String,
    /// Effort of this turn alone.
    pub effort: Option<String>,
    /// The agent is to plan and to change nothing.
    pub plan: bool,
    /// Time it may take; the default is five minutes.
    pub timeout: Option<Duration>,
    /// Whether what is said on the way is given back.
    pub chunks: bool,
    /// Told what happens. Must not block.
    pub sink: Option<Sink>,
}

impl fmt::Debug for SendRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendRequest").field("message", &self.message).field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl From<&str> for SendRequest {
    fn from(message: &str) -> Self {
        Self { message: message.to_owned(), ..Self::default() }
    }
}

/// A turn that was accepted.
#[derive(Debug, Clone)]
pub struct Turn(Arc<TurnTrack>);

impl Turn {
    /// Names it.
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// Waits for its end. Giving up waiting leaves the turn alone.
    pub async fn end(&self) -> Result<TurnView, SessionError> {
        self.0.end().await
    }
}

/// The sessions of this process. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Sessions {
    hub: Arc<Hub>,
}

impl Sessions {
    /// Sessions over the engines of `pool`. Nothing is read or started yet.
    pub fn new(
        config: Arc<Config>,
        pool: Arc<Pool>,
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
        redactor: Arc<Redactor>,
        settings: Settings,
    ) -> Self {
        Self { hub: Arc::new(Hub::new(config, pool, fs, clock, redactor, settings)) }
    }

    /// Starts a session, or goes on with the conversation of its name. A live one is returned as it is.
    pub async fn start(&self, options: StartOptions, caller: Caller) -> Result<Started, SessionError> {
        let name = match &options.name {
            Some(name) => checked(name)?.to_owned(),
            None => format!("session-{}", ids::short()),
        };
        self.hub.clone().ensure(&name, How::Start { options: Box::new(options), caller }).await
    }

    /// Gives an agent a message and waits for its reply.
    pub async fn send(&self, name: &str, request: SendRequest) -> Result<TurnView, SessionError> {
        self.begin(name, request).await?.end().await
    }

    /// Gives an agent a message; its reply is found under the turn's id.
    pub async fn begin(&self, name: &str, request: SendRequest) -> Result<Turn, SessionError> {
        if request.message.trim().is_empty() {
            return Err(SessionError::new(Code::InvalidArgument, "message: must not be empty"));
        }
        if request.message.len() > TEXT_MAX {
            let text = format!("message: is {} bytes long, at most {TEXT_MAX} are taken", request.message.len());
            return Err(SessionError::new(Code::InvalidArgument, text));
        }
        let track = TurnTrack::new(format!("turn-{}", ids::short()));
        let job = TurnJob {
            id: track.id.clone(),
            message: request.message,
            effort: request.effort,
            plan: request.plan,
            timeout: request.timeout.unwrap_or(TIMEOUT_DEFAULT).min(TIMEOUT_MOST),
            chunks: request.chunks,
            sink: request.sink,
            state: Arc::clone(&track),
        };
        self.push(name, Command::Turn(Box::new(job)), Some(&track)).await?;
        Ok(Turn(track))
    }

    /// Something other than a turn. `engine` names the only engine that it makes sense for.
    pub async fn ask(&self, name: &str, ask: Ask, engine: Option<&str>) -> Result<Answer, SessionError> {
        if let Some(wanted) = engine {
            let there = self.engine_of(name).await?;
            if there != wanted {
                let text = format!("session '{name}' runs on {there}, and only {wanted} has this");
                return Err(SessionError::new(Code::WrongEngine, text));
            }
        }
        let (reply, answer) = oneshot::channel();
        self.push(name, Command::Ask { ask, sink: None, reply }, None).await?;
        answer.await.unwrap_or_else(|_| Err(SessionError::stopped(name)))
    }

    /// Engine of a live or known session.
    pub async fn engine_of(&self, name: &str) -> Result<String, SessionError> {
        if let Some(shared) = self.hub.live(checked(name)?) {
            return Ok(locked(&shared.live).record.engine.clone());
        }
        self.hub.record(name).await?.map(|r| r.engine).ok_or_else(|| SessionError::not_found(name))
    }

    /// Interrupts the turn under way, or another thing that was asked; whether there was one.
    pub async fn interrupt(&self, name: &str) -> Result<bool, SessionError> {
        let Some(shared) = self.known(name).await? else { return Ok(false) };
        let orders = locked(&shared.orders).clone();
        if let Some(orders) = orders {
            return Ok(orders.send(Order::Interrupt).await.is_ok());
        }
        let asking = locked(&shared.asking).clone();
        if let Some(asking) = &asking {
            asking.cancel();
        }
        Ok(asking.is_some())
    }

    /// Adds a text to the turn under way, where the engine can do that.
    pub async fn steer(&self, name: &str, text: &str) -> Result<(), SessionError> {
        let idle = || {
            SessionError::new(
                Code::InvalidArgument,
                format!("session '{name}' takes no turn now; send the text as a message"),
            )
        };
        let Some(shared) = self.known(name).await? else { return Err(idle()) };
        let orders = locked(&shared.orders).clone().ok_or_else(idle)?;
        let (done, taken) = oneshot::channel();
        if orders.send(Order::Steer { text: text.to_owned(), done }).await.is_err() {
            return Err(idle());
        }
        match tokio::time::timeout(STEER_WAIT, taken).await {
            Ok(Ok(taken)) => taken.map_err(SessionError::engine),
            // The turn ended before the engine looked at it.
            Ok(Err(_)) => Err(idle()),
            Err(_) => Err(SessionError::busy(name, "the engine does not take further input now")),
        }
    }

    /// Ends a session's processes; what waits for it fails. Its conversation can be gone on with by a start.
    pub async fn stop(&self, name: &str) -> Result<Stopped, SessionError> {
        let shared = self.known(name).await?;
        let Some(shared) = shared else {
            self.hub.mark_stopped(name).await?;
            return Ok(Stopped { name: name.to_owned(), unkillable: Vec::new() });
        };
        self.hub.end(&shared, shared::Ending::Stop).await;
        let unkillable = std::mem::take(&mut *locked(&shared.unkillable));
        Ok(Stopped { name: name.to_owned(), unkillable })
    }

    /// Every session that is live here or written down, by name.
    pub async fn list(&self) -> Result<Vec<SessionEntry>, SessionError> {
        Ok(self.overview().await?.sessions.into_iter().map(|s| s.entry).collect())
    }

    /// The same with what they do.
    pub async fn overview(&self) -> Result<Overview, SessionError> {
        let mut sessions: std::collections::BTreeMap<String, OverviewEntry> = self.hub.recorded().await?;
        sessions.extend(self.hub.all_live().iter().map(|s| (s.name.clone(), s.overview())));
        let pool = &self.hub.pool;
        Ok(Overview { sessions: sessions.into_values().collect(), in_use: pool.in_use(), max: pool.max() })
    }

    /// A session in detail. With `turn`, that turn of this process; waits up to `wait` for its end (or for the end of
    /// the latest one).
    pub async fn status(&self, name: &str, turn: Option<&str>, wait: Duration) -> Result<StatusView, SessionError> {
        let Some(shared) = self.known(name).await? else {
            if let Some(id) = turn {
                return Err(SessionError::new(
                    Code::TurnNotFound,
                    format!("this process knows no turn '{id}' of session '{name}'"),
                ));
            }
            return self.hub.recorded_status(name).await;
        };
        let track = shared.turn(turn);
        if let (Some(id), None) = (turn, &track) {
            return Err(SessionError::new(
                Code::TurnNotFound,
                format!("session '{name}' knows no turn '{id}', or no longer"),
            ));
        }
        if let Some(track) = &track
            && !wait.is_zero()
        {
            // What came of it is read below.
            let _ = tokio::time::timeout(wait, track.end()).await;
        }
        Ok(shared.status(self.hub.clock.as_ref(), track.map(|t| t.status())))
    }

    /// The newest `limit` events whose text fits a regular expression, oldest first.
    pub async fn grep(&self, name: &str, pattern: &str, limit: usize) -> Result<Vec<Entry>, SessionError> {
        let pattern = events::pattern(pattern)?;
        let limit = limit.clamp(1, FOUND_MAX);
        let events = match self.known(name).await? {
            Some(shared) => {
                actor::flush(&self.hub, &shared).await;
                shared.events.clone()
            }
            None => events::Events::new(Some(self.hub.records.dir(name))),
        };
        let fs = Arc::clone(&self.hub.fs);
        start::blocking("session events", move || Ok(events.grep(fs.as_ref(), &pattern, limit))).await
    }

    /// Shortens the conversation, with a hint what to keep.
    pub async fn compact(&self, name: &str, summary: Option<String>) -> Result<Compacted, SessionError> {
        match self.ask(name, Ask::Compact(summary), None).await {
            Ok(answer) => {
                let failed = answer.turn.as_ref().and_then(|t| t.error.clone());
                let compacted = failed.is_none() && answer.data.get("compacted") != Some(&false.into());
                let told = answer.data.get("reason").and_then(|r| r.as_str()).map(str::to_owned);
                let reason = failed.map(|e| e.message).or(told);
                Ok(Compacted { compacted, reason, turn: answer.turn.map(|t| turn::view("compact", t)) })
            }
            Err(e) if e.code() == Code::NotSupported => {
                Ok(Compacted { compacted: false, reason: Some(e.message), turn: None })
            }
            Err(e) => Err(e),
        }
    }

    /// Gives the session other tools: `allowed` and `disallowed` replace the lists (or, with `merge`, are added to
    /// them), `remove` are taken out of both.
    pub async fn update_tools(
        &self,
        name: &str,
        allowed: Option<Vec<String>>,
        disallowed: Option<Vec<String>>,
        remove: &[String],
        merge: bool,
    ) -> Result<Changed, SessionError> {
        let now = match self.known(name).await? {
            Some(shared) => locked(&shared.live).options.clone(),
            None => self.hub.record(name).await?.map(|r| r.options).unwrap_or_default(),
        };
        let join = |old: Option<Vec<String>>, new: Option<Vec<String>>| {
            let mut list = match new {
                Some(new) if merge => old.into_iter().flatten().chain(new).collect(),
                Some(new) => new,
                None => old.unwrap_or_default(),
            };
            let mut seen = std::collections::BTreeSet::new();
            list.retain(|tool| !remove.contains(tool) && seen.insert(tool.clone()));
            Some(list)
        };
        let tools = StartOptions {
            allowed_tools: join(now.allowed_tools, allowed),
            disallowed_tools: join(now.disallowed_tools, disallowed),
            ..StartOptions::default()
        };
        self.change(name, Change::Tools(Box::new(tools))).await
    }

    /// Uses another model from now on, in the same conversation.
    pub async fn switch_model(&self, name: &str, model: &str) -> Result<Changed, SessionError> {
        if model.trim().is_empty() || model.starts_with('-') {
            return Err(SessionError::new(Code::InvalidArgument, "model: must be the name of a model"));
        }
        self.change(name, Change::Model(model.to_owned())).await
    }

    async fn change(&self, name: &str, change: Change) -> Result<Changed, SessionError> {
        let (reply, changed) = oneshot::channel();
        self.push(name, Command::Change { change, reply }, None).await?;
        changed.await.unwrap_or_else(|_| Err(SessionError::stopped(name)))
    }

    /// Ends every session in order; each is written down and can be gone on with.
    pub async fn shutdown(&self) {
        self.hub.shutdown().await;
    }

    /// The live session of a name; `None` when it is only written down.
    async fn known(&self, name: &str) -> Result<Option<Arc<shared::Shared>>, SessionError> {
        if let Some(shared) = self.hub.live(checked(name)?) {
            return Ok(Some(shared));
        }
        match self.hub.record(name).await? {
            Some(_) => Ok(None),
            None => Err(SessionError::not_found(name)),
        }
    }

    /// Puts something into a session's queue, bringing the session back when it is only written down.
    async fn push(&self, name: &str, command: Command, track: Option<&Arc<TurnTrack>>) -> Result<(), SessionError> {
        checked(name)?;
        let mut command = command;
        loop {
            match self.hub.push(name, command, track) {
                Push::Done => return Ok(()),
                Push::Full => return Err(SessionError::busy(name, "too much waits for it already")),
                Push::Absent(back) => command = back,
            }
            self.hub.clone().ensure(name, How::Wake).await?;
        }
    }
}

/// A name that can be one.
fn checked(name: &str) -> Result<&str, SessionError> {
    let mut bytes = name.bytes();
    let good = name.len() <= NAME_MAX
        && bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    if good {
        return Ok(name);
    }
    let shown: String = name.chars().take(64).flat_map(char::escape_default).collect();
    let rule = "1 to 128 letters, digits, '.', '_' or '-', starting with a letter or digit";
    Err(SessionError::new(Code::InvalidArgument, format!("'{shown}' is not the name of a session: use {rule}")))
}
