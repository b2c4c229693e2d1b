//! One attempt of one node: prepares what it sees, watches it, and turns its end into events.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    account,
    actor::{ABORTED, Actor, Lost},
    children::KernelChildren,
    live::Command,
    writer::ERROR_MAX,
};
use crate::{
    model::{
        Event, NodeId, NodeState, RunRecord,
        run::{NodeRecord, Verdict},
        spec::Node,
    },
    nodes::{self, NodeCtx, NodeResult, Report, Reporter, Status, Stop, prompt::cut},
    sys::tasks,
};

/// Pause between two rounds of periodic work while a node runs.
const TICK: Duration = Duration::from_millis(100);
/// How long a stopped node may take to end its process trees before it is given up and said so.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// A node at work.
type Work = tokio::task::JoinHandle<NodeResult>;
/// What it reports.
type Reports = tokio::sync::mpsc::Receiver<Report>;
/// Why it is stopped, when it is, with the caller's reason.
type StopCause = Option<(Stop, Option<String>)>;

/// How a watch ends.
enum Watched {
    /// The node ended by itself.
    Ended(Box<NodeResult>),
    /// It must be stopped, for this reason and with the caller's words.
    Stopped(Stop, Option<String>),
}

/// The result of a node whose task panicked.
fn abnormal(e: &tokio::task::JoinError) -> NodeResult {
    NodeResult::failed(format!("the node ended abnormally: {e}"))
}

impl Actor {
    /// Runs the attempt the record stands at.
    pub(super) async fn attempt(&mut self, id: &NodeId) -> Result<(), Lost> {
        let record = self.writer.record.clone();
        let spec = self.writer.spec.clone();
        let (Some((_, node)), Some(entry)) = (spec.node(id.as_str()), record.node(id.as_str())) else { return Ok(()) };
        // The last look before something leaves the run: a writer that lost it must start nothing.
        self.writer.with(|claim| claim.check()).await?;
        let prepared = match self.prepare(&record, node, entry).await {
            Ok(attempt) => attempt,
            Err(why) => return self.settle(node, NodeResult::failed(why), None).await,
        };
        let cancel = CancellationToken::new();
        let (report, mut reports) = Reporter::new();
        let cause = Arc::new(OnceLock::new());
        self.waits.clear();
        let wind_down = CancellationToken::new();
        self.tell_node(&node.id, &wind_down);
        let ctx = NodeCtx {
            services: self.kernel.services.clone(),
            attempt: Arc::new(prepared),
            cancel: cancel.clone(),
            stop: cause.clone(),
            steers: self.steers.subscribe(),
            injections: self.injections.subscribe(),
            wind_down: wind_down.clone(),
            customs: self.customs.clone(),
            report,
            budget: self.meter.clone(),
            lasted: self.lasted,
            children: Arc::new(KernelChildren::new(self.kernel.clone())),
        };
        let mut work = tasks::spawn("node", nodes::run(ctx));
        let mut replies = Vec::new();
        let watched = self.watch(&mut work, &mut reports, (node, entry), &wind_down, &mut replies).await;
        let (result, stop) = match watched {
            Ok(Watched::Ended(result)) => {
                let aborted = (Stop::Cancelled, Some(ABORTED.to_owned()));
                (Some(*result), self.writer.record.winding_down.then_some(aborted))
            }
            Ok(Watched::Stopped(why, reason)) => {
                let _ = cause.set(why);
                cancel.cancel();
                // From here on only its end counts; reports are still taken so that nothing it used is lost.
                (self.drain(&mut work, &mut reports, (node, entry), false).await, Some((why, reason)))
            }
            Err(lost) => {
                if matches!(lost, Lost::Stopped(Stop::Superseded)) {
                    self.superseded.cancel();
                    let _ = cause.set(Stop::Superseded);
                }
                // Whatever the store says, nothing this attempt started may live on.
                cancel.cancel();
                self.drain(&mut work, &mut reports, (node, entry), true).await;
                return Err(lost);
            }
        };
        while let Ok(report) = reports.try_recv() {
            self.take_report(node, entry, report).await?;
        }
        let outcome = match result {
            Some(result) => self.settle(node, result, stop).await,
            None => {
                let detail = format!("node '{id}' did not end within {} s of being stopped", STOP_LIMIT.as_secs());
                self.commit(vec![Event::Unkillable { detail }]).await?;
                let result = NodeResult { status: Status::Stopped, ..NodeResult::default() };
                self.settle(node, result, stop).await
            }
        };
        if outcome.is_ok() {
            self.lost = 0;
            for done in replies {
                let _ = done.send(());
            }
        }
        outcome
    }

