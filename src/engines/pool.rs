//! Live sessions: who may start, who waits, and that a closed one leaves nothing behind.
//!
//! Knows neither runs nor protocols.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use super::{
    Answer, Ask, Engine, EngineError, ErrorClass, GoalEnd, GoalPass, GoalRequest, GoalView, Idle, Listener, Message,
    Opt, Orders, Refusal, Registry, Session, SessionSpec, Sink, Support, TurnOutcome, TurnRequest,
    breaker::{Breaker, BreakerState},
    capabilities::{examine, lower_effort},
    isolation::{self, Isolated, Isolation},
    slots::{Slot, Slots},
};
use crate::{
    model::{Code, spec::SandboxMode},
    sys::{Clock, Fs, FsError, tasks},
};

/// What an opening session waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitKind {
    /// All slots are in use.
    Slot,
}

/// Why no session was opened.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// No engine for the choice.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The choice is wrong for its engine.
    #[error("{0}")]
    Choice(String),
    /// Too many failed starts.
    #[error("engine `{engine}` failed to start several times and is left alone for {} s: {last}", wait.as_secs_f32().ceil())]
    CircuitOpen {
        /// The engine.
        engine: String,
        /// For how long.
        wait: Duration,
        /// The last failure.
        last: String,
    },
    /// All slots are in use, and the caller does not wait.
    #[error("all {max} sessions are in use")]
    Full {
        /// Most sessions at once.
        max: usize,
    },
    /// The start failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Slots could not be looked at.
    #[error(transparent)]
    Slots(#[from] FsError),
    /// Cancelled while waiting.
    #[error("cancelled while waiting for a free session")]
    Cancelled,
}

impl PoolError {
    /// Its stable code.
    pub fn code(&self) -> Code {
        match self {
            Self::Refused(refusal) => refusal.code(),
            Self::Choice(_) => Code::InvalidArgument,
            Self::CircuitOpen { .. } => Code::CircuitOpen,
            Self::Full { .. } => Code::SessionCapReached,
            Self::Engine(e) if blames_engine(e.class) => Code::EngineUnavailable,
            Self::Engine(e) if e.class == ErrorClass::Interrupted => Code::Cancelled,
            Self::Engine(_) => Code::InvalidArgument,
            Self::Slots(_) => Code::StoreUnavailable,
            Self::Cancelled => Code::Cancelled,
        }
    }

    /// The same as an engine's failure, for those who match on classes.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Refused(_) | Self::Choice(_) | Self::CircuitOpen { .. } => ErrorClass::StartFailed,
            Self::Engine(e) => e.class,
            Self::Slots(_) | Self::Full { .. } => ErrorClass::Other,
            Self::Cancelled => ErrorClass::Interrupted,
        }
    }
}

/// Whether a failed start says something about the engine, rather than about what it was asked.
fn blames_engine(class: ErrorClass) -> bool {
    match class {
        ErrorClass::StartFailed | ErrorClass::Timeout | ErrorClass::Crashed | ErrorClass::Protocol => true,
        ErrorClass::Auth
        | ErrorClass::Quota
        | ErrorClass::Overloaded
        | ErrorClass::ContextOverflow
        | ErrorClass::PermissionDenied
        | ErrorClass::Refused
        | ErrorClass::Interrupted
        | ErrorClass::NotSupported
        | ErrorClass::Other => false,
    }
}

/// The sessions of one process.
#[derive(Debug)]
pub struct Pool {
    registry: Arc<Registry>,
    clock: Arc<dyn Clock>,
    slots: Slots,
    breakers: Mutex<BTreeMap<&'static str, Breaker>>,
    /// Where sessions work that must not write.
    isolation: Option<Arc<dyn Isolation>>,
}

impl Pool {
    /// At most `max` sessions at once, counted over every process that uses `home`.
    pub fn new(registry: Arc<Registry>, home: &Path, fs: Arc<dyn Fs>, max: usize) -> Self {
        let clock = Arc::clone(&registry.context().clock);
        let slots = Slots::new(fs, home.join("slots"), max);
        Self { registry, clock, slots, breakers: Mutex::default(), isolation: None }
    }

    /// The same, with a place for sessions that must not write. Without one they are refused, unless their engine
    /// can be held by its own means.
    #[must_use]
    pub fn with_isolation(self, isolation: Arc<dyn Isolation>) -> Self {
        Self { isolation: Some(isolation), ..self }
    }

    /// The engines.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Most sessions at once.
    pub fn max(&self) -> usize {
        self.slots.max()
    }

    /// Slots that this process holds.
    pub fn in_use(&self) -> usize {
        self.slots.in_use()
    }

    /// Slots in use over all processes of the home.
    pub async fn in_use_by_home(&self) -> Result<usize, FsError> {
        self.slots.in_home().await
    }

    /// Engines whose last start failed.
    pub fn breakers(&self) -> Vec<BreakerState> {
        let now = self.clock.boot();
        self.locked().iter().map(|(engine, b)| b.state(engine, now)).filter(|s| s.failures > 0).collect()
    }

