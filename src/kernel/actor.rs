//! One task a run: asks what is next, commits it, acts, reports. It alone changes the run.
//!
//! ```text
//!            start / resume / approve
//!                     |
//!                     v        commands, inbox, wall-clock bound
//!   +--> decide --> commit --> attempt / backoff --+----> park (gate)
//!   |                                              |----> end  (completed, failed, cancelled)
//!   +----------------------------------------------+----> let go (shutdown, superseded)
//! ```

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{
    Inner, account,
    live::Command,
    plan::{self, Move},
    verdict::{self, Conclusion, Ending},
    writer::Writer,
};
use crate::{
    model::{
        Event, NodeId, NodeState, RunRecord, Time,
        event::{LOG_TEXT_MAX, LOGS_PER_VISIT},
        run::{Injection, Steer, Verdict, Waiting},
    },
    nodes::{
        Customs, Stop,
        budget::{Lasted, Meter},
        prompt::cut,
    },
    store,
};

/// Pause between two looks into the inbox; bounds how late a request of another process is seen.
const INBOX_EVERY: Duration = Duration::from_millis(150);
/// Pause between two heartbeats in the lease.
const HEARTBEAT_EVERY: Duration = Duration::from_secs(15);
/// Most log events in one batch, so that a batch stays below the store's line limit even when every character
/// is written as two.
const LOGS_PER_BATCH: usize = 16;
/// Why a run that was wound down is cancelled.
pub(super) const ABORTED: &str = "aborted";
/// Attempts in a row that the store may lose before the run is given up: an agent that is paid again and
/// again for a result that cannot be kept helps nobody.
const LOST_MAX: u32 = 5;

/// Why an actor's step was cut off.
#[derive(Debug)]
pub(super) enum Lost {
    /// Stopped on purpose; the record says or will say why.
    Stopped(Stop),
    /// The store failed.
    Store(store::Error),
}

impl From<store::Error> for Lost {
    fn from(e: store::Error) -> Self {
        if matches!(e, store::Error::Superseded { .. }) { Self::Stopped(Stop::Superseded) } else { Self::Store(e) }
    }
}

/// Executes one run.
pub(super) struct Actor {
    pub(super) kernel: Arc<Inner>,
    pub(super) writer: Writer,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) meter: Arc<Meter>,
    /// How long the run has lasted.
    pub(super) lasted: Lasted,
    /// Fires when the process ends.
    pub(super) shutdown: CancellationToken,
    /// Fires when the run is another process's, so that whoever asked this one learns it.
    pub(super) superseded: CancellationToken,
    /// Progress lines that wait for the next batch.
    pub(super) logs: Vec<Event>,
    /// What agents of the attempt wait for, by who waits.
    pub(super) waits: BTreeMap<String, Waiting>,
    /// Corrections that nobody has acknowledged, for the attempt under way.
    pub(super) steers: watch::Sender<Vec<Steer>>,
    /// Words for the rounds of the node under way that no round took.
    pub(super) injections: watch::Sender<Vec<Injection>>,
    /// Programs of `custom` agents.
    pub(super) customs: Customs,
    /// What was used while the store could not be written.
    pub(super) owed: Vec<Event>,
    /// Attempts in a row that ended with a failure of the store.
    pub(super) lost: u32,
    /// Requests to cancel that stay in the inbox until the end is on the record.
    cancels: Vec<String>,
    /// Node, visit and number of its log events so far.
    logged: (String, u32, u32),
    inbox_due: Duration,
    heartbeat_due: Duration,
    /// The latest word left for a run above that another process executes.
    pub(super) told: Option<String>,
}

