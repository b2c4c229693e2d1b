//! Councils as callers meet them: found by their ids, shown, started, spoken to and decided on.
//!
//! The rounds are the node's, what becomes of the work is `nodes::council`'s; here ids become runs and nodes.

mod decide;
mod find;
mod start;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::Instant;

use super::{Error, Inner, Kernel, ListQuery, Result, query, view::ListEntry};
use crate::{
    model::{Code, RunOutcome, RunState, Time},
    nodes::council::{
        accept::{AcceptView, Desk, Wish},
        case::Case,
        data::Status,
        disposition::{Disposition, Dispositions},
        refusal::Refusal,
        reject::RejectView,
        review::{ReviewView, review},
        view::{CouncilView, Scope, view},
    },
    sys::tasks,
};

pub use decide::{Aborted, Injected, MESSAGE_MAX};
pub use start::{CouncilDraft, CouncilStarted, MERGE_MESSAGE_MAX};

use find::Located;

/// Bytes of whole replies in one answer; the latest come first.
const TEXTS_MAX: usize = 8 << 20;

/// What of a council is shown, and when.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CouncilQuery {
    /// Whole replies.
    pub full: bool,
    /// Only the replies of this round.
    pub round: Option<u32>,
    /// Wait for a change this long, at most 55 000 ms.
    pub wait_ms: u64,
}

/// A council in a listing.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CouncilEntry {
    /// Its id.
    pub id: String,
    /// Where it stands.
    pub status: Status,
    /// The round that goes on, or the last one.
    pub round: u32,
    /// Outcome of its run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
    /// When its run was made.
    pub created_at: Time,
    /// US dollars.
    pub cost_usd: f64,
    /// Beginning of its task.
    pub task: String,
}

/// One page of councils.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CouncilPage {
    /// Newest first.
    pub councils: Vec<CouncilEntry>,
    /// Pass it as `cursor` to go on; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self { code: refusal.code, message: refusal.message, details: refusal.details }
    }
}

/// The files that tell what became of councils.
fn dispositions(kernel: &Inner) -> Dispositions {
    Dispositions::new(kernel.services.fs.clone(), &kernel.services.config.home)
}

/// What deciding works with.
fn desk<'a>(kernel: &'a Inner, dispositions: &'a Dispositions) -> Desk<'a> {
    Desk {
        git: &kernel.services.git,
        dispositions,
        clock: kernel.services.clock.as_ref(),
        verifier: &kernel.services.verifier,
    }
}

/// What a caller waits for changes of: rounds, replies, words for the next round, state and outcome.
fn standing(case: &Case) -> (usize, usize, usize, bool, usize, RunState, Option<RunOutcome>) {
    let waiting = case.injections.iter().filter(|injection| injection.round.is_none()).count();
    let (starts, replies, ends) = (case.starts.len(), case.replies.len(), case.ends.len());
    (starts, replies, ends, case.ended.is_some(), waiting, case.run_state, case.outcome)
}

