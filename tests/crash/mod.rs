//! Every power cut and every failing operation, enumerated over the model of a disk.

use std::{collections::HashSet, path::PathBuf, sync::Arc};

use serde_json::{Value, json};

mod disk;
mod fs;

use disk::Disk;
use fs::{Fault, LeftOut, ModelFs};

use super::{Claim, Error, FileStore, NewRun, Options, Result, Store};
use crate::{model::RunId, sys::SystemClock};

/// Number acknowledged when nothing was.
const NOTHING: u64 = u64::MAX;
const ARTIFACT: &str = "nodes/a/v1a1/out.txt";

fn run() -> RunId {
    RunId::parse("r").unwrap()
}

fn open(fs: &ModelFs) -> Result<FileStore> {
    FileStore::open(Options {
        home: PathBuf::from("/home/s"),
        wf_dir: PathBuf::from("/home/s/wf"),
        fs: Arc::new(fs.clone()),
        clock: Arc::new(SystemClock),
        instance: "p".to_owned(),
        host: "h".to_owned(),
        pid: 1,
        min_free: u64::MAX / 2,
    })
    // No reserve: it is beside the point here and large.
    .map(|mut store| {
        if let Some(shared) = Arc::get_mut(&mut store.shared) {
            shared.min_free = 0;
        }
        store
    })
}

fn record(n: u64) -> Value {
    json!((0..=n).collect::<Vec<_>>())
}

fn event(n: u64) -> Value {
    json!({ "type": "log", "n": n })
}

fn create(fs: &ModelFs, store: &FileStore) -> Result<Box<dyn Claim>> {
    let artifacts = vec![("nodes/base.json".to_owned(), b"base".to_vec())];
    let spec = json!({ "name": "demo" });
    let claim = store.create(NewRun { run_id: run(), spec, events: vec![event(0)], artifacts })?;
    fs.acknowledge(0);
    Ok(claim)
}

fn commit(fs: &ModelFs, claim: &mut dyn Claim, n: u64) -> Result<()> {
    claim.commit(&[event(n)])?;
    claim.checkpoint(&record(n));
    fs.acknowledge(n);
    Ok(())
}

/// The numbers of all events of the run, from the checkpoint as a reader uses it and from the log alone.
fn numbers(store: &FileStore) -> (Vec<u64>, Vec<u64>) {
    let loaded = store.load(&run()).unwrap();
    let mut seen: Vec<u64> = match loaded.checkpoint {
        Some((_, record)) => serde_json::from_value(record).unwrap(),
        None => vec![],
    };
    seen.extend(loaded.lines.iter().flat_map(|l| &l.events).filter_map(|e| e["n"].as_u64()));
    let lines = store.lines(&run(), 0, usize::MAX).unwrap();
    assert!(lines.iter().enumerate().all(|(i, l)| l.seq == i as u64 + 1), "a gap or a repeat");
    (seen, lines.iter().flat_map(|l| &l.events).filter_map(|e| e["n"].as_u64()).collect())
}

/// Create, three commits with an artifact before the second, let go, take over, one more.
fn workload(fs: &ModelFs) -> Result<()> {
    let store = open(fs)?;
    let mut claim = create(fs, &store)?;
    commit(fs, claim.as_mut(), 1)?;
    claim.put_artifact(ARTIFACT, b"long text")?;
    commit(fs, claim.as_mut(), 2)?;
    commit(fs, claim.as_mut(), 3)?;
    claim.release()?;
    let mut claim = open(fs)?.claim(&run())?;
    commit(fs, claim.as_mut(), 4)
}

