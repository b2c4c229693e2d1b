//! One goal on one conversation, followed until it ends: over stalls, restarts and repairs.
//!
//! ```text
//!   what was kept --> set or go on --> pass --+--> reached, blocked, out of tokens: the end
//!                          ^                  +--> stalled: counted, on the record, waited for
//!                          +-----------------------------------------------+
//! ```

mod kept;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use super::{NodeCtx, NodeResult, Report, Status, budget::Reserved, prompt, turn};
use crate::{
    engines::{
        EngineError, ErrorClass, GoalEnd, GoalPass, GoalRequest, GoalSet, GoalStatus, GoalView, Order, Orders,
        PoolError, PooledSession, SessionOptions, SessionSpec,
    },
    model::{Time, run::Steer, spec::GoalNode},
    sys::ids,
};
use kept::{Begin, Final, Kept};
pub use kept::{GOAL_DATA, shown};

/// Longest time that progress of a goal is not on the record; changes of its status are at once.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);
/// Pause before a correction that the engine could not take is offered again.
const STEER_AGAIN: Duration = Duration::from_secs(1);

/// How a pass over the goal ended.
enum Passed {
    /// The node ends with it.
    Ended(Status),
    /// It stands still: why, and when the engine says that it can go on.
    Stalled(String, Option<Time>),
}

/// Follows the node's goal.
pub(super) async fn run(ctx: &NodeCtx, node: &GoalNode) -> NodeResult {
    let kept = Kept::of(&ctx.attempt, node);
    let begin = kept.begin(&ctx.attempt, node, &ids::short());
    let left = ctx.attempt.node.timeout_ms.map(Duration::from_millis);
    let mut follower = Follower { ctx, node, kept, begin, left, unkillable: Vec::new(), steers: Steers::new(ctx) };
    let touched = !matches!(follower.begin, Begin::Ended(_));
    let status = follower.follow().await;
    NodeResult {
        status,
        output: follower.kept.last_message().cloned(),
        data: [(GOAL_DATA.to_owned(), follower.kept.data())].into(),
        unkillable: follower.unkillable,
        touched,
        ..NodeResult::default()
    }
}

/// An attempt of a goal node.
struct Follower<'a> {
    ctx: &'a NodeCtx,
    node: &'a GoalNode,
    kept: Kept,
    begin: Begin,
    /// What is left of the attempt's limit; waits do not count.
    left: Option<Duration>,
    unkillable: Vec<String>,
    steers: Steers,
}

