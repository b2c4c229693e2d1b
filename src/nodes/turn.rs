//! One turn of one agent: slot, budget, clock, reports. Shared by every agent-like node.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{NodeCtx, Report, Stop, prompt};
use crate::{
    engines::{
        ErrorClass, PoolError, PooledSession, SessionOptions, SessionSpec, Sink, TurnEvent, TurnLabels, TurnOutcome,
    },
    model::{
        Time,
        run::{Spend, Waiting},
        spec::{EngineChoice, SandboxMode},
    },
};

/// Longest text of one progress line, in bytes.
const LINE_MAX: usize = 500;

/// Waits for a quota in a row before the failure is passed on.
pub(super) const QUOTA_WAITS_MAX: u64 = 5;
/// Why an agent never worked whose node was wound down before.
pub const ABORTED: &str = "aborted before start";
/// Longest pause between two looks at the clock while a quota is waited for.
const QUOTA_LOOK: Duration = Duration::from_secs(1);
/// Added to a stated reset, because clocks differ and everybody waits for the same second.
const QUOTA_MARGIN_MS: i64 = 1500;

/// A turn to be taken.
#[derive(Debug)]
pub struct Turn {
    /// Name of the session.
    pub session: String,
    /// Shown in progress lines when several agents work at once.
    pub who: Option<String>,
    /// Who answers.
    pub choice: EngineChoice,
    /// Directory.
    pub cwd: PathBuf,
    /// What else was chosen for the session.
    pub options: SessionOptions,
    /// Further variables for its processes.
    pub env: Vec<(String, String)>,
    /// What is said.
    pub message: String,
    /// Text added to the system prompt.
    pub append_system_prompt: Option<String>,
    /// Most model calls.
    pub max_turns: Option<u32>,
    /// Cap in US dollars.
    pub max_budget_usd: Option<f64>,
    /// Conversation to go on with.
    pub resume: Option<String>,
    /// Wall-clock limit, counted from the moment a slot is free.
    pub limit: Duration,
}

/// How a turn ended.
#[derive(Debug)]
pub enum Ended {
    /// The engine answered, well or not.
    Answered(Box<TurnOutcome>),
    /// It never began or was cut off by its limit.
    Failed(String),
    /// A bound of the run forbids it.
    Exhausted(String),
    /// Stopped from outside.
    Stopped,
}

/// What is left of a turn.
#[derive(Debug)]
pub struct Done {
    /// How it ended.
    pub ended: Ended,
    /// Processes that could not be ended.
    pub unkillable: Vec<String>,
    /// What it used; reported already.
    pub spend: Spend,
}

/// Takes the turn. When it returns, the agent's whole process tree has ended.
///
/// A quota parks the turn until it is over and burns no attempt; the waits are on the record, so that a
/// restart goes on with the one that was under way.
pub async fn take(ctx: &NodeCtx, turn: Turn) -> Done {
    // The number of the attempt grows with every crash, so neither the name nor what is kept depends on it.
    let key = format!("quota:{}", turn.who.as_deref().unwrap_or("agent"));
    let failures = ctx.attempt.failures;
    let kept = ctx.attempt.parts.get(&key).map(|(data, _)| data.clone());
    let kept = kept.filter(|data| data.get("failures").and_then(Value::as_u64) == Some(failures.into()));
    let kept = kept.unwrap_or_default();
    let mut waits = kept.get("waits").and_then(Value::as_u64).unwrap_or(0);
    let mut until = kept.get("until").and_then(|v| serde_json::from_value::<Time>(v.clone()).ok());
    let mut asked = kept.get("askedMs").and_then(Value::as_u64);
    let mut stopped = kept.get("stopped").and_then(|v| serde_json::from_value::<Stopped>(v.clone()).ok());
    let (mut unkillable, mut spend) = (Vec::new(), Spend::default());
    loop {
        if let Some(until) = until.take()
            && !wait_until(ctx, until, asked, &turn.session, ("quota", "the engine's quota is used up")).await
        {
            return Done { ended: Ended::Stopped, unkillable, spend };
        }
        let mut done = once(ctx, &turn, stopped.as_ref()).await;
        unkillable.append(&mut done.unkillable);
        spend.cost_usd += done.spend.cost_usd;
        let quota = match &done.ended {
            Ended::Answered(outcome) => {
                let quota = outcome.error.as_ref().filter(|e| e.class == ErrorClass::Quota);
                quota.map(|e| (e.retry_at, outcome.native_id.clone()))
            }
            Ended::Failed(_) | Ended::Exhausted(_) | Ended::Stopped => None,
        };
        match quota {
            Some((retry_at, native_id)) if waits < QUOTA_WAITS_MAX => {
                let now = ctx.now();
                let due = quota_due(now, waits, retry_at);
                waits += 1;
                until = Some(due);
                asked = u64::try_from(due.millis().saturating_sub(now.millis())).ok();
                stopped = native_id.filter(|_| resumes(ctx, &turn.choice)).map(|id| Stopped::now(ctx, id));
                let data = json!({
                    "failures": failures, "waits": waits, "until": due, "askedMs": asked, "stopped": stopped,
                });
                ctx.report.send(Report::Part { key: key.clone(), data, text: None }).await;
            }
            _ => return Done { ended: done.ended, unkillable, spend },
        }
    }
}

