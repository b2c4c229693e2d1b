//! Following a run to its end: a line a change, the verdict in words, and a way back after an interruption.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::{Pin, pin},
    time::Duration,
};

use super::{
    checks::MINUTE_MS,
    context::Context,
    failure::{EXIT_INTERRUPTED, EXIT_RED, EXIT_WAIT_TIMEOUT, Failure, Outcome},
    out::Tone,
};
use crate::{
    app::App,
    kernel::{Error, RunView, StatusQuery},
    model::{Code, Event, NodeId, NodeState, RunOutcome, RunState, Time},
    sys::{Clock, SystemClock},
};

/// Longest wait for a change between two looks. On a terminal the elapsed time moves at this pace.
const TICK: Duration = Duration::from_secs(1);

/// Events asked for with each look; more than a run commits between two.
const EVENTS: usize = 500;

/// Follows a run that this process (or another) executes; returns the exit status of the command.
///
/// Changes after commit `seq` are shown.
pub(crate) async fn follow(context: &Context, app: &App, run: &str, seq: u64, minutes: Option<u64>) -> Outcome {
    let mut interrupted = pin!(interruption());
    let started = SystemClock.boot();
    let limit = minutes.map(|m| Duration::from_millis(m * MINUTE_MS));
    let mut shown = Shown::after(seq);
    loop {
        let view = app.kernel.status(run, StatusQuery { events: EVENTS, wait_ms: 0 }).await?;
        shown.changes(context, &view);
        if view.state.is_terminal() {
            return Ok(ended(context, &view));
        }
        if view.interrupted {
            // Whoever answered a gate or executed the run is gone; this process goes on with it.
            taken_over(app.kernel.resume(run).await)?;
        }
        let elapsed = SystemClock.boot().saturating_sub(started);
        if limit.is_some_and(|limit| elapsed >= limit) {
            return Ok(left(context, &view, EXIT_WAIT_TIMEOUT, "the time to wait is over"));
        }
        context.out.live(&live_line(&view, elapsed));
        tokio::select! {
            changed = app.kernel.changed(&view.run_id, view.seq, TICK) => { changed?; }
            () = interrupted.as_mut() => return Ok(left(context, &view, EXIT_INTERRUPTED, "interrupted")),
        }
    }
}

