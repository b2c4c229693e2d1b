//! Tells subscribed hosts that a run changed.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio_util::sync::CancellationToken;

use super::resources::run_of;
use crate::{model::RunId, tools::KernelHandle};

/// Most subscriptions of one connection.
pub const SUBSCRIPTIONS_MAX: usize = 64;
/// Longest single wait for a change.
const WAIT: Duration = Duration::from_secs(60);
/// Least time between two looks, so that a run that ended is not asked in a loop.
const PAUSE: Duration = Duration::from_secs(1);

/// Legacy subscriptions of one connection by address.
#[derive(Debug, Default)]
pub struct Subscriptions(Mutex<HashMap<String, CancellationToken>>);

impl Subscriptions {
    /// Takes the address in; `None` when it is there already or there are too many.
    pub fn add(&self, uri: &str) -> Option<CancellationToken> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.contains_key(uri) || all.len() >= SUBSCRIPTIONS_MAX {
            return None;
        }
        let token = CancellationToken::new();
        all.insert(uri.to_owned(), token.clone());
        Some(token)
    }

    /// Whether the address is subscribed.
    pub fn contains(&self, uri: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(uri)
    }

    /// Ends one.
    pub fn remove(&self, uri: &str) {
        if let Some(token) = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(uri) {
            token.cancel();
        }
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        for token in self.0.lock().unwrap_or_else(PoisonError::into_inner).values() {
            token.cancel();
        }
    }
}

/// Calls `told` after each change of the run until it says no, fails, or `cancel` fires.
pub async fn watch<F, Fut>(kernel: KernelHandle, run: RunId, cancel: CancellationToken, mut told: F)
where
    F: FnMut() -> Fut + Send,
    Fut: Future<Output = bool> + Send,
{
    let Ok(kernel) = kernel.get().await else { return };
    let mut last = None;
    loop {
        let wait = if last.is_none() { Duration::ZERO } else { WAIT };
        let seq = tokio::select! {
            () = cancel.cancelled() => return,
            seq = kernel.changed(&run, last.unwrap_or(0), wait) => seq,
        };
        let Ok(seq) = seq else { return };
        if last.is_some_and(|l| l != seq) && !told().await {
            return;
        }
        last = Some(seq);
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(PAUSE) => {}
        }
    }
}

/// The run a subscribable address belongs to.
pub fn target(uri: &str) -> Option<RunId> {
    run_of(uri)
}