/// Opens a disk after a cut, holds it against what was acknowledged, and goes on. Returns the machine.
fn check(disk: Disk, acknowledged: u64) -> ModelFs {
    let fs = ModelFs::on(disk);
    fs.acknowledge(acknowledged);
    fs.keep_states();
    let store = open(&fs).unwrap();
    let listed = store.list().unwrap();
    if listed.is_empty() {
        assert_eq!(acknowledged, NOTHING, "the run is gone");
        create(&fs, &store).unwrap();
        return fs;
    }
    let (seen, logged) = numbers(&store);
    assert_eq!(seen, logged, "the checkpoint and the log disagree");
    let last = *seen.last().unwrap();
    assert_eq!(seen, (0..=last).collect::<Vec<_>>());
    let safe = acknowledged.checked_add(1).map_or(0, |_| acknowledged);
    assert!(last == safe || (last == safe + 1 && acknowledged != NOTHING), "{last} is there, {safe} was acknowledged");
    if last >= 2 {
        assert_eq!(store.read_artifact(&run(), ARTIFACT, 0, 99).unwrap(), b"long text");
    }
    assert_eq!(store.read_artifact(&run(), "nodes/base.json", 0, 99).unwrap(), b"base");
    let mut claim = store.claim(&run()).unwrap();
    assert_eq!(numbers(&store).1, logged, "recovery changed what was there");
    // What a reader was shown counts as promised from here on.
    fs.acknowledge(last);
    if last < 2 {
        claim.put_artifact(ARTIFACT, b"long text").unwrap();
    }
    commit(&fs, claim.as_mut(), last + 1).unwrap();
    drop(claim);
    let again = open(&fs).unwrap();
    assert_eq!(numbers(&again), (record_of(last + 1), record_of(last + 1)));
    fs
}

fn record_of(n: u64) -> Vec<u64> {
    (0..=n).collect()
}

/// What no recovery reads.
const UNREAD: [&str; 4] = [".tmp", ".staging", ".trash", "owner.lock"];
/// What decides how a recovery goes; the rest is cache, temporary, or for people.
const LESSER: [&str; 6] = [".tmp", ".staging", ".trash", "run.json", "lease.json", "owner.lock"];

/// Disks looked at already.
#[derive(Default)]
struct Seen(HashSet<(u64, u64)>);

impl Seen {
    /// Disks a cut may leave that were not seen yet, names in `ignored` aside.
    fn cuts(&mut self, states: &[(Disk, u64)], ignored: &[&str]) -> Vec<(Disk, u64)> {
        let disks = states.iter().flat_map(|(disk, n)| disk.after_cut(ignored).into_iter().map(|d| (d, *n)));
        disks.filter(|(disk, n)| self.0.insert((disk.fingerprint(ignored), *n))).collect()
    }
}

/// A machine that starts as if the state directory's parents had been there for long.
fn machine() -> ModelFs {
    let fs = ModelFs::new();
    crate::sys::Fs::create_dir(&fs, std::path::Path::new("/home")).unwrap();
    crate::sys::Fs::sync_dir(&fs, std::path::Path::new("/")).unwrap();
    fs.acknowledge(NOTHING);
    fs
}

/// DS-1: every cut of the workload, and every cut of every recovery from those.
#[test]
fn every_power_cut_leaves_a_run_that_goes_on() {
    let fs = machine();
    fs.keep_states();
    workload(&fs).unwrap();
    let states = fs.kept_states();
    let all = Seen::default().cuts(&states, &UNREAD);
    assert!(all.len() > 500, "only {} disks", all.len());
    for (disk, acknowledged) in all {
        check(disk, acknowledged);
    }
    let (mut seen, mut second) = (Seen::default(), 0);
    for (disk, acknowledged) in seen.cuts(&states, &LESSER) {
        let fs = check(disk, acknowledged);
        for (disk, acknowledged) in seen.cuts(&fs.kept_states(), &LESSER) {
            second += 1;
            check(disk, acknowledged);
        }
    }
    assert!(second > 500, "only {second} disks of a second cut");
}

