//! The right to write one run on a file system: commits, and the proof of still being the owner.

use std::{collections::HashSet, path::PathBuf, sync::Arc};

use serde_json::{Value, json};

use super::{
    Claim, Error, InboxItem, Result, artifacts, checkpoint, home, inbox, layout,
    lease::{self, Lease},
    line,
    load::{self, Incarnation},
    scan::Entry,
    shared::Shared,
};
use crate::{
    model::{RunId, Time, run::ArtifactRef},
    sys::{FsFile, FsLock, ids},
};

/// What opening a run for writing gives.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) log: Box<dyn FsFile>,
    pub(super) lock: Box<dyn FsLock>,
    /// The last line that counts.
    pub(super) last: Entry,
    /// Length of the log.
    pub(super) len: u64,
    pub(super) incarnation: Incarnation,
    pub(super) lease: Lease,
}

/// The right to write one run.
#[derive(Debug)]
pub(super) struct FileClaim {
    shared: Arc<Shared>,
    run: RunId,
    dir: PathBuf,
    log: Box<dyn FsFile>,
    last: Entry,
    len: u64,
    incarnation: Incarnation,
    lease: Lease,
    state: State,
    /// Directories this claim has made sure of.
    known: HashSet<PathBuf>,
    _lock: Box<dyn FsLock>,
}

/// Whether the handle can still be used.
#[derive(Debug)]
enum State {
    Good,
    /// A write failed; what is on disk is known only after opening again.
    Poisoned,
    /// Another owner came; for good.
    Lost(String),
}

impl Shared {
    /// A lease of this process for a run taken now.
    pub(super) fn new_lease(&self, incarnation: &str, epoch: u64, now: Time) -> Lease {
        Lease {
            owner_id: self.instance.clone(),
            acquisition_id: ids::sortable(),
            incarnation_id: incarnation.to_owned(),
            epoch,
            pid: self.pid,
            host: self.host.clone(),
            boot_id: self.boot_id.clone(),
            acquired_at: now,
            heartbeat_at: now,
        }
    }

    /// Frees the reserve when an error says that the disk is full.
    pub(super) fn noticing_full_disk(&self, error: Error) -> Error {
        if let Error::Io(e) = &error
            && matches!(e.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
        {
            home::free_reserve(self.fs.as_ref(), &self.layout);
        }
        error
    }
}

impl Lease {
    /// The event that marks the taking.
    pub(super) fn fence(&self) -> Value {
        let Self { owner_id, acquisition_id, pid, host, boot_id, .. } = self;
        let owner = json!({
            "ownerId": owner_id, "acquisitionId": acquisition_id, "pid": pid, "host": host, "bootId": boot_id,
        });
        json!({ "type": "fence", "owner": owner })
    }
}

impl FileClaim {
    pub(super) fn new(shared: Arc<Shared>, run: RunId, opened: Opened) -> Self {
        let Opened { log, lock, last, len, incarnation, lease } = opened;
        shared.note_held(&run, &lease.acquisition_id);
        let dir = shared.layout.run(&run);
        let (state, known) = (State::Good, HashSet::new());
        Self { shared, run, dir, log, last, len, incarnation, lease, state, known, _lock: lock }
    }

    fn superseded(&self, reason: impl Into<String>) -> Error {
        Error::Superseded { run: self.run.clone(), reason: reason.into() }
    }

    /// Refuses a handle that failed or lost the run.
    fn usable(&self) -> Result<()> {
        match &self.state {
            State::Good => Ok(()),
            State::Poisoned => Err(Error::Poisoned(self.run.clone())),
            State::Lost(reason) => Err(self.superseded(reason.clone())),
        }
    }

    /// Looks at the directory by its path, never through what is open: an owner that sleeps keeps its files
    /// open while another one deletes the run, makes it anew or takes it over.
    fn prove(&self) -> Result<()> {
        self.usable()?;
        let incarnation = match load::incarnation(&self.shared, &self.run) {
            Ok(found) => found,
            Err(Error::NotFound(_)) => return Err(self.superseded("the run is gone")),
            Err(e) => return Err(e),
        };
        if incarnation != self.incarnation {
            return Err(self.superseded("the run was deleted and made anew"));
        }
        let found = lease::read(&self.shared, &self.run)?;
        if let Some(other) = found.lease.filter(|l| l.acquisition_id != self.lease.acquisition_id) {
            return Err(self.superseded(format!(
                "process {} on {} took it with epoch {}, ours is {}",
                other.pid, other.host, other.epoch, self.lease.epoch
            )));
        }
        match self.shared.fs.metadata(&self.dir.join(layout::LOG)) {
            Ok(meta) if meta.len == self.len => {}
            Ok(_) => return Err(self.superseded("another process has written to its log")),
            Err(e) if e.is_not_found() => return Err(self.superseded("its log is gone")),
            Err(e) => return Err(e.into()),
        }
        // Our own lock makes this fail to lock; when it does not, the file there is not the one we hold.
        match lease::take(&self.shared, &self.dir.join(layout::LOCK), 1, |_| ()) {
            Ok(None) => Ok(()),
            Ok(Some(())) => Err(self.superseded("its lock file was replaced")),
            Err(Error::Io(e)) if e.is_not_found() => Err(self.superseded("the run is gone")),
            Err(e) => Err(e),
        }
    }