/// A conversation that a quota stopped and that can be gone on with.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stopped {
    /// The engine's id of it.
    native_id: String,
    /// Corrections it was told.
    steers: Vec<String>,
}

impl Stopped {
    fn now(ctx: &NodeCtx, native_id: String) -> Self {
        Self { native_id, steers: ctx.attempt.steers.iter().map(|s| s.id.clone()).collect() }
    }

    /// What is said to go on with it.
    fn message(&self, ctx: &NodeCtx) -> String {
        let new: Vec<_> = ctx.attempt.steers.iter().filter(|s| !self.steers.contains(&s.id)).cloned().collect();
        prompt::go_on(&new)
    }
}

/// Whether the engine that answers can go on with an earlier conversation.
fn resumes(ctx: &NodeCtx, choice: &EngineChoice) -> bool {
    ctx.services.pool.registry().resolve(choice).is_ok_and(|engine| engine.capabilities().resume)
}

/// When a turn is tried again: the stated time and a little more, or 1, 2, 4 ... 15 minutes.
pub(super) fn quota_due(now: Time, waits: u64, stated: Option<Time>) -> Time {
    match stated {
        Some(at) => at.max(now).plus_millis(QUOTA_MARGIN_MS),
        None => now.plus_millis((60_000_i64 << waits.min(4)).min(900_000)),
    }
}

/// Waits on the record until `until`, for what `wait` says in a word and a sentence, and no longer than was asked
/// for; false when stopped meanwhile.
pub(super) async fn wait_until(ctx: &NodeCtx, until: Time, asked: Option<u64>, who: &str, wait: (&str, &str)) -> bool {
    let report = |waiting| Report::Wait { who: who.to_owned(), waiting };
    let (kind, detail) = (wait.0.to_owned(), wait.1.to_owned());
    let waiting = Waiting { kind, since: ctx.now(), until: Some(until), detail };
    ctx.report.send(report(Some(waiting))).await;
    let left = || {
        let ms = until.millis().saturating_sub(ctx.now().millis());
        Duration::from_millis(u64::try_from(ms).unwrap_or(0))
    };
    let clock = &ctx.services.clock;
    // A clock set back stretches nothing: what is left now, by boot time, is the most.
    let end = clock.boot() + left().min(asked.map_or(Duration::MAX, Duration::from_millis));
    loop {
        let left = left().min(end.saturating_sub(clock.boot()));
        if left.is_zero() {
            ctx.report.send(report(None)).await;
            return true;
        }
        tokio::select! {
            () = ctx.cancel.cancelled() => return false,
            // Looked at again and again, because the wall clock may be set meanwhile.
            () = tokio::time::sleep(left.min(QUOTA_LOOK)) => {}
        }
    }
}

