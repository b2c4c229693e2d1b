//! The durable store on a real file system: what a run survives, and who may write it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use claw_orchestrator::{
    model::{RunId, Time},
    store::{Claim, Error, FileStore, InboxItem, NewRun, Options, Store},
    sys::{RealFs, SystemClock},
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A state directory that is removed at the end.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn options(&self) -> Options {
        Options {
            home: self.0.path().join("home"),
            wf_dir: self.0.path().join("home/wf"),
            fs: Arc::new(RealFs),
            clock: Arc::new(SystemClock),
            instance: "test".to_owned(),
            host: "here".to_owned(),
            pid: std::process::id(),
            min_free: 0,
        }
    }

    fn open(&self) -> FileStore {
        FileStore::open(self.options()).unwrap()
    }

    fn wf(&self) -> PathBuf {
        self.0.path().join("home/wf")
    }

    fn run(&self, id: &str) -> PathBuf {
        self.wf().join(id)
    }
}

fn id(text: &str) -> RunId {
    RunId::parse(text).unwrap()
}

fn new_run(text: &str) -> NewRun {
    NewRun {
        run_id: id(text),
        spec: json!({ "name": "demo" }),
        events: vec![json!({ "type": "run_created", "n": 0 })],
        artifacts: vec![],
    }
}

/// The record of these tests: the numbers of all events, so that what is missing or doubled shows.
fn fold(store: &FileStore, run: &str) -> Result<Vec<u64>, Error> {
    let loaded = store.load(&id(run))?;
    let mut record: Vec<u64> = match loaded.checkpoint {
        Some((_, value)) => serde_json::from_value(value).unwrap(),
        None => vec![],
    };
    for event in loaded.lines.iter().flat_map(|l| &l.events) {
        record.extend(event["n"].as_u64());
    }
    Ok(record)
}

/// Commits number `n` after all numbers below it.
fn commit(claim: &mut dyn Claim, n: u64) -> Result<(u64, Time), Error> {
    let done = claim.commit(&[json!({ "type": "log", "n": n })]);
    claim.checkpoint(&json!((0..=n).collect::<Vec<_>>()));
    done
}

fn upto(n: u64) -> Vec<u64> {
    (0..=n).collect()
}

/// A run with `n` commits after its creation, let go of.
fn finished(store: &FileStore, run: &str, n: u64) {
    let mut claim = store.create(new_run(run)).unwrap();
    for i in 1..=n {
        commit(claim.as_mut(), i).unwrap();
    }
    claim.release().unwrap();
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target)
        } else {
            fs::copy(entry.path(), target).map(drop).unwrap()
        }
    }
}

#[test]
fn what_was_committed_is_there_after_opening_again() {
    let home = Home::new();
    let store = home.open();
    let mut claim = store.create(new_run("a")).unwrap();
    assert_eq!((claim.epoch(), claim.seq()), (1, 1));
    assert!(matches!(store.create(new_run("a")), Err(Error::Exists(_))));
    assert!(matches!(store.claim(&id("a")), Err(Error::Owned { pid, .. }) if pid == std::process::id()));
    assert!(matches!(store.delete(&id("a")), Err(Error::Owned { .. })));
    for i in 1..=3 {
        assert_eq!(commit(claim.as_mut(), i).unwrap().0, i + 1);
    }
    claim.heartbeat().unwrap();
    claim.check().unwrap();
    let loaded = store.load(&id("a")).unwrap();
    assert!(loaded.live);
    assert_eq!(loaded.owner.unwrap()["pid"], std::process::id());
    claim.release().unwrap();
    assert!(!store.load(&id("a")).unwrap().live);

    let again = home.open();
    assert_eq!(fold(&again, "a").unwrap(), upto(3));
    let mut claim = again.claim(&id("a")).unwrap();
    assert_eq!((claim.epoch(), claim.seq()), (2, 5));
    commit(claim.as_mut(), 4).unwrap();
    drop(claim);
    assert!(!again.load(&id("a")).unwrap().live, "a dropped claim leaves a lease, but nobody holds the lock");
    assert_eq!(fold(&store, "a").unwrap(), upto(4));
    assert_eq!(store.lines(&id("a"), 3, 10).unwrap().iter().map(|l| l.seq).collect::<Vec<_>>(), [4, 5, 6]);
    assert_eq!(store.lines(&id("a"), 0, 2).unwrap().iter().map(|l| l.seq).collect::<Vec<_>>(), [5, 6]);
    let mode = |p: &Path| std::os::unix::fs::PermissionsExt::mode(&fs::metadata(p).unwrap().permissions()) & 0o777;
    assert_eq!((mode(&home.run("a")), mode(&home.run("a").join("events.jsonl"))), (0o700, 0o600));
}
