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

use std::{collections::HashSet, io::Write as _};

use super::{Error, migrate::FORMATS};
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
    let mut total = Counts::default();
    let mut found_any = vec![];
    let only = std::env::var("ONLY").unwrap_or_default();
    for workload in workloads::ALL.iter().filter(|w| only.split(',').any(|o| w.name.starts_with(o))) {
        let begun = std::time::Instant::now();
        let explorer = Explorer::new(workload, None);
        let in_recovery = || if workload.name == "commits" { explorer.faults_in_recovery() } else { Ok(()) };
        for found in [explorer.cuts(true), explorer.faults(), in_recovery()] {
            if let Err(example) = found {
                say(&format!("BROKEN: {example}"));
                found_any.push(example);
            }
        }
        let counts = explorer.counts();
        say(&format!("{}: {counts} {:?}", workload.name, begun.elapsed()));
        let Counts { images, second, faults, after_faults, .. } = counts;
        let enough = [images, second, faults, after_faults].iter().all(|n| *n >= 5);
        assert!(enough || !found_any.is_empty(), "hardly anything was looked at");
        total += counts;
    }
    assert!(found_any.is_empty());
    if !only.is_empty() && only != "hunt" {
        return;
    }
    let begun = std::time::Instant::now();
    let hunted = defects::hunt();
    let mut caught = 0;
    for (defect, example) in &hunted {
        match example {
            Some(example) => {
                caught += 1;
                say(&format!("defect {defect:?} is caught: {example}"));
            }
            None => say(&format!("defect {defect:?} IS NOT CAUGHT")),
        }
    }
    say(&format!("in total: {total}; {caught} of {} defects caught {:?}", hunted.len(), begun.elapsed()));
    assert_eq!(caught, hunted.len(), "the model misses a defect");
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