impl Kernel {
    /// A council as it stands. Waits, when asked to, until its standing changes. Cancelling the wait never cancels the council.
    pub async fn council_status(&self, id: &str, query: CouncilQuery) -> Result<CouncilView> {
        let mut found = find::find(&self.inner, id).await?;
        let deadline = Instant::now() + Duration::from_millis(query.wait_ms).min(query::WAIT_MAX);
        let before = standing(&found.case);
        // Members say a lot while they work; a caller that waits is told when something came of it.
        while standing(&found.case) == before && found.case.live && !found.case.run_ended() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            query::changed(&self.inner, &found.case.run_id, found.seq, left).await?;
            found = find::find(&self.inner, id).await?;
        }
        shown(&self.inner, &found.case, query).await
    }

    /// Councils that are runs of their own, newest first.
    pub async fn council_list(&self, limit: usize, cursor: Option<String>) -> Result<CouncilPage> {
        let query = ListQuery { workflow: Some(start::WORKFLOW.to_owned()), state: None, limit, cursor };
        let page = self.list(query).await?;
        let mut councils = Vec::new();
        for entry in &page.runs {
            // One that is damaged or just deleted is not worth a failure.
            if let Ok(found) = find::find(&self.inner, entry.run_id.as_str()).await {
                councils.push(entry_of(&self.inner, &found.case, entry).await?);
            }
        }
        Ok(CouncilPage { councils, next_cursor: page.next_cursor })
    }

    /// Starts a council. Nothing exists afterwards when anything about the request is wrong.
    pub async fn council_start(&self, draft: CouncilDraft) -> Result<CouncilStarted> {
        let kernel = self.clone();
        super::whole("start council", async move { start::start(&kernel, draft).await }).await
    }

    /// Ends a council for good; its branches stay.
    pub async fn council_abort(&self, id: &str) -> Result<Aborted> {
        let (inner, id) = (self.inner.clone(), id.to_owned());
        super::whole("abort council", async move { decide::abort(&inner, &id).await }).await
    }

    /// Puts words into the next round.
    pub async fn council_inject(&self, id: &str, message: &str) -> Result<Injected> {
        decide::inject(&self.inner, id, message).await
    }

    /// What a council has made, for whoever decides about it.
    pub async fn council_review(&self, id: &str) -> Result<ReviewView> {
        let Located { case, .. } = find::find(&self.inner, id).await?;
        let chain = find::chain(&self.inner, &case).await;
        let dispositions = dispositions(&self.inner);
        Ok(Box::pin(review(desk(&self.inner, &dispositions), &case, &chain)).await?)
    }

    /// Brings a council's work into the user's branch and removes what the council made.
    pub async fn council_accept(&self, id: &str, wish: Wish) -> Result<AcceptView> {
        let (inner, id) = (self.inner.clone(), id.to_owned());
        super::whole("accept council", async move { decide::accept(&inner, &id, &wish).await }).await
    }

    /// Sends a council's work back.
    pub async fn council_reject(&self, id: &str, feedback: &str) -> Result<RejectView> {
        let (inner, id, feedback) = (self.inner.clone(), id.to_owned(), feedback.to_owned());
        super::whole("reject council", async move { decide::reject(&inner, &id, &feedback).await }).await
    }
}

async fn entry_of(kernel: &Inner, case: &Case, entry: &ListEntry) -> Result<CouncilEntry> {
    let disposition = dispositions(kernel).load(&case.id).await?;
    Ok(CouncilEntry {
        id: case.id.clone(),
        status: disposition.over(case.status()),
        round: case.round(),
        outcome: case.outcome,
        created_at: entry.created_at,
        cost_usd: entry.cost_usd,
        task: case.settings.task.chars().take(200).collect(),
    })
}

/// Shows a council, with whole replies when they are asked for.
async fn shown(kernel: &Arc<Inner>, case: &Case, query: CouncilQuery) -> Result<CouncilView> {
    let disposition: Disposition = dispositions(kernel).load(&case.id).await?;
    let texts = if query.full { texts(kernel, case, query.round).await? } else { BTreeMap::new() };
    Ok(view(case, &disposition, &Scope { round: query.round, texts }))
}

/// Whole texts of replies, the latest first, as long as there is room.
async fn texts(kernel: &Arc<Inner>, case: &Case, round: Option<u32>) -> Result<BTreeMap<(u32, String), String>> {
    let mut found = BTreeMap::new();
    let mut room = TEXTS_MAX;
    let wanted = case.replies.iter().rev().filter(|said| round.is_none_or(|round| round == said.reply.round));
    for said in wanted {
        let Some(text) = &said.text else { continue };
        let text = match &text.file {
            None => text.text.clone(),
            Some(file) if file.bytes > room as u64 => continue,
            Some(file) => {
                let (store, run, path) = (kernel.store.clone(), case.run_id.clone(), file.path.clone());
                let read = tasks::blocking("reply", move || store.read_artifact(&run, &path, 0, TEXTS_MAX)).await;
                let bytes = read.map_err(|e| super::internal(&e))?.map_err(|e| super::store_error(&e))?;
                String::from_utf8_lossy(&bytes).into_owned()
            }
        };
        if text.len() > room {
            continue;
        }
        room -= text.len();
        found.insert((said.reply.round, said.reply.agent.clone()), text);
    }
    Ok(found)
}

/// A refusal of one field.
fn invalid(field: &str, problem: &str) -> Error {
    Error::new(Code::InvalidArgument, format!("{field}: {problem}"))
}
