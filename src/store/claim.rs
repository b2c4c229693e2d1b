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
    sys::{FileId, FsAppend, FsError, FsLock, ids},
};

/// What opening a run for writing gives.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) log: Box<dyn FsAppend>,
    /// Which file the log is.
    pub(super) log_id: FileId,
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
    log: Box<dyn FsAppend>,
    log_id: FileId,
    last: Entry,
    len: u64,
    incarnation: Incarnation,
    lease: Lease,
    state: State,
    cached: Cached,
    /// Directories this claim has made sure of.
    known: HashSet<PathBuf>,
    lock: Box<dyn FsLock>,
}

/// Batches between two checkpoints at least.
const CHECKPOINT_EVERY: u64 = 16;

/// The last checkpoint. The next is due when the log has grown by as much as that one was long, so that their
/// cost stays in proportion to the log's and a reader folds at most as many bytes as the checkpoint has.
#[derive(Debug, Clone, Copy, Default)]
struct Cached {
    /// Batch it stood at.
    seq: u64,
    /// Length of the log then.
    log: u64,
    /// Its own length.
    bytes: u64,
}

/// Where the log ends.
#[derive(Debug, Clone, Copy)]
struct Tail {
    /// The last line that counts.
    last: Entry,
    /// Length of the log.
    len: u64,
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
        if error.is_full_disk() {
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
        let Opened { log, log_id, lock, last, len, incarnation, lease } = opened;
        shared.note_held(&run, &lease.acquisition_id);
        let dir = shared.layout.run(&run);
        let (state, cached, known) = (State::Good, Cached::default(), HashSet::new());
        Self { shared, run, dir, log, log_id, last, len, incarnation, lease, state, cached, known, lock }
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
    ///
    /// Two looks are enough. A lock file that is the one we hold is locked by us and by nobody else. A log that is
    /// the one we opened and ends where we left it has no fence of a successor, and a run made anew has another.
    fn prove(&self) -> Result<Option<Tail>> {
        self.usable()?;
        match self.shared.fs.metadata(&self.dir.join(layout::LOCK)) {
            Ok(meta) if meta.id == self.lock.id() => {}
            Ok(_) => return Err(self.superseded(self.by_whom("its lock file was replaced"))),
            Err(e) if e.is_not_found() => return Err(self.superseded("the run is gone, or its lock file")),
            Err(e) => return Err(e.into()),
        }
        match self.shared.fs.metadata(&self.dir.join(layout::LOG)) {
            Ok(meta) if meta.id != self.log_id => Err(self.superseded(self.by_whom("its log was replaced"))),
            Ok(meta) if meta.len == self.len => Ok(None),
            Ok(_) => self.look_again(&self.last).map(Some),
            Err(e) if e.is_not_found() => Err(self.superseded("its log is gone")),
            Err(e) => Err(e.into()),
        }
    }

    /// Why the run is lost, with its new owner where the lease tells.
    fn by_whom(&self, what: &str) -> String {
        let found = lease::read(&self.shared, &self.run).ok().and_then(|found| found.lease);
        match found.filter(|lease| lease.acquisition_id != self.lease.acquisition_id) {
            Some(other) => format!(
                "process {} on {} took it with epoch {}, ours is {}",
                other.pid, other.host, other.epoch, self.lease.epoch
            ),
            None => what.to_owned(),
        }
    }

    /// Reads the whole log because its end is not where it should be. What a former owner added after its time does
    /// not count and does no harm; anything else that follows our last line means that the run is not ours.
    fn look_again(&self, last: &Entry) -> Result<Tail> {
        let bytes = self.shared.fs.read(&self.dir.join(layout::LOG))?;
        let found = match load::checked(&bytes, &self.incarnation.incarnation_id) {
            Ok(found) if found.torn => return Err(self.unreadable("its log ends in a line that is not whole")),
            Ok(found) => found,
            Err(damage) => return Err(load::damaged(&self.run, damage)),
        };
        match found.entries.last() {
            Some(end) if (end.seq, end.epoch, end.crc) == (last.seq, last.epoch, last.crc) => {
                Ok(Tail { last: *end, len: found.end })
            }
            #[cfg(test)]
            Some(_) if self.shared.defect == Some(super::crash::Defect::NoEpochInWriter) => {
                Ok(Tail { last: *last, len: found.end })
            }
            Some(_) | None => Err(self.superseded(self.by_whom("another process has written to its log"))),
        }
    }

    /// An end of the log that only opening it again can put right.
    fn unreadable(&self, what: &str) -> Error {
        let why = std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_owned());
        Error::Io(FsError::new("add to", self.dir.join(layout::LOG), why))
    }