impl Actor {
    /// An actor for a claimed run.
    pub(super) fn new(kernel: Arc<Inner>, writer: Writer, customs: Customs, commands: mpsc::Receiver<Command>) -> Self {
        let meter = Arc::new(account::open(&kernel, &writer.spec, &writer.record));
        let lasted = Lasted::new(&writer.record, kernel.services.clock.as_ref());
        let shutdown = kernel.stop.child_token();
        let heartbeat_due = kernel.services.clock.boot() + HEARTBEAT_EVERY;
        Self {
            kernel,
            writer,
            commands,
            meter,
            lasted,
            shutdown,
            superseded: CancellationToken::new(),
            logs: Vec::new(),
            waits: BTreeMap::new(),
            steers: watch::Sender::new(Vec::new()),
            injections: watch::Sender::new(Vec::new()),
            customs,
            owed: Vec::new(),
            lost: 0,
            cancels: Vec::new(),
            logged: (String::new(), 0, 0),
            inbox_due: Duration::ZERO,
            // The lease was written a moment ago.
            heartbeat_due,
            told: None,
        }
    }

    /// Executes the run until it ends, parks or is lost. Whatever happens, the run is let go of at the end.
    pub(super) async fn run(mut self) {
        self.look_after_children().await;
        self.tell_above().await;
        loop {
            match self.advance().await {
                Ok(()) => break,
                Err(Lost::Stopped(Stop::Shutdown)) => {
                    // Nothing is written: the run stays as it is and any process may continue it.
                    let _ = self.flush_logs().await;
                    break;
                }
                Err(Lost::Stopped(Stop::Superseded)) => {
                    self.superseded.cancel();
                    tracing::warn!(run = %self.writer.record.run_id, "another process took the run over");
                    return;
                }
                Err(Lost::Stopped(Stop::Cancelled | Stop::Budget)) => {}
                Err(Lost::Store(e)) => {
                    tracing::error!(run = %self.writer.record.run_id, error = %e, "the store failed");
                    self.lost += 1;
                    // What is too large today is too large tomorrow, and the handle is still good.
                    let hopeless = matches!(e, store::Error::TooLarge { .. });
                    if !hopeless && !self.reopen(&e).await {
                        return;
                    }
                    if (hopeless || self.lost >= LOST_MAX)
                        && let Err(again) = self.give_up(&e).await
                    {
                        tracing::error!(run = %self.writer.record.run_id, error = ?again, "the run cannot be ended");
                        if hopeless {
                            return;
                        }
                    }
                }
            }
        }
        self.writer.release().await;
    }

    /// Moves the run on until it ends or parks.
    async fn advance(&mut self) -> Result<(), Lost> {
        loop {
            if self.shutdown.is_cancelled() && !self.writer.record.state.is_terminal() {
                return Err(Lost::Stopped(Stop::Shutdown));
            }
            self.control().await?;
            if !self.writer.record.state.is_terminal() {
                if self.writer.record.winding_down {
                    self.end_by(Stop::Cancelled, Some(ABORTED)).await?;
                } else if self.wall_left() == Some(Duration::ZERO) {
                    self.end_by(Stop::Budget, None).await?;
                }
            }
            let now = self.kernel.services.clock.wall();
            match plan::decide(&self.writer.spec, &self.writer.record, now) {
                Move::Stop => {
                    self.forget_cancels().await;
                    self.finished().await;
                    return Ok(());
                }
                Move::Park => {
                    self.flush_logs().await?;
                    return Ok(());
                }
                Move::Commit(events) => self.commit(events).await?,
                Move::Run(node) => self.attempt(&node).await?,
                Move::Wait(node, due) => self.backoff(&node, due).await?,
                Move::Conclude => {
                    let ending = self.conclude().await;
                    self.end(&ending, Vec::new()).await?;
                }
                Move::End(ending) => self.end(&ending, Vec::new()).await?,
            }
        }
    }

    /// Commits a batch, with the progress lines that waited before it.
    pub(super) async fn commit(&mut self, events: Vec<Event>) -> Result<(), Lost> {
        self.flush_logs().await?;
        Ok(self.writer.commit(events).await?)
    }

    /// Commits a batch together with the move that follows from it, so that no crash falls between them.
    pub(super) async fn commit_and_move(&mut self, mut events: Vec<Event>) -> Result<(), Lost> {
        let mut after: RunRecord = (*self.writer.record).clone();
        let now = self.kernel.services.clock.wall();
        let seq = after.seq + 1;
        super::state::apply_batch(&mut after, &self.writer.spec, seq, now, &events);
        match plan::decide(&self.writer.spec, &after, now) {
            Move::Commit(more) => events.extend(more),
            Move::End(ending) => events.push(plan::ending(&ending)),
            Move::Stop | Move::Run(_) | Move::Wait(..) | Move::Park | Move::Conclude => {}
        }
        self.commit(events).await
    }