/// Another process may have been faster; that is as good.
fn taken_over(resumed: Result<RunView, Error>) -> Result<(), Failure> {
    match resumed {
        Ok(_) => Ok(()),
        Err(e) if e.code == Code::RunOwned => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// What was already said about a run.
#[derive(Debug)]
struct Shown {
    /// Last commit whose events were shown.
    seq: u64,
    entered: BTreeMap<NodeId, Time>,
    gate: Option<(String, u32)>,
    waiting: Option<String>,
}

impl Shown {
    /// Everything after commit `seq` is new.
    fn after(seq: u64) -> Self {
        Self { seq, entered: BTreeMap::new(), gate: None, waiting: None }
    }

    /// Says what is new.
    fn changes(&mut self, context: &Context, view: &RunView) {
        let known = self.seq;
        for entry in view.events.iter().filter(|e| e.seq > known) {
            // An event of a newer program is none of ours to show.
            if let Ok(event) = serde_json::from_value::<Event>(entry.event.clone()) {
                self.event(context, entry.ts, &event);
            }
        }
        self.seq = self.seq.max(view.seq);
        let gate = view.gate.as_ref().map(|g| (g.node.clone(), g.visit));
        if let Some(open) = view.gate.as_ref().filter(|_| self.gate != gate) {
            context.out.line(format!("gate {}: {}", open.node, open.prompt));
            context.out.line(format!("  so far: {}; {}; {}", open.changes, open.checks, open.spent));
            context.out.line(format!("  yes: {}\n  no: {}", open.on_approve, open.on_reject));
            context.out.line(format!(
                "  answer: clawo workflow approve {0}   or   clawo workflow approve {0} reject",
                view.run_id
            ));
        }
        self.gate = gate;
        let waiting = view.waiting_for.as_ref().map(|w| w.detail.clone());
        if let Some(detail) = waiting.as_ref().filter(|_| self.waiting != waiting && view.gate.is_none()) {
            context.out.progress(format!("{}  waiting: {detail}", context.out.time(view.updated_at)));
        }
        self.waiting = waiting;
    }

    /// One line a change of state.
    fn event(&mut self, context: &Context, at: Time, event: &Event) {
        let out = &context.out;
        if let Event::RunState { state, .. } = event
            && !state.is_terminal()
        {
            out.progress(format!("{}  run {}", out.time(at), state.as_str()));
        }
        let Event::NodeState { node, state, visit, attempt, error, .. } = event else { return };
        let tone = match state {
            NodeState::Succeeded => Tone::Good,
            NodeState::Failed | NodeState::Cancelled => Tone::Bad,
            NodeState::Pending | NodeState::Running | NodeState::AwaitingHuman | NodeState::Skipped => Tone::Dim,
        };
        let word = out.paint(tone, node_word(*state));
        let mut line = format!("{}  {node} {word}  visit {visit} attempt {attempt}", out.time(at));
        if *state == NodeState::Running {
            self.entered.insert(node.clone(), at);
        } else if let Some(entered) = self.entered.get(node) {
            let took = u64::try_from(at.millis().saturating_sub(entered.millis())).unwrap_or_default();
            line.push_str(&format!("  {}", duration(took)));
        }
        if let Some(error) = error {
            line.push_str(&format!("  {}", first_line(error)));
        }
        out.progress(line);
    }
}

fn live_line(view: &RunView, elapsed: Duration) -> String {
    let at = view.current_node.as_deref().unwrap_or("-");
    let ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
    format!("{}  {}  {}  ${:.4}  at {at}", view.run_id, view.state.as_str(), duration(ms), view.cost_usd)
}

/// The last words about a run that ended.
fn ended(context: &Context, view: &RunView) -> u8 {
    if context.out.json() {
        context.out.document(&serde_json::json!(view));
    } else {
        summary(context, view);
    }
    if view.state == RunState::Completed { 0 } else { EXIT_RED }
}

/// Outcome, reason, evidence and cost in words.
pub(crate) fn summary(context: &Context, view: &RunView) {
    let outcome = match view.outcome {
        Some(RunOutcome::Verified) => context.out.paint(Tone::Good, "verified"),
        Some(RunOutcome::Refuted) => context.out.paint(Tone::Bad, "REFUTED"),
        Some(RunOutcome::Unverified) | None => context.out.paint(Tone::Dim, "unchecked"),
    };
    let reason = view.outcome_reason.as_deref().map_or(String::new(), |r| format!(": {r}"));
    context.out.line(format!("run {} {}, {outcome}{reason}", view.run_id, view.state.as_str()));
    if let Some(error) = &view.error {
        context.out.line(format!("error: {error}"));
    }
    if view.evidence_id.is_some() {
        context.out.line(format!("evidence: clawo verify {}", view.run_id));
    }
    if let Some(branch) = &view.workspace_branch {
        context.out.line(format!("branch: {branch}"));
    }
    let about = if view.spend.estimated { " (partly estimated)" } else { "" };
    context.out.line(format!("cost: ${:.4}{about}, {} turns", view.cost_usd, view.spend.turns));
}

/// A wait that ended before the run did.
fn left(context: &Context, view: &RunView, status: u8, why: &str) -> u8 {
    let back = format!("clawo workflow resume {} --wait", view.run_id);
    context.out.line(format!("{why}; run {} is left resumable, go on with: {back}", view.run_id));
    if context.out.json() {
        context.out.document(&serde_json::json!({
            "runId": view.run_id, "state": view.state, "waiting": why, "next": back,
        }));
    }
    status
}

/// Resolves on Ctrl-C or a request to end.
pub(crate) fn interruption() -> Pin<Box<dyn Future<Output = ()> + Send>> {
    use tokio::signal::unix::{SignalKind, signal};
    Box::pin(async {
        match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
            (Ok(mut interrupt), Ok(mut terminate)) => {
                tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            }
            // Without handlers the default action of the signals ends the process.
            (Err(_), _) | (_, Err(_)) => std::future::pending().await,
        }
    })
}

/// The word for a node's state.
pub(crate) fn node_word(state: NodeState) -> &'static str {
    match state {
        NodeState::Pending => "pending",
        NodeState::Running => "running",
        NodeState::AwaitingHuman => "awaiting_human",
        NodeState::Succeeded => "succeeded",
        NodeState::Failed => "failed",
        NodeState::Skipped => "skipped",
        NodeState::Cancelled => "cancelled",
    }
}

/// Milliseconds as people read them.
pub(crate) fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

/// The first line of a text that may be long.
pub(crate) fn first_line(text: &str) -> &str {
    text.lines().find(|l| !l.trim().is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        let shown: Vec<String> = [0, 999, 1_250, 61_000, 3_660_000].into_iter().map(duration).collect();
        assert_eq!(shown, ["0 ms", "999 ms", "1.2 s", "1 min 1 s", "1 h 1 min"]);
    }
}