    /// [`FileClaim::prove`], remembering a loss for good.
    fn prove_or_lose(&mut self) -> Result<()> {
        let proof = self.prove();
        if let Err(Error::Superseded { reason, .. }) = &proof {
            self.state = State::Lost(reason.clone());
        }
        proof
    }

    /// Adds one line: one write, one sync.
    fn append(&mut self, events: &[Value]) -> Result<Entry> {
        let ts = self.shared.clock.wall();
        let (seq, epoch) = (self.last.seq + 1, self.lease.epoch);
        let line = line::encode(seq, epoch, ts, self.last.crc, events)
            .map_err(|bytes| Error::TooLarge { bytes, limit: line::LINE_MAX })?;
        let written = self.log.write_at(self.len, &line.bytes).and_then(|()| self.log.sync());
        self.poisoning(written.map_err(Error::from))?;
        let end = self.len + line.bytes.len() as u64;
        Ok(Entry { seq, epoch, crc: line.crc, start: self.len, end, number: self.last.number + 1, ts })
    }

    /// Replaces one of the small files that are never state.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let temp = self.shared.temp(&self.dir.join(layout::TEMP))?;
        self.shared.replace(&temp, &self.dir.join(name), bytes)
    }

    /// Makes the handle unusable when a write failed.
    fn poisoning<T>(&mut self, outcome: Result<T>) -> Result<T> {
        outcome.map_err(|e| {
            if matches!(e, Error::Io(_)) {
                self.state = State::Poisoned;
            }
            self.shared.noticing_full_disk(e)
        })
    }
}

impl Claim for FileClaim {
    fn run_id(&self) -> &RunId {
        &self.run
    }

    fn incarnation(&self) -> &str {
        &self.incarnation.incarnation_id
    }

    fn epoch(&self) -> u64 {
        self.lease.epoch
    }

    fn seq(&self) -> u64 {
        self.last.seq
    }

    fn commit(&mut self, events: &[Value]) -> Result<(u64, Time)> {
        self.prove_or_lose()?;
        let entry = self.append(events)?;
        self.last = entry;
        self.len = entry.end;
        Ok((entry.seq, entry.ts))
    }

    fn checkpoint(&mut self, record: &Value) {
        if self.usable().is_err() {
            return;
        }
        // It only saves folding; failing to write it loses nothing.
        let bytes = checkpoint::encode(&self.incarnation.incarnation_id, &self.last, record);
        if let Err(e) = self.replace(layout::CHECKPOINT, &bytes) {
            tracing::warn!(run = %self.run, error = %e, "the checkpoint could not be written");
        }
    }

    fn check(&self) -> Result<()> {
        self.prove()
    }

    fn put_artifact(&mut self, path: &str, bytes: &[u8]) -> Result<ArtifactRef> {
        self.prove_or_lose()?;
        let outcome = artifacts::put(&self.shared, &self.run, path, bytes, &mut self.known);
        self.poisoning(outcome)
    }

    fn put_directory(&mut self, path: &str, files: &[(String, Vec<u8>)]) -> Result<()> {
        self.prove_or_lose()?;
        let outcome = artifacts::put_directory(&self.shared, &self.run, path, files, &mut self.known);
        // It may have replaced directories that were known.
        self.known.clear();
        self.poisoning(outcome)
    }

    fn inbox(&self) -> Result<Vec<InboxItem>> {
        self.usable()?;
        inbox::take(&self.shared, &self.run)
    }

    fn inbox_done(&mut self, id: &str) -> Result<()> {
        self.prove_or_lose()?;
        inbox::done(&self.shared, &self.run, id)
    }

    fn heartbeat(&mut self) -> Result<()> {
        self.prove_or_lose()?;
        self.lease.heartbeat_at = self.shared.clock.wall();
        self.replace(layout::LEASE, &self.lease.to_bytes())
    }

    fn release(self: Box<Self>) -> Result<()> {
        match self.prove() {
            // A failed write leaves the run to whoever opens it next; the lock goes with the handle.
            Err(Error::Poisoned(_)) => Ok(()),
            Err(e) => Err(e),
            Ok(()) => match self.shared.fs.remove_file(&self.dir.join(layout::LEASE)) {
                Ok(()) => Ok(()),
                Err(e) if e.is_not_found() => Ok(()),
                Err(e) => Err(e.into()),
            },
        }
    }
}

impl Drop for FileClaim {
    fn drop(&mut self) {
        self.shared.note_freed(&self.run, &self.lease.acquisition_id);
    }
}
