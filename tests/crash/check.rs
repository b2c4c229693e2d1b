//! What must be true of every disk, and what the product does next on it.

use super::{
    super::{Error, FileStore, Store as _, layout},
    drive::{self, Batch, LABEL, Stop, Writer},
    fs::ModelFs,
    record::{self, Checked, Record, ensure},
    workloads::Workload,
};
use crate::model::RunId;

/// Opens, holds everything against what was promised, and goes on: one more batch of every run that can take
/// one, or a new run. This is also what the product does after an operation that failed.
pub(super) fn survive(fs: &ModelFs, workload: &Workload) -> Result<(), Stop> {
    let store = drive::open(fs, &workload.formats)?;
    (workload.also)(fs, &store)?;
    fs.ledger(|l| l.migrated |= workload.formats.current > 1);
    let before = fs.operations();
    let runs = look(fs, &store)?;
    // P6: looking changes nothing.
    ensure(fs.operations() == before, "I4", || "a reader wrote".to_owned())?;
    let ended: Vec<_> = runs.iter().filter(|(_, r)| r.ended).map(|(run, _)| (run.clone(), log(fs, run))).collect();
    let mut went_on = false;
    for (run, seen) in runs.iter().filter(|(_, record)| !record.ended) {
        let mut writer = Writer::claim(fs, &store, run)?;
        ensure(writer.record == *seen, "I4", || format!("recovery made {:?} of {seen:?}", writer.record))?;
        for item in writer.claim.inbox()? {
            ensure(item.body["steer"].is_number(), "I3", || format!("half a request: {item:?}"))?;
            writer.claim.inbox_done(&item.id)?;
        }
        writer.commit(workload.batch)?;
        went_on = true;
    }
    if !went_on {
        // The first id that is free, so that one that was deleted is made anew.
        let free = ["r", "next"].into_iter().find(|id| !runs.iter().any(|(run, _)| run.as_str() == *id));
        drop(Writer::create(fs, &store, free.unwrap_or("after"))?);
    }
    for (run, bytes) in ended {
        ensure(log(fs, &run) == bytes, "I10", || format!("run '{run}' had ended and was changed"))?;
    }
    Ok(())
}

fn log(fs: &ModelFs, run: &RunId) -> Option<Vec<u8>> {
    let path = std::path::Path::new("/home/s/wf").join(run.as_str()).join(layout::LOG);
    crate::sys::Fs::read(fs, &path).ok()
}

/// Reads everything there is and holds it against the ledger. Gives the runs.
fn look(fs: &ModelFs, store: &FileStore) -> Result<Vec<(RunId, Record)>, Stop> {
    let listed = store.list()?;
    let ledger = fs.ledger(|l| l.clone());
    let known: Vec<&str> = ledger.ids().collect();
    for item in &listed {
        let id = item.run_id.as_str();
        ensure(known.contains(&id), "I9", || format!("'{id}' is listed and was never created"))?;
    }
    let mut runs = Vec::new();
    for id in known {
        let run = drive::run(id);
        let found = record::read(store, &run)?;
        ledger.judge(id, found.as_ref())?;
        let shown = listed.iter().any(|l| l.run_id == run);
        ensure(shown == found.is_some() && store.exists(&run)? == shown, "I9", || {
            format!("'{id}': listed {shown}, read {}", found.is_some())
        })?;
        if let Some(record) = found {
            record::files(store, &run, &record)?;
            runs.push((run, record));
        }
    }
    labelled(store, &ledger.bundles)?;
    Ok(runs)
}

/// Labelled bundles that were promised are there, and any that is there is whole.
fn labelled(store: &FileStore, promised: &[String]) -> Result<(), Stop> {
    let label = drive::run(LABEL);
    let found = match store.list_artifacts(&label, "evidence") {
        Err(Error::NotFound(_)) => vec![],
        other => other?,
    };
    for id in promised {
        ensure(found.contains(id), "I8", || format!("labelled evidence {id} is gone"))?;
    }
    for id in &found {
        for (name, bytes) in drive::bundle(id) {
            let there = store.read_artifact(&label, &format!("evidence/{id}/{name}"), 0, usize::MAX);
            let same = there.as_ref().is_ok_and(|b| *b == bytes);
            ensure(same, "I8", || format!("{name} of labelled evidence {id}: {there:?}"))?;
        }
    }
    Ok(())
}

/// Everything that is asked of a disk after a cut. Gives the machine, as it stands after one more batch.
pub(super) fn check(fs: &ModelFs, workload: &Workload) -> Checked {
    drive::must(survive(fs, workload))
}

/// Opening again, and again, gives the same.
pub(super) fn again(fs: &ModelFs, workload: &Workload) -> Checked {
    drive::must(open_again(fs, workload))
}

fn open_again(fs: &ModelFs, workload: &Workload) -> Result<(), Stop> {
    let store = drive::open(fs, &workload.formats)?;
    for (run, seen) in look(fs, &store)? {
        if !seen.ended {
            let once = Writer::claim(fs, &store, &run)?.record;
            ensure(once == seen, "I4", || format!("opening again made {once:?} of {seen:?}"))?;
        }
        ensure(!store.load(&run)?.live, "I11", || format!("nobody holds '{run}' and it is said to be live"))?;
    }
    Ok(())
}

/// A workload that asks nothing else.
pub(super) fn nothing_else(_: &ModelFs, _: &FileStore) -> Result<(), Stop> {
    Ok(())
}

/// The batch most workloads go on with.
pub(super) const PLAIN: Batch = Batch::Plain;
