//! A conversation with one long process that speaks stream-json, inside a process tree of its own.
//!
//! Owns the clocks, the pipes and the end of the tree. What the lines mean is `stream_json`'s business.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::pipe,
    sync::mpsc,
    task::JoinHandle,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    Boxed, EngineError, ErrorClass, Session, Sink, TurnEvent, TurnOutcome, cleaning,
    lines::{Line, LineReader, MAX_LINE},
    stream_json::{self, Step, StreamJson},
};
use crate::sys::{
    Clock,
    redact::Redactor,
    supervise::{self, Child, ChildSpec, Ended, Exit, Supervisor},
    tasks,
    text::{self, Tail},
};

/// Lines waiting to be written; a program that reads none of this many is not taking part.
const MAX_QUEUED: usize = 256;
/// Bytes of standard error kept; enough for a stack trace.
const STDERR_KEPT: usize = 64 << 10;
/// Bytes of it put into an error message.
const STDERR_TOLD: usize = 1500;
/// How long a program that closed its output may take to be gone.
const EXIT_WAIT: Duration = Duration::from_secs(2);
/// How long its last words may take to arrive; a descendant may hold the pipe open.
const LAST_WORDS_WAIT: Duration = Duration::from_millis(500);
/// How long a program whose input was closed may take to leave by itself.
const LEAVE_WAIT: Duration = Duration::from_millis(500);
/// Sent instead of the message when an interrupted piece of work is to go on.
const GO_ON: &str =
    "The last request failed on a temporary error of the provider. Go on with the task from where it stopped.";

/// The clocks of a session.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// To the first sign of life.
    pub start: Duration,
    /// Without any event while no tool call is open.
    pub idle: Duration,
    /// For an interrupted turn to end by itself.
    pub interrupt: Duration,
    /// Between asking the tree to end and making it.
    pub grace: Duration,
    /// First wait before a turn is tried again because the provider is busy; doubles.
    pub busy_backoff: Duration,
    /// How often that is done.
    pub busy_retries: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            start: Duration::from_secs(60),
            idle: Duration::from_secs(600),
            interrupt: Duration::from_millis(500),
            grace: Duration::from_millis(2500),
            busy_backoff: Duration::from_secs(2),
            busy_retries: 3,
        }
    }
}

/// What is started.
#[derive(Debug)]
pub(crate) struct Launch {
    /// Engine, for messages.
    pub(crate) engine: &'static str,
    /// The program; its standard input is a pipe.
    pub(crate) child: ChildSpec,
    /// The supervisor over it.
    pub(crate) supervise: supervise::Options,
    /// Applied to everything that leaves the session.
    pub(crate) redactor: Redactor,
    /// Clocks.
    pub(crate) limits: Limits,
    /// Wall time, for the reset time of limits.
    pub(crate) clock: Arc<dyn Clock>,
}

/// A running conversation.
#[derive(Debug)]
pub(crate) struct ProcessSession {
    engine: &'static str,
    limits: Limits,
    clock: Arc<dyn Clock>,
    redactor: Redactor,
    machine: StreamJson,
    /// Absent once the tree was ended.
    supervisor: Option<Supervisor>,
    child: Child,
    lines: LineReader<pipe::Receiver>,
    input: Option<mpsc::Sender<String>>,
    stderr: Arc<Mutex<Tail>>,
    /// Ends with standard error.
    drained: Option<JoinHandle<()>>,
    requests: u32,
    /// A turn was begun and its end not seen.
    unfinished: bool,
    left: Vec<String>,
}

/// Why a turn was cut.
enum Cut {
    Cancelled,
    Idle,
    Eof,
    Stuck,
}

