//! A turn of a named session: its clock, its orders, what is kept of it.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    SessionError, TurnView,
    actor::{Actor, FLUSH, flush, stop_of},
    handoff::Turn,
    shared::{TurnJob, locked},
};
use crate::{
    engines::{EngineError, ErrorClass, Listener, Message, Order, Orders, Sink, TurnEvent, TurnOutcome, TurnRequest},
    model::Code,
    sys::tasks,
};

/// How long an interrupted turn has to end by itself before the program is ended: the engines' own limit is shorter.
const INTERRUPT_WAIT: Duration = Duration::from_secs(15);
/// Most texts given back of one turn, and their bytes together.
const CHUNKS_MAX: usize = 500;
const CHUNK_BYTES_MAX: usize = 40_000;

/// Takes the turn.
pub(super) async fn take(actor: &mut Actor, job: TurnJob) -> Result<TurnView, SessionError> {
    actor.admit()?;
    let deadline = Instant::now() + job.timeout;
    actor.opened(deadline).await?;
    let redactor = Arc::clone(&actor.hub.redactor);
    actor.shared.log(actor.hub.clock.wall(), Some(&job.id), "message", redactor.text(&job.message));

    let chunks: Option<Arc<Mutex<Chunks>>> = job.chunks.then(Arc::default);
    let listener = listener(chunks.clone(), job.sink.clone());
    let sink = actor.sink(Some(job.id.clone()), listener);
    let block = locked(&actor.shared.live).block.clone();
    let text = block.map_or_else(|| job.message.clone(), |block| format!("{block}\n\n{}", job.message));
    let (outcome, timed_out) = follow(actor, &job, &text, sink, deadline).await;

    if actor.shared.stop.is_cancelled() && !outcome.ok {
        account(actor, Some(&job.id), &outcome).await;
        return Err(SessionError::stopped(&actor.shared.name));
    }
    account(actor, Some(&job.id), &outcome).await;
    if outcome.ok {
        sent(actor).await;
    }
    if outcome.ok || !outcome.text.is_empty() {
        let request = redactor.text(&job.message);
        remember(actor, request, redactor.text(&outcome.text)).await;
    }
    if !actor.session.as_ref().is_some_and(crate::engines::PooledSession::alive) {
        actor.close().await;
    }
    if timed_out {
        let text = format!("the turn did not end within {} ms and was interrupted", job.timeout.as_millis());
        let mut error = SessionError::new(Code::TurnTimeout, text);
        error.details = Some(serde_json::json!({ "turnId": job.id, "output": outcome.text }));
        return Err(error);
    }
    let mut view = view(&job.id, outcome);
    view.chunks = chunks.map(|c| std::mem::take(&mut locked(&c).texts));
    view.warnings = std::mem::take(&mut locked(&actor.shared.live).warnings);
    Ok(view)
}

/// Follows the turn to its end; whether it had to be interrupted because its time was over.
async fn follow(actor: &mut Actor, job: &TurnJob, text: &str, sink: Sink, deadline: Instant) -> (TurnOutcome, bool) {
    let (orders, mut taken) = Orders::channel();
    *locked(&actor.shared.orders) = Some(orders.clone());
    let cancel = stop_of(&actor.shared);
    let (hub, shared) = (Arc::clone(&actor.hub), Arc::clone(&actor.shared));
    let Some(session) = &mut actor.session else {
        return (TurnOutcome::failed(EngineError::new(ErrorClass::Crashed, "the session is closed")), false);
    };
    let message = Message { text, effort: job.effort.as_deref(), plan: job.plan, command: false };
    let request = TurnRequest { message, sink: Listener(sink), cancel: cancel.clone(), orders: &mut taken };
    let mut timed_out = false;
    let mut limit = deadline;
    let outcome = {
        let turn = session.take(request);
        tokio::pin!(turn);
        let mut flush_at = tokio::time::interval(FLUSH);
        loop {
            tokio::select! {
                biased;
                outcome = &mut turn => break outcome,
                () = tokio::time::sleep_until(limit) => {
                    if timed_out {
                        // It was asked to end and did not.
                        cancel.cancel();
                    } else if orders.try_send(Order::Interrupt).is_err() {
                        cancel.cancel();
                    }
                    timed_out = true;
                    limit = Instant::now() + INTERRUPT_WAIT;
                }
                _ = flush_at.tick() => flush(&hub, &shared).await,
            }
        }
    };
    *locked(&shared.orders) = None;
    // A reply that came just before its interruption is a reply.
    let timed_out = timed_out && !outcome.ok;
    (outcome, timed_out)
}