impl Follower<'_> {
    async fn follow(&mut self) -> Status {
        if let Begin::Ended(end) = &self.begin {
            return status(end.clone());
        }
        let max = self.node.capacity_retry.max;
        loop {
            if let Some((until, asked)) = self.kept.wait() {
                let tries = self.kept.stalls();
                let detail = format!("the goal stands still; try {tries} of {max} follows: {}", self.kept.last_error());
                if !turn::wait_until(self.ctx, until, asked, &self.session(), ("stall", &detail)).await {
                    return Status::Stopped;
                }
                self.kept.waited();
            }
            let (why, reset) = match self.pass().await {
                Passed::Ended(status) => return status,
                Passed::Stalled(why, reset) => (why, reset),
            };
            if self.kept.stalled(&why, reset, self.ctx.now(), self.node).is_none() {
                return Status::Failed(format!("the goal stands still and {max} tries to go on did not help: {why}"));
            }
            // On the record before it is made, so that no crash makes it free.
            if !self.kept.recorded(self.ctx).await {
                return Status::Stopped;
            }
        }
    }

    fn session(&self) -> String {
        let attempt = &self.ctx.attempt;
        format!("{}-{}-a{}", attempt.run_id, attempt.node.id, attempt.attempt)
    }

    /// One engine process on the goal, until the goal ends or stands still.
    async fn pass(&mut self) -> Passed {
        if self.begin == Begin::GoOn {
            self.kept.taken_up(&self.ctx.attempt);
            self.kept.resumed();
            if !self.kept.recorded(self.ctx).await {
                return Passed::Ended(Status::Stopped);
            }
        }
        let reserved = match self.ctx.budget.begin().await {
            Ok(reserved) => reserved,
            Err(reason) => return Passed::Ended(Status::Exhausted(reason)),
        };
        let session = match turn::open(self.ctx, self.spec()).await {
            Ok(session) => session,
            Err(e) => {
                return if self.ctx.cancel.is_cancelled() { Passed::Ended(Status::Stopped) } else { self.no_start(&e) };
            }
        };
        for warning in session.warnings() {
            self.ctx.report.log("warn", warning.clone());
        }
        let foreign = session.native_id().and_then(|id| self.kept.foreign(&id).map(str::to_owned));
        if let Some(id) = foreign {
            self.unkillable.extend(session.close().await);
            return Passed::Ended(self.elsewhere(&id));
        }
        self.go(session, reserved).await
    }

    fn spec(&self) -> SessionSpec {
        let go_on = self.begin == Begin::GoOn;
        SessionSpec {
            name: self.session(),
            choice: self.node.choice.clone(),
            cwd: self.ctx.directory(self.node.cwd.as_deref()),
            resume: self.kept.thread().cloned(),
            run_env: self.ctx.attempt.run_env.clone(),
            options: SessionOptions {
                sandbox: self.node.sandbox,
                launcher: self.node.launcher.clone(),
                goal: go_on.then(|| self.kept.known(self.node)),
                ..SessionOptions::default()
            },
            labels: Some(turn::labels(self.ctx)),
            ..SessionSpec::default()
        }
    }

    /// What a session that did not start means: an engine that worked before may do so again.
    fn no_start(&self, e: &PoolError) -> Passed {
        let why = format!("session '{}' did not start: {e}", self.session());
        let reset = if let PoolError::Engine(e) = e { e.retry_at } else { None };
        match e.class() {
            ErrorClass::Auth => Passed::Ended(Status::Hopeless(why)),
            ErrorClass::Quota | ErrorClass::Overloaded => Passed::Stalled(why, reset),
            ErrorClass::Timeout | ErrorClass::Crashed | ErrorClass::Protocol | ErrorClass::StartFailed
                if self.begin == Begin::GoOn =>
            {
                Passed::Stalled(why, reset)
            }
            ErrorClass::Timeout
            | ErrorClass::Crashed
            | ErrorClass::Protocol
            | ErrorClass::StartFailed
            | ErrorClass::ContextOverflow
            | ErrorClass::PermissionDenied
            | ErrorClass::Refused
            | ErrorClass::Interrupted
            | ErrorClass::NotSupported
            | ErrorClass::BudgetExceeded
            | ErrorClass::Other => Passed::Ended(Status::Failed(why)),
        }
    }

    fn elsewhere(&self, id: &str) -> Status {
        let wanted = self.kept.thread().cloned().unwrap_or_default();
        Status::Hopeless(format!(
            "the engine went on with conversation '{id}' instead of '{wanted}'; the goal was left"
        ))
    }

    /// Follows the goal in an open session.
    async fn go(&mut self, mut session: PooledSession, reserved: Reserved) -> Passed {
        let (give, mut orders) = Orders::channel();
        let (tell, mut news) = watch::channel(GoalView::default());
        let cancel = self.ctx.cancel.child_token();
        let begun = Instant::now();
        let deadline = self.left.and_then(|left| begun.checked_add(left));
        let (mut timed_out, mut foreign) = (false, None);
        let pass = {
            let request = GoalRequest {
                set: match &self.begin {
                    Begin::Set(objective) => {
                        Some(GoalSet { objective: objective.clone(), token_budget: Some(self.node.token_budget) })
                    }
                    Begin::GoOn | Begin::Ended(_) => None,
                },
                reactivate: self.begin == Begin::GoOn,
                stall: Duration::from_millis(self.node.stall_ms),
                news: Arc::new(move |view| drop(tell.send_replace(view.clone()))),
                sink: turn::sink(self.ctx, None),
                cancel: cancel.clone(),
                orders: &mut orders,
            };
            let mut call = std::pin::pin!(session.goal(request));
            let mut due: Option<Instant> = None;
            loop {
                tokio::select! {
                    pass = &mut call => break Some(pass),
                    Ok(()) = news.changed() => {
                        let view = news.borrow_and_update().clone();
                        if let Some(id) = self.kept.foreign(&view.thread_id) {
                            foreign.get_or_insert_with(|| id.to_owned());
                            cancel.cancel();
                        } else if self.news(&view) {
                            due = None;
                            self.kept.checkpoint(self.ctx).await;
                        } else {
                            due.get_or_insert(Instant::now() + PROGRESS_EVERY);
                        }
                    }
                    () = at(due) => {
                        due = None;
                        self.kept.checkpoint(self.ctx).await;
                    }
                    () = at(deadline), if !timed_out => {
                        timed_out = true;
                        cancel.cancel();
                    }
                    step = self.steers.step() => match step {
                        Some((id, taken)) => self.steered(id, taken).await,
                        None => self.steers.offer(&give),
                    },
                    () = turn::superseded(self.ctx) => break None,
                }
            }
        };
        let Some(pass) = pass else {
            // Another process works on the run, in the same directory: there is no time for an orderly end.
            session.abandon();
            return Passed::Ended(Status::Stopped);
        };
        self.left = self.left.map(|left| left.saturating_sub(begun.elapsed()));
        self.unkillable.extend(session.close().await);
        self.account(&pass, reserved).await;
        let foreign = foreign.or_else(|| self.kept.foreign(&pass.view.thread_id).map(str::to_owned));
        if let Some(id) = foreign {
            return Passed::Ended(self.elsewhere(&id));
        }
        self.concluded(pass, timed_out).await
    }

    /// Takes news in; whether they must be on the record at once.
    fn news(&mut self, view: &GoalView) -> bool {
        let set = match &self.begin {
            Begin::Set(objective) => {
                self.kept.set(&self.ctx.attempt, objective);
                self.begin = Begin::GoOn;
                true
            }
            Begin::GoOn | Begin::Ended(_) => false,
        };
        self.steers.open = view.status == GoalStatus::Active;
        self.kept.news(view) || set
    }

    /// Puts what a pass used on the account.
    async fn account(&mut self, pass: &GoalPass, reserved: Reserved) {
        let mut spend = pass.turns.spend.clone();
        spend.turns = spend.turns.max(u64::from(spend.tokens_in > 0));
        reserved.settle(&spend);
        self.kept.spent(&spend);
        self.ctx.report.send(Report::Cost(spend)).await;
    }

    /// What the end of a pass means for the node.
    async fn concluded(&mut self, pass: GoalPass, timed_out: bool) -> Passed {
        if !pass.view.thread_id.is_empty() {
            self.news(&pass.view);
        }
        if let Some(end) = self.kept.end(&pass.end, self.node) {
            return Passed::Ended(status(end));
        }
        self.steers.open = false;
        if self.ctx.cancel.is_cancelled() {
            self.kept.checkpoint(self.ctx).await;
            return Passed::Ended(Status::Stopped);
        }
        if timed_out {
            let limit = self.ctx.attempt.node.timeout_ms.unwrap_or_default();
            let text = format!("timeout: the goal was not reached within {limit} ms; it is paused");
            return Passed::Ended(Status::Failed(text));
        }
        match pass.end {
            GoalEnd::Stalled(e) => Passed::Stalled(e.to_string(), e.retry_at),
            GoalEnd::Interrupted => Passed::Stalled("interrupted from outside".to_owned(), None),
            GoalEnd::Failed(e) if e.class == ErrorClass::Auth => Passed::Ended(Status::Hopeless(e.to_string())),
            GoalEnd::Failed(e) => Passed::Ended(Status::Failed(e.to_string())),
            GoalEnd::Complete | GoalEnd::Blocked(_) | GoalEnd::BudgetLimited => {
                Passed::Ended(Status::Failed("the goal ended without a result".to_owned()))
            }
        }
    }

    /// The engine answered to a correction.
    async fn steered(&mut self, id: String, taken: Result<(), EngineError>) {
        match taken {
            Ok(()) => {
                self.steers.settled.insert(id.clone());
                self.ctx.report.send(Report::Steered(vec![id])).await;
            }
            Err(e) if e.class == ErrorClass::NotSupported => {
                self.steers.settled.insert(id);
                self.ctx.report.log("warn", format!("a correction waits for the next attempt: {e}"));
            }
            Err(_) => self.steers.again = Instant::now() + STEER_AGAIN,
        }
    }
}