impl ProcessSession {
    /// Starts the program and waits until it answers.
    pub(crate) async fn start(launch: Launch, cancel: &CancellationToken) -> Result<Self, EngineError> {
        let engine = launch.engine;
        let failed = |e: supervise::Error| EngineError::new(ErrorClass::StartFailed, format!("{engine}: {e}"));
        let supervisor = Supervisor::start(&launch.supervise).await.map_err(failed)?;
        let mut child = supervisor.spawn(launch.child).await.map_err(failed)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(EngineError::new(ErrorClass::StartFailed, format!("{engine}: the program has no pipes")));
        };
        let stderr = Arc::new(Mutex::new(Tail::new(STDERR_KEPT)));
        let drained = child.stderr.take().map(|pipe| tasks::spawn("engine stderr", drain(pipe, Arc::clone(&stderr))));
        let (input, queue) = mpsc::channel(MAX_QUEUED);
        tasks::spawn("engine stdin", write_lines(stdin, queue));
        let mut session = Self {
            engine,
            limits: launch.limits,
            clock: launch.clock,
            redactor: launch.redactor,
            machine: StreamJson::new(),
            supervisor: Some(supervisor),
            child,
            lines: LineReader::new(stdout, MAX_LINE),
            input: Some(input),
            stderr,
            drained,
            requests: 0,
            unfinished: false,
            left: Vec::new(),
        };
        match session.hello(cancel).await {
            Ok(()) => Ok(session),
            Err(e) => {
                session.end(session.limits.grace).await;
                Err(cleaning::error(&session.redactor, e))
            }
        }
    }

    /// The first sign of life: an answer that needs no model.
    async fn hello(&mut self, cancel: &CancellationToken) -> Result<(), EngineError> {
        let id = self.control("initialize");
        let deadline = Instant::now() + self.limits.start;
        loop {
            let line = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(self.error(ErrorClass::Interrupted, "cancelled while starting")),
                line = self.lines.next() => line,
                () = tokio::time::sleep_until(deadline) => {
                    let text = format!("no sign of life within {} s", self.limits.start.as_secs_f32());
                    return Err(self.error(ErrorClass::Timeout, &self.with_tail(&text)));
                }
            };
            let Some(line) = line.ok().flatten() else {
                let exit = self.exit().await;
                return Err(
                    self.error(ErrorClass::StartFailed, &self.with_tail(&format!("ended while starting ({exit})")))
                );
            };
            for step in self.steps(line) {
                match step {
                    // Whatever the answer is: it is one.
                    Step::Answered { id: answered, .. } if answered == id => return Ok(()),
                    Step::Ended(outcome) => {
                        let told = outcome.error.map_or_else(|| "ended before it began".to_owned(), |e| e.message);
                        // It runs, but not with what it was given: an unknown conversation, for example.
                        return Err(self.error(ErrorClass::Other, &told));
                    }
                    Step::Reply(line) => self.send(line),
                    Step::Answered { .. } | Step::Event(_) => {}
                }
            }
        }
    }

    /// A turn, tried again while the provider is busy.
    async fn run_turn(&mut self, message: &str, sink: &Sink, cancel: &CancellationToken) -> TurnOutcome {
        let begun = Instant::now();
        if std::mem::replace(&mut self.unfinished, true) {
            // The turn before was given up halfway; what it still says must not become the answer to this one.
            self.end(self.limits.grace).await;
        }
        let mut outcome = self.attempt(message, sink, cancel).await;
        let mut wait = self.limits.busy_backoff;
        for again in 1..=self.limits.busy_retries {
            if outcome.error.as_ref().map(|e| e.class) != Some(ErrorClass::Overloaded) || self.supervisor.is_none() {
                break;
            }
            sink(TurnEvent::Retry(format!("the provider is busy; trying again in {} s ({again})", wait.as_secs_f32())));
            tokio::select! {
                () = cancel.cancelled() => {
                    self.end(self.limits.grace).await;
                    outcome.error = Some(self.error(ErrorClass::Interrupted, "cancelled"));
                    break;
                }
                () = tokio::time::sleep(wait) => {}
            }
            wait = wait.saturating_mul(2);
            // Work that was under way is not begun a second time.
            let message = if outcome.tool_calls > 0 { GO_ON } else { message };
            let next = self.attempt(message, sink, cancel).await;
            outcome = joined(outcome, next);
        }
        self.unfinished = false;
        outcome.duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        outcome
    }

    async fn attempt(&mut self, message: &str, sink: &Sink, cancel: &CancellationToken) -> TurnOutcome {
        self.machine.begin_turn();
        if self.supervisor.is_none() {
            let error = self.error(ErrorClass::Crashed, "the session has ended; open a new one");
            return self.machine.cut_off(error);
        }
        if message.trim().is_empty() {
            let error = self.error(ErrorClass::Other, "the message is empty");
            return self.machine.cut_off(error);
        }
        self.send(stream_json::user_line(message));
        let cut = match self.follow(sink, cancel).await {
            Ok(outcome) => return cleaning::outcome(&self.redactor, *outcome),
            Err(cut) => cut,
        };
        let outcome = match cut {
            Cut::Cancelled => self.abort(ErrorClass::Interrupted, "cancelled").await,
            Cut::Idle => {
                let text = format!("stalled: idle, nothing happened for {} s", self.limits.idle.as_secs_f32());
                let text = self.with_tail(&text);
                self.abort(ErrorClass::Timeout, &text).await
            }
            Cut::Stuck => self.abort(ErrorClass::Protocol, "the program does not read what it is sent").await,
            Cut::Eof => self.died().await,
        };
        cleaning::outcome(&self.redactor, outcome)
    }

    /// Reads until the turn ends or has to be cut.
    async fn follow(&mut self, sink: &Sink, cancel: &CancellationToken) -> Result<Box<TurnOutcome>, Cut> {
        let mut idle_at = Instant::now() + self.limits.idle;
        loop {
            if self.input.is_none() {
                return Err(Cut::Stuck);
            }
            let watching = !self.machine.tool_open();
            let line = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(Cut::Cancelled),
                line = self.lines.next() => line,
                () = tokio::time::sleep_until(idle_at), if watching => return Err(Cut::Idle),
            };
            let Some(line) = line.ok().flatten() else { return Err(Cut::Eof) };
            idle_at = Instant::now() + self.limits.idle;
            for step in self.steps(line) {
                match step {
                    Step::Event(event) => sink(cleaning::event(&self.redactor, event)),
                    Step::Reply(line) => self.send(line),
                    Step::Answered { .. } => {}
                    Step::Ended(outcome) => return Ok(outcome),
                }
            }
        }
    }

    /// Interrupts, takes what the program still says about the turn, and ends the tree.
    async fn abort(&mut self, class: ErrorClass, text: &str) -> TurnOutcome {
        self.machine.interrupting();
        self.control("interrupt");
        let quiet: Sink = Arc::new(|_| {});
        let never = CancellationToken::new();
        let told = tokio::time::timeout(self.limits.interrupt, self.follow(&quiet, &never)).await;
        self.end(self.limits.grace).await;
        let error = self.error(class, text);
        match told {
            Ok(Ok(mut outcome)) => {
                outcome.ok = false;
                outcome.error = Some(error);
                *outcome
            }
            Ok(Err(_)) | Err(_) => self.machine.cut_off(error),
        }
    }

    /// The output ended in the middle of a turn.
    async fn died(&mut self) -> TurnOutcome {
        let exit = self.exit().await;
        self.end(self.limits.grace).await;
        let (class, text) = match exit {
            Gone::Clean => (ErrorClass::Protocol, "ended without finishing its turn".to_owned()),
            Gone::Running => (ErrorClass::Protocol, "closed its output without finishing its turn".to_owned()),
            Gone::Failed(_) | Gone::Unknown => {
                (ErrorClass::Crashed, format!("ended in the middle of its turn ({exit})"))
            }
        };
        let error = self.error(class, &self.with_tail(&text));
        self.machine.cut_off(error)
    }

    async fn exit(&mut self) -> Gone {
        let ended = tokio::time::timeout(EXIT_WAIT, self.child.wait()).await;
        if let Some(drained) = &mut self.drained
            && tokio::time::timeout(LAST_WORDS_WAIT, drained).await.is_ok()
        {
            self.drained = None;
        }
        match ended {
            Ok(Ok(Exit { code: Some(0), .. })) => Gone::Clean,
            Ok(Ok(Exit { code: Some(code), .. })) => Gone::Failed(format!("exit status {code}")),
            Ok(Ok(Exit { signal: Some(signal), .. })) => Gone::Failed(format!("signal {signal}")),
            Ok(Ok(Exit { .. }) | Err(_)) => Gone::Unknown,
            Err(_) => Gone::Running,
        }
    }

    /// Ends the whole tree. Nothing of the session runs afterwards.
    async fn end(&mut self, grace: Duration) {
        self.input = None;
        if let Some(supervisor) = self.supervisor.take()
            && let Ended::Left(left) = supervisor.end(grace).await
        {
            self.left.extend(left);
        }
    }

    fn steps(&mut self, line: Line) -> Vec<Step> {
        match line {
            Line::Text(bytes) => self.machine.line(&bytes, self.clock.wall()),
            Line::Skipped { bytes, head } => self.machine.skipped(bytes, &head),
        }
    }

    fn control(&mut self, subtype: &str) -> String {
        self.requests = self.requests.saturating_add(1);
        let id = format!("clawo-{}", self.requests);
        self.send(stream_json::control_line(&id, subtype));
        id
    }

    /// Queues a line. A full queue means that nobody reads: the input is given up, which `follow` notices.
    fn send(&mut self, line: String) {
        let full =
            self.input.as_ref().is_some_and(|i| matches!(i.try_send(line), Err(mpsc::error::TrySendError::Full(_))));
        if full {
            self.input = None;
        }
    }

    fn error(&self, class: ErrorClass, text: &str) -> EngineError {
        EngineError::new(class, format!("{}: {text}", self.engine))
    }

    /// `text` with the end of standard error, cleaned before it is cut.
    fn with_tail(&self, text: &str) -> String {
        let (said, total) = {
            let tail = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
            (tail.to_text(), tail.total())
        };
        // A secret cut in half at the beginning could not be recognised, so a cut line is left out.
        let whole = if total > STDERR_KEPT as u64 { said.split_once('\n').map_or("", |(_, rest)| rest) } else { &said };
        let told = text::tail_for_people(self.redactor.text(whole).as_bytes(), STDERR_TOLD);
        if told.trim().is_empty() { text.to_owned() } else { format!("{text}; it said: {}", told.trim()) }
    }
}