/// What the agent says on the way.
#[derive(Debug, Default)]
struct Chunks {
    texts: Vec<String>,
    bytes: usize,
}

fn listener(chunks: Option<Arc<Mutex<Chunks>>>, other: Option<Sink>) -> Option<Sink> {
    if chunks.is_none() && other.is_none() {
        return None;
    }
    Some(Arc::new(move |event: TurnEvent| {
        if let (Some(chunks), TurnEvent::Text(text)) = (&chunks, &event) {
            let mut chunks = locked(chunks);
            chunks.bytes = chunks.bytes.saturating_add(text.len());
            if chunks.texts.len() < CHUNKS_MAX && chunks.bytes <= CHUNK_BYTES_MAX {
                chunks.texts.push(text.clone());
            }
        }
        if let Some(other) = &other {
            other(event);
        }
    }))
}

/// Takes a turn into the session's account and writes down what a later process needs.
pub(super) async fn account(actor: &mut Actor, turn_id: Option<&str>, outcome: &TurnOutcome) {
    let now = actor.hub.clock.wall();
    let confirmed = {
        let mut live = locked(&actor.shared.live);
        let record = &mut live.record;
        let stats = &mut record.stats;
        stats.turns = stats.turns.saturating_add(1);
        stats.turns_succeeded = stats.turns_succeeded.saturating_add(u64::from(outcome.ok));
        stats.tool_calls = stats.tool_calls.saturating_add(u64::from(outcome.tool_calls));
        stats.tool_errors = stats.tool_errors.saturating_add(u64::from(outcome.tool_errors));
        stats.usage = stats.usage.plus(outcome.usage.unwrap_or_default());
        record.spent_usd += outcome.spend.cost_usd;
        record.last_activity = now;
        record.counted = outcome.counted.or(record.counted);
        if record.model.is_none() {
            record.model.clone_from(&outcome.model);
        }
        // Only an id that the engine stated in a turn is one that it can go on with.
        let confirmed = outcome.native_id.is_some() && outcome.native_id != record.native_id;
        if confirmed {
            record.native_id.clone_from(&outcome.native_id);
        }
        confirmed
    };
    let ended = match &outcome.error {
        None => "done".to_owned(),
        Some(e) => actor.hub.redactor.text(&e.to_string()),
    };
    actor.shared.log(now, turn_id, "turn_end", ended);
    actor.record();
    if confirmed {
        // Its caller may rely on it from now on, whatever becomes of this process.
        actor.hub.save().await;
    }
}

/// Keeps what was said, for a handoff.
pub(super) async fn remember(actor: &mut Actor, request: String, reply: String) {
    let turn = Turn { at: actor.hub.clock.wall(), request, reply };
    let (fs, shared) = (Arc::clone(&actor.hub.fs), Arc::clone(&actor.shared));
    let kept = tasks::blocking("session transcript", move || {
        let mut transcript = locked(&shared.transcript);
        match &shared.dir {
            Some(dir) => transcript.add(fs.as_ref(), dir, turn),
            None => {
                transcript.hold(turn);
                Ok(())
            }
        }
    });
    if let Ok(Err(e)) = kept.await {
        tracing::warn!(session = actor.shared.name, error = %e, "a turn is missing in the transcript on disk");
    }
}

/// The history that was carried over has arrived.
async fn sent(actor: &mut Actor) {
    if locked(&actor.shared.live).block.take().is_some()
        && let Some(dir) = actor.shared.dir.clone()
    {
        let fs = Arc::clone(&actor.hub.fs);
        let removed = tasks::blocking("handoff", move || fs.remove_file(&dir.join(super::start::BLOCK_FILE))).await;
        if let Ok(Err(e)) = removed
            && !e.is_not_found()
        {
            tracing::warn!(error = %e, "a delivered history stays on disk");
        }
    }
}

/// The turn as its caller sees it.
pub(super) fn view(turn_id: &str, outcome: TurnOutcome) -> TurnView {
    let (error, class, retry_at) = match outcome.error {
        Some(e) => (Some(e.message), Some(e.class), e.retry_at),
        None => (None, None, None),
    };
    TurnView {
        ok: outcome.ok,
        turn_id: turn_id.to_owned(),
        output: outcome.text,
        session_id: outcome.native_id,
        error,
        error_class: class,
        retry_at,
        permission_denials: outcome.permission_denials,
        read_only_violations: outcome.read_only_violations,
        usage: outcome.usage,
        cost_usd: outcome.spend.cost_usd,
        cost_source: outcome.cost_source,
        tool_calls: outcome.tool_calls,
        tool_errors: outcome.tool_errors,
        duration_ms: outcome.duration_ms,
        chunks: None,
        warnings: Vec::new(),
    }
}
