//! Listing: every run, newest first, reading only what changed since the last time.
//!
//! Marks of the file system say what changed. The directory of the runs gets a new time of change with every name
//! that comes or goes; while it stands, nothing else is looked at. A run's own directory gets one with every file that
//! comes or goes in it, and a run made anew under its id has a directory of its own; while it stands, the run is not
//! read again. Before an id can be made anew the run is deleted through the trash, whose time of change tells that; so
//! runs with an id of our own making, which nobody chooses, are not even looked at while the trash stands.
//!
//! Times of change are coarse: two changes within one tick, a few milliseconds on Linux and up to two seconds
//! elsewhere, carry the same time. What was read within [`GRAIN`] of its last change is therefore read again.

use std::{
    cmp::Ordering,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{Listed, Result, layout, load, shared::Shared};
use crate::{
    model::{RunId, Time},
    sys::{Kind, Meta, fs::FileId},
};

/// No file system in use counts its times of change more coarsely.
const GRAIN: Duration = Duration::from_secs(2);

/// What listings of this process know.
#[derive(Debug, Default)]
pub(super) struct Index(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Runs, newest first, as they were last read.
    runs: Vec<Arc<Listed>>,
    /// Every name that could be a run, sorted, by what was found there.
    names: Vec<Entry>,
    runs_seen: Option<Seen>,
    trash_seen: Option<Seen>,
}

/// A time of change of a directory.
#[derive(Debug, Clone, Copy)]
struct Seen {
    mtime_ns: i128,
    /// When it was first seen, since boot. Not compared with the time itself: the file system may be another
    /// machine's.
    since: Duration,
    /// Whether its names were read long enough after that for every later change to show.
    settled: bool,
}

/// What stood at a name.
#[derive(Debug, Clone)]
struct Entry {
    what: What,
    id: FileId,
    mtime_ns: i128,
    /// Whether it was read long enough after its last change for every later one to show.
    settled: bool,
}

#[derive(Debug, Clone)]
enum What {
    Run(Arc<Listed>),
    /// Labelled evidence or a stray file.
    Other(RunId),
}

impl Entry {
    fn name(&self) -> &RunId {
        match &self.what {
            What::Run(listed) => &listed.run_id,
            What::Other(name) => name,
        }
    }
}

impl Index {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    /// What is known now that a directory shows this time; the names are read after it.
    fn after(before: Option<Self>, meta: &Meta, now: Duration) -> Self {
        match before.filter(|seen| seen.mtime_ns == meta.mtime_ns) {
            Some(seen) => Self { settled: now.saturating_sub(seen.since) >= GRAIN, ..seen },
            None => Self { mtime_ns: meta.mtime_ns, since: now, settled: false },
        }
    }

    /// Whether a directory shows the time it had when everything in it was known.
    fn stands(seen: Option<Self>, meta: &Meta) -> bool {
        seen.is_some_and(|seen| seen.settled && seen.mtime_ns == meta.mtime_ns)
    }
}

/// Every run, newest first. A damaged run is listed like any other; loading it tells.
pub(super) fn list(shared: &Shared) -> Result<Vec<Arc<Listed>>> {
    // Held all along: a second caller finds what the first one read.
    let mut known = shared.index.lock();
    let Some(runs) = directory(shared, shared.layout.wf())? else {
        *known = Known::default();
        return Ok(Vec::new());
    };
    if Seen::stands(known.runs_seen, &runs) {
        return Ok(known.runs.clone());
    }
    let now = shared.clock.boot();
    let trash = directory(shared, &shared.layout.trash())?;
    let undeleted = trash.as_ref().is_some_and(|trash| Seen::stands(known.trash_seen, trash));
    let runs_seen = Seen::after(known.runs_seen, &runs, now);
    let trash_seen = trash.map(|trash| Seen::after(known.trash_seen, &trash, now));
    // Whatever fails from here on, the next listing reads again.
    (known.runs_seen, known.trash_seen) = (None, None);
    let names = shared.fs.list(shared.layout.wf())?;
    let mut entries = Vec::with_capacity(names.len());
    let mut before = known.names.iter().peekable();
    for name in names {
        let Some(name) = name.to_str() else { continue };
        while before.next_if(|entry| entry.name().as_str() < name).is_some() {}
        let former = before.next_if(|entry| entry.name().as_str() == name);
        match former {
            Some(former) if undeleted && former.settled && is_our_own(name) => entries.push(former.clone()),
            Some(former) => entries.extend(look(shared, former.name(), Some(former), runs.mtime_ns)?),
            None => {
                let Ok(run) = RunId::parse(name) else { continue };
                entries.extend(look(shared, &run, None, runs.mtime_ns)?);
            }
        }
    }
    let listed = entries.iter().filter_map(|entry| match &entry.what {
        What::Run(listed) => Some(listed.clone()),
        What::Other(_) => None,
    });
    let mut listed: Vec<Arc<Listed>> = listed.collect();
    listed.sort_by(|a, b| newest_first(a, b));
    *known = Known { runs: listed.clone(), names: entries, runs_seen: Some(runs_seen), trash_seen };
    Ok(listed)
}

fn newest_first(a: &Listed, b: &Listed) -> Ordering {
    (b.created_at, &b.run_id).cmp(&(a.created_at, &a.run_id))
}

/// A directory itself, which may have been moved with a link left in its place. `None` when nothing is there.
fn directory(shared: &Shared, path: &Path) -> Result<Option<Meta>> {
    let meta = shared.fs.metadata(path).and_then(|meta| match meta.kind {
        Kind::Symlink => shared.fs.metadata(&shared.fs.canonicalize(path)?),
        Kind::Dir | Kind::File | Kind::Other => Ok(meta),
    });
    match meta {
        Ok(meta) => Ok(Some(meta)),
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Whether an id begins as those do that are made here: a day, a time, and a random word somewhere after them.
/// Ids that callers choose or that come from an idempotency key are made anew with good reason.
fn is_our_own(name: &str) -> bool {
    let mut parts = name.split(['-', '.']);
    let digits =
        |part: Option<&str>, len| part.is_some_and(|p| p.len() == len && p.bytes().all(|b| b.is_ascii_digit()));
    digits(parts.next(), 8)
        && digits(parts.next(), 6)
        && parts.any(|p| p.len() == 12 && p.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// What stands at a name now; `None` when nothing does. `now_ns` is a time the file system's clock has reached.
fn look(shared: &Shared, run: &RunId, former: Option<&Entry>, now_ns: i128) -> Result<Option<Entry>> {
    let meta = match shared.fs.metadata(&shared.layout.run(run)) {
        Ok(meta) => meta,
        Err(e) if e.is_not_found() => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    if let Some(former) = former.filter(|f| f.settled && (f.id, f.mtime_ns) == (meta.id, meta.mtime_ns)) {
        return Ok(Some(former.clone()));
    }
    let grain = i128::try_from(GRAIN.as_nanos()).unwrap_or(i128::MAX);
    let settled = now_ns.saturating_sub(meta.mtime_ns) >= grain;
    let listed = if meta.kind == Kind::Dir { read(shared, run)? } else { None };
    let what = listed.map_or_else(|| What::Other(run.clone()), What::Run);
    Ok(Some(Entry { what, id: meta.id, mtime_ns: meta.mtime_ns, settled }))
}

/// Reads what a directory is; `None` when it is no run.
fn read(shared: &Shared, run: &RunId) -> Result<Option<Arc<Listed>>> {
    let (created_at, incarnation) = match load::incarnation(shared, run) {
        Ok(found) => (found.created_at, found.incarnation_id),
        // Without its birth a run is damaged; labelled evidence never had one.
        Err(_) if shared.is_label(run)? || !shared.is_taken(run)? => return Ok(None),
        Err(_) => (Time::from_millis(0), String::new()),
    };
    Ok(Some(Arc::new(Listed { run_id: run.clone(), created_at, incarnation })))
}

/// Changes whenever the run does: every commit makes the log longer. `None` when there is no such run.
pub(super) fn stamp(shared: &Shared, run: &RunId) -> Result<Option<u128>> {
    let meta = match shared.fs.metadata(&shared.layout.run(run).join(layout::LOG)) {
        Ok(meta) => meta,
        Err(e) if e.is_not_found() => match shared.fs.metadata(&shared.layout.run(run)) {
            // A run whose log is gone is damaged.
            Ok(meta) if meta.kind == Kind::Dir => meta,
            Ok(_) => return Ok(None),
            Err(e) if e.is_not_found() => return Ok(None),
            Err(e) => return Err(e.into()),
        },
        Err(e) => return Err(e.into()),
    };
    Ok(Some((u128::from(meta.len) << 64) | (meta.mtime_ns.unsigned_abs() & u128::from(u64::MAX))))
}