/// The enumeration proves something: a store that left out the syncs of files, or of directories, is caught.
#[test]
fn a_sync_left_out_is_caught() {
    for syncs in [LeftOut::Files, LeftOut::Dirs] {
        let fs = machine();
        fs.leave_out(syncs);
        fs.keep_states();
        workload(&fs).unwrap();
        // State by state, because what is pending without syncs grows, and so do the disks it may leave.
        let mut seen = Seen::default();
        let lost = |(disk, acknowledged)| std::panic::catch_unwind(|| drop(check(disk, acknowledged))).is_err();
        let caught = fs.kept_states().into_iter().any(|state| seen.cuts(&[state], &LESSER).into_iter().any(lost));
        assert!(caught, "nobody misses the syncs of {syncs:?}");
    }
}

/// DS-2 and the sync that fails: the workload goes on as the product does, by opening again, and is then cut.
#[test]
fn every_failing_operation_is_survived_and_no_batch_is_half_there() {
    let clean = machine();
    workload(&clean).unwrap();
    let (mut failures, mut cuts) = (0, 0);
    for fault in [Fault::Io, Fault::Full] {
        for at in 0..clean.operations() {
            let fs = machine();
            fs.fail_at(at, fault);
            // A cache that cannot be written is no failure, so the workload may well end.
            if workload(&fs).is_err() {
                failures += 1;
                go_on(&fs);
            }
            let disks = Seen::default().cuts(&fs.kept_states(), &LESSER);
            cuts += disks.len();
            for (disk, acknowledged) in disks {
                check(disk, acknowledged);
            }
        }
    }
    assert!(failures > 100 && cuts > 500, "only {failures} failures and {cuts} cuts");
}

/// What a process does after an error: open again, see what is there, add to it.
fn go_on(fs: &ModelFs) {
    let store = open(fs).unwrap();
    if store.list().unwrap().is_empty() {
        assert_eq!(fs.acknowledged(), NOTHING);
        create(fs, &store).unwrap();
    }
    // A failed handle that was dropped must not keep the run.
    let mut claim = store.claim(&run()).unwrap();
    let last = *numbers(&store).1.last().unwrap();
    fs.acknowledge(last);
    if last < 2 {
        claim.put_artifact(ARTIFACT, b"long text").unwrap();
    }
    commit(fs, claim.as_mut(), last + 1).unwrap();
}

/// The promise behind the speed: a commit is one write and one sync, however long the log is.
#[test]
fn a_commit_syncs_once() {
    let fs = machine();
    let store = open(&fs).unwrap();
    let mut claim = create(&fs, &store).unwrap();
    let mut costs = HashSet::new();
    for n in 1..=50 {
        let before = (fs.syncs(), fs.operations());
        commit(&fs, claim.as_mut(), n).unwrap();
        assert_eq!(fs.syncs() - before.0, 1);
        if n > 1 {
            costs.insert(fs.operations() - before.1);
        }
    }
    assert_eq!(costs.len(), 1, "{costs:?}");
}

/// A handle whose write failed refuses everything until the run is opened again; then the truth is known.
#[test]
fn a_failed_commit_poisons_the_handle() {
    for (after, fault) in [(0, Fault::Io), (0, Fault::Full), (1, Fault::Io)] {
        let fs = machine();
        let store = open(&fs).unwrap();
        let mut claim = create(&fs, &store).unwrap();
        fs.fail_at(after, fault);
        assert!(matches!(commit(&fs, claim.as_mut(), 1), Err(Error::Io(_))));
        assert!(matches!(commit(&fs, claim.as_mut(), 1), Err(Error::Poisoned(_))));
        assert!(matches!(claim.check(), Err(Error::Poisoned(_))));
        assert!(matches!(claim.put_artifact("x", b""), Err(Error::Poisoned(_))));
        drop(claim);
        let mut claim = store.claim(&run()).unwrap();
        let last = *numbers(&store).1.last().unwrap();
        commit(&fs, claim.as_mut(), last + 1).unwrap();
    }
}
