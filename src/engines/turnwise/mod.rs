//! A session with a program that is started for every turn and finds the conversation by its id.
//!
//! Owns the processes, clocks and orders. What the program is told and says is its [`Program`]. Between two turns
//! nothing runs, so a turn that was killed does not end the session: the next one goes on by the id.

mod program;
#[cfg(test)]
pub(crate) mod replay;
mod scratch;
mod tally;
pub(crate) mod words;

use std::{ffi::OsString, path::PathBuf, sync::Arc};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Boxed, EngineError, ErrorClass, Message, Order, Orders, Session, SessionSpec, Sink, TurnOutcome, TurnRequest,
    busy::{self, Tries, until},
    cleaning,
    environment::ChildEnv,
    lines::Line,
    not_supported,
    process::{Gone, Limits, Process},
    registry::Context,
};
use crate::sys::{redact::Redactor, supervise::Stdin};
pub(crate) use program::{Invocation, Program};
pub(crate) use scratch::Scratch;
pub(crate) use tally::Tally;

/// A session between and during its turns.
#[derive(Debug)]
pub(crate) struct Turnwise {
    engine: &'static str,
    context: Arc<Context>,
    path: PathBuf,
    env: ChildEnv,
    spec: SessionSpec,
    program: Box<dyn Program>,
    /// Removed at its end.
    scratch: Option<Scratch>,
    /// What could not be ended so far.
    left: Vec<String>,
}

/// Why a turn was cut.
enum Cut {
    Cancelled,
    Interrupted,
    Mute,
    Idle,
    TooLong,
    Failed(EngineError),
}

/// What a session is made of.
#[derive(Debug)]
pub(crate) struct Parts {
    /// Engine, for messages.
    pub(crate) engine: &'static str,
    /// What adapters share.
    pub(crate) context: Arc<Context>,
    /// The program.
    pub(crate) path: PathBuf,
    /// Its environment.
    pub(crate) env: ChildEnv,
    /// What the session was opened with.
    pub(crate) spec: SessionSpec,
    /// A directory of its own, where it needs one.
    pub(crate) scratch: Option<Scratch>,
}

impl Turnwise {
    /// A session. Nothing is started before its first turn.
    pub(crate) fn new(parts: Parts, program: Box<dyn Program>) -> Self {
        let Parts { engine, context, path, env, spec, scratch } = parts;
        Self { engine, context, path, env, spec, program, scratch, left: Vec::new() }
    }

    async fn one_try(
        &mut self,
        message: &Message<'_>,
        sink: &Sink,
        cancel: &CancellationToken,
        orders: &mut Orders,
    ) -> TurnOutcome {
        let call = if message.text.trim().is_empty() {
            Err(self.error(ErrorClass::Other, "the message is empty"))
        } else if message.command {
            Err(not_supported(&format!("{} takes no commands, only messages", self.engine)))
        } else {
            self.program.command(message)
        };
        let call = match call {
            Ok(call) => call,
            Err(e) => return self.not_begun(e),
        };
        let leavings = scratch::absent(&self.context.fs, call.leavings).await;
        let mut env = self.env.clone();
        env.vars.extend(call.env);
        let stdin = if call.stdin.is_some() { Stdin::Pipe } else { Stdin::Null };
        let launch = self.context.launch(self.engine, self.path.clone(), call.args, env, &self.spec, stdin);
        let mut process = match Process::start(launch).await {
            Ok(process) => process,
            Err(e) => {
                let redactor = Redactor::new(self.env.secrets.clone());
                return self.not_begun(cleaning::error(&redactor, e));
            }
        };
        if let Some(text) = call.stdin {
            process.give(text);
        }
        process.close_input();
        let mut tally = Tally::default();
        let cut = self.follow(&mut process, &mut tally, sink, cancel, orders).await;
        let (clean, outcome) = match cut {
            Ok(exit) => (exit == Gone::Clean, self.finished(&mut process, exit, tally).await),
            Err(cut) => {
                let error = reason(cut, &process, self.program.timeout().unwrap_or_default().as_secs_f32());
                process.end().await;
                (false, tally.outcome(self.program.native_id(), Some(error)))
            }
        };
        self.left.extend(process.take_left());
        if !clean {
            scratch::sweep(&self.context.fs, leavings).await;
        }
        cleaning::outcome(&process.redactor, outcome)
    }

