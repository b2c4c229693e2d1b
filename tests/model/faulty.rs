//! A store whose process dies, or whose disk fails, with a chosen batch; and one that serves a forged past, for the
//! table of defects.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use claw_orchestrator::{
    model::{RunId, Time, run::ArtifactRef},
    store::{Claim, Error, FileStore, InboxItem, Line, Listed, Loaded, MakeFiles, NewRun, Result, Store},
    sys::FsError,
};
use serde_json::Value;
use tokio::sync::Notify;

use crate::{defects::Forgery, journal::Journal};

/// What happens with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The process dies and the batch is not there.
    DiesBefore,
    /// The process dies and the batch is there.
    DiesAfter,
    /// Writing fails and the batch is not there.
    FailsBefore,
    /// Writing fails and the batch is there.
    FailsAfter,
}

/// The faults of a case, over all its lives.
#[derive(Debug, Default)]
pub struct Faults {
    /// By number of the batch, from 0.
    pub at: Mutex<BTreeMap<u64, Fault>>,
    pub batches: AtomicU64,
    pub deaths: AtomicU64,
    pub failures: AtomicU64,
}

/// One life of the process.
#[derive(Debug, Default)]
pub struct Life {
    dead: AtomicBool,
    pub died: Notify,
}

impl Life {
    pub fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
        self.died.notify_one();
    }

    fn alive(&self, run: &RunId) -> Result<()> {
        if !self.dead.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(Error::Superseded { run: run.clone(), reason: "this process is dead".to_owned() })
    }
}

/// The store of one life.
#[derive(Debug, Clone)]
pub struct FaultyStore {
    pub inner: FileStore,
    pub faults: Arc<Faults>,
    pub life: Arc<Life>,
    pub journal: Journal,
    pub forgery: Option<Forgery>,
}

impl FaultyStore {
    /// The fault of the next batch, when it has one.
    fn next(&self) -> Option<Fault> {
        let number = self.faults.batches.fetch_add(1, Ordering::SeqCst);
        self.faults.at.lock().unwrap().remove(&number)
    }

    fn dies(&self, run: &RunId) -> Error {
        self.faults.deaths.fetch_add(1, Ordering::SeqCst);
        self.life.die();
        Error::Superseded { run: run.clone(), reason: "this process dies now".to_owned() }
    }

    fn fails(&self) -> Error {
        self.faults.failures.fetch_add(1, Ordering::SeqCst);
        FsError::new("sync", "events.jsonl", std::io::Error::other("a failed write")).into()
    }

    fn wrap(&self, inner: Box<dyn Claim>) -> Box<dyn Claim> {
        Box::new(FaultyClaim { inner, store: self.clone(), poisoned: false })
    }
}

impl Store for FaultyStore {
    fn create(&self, run: NewRun) -> Result<Box<dyn Claim>> {
        let id = run.run_id.clone();
        self.life.alive(&id)?;
        // A disk that fails here is the start's own error, which is not what this test is about.
        let fault = self.next();
        if fault == Some(Fault::DiesBefore) {
            return Err(self.dies(&id));
        }
        let (events, spec) = (run.events.clone(), run.spec.clone());
        let claim = self.inner.create(run)?;
        self.journal.taken(&id, claim.seq(), Some((&events, &spec)));
        if fault == Some(Fault::DiesAfter) {
            return Err(self.dies(&id));
        }
        Ok(self.wrap(claim))
    }
    fn claim(&self, run: &RunId) -> Result<Box<dyn Claim>> {
        self.life.alive(run)?;
        let claim = self.inner.claim(run)?;
        self.journal.taken(run, claim.seq(), None);
        Ok(self.wrap(claim))
    }
    fn load(&self, run: &RunId) -> Result<Loaded> {
        let mut loaded = self.inner.load(run)?;
        if let Some(forgery) = self.forgery {
            loaded.checkpoint = None;
            loaded.lines = forgery.forge(self.inner.lines(run, 0, usize::MAX)?);
        }
        Ok(loaded)
    }
    fn lines(&self, run: &RunId, after: u64, limit: usize) -> Result<Vec<Line>> {
        self.inner.lines(run, after, limit)
    }
    fn list(&self) -> Result<Vec<Arc<Listed>>> {
        self.inner.list()
    }
    fn stamp(&self, run: &RunId) -> Result<Option<u128>> {
        self.inner.stamp(run)
    }
    fn is_live(&self, run: &RunId) -> Result<bool> {
        self.inner.is_live(run)
    }
    fn exists(&self, run: &RunId) -> Result<bool> {
        self.inner.exists(run)
    }
    fn delete(&self, run: &RunId) -> Result<()> {
        self.inner.delete(run)
    }
    fn read_artifact(&self, run: &RunId, path: &str, offset: u64, limit: usize) -> Result<Vec<u8>> {
        self.inner.read_artifact(run, path, offset, limit)
    }
    fn list_artifacts(&self, run: &RunId, dir: &str) -> Result<Vec<String>> {
        self.inner.list_artifacts(run, dir)
    }
    fn put_labelled(&self, label: &RunId, files: MakeFiles<'_>) -> Result<String> {
        self.inner.put_labelled(label, files)
    }
    fn inbox_put(&self, run: &RunId, item: &InboxItem) -> Result<()> {
        self.inner.inbox_put(run, item)
    }
    fn inbox_withdraw(&self, run: &RunId, id: &str) -> Result<bool> {
        self.inner.inbox_withdraw(run, id)
    }
}

