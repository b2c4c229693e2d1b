//! Taking a run over for writing, after putting right what a crash may have left. The order of the steps is
//! what makes it safe to be cut anywhere, any number of times.

use std::{path::Path, sync::Arc};

use super::{
    Error, Result,
    claim::{FileClaim, Opened},
    layout, lease, line,
    load::{self, Incarnation, Verified},
    scan::{self, Damage, Entry, Scan},
    shared::Shared,
};
use crate::{
    model::RunId,
    sys::{Fs, FsAppend, FsError, FsFile, FsLock, fs::remove_tree, fs::write_atomic},
};

/// Copies of bad bytes kept under one name before no further one is made.
const COPIES_MAX: u32 = 100;

/// Takes a run over.
pub(super) fn claim(shared: &Arc<Shared>, run: &RunId) -> Result<FileClaim> {
    shared.writable()?;
    shared.must_be_run(run)?;
    let dir = shared.layout.run(run);
    let lock = lock(shared, run)?;
    let opened = open(shared, run, &dir, lock).map_err(|e| {
        let gone = matches!(&e, Error::Io(io) if io.is_not_found()) && !shared.is_run(run).unwrap_or(true);
        if gone { Error::NotFound(run.clone()) } else { shared.noticing_full_disk(e) }
    })?;
    Ok(FileClaim::new(Arc::clone(shared), run.clone(), opened))
}

/// Takes the owner's lock; whoever holds it, on this host or by heartbeat on another, keeps it.
pub(super) fn lock(shared: &Shared, run: &RunId) -> Result<Box<dyn FsLock>> {
    let path = shared.layout.run(run).join(layout::LOCK);
    let tries = if shared.holds(run) { 1 } else { lease::LOCK_TRIES };
    let held = match lease::take(shared, &path, tries, |lock| lock) {
        Err(Error::Io(e)) if e.is_not_found() => return Err(Error::NotFound(run.clone())),
        other => other?,
    };
    let found = match &held {
        Some(_) => lease::read(shared, run)?,
        None => lease::of_holder(shared, run)?,
    };
    match held {
        Some(lock) if !found.is_foreign_and_fresh(shared) => Ok(lock),
        Some(_) | None => Err(found.owned(run)),
    }
}

/// Recovers the log and adds the fence.
fn open(shared: &Shared, run: &RunId, dir: &Path, lock: Box<dyn FsLock>) -> Result<Opened> {
    let fs = shared.fs.as_ref();
    // Names made before a crash and only seen in the cache must be on disk before anything builds on them.
    fs.sync_dir(shared.layout.wf())?;
    fs.sync_dir(dir)?;
    let incarnation = load::incarnation(shared, run)?;
    let path = dir.join(layout::LOG);
    let bytes = fs.read(&path)?;
    let found = match load::checked(&bytes, &incarnation.incarnation_id) {
        Ok(found) => found,
        Err(damage) => {
            keep_bad(shared, dir, &bytes, &damage);
            return Err(load::damaged(run, damage));
        }
    };
    remove_tree(fs, &dir.join(layout::TEMP))?;
    let mut log = fs.open_write(&path)?;
    let last = settle(shared, dir, &bytes, &found, log.as_mut())?;
    let mut log = fs.open_append(&path)?;
    let (last, len, lease) = fence(shared, &incarnation, log.as_mut(), &last, found.end)?;
    shared.replace(&shared.temp(&dir.join(layout::TEMP))?, &dir.join(layout::LEASE), &lease.to_bytes())?;
    remember(shared, run, &path, &incarnation, &last);
    let (log_id, _) = log.stat()?;
    Ok(Opened { log, log_id, lock, last, len, incarnation, lease })
}

/// Cuts a torn end off and makes the last good line certain, and with it what follows and does not count.
///
/// After a failed sync the cache can show a line that is not on disk. Writing the same bytes in its place makes
/// them dirty again; cutting the line and adding it anew could lose it if this is cut in between. A line that does
/// not count can be such a one too, and would leave a hole before whatever is added after it.
fn settle(shared: &Shared, dir: &Path, bytes: &[u8], found: &Scan, log: &mut dyn FsFile) -> Result<Entry> {
    let last = *found.entries.last().ok_or_else(no_line)?;
    let len = bytes.len() as u64;
    if found.torn {
        let name = format!("events.torn-{}", last.seq + 1);
        keep(shared.fs.as_ref(), dir, &name, scan::slice(bytes, 0, found.end, len))?;
        log.set_len(found.end)?;
    }
    log.write_at(last.start, scan::slice(bytes, 0, last.start, found.end))?;
    log.sync()?;
    Ok(last)
}

/// The scan of a log without a line is an error before this is reached.
fn no_line() -> Error {
    let why = std::io::Error::new(std::io::ErrorKind::InvalidData, "the log has no whole line");
    Error::Io(crate::sys::FsError::new("recover", layout::LOG, why))
}

/// Adds the line that shuts out every earlier owner.
fn fence(
    shared: &Shared,
    incarnation: &Incarnation,
    log: &mut dyn FsAppend,
    last: &Entry,
    end: u64,
) -> Result<(Entry, u64, lease::Lease)> {
    let ts = shared.clock.wall();
    let (seq, epoch) = (last.seq + 1, last.epoch + 1);
    let lease = shared.new_lease(&incarnation.incarnation_id, epoch, ts);
    let line = line::encode(seq, epoch, ts, last.crc, &[lease.fence()])
        .map_err(|bytes| Error::TooLarge { bytes, limit: line::LINE_MAX })?;
    log.append(&line.bytes)?;
    log.sync()?;
    let len = end + line.bytes.len() as u64;
    if log.stat()?.1 != len {
        // The next claim reads what there is and puts its own fence behind it.
        let why = std::io::Error::new(std::io::ErrorKind::ResourceBusy, "another writer added to it meanwhile");
        return Err(Error::Io(FsError::new("take over", shared.layout.wf(), why)));
    }
    Ok((Entry { seq, epoch, crc: line.crc, start: end, end: len, number: last.number + 1, ts }, len, lease))
}

/// The whole log was verified just now.
fn remember(shared: &Shared, run: &RunId, path: &Path, incarnation: &Incarnation, last: &Entry) {
    if let Ok(meta) = shared.fs.metadata(path) {
        let incarnation = incarnation.incarnation_id.clone();
        shared.note_verified(run, Verified { incarnation, last: *last, len: meta.len, mtime_ns: meta.mtime_ns });
    }
}

/// Keeps a copy of a damaged line beside the log. The log itself is left alone; failing to copy changes nothing.
fn keep_bad(shared: &Shared, dir: &Path, bytes: &[u8], damage: &Damage) {
    let bad = scan::slice(bytes, 0, damage.start, damage.end.max(damage.start));
    if let Err(e) = keep(shared.fs.as_ref(), dir, &format!("events.bad-{}", damage.number), bad) {
        tracing::warn!(error = %e, "the damaged bytes could not be copied");
    }
}

/// Keeps bytes under a name, durably. What was kept before stays; equal bytes are kept once.
pub(super) fn keep(fs: &dyn Fs, dir: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    for copy in 1..=COPIES_MAX {
        let path = if copy == 1 { dir.join(name) } else { dir.join(format!("{name}.{copy}")) };
        match fs.read(&path) {
            // Its name may be one that a failed sync left in the cache alone.
            Ok(there) if there == bytes => return Ok(fs.sync_dir(dir)?),
            Ok(_) => {}
            Err(e) if e.is_not_found() => return Ok(write_atomic(fs, &path, bytes)?),
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}
