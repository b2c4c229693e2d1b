//! A turn, tried again while the provider is busy: the same for every shape of session.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Boxed, EngineError, ErrorClass, Message, Order, Orders, Sink, TurnEvent, TurnOutcome, TurnRequest, process::Limits,
};

/// Sent instead of the message when an interrupted piece of work is to go on.
const GO_ON: &str =
    "The last request failed on a temporary error of the provider. Go on with the task from where it stopped.";

/// A session as this sees it.
pub(crate) trait Tries: Send {
    /// One try.
    fn attempt<'a>(
        &'a mut self,
        message: &'a Message<'a>,
        sink: &'a Sink,
        cancel: &'a CancellationToken,
        orders: &'a mut Orders,
    ) -> Boxed<'a, TurnOutcome>;
    /// Cancelled between two tries: nothing of it may run afterwards.
    fn give_up(&mut self) -> Boxed<'_, ()>;
    /// Whether another try can be made.
    fn can_go_on(&self) -> bool;
    /// Its clocks.
    fn limits(&self) -> Limits;
    /// An error that names the engine.
    fn error(&self, class: ErrorClass, text: &str) -> EngineError;
}

/// The turn, with all its tries as one outcome.
pub(crate) async fn turn(session: &mut dyn Tries, request: TurnRequest<'_>) -> TurnOutcome {
    let TurnRequest { message, sink, cancel, orders } = request;
    let sink = sink.0;
    let begun = Instant::now();
    let limits = session.limits();
    let mut outcome = session.attempt(&message, &sink, &cancel, orders).await;
    let mut wait = limits.busy_backoff;
    for again in 1..=limits.busy_retries {
        if outcome.error.as_ref().map(|e| e.class) != Some(ErrorClass::Overloaded) || !session.can_go_on() {
            break;
        }
        sink(TurnEvent::Retry(format!("the provider is busy; trying again in {} s ({again})", wait.as_secs_f32())));
        tokio::select! {
            () = cancel.cancelled() => {
                session.give_up().await;
                outcome.error = Some(session.error(ErrorClass::Interrupted, "cancelled"));
                break;
            }
            order = orders.next() => {
                // Nothing is under way that could be interrupted or take more.
                refuse(order);
                outcome.error = Some(session.error(ErrorClass::Interrupted, "interrupted"));
                break;
            }
            () = tokio::time::sleep(wait) => {}
        }
        wait = wait.saturating_mul(2);
        // Work that was under way is not begun a second time.
        let go_on = Message { text: GO_ON, ..message };
        let message = if outcome.tool_calls > 0 { &go_on } else { &message };
        let next = session.attempt(message, &sink, &cancel, orders).await;
        outcome = joined(outcome, next);
    }
    outcome.duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    outcome
}

fn refuse(order: Order) {
    match order {
        Order::Interrupt => {}
        Order::Steer { done, .. } => {
            let error = EngineError::new(ErrorClass::Other, "no turn is under way; send the text as a message");
            let _ = done.send(Err(error));
        }
    }
}

/// Two tries, or two turns of one piece of work, as one turn.
pub(crate) fn joined(first: TurnOutcome, then: TurnOutcome) -> TurnOutcome {
    let mut denials = first.permission_denials;
    denials.extend(then.permission_denials);
    let mut spend = then.spend;
    spend.cost_usd += first.spend.cost_usd;
    spend.turns = spend.turns.saturating_add(first.spend.turns);
    spend.tokens_in = spend.tokens_in.saturating_add(first.spend.tokens_in);
    spend.tokens_out = spend.tokens_out.saturating_add(first.spend.tokens_out);
    spend.estimated |= first.spend.estimated;
    let usage = match (first.usage, then.usage) {
        (Some(a), Some(b)) => Some(a.plus(b)),
        (a, b) => a.or(b),
    };
    TurnOutcome {
        spend,
        usage,
        permission_denials: denials,
        tool_calls: first.tool_calls.saturating_add(then.tool_calls),
        tool_errors: first.tool_errors.saturating_add(then.tool_errors),
        cost_source: then.cost_source.or(first.cost_source),
        counted: then.counted.or(first.counted),
        model: then.model.or(first.model),
        ..then
    }
}

/// Until the given moment; never without one.
pub(crate) async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