    /// Reads until the program leaves, or the turn has to be cut.
    async fn follow(
        &mut self,
        process: &mut Process,
        tally: &mut Tally,
        sink: &Sink,
        cancel: &CancellationToken,
        orders: &mut Orders,
    ) -> Result<Gone, Cut> {
        let begun = Instant::now();
        let limits = process.limits;
        let late = self.program.speaks_late();
        let ends_at = self.program.timeout().map(|t| begun + t);
        let mut idle_at = begun + limits.idle;
        let mut leave_at: Option<Instant> = None;
        loop {
            let waiting = !tally.heard() && !late;
            let watching = !waiting && leave_at.is_none() && !tally.tool_open();
            let line = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(Cut::Cancelled),
                line = process.next_or_gone() => line,
                order = orders.next() => match order {
                    // Nothing of it can be told to the program; its tree is ended and the next turn goes on by the id.
                    Order::Interrupt => return Err(Cut::Interrupted),
                    Order::Steer { done, .. } => {
                        let text = "a running turn of this engine takes no further input";
                        // Whoever gave the order may no longer wait for its end.
                        let _ = done.send(Err(not_supported(text)));
                        continue;
                    }
                },
                () = tokio::time::sleep_until(begun + limits.start), if waiting => return Err(Cut::Mute),
                () = tokio::time::sleep_until(idle_at), if watching => return Err(Cut::Idle),
                () = until(leave_at) => return Ok(Gone::Running),
                () = until(ends_at) => return Err(Cut::TooLong),
            };
            let Some(line) = line else { return Ok(process.exit().await) };
            tally.hear();
            idle_at = Instant::now() + limits.idle;
            let now = process.clock.wall();
            let events = match line {
                Line::Text(bytes) => self.program.line(&bytes, tally, now),
                Line::Skipped { bytes, head } => Ok(self.program.skipped(bytes, &head, tally)),
            };
            for event in events.map_err(Cut::Failed)? {
                sink(cleaning::event(&process.redactor, event));
            }
            if tally.said.is_some() && leave_at.is_none() {
                leave_at = Some(Instant::now() + limits.soft_interrupt);
            }
        }
    }

    /// The program left, or should have. Nothing of its tree runs afterwards.
    async fn finished(&mut self, process: &mut Process, exit: Gone, mut tally: Tally) -> TurnOutcome {
        process.end().await;
        let last_words = process.last_words();
        self.program.finish(&exit, &last_words, &mut tally, process.clock.wall());
        let error = tally
            .judge(&exit, &last_words)
            .err()
            .map(|e| EngineError { message: process.error(e.class, &e.message).message, ..e });
        tally.outcome(self.program.native_id(), error)
    }

    fn not_begun(&self, error: EngineError) -> TurnOutcome {
        let native_id = self.program.native_id().map(str::to_owned);
        TurnOutcome { native_id, ..TurnOutcome::failed(error) }
    }
}

/// Longest argument: longer ones are refused by the system.
const MAX_ARGUMENT: usize = 120 << 10;

/// A message as an argument.
pub(crate) fn argument(text: &str) -> Result<OsString, EngineError> {
    if text.len() > MAX_ARGUMENT || text.contains('\0') {
        let text = format!(
            "the message is an argument of this program and must be at most {MAX_ARGUMENT} bytes without zero bytes; \
             put long material into a file and name it"
        );
        return Err(EngineError::new(ErrorClass::Other, text));
    }
    Ok(text.into())
}

/// The error of a turn that was cut.
fn reason(cut: Cut, process: &Process, timeout: f32) -> EngineError {
    let limits = process.limits;
    let clock = |text: String| process.error(ErrorClass::Timeout, &process.with_tail(&text));
    match cut {
        Cut::Cancelled => process.error(ErrorClass::Interrupted, "cancelled"),
        Cut::Interrupted => process.error(ErrorClass::Interrupted, "interrupted"),
        Cut::Mute => clock(format!("no sign of life within {} s", limits.start.as_secs_f32())),
        Cut::Idle => clock(format!("stalled: idle, nothing happened for {} s", limits.idle.as_secs_f32())),
        Cut::TooLong => clock(format!("the turn took longer than the {timeout} s of its configuration")),
        Cut::Failed(e) => EngineError { message: process.error(e.class, &e.message).message, ..e },
    }
}

impl Tries for Turnwise {
    fn attempt<'a>(
        &'a mut self,
        message: &'a Message<'a>,
        sink: &'a Sink,
        cancel: &'a CancellationToken,
        orders: &'a mut Orders,
    ) -> Boxed<'a, TurnOutcome> {
        Box::pin(self.one_try(message, sink, cancel, orders))
    }

    fn give_up(&mut self) -> Boxed<'_, ()> {
        // Between two tries nothing runs.
        Box::pin(std::future::ready(()))
    }

    fn can_go_on(&self) -> bool {
        true
    }

    fn limits(&self) -> Limits {
        self.context.limits
    }

    fn error(&self, class: ErrorClass, text: &str) -> EngineError {
        EngineError::new(class, format!("{}: {text}", self.engine))
    }
}

impl Session for Turnwise {
    fn turn<'a>(&'a mut self, request: TurnRequest<'a>) -> Boxed<'a, TurnOutcome> {
        Box::pin(busy::turn(self, request))
    }

    fn native_id(&self) -> Option<String> {
        self.program.native_id().map(str::to_owned)
    }

    fn stop(mut self: Box<Self>) -> Boxed<'static, Vec<String>> {
        Box::pin(async move {
            if let Some(scratch) = self.scratch.take() {
                scratch.remove().await;
            }
            self.left
        })
    }
}
