//! One turn of one agent: slot, budget, clock, reports. Shared by every agent-like node.

use std::{path::PathBuf, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{NodeCtx, Report};
use crate::{
    engines::{ErrorClass, SessionSpec, Sink, TurnEvent, TurnOutcome},
    model::{
        run::{Spend, Waiting},
        spec::EngineChoice,
    },
};

/// Longest text of one progress line, in bytes.
const LINE_MAX: usize = 500;

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
}

/// Takes the turn. When it returns, the agent's whole process tree has ended.
pub async fn take(ctx: &NodeCtx, turn: Turn) -> Done {
    let clean = |ended| Done { ended, unkillable: Vec::new() };
    if let Err(reason) = ctx.budget.begin() {
        return clean(Ended::Exhausted(reason));
    }
    let spec = SessionSpec {
        name: turn.session.clone(),
        choice: turn.choice.clone(),
        cwd: turn.cwd.clone(),
        append_system_prompt: turn.append_system_prompt.clone(),
        max_turns: turn.max_turns,
        max_budget_usd: turn.max_budget_usd,
        resume: turn.resume.clone(),
        run_env: ctx.attempt.run_env.clone(),
    };
    let opened = open(ctx, spec).await;
    let mut session = match opened {
        Ok(session) => session,
        Err(failure) => {
            ctx.budget.settle(&Spend::default());
            let stopped = ctx.cancel.is_cancelled();
            return clean(if stopped { Ended::Stopped } else { Ended::Failed(failure) });
        }
    };

    let cancel = ctx.cancel.child_token();
    let outcome = {
        let call = session.turn(&turn.message, sink(ctx, turn.who.clone()), cancel.clone());
        let mut call = std::pin::pin!(call);
        tokio::select! {
            outcome = &mut call => Ok(outcome),
            () = tokio::time::sleep(turn.limit) => {
                cancel.cancel();
                // The adapter ends the tree before it returns, so that nothing is left when the next attempt starts.
                Err(call.await)
            }
        }
    };
    let unkillable = session.close().await;
    let (outcome, timed_out) = match outcome {
        Ok(outcome) => (outcome, false),
        Err(outcome) => (outcome, true),
    };
    let mut spend = outcome.spend.clone();
    spend.turns = spend.turns.max(1);
    ctx.budget.settle(&spend);
    ctx.report.send(Report::Cost(spend)).await;
    let ended = if ctx.cancel.is_cancelled() {
        Ended::Stopped
    } else if timed_out {
        Ended::Failed(format!("timeout: no answer within {} ms", turn.limit.as_millis()))
    } else {
        Ended::Answered(Box::new(outcome))
    };
    Done { ended, unkillable }
}

/// Opens a session, reporting the wait for a slot.
async fn open(ctx: &NodeCtx, spec: SessionSpec) -> Result<crate::engines::PooledSession, String> {
    let name = spec.name.clone();
    let waiting = {
        let ctx = ctx.clone();
        move || {
            let since = ctx.now();
            let detail = "every agent session of this machine's limit is in use".to_owned();
            let wait = Waiting { kind: "slot".to_owned(), since, until: None, detail };
            // The queue may be full; a missing line about waiting must not hold up the wait itself.
            let _ = ctx.report.0.try_send(Report::Wait(Some(wait)));
        }
    };
    let mut waited = false;
    let opened = ctx
        .services
        .pool
        .open(spec, ctx.cancel.clone(), || {
            waited = true;
            waiting();
        })
        .await;
    if waited {
        ctx.report.send(Report::Wait(None)).await;
    }
    opened.map_err(|e| match e.class {
        ErrorClass::Interrupted => "stopped while waiting to start".to_owned(),
        ErrorClass::Auth
        | ErrorClass::Quota
        | ErrorClass::Overloaded
        | ErrorClass::ContextOverflow
        | ErrorClass::PermissionDenied
        | ErrorClass::Refused
        | ErrorClass::Timeout
        | ErrorClass::Crashed
        | ErrorClass::Protocol
        | ErrorClass::StartFailed
        | ErrorClass::Other => format!("session '{name}' did not start: {e}"),
    })
}

/// Turns what happens during a turn into progress lines.
fn sink(ctx: &NodeCtx, who: Option<String>) -> Sink {
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
pub fn answered(done: Done) -> Result<(TurnOutcome, Vec<String>), super::NodeResult> {
    use super::{NodeResult, Status};
    let status = match done.ended {
        Ended::Answered(outcome) => return Ok((*outcome, done.unkillable)),
        Ended::Failed(why) => Status::Failed(why),
        Ended::Exhausted(why) => Status::Exhausted(why),
        Ended::Stopped => Status::Stopped,
    };
    Err(NodeResult { status, unkillable: done.unkillable, touched: true, ..NodeResult::default() })
}

/// Why an outcome is no success, in one sentence.
pub fn failure(outcome: &TurnOutcome) -> String {
    match &outcome.error {
        Some(error) => error.to_string(),
        None => "the engine ended the turn without success".to_owned(),
    }
}

/// A token that never fires, for work that must not be cut off.
pub fn never() -> CancellationToken {
    CancellationToken::new()
}