    /// Opens a session, waiting for a slot when there is none. `on_wait` is told once when it has to wait.
    pub async fn open(
        &self,
        spec: SessionSpec,
        cancel: CancellationToken,
        on_wait: impl Fn(WaitKind),
    ) -> Result<PooledSession, PoolError> {
        let slot = async { Ok(self.slots.take(|| on_wait(WaitKind::Slot)).await?) };
        self.open_with(spec, cancel, slot).await
    }

    /// Opens a session only when there is a slot at once; otherwise [`PoolError::Full`].
    pub async fn open_now(&self, spec: SessionSpec, cancel: CancellationToken) -> Result<PooledSession, PoolError> {
        let slot = async { self.slots.take_now().await?.ok_or(PoolError::Full { max: self.max() }) };
        self.open_with(spec, cancel, slot).await
    }

    async fn open_with(
        &self,
        mut spec: SessionSpec,
        cancel: CancellationToken,
        slot: impl Future<Output = Result<Slot, PoolError>>,
    ) -> Result<PooledSession, PoolError> {
        let engine = self.registry.resolve(&spec.choice)?;
        let name = engine.name();
        spec.choice.engine = Some(name.to_owned());
        let lowered = lower_effort(engine.as_ref(), &mut spec);
        let examined = examine(engine.as_ref(), &spec);
        if !examined.problems.is_empty() {
            return Err(PoolError::Choice(examined.problems.join("; ")));
        }
        self.admit(name)?;
        let slot = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(PoolError::Cancelled),
            slot = slot => slot?,
        };
        // It may have been a long wait, in which others failed.
        self.admit(name)?;
        let cap = spec.max_budget_usd.filter(|usd| *usd > 0.0);
        let title = spec.name.clone();
        let preface = preface(engine.as_ref(), &mut spec);
        let isolated = self.isolate(engine.as_ref(), &mut spec).await?;
        match engine.open(spec, cancel).await {
            Ok(session) => {
                self.locked().entry(name).or_default().succeeded();
                let mut warnings: Vec<String> = lowered.into_iter().chain(examined.warnings).collect();
                if isolated.as_ref().is_some_and(|place| !place.confined()) {
                    warnings.push(
                        "this system cannot keep programs from writing; what a read-only agent changes is only found \
                         afterwards"
                            .to_owned(),
                    );
                }
                let live = Some(Live { session, slot, isolated });
                Ok(PooledSession { title, engine: name, live, cap, spent: 0.0, preface, warnings })
            }
            Err(e) => {
                if let Some(place) = isolated {
                    place.leave().await;
                }
                if blames_engine(e.class) {
                    self.locked().entry(name).or_default().failed(self.clock.boot(), e.message.clone());
                }
                Err(e.into())
            }
        }
    }

    /// Moves a session that must not write to a place of its own.
    async fn isolate(
        &self,
        engine: &dyn Engine,
        spec: &mut SessionSpec,
    ) -> Result<Option<Box<dyn Isolated>>, PoolError> {
        if spec.options.sandbox != Some(SandboxMode::ReadOnly) {
            return Ok(None);
        }
        let Some(isolation) = &self.isolation else {
            return match engine.capabilities().read_only {
                true => Ok(None),
                false => Err(PoolError::Choice(format!("{} cannot be kept from writing here", engine.name()))),
            };
        };
        let place = isolation.enter(&spec.name, &spec.cwd).await?;
        spec.cwd = place.dir();
        spec.run_env.push(("TMPDIR".to_owned(), place.temp().to_string_lossy().into_owned()));
        spec.options.writable = place.confined().then(|| vec![place.dir(), place.temp()]);
        Ok(Some(place))
    }

    fn admit(&self, engine: &'static str) -> Result<(), PoolError> {
        let checked = self.locked().entry(engine).or_default().check(self.clock.boot());
        checked.map_err(|(wait, last)| PoolError::CircuitOpen { engine: engine.to_owned(), wait, last })
    }

    fn locked(&self) -> MutexGuard<'_, BTreeMap<&'static str, Breaker>> {
        self.breakers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes the texts out of `spec` that the engine has no switch for: they go in front of the first message.
fn preface(engine: &dyn Engine, spec: &mut SessionSpec) -> Option<String> {
    let mut texts = Vec::new();
    if engine.support(Opt::SystemPrompt) == Support::InMessage {
        texts.extend(spec.options.system_prompt.take());
    }
    if engine.support(Opt::AppendSystemPrompt) == Support::InMessage {
        texts.extend(spec.append_system_prompt.take());
    }
    // A conversation that goes on was told already.
    (!texts.is_empty() && spec.resume.is_none()).then(|| texts.join("\n\n"))
}

/// What a session holds while it lives.
#[derive(Debug)]
struct Live {
    session: Box<dyn Session>,
    slot: Slot,
    /// Where it works when it must not write.
    isolated: Option<Box<dyn Isolated>>,
}

impl Live {
    async fn end(self) -> Vec<String> {
        let left = self.session.stop().await;
        if let Some(place) = self.isolated {
            place.leave().await;
        }
        drop(self.slot);
        left
    }
}

/// A session that holds a slot. Dropping it ends its processes and frees the slot in the background.
#[derive(Debug)]
pub struct PooledSession {
    title: String,
    engine: &'static str,
    live: Option<Live>,
    cap: Option<f64>,
    spent: f64,
    /// Put in front of the first message.
    preface: Option<String>,
    warnings: Vec<String>,
}

impl PooledSession {
    /// Name of its engine.
    pub fn engine(&self) -> &'static str {
        self.engine
    }

    /// The engine's id of the conversation, once confirmed.
    pub fn native_id(&self) -> Option<String> {
        self.live.as_ref().and_then(|live| live.session.native_id())
    }

    /// Whether another turn can be taken.
    pub fn alive(&self) -> bool {
        self.live.as_ref().is_some_and(|live| live.session.alive())
    }

    /// US dollars of all turns so far.
    pub fn spent_usd(&self) -> f64 {
        self.spent
    }

    /// What its caller should know about options that are not followed.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// One turn without orders.
    pub async fn turn(&mut self, message: &str, sink: Sink, cancel: CancellationToken) -> TurnOutcome {
        let mut orders = Orders::none();
        self.take(TurnRequest { message: message.into(), sink: Listener(sink), cancel, orders: &mut orders }).await
    }

    /// One turn. Refused without a turn once the session's cap is used up.
    pub async fn take(&mut self, request: TurnRequest<'_>) -> TurnOutcome {
        if let Err(error) = self.admit() {
            return TurnOutcome::failed(error);
        }
        let Some(Live { session, .. }) = &mut self.live else { return TurnOutcome::failed(closed()) };
        let preface = self.preface.as_ref().filter(|_| !request.message.command);
        let prefaced = preface.is_some();
        let text = preface.map(|preface| format!("{preface}\n\n{}", request.message.text));
        let message = Message { text: text.as_deref().unwrap_or(request.message.text), ..request.message };
        let mut outcome = session.turn(TurnRequest { message, ..request }).await;
        // A turn that began no conversation told nobody.
        if prefaced && (outcome.ok || session.native_id().is_some()) {
            self.preface = None;
        }
        self.settle(&mut outcome).await;
        outcome
    }

    /// Something other than a turn.
    pub async fn ask(&mut self, ask: Ask, sink: Sink, cancel: CancellationToken) -> Result<Answer, EngineError> {
        self.admit()?;
        let Some(Live { session, .. }) = &mut self.live else { return Err(closed()) };
        let mut answer = session.ask(ask, sink, cancel).await?;
        if let Some(turn) = &mut answer.turn {
            self.settle(turn).await;
        }
        Ok(answer)
    }

    /// Follows a goal.
    pub async fn goal(&mut self, request: GoalRequest<'_>) -> GoalPass {
        let refused =
            |error| GoalPass { end: GoalEnd::Failed(error), view: GoalView::default(), turns: TurnOutcome::default() };
        if let Err(error) = self.admit() {
            return refused(error);
        }
        let Some(Live { session, .. }) = &mut self.live else { return refused(closed()) };
        let mut pass = session.goal(request).await;
        self.settle(&mut pass.turns).await;
        pass
    }

    /// Looks after the session while nobody asks anything of it. Dropping it loses nothing.
    pub async fn idle(&mut self, sink: Sink) -> Idle {
        let Some(Live { session, .. }) = &mut self.live else { return std::future::pending().await };
        let mut idle = session.idle(sink).await;
        if let Idle::Turn(outcome) = &mut idle {
            self.settle(outcome).await;
        }
        idle
    }

    /// Whether the cap allows another turn.
    fn admit(&self) -> Result<(), EngineError> {
        let Some(cap) = self.cap.filter(|cap| self.spent >= *cap) else { return Ok(()) };
        let (title, engine, spent) = (&self.title, self.engine, self.spent);
        let text = format!("budget_exceeded: session {title} ({engine}) has spent {spent:.4} of {cap:.4} US dollars");
        Err(EngineError::new(ErrorClass::Other, text))
    }

    /// The single place that every turn of every engine passes at its end.
    async fn settle(&mut self, outcome: &mut TurnOutcome) {
        if let Some(Live { isolated: Some(place), .. }) = &mut self.live {
            isolation::judge(place.as_mut(), outcome).await;
        }
        self.spent += outcome.spend.cost_usd;
    }

    /// Ends the whole process tree, then frees the slot. Returns what could not be ended.
    pub async fn close(mut self) -> Vec<String> {
        match self.live.take() {
            Some(live) => live.end().await,
            None => Vec::new(),
        }
    }

    /// Lets go of the session without a word to it. That closes the lifeline of its processes, which are killed.
    pub fn abandon(mut self) {
        drop(self.live.take());
    }
}

fn closed() -> EngineError {
    EngineError::new(ErrorClass::Crashed, "the session is closed")
}

impl Drop for PooledSession {
    fn drop(&mut self) {
        // Without a runtime the session is simply dropped, which closes the lifeline of its processes.
        if let Some(live) = self.live.take()
            && tokio::runtime::Handle::try_current().is_ok()
        {
            tasks::spawn("close session", live.end());
        }
    }
}
