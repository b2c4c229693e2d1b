//! The one way a run changes: a batch is committed, then folded into a copy that replaces the record.

use std::sync::Arc;

use tokio::sync::watch;

use super::state;
use crate::{
    model::{Event, RunRecord, WorkflowSpec, run::ArtifactRef, run::OutputText},
    nodes::prompt::cut,
    store::{self, Claim},
    sys::tasks,
};

/// Text kept in the log itself, in bytes; longer text is an artifact with its beginning in the log.
pub(super) const INLINE_MAX: usize = 1024;
/// Longest error text in the log, in bytes.
pub(super) const ERROR_MAX: usize = 4096;

/// Writes one run.
#[derive(Debug)]
pub(super) struct Writer {
    /// What the run executes.
    pub(super) spec: Arc<WorkflowSpec>,
    /// The record after the last commit.
    pub(super) record: Arc<RunRecord>,
    /// The right to write; absent only while a call uses it on the blocking pool, and after it was lost.
    claim: Option<Box<dyn Claim>>,
    /// Tells waiters.
    publish: watch::Sender<Arc<RunRecord>>,
}

impl Writer {
    /// A writer over a claimed run.
    pub(super) fn new(spec: Arc<WorkflowSpec>, record: RunRecord, claim: Box<dyn Claim>) -> Self {
        let record = Arc::new(record);
        let (publish, _) = watch::channel(record.clone());
        Self { spec, record, claim: Some(claim), publish }
    }

    /// Follows the record.
    pub(super) fn watch(&self) -> watch::Receiver<Arc<RunRecord>> {
        self.publish.subscribe()
    }

    /// Which creation of the id this is.
    pub(super) fn incarnation(&self) -> String {
        self.claim.as_ref().map(|c| c.incarnation().to_owned()).unwrap_or_default()
    }

    /// Uses the claim on the blocking pool. After an error nothing works until the run is claimed again.
    pub(super) async fn with<T, F>(&mut self, work: F) -> store::Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn Claim) -> store::Result<T> + Send + 'static,
    {
        let run = self.record.run_id.clone();
        let mut claim = self.claim.take().ok_or(store::Error::Poisoned(run.clone()))?;
        let joined = tasks::blocking("store", move || {
            let result = work(claim.as_mut());
            (claim, result)
        })
        .await;
        let Ok((claim, result)) = joined else { return Err(store::Error::Poisoned(run)) };
        self.claim = Some(claim);
        result
    }

    /// Commits a batch and folds it in.
    pub(super) async fn commit(&mut self, events: Vec<Event>) -> store::Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let values: Vec<serde_json::Value> = events.iter().filter_map(|e| serde_json::to_value(e).ok()).collect();
        let (seq, at, due) =
            self.with(move |claim| claim.commit(&values).map(|(seq, at)| (seq, at, claim.checkpoint_due()))).await?;
        let mut after = (*self.record).clone();
        state::apply_batch(&mut after, &self.spec, seq, at, &events);
        self.record = Arc::new(after);
        let moved = events.iter().any(|e| matches!(e, Event::RunState { state, .. } if state.is_terminal()));
        self.publish.send_replace(self.record.clone());
        if moved || due {
            self.checkpoint().await;
        }
        Ok(())
    }

    /// Caches the record for readers.
    pub(super) async fn checkpoint(&mut self) {
        let record = self.record.clone();
        // Losing the cache costs readers time only, and the next commit meets whatever is wrong with the disk.
        let _ = self
            .with(move |claim| {
                if let Ok(text) = serde_json::to_string(record.as_ref()) {
                    claim.checkpoint(&text);
                }
                Ok(())
            })
            .await;
    }

    /// Shows waiters a state that is not on the log (waiting for storage).
    pub(super) fn show(&self, record: RunRecord) {
        self.publish.send_replace(Arc::new(record));
    }

    /// Keeps text: short in place, long as an artifact with its beginning in place.
    pub(super) async fn keep(&mut self, path: String, text: String) -> store::Result<OutputText> {
        if text.len() <= INLINE_MAX {
            return Ok(OutputText { text, file: None });
        }
        let (head, _) = cut(&text, INLINE_MAX);
        let head = head.to_owned();
        let file = self.put(path, text.into_bytes()).await?;
        Ok(OutputText { text: head, file: Some(file) })
    }

    /// Stores an artifact.
    pub(super) async fn put(&mut self, path: String, bytes: Vec<u8>) -> store::Result<ArtifactRef> {
        self.with(move |claim| claim.put_artifact(&path, &bytes)).await
    }

    /// Gives up a claim that no longer works, and its lock with it.
    pub(super) fn drop_claim(&mut self) {
        self.claim = None;
    }

    /// Goes on with a run that was opened again.
    pub(super) fn replace(&mut self, opened: super::recovery::Opened) {
        self.claim = Some(opened.claim);
        self.record = Arc::new(opened.record);
        self.publish.send_replace(self.record.clone());
    }

    /// Lets go of the run.
    pub(super) async fn release(mut self) {
        self.checkpoint().await;
        if let Some(claim) = self.claim.take() {
            // The lock goes with the claim either way; a lease left behind is for people only.
            let _ = tasks::blocking("release", move || claim.release()).await;
        }
    }
}
