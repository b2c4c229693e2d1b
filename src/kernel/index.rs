//! Listing runs without reading what did not change.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Error, Inner, ListQuery, Result, recovery, view::ListEntry, view::ListPage};
use crate::{
    model::{Code, RunId, RunRecord, RunState},
    store::{self, Listed},
    sys::tasks,
};

/// Most runs on one page.
const PAGE_MAX: usize = 500;
/// Runs on a page where nothing is said.
const PAGE_DEFAULT: usize = 25;
/// Looks at a run that moves while it is asked whether anybody executes it.
const LIVE_ROUNDS: u32 = 3;

/// What is known about runs that were read before.
#[derive(Debug, Default)]
pub(super) struct Index(Mutex<HashMap<RunId, Known>>);

/// A run as it was read.
#[derive(Debug)]
struct Known {
    /// Which creation of the id it was, and its stamp then.
    incarnation: String,
    stamp: u128,
    /// Without what changes and leaves no trace in the log: whether somebody executes it.
    entry: ListEntry,
}

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
    let wanted = |entry: &ListEntry| {
        query.workflow.as_ref().is_none_or(|name| *name == entry.workflow)
            && query.state.is_none_or(|state| entry.state == Some(state))
    };
    let mut runs = Vec::new();
    let mut next_cursor = None;
    for run in listed.iter().skip(begin) {
        let Some(entry) = entry(kernel, run, &wanted).map_err(|e| super::store_error(&e))? else { continue };
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

fn position(listed: &[Arc<Listed>], cursor: &str) -> Option<usize> {
    let (created, run) = cursor.split_once(':')?;
    let created: i64 = created.parse().ok()?;
    let exact = listed.iter().position(|l| l.run_id.as_str() == run);
    exact.or_else(|| Some(listed.iter().position(|l| l.created_at.millis() < created).unwrap_or(listed.len())))
}

/// What a listing says about one run, when it is wanted; `None` also when the run was deleted meanwhile.
fn entry(kernel: &Inner, listed: &Listed, wanted: &impl Fn(&ListEntry) -> bool) -> store::Result<Option<ListEntry>> {
    // Its only writer is here, so what it last committed is all there is.
    if let Some(live) = kernel.live.get(&listed.run_id) {
        let entry = of_record(&live.record.borrow(), true);
        return Ok(Some(entry).filter(wanted));
    }
    for round in 1..=LIVE_ROUNDS {
        let Some(stamp) = kernel.store.stamp(&listed.run_id)? else { return Ok(None) };
        let entry = match kernel.index.known(listed, stamp) {
            Some(known) => known,
            None => match read(kernel, listed, stamp)? {
                Some(read) => read,
                None => return Ok(None),
            },
        };
        if !wanted(&entry) {
            return Ok(None);
        }
        let ended = entry.damaged.is_some() || entry.state.is_some_and(RunState::is_terminal);
        let live = kernel.store.is_live(&listed.run_id).or_else(|e| if ended { Ok(false) } else { Err(e) })?;
        // A run that ended and was let go of between the two looks is not one that was interrupted.
        let moved = !live && !ended && kernel.store.stamp(&listed.run_id)? != Some(stamp);
        if !moved || round == LIVE_ROUNDS {
            let parked = entry.state == Some(RunState::AwaitingHuman);
            return Ok(Some(ListEntry { live, interrupted: !live && !ended && !parked, ..entry }));
        }
    }
    Ok(None)
}

/// Reads a run and keeps what was read; `None` when it was deleted meanwhile.
fn read(kernel: &Inner, listed: &Listed, stamp: u128) -> store::Result<Option<ListEntry>> {
    let loaded = kernel.store.load(&listed.run_id);
    let read = loaded.and_then(|loaded| recovery::fold(kernel.store.as_ref(), &listed.run_id, &loaded));
    let entry = match read {
        Ok((_, record)) => of_record(&record, false),
        Err(store::Error::NotFound(_)) => return Ok(None),
        Err(e) => {
            let entry = damaged(listed, &e);
            // Another reason than the run itself may be gone at the next look.
            if !matches!(e, store::Error::Damaged { .. } | store::Error::Malformed { .. }) {
                return Ok(Some(entry));
            }
            entry
        }
    };
    kernel.index.keep(listed, stamp, &entry);
    Ok(Some(entry))
}

fn of_record(record: &RunRecord, live: bool) -> ListEntry {
    ListEntry {
        run_id: record.run_id.clone(),
        workflow: record.workflow.clone(),
        state: Some(record.state),
        outcome: record.outcome,
        created_at: record.created_at,
        updated_at: record.updated_at,
        current_node: record.current_node.as_ref().map(ToString::to_string),
        cost_usd: record.spend.cost_usd,
        live,
        interrupted: false,
        damaged: None,
        parent: record.parent.as_ref().map(|p| p.run_id.clone()),
    }
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
    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, listed: &Listed, stamp: u128) -> Option<ListEntry> {
        let map = self.lock();
        let same = |known: &&Known| known.stamp == stamp && known.incarnation == listed.incarnation;
        map.get(&listed.run_id).filter(same).map(|known| known.entry.clone())
    }

    fn keep(&self, listed: &Listed, stamp: u128, entry: &ListEntry) {
        let known = Known { incarnation: listed.incarnation.clone(), stamp, entry: entry.clone() };
        self.lock().insert(listed.run_id.clone(), known);
    }

    /// Forgets deleted runs once they make up a good part of what is kept.
    fn forget_missing(&self, listed: &[Arc<Listed>]) {
        let mut map = self.lock();
        if map.len() > listed.len() + 64 {
            let there: std::collections::HashSet<&RunId> = listed.iter().map(|l| &l.run_id).collect();
            map.retain(|run, _| there.contains(run));
        }
    }
}
