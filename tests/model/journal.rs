//! What is certainly on the log of every run, watched batch by batch, and the rules that every batch must keep.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use claw_orchestrator::{
    model::{Event, NodeState, RunId, RunOutcome, RunState},
    store::Line,
    sys::Clock,
};
use serde_json::Value;

use crate::{clock::ModelClock, script::Context};

/// One node of a run, as far as the log says.
#[derive(Debug, Clone, Default)]
pub struct Standing {
    pub state: NodeState,
    pub visit: u32,
    pub attempt: u32,
    pub failures: u32,
    /// The batch that made the attempt current.
    pub begun: u64,
    /// Members of a fan-out that succeeded in this visit.
    pub done: Vec<String>,
    /// Who of it has waited for a quota in this visit.
    pub waited: Vec<String>,
    /// When the next attempt is due in true milliseconds, and how long that was to be waited for.
    pub due: Option<(u64, u64)>,
}

/// A correction on the log.
#[derive(Debug, Clone)]
pub struct Correction {
    pub text: String,
    pub seq: u64,
    pub applied: bool,
}

/// One run.
#[derive(Debug, Default)]
pub struct Run {
    pub nodes: BTreeMap<String, Standing>,
    pub state: RunState,
    pub steers: BTreeMap<String, Correction>,
    pub turns: u64,
    /// Turns and US dollars of child runs as last told, part of the two others.
    children: BTreeMap<RunId, (u64, f64)>,
    pub cost: f64,
    /// The open gate, its visit and when it opened, in true milliseconds.
    pub gate: Option<(String, u32, u64)>,
    /// What decides how the agents of this run behave.
    pub context: Context,
    seq: u64,
    /// Batches that were acknowledged.
    pub batches: Vec<(u64, Vec<Value>)>,
    /// Most times one node may be entered.
    pub max_visits: u32,
    /// When its state last changed, in true milliseconds.
    pub ended_ms: u64,
    /// When its lease was renewed, in true milliseconds.
    pub beats: Vec<u64>,
}

#[derive(Debug, Default)]
struct State {
    runs: BTreeMap<RunId, Run>,
    wrong: Vec<String>,
    /// When each attempt of each node began, in true milliseconds.
    starts: Vec<(String, u64)>,
}

/// Everything that was committed, over all lives.
#[derive(Debug, Clone)]
pub struct Journal {
    state: Arc<Mutex<State>>,
    clock: Arc<ModelClock>,
}