    /// Ends the run, with further events in the same batch before it.
    pub(super) async fn end(&mut self, ending: &Ending, mut events: Vec<Event>) -> Result<(), Lost> {
        events.extend(self.child_costs(None));
        events.push(plan::ending(ending));
        self.commit(events).await?;
        self.forget_cancels().await;
        Ok(())
    }

    /// Removes the requests to cancel that the end on the record answers. One that stays does no harm.
    async fn forget_cancels(&mut self) {
        for id in std::mem::take(&mut self.cancels) {
            let _ = self.writer.with(move |claim| claim.inbox_done(&id)).await;
        }
    }

    /// Ends the run because of a stop, the current node with it.
    pub(super) async fn end_by(&mut self, stop: Stop, reason: Option<&str>) -> Result<(), Lost> {
        let record = self.writer.record.clone();
        let ending = match stop {
            Stop::Cancelled => verdict::cancelled(reason),
            Stop::Budget => {
                let bound = self.writer.spec.budget.max_wall_ms.unwrap_or_default();
                let why = format!("budget: maxWallMs ({bound}) reached");
                verdict::cut_short(&record, why.clone(), Some(why))
            }
            Stop::Shutdown | Stop::Superseded => return Err(Lost::Stopped(stop)),
        };
        // Its attempt may not have begun in this process. The child goes first, for nobody looks after it later.
        let child = Some(format!("its parent run '{}' was stopped", record.run_id));
        super::control::cancel_child(&self.kernel, &record, child).await;
        let events = self.stopped_node(&record, stop);
        self.end(&ending, events).await
    }

    /// The event that ends the node a stop caught.
    pub(super) fn stopped_node(&self, record: &RunRecord, stop: Stop) -> Vec<Event> {
        let Some(entry) = record.current_node.as_ref().and_then(|id| record.node(id.as_str())) else {
            return Vec::new();
        };
        let open = matches!(entry.state, NodeState::Running | NodeState::AwaitingHuman);
        let Ok(node) = NodeId::parse(&entry.id) else { return Vec::new() };
        let state = if stop == Stop::Budget { NodeState::Failed } else { NodeState::Cancelled };
        let error = (stop == Stop::Budget).then(|| "the run's wall-clock bound was reached".to_owned());
        let (visit, attempt, failures) = (entry.visits, entry.attempts, entry.failures);
        if !open {
            return Vec::new();
        }
        vec![Event::NodeState { node, state, visit, attempt, failures, error, approved: None, comment: None }]
    }

    /// What is left of the run's wall-clock bound.
    pub(super) fn wall_left(&self) -> Option<Duration> {
        let max = self.writer.spec.budget.max_wall_ms?;
        Some(Duration::from_millis(max).saturating_sub(self.lasted.now(self.kernel.services.clock.as_ref())))
    }

    /// Takes what callers asked for since the last look, without waiting.
    async fn control(&mut self) -> Result<(), Lost> {
        while let Ok(command) = self.commands.try_recv() {
            self.obey(command).await?;
        }
        if let Some(reason) = self.tick().await?
            && !self.writer.record.state.is_terminal()
        {
            self.end_by(Stop::Cancelled, reason.as_deref()).await?;
        }
        Ok(())
    }

    /// Does what a command says while no attempt is under way.
    async fn obey(&mut self, command: Command) -> Result<(), Lost> {
        match command {
            Command::Cancel { reason, done } => {
                if !self.writer.record.state.is_terminal() {
                    self.end_by(Stop::Cancelled, reason.as_deref()).await?;
                }
                let _ = done.send(());
            }
            // Nothing is added to a run that has ended; the dropped answer makes the caller look again.
            Command::Record { .. } if self.writer.record.state.is_terminal() => {}
            Command::Record { event, done } => {
                self.commit(vec![*event]).await?;
                let _ = done.send(());
            }
        }
        Ok(())
    }

