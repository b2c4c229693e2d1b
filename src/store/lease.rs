//! The lease: who executes a run, for people and for other hosts. Liveness on this host is the lock, never this.

use std::{path::Path, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Error, Result, layout, shared::Shared};
use crate::{
    model::{RunId, Time},
    sys::{FsLock, proctree},
};

/// How long a heartbeat of another host counts, in milliseconds: four missed beats of 15 s.
const FOREIGN_MS: i64 = 60_000;

/// Times the lease of a run that was just taken is read again for its new owner's name.
const NAME_TRIES: u32 = 100;
/// Pause between two of these, in milliseconds; taking a run over takes a few syncs of the disk, and a second of
/// them all together when the disk is busy.
const NAME_PAUSE_MS: u64 = 10;

/// Who executes a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Lease {
    /// The process instance.
    pub(super) owner_id: String,
    /// This taking of the run; no two are equal.
    pub(super) acquisition_id: String,
    pub(super) incarnation_id: String,
    pub(super) epoch: u64,
    pub(super) pid: u32,
    pub(super) host: String,
    #[serde(default)]
    pub(super) boot_id: Option<String>,
    pub(super) acquired_at: Time,
    pub(super) heartbeat_at: Time,
}

/// What stands in the lease file.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    /// As it is, for people.
    pub(super) value: Option<Value>,
    /// As we write it; absent when the file is missing, empty or not ours.
    pub(super) lease: Option<Lease>,
}

impl Found {
    /// Whether another host beats.
    pub(super) fn is_foreign_and_fresh(&self, shared: &Shared) -> bool {
        self.lease.as_ref().is_some_and(|l| l.host != shared.host && self.is_fresh(shared))
    }

    /// Whether the last heartbeat is recent.
    pub(super) fn is_fresh(&self, shared: &Shared) -> bool {
        let now = shared.clock.wall().millis();
        self.lease.as_ref().is_some_and(|l| now.saturating_sub(l.heartbeat_at.millis()).abs() < FOREIGN_MS)
    }

    /// Whether the owner can be there: on this host its process exists.
    fn names_a_process(&self, shared: &Shared) -> bool {
        self.lease.as_ref().is_some_and(|lease| {
            let pid = i32::try_from(lease.pid).ok();
            lease.host != shared.host || pid.and_then(proctree::get).is_some_and(|process| !process.is_dead())
        })
    }

    /// The refusal that names the owner.
    pub(super) fn owned(&self, run: &RunId) -> Error {
        let (pid, host) = match &self.lease {
            Some(lease) => (lease.pid, lease.host.clone()),
            None => (0, "an unknown host".to_owned()),
        };
        Error::Owned { run: run.clone(), pid, host }
    }
}

/// Reads the lease. A file that does not parse is as good as none: it is written without a sync.
pub(super) fn read(shared: &Shared, run: &RunId) -> Result<Found> {
    let bytes = match shared.fs.read(&shared.layout.run(run).join(layout::LEASE)) {
        Ok(bytes) => bytes,
        Err(e) if e.is_not_found() => return Ok(Found::default()),
        Err(e) => return Err(e.into()),
    };
    let value: Option<Value> = serde_json::from_slice(&bytes).ok();
    let lease = value.as_ref().and_then(|v| Lease::deserialize(v).ok());
    Ok(Found { value, lease })
}

/// Reads the lease of whoever holds the lock. Between taking it and writing a lease the former owner's is still
/// there, and a refusal must not name a process that is gone.
pub(super) fn of_holder(shared: &Shared, run: &RunId) -> Result<Found> {
    let mut found = read(shared, run)?;
    for _ in 0..NAME_TRIES {
        if found.names_a_process(shared) {
            break;
        }
        std::thread::sleep(Duration::from_millis(NAME_PAUSE_MS));
        found = read(shared, run)?;
    }
    Ok(found)
}

impl Lease {
    /// The lease as JSON.
    pub(super) fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }

    /// The lease as the bytes of its file.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut text = self.to_value().to_string();
        text.push('\n');
        text.into_bytes()
    }
}

/// Whether a live process holds a run that has this lease.
///
/// A process of this host is asked through the lock. Without a lease nobody executes it: the owner's end and
/// its parking remove it.
pub(super) fn is_live(shared: &Shared, run: &RunId, found: &Found) -> Result<bool> {
    if shared.holds(run) {
        return Ok(true);
    }
    if found.value.is_none() {
        return Ok(false);
    }
    if found.is_foreign_and_fresh(shared) {
        return Ok(true);
    }
    let path = shared.layout.run(run).join(layout::LOCK);
    match shared.fs.metadata(&path) {
        Ok(_) => {}
        Err(e) if e.is_not_found() => return Ok(false),
        Err(e) => return Err(e.into()),
    }
    let tries = if found.is_fresh(shared) { 1 } else { LOCK_TRIES };
    Ok(take(shared, &path, tries, |_| ())?.is_none())
}

/// Times a held lock is tried again: a reader of another process may hold it for the moment it takes to look,
/// and a process that is just being started holds copies of its parent's files until it executes its program.
pub(super) const LOCK_TRIES: u32 = 5;
/// Pause between two tries, in milliseconds.
const LOCK_PAUSE_MS: u64 = 3;

/// Tries to take a lock; one try at a time in this process, so that its own readers never disturb its claims.
/// `then` gets the lock inside that turn: a reader drops it there.
pub(super) fn take<T>(
    shared: &Shared,
    path: &Path,
    tries: u32,
    then: impl Fn(Box<dyn FsLock>) -> T,
) -> Result<Option<T>> {
    for round in 1..=tries {
        {
            let _turn = shared.turn();
            if let Some(lock) = shared.fs.try_lock(path)? {
                return Ok(Some(then(lock)));
            }
        }
        if round < tries {
            std::thread::sleep(Duration::from_millis(LOCK_PAUSE_MS));
        }
    }
    Ok(None)
}
