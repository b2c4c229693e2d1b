//! The product as the model sees it: what callers of the store do, noting what they were told.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use serde_json::json;

use super::{
    super::{Claim, Error, FileStore, NewRun, Options, Result, Store as _, migrate::Formats},
    fs::ModelFs,
    record::{self, Checked, Named, Record, Unread, broken, sha256},
};
use crate::model::RunId;

/// Why a workload ended early. After a failed operation the product opens again; a broken invariant is the end.
pub(super) type Stop = Unread;

pub(super) fn run(text: &str) -> RunId {
    RunId::parse(text).unwrap()
}

/// Opens the state directory as one more process of the machine.
pub(super) fn open(fs: &ModelFs, formats: &Formats) -> Result<FileStore> {
    let options = Options {
        home: PathBuf::from("/home/s"),
        wf_dir: PathBuf::from("/home/s/wf"),
        fs: Arc::new(fs.clone()),
        clock: Arc::new(fs.clone()),
        instance: "p".to_owned(),
        host: "h".to_owned(),
        pid: 1,
        // The model has too little space for a reserve, which is beside the point here and large.
        min_free: 0,
    };
    let mut store = FileStore::open_as(options, formats)?;
    if let Some(shared) = Arc::get_mut(&mut store.shared) {
        shared.defect = fs.defect();
    }
    Ok(store)
}

/// What a batch carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Batch {
    Plain,
    /// It names a file and a directory that were stored before it.
    Files,
    /// A line of about 200 KiB that names a file and a directory.
    Large,
    /// The last one of the run.
    End,
}

/// An owner of a run: its claim and its record.
#[derive(Debug)]
pub(super) struct Writer {
    fs: ModelFs,
    run: RunId,
    pub(super) claim: Box<dyn Claim>,
    pub(super) record: Record,
    generation: u32,
    /// Whether it started the attempt that runs; one of a former owner is lost.
    started: bool,
}

impl Writer {
    /// Creates a run with an artifact.
    pub(super) fn create(fs: &ModelFs, store: &FileStore, id: &str) -> std::result::Result<Self, Stop> {
        let generation = fs.ledger(|l| l.next_generation(id));
        let text = format!("base {generation}").into_bytes();
        let named = Named { path: "nodes/base.json".to_owned(), bytes: text.len() as u64, sha256: sha256(&text) };
        let mut record = Record::default();
        let events = record.next(generation, 1, false, std::slice::from_ref(&named)).to_vec();
        fs.ledger(|l| l.begin_create(id, generation));
        let new = NewRun {
            run_id: run(id),
            spec: json!({ "name": "demo", "g": generation }),
            events: events.clone(),
            artifacts: vec![(named.path, text)],
        };
        let claim = store.create(new)?;
        record.fold(&events)?;
        fs.ledger(|l| l.settle(id, &record));
        Ok(Self { fs: fs.clone(), run: run(id), claim, record, generation, started: true })
    }

    /// Takes a run over. What the log then says is promised from here on.
    pub(super) fn claim(fs: &ModelFs, store: &FileStore, run: &RunId) -> std::result::Result<Self, Stop> {
        let claim = store.claim(run)?;
        let record = record::read(store, run)?.ok_or_else(|| broken("I9", "a claimed run is not there"))?;
        fs.ledger(|l| l.judge(run.as_str(), Some(&record)))?;
        fs.ledger(|l| l.settle(run.as_str(), &record));
        let generation = record.generation;
        Ok(Self { fs: fs.clone(), run: run.clone(), claim, record, generation, started: false })
    }

    /// Stores what the batch names, commits it, caches the record.
    pub(super) fn commit(&mut self, batch: Batch) -> std::result::Result<(), Stop> {
        let finishes = self.started;
        let n = self.record.n + 1;
        let files = match batch {
            Batch::Plain | Batch::End => vec![],
            Batch::Files | Batch::Large => self.put_files(n)?,
        };
        let mut events = self.record.next(self.generation, self.claim.epoch(), finishes, &files);
        if batch == Batch::Large {
            events[1]["text"] = json!("x".repeat(200 * 1024));
        }
        if batch == Batch::End {
            events[1]["ended"] = json!(true);
        }
        self.fs.ledger(|l| l.begin_commit(self.run.as_str()));
        self.claim.commit(&events)?;
        self.record.fold(&events)?;
        self.fs.ledger(|l| l.settle(self.run.as_str(), &self.record));
        self.started = !finishes;
        self.claim.checkpoint(&serde_json::to_string(&self.record).unwrap());
        Ok(())
    }

