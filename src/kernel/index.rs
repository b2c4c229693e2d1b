//! Listing runs without reading what did not change.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use super::{Error, Inner, ListQuery, Result, recovery, view::ListEntry, view::ListPage};
use crate::{
    model::{Code, RunId, RunState},
    store::{self, Listed},
    sys::tasks,
};

/// Most runs on one page.
const PAGE_MAX: usize = 500;
/// Runs on a page where nothing is said.
const PAGE_DEFAULT: usize = 25;

/// What is known about runs that were read before, by their stamp.
#[derive(Debug, Default)]
pub(super) struct Index(Mutex<HashMap<RunId, (u128, ListEntry)>>);

/// One page of runs, newest first.
pub(super) async fn list(kernel: &Arc<Inner>, query: ListQuery) -> Result<ListPage> {
    let limit = if query.limit == 0 { PAGE_DEFAULT } else { query.limit.min(PAGE_MAX) };
    let inner = kernel.clone();
    tasks::blocking("list", move || page(&inner, &query, limit)).await.map_err(|e| super::internal(&e))?
}

fn page(kernel: &Inner, query: &ListQuery, limit: usize) -> Result<ListPage> {
    let listed = kernel.store.list().map_err(|e| super::store_error(&e))?;
    let begin = match &query.cursor {
        None => 0,
        Some(cursor) => match position(&listed, cursor) {
            Some(at) => at,
            None => {
                return Err(Error::new(Code::InvalidArgument, "cursor: not one of a former page; list from the start"));
            }
        },
    };
    let mut runs = Vec::new();
    let mut next_cursor = None;
    for run in listed.iter().skip(begin) {
        let entry = entry(kernel, run);
        let named = query.workflow.as_ref().is_none_or(|name| *name == entry.workflow);
        let stands = query.state.is_none_or(|state| entry.state == Some(state));
        if !named || !stands {
            continue;
        }
        if runs.len() == limit {
            next_cursor = Some(cursor_of(&run.run_id, run));
            break;
        }
        runs.push(entry);
    }
    kernel.index.forget_missing(&listed);
    Ok(ListPage { runs, next_cursor })
}

/// A cursor names the first run of the next page and its creation, so that a deleted one can still be placed.
fn cursor_of(run: &RunId, listed: &Listed) -> String {
    format!("{}:{run}", listed.created_at.millis())
}

fn position(listed: &[Listed], cursor: &str) -> Option<usize> {
    let (created, run) = cursor.split_once(':')?;
    let created: i64 = created.parse().ok()?;
    let exact = listed.iter().position(|l| l.run_id.as_str() == run);
    exact.or_else(|| Some(listed.iter().position(|l| l.created_at.millis() < created).unwrap_or(listed.len())))
}

/// What a listing says about one run.
fn entry(kernel: &Inner, listed: &Listed) -> ListEntry {
    if let Some(known) = kernel.index.known(listed) {
        return known;
    }
    let entry = match kernel.store.load(&listed.run_id) {
        Ok(loaded) => match recovery::fold(kernel.store.as_ref(), &listed.run_id, &loaded) {
            Ok((_, record)) => ListEntry {
                run_id: record.run_id.clone(),
                workflow: record.workflow.clone(),
                state: Some(record.state),
                outcome: record.outcome,
                created_at: record.created_at,
                updated_at: record.updated_at,
                current_node: record.current_node.as_ref().map(ToString::to_string),
                cost_usd: record.spend.cost_usd,
                live: loaded.live,
                interrupted: !loaded.live && !record.state.is_terminal() && record.state != RunState::AwaitingHuman,
                damaged: None,
                parent: record.parent.as_ref().map(|p| p.run_id.clone()),
            },
            Err(e) => damaged(listed, &e),
        },
        Err(e) => damaged(listed, &e),
    };
    // Whether a run is live changes without a trace in its files, so only ended and damaged ones are kept.
    if entry.damaged.is_some() || entry.state.is_some_and(RunState::is_terminal) {
        kernel.index.keep(listed, &entry);
    }
    entry
}

fn damaged(listed: &Listed, error: &store::Error) -> ListEntry {
    ListEntry {
        run_id: listed.run_id.clone(),
        workflow: String::new(),
        state: None,
        outcome: None,
        created_at: listed.created_at,
        updated_at: listed.created_at,
        current_node: None,
        cost_usd: 0.0,
        live: false,
        interrupted: false,
        damaged: Some(error.to_string()),
        parent: None,
    }
}

impl Index {
    fn known(&self, listed: &Listed) -> Option<ListEntry> {
        let map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        map.get(&listed.run_id).filter(|(stamp, _)| *stamp == listed.stamp).map(|(_, entry)| entry.clone())
    }

    fn keep(&self, listed: &Listed, entry: &ListEntry) {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        map.insert(listed.run_id.clone(), (listed.stamp, entry.clone()));
    }

    /// Forgets deleted runs once they make up a good part of what is kept.
    fn forget_missing(&self, listed: &[Listed]) {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if map.len() > listed.len() + 64 {
            let there: std::collections::HashSet<&RunId> = listed.iter().map(|l| &l.run_id).collect();
            map.retain(|run, _| there.contains(run));
        }
    }
}
