//! Runs one program of a check to its end, its limit or its cancellation, and nothing of it lives on.
//!
//! One supervisor serves all programs of a verification; it is started when first needed and again when
//! a program managed to take it down. Knows nothing of what the program is for.

use std::{sync::Arc, time::Duration};

use tokio::{io::AsyncReadExt, net::unix::pipe};
use tokio_util::sync::CancellationToken;

use crate::{
    sys::{
        redact::Redactor,
        supervise::{Child, ChildSpec, Ended, Error as ProcessError, Exit, Options, Supervisor},
    },
    verify::{
        Error,
        capture::{Capture, Stream, Text},
    },
};

/// How long output is still read once the program itself has ended: a background child may hold the pipe.
const DRAIN: Duration = Duration::from_secs(2);
/// Bytes read at once; a full pipe.
const READ: usize = 64 << 10;

/// What programs run under.
#[derive(Debug)]
pub(in crate::verify) struct Processes {
    options: Options,
    supervisor: Option<Supervisor>,
    unkillable: Vec<String>,
}

/// How a program ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// By itself, or by a signal.
    Exited(Exit),
    /// Its limit passed and it was killed.
    TimedOut,
    /// It never started.
    NotStarted {
        /// The system's reason.
        reason: String,
        /// There is no such program.
        not_found: bool,
    },
    /// Its supervisor went away, so how it ended is not known.
    Lost(String),
}

/// A program that ran.
#[derive(Debug)]
pub(super) struct Ran {
    /// How it ended.
    pub ending: Ending,
    /// What it printed.
    pub output: Capture,
    /// A child of it held its output open after its end and was killed.
    pub left_behind: bool,
}

impl Ran {
    /// What was printed, as text; made where it may take its time.
    pub(super) async fn text(&mut self, redactor: &Arc<Redactor>, intro: String, outro: String) -> Text {
        let (output, redactor) = (std::mem::take(&mut self.output), redactor.clone());
        let text = super::blocking(move || output.text(&redactor, &intro, &outro)).await;
        text.unwrap_or_else(|| Text {
            log: "(the output could not be made into text)\n".to_owned(),
            tail: String::new(),
        })
    }
}

impl Processes {
    /// None running.
    pub(in crate::verify) fn new(options: Options) -> Self {
        Self { options, supervisor: None, unkillable: Vec::new() }
    }

    /// Ends everything and gives what could not be ended.
    pub(in crate::verify) async fn end(mut self) -> Vec<String> {
        if let Some(supervisor) = self.supervisor.take() {
            self.note(supervisor.end(Duration::ZERO).await);
        }
        self.unkillable
    }

