//! Background tasks with a name. Nothing is spawned elsewhere.

use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use tokio::task::JoinHandle;

/// Starts a background task. `name` says what it is in logs; a panic in it is logged and ends only it.
#[expect(clippy::disallowed_methods, reason = "the one place that spawns tasks")]
pub fn spawn<F>(name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tracing::trace!(task = name, "start");
    let mut future = Box::pin(future);
    // Logged here and passed on: most handles are dropped, and then nobody else would ever know.
    tokio::spawn(poll_fn(move |context| {
        catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))).unwrap_or_else(|panic| report(name, panic))
    }))
}

/// Runs blocking work on a thread of its own. Logged like a task.
pub fn blocking<F, R>(name: &'static str, work: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    tracing::trace!(task = name, "start blocking");
    tokio::task::spawn_blocking(move || {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| report(name, panic))
    })
}

fn report(name: &'static str, panic: Box<dyn Any + Send>) -> ! {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(task = name, reason = text.unwrap_or("unknown"), "background task panicked");
    resume_unwind(panic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_only_its_task() {
        let bad = spawn("bad", async { panic!("on purpose") }).await;
        assert!(bad.unwrap_err().is_panic());
        assert!(blocking("bad", || panic!("on purpose")).await.unwrap_err().is_panic());
        assert_eq!(spawn("good", async { 1 }).await.unwrap() + blocking("good", || 2).await.unwrap(), 3);
    }
}
