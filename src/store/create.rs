//! Making a run: complete and durable under a private name first, then visible in one step.

use std::path::Path;

use serde_json::json;

use super::{
    Error, NewRun, Result,
    claim::{FileClaim, Opened},
    home, layout, lease,
    load::Incarnation,
    scan::{Base, Entry},
    shared::Shared,
};
use crate::{
    model::RunId,
    sys::{FsLock, fs::remove_tree, ids},
};

/// Epoch of the creator.
const FIRST_EPOCH: u64 = 1;

/// Creates a run and claims it.
pub(super) fn create(shared: &std::sync::Arc<Shared>, run: &NewRun) -> Result<FileClaim> {
    shared.writable()?;
    if shared.is_taken(&run.run_id)? {
        return Err(Error::Exists(run.run_id.clone()));
    }
    space(shared)?;
    let stage = shared.layout.staging().join(shared.fresh_name());
    let built = build(shared, run, &stage).and_then(|parts| {
        match shared.fs.rename_new(&stage, &shared.layout.run(&run.run_id)) {
            Ok(()) => Ok(parts),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Err(Error::Exists(run.run_id.clone())),
            Err(e) => Err(e.into()),
        }
    });
    let parts = match built {
        Ok(parts) => parts,
        Err(e) => {
            if let Err(left) = remove_tree(shared.fs.as_ref(), &stage) {
                tracing::warn!(error = %left, "a half-made run could not be removed");
            }
            return Err(shared.noticing_full_disk(e));
        }
    };
    // The name is there; whether it lasts is known only after this. An error here leaves the caller to look.
    shared.fs.sync_dir(shared.layout.wf())?;
    shared.fs.sync_dir(&shared.layout.staging())?;
    Ok(FileClaim::new(std::sync::Arc::clone(shared), run.run_id.clone(), parts))
}

/// Refuses to begin something new when space is short; sets the reserve aside again when it is not.
fn space(shared: &Shared) -> Result<()> {
    let free = shared.fs.free_space(shared.layout.wf())?;
    if free < shared.min_free {
        return Err(Error::LowSpace { free, needed: shared.min_free });
    }
    if let Err(e) = home::make_reserve(shared.fs.as_ref(), &shared.layout, shared.min_free) {
        tracing::warn!(error = %e, "no reserve for a full disk could be set aside");
    }
    Ok(())
}

/// Builds the whole directory under its private name.
fn build(shared: &Shared, run: &NewRun, stage: &Path) -> Result<Opened> {
    let fs = shared.fs.as_ref();
    fs.create_dir(stage)?;
    let lock = owner_lock(shared, &run.run_id, stage)?;
    let now = shared.clock.wall();
    let incarnation = Incarnation { incarnation_id: ids::sortable(), created_at: now };
    let lease = shared.new_lease(&incarnation.incarnation_id, FIRST_EPOCH, now);

    let spec = format!("{}\n", run.spec);
    shared.write_synced(&stage.join(layout::SPEC), spec.as_bytes())?;
    let text = format!("{}\n", json!(incarnation));
    shared.write_synced(&stage.join(layout::INCARNATION), text.as_bytes())?;
    let mut known = std::collections::HashSet::new();
    for (path, bytes) in &run.artifacts {
        let below = layout::safe_relative(&run.run_id, path)?;
        let parent = below.parent().unwrap_or(Path::new(""));
        layout::make_dirs(fs, stage, parent, &mut known)?;
        shared.write_synced(&stage.join(&below), bytes)?;
        fs.sync_dir(&stage.join(parent))?;
    }
    let mut events = run.events.clone();
    events.push(lease.fence());
    let base = Base::start(&incarnation.incarnation_id);
    let last = first_line(shared, &stage.join(layout::LOG), base, &events)?;
    let log = fs.open_append(&stage.join(layout::LOG))?;
    let (log_id, _) = log.stat()?;
    fs.create_dir(&stage.join(layout::INBOX))?;
    // Never trusted without proof, so it needs no sync.
    write_plain(shared, &stage.join(layout::LEASE), &lease.to_bytes())?;
    fs.sync_dir(stage)?;
    Ok(Opened { log, log_id, lock, last, len: last.end, incarnation, lease })
}

/// Takes the lock inside the private directory; it stays with the file when the directory is renamed.
fn owner_lock(shared: &Shared, run: &RunId, stage: &Path) -> Result<Box<dyn FsLock>> {
    let held = lease::take(shared, &stage.join(layout::LOCK), lease::LOCK_TRIES, |lock| lock)?;
    held.ok_or_else(|| lease::Found::default().owned(run))
}

/// Writes the first line of a log and syncs it.
fn first_line(shared: &Shared, path: &Path, base: Base, events: &[serde_json::Value]) -> Result<Entry> {
    let ts = shared.clock.wall();
    let line = super::line::encode(1, FIRST_EPOCH, ts, base.crc(), events)
        .map_err(|bytes| Error::TooLarge { bytes, limit: super::line::LINE_MAX })?;
    shared.write_synced(path, &line.bytes)?;
    let end = line.bytes.len() as u64;
    Ok(Entry { seq: 1, epoch: FIRST_EPOCH, crc: line.crc, start: 0, end, number: 1, ts })
}

/// Writes a new file without a sync.
fn write_plain(shared: &Shared, path: &Path, bytes: &[u8]) -> Result<()> {
    Ok(shared.fs.create_new(path)?.write_at(0, bytes)?)
}