    /// Runs `spec` for at most `limit`. Errs when cancelled, or when no supervisor can be started.
    pub(super) async fn run(
        &mut self,
        spec: ChildSpec,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<Ran, Error> {
        let deadline = tokio::time::sleep(limit);
        tokio::pin!(deadline);
        let mut output = Capture::default();
        let spawned = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(Error::Cancelled),
            spawned = self.spawn(spec) => spawned,
        };
        let mut child = match spawned {
            Ok(child) => child,
            Err(Refused::NoSupervisor(error)) => return Err(error.into()),
            Err(Refused::Program(ending)) => {
                if let Ending::Lost(_) = &ending {
                    self.kill().await;
                    self.supervisor = None;
                }
                return Ok(Ran { ending, output, left_behind: false });
            }
        };
        let mut pipes = Pipes::of(&mut child);
        let ended = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(Error::Cancelled),
            () = &mut deadline => Ok(Ending::TimedOut),
            ended = pipes.read_until(child.wait(), &mut output) => Ok(match ended {
                Ok(exit) => Ending::Exited(exit),
                Err(error) => Ending::Lost(error.to_string()),
            }),
        };
        let left_behind = match &ended {
            Ok(Ending::Exited(_)) => {
                let drained = tokio::select! {
                    biased;
                    () = cancel.cancelled() => Err(Error::Cancelled),
                    drained = tokio::time::timeout(DRAIN, pipes.read_all(&mut output)) => Ok(drained),
                };
                match drained {
                    Ok(drained) => drained.is_err(),
                    Err(cancelled) => {
                        self.kill().await;
                        return Err(cancelled);
                    }
                }
            }
            Ok(Ending::TimedOut | Ending::Lost(_) | Ending::NotStarted { .. }) | Err(_) => false,
        };
        self.kill().await;
        if let Ok(Ending::Lost(_)) = &ended {
            self.supervisor = None;
        }
        // What was still in the pipes when the last writer died.
        let _ = tokio::time::timeout(DRAIN, pipes.read_all(&mut output)).await;
        Ok(Ran { ending: ended?, output, left_behind })
    }

    async fn spawn(&mut self, spec: ChildSpec) -> Result<Child, Refused> {
        if let Some(supervisor) = &self.supervisor {
            match supervisor.spawn(spec.clone()).await {
                // It was taken down after the last program had ended.
                Err(ProcessError::Supervisor { .. }) => self.supervisor = None,
                other => return other.map_err(Refused::of),
            }
        }
        let supervisor = Supervisor::start(&self.options).await.map_err(Refused::NoSupervisor)?;
        let child = supervisor.spawn(spec).await;
        self.supervisor = Some(supervisor);
        child.map_err(Refused::of)
    }

    /// Ends whatever is left of the last program.
    async fn kill(&mut self) {
        let Some(supervisor) = self.supervisor.as_ref().filter(|supervisor| !supervisor.is_empty()) else { return };
        match supervisor.kill_all(Duration::ZERO).await {
            Ok(ended) => self.note(ended),
            Err(error) => {
                tracing::warn!(%error, "the supervisor of the checks is gone; the next check gets a new one");
                self.supervisor = None;
            }
        }
    }

    fn note(&mut self, ended: Ended) {
        match ended {
            Ended::Empty => {}
            Ended::Left(left) => {
                for process in left {
                    if !self.unkillable.contains(&process) {
                        self.unkillable.push(process);
                    }
                }
            }
        }
    }
}

/// Why there is no program to wait for.
enum Refused {
    /// Nothing can be run at all.
    NoSupervisor(ProcessError),
    /// This program did not start, or took its supervisor down at once.
    Program(Ending),
}

impl Refused {
    fn of(error: ProcessError) -> Self {
        Self::Program(match error {
            ProcessError::Start { reason, not_found, .. } => Ending::NotStarted { reason, not_found },
            ProcessError::Supervisor { .. } => Ending::Lost(error.to_string()),
        })
    }
}

/// The two streams of a program while they are open.
struct Pipes {
    out: Option<pipe::Receiver>,
    err: Option<pipe::Receiver>,
    out_buf: Vec<u8>,
    err_buf: Vec<u8>,
}

impl Pipes {
    fn of(child: &mut Child) -> Self {
        Self { out: child.stdout.take(), err: child.stderr.take(), out_buf: vec![0; READ], err_buf: vec![0; READ] }
    }

    /// Reads both streams until `end` is there.
    async fn read_until<F: Future>(&mut self, end: F, output: &mut Capture) -> F::Output {
        tokio::pin!(end);
        loop {
            tokio::select! {
                ended = &mut end => return ended,
                () = self.read_some(output), if self.open() => {}
            }
        }
    }

    /// Reads both streams to their ends.
    async fn read_all(&mut self, output: &mut Capture) {
        while self.open() {
            self.read_some(output).await;
        }
    }

    fn open(&self) -> bool {
        self.out.is_some() || self.err.is_some()
    }

    /// One read of whichever stream has something.
    async fn read_some(&mut self, output: &mut Capture) {
        let Self { out, err, out_buf, err_buf } = self;
        let (stream, read) = tokio::select! {
            read = read(out, out_buf), if out.is_some() => (Stream::Out, read),
            read = read(err, err_buf), if err.is_some() => (Stream::Err, read),
            else => return,
        };
        let (pipe, buf) = match stream {
            Stream::Out => (out, out_buf),
            Stream::Err => (err, err_buf),
        };
        match buf.get(..read) {
            Some(bytes) if read > 0 => output.push(stream, bytes),
            Some(_) | None => *pipe = None,
        }
    }
}

/// Bytes read; 0 at the end and on an error, after which nothing more will come.
async fn read(pipe: &mut Option<pipe::Receiver>, buf: &mut [u8]) -> usize {
    match pipe {
        Some(pipe) => pipe.read(buf).await.unwrap_or(0),
        None => 0,
    }
}