/// One try of the turn.
async fn once(ctx: &NodeCtx, turn: &Turn, stopped: Option<&Stopped>) -> Done {
    let clean = |ended| Done { ended, unkillable: Vec::new(), spend: Spend::default() };
    let reserved = match ctx.budget.begin().await {
        Ok(reserved) => reserved,
        Err(reason) => return clean(Ended::Exhausted(reason)),
    };
    let mut options = turn.options.clone();
    options.add_dirs.extend(writable(ctx, turn).await);
    let spec = |resume: Option<&String>| SessionSpec {
        name: turn.session.clone(),
        choice: turn.choice.clone(),
        cwd: turn.cwd.clone(),
        append_system_prompt: turn.append_system_prompt.clone(),
        max_turns: turn.max_turns,
        max_budget_usd: turn.max_budget_usd,
        resume: resume.cloned(),
        run_env: ctx.attempt.run_env.iter().chain(&turn.env).cloned().collect(),
        options: options.clone(),
        labels: Some(labels(ctx)),
    };
    let mut message = turn.message.clone();
    let mut opened = match stopped {
        Some(stopped) => {
            message = stopped.message(ctx);
            open(ctx, spec(Some(&stopped.native_id))).await
        }
        None => open(ctx, spec(turn.resume.as_ref())).await,
    };
    if stopped.is_some() && opened.as_ref().is_err_and(|e| e.class() == ErrorClass::Other) {
        // The engine no longer has the conversation, so the work starts over.
        ctx.report.log("warn", "the conversation that the quota stopped is gone; the turn starts over".to_owned());
        message.clone_from(&turn.message);
        opened = open(ctx, spec(turn.resume.as_ref())).await;
    }
    let mut session = match opened {
        Ok(session) => session,
        Err(e) => {
            let failure = if ctx.wind_down.is_cancelled() {
                ABORTED.to_owned()
            } else {
                format!("session '{}' did not start: {e}", turn.session)
            };
            return clean(if ctx.cancel.is_cancelled() { Ended::Stopped } else { Ended::Failed(failure) });
        }
    };
    let cancel = ctx.cancel.child_token();
    let (outcome, timed_out) = {
        let mut call = std::pin::pin!(session.turn(&message, sink(ctx, turn.who.clone()), cancel.clone()));
        tokio::select! {
            outcome = &mut call => (Some(outcome), false),
            () = tokio::time::sleep(turn.limit) => {
                cancel.cancel();
                // The adapter ends the tree before it returns, so nothing is left when the next attempt starts.
                (Some(call.await), true)
            }
            () = superseded(ctx) => (None, false),
        }
    };
    let Some(outcome) = outcome else {
        // Another process works on the run, in the same directory: there is no time for an orderly end.
        session.abandon();
        return clean(Ended::Stopped);
    };
    let unkillable = session.close().await;
    let mut spend = outcome.spend.clone();
    let quota = outcome.error.as_ref().is_some_and(|e| e.class == ErrorClass::Quota);
    spend.turns = if quota { 0 } else { spend.turns.max(1) };
    reserved.settle(&spend);
    ctx.report.send(Report::Cost(spend.clone())).await;
    let ended = if ctx.cancel.is_cancelled() {
        Ended::Stopped
    } else if timed_out {
        Ended::Failed(format!("timeout: no answer within {} ms", turn.limit.as_millis()))
    } else {
        Ended::Answered(Box::new(outcome))
    };
    Done { ended, unkillable, spend }
}

/// Where the agent must be able to write to commit, when it works in a worktree of ours and its engine keeps git's
/// folder from being written.
async fn writable(ctx: &NodeCtx, turn: &Turn) -> Vec<PathBuf> {
    let engine = ctx.services.registry.resolve(&turn.choice);
    let guarded = engine.is_ok_and(|engine| engine.guards_git());
    if !guarded || turn.options.sandbox == Some(SandboxMode::ReadOnly) {
        return Vec::new();
    }
    match ctx.services.git.open(&turn.cwd).await {
        Ok(Some(repo)) => repo.writable_for_commits().await.unwrap_or_default(),
        Ok(None) | Err(_) => Vec::new(),
    }
}

/// What the turn belongs to.
pub(super) fn labels(ctx: &NodeCtx) -> TurnLabels {
    let node = &ctx.attempt.node;
    TurnLabels {
        parent: Some(ctx.attempt.run_id.to_string()),
        node: Some(node.id.to_string()),
        node_kind: Some(node.kind.name().to_owned()),
        task_kind: None,
        capped: ctx.budget.bounds_money(),
    }
}