    /// Follows a running node until it ends or must be stopped.
    async fn watch(
        &mut self,
        work: &mut Work,
        reports: &mut Reports,
        (node, entry): (&Node, &NodeRecord),
        wind_down: &CancellationToken,
        replies: &mut Vec<tokio::sync::oneshot::Sender<()>>,
    ) -> Result<Watched, Lost> {
        let shutdown = self.shutdown.clone();
        // Ticks go on however much the node has to say, and come before what it says.
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Ok(Watched::Stopped(Stop::Shutdown, None)),
                Some(command) = self.commands.recv() => match command {
                    Command::Cancel { reason, done } => {
                        replies.push(done);
                        // An agent whose run another process has is given no time to end.
                        self.writer.with(|claim| claim.check()).await?;
                        return Ok(Watched::Stopped(Stop::Cancelled, reason));
                    }
                    Command::Record { event, done } => {
                        self.commit(vec![*event]).await?;
                        let _ = done.send(());
                        self.tell_node(&node.id, wind_down);
                    }
                },
                _ = ticks.tick() => {
                    if let Some(reason) = self.tick().await? {
                        return Ok(Watched::Stopped(Stop::Cancelled, reason));
                    }
                    self.tell_node(&node.id, wind_down);
                    if self.wall_left() == Some(Duration::ZERO) {
                        return Ok(Watched::Stopped(Stop::Budget, None));
                    }
                }
                Some(report) = reports.recv() => self.take_report(node, entry, report).await?,
                joined = &mut *work => return Ok(Watched::Ended(Box::new(joined.unwrap_or_else(|e| abnormal(&e))))),
            }
        }
    }

    /// Waits for a stopped node's end, still taking its reports. `None` when it does not come. Once a report was
    /// `lost`, before or meanwhile, nobody is told that everything is on the record.
    async fn drain(
        &mut self,
        work: &mut Work,
        reports: &mut Reports,
        (node, entry): (&Node, &NodeRecord),
        mut lost: bool,
    ) -> Option<NodeResult> {
        let limit = tokio::time::sleep(STOP_LIMIT);
        let mut limit = std::pin::pin!(limit);
        loop {
            tokio::select! {
                joined = &mut *work => return Some(joined.unwrap_or_else(|e| abnormal(&e))),
                Some(report) = reports.recv() => {
                    if lost && matches!(report, Report::Recorded(_)) {
                        continue;
                    }
                    let cost = match &report {
                        Report::Cost(spend) => Some(Event::Cost { node: node.id.clone(), spend: spend.clone() }),
                        Report::Log { .. }
                        | Report::Wait { .. }
                        | Report::Part { .. }
                        | Report::Child { .. }
                        | Report::Steered(_)
                        | Report::Injected { .. }
                        | Report::Vote(_)
                        | Report::Evidence { .. }
                        | Report::File { .. }
                        | Report::Recorded(_) => None,
                    };
                    if let Err(e) = self.take_report(node, entry, report).await {
                        tracing::warn!(error = ?e, "a report of a stopped node was lost");
                        lost = true;
                        self.owed.extend(cost);
                    }
                }
                () = &mut limit => {
                    work.abort();
                    return None;
                }
            }
        }
    }

    /// Tells the attempt what was said since: corrections nobody has acknowledged, words no round took, the wish
    /// that nothing new begins.
    fn tell_node(&self, node: &NodeId, wind_down: &CancellationToken) {
        let record = &self.writer.record;
        if record.winding_down {
            wind_down.cancel();
        }
        self.injections.send_if_modified(|known| {
            let open = record.injections.iter().filter(|i| i.round.is_none() && i.node == *node);
            let same = open.clone().map(|i| &i.id).eq(known.iter().map(|i| &i.id));
            if !same {
                *known = open.cloned().collect();
            }
            !same
        });
        self.steers.send_if_modified(|known| {
            let open = record.steers.iter().filter(|s| s.applied.is_empty());
            let same = open.clone().map(|s| &s.id).eq(known.iter().map(|s| &s.id));
            if !same {
                *known = open.cloned().collect();
            }
            !same
        });
    }

    /// Puts a report on the record.
    async fn take_report(&mut self, node: &Node, entry: &NodeRecord, report: Report) -> Result<(), Lost> {
        let id = node.id.clone();
        match report {
            Report::Log { level, text } => {
                self.log(&id, entry.visits, level, &text);
                Ok(())
            }
            Report::Wait { who, waiting } => {
                match waiting {
                    Some(waiting) => self.waits.insert(who, waiting),
                    None => self.waits.remove(&who),
                };
                // The run goes on when the longest wait is over; one without a known end says less.
                let waiting = self.waits.values().max_by_key(|wait| wait.until).cloned();
                if waiting == self.writer.record.waiting_for {
                    return Ok(());
                }
                self.commit(vec![Event::Wait { waiting }]).await
            }
            Report::Cost(spend) => {
                self.commit(vec![Event::Cost { node: id, spend: account::exact(&spend) }]).await?;
                self.tell_above().await;
                Ok(())
            }
            Report::Child { run, recorded } => {
                self.commit(vec![Event::Child { node: id, child_run_id: run }]).await?;
                let _ = recorded.send(());
                Ok(())
            }
            Report::Steered(ids) => self.commit(vec![Event::SteerApplied { node: id, ids }]).await,
            Report::Injected { ids, round } => {
                self.commit(vec![Event::InjectTaken { ids, round }]).await?;
                // What was taken is no longer open, and the node may ask at once.
                self.injections.send_if_modified(|known| {
                    let before = known.len();
                    let open: Vec<_> = self.writer.record.injections.iter().filter(|i| i.round.is_none()).collect();
                    known.retain(|i| open.iter().any(|o| o.id == i.id));
                    known.len() != before
                });
                Ok(())
            }
            Report::Vote(vote) => self.commit(vec![Event::Vote { vote }]).await,
            Report::Evidence { id: evidence_id, files, kept } => {
                let path = format!("evidence/{evidence_id}");
                self.writer.with(move |claim| claim.put_directory(&path, &files)).await?;
                self.commit(vec![Event::Evidence { node: id, evidence_id }]).await?;
                let _ = kept.send(());
                Ok(())
            }
            Report::File { name, bytes, kept } => {
                let stored = self.writer.put(format!("{}/{}", artifact_dir(entry), file_name(&name)), bytes).await?;
                let _ = kept.send(stored);
                Ok(())
            }
            Report::Recorded(done) => {
                let _ = done.send(());
                Ok(())
            }
            Report::Part { key, mut data, text } => {
                if let Some(text) = text {
                    let text = self.kernel.services.redactor.text(&text);
                    let path = format!("{}/{}.txt", artifact_dir(entry), file_name(&key));
                    let kept = self.writer.keep(path, text).await?;
                    if let Some(map) = data.as_object_mut() {
                        map.insert("text".to_owned(), serde_json::to_value(kept).unwrap_or(Value::Null));
                    }
                }
                self.commit(vec![Event::NodeData { node: id, key, data }]).await
            }
        }
    }

    /// Turns an attempt's end into one batch and commits it together with the move that follows.
    async fn settle(&mut self, node: &Node, mut result: NodeResult, stop: StopCause) -> Result<(), Lost> {
        let record = self.writer.record.clone();
        let Some(entry) = record.node(node.id.as_str()) else { return Ok(()) };
        // Work that was done before the stop reached it counts; the run stays resumable after it.
        let stop = stop.filter(|(why, _)| *why != Stop::Shutdown || !matches!(result.status, Status::Succeeded));
        let mut events = Vec::new();
        events.extend(self.child_costs(Some(&node.id)));
        if result.touched {
            // Whoever lost the run leaves its refs alone.
            self.writer.with(|claim| claim.check()).await?;
            events.extend(super::workspace::snapshot(&self.kernel, &record, node, entry).await);
        }
        if result.touched || result.verdict.is_some() {
            events.extend(super::workspace::keep(&self.kernel, &record, node, result.verdict.as_mut()).await);
        }
        if let Some(detail) = result.unkillable.first() {
            events.push(Event::Unkillable { detail: detail.clone() });
        }
        match stop {
            Some((Stop::Shutdown | Stop::Superseded, _)) => {
                self.commit(events).await?;
                return Err(Lost::Stopped(stop.map_or(Stop::Shutdown, |(why, _)| why)));
            }
            Some((why, reason)) => {
                self.commit(events).await?;
                return self.end_by(why, reason.as_deref()).await;
            }
            None => {}
        }
        let error = match &result.status {
            Status::Succeeded => None,
            Status::Failed(why) | Status::Hopeless(why) | Status::Exhausted(why) => {
                Some(self.kernel.services.redactor.text(why))
            }
            // Only a stop stops a node; ending without one is its failure.
            Status::Stopped => Some("the attempt ended early".to_owned()),
        };
        self.results(node, entry, &record, &result, &mut events).await?;
        if let (Status::Exhausted(_), Some(why)) = (&result.status, &error) {
            events.push(ended(node, NodeState::Failed, entry, entry.failures + 1, error.clone()));
            let ending = super::verdict::cut_short(&record, why.clone(), Some(why.clone()));
            events.push(super::plan::ending(&ending));
            return self.commit(events).await;
        }
        match error {
            None => {
                events.push(ended(node, NodeState::Succeeded, entry, entry.failures, None));
                if !result.steers_seen.is_empty() {
                    let (node, ids) = (node.id.clone(), result.steers_seen.clone());
                    events.push(Event::SteerApplied { node, ids });
                }
            }
            Some(why) if entry.failures < node.retry.max && !matches!(result.status, Status::Hopeless(_)) => {
                let failures = entry.failures + 1;
                let wait = node.retry.backoff_ms.saturating_mul(u64::from(failures));
                let retry_at = self.kernel.services.clock.wall().plus_millis(i64::try_from(wait).unwrap_or(i64::MAX));
                let attempt = entry.attempts + 1;
                events.push(Event::NodeState {
                    node: node.id.clone(),
                    state: NodeState::Running,
                    visit: entry.visits,
                    attempt,
                    failures,
                    error: Some(cut(&why, ERROR_MAX).0.to_owned()),
                    approved: None,
                    comment: None,
                });
                events.push(Event::RetryScheduled { node: node.id.clone(), attempt, retry_at });
                return self.commit(events).await;
            }
            why => events.push(ended(node, NodeState::Failed, entry, entry.failures + 1, why)),
        }
        self.commit_and_move(events).await
    }

    /// Stores what an attempt gives and names it in events.
    async fn results(
        &mut self,
        node: &Node,
        entry: &NodeRecord,
        record: &RunRecord,
        result: &NodeResult,
        events: &mut Vec<Event>,
    ) -> Result<(), Lost> {
        let id = &node.id;
        if let Some(text) = &result.output {
            let text = self.kernel.services.redactor.text(text);
            let output = self.writer.keep(format!("{}/output.txt", artifact_dir(entry)), text).await?;
            events.push(Event::NodeOutput { node: id.clone(), output });
        }
        for (key, data) in &result.data {
            events.push(Event::NodeData { node: id.clone(), key: key.clone(), data: data.clone() });
        }
        if let Some(moved) = &result.work_dir {
            let mut baseline = record.baseline.clone().unwrap_or_default();
            baseline.base_sha = Some(moved.base.clone());
            baseline.snapshot = None;
            baseline.in_git = true;
            if let Some(tests) = moved.protected.clone() {
                let path = format!("{}/protected.json", artifact_dir(entry));
                baseline.protected = Some(self.writer.put(path, tests).await?);
            }
            events.push(Event::WorkDir {
                node: id.clone(),
                path: moved.path.to_string_lossy().into_owned(),
                top: moved.top.to_string_lossy().into_owned(),
                baseline,
            });
        }
        for (evidence_id, files) in &result.evidence {
            if !files.is_empty() {
                let (path, files) = (format!("evidence/{evidence_id}"), files.clone());
                self.writer.with(move |claim| claim.put_directory(&path, &files)).await?;
            }
            events.push(Event::Evidence { node: id.clone(), evidence_id: evidence_id.clone() });
        }
        if let Some(given) = &result.verdict {
            events.push(Event::Verdict {
                verdict: Verdict {
                    node: id.clone(),
                    evidence_id: given.evidence_id.clone(),
                    evidence_run: given.evidence_run.clone(),
                    passed: given.passed,
                    tree_digest: given.tree_digest.clone(),
                    digest_cwd: given.digest_cwd.clone(),
                    side_effect_seq: record.side_effect_seq,
                    advisory: given.advisory,
                    run_contract: given.run_contract,
                    withheld: result.unverified.as_ref().map(|why| self.kernel.services.redactor.text(why)),
                },
                fingerprint: given.fingerprint.clone(),
            });
        }
        Ok(())
    }
}

/// Directory of an attempt's artifacts below its run.
fn artifact_dir(entry: &NodeRecord) -> String {
    format!("nodes/{}/v{}a{}", entry.id, entry.visits, entry.attempts)
}

/// `name` as the name of a file.
fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }).collect()
}

/// The event that ends a visit.
fn ended(node: &Node, state: NodeState, entry: &NodeRecord, failures: u32, error: Option<String>) -> Event {
    Event::NodeState {
        node: node.id.clone(),
        state,
        visit: entry.visits,
        attempt: entry.attempts,
        failures,
        error: error.map(|why| cut(&why, ERROR_MAX).0.to_owned()),
        approved: None,
        comment: None,
    }
}
