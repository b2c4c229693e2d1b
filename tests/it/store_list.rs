//! Listing runs: what it shows, in which order, and that it reads only what changed.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use claw_orchestrator::{
    model::Time,
    store::{FileStore, Listed, Store},
    sys::{Clock, Fs, Meta, RealFs, SystemClock, fs::Result},
};

use crate::store::{Home, commit, finished, id, new_run};

/// The real file system, counting what is read.
#[derive(Debug, Default)]
struct Counting {
    looks: AtomicUsize,
    lists: AtomicUsize,
    read: Mutex<Vec<PathBuf>>,
}

impl Counting {
    /// Looks, listed directories and names of files read since the last time.
    fn taken(&self) -> (usize, usize, Vec<String>) {
        let read = std::mem::take(&mut *self.read.lock().unwrap());
        let name = |p: PathBuf| p.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        let mut read: Vec<String> = read.into_iter().map(name).collect();
        read.sort();
        (self.looks.swap(0, Ordering::SeqCst), self.lists.swap(0, Ordering::SeqCst), read)
    }
}

impl Fs for Counting {
    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.read.lock().unwrap().push(path.to_owned());
        RealFs.read(path)
    }
    fn read_range(&self, path: &Path, offset: u64, len: usize) -> Result<Vec<u8>> {
        self.read.lock().unwrap().push(path.to_owned());
        RealFs.read_range(path, offset, len)
    }
    fn metadata(&self, path: &Path) -> Result<Meta> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        RealFs.metadata(path)
    }
    fn list(&self, dir: &Path) -> Result<Vec<OsString>> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        RealFs.list(dir)
    }
    as_real!(read_link canonicalize create_dir create_new open_write open_append rename rename_new sync_dir);
    as_real!(make_executable remove_file remove_dir try_lock free_space);
}

/// The machine's clocks, boot time moved on by hand.
#[derive(Debug, Default)]
struct Moved(AtomicU64);

