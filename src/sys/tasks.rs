//! Background tasks with a name. Nothing is spawned elsewhere.

use std::future::Future;

use tokio::task::JoinHandle;

/// Starts a background task. `name` says what it is in logs; a panic in it is logged and ends only it.
#[expect(clippy::disallowed_methods, reason = "the one place that spawns tasks")]
pub fn spawn<F>(name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    tracing::trace!(task = name, "start");
    tokio::spawn(future)
}