    /// Periodic work: progress lines, heartbeat, requests of other processes. Says whether a cancel was among them.
    pub(super) async fn tick(&mut self) -> Result<Option<Option<String>>, Lost> {
        let now = self.kernel.services.clock.boot();
        if now >= self.heartbeat_due {
            self.heartbeat_due = now + HEARTBEAT_EVERY;
            self.writer.with(|claim| claim.heartbeat()).await?;
        }
        if now < self.inbox_due {
            return Ok(None);
        }
        self.inbox_due = now + INBOX_EVERY;
        self.flush_logs().await?;
        self.writer.commit(self.child_costs(None)).await?;
        // The proof comes along, so that a writer that lost the run learns it while its agents still work.
        let items = self.writer.with(|claim| claim.check().and_then(|()| claim.inbox())).await?;
        let mut cancel = None;
        for item in items {
            let text = |key: &str| item.body.get(key).and_then(Value::as_str).map(str::to_owned);
            match text("kind").as_deref() {
                Some("steer" | "inject" | "wind_down") if self.writer.record.state.is_terminal() => {}
                Some("steer" | "inject") if self.knows(&item.id) => {}
                Some("steer") => {
                    let at = self.kernel.services.clock.wall();
                    let steer =
                        Steer { id: item.id.clone(), text: text("text").unwrap_or_default(), at, applied: Vec::new() };
                    self.writer.commit(vec![Event::Steer { steer }]).await?;
                }
                Some("inject") => {
                    let at = self.kernel.services.clock.wall();
                    if let Some(node) = text("node").and_then(|id| NodeId::parse(&id).ok()) {
                        let text = text("text").unwrap_or_default();
                        let injection = Injection { id: item.id.clone(), node, text, at, round: None };
                        self.writer.commit(vec![Event::Inject { injection }]).await?;
                    }
                }
                Some("wind_down") if self.writer.record.winding_down => {}
                Some("wind_down") => self.writer.commit(vec![Event::WindDown]).await?,
                Some(account::SPENT) => {
                    if let Some(child) = account::said(&item.body) {
                        self.look_at_child(&child).await;
                        self.writer.commit(self.child_costs(None)).await?;
                    }
                }
                Some("cancel") => {
                    cancel = Some(text("reason"));
                    self.cancels.push(item.id);
                    continue;
                }
                _ => tracing::warn!(id = item.id, "a request of an unknown kind was dropped"),
            }
            let id = item.id;
            self.writer.with(move |claim| claim.inbox_done(&id)).await?;
        }
        Ok(cancel)
    }

    /// Whether words need no further event: they are on the record.
    fn knows(&self, id: &str) -> bool {
        let record = &self.writer.record;
        record.steers.iter().any(|s| s.id == id) || record.injections.iter().any(|i| i.id == id)
    }

    /// Waits for the next attempt's due time; what is left of it is counted again after a restart.
    async fn backoff(&mut self, node: &NodeId, due: Time) -> Result<(), Lost> {
        let clock = self.kernel.services.clock.clone();
        // A clock set back must not stretch the wait beyond what was asked for.
        let failures = self.writer.record.node(node.as_str()).map_or(0, |entry| entry.failures);
        let spec = &self.writer.spec;
        let most = spec.node(node.as_str()).map_or(0, |(_, n)| n.retry.backoff_ms.saturating_mul(failures.into()));
        let until = clock.boot() + Duration::from_millis(most);
        loop {
            let left = u64::try_from(due.millis().saturating_sub(clock.wall().millis())).unwrap_or(0);
            let left = Duration::from_millis(left).min(until.saturating_sub(clock.boot()));
            if left.is_zero() {
                break;
            }
            self.pause(left).await?;
            if self.writer.record.state.is_terminal() || self.wall_left() == Some(Duration::ZERO) {
                return Ok(());
            }
        }
        // Taking the due time off the record is what lets the attempt start.
        let Some(entry) = self.writer.record.node(node.as_str()).cloned() else { return Ok(()) };
        let (visit, attempt, failures) = (entry.visits, entry.attempts, entry.failures);
        let state = NodeState::Running;
        let error = entry.error;
        let event = Event::NodeState {
            node: node.clone(),
            state,
            visit,
            attempt,
            failures,
            error,
            approved: None,
            comment: None,
        };
        self.commit(vec![event, Event::Wait { waiting: None }]).await
    }