    /// [`FileClaim::prove`], remembering a loss for good and where the log ends now.
    fn prove_or_lose(&mut self) -> Result<()> {
        match self.prove() {
            Ok(Some(tail)) => {
                let certain = self.make_certain(tail.len);
                self.poisoning(certain)?;
                self.adopt(tail);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(e) => Err(self.losing(e)),
        }
    }

    /// Writes the log from our last line up to `end` again in its place, and syncs it. A former owner that added to
    /// it may have failed to sync: then its bytes are in the cache alone, and ours would stand behind a hole.
    fn make_certain(&self, end: u64) -> Result<()> {
        let path = self.dir.join(layout::LOG);
        let len = usize::try_from(end.saturating_sub(self.last.start)).unwrap_or(usize::MAX);
        let bytes = self.shared.fs.read_range(&path, self.last.start, len)?;
        let mut log = self.shared.fs.open_write(&path)?;
        log.write_at(self.last.start, &bytes)?;
        Ok(log.sync()?)
    }

    /// Remembers for good that the run is lost, when that is what an error says.
    fn losing(&mut self, error: Error) -> Error {
        if let Error::Superseded { reason, .. } = &error {
            self.state = State::Lost(reason.clone());
        }
        error
    }

    fn adopt(&mut self, tail: Tail) {
        self.last = tail.last;
        self.len = tail.len;
    }

    /// Adds one line: one write at the end of the file, one sync.
    fn append(&mut self, events: &[Value]) -> Result<Tail> {
        let ts = self.shared.clock.wall();
        let (seq, epoch) = (self.last.seq + 1, self.lease.epoch);
        let line = line::encode(seq, epoch, ts, self.last.crc, events)
            .map_err(|bytes| Error::TooLarge { bytes, limit: line::LINE_MAX })?;
        let written = self.log.append(&line.bytes).and_then(|()| self.log.sync()).and_then(|()| self.log.stat());
        let (_, len) = self.poisoning(written.map_err(Error::from))?;
        let end = self.len + line.bytes.len() as u64;
        let last = Entry { seq, epoch, crc: line.crc, start: self.len, end, number: self.last.number + 1, ts };
        if len == end {
            return Ok(Tail { last, len });
        }
        // Somebody wrote between the proof and the line. Ours is on disk; whether it counts the log tells.
        let outcome = self.look_again(&last).and_then(|tail| self.make_certain(tail.len).map(|()| tail));
        let outcome = outcome.map_err(|e| self.losing(e));
        self.poisoning(outcome)
    }

    /// Replaces one of the small files that are never state.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let temp = self.shared.temp(&self.dir.join(layout::TEMP))?;
        self.shared.replace(&temp, &self.dir.join(name), bytes)
    }

    /// Makes the handle unusable when a write failed.
    fn poisoning<T>(&mut self, outcome: Result<T>) -> Result<T> {
        outcome.map_err(|e| {
            if matches!(e, Error::Io(_) | Error::Damaged { .. }) {
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
        let tail = self.append(events)?;
        self.adopt(tail);
        Ok((tail.last.seq, tail.last.ts))
    }

    fn checkpoint_due(&self) -> bool {
        let (seq, len) = (self.last.seq.saturating_sub(self.cached.seq), self.len.saturating_sub(self.cached.log));
        seq >= CHECKPOINT_EVERY && len >= self.cached.bytes
    }

    fn checkpoint(&mut self, record: &str) {
        if self.usable().is_err() {
            return;
        }
        // It only saves folding; failing to write it loses nothing.
        let bytes = checkpoint::encode(&self.incarnation.incarnation_id, &self.last, record);
        self.cached = Cached { seq: self.last.seq, log: self.len, bytes: bytes.len() as u64 };
        if let Err(e) = self.replace(layout::CHECKPOINT, &bytes) {
            tracing::warn!(run = %self.run, error = %e, "the checkpoint could not be written");
        }
    }

    fn check(&self) -> Result<()> {
        self.prove().map(drop)
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
            Ok(_) => match self.shared.fs.remove_file(&self.dir.join(layout::LEASE)) {
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