    fn put_files(&mut self, n: u64) -> Result<Vec<Named>> {
        let text = format!("long text of batch {n}").into_bytes();
        let put = self.claim.put_artifact(&format!("nodes/a/v1a{n}/out.txt"), &text)?;
        let dir = format!("evidence/verify-{n:02}");
        let inside: Vec<(String, Vec<u8>)> =
            vec![("log.txt".to_owned(), text), ("shots/one.png".to_owned(), format!("pixels {n}").into_bytes())];
        self.claim.put_directory(&dir, &inside)?;
        let mut named = vec![Named { path: put.path, bytes: put.bytes, sha256: put.sha256 }];
        for (name, bytes) in inside {
            let path = format!("{dir}/{name}");
            named.push(Named { path, bytes: bytes.len() as u64, sha256: sha256(&bytes) });
        }
        Ok(named)
    }

    /// Commits while another one takes the run between the look around and the line; gives the other one.
    /// The line is there then, after the fence, and must not count.
    pub(super) fn commit_too_late(&mut self, store: FileStore) -> std::result::Result<Self, Stop> {
        let events = self.record.next(self.generation, self.claim.epoch(), self.started, &[]);
        let other = Arc::new(Mutex::new(None));
        let (fs, run, slot) = (self.fs.clone(), self.run.clone(), Arc::clone(&other));
        self.fs.before_the_next_line(move || {
            let taken = Self::claim(&fs, &store, &run);
            let came = taken.is_ok();
            *slot.lock().unwrap() = Some(taken);
            came
        });
        self.fs.ledger(|l| l.begin_commit(self.run.as_str()));
        let outcome = self.claim.commit(&events);
        let other = other.lock().unwrap().take().ok_or_else(|| broken("I6", "no line was added"))?;
        match (outcome, other) {
            (Ok(_), Ok(_)) => Err(broken("I6", "a line after the successor's fence was acknowledged").into()),
            // Its own operation may be made to fail, which is no business of the other one.
            (Err(Error::Superseded { .. } | Error::Io(_)), Ok(other)) => Ok(other),
            (Err(e), Ok(_)) => Err(e.into()),
            // The taking was made to fail, and its victim sleeps on: locks that do not exclude, a write cut short and
            // a line in the middle of it are one calamity too many.
            (_, Err(e)) => Err(e),
        }
    }

    /// Tries everything a writer can do, after another one took the run: all of it must be refused.
    pub(super) fn must_be_shut_out(mut self) -> std::result::Result<(), Stop> {
        let mut events = self.record.next(self.generation, self.claim.epoch(), false, &[]);
        events.iter_mut().for_each(|e| e["late"] = json!(true));
        // One whose own operation failed is shut out already.
        if let Err(Error::Poisoned(_)) = self.claim.check() {
            return Ok(());
        }
        refused("commit", self.claim.commit(&events))?;
        refused("check", self.claim.check())?;
        refused("put_artifact", self.claim.put_artifact("nodes/late.txt", b"late"))?;
        refused("put_directory", self.claim.put_directory("evidence/late", &[]))?;
        refused("heartbeat", self.claim.heartbeat())?;
        self.claim.checkpoint("{}");
        refused("release", self.claim.release())
    }
}

/// Only [`Error::Superseded`] will do; an operation that was made to fail is handed on.
fn refused<T>(what: &str, outcome: Result<T>) -> std::result::Result<(), Stop> {
    match outcome {
        Ok(_) => Err(broken("I6", format!("{what} of a writer that had lost the run went through")).into()),
        Err(Error::Superseded { .. }) => Ok(()),
        Err(Error::Io(e)) if !e.is_not_found() => Err(Error::Io(e).into()),
        Err(e) => Err(broken("I6", format!("{what} of a writer that had lost the run: {e}")).into()),
    }
}

/// Deletes a run.
pub(super) fn delete(fs: &ModelFs, store: &FileStore, id: &str) -> Result<()> {
    fs.ledger(|l| l.begin_delete(id));
    store.delete(&run(id))?;
    fs.ledger(|l| l.deleted(id));
    Ok(())
}

/// Contents of a labelled bundle.
pub(super) fn bundle(id: &str) -> Vec<(String, Vec<u8>)> {
    vec![("evidence.json".to_owned(), format!("{{\"id\":\"{id}\"}}").into_bytes()), ("t/out".to_owned(), b"o".to_vec())]
}

/// Label of the labelled evidence.
pub(super) const LABEL: &str = "label";

/// Stores one labelled bundle.
pub(super) fn put_labelled(fs: &ModelFs, store: &FileStore) -> Result<()> {
    let id = store.put_labelled(&run(LABEL), &mut |id| bundle(id))?;
    fs.ledger(|l| l.bundles.push(id));
    Ok(())
}

/// What an error means where nothing was made to fail.
pub(super) fn must(outcome: std::result::Result<(), Stop>) -> Checked {
    match outcome {
        Ok(()) => Ok(()),
        Err(Unread::Broken(found)) => Err(found),
        Err(Unread::Store(e @ Error::Damaged { .. })) => Err(broken("P8", e.to_string())),
        Err(Unread::Store(e)) => Err(broken("I11", e.to_string())),
    }
}