impl Session for ProcessSession {
    fn turn<'a>(&'a mut self, message: &'a str, sink: Sink, cancel: CancellationToken) -> Boxed<'a, TurnOutcome> {
        Box::pin(async move { self.run_turn(message, &sink, &cancel).await })
    }

    fn native_id(&self) -> Option<String> {
        self.machine.session_id().map(str::to_owned)
    }

    fn stop(mut self: Box<Self>) -> Boxed<'static, Vec<String>> {
        Box::pin(async move {
            self.input = None;
            if self.supervisor.is_some() {
                // Left alone it writes down the conversation and goes; what does not go is ended.
                let _ = tokio::time::timeout(LEAVE_WAIT, self.child.wait()).await;
            }
            self.end(self.limits.grace).await;
            self.left
        })
    }
}

/// How the program stands after its output ended.
enum Gone {
    Clean,
    Failed(String),
    Unknown,
    Running,
}

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Clean => f.write_str("exit status 0"),
            Self::Failed(how) => f.write_str(how),
            Self::Unknown => f.write_str("in an unknown way"),
            Self::Running => f.write_str("still running"),
        }
    }
}

/// Two tries as one turn.
fn joined(first: TurnOutcome, then: TurnOutcome) -> TurnOutcome {
    let mut denials = first.permission_denials;
    denials.extend(then.permission_denials);
    let mut spend = then.spend;
    spend.cost_usd += first.spend.cost_usd;
    spend.turns = spend.turns.saturating_add(first.spend.turns);
    spend.tokens_in = spend.tokens_in.saturating_add(first.spend.tokens_in);
    spend.tokens_out = spend.tokens_out.saturating_add(first.spend.tokens_out);
    spend.estimated |= first.spend.estimated;
    TurnOutcome {
        spend,
        permission_denials: denials,
        tool_calls: first.tool_calls.saturating_add(then.tool_calls),
        tool_errors: first.tool_errors.saturating_add(then.tool_errors),
        cost_source: then.cost_source.or(first.cost_source),
        ..then
    }
}

/// Keeps reading, so that the program never blocks on us.
async fn drain(mut pipe: pipe::Receiver, ring: Arc<Mutex<Tail>>) {
    let mut chunk = vec![0; 64 << 10];
    while let Ok(n @ 1..) = pipe.read(&mut chunk).await {
        ring.lock().unwrap_or_else(PoisonError::into_inner).push(chunk.get(..n).unwrap_or_default());
    }
}

/// Writes lines until there are no more, then closes the program's input.
async fn write_lines(mut pipe: pipe::Sender, mut queue: mpsc::Receiver<String>) -> io::Result<()> {
    while let Some(line) = queue.recv().await {
        pipe.write_all(line.as_bytes()).await?;
        pipe.write_all(b"\n").await?;
        pipe.flush().await?;
    }
    Ok(())
}
