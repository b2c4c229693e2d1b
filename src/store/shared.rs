//! What every operation of the file store needs: the file system, the clock, the paths, and what this
//! process remembers about runs.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Error, Result, home::Home, layout, layout::Layout, list, load::Verified};
use crate::{
    model::RunId,
    sys::{Clock, Fs, Kind, ids},
};

/// Runs this process remembers something about; beyond it the memory is emptied, which costs one more reading.
const REMEMBERED_MAX: usize = 20_000;

/// What every operation needs.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) fs: Arc<dyn Fs>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) layout: Layout,
    pub(super) instance: String,
    pub(super) host: String,
    pub(super) pid: u32,
    pub(super) boot_id: Option<String>,
    pub(super) min_free: u64,
    pub(super) home: Home,
    /// What is deliberately wrong with this store.
    #[cfg(test)]
    pub(super) defect: Option<super::crash::Defect>,
    pub(super) index: list::Index,
    turn: Mutex<()>,
    memory: Mutex<Memory>,
}

/// What this process remembers.
#[derive(Debug, Default)]
struct Memory {
    /// Runs it holds, with the taking that does.
    held: HashMap<RunId, String>,
    /// Logs it has verified, and up to where.
    verified: HashMap<RunId, Verified>,
}

/// Everything [`Shared`] is made from.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) fs: Arc<dyn Fs>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) layout: Layout,
    pub(super) instance: String,
    pub(super) host: String,
    pub(super) pid: u32,
    pub(super) boot_id: Option<String>,
    pub(super) min_free: u64,
    pub(super) home: Home,
}

impl Shared {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { fs, clock, layout, instance, host, pid, boot_id, min_free, home } = parts;
        let (index, turn, memory) = (list::Index::default(), Mutex::default(), Mutex::default());
        Self {
            fs,
            clock,
            layout,
            instance,
            host,
            pid,
            boot_id,
            min_free,
            home,
            #[cfg(test)]
            defect: None,
            index,
            turn,
            memory,
        }
    }

    /// The turn to try a lock.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process holds the run.
    pub(super) fn holds(&self, run: &RunId) -> bool {
        self.memory().held.contains_key(run)
    }

    pub(super) fn note_held(&self, run: &RunId, acquisition: &str) {
        self.memory().held.insert(run.clone(), acquisition.to_owned());
    }

    /// Forgets that this taking holds the run; a later one stays.
    pub(super) fn note_freed(&self, run: &RunId, acquisition: &str) {
        let mut memory = self.memory();
        if memory.held.get(run).is_some_and(|a| a == acquisition) {
            memory.held.remove(run);
        }
    }

    pub(super) fn verified(&self, run: &RunId) -> Option<Verified> {
        self.memory().verified.get(run).cloned()
    }

    pub(super) fn note_verified(&self, run: &RunId, verified: Verified) {
        let mut memory = self.memory();
        if memory.verified.len() >= REMEMBERED_MAX {
            memory.verified.clear();
        }
        memory.verified.insert(run.clone(), verified);
    }

    /// Forgets what is known about a run that this process deleted.
    pub(super) fn note_deleted(&self, run: &RunId) {
        self.memory().verified.remove(run);
    }

    /// Refuses a change when the state directory has a newer format.
    pub(super) fn writable(&self) -> Result<()> {
        match self.home.newer {
            Some(found) => Err(Error::Newer { found, known: self.home.known }),
            None => Ok(()),
        }
    }

    /// Whether a run of this id is there; labelled evidence is none.
    pub(super) fn is_run(&self, run: &RunId) -> Result<bool> {
        Ok(self.is_taken(run)? && !self.is_label(run)?)
    }

    /// Whether the id is in use at all.
    pub(super) fn is_taken(&self, run: &RunId) -> Result<bool> {
        match self.fs.metadata(&self.layout.run(run)) {
            Ok(meta) => Ok(meta.kind == Kind::Dir),
            Err(e) if e.is_not_found() => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Whether the id names labelled evidence that belongs to no run.
    pub(super) fn is_label(&self, run: &RunId) -> Result<bool> {
        match self.fs.metadata(&self.layout.run(run).join(layout::LABEL)) {
            Ok(_) => Ok(true),
            Err(e) if e.is_not_found() => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// The error for a run that is not there.
    pub(super) fn must_be_run(&self, run: &RunId) -> Result<()> {
        if self.is_run(run)? { Ok(()) } else { Err(Error::NotFound(run.clone())) }
    }

    /// A new name for a directory being made or removed by this process.
    pub(super) fn fresh_name(&self) -> String {
        format!("{}.{}", self.home.token, ids::short())
    }

    /// Replaces a small file by rename, without a sync: for files that are never state.
    pub(super) fn replace(&self, temp: &Path, path: &Path, bytes: &[u8]) -> Result<()> {
        let mut file = self.fs.create_new(temp)?;
        let done = file.write_at(0, bytes).and_then(|()| self.fs.rename(temp, path));
        if done.is_err() {
            let _ = self.fs.remove_file(temp);
        }
        Ok(done?)
    }

    /// A fresh path in a directory of half-made files, which is made when missing.
    pub(super) fn temp(&self, temp_dir: &Path) -> Result<std::path::PathBuf> {
        match self.fs.create_dir(temp_dir) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e.into()),
        }
        Ok(temp_dir.join(ids::short()))
    }

    /// Writes a new file and syncs it; the caller syncs the directory.
    pub(super) fn write_synced(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        let mut file = self.fs.create_new(path)?;
        file.write_at(0, bytes)?;
        Ok(file.sync()?)
    }
}
