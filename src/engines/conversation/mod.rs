//! A conversation with one long process: turns, questions, orders and clocks around a [`Dialect`].

mod goal;

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Answer, Ask, Boxed, EngineError, ErrorClass, GoalPass, GoalRequest, Idle, Message, Order, Orders, Session, Sink,
    TurnOutcome, TurnRequest,
    busy::{self, Tries, until},
    cleaning,
    dialect::{Dialect, Step},
    lines::Line,
    process::{Gone, Launch, Limits, Process},
};

/// A running conversation.
#[derive(Debug)]
pub(crate) struct Conversation {
    process: Process,
    dialect: Box<dyn Dialect>,
    /// A turn was begun and its end not seen.
    unfinished: bool,
}

/// Why a turn was cut.
enum Cut {
    Cancelled,
    Idle,
    Eof,
    Stuck,
    Deaf,
}

impl Conversation {
    /// Starts the program and waits until it has the conversation.
    pub(crate) async fn start(
        launch: Launch,
        dialect: Box<dyn Dialect>,
        cancel: &CancellationToken,
    ) -> Result<Self, EngineError> {
        let mut session = Self { process: Process::start(launch).await?, dialect, unfinished: false };
        match session.hello(cancel).await {
            Ok(()) => Ok(session),
            Err(e) => {
                session.process.end().await;
                Err(cleaning::error(&session.process.redactor, e))
            }
        }
    }

    /// The first sign of life: an answer that needs no model.
    async fn hello(&mut self, cancel: &CancellationToken) -> Result<(), EngineError> {
        let lines = self.dialect.hello();
        self.send(lines);
        let deadline = Instant::now() + self.process.limits.start;
        loop {
            let line = tokio::select! {
                biased;
                () = cancel.cancelled() => {
                    return Err(self.process.error(ErrorClass::Interrupted, "cancelled while starting"));
                }
                line = self.process.next() => line,
                () = tokio::time::sleep_until(deadline) => {
                    let text = format!("no sign of life within {} s", self.process.limits.start.as_secs_f32());
                    return Err(self.process.error(ErrorClass::Timeout, &self.process.with_tail(&text)));
                }
            };
            let Some(line) = line else {
                let exit = self.process.exit().await;
                let text = self.process.with_tail(&format!("ended while starting ({exit})"));
                return Err(self.process.error(ErrorClass::StartFailed, &text));
            };
            for step in self.steps(line) {
                match step {
                    Step::Ready => return Ok(()),
                    Step::Failed(e) => return Err(self.process.error(e.class, &e.message)),
                    Step::Ended(outcome) => {
                        let told = outcome.error.map_or_else(|| "ended before it began".to_owned(), |e| e.message);
                        // It runs, but not with what it was given: an unknown conversation, for example.
                        return Err(self.process.error(ErrorClass::Other, &told));
                    }
                    Step::Reply(line) => self.process.send(line),
                    Step::Event(_) | Step::Answered(_) | Step::Goal(_) | Step::GoalEnded(..) => {}
                }
            }
        }
    }

    async fn run_turn(&mut self, request: TurnRequest<'_>) -> TurnOutcome {
        if std::mem::replace(&mut self.unfinished, true) {
            // The turn before was given up halfway; what it still says must not become the answer to this one.
            self.process.end().await;
        }
        let outcome = busy::turn(self, request).await;
        self.unfinished = false;
        outcome
    }

    async fn one_try(
        &mut self,
        message: &Message<'_>,
        sink: &Sink,
        cancel: &CancellationToken,
        orders: &mut Orders,
    ) -> TurnOutcome {
        if !self.process.alive() {
            let error = self.process.error(ErrorClass::Crashed, "the session has ended; open a new one");
            return TurnOutcome { native_id: self.native_id(), ..TurnOutcome::failed(error) };
        }
        if message.text.trim().is_empty() {
            let error = self.process.error(ErrorClass::Other, "the message is empty");
            return TurnOutcome { native_id: self.native_id(), ..TurnOutcome::failed(error) };
        }
        let lines = self.dialect.begin(message);
        self.send(lines);
        let cut = match self.follow(sink, cancel, orders).await {
            Ok(outcome) => return cleaning::outcome(&self.process.redactor, *outcome),
            Err(cut) => cut,
        };
        let outcome = match cut {
            Cut::Cancelled => self.abort(ErrorClass::Interrupted, "cancelled").await,
            Cut::Idle => {
                let text = format!("stalled: idle, nothing happened for {} s", self.process.limits.idle.as_secs_f32());
                let text = self.process.with_tail(&text);
                self.abort(ErrorClass::Timeout, &text).await
            }
            Cut::Stuck => self.abort(ErrorClass::Protocol, "the program does not read what it is sent").await,
            Cut::Deaf => self.abort(ErrorClass::Interrupted, "interrupted; the program went on, so it was ended").await,
            Cut::Eof => self.died().await,
        };
        cleaning::outcome(&self.process.redactor, outcome)
    }

