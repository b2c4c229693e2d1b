//! One program of an engine, inside a process tree of its own: pipes, clocks, the end of the tree.
//!
//! Knows nothing of what is said.

use std::{
    fmt, io,
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

use super::{
    EngineError, ErrorClass,
    lines::{Line, LineReader, MAX_LINE},
};
use crate::sys::{
    Clock,
    redact::Redactor,
    supervise::{self, Child, ChildSpec, Ended, Exit, Supervisor},
    tasks,
    text::{self, Tail},
};

/// Texts waiting to be written; a program that reads none of this many is not taking part.
const MAX_QUEUED: usize = 256;
/// Bytes of standard error kept; enough for a stack trace.
const STDERR_KEPT: usize = 64 << 10;
/// Bytes of it put into an error message.
const STDERR_TOLD: usize = 1500;
/// How long a program that closed its output may take to be gone.
const EXIT_WAIT: Duration = Duration::from_secs(2);
/// How long its last words may take to arrive; a descendant may hold the pipe open.
const LAST_WORDS_WAIT: Duration = Duration::from_millis(500);
/// How long what a program that left had written may take to be read; what comes then is a descendant's.
const GONE_LIMIT: Duration = Duration::from_secs(5);
/// How long a program whose input was closed may take to leave by itself.
const LEAVE_WAIT: Duration = Duration::from_millis(500);

/// The clocks of a session.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// To the first sign of life.
    pub start: Duration,
    /// Without any event while no tool call is open.
    pub idle: Duration,
    /// For an interrupted turn to end by itself before its tree is ended.
    pub interrupt: Duration,
    /// The same where the session is to live on.
    pub soft_interrupt: Duration,
    /// For something other than a turn to be answered.
    pub ask: Duration,
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
            soft_interrupt: Duration::from_secs(10),
            ask: Duration::from_secs(60),
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
    /// The program.
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

/// A running program.
#[derive(Debug)]
pub(crate) struct Process {
    engine: &'static str,
    /// Clocks.
    pub(crate) limits: Limits,
    /// Wall time.
    pub(crate) clock: Arc<dyn Clock>,
    /// Applied to everything that leaves the session.
    pub(crate) redactor: Redactor,
    /// Absent once the tree was ended.
    supervisor: Option<Supervisor>,
    child: Child,
    lines: LineReader<pipe::Receiver>,
    input: Option<mpsc::Sender<String>>,
    stderr: Arc<Mutex<Tail>>,
    /// Ends with standard error.
    drained: Option<JoinHandle<()>>,
    left: Vec<String>,
    /// When the program itself was seen to have ended.
    gone: Option<Instant>,
}

impl Process {
    /// Starts the program.
    pub(crate) async fn start(launch: Launch) -> Result<Self, EngineError> {
        let engine = launch.engine;
        let failed = |e: supervise::Error| EngineError::new(ErrorClass::StartFailed, format!("{engine}: {e}"));
        let supervisor = Supervisor::start(&launch.supervise).await.map_err(failed)?;
        let mut child = supervisor.spawn(launch.child).await.map_err(failed)?;
        let Some(stdout) = child.stdout.take() else {
            return Err(EngineError::new(ErrorClass::StartFailed, format!("{engine}: the program has no pipes")));
        };
        let stderr = Arc::new(Mutex::new(Tail::new(STDERR_KEPT)));
        let drained = child.stderr.take().map(|pipe| tasks::spawn("engine stderr", drain(pipe, Arc::clone(&stderr))));
        let input = child.stdin.take().map(|pipe| {
            let (input, queue) = mpsc::channel(MAX_QUEUED);
            tasks::spawn("engine stdin", write_all(pipe, queue));
            input
        });
        Ok(Self {
            engine,
            limits: launch.limits,
            clock: launch.clock,
            redactor: launch.redactor,
            supervisor: Some(supervisor),
            child,
            lines: LineReader::new(stdout, MAX_LINE),
            input,
            stderr,
            drained,
            left: Vec::new(),
            gone: None,
        })
    }

    /// The next line of its output; `None` at the end. Dropping it loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Line> {
        self.lines.next().await.ok().flatten()
    }

    /// The same of a program that is expected to leave at the end of its turn: `None` also a moment after it left,
    /// because a descendant may hold the pipe open, or go on writing to it.
    pub(crate) async fn next_or_gone(&mut self) -> Option<Line> {
        if self.gone.is_some_and(|at| at.elapsed() > GONE_LIMIT) {
            return None;
        }
        tokio::select! {
            biased;
            line = self.lines.next() => line.ok().flatten(),
            () = gone_for_a_moment(&mut self.child, &mut self.gone) => None,
        }
    }

    /// Queues a line. A full queue means that nobody reads: the input is given up, which [`stuck`](Self::stuck) tells.
    pub(crate) fn send(&mut self, mut line: String) {
        line.push('\n');
        self.give(line);
    }

    /// Queues a text as it is.
    pub(crate) fn give(&mut self, text: String) {
        let full =
            self.input.as_ref().is_some_and(|i| matches!(i.try_send(text), Err(mpsc::error::TrySendError::Full(_))));
        if full {
            self.input = None;
        }
    }

    /// Whether it can be told nothing more: it read too little, or its input was closed.
    pub(crate) fn stuck(&self) -> bool {
        self.input.is_none()
    }

    /// Closes its input after what was queued.
    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    /// Whether its tree was not ended yet.
    pub(crate) fn alive(&self) -> bool {
        self.supervisor.is_some()
    }

    /// How it stands after its output ended.
    pub(crate) async fn exit(&mut self) -> Gone {
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

    /// Ends the whole tree. Nothing of it runs afterwards.
    pub(crate) async fn end(&mut self) {
        self.input = None;
        if let Some(supervisor) = self.supervisor.take()
            && let Ended::Left(left) = supervisor.end(self.limits.grace).await
        {
            self.left.extend(left);
        }
    }

    /// Lets it leave by itself for a moment, then ends the tree. Returns what could not be ended.
    pub(crate) async fn leave(mut self) -> Vec<String> {
        self.input = None;
        if self.supervisor.is_some() {
            // Left alone it writes down the conversation and goes; what does not go is ended.
            let _ = tokio::time::timeout(LEAVE_WAIT, self.child.wait()).await;
        }
        self.end().await;
        self.left
    }

    /// What could not be ended so far.
    pub(crate) fn take_left(&mut self) -> Vec<String> {
        std::mem::take(&mut self.left)
    }

    /// An error that names the engine.
    pub(crate) fn error(&self, class: ErrorClass, text: &str) -> EngineError {
        EngineError::new(class, format!("{}: {text}", self.engine))
    }

    /// The end of standard error, cleaned before it is cut; empty when it said nothing.
    pub(crate) fn last_words(&self) -> String {
        let (said, total) = {
            let tail = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
            (tail.to_text(), tail.total())
        };
        // A secret cut in half at the beginning could not be recognised, so a cut line is left out.
        let whole = if total > STDERR_KEPT as u64 { said.split_once('\n').map_or("", |(_, rest)| rest) } else { &said };
        let told = text::tail_for_people(self.redactor.text(whole).as_bytes(), STDERR_TOLD);
        told.trim().to_owned()
    }

    /// `text` with the end of standard error.
    pub(crate) fn with_tail(&self, text: &str) -> String {
        let told = self.last_words();
        if told.is_empty() { text.to_owned() } else { format!("{text}; it said: {told}") }
    }
}

/// How the program stands after its output ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Gone {
    /// Exit status 0.
    Clean,
    /// Another status, or a signal.
    Failed(String),
    /// Nobody knows.
    Unknown,
    /// It lives, with its output closed.
    Running,
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean => f.write_str("exit status 0"),
            Self::Failed(how) => f.write_str(how),
            Self::Unknown => f.write_str("in an unknown way"),
            Self::Running => f.write_str("still running"),
        }
    }
}

/// Keeps reading, so that the program never blocks on us.
async fn drain(mut pipe: pipe::Receiver, ring: Arc<Mutex<Tail>>) {
    let mut chunk = vec![0; 64 << 10];
    while let Ok(n @ 1..) = pipe.read(&mut chunk).await {
        ring.lock().unwrap_or_else(PoisonError::into_inner).push(chunk.get(..n).unwrap_or_default());
    }
}

/// Returns a moment after the program itself has ended, which `gone` keeps.
async fn gone_for_a_moment(child: &mut Child, gone: &mut Option<Instant>) {
    // Of a program nobody can tell about, the end of its output tells.
    if child.wait().await.is_err() {
        return std::future::pending().await;
    }
    let at = *gone.get_or_insert_with(Instant::now);
    tokio::time::sleep_until(at + LAST_WORDS_WAIT).await;
}

/// Writes what is queued until there is no more, then closes the program's input.
async fn write_all(mut pipe: pipe::Sender, mut queue: mpsc::Receiver<String>) -> io::Result<()> {
    while let Some(text) = queue.recv().await {
        pipe.write_all(text.as_bytes()).await?;
        pipe.flush().await?;
    }
    Ok(())
}