fn status(end: Final) -> Status {
    match end {
        Final::Complete => Status::Succeeded,
        Final::Failed(why) => Status::Failed(why),
    }
}

/// Until the given moment; never without one.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Corrections on their way into the running turn, one after the other.
struct Steers {
    open: bool,
    waiting: watch::Receiver<Vec<Steer>>,
    /// Taken, or refused for good.
    settled: BTreeSet<String>,
    asked: Option<(String, oneshot::Receiver<Result<(), EngineError>>)>,
    again: Instant,
}

impl Steers {
    fn new(ctx: &NodeCtx) -> Self {
        let waiting = ctx.steers.clone();
        Self { open: false, waiting, settled: BTreeSet::new(), asked: None, again: Instant::now() }
    }

    fn next(&self) -> Option<Steer> {
        self.waiting.borrow().iter().find(|s| !self.settled.contains(&s.id)).cloned()
    }

    /// What became of the one that was given; `None` when the next one can be.
    async fn step(&mut self) -> Option<(String, Result<(), EngineError>)> {
        if let Some((id, taken)) = &mut self.asked {
            let taken = taken.await;
            let id = std::mem::take(id);
            self.asked = None;
            return Some((id, taken.unwrap_or_else(|_| Err(EngineError::new(ErrorClass::Other, "nobody took it")))));
        }
        while !self.open || self.next().is_none() {
            if self.waiting.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
        tokio::time::sleep_until(self.again).await;
        None
    }

    fn offer(&mut self, orders: &mpsc::Sender<Order>) {
        let Some(steer) = self.next() else { return };
        let (done, taken) = oneshot::channel();
        if orders.try_send(Order::Steer { text: prompt::correction(&steer), done }).is_ok() {
            self.asked = Some((steer.id, taken));
        } else {
            self.again = Instant::now() + STEER_AGAIN;
        }
    }
}