impl Journal {
    pub fn new(clock: Arc<ModelClock>) -> Self {
        Self { state: Arc::default(), clock }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Notes a broken rule.
    pub fn wrong(&self, what: String) {
        self.state().wrong.push(what);
    }

    /// The first broken rules.
    pub fn rules(&self) -> Result<(), String> {
        let wrong = &self.state().wrong;
        if wrong.is_empty() { Ok(()) } else { Err(wrong[..wrong.len().min(5)].join("; ")) }
    }

    /// Looks at a run.
    pub fn with<T>(&self, run: &RunId, look: impl FnOnce(&Run) -> T) -> Option<T> {
        self.state().runs.get(run).map(look)
    }

    /// Runs that were made.
    pub fn runs(&self) -> Vec<RunId> {
        self.state().runs.keys().cloned().collect()
    }

    /// An agent of an attempt was asked.
    pub fn started(&self, what: String) {
        let now = self.clock.ms();
        self.state().starts.push((what, now));
    }

    /// A lease was renewed.
    pub fn beat(&self, run: &RunId) {
        let now = self.clock.ms();
        self.state().runs.entry(run.clone()).or_default().beats.push(now);
    }

    /// When agents were asked.
    pub fn starts(&self) -> Vec<(String, u64)> {
        self.state().starts.clone()
    }

    /// A run was made, or taken over with a fence up to `seq`.
    pub fn taken(&self, run: &RunId, seq: u64, first: Option<(&[Value], &Value)>) {
        let mut state = self.state();
        let mut context = Context::default();
        if let Some((events, spec)) = first {
            for event in events {
                if let Ok(Event::RunCreated { parent: Some(parent), .. }) = serde_json::from_value(event.clone())
                    && let Some(node) = &parent.node
                    && let Some(above) = state.runs.get(&parent.run_id)
                    && let Some(standing) = above.nodes.get(node.as_str())
                {
                    context = above.context.below(node.as_str(), standing.visit, standing.failures);
                }
            }
            let max_visits = spec["maxNodeVisits"].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(50);
            let made = Run { context, max_visits, ..Run::default() };
            if state.runs.insert(run.clone(), made).is_some() {
                state.wrong.push(format!("{run} was made twice"));
            }
        }
        let State { runs, wrong, .. } = &mut *state;
        let known = runs.entry(run.clone()).or_default();
        if seq <= known.seq {
            wrong.push(format!("{run} was taken at {seq}, after batch {}", known.seq));
        }
        known.seq = seq;
        if let Some((events, _)) = first {
            // Without the fence that the store puts before them.
            known.batches.push((seq, events.to_vec()));
        }
    }

    /// A batch is on the log.
    pub fn committed(&self, run: &RunId, seq: u64, events: &[Value]) {
        let mut state = self.state();
        let State { runs, wrong, .. } = &mut *state;
        let known = runs.entry(run.clone()).or_default();
        if seq != known.seq + 1 {
            wrong.push(format!("{run}: batch {seq} after {}", known.seq));
        }
        known.seq = seq;
        known.batches.push((seq, events.to_vec()));
        for value in events {
            if known.state.is_terminal() {
                wrong.push(format!("{run} changed after its end: {value}"));
            }
            if let Ok(event) = serde_json::from_value(value.clone()) {
                known.take(run, seq, &self.clock, &event, wrong);
            }
        }
    }

    /// What is stored equals what was acknowledged: every batch is there, with one number each and no gap.
    pub fn compare(&self, run: &RunId, lines: &[Line]) -> Result<(), String> {
        let state = self.state();
        let Some(known) = state.runs.get(run) else { return Err(format!("{run} was never made")) };
        let mut epoch = 0;
        for (index, line) in lines.iter().enumerate() {
            if line.seq != index as u64 + 1 {
                return Err(format!("{run}: line {} has number {}", index + 1, line.seq));
            }
            if line.epoch < epoch {
                return Err(format!("{run}: line {} goes back to owner {}", line.seq, line.epoch));
            }
            epoch = line.epoch;
        }
        for (seq, events) in &known.batches {
            let stored = lines.get(usize::try_from(*seq).unwrap() - 1).map(|l| l.events.as_slice()).unwrap_or_default();
            if !stored.windows(events.len().max(1)).any(|part| part == events) {
                return Err(format!("{run}: batch {seq} was acknowledged and is not on the log"));
            }
        }
        Ok(())
    }
}

impl Run {
    fn take(&mut self, run: &RunId, seq: u64, clock: &ModelClock, event: &Event, wrong: &mut Vec<String>) {
        let now = clock.ms();
        match event {
            Event::NodeState { node, state, visit, attempt, failures, .. } => {
                let max = self.max_visits;
                let known = self.nodes.entry(node.to_string()).or_default();
                let place = format!("{run}: {node} v{visit}a{attempt}");
                if *visit != known.visit {
                    if *visit != known.visit + 1 || *state != NodeState::Running {
                        wrong.push(format!("{place}: entered after visit {}", known.visit));
                    }
                    if known.state == NodeState::Running || *visit > max {
                        wrong.push(format!("{place}: entered from {:?} at most {max}", known.state));
                    }
                    *known = Standing { visit: *visit, ..Standing::default() };
                } else if !matches!(known.state, NodeState::Running | NodeState::AwaitingHuman) {
                    wrong.push(format!("{place}: {state:?} although the visit had ended as {:?}", known.state));
                }
                if *attempt < known.attempt || *failures < known.failures || *failures > known.failures + 1 {
                    wrong.push(format!("{place}: attempt {} with {} failures before", known.attempt, known.failures));
                }
                if let Some((due, asked)) = known.due.filter(|_| *state == NodeState::Running) {
                    // Set forward, the clock says that it is due. Set back, it says that more is left: a process
                    // that goes on waiting knows better, the next one waits as long as was asked at most.
                    let more = if clock.jumps() > 0 { asked } else { 0 };
                    let on_time = due.max(clock.born_ms() + more);
                    if now < due && !clock.was_set_forward() {
                        wrong.push(format!("{place}: begun {} ms before it was due", due - now));
                    }
                    if now > on_time && clock.strict() {
                        wrong.push(format!("{place}: begun {} ms after it was due", now - on_time));
                    }
                }
                known.state = *state;
                known.attempt = *attempt;
                known.failures = *failures;
                known.begun = seq;
                known.due = None;
                let running = self.nodes.values().filter(|n| n.state == NodeState::Running).count();
                if running > 1 {
                    wrong.push(format!("{place}: {running} nodes are running"));
                }
            }
            Event::NodeData { node, key, data } => {
                let known = self.nodes.entry(node.to_string()).or_default();
                if let (Some(member), Some(true)) = (key.strip_prefix("agent:"), data["ok"].as_bool()) {
                    known.done.push(member.to_owned());
                }
                if let Some(who) = key.strip_prefix("quota:") {
                    known.waited.push(if who == "agent" { String::new() } else { who.to_owned() });
                }
            }
            Event::RetryScheduled { node, retry_at, .. } => {
                let wait = u64::try_from(retry_at.millis().saturating_sub(clock.wall().millis())).unwrap_or(0);
                self.nodes.entry(node.to_string()).or_default().due = Some((now + wait, wait));
            }
            Event::RunState { state, outcome, reason, .. } => {
                self.state = *state;
                self.ended_ms = now;
                if state.is_terminal() && (outcome.is_none() || reason.is_none()) {
                    wrong.push(format!("{run} ended as {state:?} without a word why"));
                }
                if *state == RunState::Cancelled && *outcome != Some(RunOutcome::Unverified) {
                    wrong.push(format!("{run} was cancelled and is {outcome:?}"));
                }
            }
            Event::Gate { gate } => self.gate = gate.as_ref().map(|g| (g.node.to_string(), g.visit, now)),
            Event::Steer { steer } => {
                let known = Correction { text: steer.text.clone(), seq, applied: false };
                if self.steers.insert(steer.id.clone(), known).is_some() {
                    wrong.push(format!("{run}: a correction was queued twice"));
                }
            }
            Event::SteerApplied { ids, .. } => {
                for id in ids {
                    match self.steers.get_mut(id) {
                        Some(known) => known.applied = true,
                        None => wrong.push(format!("{run}: an unknown correction was followed")),
                    }
                }
            }
            Event::Cost { spend, .. } => {
                self.turns += spend.turns;
                self.cost += spend.cost_usd;
            }
            Event::ChildCost { child_run_id, spend, .. } => {
                let known = self.children.entry(child_run_id.clone()).or_default();
                self.turns += spend.turns.saturating_sub(known.0);
                self.cost += (spend.cost_usd - known.1).max(0.0);
                *known = (known.0.max(spend.turns), known.1.max(spend.cost_usd));
            }
            Event::RunCreated { .. }
            | Event::Fence { .. }
            | Event::NodeOutput { .. }
            | Event::Inject { .. }
            | Event::InjectTaken { .. }
            | Event::WindDown
            | Event::WorkDir { .. }
            | Event::Verdict { .. }
            | Event::Evidence { .. }
            | Event::Vote { .. }
            | Event::Wait { .. }
            | Event::Child { .. }
            | Event::Snapshot { .. }
            | Event::Unkillable { .. }
            | Event::Log { .. } => {}
        }
    }
}