    /// Reads until the turn ends or has to be cut.
    async fn follow(
        &mut self,
        sink: &Sink,
        cancel: &CancellationToken,
        orders: &mut Orders,
    ) -> Result<Box<TurnOutcome>, Cut> {
        let mut idle_at = Instant::now() + self.process.limits.idle;
        let mut interrupted: Option<Instant> = None;
        loop {
            if self.process.stuck() {
                return Err(Cut::Stuck);
            }
            let watching = !self.dialect.tool_open();
            let line = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(Cut::Cancelled),
                line = self.process.next() => line,
                order = orders.next() => {
                    if self.obey(order) && interrupted.is_none() {
                        interrupted = Some(Instant::now() + self.process.limits.soft_interrupt);
                    }
                    continue;
                }
                () = until(interrupted) => return Err(Cut::Deaf),
                () = tokio::time::sleep_until(idle_at), if watching => return Err(Cut::Idle),
            };
            let Some(line) = line else { return Err(Cut::Eof) };
            idle_at = Instant::now() + self.process.limits.idle;
            for step in self.steps(line) {
                match step {
                    Step::Event(event) => sink(cleaning::event(&self.process.redactor, event)),
                    Step::Reply(line) => self.process.send(line),
                    Step::Ended(mut outcome) => {
                        if interrupted.is_some() && outcome.error.is_none() {
                            outcome.ok = false;
                            outcome.error = Some(self.process.error(ErrorClass::Interrupted, "interrupted"));
                        }
                        return Ok(outcome);
                    }
                    Step::Ready | Step::Failed(_) | Step::Answered(_) | Step::Goal(_) | Step::GoalEnded(..) => {}
                }
            }
        }
    }

    /// Does as ordered; whether the turn is being interrupted.
    fn obey(&mut self, order: Order) -> bool {
        match order {
            Order::Interrupt => {
                let lines = self.dialect.interrupt();
                self.send(lines);
                true
            }
            Order::Steer { text, done } => {
                let taken = self.dialect.steer(&text).map(|lines| self.send(lines));
                // Whoever gave the order may no longer wait for its end.
                let _ = done.send(taken);
                false
            }
        }
    }

    /// Interrupts, takes what the program still says about the turn, and ends the tree.
    async fn abort(&mut self, class: ErrorClass, text: &str) -> TurnOutcome {
        let lines = self.dialect.interrupt();
        self.send(lines);
        let quiet: Sink = Arc::new(|_| {});
        let (never, mut nobody) = (CancellationToken::new(), Orders::none());
        let told = tokio::time::timeout(self.process.limits.interrupt, self.follow(&quiet, &never, &mut nobody)).await;
        self.process.end().await;
        let error = self.process.error(class, text);
        match told {
            Ok(Ok(mut outcome)) => {
                outcome.ok = false;
                outcome.error = Some(error);
                *outcome
            }
            Ok(Err(_)) | Err(_) => self.dialect.cut_off(error),
        }
    }

    /// The output ended in the middle of a turn.
    async fn died(&mut self) -> TurnOutcome {
        let exit = self.process.exit().await;
        self.process.end().await;
        let (class, text) = match exit {
            Gone::Clean => (ErrorClass::Protocol, "ended without finishing its turn".to_owned()),
            Gone::Running => (ErrorClass::Protocol, "closed its output without finishing its turn".to_owned()),
            Gone::Failed(_) | Gone::Unknown => {
                (ErrorClass::Crashed, format!("ended in the middle of its turn ({exit})"))
            }
        };
        let error = self.process.error(class, &self.process.with_tail(&text));
        self.dialect.cut_off(error)
    }

    /// Something other than a turn. What cannot be answered in time leaves the session as it is.
    async fn run_ask(&mut self, ask: &Ask, sink: &Sink, cancel: &CancellationToken) -> Result<Answer, EngineError> {
        if !self.process.alive() {
            return Err(self.process.error(ErrorClass::Crashed, "the session has ended; open a new one"));
        }
        let lines = self.dialect.ask(ask)?;
        self.send(lines);
        let mut deadline = Instant::now() + self.process.limits.ask;
        loop {
            let line = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(self.process.error(ErrorClass::Interrupted, "cancelled")),
                line = self.process.next() => line,
                () = tokio::time::sleep_until(deadline) => {
                    let text = format!("no answer within {} s to: {}", self.process.limits.ask.as_secs_f32(), ask.name());
                    return Err(self.process.error(ErrorClass::Timeout, &text));
                }
            };
            let Some(line) = line else {
                let outcome = self.died().await;
                return Err(outcome.error.unwrap_or_else(|| self.process.error(ErrorClass::Crashed, "ended")));
            };
            // Some of what is asked takes a model call, which may be long but is not silent.
            deadline = Instant::now() + self.process.limits.ask;
            for step in self.steps(line) {
                match step {
                    Step::Event(event) => sink(cleaning::event(&self.process.redactor, event)),
                    Step::Reply(line) => self.process.send(line),
                    Step::Answered(answer) => {
                        let redactor = &self.process.redactor;
                        return match *answer {
                            Ok(answer) => Ok(cleaning::answer(redactor, answer)),
                            Err(e) => Err(cleaning::error(redactor, e)),
                        };
                    }
                    Step::Ready | Step::Failed(_) | Step::Ended(_) | Step::Goal(_) | Step::GoalEnded(..) => {}
                }
            }
        }
    }

    async fn run_idle(&mut self, sink: &Sink) -> Idle {
        loop {
            if !self.process.alive() {
                return std::future::pending().await;
            }
            let Some(line) = self.process.next().await else {
                let outcome = self.died().await;
                let gone = outcome.error.unwrap_or_else(|| self.process.error(ErrorClass::Crashed, "ended"));
                return Idle::Gone(cleaning::error(&self.process.redactor, gone));
            };
            for step in self.steps(line) {
                match step {
                    Step::Event(event) => sink(cleaning::event(&self.process.redactor, event)),
                    Step::Reply(line) => self.process.send(line),
                    Step::Ended(outcome) => {
                        return Idle::Turn(Box::new(cleaning::outcome(&self.process.redactor, *outcome)));
                    }
                    Step::Ready | Step::Failed(_) | Step::Answered(_) | Step::Goal(_) | Step::GoalEnded(..) => {}
                }
            }
        }
    }

    fn steps(&mut self, line: Line) -> Vec<Step> {
        match line {
            Line::Text(bytes) => self.dialect.line(&bytes, self.process.clock.wall()),
            Line::Skipped { bytes, head } => self.dialect.skipped(bytes, &head),
        }
    }

    fn send(&mut self, lines: Vec<String>) {
        for line in lines {
            self.process.send(line);
        }
    }
}