impl Clock for Moved {
    fn wall(&self) -> Time {
        SystemClock.wall()
    }
    fn boot(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

/// A store whose reading is counted and whose clock is in the hand of the test.
fn watched(home: &Home) -> (FileStore, Arc<Counting>, Arc<Moved>) {
    let (counts, clock) = (Arc::new(Counting::default()), Arc::new(Moved::default()));
    let mut options = home.options();
    (options.fs, options.clock) = (counts.clone(), clock.clone());
    let store = FileStore::open(options).unwrap();
    counts.taken();
    (store, counts, clock)
}

fn names(listed: &[Arc<Listed>]) -> Vec<&str> {
    listed.iter().map(|l| l.run_id.as_str()).collect()
}

/// Sets the time of change of a directory.
fn touch(path: &Path, at: SystemTime) {
    fs::File::open(path).unwrap().set_modified(at).unwrap();
}

fn changed(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

/// Makes every run and their directory look as if nothing had happened for an hour.
fn age(home: &Home) {
    let then = SystemTime::now() - Duration::from_secs(3600);
    for run in fs::read_dir(home.wf()).unwrap() {
        touch(&run.unwrap().path(), then);
    }
    touch(&home.wf(), then + Duration::from_secs(60));
}

/// An id as they are made here.
fn own(n: usize) -> String {
    format!("20260101-{n:06}-name-{n:012x}")
}

/// What did not change is not looked at, however many runs there are; what did is there at once.
#[test]
fn a_listing_reads_what_changed_and_nothing_else() {
    let home = Home::new();
    let other = home.open();
    for n in 0..40 {
        finished(&other, &own(n), 0);
    }
    finished(&other, "chosen", 0);
    age(&home);
    let (store, counts, clock) = watched(&home);
    let first = store.list().unwrap();
    assert_eq!(first.len(), 41);
    let (_, _, read) = counts.taken();
    assert_eq!(read.len(), 41, "each is read once: {read:?}");
    clock.0.store(60, Ordering::SeqCst);
    assert_eq!(store.list().unwrap(), first);
    assert_eq!(counts.taken(), (43, 1, vec![]), "names are read again, since one might have come within the same tick");
    for _ in 0..3 {
        assert_eq!(store.list().unwrap(), first);
        assert_eq!(counts.taken(), (1, 0, vec![]), "one look at the directory of the runs");
    }
    // A commit in a run changes nothing in the list, and the stamp tells it.
    let before = store.stamp(&id("chosen")).unwrap();
    commit(other.claim(&id("chosen")).unwrap().as_mut(), 1).unwrap();
    assert_ne!(store.stamp(&id("chosen")).unwrap(), before);
    counts.taken();
    assert_eq!(store.list().unwrap(), first);
    assert_eq!(counts.taken(), (1, 0, vec![]));

    finished(&other, "new", 0);
    let now = store.list().unwrap();
    assert_eq!((now.len(), names(&now)[0]), (42, "new"));
    let read = vec!["chosen".to_owned(), "new".to_owned()];
    assert_eq!(counts.taken(), (4, 1, read), "both directories, and the two runs that changed since");

    let gone = own(7);
    other.delete(&id(&gone)).unwrap();
    let now = store.list().unwrap();
    assert!(now.len() == 41 && !names(&now).contains(&gone.as_str()), "{:?}", names(&now));
}

/// P7: an id of our own making that is deleted and made anew is another run, in its new place.
#[test]
fn a_run_made_anew_is_in_its_new_place() {
    let home = Home::new();
    let other = home.open();
    for n in 0..3 {
        finished(&other, &own(n), 0);
        std::thread::sleep(Duration::from_millis(3));
    }
    age(&home);
    touch(&home.wf().join(".trash"), SystemTime::now() - Duration::from_secs(3600));
    let (store, _, clock) = watched(&home);
    for seconds in [0, 10, 20] {
        clock.0.store(seconds, Ordering::SeqCst);
        assert_eq!(names(&store.list().unwrap()), [own(2), own(1), own(0)]);
    }
    for _ in 0..2 {
        let last = store.list().unwrap().pop().unwrap();
        other.delete(&last.run_id).unwrap();
        finished(&other, last.run_id.as_str(), 0);
        let now = store.list().unwrap();
        assert_eq!((now.len(), &now[0].run_id), (3, &last.run_id));
        assert_ne!(now[0].incarnation, last.incarnation);
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// A change within the tick of the last one leaves the same time of change on the directory.
#[test]
fn a_change_within_one_tick_is_seen() {
    let home = Home::new();
    let other = home.open();
    finished(&other, "a", 0);
    finished(&other, "b", 0);
    let (store, _, clock) = watched(&home);
    let first = store.list().unwrap();
    assert_eq!(names(&first), ["b", "a"]);
    let (runs, a) = (changed(&home.wf()), changed(&home.run("a")));
    other.delete(&id("a")).unwrap();
    finished(&other, "a", 0);
    touch(&home.run("a"), a);
    touch(&home.wf(), runs);
    let again = store.list().unwrap();
    assert_eq!(names(&again), ["a", "b"], "made anew, so it is the newest");
    assert_ne!(again[0].incarnation, first[1].incarnation);
    finished(&other, "c", 0);
    touch(&home.wf(), runs);
    assert_eq!(names(&store.list().unwrap()), ["c", "a", "b"]);
    // Once the tick is over for certain the directory is believed, and its next change is another time.
    clock.0.store(3, Ordering::SeqCst);
    assert_eq!(names(&store.list().unwrap()), ["c", "a", "b"]);
    finished(&other, "d", 0);
    assert_eq!(names(&store.list().unwrap()), ["d", "c", "a", "b"]);
}

/// An id says nothing about the place in the list: callers choose ids, and such that look like ours too.
#[test]
fn the_order_is_that_of_creation_whatever_the_ids() {
    let home = Home::new();
    let (one, two) = (home.open(), home.open());
    let ids = ["20991231-235959-later-0123456789ab", "zz", "20200101-000000-early-0123456789ab", "key-00", "A.b_c-1"];
    for (n, run) in ids.iter().enumerate() {
        finished(if n % 2 == 0 { &one } else { &two }, run, 0);
        std::thread::sleep(Duration::from_millis(3));
    }
    let newest_first: Vec<&str> = ids.iter().rev().copied().collect();
    for store in [&one, &two, &home.open()] {
        let listed = store.list().unwrap();
        assert_eq!(names(&listed), newest_first);
        assert!(listed.is_sorted_by_key(|l| std::cmp::Reverse(l.created_at)));
    }
}

/// P8: damage is listed, stays in its run, and is gone when it was mended. What is no run is not listed.
#[test]
fn damaged_runs_are_listed_and_others_are_not_touched() {
    let home = Home::new();
    let store = home.open();
    for run in ["no-birth", "bad-birth", "no-log", "good"] {
        finished(&store, run, 1);
    }
    store.put_labelled(&id("label"), &mut |_| vec![("manifest.json".to_owned(), b"{}".to_vec())]).unwrap();
    fs::write(home.wf().join("stray"), "x").unwrap();
    fs::create_dir(home.wf().join(".hidden")).unwrap();
    std::os::unix::fs::symlink(home.run("good"), home.wf().join("link")).unwrap();
    assert_eq!(store.list().unwrap().len(), 4);
    let birth = home.run("no-birth").join("incarnation.json");
    let bytes = fs::read(&birth).unwrap();
    fs::remove_file(&birth).unwrap();
    fs::write(home.run("bad-birth").join("incarnation.json"), "{").unwrap();
    fs::remove_file(home.run("no-log").join("events.jsonl")).unwrap();
    for store in [&store, &home.open()] {
        let listed = store.list().unwrap();
        let mut found = names(&listed);
        assert_eq!(found.remove(0), "good");
        found.sort_unstable();
        assert_eq!(found, ["bad-birth", "no-birth", "no-log"]);
        for run in &listed {
            let good = store.load(&run.run_id).is_ok();
            assert_eq!(good, run.run_id.as_str() == "good", "{run:?}");
            assert!(store.stamp(&run.run_id).unwrap().is_some() && !store.is_live(&run.run_id).unwrap());
        }
    }
    fs::write(&birth, bytes).unwrap();
    let mended = home.open().list().unwrap();
    let run = mended.iter().find(|l| l.run_id.as_str() == "no-birth").unwrap();
    assert!(!run.incarnation.is_empty() && run.created_at > Time::from_millis(0));
}

/// The directory of the runs may be on another disk with a link in its place.
#[test]
fn a_linked_directory_of_runs_is_followed() {
    let home = Home::new();
    let other = home.open();
    finished(&other, "a", 0);
    let away = home.wf().parent().unwrap().join("elsewhere");
    fs::rename(home.wf(), &away).unwrap();
    std::os::unix::fs::symlink(&away, home.wf()).unwrap();
    let (store, _, clock) = watched(&home);
    for seconds in [0, 10, 20] {
        clock.0.store(seconds, Ordering::SeqCst);
        assert_eq!(names(&store.list().unwrap()), ["a"]);
    }
    drop(other.create(new_run("b")).unwrap());
    assert_eq!(names(&store.list().unwrap()), ["b", "a"]);
}
