//! Every power cut and every failing operation, enumerated over the model of a disk.
//!
//! Compiled as a module of the store, to reach its insides. Nothing here is random: a failure is its own shortest
//! way to see it again, named by the workload and the numbers of operations.

mod check;
mod defects;
mod disk;
mod drive;
mod explore;
mod fs;
mod ledger;
mod record;
mod workloads;

pub(super) use defects::Defect;

use std::{collections::HashSet, io::Write as _, path::Path};

use super::{Error, Store as _, migrate::FORMATS};
use crate::sys::Fs as _;
use drive::{Batch, Writer};
use explore::{Counts, Explorer};
use fs::{Fault, ModelFs};

fn say(line: &str) {
    // Not captured, so that the counts stand in the output of every run.
    writeln!(std::io::stderr(), "disk model: {line}").unwrap();
}

/// DS-1, DS-2: nothing that a cut or a failing operation leaves breaks an invariant, and every deliberate defect does.
#[test]
fn no_cut_and_no_failing_operation_breaks_an_invariant() {
    let (mut total, mut broken) = (Counts::default(), 0);
    for workload in &workloads::ALL {
        let explorer = Explorer::new(workload, None);
        let in_recovery = || if workload.name == "commits" { explorer.faults_in_recovery() } else { Ok(()) };
        for example in [explorer.cuts(true), explorer.faults(), in_recovery()].into_iter().filter_map(Result::err) {
            say(&format!("BROKEN: {example}"));
            broken += 1;
        }
        let counts = explorer.counts();
        say(&format!("{}: {counts}", workload.name));
        let Counts { images, second, faults, after_faults, .. } = counts;
        assert!([images, second, faults, after_faults].iter().all(|n| *n >= 5), "hardly anything was looked at");
        total += counts;
    }
    let hunted = defects::hunt();
    let mut caught = 0;
    for (defect, example) in &hunted {
        match example {
            Some(example) => say(&format!("defect {defect:?} is caught: {example}")),
            None => say(&format!("defect {defect:?} IS NOT CAUGHT")),
        }
        caught += usize::from(example.is_some());
    }
    say(&format!("in total: {total}; {caught} of {} defects caught", hunted.len()));
    assert_eq!((broken, caught), (0, hunted.len()), "an invariant breaks, or the model misses a defect");
}

/// A line of a former owner that does not count, and that it failed to sync, leaves no hole on the disk before the
/// lines of its successor.
#[test]
fn a_late_line_that_was_not_synced_leaves_no_hole() {
    let workload = workloads::named("late line");
    let mut after_a_failed_sync = 0;
    for at in 0..60 {
        let fs = workload.machine(None);
        fs.keep_from(0);
        fs.fail_at(at, Fault::Io);
        let outcome = (workload.run)(&fs);
        let sync = fs.kept().get(at as usize).is_some_and(|m| m.about == "sync /home/s/wf/r/events.jsonl");
        if sync && outcome.is_ok() {
            after_a_failed_sync += 1;
            let lost = fs.without_what_is_pending();
            check::check(&lost, workload).unwrap();
        }
    }
    assert!(after_a_failed_sync > 0, "no sync failed that its successor survives");
}

/// The promise behind the speed: a commit is one write and one sync, however long the log is.
#[test]
fn a_commit_syncs_once() {
    let fs = ModelFs::new();
    let store = drive::open(&fs, &FORMATS).unwrap();
    let mut writer = Writer::create(&fs, &store, "r").unwrap();
    let mut costs = HashSet::new();
    for n in 1..=50 {
        let before = (fs.syncs(), fs.operations());
        writer.commit(Batch::Plain).unwrap();
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
    for (after, fault) in [(0, Fault::Io), (0, Fault::Full), (0, Fault::Short), (1, Fault::Io)] {
        let fs = ModelFs::new();
        let store = drive::open(&fs, &FORMATS).unwrap();
        let mut writer = Writer::create(&fs, &store, "r").unwrap();
        fs.fail_at(after, fault);
        writer.commit(Batch::Plain).unwrap_err();
        assert!(fs.was_hit());
        assert!(matches!(writer.claim.commit(&[]), Err(Error::Poisoned(_))));
        assert!(matches!(writer.claim.check(), Err(Error::Poisoned(_))));
        assert!(matches!(writer.claim.put_artifact("x", b""), Err(Error::Poisoned(_))));
        drop(writer);
        Writer::claim(&fs, &store, &drive::run("r")).unwrap().commit(Batch::Plain).unwrap();
    }
}

/// An older format is brought up to date only while nobody uses it, a newer one is only read, and one that cannot
/// be read is refused.
#[test]
fn formats_that_are_older_newer_or_no_format() {
    let fs = ModelFs::new();
    let first = drive::open(&fs, &FORMATS).unwrap();
    Writer::create(&fs, &first, "r").unwrap().claim.release().unwrap();
    let refused = drive::open(&fs, &workloads::SECOND).unwrap_err().to_string();
    assert!(refused.contains("a process uses the older format"), "{refused}");
    assert_eq!(fs.read(Path::new("/home/s/format")).unwrap(), b"{\"format\":1}\n");
    drop(first);
    let second = drive::open(&fs, &workloads::SECOND).unwrap();
    assert_eq!(fs.read(Path::new("/home/s/backup-format-1/format")).unwrap(), b"{\"format\":1}\n");
    let old = drive::open(&fs, &FORMATS).unwrap();
    assert_eq!(old.newer_format(), Some(2));
    assert!(matches!(old.claim(&drive::run("r")), Err(Error::Newer { found: 2, known: 1 })));
    assert_eq!(old.list().unwrap().len(), 1);
    Writer::claim(&fs, &second, &drive::run("r")).unwrap().commit(Batch::Plain).unwrap();
    drop((old, second));
    for (text, why) in [("{\"format\":0}", "does not name"), ("what?", "does not name"), ("", "does not name")] {
        fs.remove_file(Path::new("/home/s/format")).unwrap();
        fs.create_new(Path::new("/home/s/format")).unwrap().write_at(0, text.as_bytes()).unwrap();
        let refused = drive::open(&fs, &workloads::SECOND).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    // A format between which and ours nothing leads is refused too, and left as it is.
    fs.remove_file(Path::new("/home/s/format")).unwrap();
    fs.create_new(Path::new("/home/s/format")).unwrap().write_at(0, b"{\"format\":1}").unwrap();
    let third = super::migrate::Formats { current: 3, ..workloads::SECOND };
    let refused = drive::open(&fs, &third).unwrap_err().to_string();
    assert!(refused.contains("nothing leads on from format 2"), "{refused}");
}
