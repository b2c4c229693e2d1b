//! Following a goal: turns the engine takes one after the other until the goal ends or stands still.

use tokio::time::Instant;

use super::{super::busy::joined, Conversation, until};
use crate::engines::{
    EngineError, ErrorClass, GoalEnd, GoalPass, GoalRequest, GoalStatus, GoalView, Order, TurnOutcome, cleaning,
    dialect::Step,
};

impl Conversation {
    /// Follows a goal. The session lives on unless it was cancelled or the program died.
    pub(super) async fn run_goal(&mut self, request: GoalRequest<'_>) -> GoalPass {
        let begun = Instant::now();
        let mut follower = Follower { view: GoalView::default(), turns: TurnOutcome::default(), taken: false };
        let end = self.follow_goal(request, &mut follower).await;
        let redactor = &self.process.redactor;
        let end = match end {
            GoalEnd::Stalled(e) => GoalEnd::Stalled(cleaning::error(redactor, e)),
            GoalEnd::Failed(e) => GoalEnd::Failed(cleaning::error(redactor, e)),
            GoalEnd::Blocked(why) => GoalEnd::Blocked(redactor.text(&why)),
            GoalEnd::Complete | GoalEnd::BudgetLimited | GoalEnd::Interrupted => end,
        };
        let mut turns = cleaning::outcome(redactor, follower.turns);
        turns.native_id = self.dialect.native_id().map(str::to_owned);
        turns.duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        turns.ok = end == GoalEnd::Complete;
        GoalPass { end, view: cleaning::goal(redactor, follower.view), turns }
    }

    async fn follow_goal(&mut self, request: GoalRequest<'_>, follower: &mut Follower) -> GoalEnd {
        let GoalRequest { set, reactivate, stall, news, sink, cancel, orders } = request;
        if !self.process.alive() {
            return GoalEnd::Failed(self.process.error(ErrorClass::Crashed, "the session has ended; open a new one"));
        }
        match self.dialect.goal(set.as_ref(), reactivate) {
            Ok(lines) => self.send(lines),
            Err(e) => return GoalEnd::Failed(e),
        }
        let mut quiet_at = Instant::now() + stall;
        let mut interrupted: Option<Instant> = None;
        loop {
            if self.process.stuck() {
                self.process.end().await;
                return GoalEnd::Failed(
                    self.process.error(ErrorClass::Protocol, "the program does not read its input"),
                );
            }
            let watching = !self.dialect.tool_open();
            let line = tokio::select! {
                biased;
                () = cancel.cancelled(), if interrupted.is_none() => {
                    let lines = self.dialect.goal_pause();
                    self.send(lines);
                    interrupted = Some(Instant::now() + self.process.limits.interrupt);
                    continue;
                }
                line = self.process.next() => line,
                order = orders.next() => {
                    match order {
                        // Whoever interrupts a goal wants it to stand still, not to begin its next turn.
                        Order::Interrupt => {
                            let lines = self.dialect.goal_pause();
                            self.send(lines);
                            interrupted.get_or_insert(Instant::now() + self.process.limits.soft_interrupt);
                        }
                        steer @ Order::Steer { .. } => {
                            self.obey(steer);
                        }
                    }
                    continue;
                }
                () = until(interrupted) => {
                    // It was told to stop and had its time; what still runs is ended with its tree.
                    self.process.end().await;
                    follower.turn(self.dialect.cut_off(self.process.error(ErrorClass::Interrupted, "interrupted")));
                    return GoalEnd::Interrupted;
                }
                () = tokio::time::sleep_until(quiet_at), if watching => {
                    let text = format!("stalled: nothing happened for {} s", stall.as_secs_f32());
                    return GoalEnd::Stalled(self.process.error(ErrorClass::Timeout, &text));
                }
            };
            let Some(line) = line else {
                let outcome = self.died().await;
                let error = outcome.error.clone();
                follower.turn(outcome);
                return GoalEnd::Stalled(error.unwrap_or_else(|| EngineError::new(ErrorClass::Crashed, "ended")));
            };
            quiet_at = Instant::now() + stall;
            for step in self.steps(line) {
                match step {
                    Step::Event(event) => sink(cleaning::event(&self.process.redactor, event)),
                    Step::Reply(line) => self.process.send(line),
                    Step::Ended(outcome) => follower.turn(*outcome),
                    Step::Goal(view) => {
                        let view = cleaning::goal(&self.process.redactor, view);
                        news(&view);
                        follower.view = view;
                    }
                    Step::GoalEnded(end, view) => {
                        follower.view = view;
                        let stopped = follower.view.status == GoalStatus::Paused && interrupted.is_some();
                        if cancel.is_cancelled() {
                            self.process.end().await;
                            return GoalEnd::Interrupted;
                        }
                        return if stopped { GoalEnd::Interrupted } else { end };
                    }
                    Step::Ready | Step::Failed(_) | Step::Answered(_) => {}
                }
            }
        }
    }
}

/// What was seen so far.
struct Follower {
    view: GoalView,
    turns: TurnOutcome,
    taken: bool,
}

impl Follower {
    /// A turn ended; all of them are accounted for as one.
    fn turn(&mut self, outcome: TurnOutcome) {
        let first = std::mem::take(&mut self.turns);
        self.turns = if std::mem::replace(&mut self.taken, true) { joined(first, outcome) } else { outcome };
    }
}