/// Waits until another process has taken the run over.
pub(super) async fn superseded(ctx: &NodeCtx) {
    ctx.cancel.cancelled().await;
    if ctx.stop.get() != Some(&Stop::Superseded) {
        std::future::pending::<()>().await;
    }
}

/// Opens a session, reporting the wait for a slot.
pub(super) async fn open(ctx: &NodeCtx, spec: SessionSpec) -> Result<PooledSession, PoolError> {
    let name = spec.name.clone();
    let waited = AtomicBool::new(false);
    let on_wait = |_| {
        waited.store(true, Ordering::Relaxed);
        let detail = "every agent session of this machine's limit is in use".to_owned();
        let wait = Waiting { kind: "slot".to_owned(), since: ctx.now(), until: None, detail };
        // The queue may be full; a missing line about waiting must not hold up the wait itself.
        ctx.report.offer(Report::Wait { who: name.clone(), waiting: Some(wait) });
    };
    // Whoever still waits when nothing new may begin does not begin.
    let opening = ctx.cancel.child_token();
    let opened = {
        let mut open = std::pin::pin!(ctx.services.pool.open(spec, opening.clone(), on_wait));
        tokio::select! {
            biased;
            () = ctx.wind_down.cancelled() => {
                opening.cancel();
                open.await
            }
            opened = &mut open => opened,
        }
    };
    if waited.load(Ordering::Relaxed) {
        ctx.report.send(Report::Wait { who: name.clone(), waiting: None }).await;
    }
    opened
}

/// Turns what happens during a turn into progress lines.
pub(super) fn sink(ctx: &NodeCtx, who: Option<String>) -> Sink {
    let report = ctx.report.clone();
    let redactor = ctx.services.redactor.clone();
    std::sync::Arc::new(move |event| {
        let (level, text) = match event {
            TurnEvent::Text(text) => ("info", text),
            TurnEvent::ToolCall { name, summary } => ("info", format!("{name}: {summary}")),
            TurnEvent::ToolResult { is_error: true } => ("info", "a tool call failed".to_owned()),
            TurnEvent::ToolResult { is_error: false } => return,
            TurnEvent::Retry(text) | TurnEvent::Note(text) => ("warn", text),
        };
        let text = match &who {
            Some(who) => format!("[{who}] {text}"),
            None => text,
        };
        let text = redactor.text(&text);
        let (line, cut) = super::prompt::cut(&text, LINE_MAX);
        report.log(level, if cut { format!("{line}…") } else { line.to_owned() });
    })
}

/// Ends that are not a plain answer, as a node status; `Ok` is the outcome to look at.
pub fn answered(done: Done) -> Result<(TurnOutcome, Vec<String>), Box<super::NodeResult>> {
    use super::{NodeResult, Status};
    let status = match done.ended {
        Ended::Answered(outcome) => return Ok((*outcome, done.unkillable)),
        Ended::Failed(why) => Status::Failed(why),
        Ended::Exhausted(why) => Status::Exhausted(why),
        Ended::Stopped => Status::Stopped,
    };
    Err(Box::new(NodeResult { status, unkillable: done.unkillable, touched: true, ..NodeResult::default() }))
}

/// What an outcome that is no success makes of its node. What would be refused the same way is not tried again.
pub fn failed(outcome: &TurnOutcome) -> super::Status {
    let why = failure(outcome);
    if hopeless(outcome) { super::Status::Hopeless(why) } else { super::Status::Failed(why) }
}

/// Whether the same turn would be refused again: the engine could not log in, or a cap is used up.
pub fn hopeless(outcome: &TurnOutcome) -> bool {
    outcome.error.as_ref().is_some_and(|e| matches!(e.class, ErrorClass::Auth | ErrorClass::BudgetExceeded))
}

/// Why an outcome is no success, in one sentence.
pub fn failure(outcome: &TurnOutcome) -> String {
    match &outcome.error {
        Some(error) => error.to_string(),
        None => "the engine ended the turn without success".to_owned(),
    }
}