    /// Sleeps at most `left`, obeying commands meanwhile.
    async fn pause(&mut self, left: Duration) -> Result<(), Lost> {
        let step = left.min(INBOX_EVERY).min(self.wall_left().unwrap_or(left));
        let shutdown = self.shutdown.clone();
        tokio::select! {
            () = shutdown.cancelled() => return Err(Lost::Stopped(Stop::Shutdown)),
            command = self.commands.recv() => {
                if let Some(command) = command {
                    self.obey(command).await?;
                }
            }
            () = tokio::time::sleep(step) => {}
        }
        if let Some(reason) = self.tick().await? {
            self.end_by(Stop::Cancelled, reason.as_deref()).await?;
        }
        Ok(())
    }

    /// How the run ends, comparing trees where something ran after a green verdict.
    async fn conclude(&mut self) -> Ending {
        let record = self.writer.record.clone();
        match verdict::conclude(&self.writer.spec, &record) {
            Conclusion::Ends(ending) => ending,
            Conclusion::Compare(stale) => {
                let mut moved = None;
                for verdict in &stale {
                    moved = moved.or(self.moved(verdict).await);
                }
                verdict::after_compare(&record, moved)
            }
        }
    }

    /// Why a verdict no longer describes the tree; `None` when it does.
    async fn moved(&mut self, verdict: &Verdict) -> Option<String> {
        let node = &verdict.node;
        let (Some(digest), Some(cwd)) = (&verdict.tree_digest, &verdict.digest_cwd) else {
            return Some(format!("something ran after the checks of '{node}', outside git that cannot be compared"));
        };
        let now = match self.kernel.services.git.open(std::path::Path::new(cwd)).await {
            Ok(Some(repo)) => repo.digest().await,
            Ok(None) => return Some(format!("something ran after the checks of '{node}' and the repository is gone")),
            Err(e) => Err(e),
        };
        match now {
            Ok(now) if now == *digest => None,
            Ok(_) => Some(format!("the tree changed after the checks of '{node}' passed")),
            Err(e) => Some(format!("the tree could not be compared with what '{node}' checked: {e}")),
        }
    }

    /// Remembers a progress line for the next batch, within the bounds of a visit.
    pub(super) fn log(&mut self, node: &NodeId, visit: u32, level: &str, text: &str) {
        if self.logged.0 != node.as_str() || self.logged.1 != visit {
            self.logged = (node.to_string(), visit, 0);
        }
        self.logged.2 += 1;
        let text = match self.logged.2.cmp(&LOGS_PER_VISIT) {
            std::cmp::Ordering::Less => {
                let plain: String = text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect();
                cut(&plain, LOG_TEXT_MAX).0.to_owned()
            }
            std::cmp::Ordering::Equal => "further lines of this visit are not kept".to_owned(),
            std::cmp::Ordering::Greater => return,
        };
        self.logs.push(Event::Log { node: Some(node.clone()), level: level.to_owned(), text });
    }

    /// Commits the progress lines that wait.
    pub(super) async fn flush_logs(&mut self) -> Result<(), Lost> {
        while !self.logs.is_empty() {
            let rest = self.logs.split_off(self.logs.len().min(LOGS_PER_BATCH));
            let batch = std::mem::replace(&mut self.logs, rest);
            self.writer.commit(batch).await?;
        }
        Ok(())
    }

    /// Gives a finished run's worktree back when everything in it is on its branch.
    async fn finished(&mut self) {
        let record = self.writer.record.clone();
        if let Some(path) = &record.workspace_path {
            super::workspace::close(&self.kernel, &record, path).await;
        }
    }
}