/// A claim of it. Dropping it frees the lock, as a death does, and leaves the lease.
#[derive(Debug)]
struct FaultyClaim {
    inner: Box<dyn Claim>,
    store: FaultyStore,
    /// A write failed; only opening again tells what is there.
    poisoned: bool,
}

impl FaultyClaim {
    fn usable(&self) -> Result<()> {
        self.store.life.alive(self.inner.run_id())?;
        if self.poisoned { Err(Error::Poisoned(self.inner.run_id().clone())) } else { Ok(()) }
    }
}

impl Claim for FaultyClaim {
    fn run_id(&self) -> &RunId {
        self.inner.run_id()
    }
    fn incarnation(&self) -> &str {
        self.inner.incarnation()
    }
    fn epoch(&self) -> u64 {
        self.inner.epoch()
    }
    fn seq(&self) -> u64 {
        self.inner.seq()
    }
    fn commit(&mut self, events: &[Value]) -> Result<(u64, Time)> {
        self.usable()?;
        let run = self.inner.run_id().clone();
        let fault = self.store.next();
        match fault {
            Some(Fault::DiesBefore) => return Err(self.store.dies(&run)),
            Some(Fault::FailsBefore) => {
                self.poisoned = true;
                return Err(self.store.fails());
            }
            Some(Fault::DiesAfter | Fault::FailsAfter) | None => {}
        }
        let (seq, at) = self.inner.commit(events)?;
        self.store.journal.committed(&run, seq, events);
        match fault {
            Some(Fault::DiesAfter) => Err(self.store.dies(&run)),
            Some(Fault::FailsAfter) => {
                self.poisoned = true;
                Err(self.store.fails())
            }
            Some(Fault::DiesBefore | Fault::FailsBefore) | None => Ok((seq, at)),
        }
    }
    fn checkpoint_due(&self) -> bool {
        self.inner.checkpoint_due()
    }
    fn checkpoint(&mut self, record: &str) {
        if self.usable().is_ok() {
            self.inner.checkpoint(record);
        }
    }
    fn check(&self) -> Result<()> {
        self.usable()?;
        self.inner.check()
    }
    fn put_artifact(&mut self, path: &str, bytes: &[u8]) -> Result<ArtifactRef> {
        self.usable()?;
        self.inner.put_artifact(path, bytes)
    }
    fn put_directory(&mut self, path: &str, files: &[(String, Vec<u8>)]) -> Result<()> {
        self.usable()?;
        self.inner.put_directory(path, files)
    }
    fn inbox(&self) -> Result<Vec<InboxItem>> {
        self.usable()?;
        self.inner.inbox()
    }
    fn inbox_done(&mut self, id: &str) -> Result<()> {
        self.usable()?;
        self.inner.inbox_done(id)
    }
    fn heartbeat(&mut self) -> Result<()> {
        self.usable()?;
        self.inner.heartbeat()?;
        self.store.journal.beat(self.inner.run_id());
        Ok(())
    }
    fn release(self: Box<Self>) -> Result<()> {
        self.usable()?;
        self.inner.release()
    }
}
