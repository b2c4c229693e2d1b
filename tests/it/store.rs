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
pub(crate) struct Home(TempDir);

impl Home {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn options(&self) -> Options {
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

    pub(crate) fn open(&self) -> FileStore {
        FileStore::open(self.options()).unwrap()
    }

    pub(crate) fn wf(&self) -> PathBuf {
        self.0.path().join("home/wf")
    }

    pub(crate) fn run(&self, id: &str) -> PathBuf {
        self.wf().join(id)
    }
}

pub(crate) fn id(text: &str) -> RunId {
    RunId::parse(text).unwrap()
}

pub(crate) fn new_run(text: &str) -> NewRun {
    NewRun {
        run_id: id(text),
        spec: json!({ "name": "demo" }),
        events: vec![json!({ "type": "run_created", "n": 0 })],
        artifacts: vec![],
    }
}

/// The record of these tests: the numbers of all events, so that what is missing or doubled shows.
pub(crate) fn fold(store: &FileStore, run: &str) -> Result<Vec<u64>, Error> {
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
pub(crate) fn commit(claim: &mut dyn Claim, n: u64) -> Result<(u64, Time), Error> {
    let done = claim.commit(&[json!({ "type": "log", "n": n })]);
    claim.checkpoint(&json!((0..=n).collect::<Vec<_>>()).to_string());
    done
}

pub(crate) fn upto(n: u64) -> Vec<u64> {
    (0..=n).collect()
}

/// A run with `n` commits after its creation, let go of.
pub(crate) fn finished(store: &FileStore, run: &str, n: u64) {
    let mut claim = store.create(new_run(run)).unwrap();
    for i in 1..=n {
        commit(claim.as_mut(), i).unwrap();
    }
    claim.release().unwrap();
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

/// DS-1: a process killed while it appends leaves any part of its last lines.
#[test]
fn a_log_cut_at_any_byte_opens_with_all_whole_batches() {
    let home = Home::new();
    let store = home.open();
    finished(&store, "a", 4);
    let log = fs::read(home.run("a").join("events.jsonl")).unwrap();
    let ends: Vec<usize> = log.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1).collect();
    for cut in (ends[2]..log.len()).rev() {
        fs::write(home.run("a").join("events.jsonl"), &log[..cut]).unwrap();
        let whole = ends.iter().filter(|end| **end <= cut).count() as u64;
        // The checkpoint is ahead of this log and must not be believed.
        assert_eq!(fold(&home.open(), "a").unwrap(), upto(whole - 1), "cut at {cut}");
    }
    for cut in [ends[2] + 1, ends[3] - 1, ends[3] + 7, log.len() - 1] {
        let whole = ends.iter().filter(|end| **end <= cut).count() as u64;
        fs::write(home.run("a").join("events.jsonl"), &log[..cut]).unwrap();
        let store = home.open();
        let mut claim = store.claim(&id("a")).unwrap();
        let torn = home.run("a").join(format!("events.torn-{}", whole + 1));
        assert!(log[..cut].ends_with(&fs::read(&torn).unwrap()), "the torn bytes are kept");
        fs::remove_file(torn).unwrap();
        commit(claim.as_mut(), whole).unwrap();
        claim.release().unwrap();
        assert_eq!(fold(&store, "a").unwrap(), upto(whole));
        assert_eq!(fold(&home.open(), "a").unwrap(), upto(whole));
    }
}

/// DS-3, DS-5: one damaged run is named with its line, left as it is, and hides no other.
#[test]
fn damage_is_named_kept_and_contained() {
    let home = Home::new();
    let store = home.open();
    for i in 0..50 {
        finished(&store, &format!("run-{i}"), 3);
    }
    assert_eq!(fold(&store, "run-7").unwrap(), upto(3));
    let path = home.run("run-7").join("events.jsonl");
    let good = fs::read_to_string(&path).unwrap();
    let second = good.lines().nth(1).unwrap();
    let bad = good.replacen(second, &second.replace("\"n\":1", "\"n\":8"), 1);
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::write(&path, &bad).unwrap();
    for store in [&store, &home.open()] {
        let listed = store.list().unwrap();
        assert_eq!(listed.len(), 50);
        for run in listed {
            let folded = fold(store, run.run_id.as_str());
            if run.run_id == id("run-7") {
                assert!(matches!(folded, Err(Error::Damaged { line: 2, .. })), "{folded:?}");
            } else {
                assert_eq!(folded.unwrap(), upto(3));
            }
        }
        assert!(matches!(store.claim(&id("run-7")), Err(Error::Damaged { line: 2, .. })));
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), bad, "it is not repaired in silence");
    let kept = fs::read_to_string(home.run("run-7").join("events.bad-2")).unwrap();
    assert!(kept.contains("\"n\":8"));

    // A missing log, spec or incarnation is damage of that run alone as well, and it can be deleted.
    for (run, file) in [("run-1", "events.jsonl"), ("run-2", "spec.json"), ("run-3", "incarnation.json")] {
        fs::remove_file(home.run(run).join(file)).unwrap();
        assert!(store.load(&id(run)).is_err());
        assert_eq!(store.list().unwrap().len(), 50);
    }
    store.delete(&id("run-7")).unwrap();
    assert!(matches!(store.load(&id("run-7")), Err(Error::NotFound(_))));
    assert_eq!(store.list().unwrap().len(), 49);
}

/// A line, or a whole log, of another run does not fit into this one.
#[test]
fn lines_of_another_run_are_refused() {
    let home = Home::new();
    let store = home.open();
    finished(&store, "a", 3);
    finished(&store, "b", 3);
    let (a, b) = (home.run("a").join("events.jsonl"), home.run("b").join("events.jsonl"));
    let (log_a, log_b) = (fs::read_to_string(&a).unwrap(), fs::read_to_string(&b).unwrap());
    let spliced: Vec<&str> = log_a.lines().take(2).chain(log_b.lines().skip(2)).collect();
    fs::write(&a, spliced.join("\n") + "\n").unwrap();
    assert!(matches!(fold(&home.open(), "a"), Err(Error::Damaged { line: 3, .. })));
    fs::write(&a, &log_b).unwrap();
    fs::copy(home.run("b").join("run.json"), home.run("a").join("run.json")).unwrap();
    assert!(matches!(fold(&home.open(), "a"), Err(Error::Damaged { line: 1, .. })));
}

/// Whatever stands in the checkpoint, the record is the log's.
#[test]
fn the_checkpoint_is_only_believed_when_the_log_agrees() {
    let home = Home::new();
    let store = home.open();
    finished(&store, "a", 2);
    let run = home.run("a");
    let old = fs::read(run.join("run.json")).unwrap();
    let mut claim = store.claim(&id("a")).unwrap();
    for n in 3..=6 {
        commit(claim.as_mut(), n).unwrap();
    }
    claim.release().unwrap();
    let now = fs::read(run.join("run.json")).unwrap();
    let loaded = home.open().load(&id("a")).unwrap();
    assert_eq!((loaded.checkpoint.unwrap().0, loaded.lines.len()), (8, 0), "a good one is used");
    let log = fs::read(run.join("events.jsonl")).unwrap();
    let mut rotten = now.clone();
    rotten[now.len() / 2] ^= 4;
    let changed = String::from_utf8(now.clone()).unwrap().replace("[0,1,2", "[9,9,9").into_bytes();
    for (what, bytes) in
        [("old", old), ("rotten", rotten), ("changed", changed), ("empty", vec![]), ("zeros", vec![0; 99])]
    {
        fs::write(run.join("run.json"), bytes).unwrap();
        assert_eq!(fold(&home.open(), "a").unwrap(), upto(6), "{what}");
        assert_eq!(fold(&store, "a").unwrap(), upto(6), "{what}");
    }
    fs::remove_file(run.join("run.json")).unwrap();
    assert_eq!(fold(&home.open(), "a").unwrap(), upto(6), "deleted");
    // Ahead: the log lost its last line, the checkpoint did not, and another batch took the place.
    let last = log[..log.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
    fs::write(run.join("events.jsonl"), &log[..last]).unwrap();
    fs::write(run.join("run.json"), &now).unwrap();
    assert_eq!(fold(&home.open(), "a").unwrap(), upto(5), "ahead");
    let again = home.open();
    drop(again.claim(&id("a")).unwrap());
    assert_eq!(fold(&again, "a").unwrap(), upto(5), "ahead, with a fence in its place");
}

/// OF-1: the lease is for people; a dead owner's process number means nothing.
#[test]
fn a_lease_of_a_dead_process_does_not_keep_a_run() {
    let home = Home::new();
    let store = home.open();
    finished(&store, "a", 1);
    let lease = |host: &str, beat: Time| {
        let text = json!({
            "ownerId": "x", "acquisitionId": "y", "incarnationId": "z", "epoch": 1, "pid": 1, "host": host,
            "acquiredAt": "2001-01-01T00:00:00.000Z", "heartbeatAt": beat,
        });
        fs::write(home.run("a").join("lease.json"), text.to_string()).unwrap();
    };
    let now = Time::new(jiff::Timestamp::now());
    lease("here", now);
    assert!(!store.load(&id("a")).unwrap().live);
    drop(store.claim(&id("a")).unwrap());
    lease("elsewhere", now.plus_millis(-50_000));
    assert!(store.load(&id("a")).unwrap().live);
    assert!(matches!(store.claim(&id("a")), Err(Error::Owned { pid: 1, host, .. }) if host == "elsewhere"));
    assert!(matches!(store.delete(&id("a")), Err(Error::Owned { .. })));
    lease("elsewhere", now.plus_millis(-70_000));
    drop(store.claim(&id("a")).unwrap());
    fs::write(home.run("a").join("lease.json"), "").unwrap();
    drop(store.claim(&id("a")).unwrap());
}

/// OF-6: an old owner never writes into a new run of the same id.
#[test]
fn a_claim_of_a_deleted_run_is_superseded_for_good() {
    let home = Home::new();
    let store = home.open();
    let mut stale = store.create(new_run("a")).unwrap();
    commit(stale.as_mut(), 1).unwrap();
    // Someone removes the lock file by hand; without that the run could not be deleted.
    fs::remove_file(home.run("a").join("owner.lock")).unwrap();
    fs::write(home.run("a").join("lease.json"), "").unwrap();
    store.delete(&id("a")).unwrap();
    assert!(matches!(stale.check(), Err(Error::Superseded { .. })));
    let mut fresh = store.create(new_run("a")).unwrap();
    assert_ne!(stale.incarnation(), fresh.incarnation());
    assert!(matches!(commit(stale.as_mut(), 2), Err(Error::Superseded { .. })));
    assert!(matches!(stale.put_artifact("nodes/x", b"x"), Err(Error::Superseded { .. })));
    assert!(matches!(stale.put_directory("evidence/x", &[]), Err(Error::Superseded { .. })));
    assert!(matches!(stale.heartbeat(), Err(Error::Superseded { .. })));
    assert!(matches!(stale.release(), Err(Error::Superseded { .. })));
    fresh.check().unwrap();
    commit(fresh.as_mut(), 1).unwrap();
    assert_eq!(fold(&store, "a").unwrap(), upto(1));
    assert!(!home.run("a").join("nodes").exists());
}

/// OF-3: a second owner shuts the first one out, even when the lock file was lost between them.
#[test]
fn a_second_owner_supersedes_the_first() {
    let home = Home::new();
    let (one, two) = (home.open(), home.open());
    let mut first = one.create(new_run("a")).unwrap();
    assert!(matches!(two.claim(&id("a")), Err(Error::Owned { .. })));
    fs::remove_file(home.run("a").join("owner.lock")).unwrap();
    let mut second = two.claim(&id("a")).unwrap();
    assert_eq!(second.epoch(), 2);
    assert!(matches!(first.check(), Err(Error::Superseded { .. })));
    assert!(matches!(commit(first.as_mut(), 1), Err(Error::Superseded { .. })));
    assert!(matches!(commit(first.as_mut(), 1), Err(Error::Superseded { .. })));
    commit(second.as_mut(), 1).unwrap();
    assert!(matches!(first.release(), Err(Error::Superseded { .. })));
    second.check().unwrap();
    assert_eq!(fold(&one, "a").unwrap(), upto(1));
}

/// A claim of a store by one of several threads.
type Act<'a> = &'a (dyn Fn(&FileStore) -> Result<Box<dyn Claim>, Error> + Sync);

/// OF-2, OF-6: of all who create one id, or claim one run, at once, exactly one does.
#[test]
fn one_of_many_wins() {
    let home = Home::new();
    let stores: Vec<FileStore> = (0..4).map(|_| home.open()).collect();
    let race = |act: Act<'_>| {
        let start = std::sync::Barrier::new(stores.len());
        std::thread::scope(|scope| {
            let all: Vec<_> = stores.iter().map(|s| scope.spawn(|| (start.wait(), act(s)).1)).collect();
            all.into_iter().map(|t| t.join().unwrap()).collect::<Vec<_>>()
        })
    };
    for round in 0..250 {
        let run = format!("r{round}");
        let made = race(&|s| s.create(new_run(&run)));
        assert_eq!(made.iter().filter(|r| r.is_ok()).count(), 1);
        assert!(made.iter().all(|r| matches!(r, Ok(_) | Err(Error::Exists(_)))), "{made:?}");
        drop(made);
        if round % 10 == 0 {
            let taken = race(&|s| s.claim(&id(&run)));
            assert_eq!(taken.iter().filter(|r| r.is_ok()).count(), 1, "{taken:?}");
            assert!(taken.iter().all(|r| matches!(r, Ok(_) | Err(Error::Owned { .. }))), "{taken:?}");
        }
    }
    assert_eq!(stores[0].list().unwrap().len(), 250);
    assert_eq!(fs::read_dir(home.wf().join(".staging")).unwrap().count(), 4, "only the locks of the four are left");
}

#[test]
fn the_inbox_is_in_order_and_a_request_is_either_taken_or_withdrawn() {
    let home = Home::new();
    let store = home.open();
    let mut claim = store.create(new_run("a")).unwrap();
    let item = |n: u32| InboxItem { id: format!("q-{n}"), body: json!({ "steer": n }) };
    for n in 0..20 {
        home.open().inbox_put(&id("a"), &item(n)).unwrap();
    }
    assert!(store.inbox_put(&id("a"), &item(3)).is_err(), "the id is in use");
    assert!(matches!(store.inbox_put(&id("b"), &item(1)), Err(Error::NotFound(_))));
    for bad in ["", "../x", "a/b", "a.b", ".x", &"x".repeat(200)] {
        assert!(matches!(
            store.inbox_put(&id("a"), &InboxItem { id: bad.to_owned(), body: Value::Null }),
            Err(Error::Malformed { .. })
        ));
    }
    let huge = InboxItem { id: "h".to_owned(), body: json!("x".repeat(200_000)) };
    assert!(matches!(store.inbox_put(&id("a"), &huge), Err(Error::TooLarge { .. })));
    assert!(store.inbox_withdraw(&id("a"), "q-5").unwrap());
    assert!(!store.inbox_withdraw(&id("a"), "q-5").unwrap());
    let want: Vec<InboxItem> = (0..20).filter(|n| *n != 5).map(item).collect();
    assert_eq!(claim.inbox().unwrap(), want);
    assert!(!store.inbox_withdraw(&id("a"), "q-6").unwrap(), "the owner has it");
    claim.inbox_done("q-0").unwrap();
    // An owner that dies before the event is committed leaves the request to the next one.
    drop(claim);
    let claim = store.claim(&id("a")).unwrap();
    assert_eq!(claim.inbox().unwrap(), want[1..]);
}

#[test]
fn a_newer_format_is_read_and_never_written() {
    let home = Home::new();
    let store = home.open();
    finished(&store, "a", 2);
    let format = home.0.path().join("home/format");
    fs::write(&format, "{\"format\":7}\n").unwrap();
    let newer = home.open();
    assert_eq!(newer.newer_format(), Some(7));
    assert_eq!(fold(&newer, "a").unwrap(), upto(2));
    let refused = |e: Error| matches!(e, Error::Newer { found: 7, known: 1 });
    assert!(refused(newer.create(new_run("b")).unwrap_err()));
    assert!(refused(newer.claim(&id("a")).unwrap_err()));
    assert!(refused(newer.delete(&id("a")).unwrap_err()));
    assert!(refused(newer.put_labelled(&id("l"), &mut |_| vec![]).unwrap_err()));
    fs::write(&format, "what?").unwrap();
    assert!(FileStore::open(home.options()).is_err(), "an unreadable format is not guessed");
}