impl Tries for Conversation {
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
        Box::pin(self.process.end())
    }

    fn can_go_on(&self) -> bool {
        self.process.alive()
    }

    fn limits(&self) -> Limits {
        self.process.limits
    }

    fn error(&self, class: ErrorClass, text: &str) -> EngineError {
        self.process.error(class, text)
    }
}

impl Session for Conversation {
    fn turn<'a>(&'a mut self, request: TurnRequest<'a>) -> Boxed<'a, TurnOutcome> {
        Box::pin(self.run_turn(request))
    }

    fn ask<'a>(
        &'a mut self,
        ask: Ask,
        sink: Sink,
        cancel: CancellationToken,
    ) -> Boxed<'a, Result<Answer, EngineError>> {
        Box::pin(async move { self.run_ask(&ask, &sink, &cancel).await })
    }

    fn goal<'a>(&'a mut self, request: GoalRequest<'a>) -> Boxed<'a, GoalPass> {
        Box::pin(self.run_goal(request))
    }

    fn idle<'a>(&'a mut self, sink: Sink) -> Boxed<'a, Idle> {
        Box::pin(async move { self.run_idle(&sink).await })
    }

    fn alive(&self) -> bool {
        self.process.alive()
    }

    fn native_id(&self) -> Option<String> {
        self.dialect.native_id().map(str::to_owned)
    }

    fn stop(self: Box<Self>) -> Boxed<'static, Vec<String>> {
        Box::pin(self.process.leave())
    }
}
