//! Writers that lost a run and do not know it yet: nothing they add counts, and their successor is not disturbed.

use std::{
    fmt, fs,
    path::Path,
    sync::{Arc, Mutex},
};

use claw_orchestrator::{
    store::{Error, FileStore, Options, Store},
    sys::{FileId, Fs, FsAppend, RealFs, fs::Result},
};
use pretty_assertions::assert_eq;

use crate::store::{Home, commit, fold, id, new_run, upto};

type Deed = Box<dyn FnOnce() + Send>;

/// Real files; once, something happens right before a line is added, when the writer has already looked around.
#[derive(Clone, Default)]
struct Sleepy(Arc<Mutex<Option<Deed>>>);

impl fmt::Debug for Sleepy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sleepy")
    }
}

impl Sleepy {
    fn before_the_next_line(&self, deed: impl FnOnce() + Send + 'static) {
        *self.0.lock().unwrap() = Some(Box::new(deed));
    }
}

#[derive(Debug)]
struct SleepyLog(Box<dyn FsAppend>, Sleepy);

impl FsAppend for SleepyLog {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let deed = self.1.0.lock().unwrap().take();
        if let Some(deed) = deed {
            deed();
        }
        self.0.append(bytes)
    }
    fn sync(&mut self) -> Result<()> {
        self.0.sync()
    }
    fn stat(&self) -> Result<(FileId, u64)> {
        self.0.stat()
    }
}

impl Fs for Sleepy {
    fn open_append(&self, path: &Path) -> Result<Box<dyn FsAppend>> {
        Ok(Box::new(SleepyLog(RealFs.open_append(path)?, self.clone())))
    }
    as_real!(read read_range metadata list read_link canonicalize create_dir create_new open_write rename);
    as_real!(rename_new sync_dir make_executable remove_file remove_dir try_lock free_space);
}

/// OF-3: the owner proves that the run is its own, falls asleep before its line, and wakes after another one took
/// the run: its line stands behind the fence and does not count, it is told so, and the successor goes on.
#[test]
fn a_line_that_comes_after_the_fence_does_not_count() {
    let home = Home::new();
    let sleepy = Sleepy::default();
    let one = FileStore::open(Options { fs: Arc::new(sleepy.clone()), ..home.options() }).unwrap();
    let two = Arc::new(home.open());
    let mut first = one.create(new_run("a")).unwrap();
    commit(first.as_mut(), 1).unwrap();

    let (taken, theirs) = (Arc::new(Mutex::new(None)), two.clone());
    let (slot, lock) = (taken.clone(), home.run("a").join("owner.lock"));
    sleepy.before_the_next_line(move || {
        fs::remove_file(&lock).unwrap();
        *slot.lock().unwrap() = Some(theirs.claim(&id("a")).unwrap());
    });
    let lost = commit(first.as_mut(), 2);
    assert!(matches!(lost, Err(Error::Superseded { .. })), "{lost:?}");
    assert!(matches!(first.check(), Err(Error::Superseded { .. })));
    let mut second = taken.lock().unwrap().take().unwrap();
    assert_eq!(fold(&two, "a").unwrap(), upto(1));
    commit(second.as_mut(), 2).unwrap();
    second.check().unwrap();
    commit(second.as_mut(), 3).unwrap();
    second.release().unwrap();
    assert_eq!(fold(&home.open(), "a").unwrap(), upto(3));
    let seqs: Vec<u64> = two.lines(&id("a"), 0, 99).unwrap().iter().map(|l| l.seq).collect();
    assert_eq!(seqs, (1..=5).collect::<Vec<_>>());
}

/// OF-3: whatever a former owner adds between two lines of its successor, whole or in part.
#[test]
fn a_former_owner_does_not_disturb_its_successor() {
    let home = Home::new();
    let store = home.open();
    let mut claim = store.create(new_run("a")).unwrap();
    commit(claim.as_mut(), 1).unwrap();
    let log = home.run("a").join("events.jsonl");
    let old = fs::read_to_string(&log).unwrap().lines().last().unwrap().to_owned() + "\n";
    drop(claim);
    let add = |text: &str| {
        let mut bytes = fs::read(&log).unwrap();
        bytes.extend(text.as_bytes());
        fs::write(&log, bytes).unwrap();
    };
    let mut claim = store.claim(&id("a")).unwrap();
    add(&old);
    claim.check().unwrap();
    commit(claim.as_mut(), 2).unwrap();
    add(&old);
    add(&old);
    commit(claim.as_mut(), 3).unwrap();
    assert_eq!(fold(&store, "a").unwrap(), upto(3));
    assert_eq!(fold(&home.open(), "a").unwrap(), upto(3));

    // Half a line: adding to it would make both unreadable, so the handle stops and opening again cuts it off.
    add(&old[..old.len() / 2]);
    let stopped = commit(claim.as_mut(), 4);
    assert!(matches!(&stopped, Err(Error::Io(e)) if e.to_string().contains("not whole")), "{stopped:?}");
    assert_eq!(fold(&store, "a").unwrap(), upto(3));
    drop(claim);
    let mut claim = store.claim(&id("a")).unwrap();
    commit(claim.as_mut(), 4).unwrap();
    assert_eq!(fold(&home.open(), "a").unwrap(), upto(4));
    let kept = fs::read_dir(home.run("a")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    assert!(kept.into_iter().any(|n| n.starts_with("events.torn-")), "what was cut off is kept");
}
