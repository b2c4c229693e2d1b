//! What runs on the model: short histories, each of which leaves its own kinds of disks.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{
    super::{
        FileStore, GcOptions, InboxItem, Standing, Store as _, layout,
        layout::Layout,
        migrate::{FORMATS, Formats, Step},
    },
    check,
    defects::Defect,
    drive::{self, Batch, Stop, Writer},
    fs::ModelFs,
    record::ensure,
};
use crate::sys::Fs;

/// One history.
#[derive(Debug, Clone, Copy)]
pub(super) struct Workload {
    pub(super) name: &'static str,
    /// What is on the disk, safely, before it begins.
    prepare: fn(&ModelFs) -> Result<(), Stop>,
    pub(super) run: fn(&ModelFs) -> Result<(), Stop>,
    /// What the program that opens the disk afterwards knows.
    pub(super) formats: Formats,
    /// What it goes on with.
    pub(super) batch: Batch,
    /// What else must be true once it has opened.
    pub(super) also: fn(&ModelFs, &FileStore) -> Result<(), Stop>,
}

impl Workload {
    /// The machine at the beginning.
    pub(super) fn machine(&self, defect: Option<Defect>) -> ModelFs {
        let fs = ModelFs::new();
        if let Err(e) = (self.prepare)(&fs) {
            panic!("{}: the preparation failed: {e:?}", self.name);
        }
        fs.settled(defect)
    }
}

const BASE: Workload = Workload {
    name: "",
    prepare: |_| Ok(()),
    run: |_| Ok(()),
    formats: FORMATS,
    batch: check::PLAIN,
    also: check::nothing_else,
};

/// Every history, in the order in which they are run.
pub(super) const ALL: [Workload; 12] = [
    Workload { name: "create", run: create, ..BASE },
    Workload { name: "commits", prepare: one_run, run: commits, ..BASE },
    Workload { name: "artifacts", prepare: one_run, run: artifacts, batch: Batch::Files, ..BASE },
    Workload { name: "large batch", prepare: one_run, run: large, ..BASE },
    Workload { name: "second owner", prepare: one_run, run: second_owner, ..BASE },
    Workload { name: "late line", prepare: one_run, run: late_line, ..BASE },
    Workload { name: "park and end", prepare: one_run, run: park_and_end, ..BASE },
    Workload { name: "delete", prepare: one_run, run: delete, ..BASE },
    Workload { name: "retention", prepare: three_ended, run: retention, ..BASE },
    Workload { name: "inbox", prepare: one_run, run: inbox, ..BASE },
    Workload { name: "labelled", prepare: one_run, run: labelled, ..BASE },
    Workload { name: "migration", prepare: two_runs, run: migration, formats: SECOND, also: is_migrated, ..BASE },
];

/// The history of that name.
pub(super) fn named(name: &str) -> &'static Workload {
    ALL.iter().find(|w| w.name == name).unwrap()
}

fn open(fs: &ModelFs) -> Result<FileStore, Stop> {
    Ok(drive::open(fs, &FORMATS)?)
}

fn claim(fs: &ModelFs) -> Result<Writer, Stop> {
    Writer::claim(fs, &open(fs)?, &drive::run("r"))
}

/// A run with one batch after its creation.
fn one_run(fs: &ModelFs) -> Result<(), Stop> {
    let mut writer = Writer::create(fs, &open(fs)?, "r")?;
    writer.commit(Batch::Plain)?;
    Ok(writer.claim.release()?)
}

fn two_runs(fs: &ModelFs) -> Result<(), Stop> {
    one_run(fs)?;
    let mut writer = Writer::create(fs, &open(fs)?, "s")?;
    writer.commit(Batch::End)?;
    Ok(writer.claim.release()?)
}

fn three_ended(fs: &ModelFs) -> Result<(), Stop> {
    for id in ["r", "s", "t"] {
        let mut writer = Writer::create(fs, &open(fs)?, id)?;
        writer.commit(Batch::End)?;
        writer.claim.release()?;
    }
    Ok(())
}

fn create(fs: &ModelFs) -> Result<(), Stop> {
    Writer::create(fs, &open(fs)?, "r").map(drop)
}

fn commits(fs: &ModelFs) -> Result<(), Stop> {
    let mut writer = claim(fs)?;
    (0..3).try_for_each(|_| writer.commit(Batch::Plain))
}

fn artifacts(fs: &ModelFs) -> Result<(), Stop> {
    claim(fs)?.commit(Batch::Files)
}

fn large(fs: &ModelFs) -> Result<(), Stop> {
    let mut writer = claim(fs)?;
    writer.commit(Batch::Large)?;
    writer.commit(Batch::Plain)
}

/// The owner's lock file is replaced under it, then the lock itself is lost: twice another one takes the run.
fn second_owner(fs: &ModelFs) -> Result<(), Stop> {
    let lock = Path::new("/home/s/wf/r").join(layout::LOCK);
    let mut first = claim(fs)?;
    first.commit(Batch::Plain)?;
    fs.remove_file(&lock).map_err(super::super::Error::from)?;
    let mut second = claim(fs)?;
    second.commit(Batch::Plain)?;
    first.must_be_shut_out()?;
    fs.lose_lock(&lock);
    let mut third = claim(fs)?;
    second.must_be_shut_out()?;
    third.commit(Batch::Plain)
}

/// A writer that has looked around sleeps, another one takes the run, then its line is added.
fn late_line(fs: &ModelFs) -> Result<(), Stop> {
    let mut first = claim(fs)?;
    fs.lose_lock(&Path::new("/home/s/wf/r").join(layout::LOCK));
    let mut second = first.commit_too_late(open(fs)?)?;
    second.commit(Batch::Plain)?;
    first.must_be_shut_out()?;
    second.commit(Batch::Plain)
}

fn park_and_end(fs: &ModelFs) -> Result<(), Stop> {
    let mut writer = claim(fs)?;
    writer.commit(Batch::Plain)?;
    writer.claim.heartbeat()?;
    writer.claim.release()?;
    let mut writer = claim(fs)?;
    writer.commit(Batch::End)?;
    Ok(writer.claim.release()?)
}

/// P7: the id is used again.
fn delete(fs: &ModelFs) -> Result<(), Stop> {
    let store = open(fs)?;
    drive::delete(fs, &store, "r")?;
    Writer::create(fs, &store, "r").map(drop)
}

fn retention(fs: &ModelFs) -> Result<(), Stop> {
    let store = open(fs)?;
    let options = GcOptions { keep: Some(1), ..GcOptions::default() };
    let plan = store.plan_gc(&options, &mut |_| Standing::Ended {
        state: "completed".to_owned(),
        at: crate::model::Time::from_millis(0),
    })?;
    let ids: Vec<&str> = plan.iter().map(|item| item.run_id.as_str()).collect();
    ensure(ids == ["r", "s"], "I9", || format!("{ids:?} are to go"))?;
    Ok(ids.iter().try_for_each(|id| drive::delete(fs, &store, id))?)
}

fn inbox(fs: &ModelFs) -> Result<(), Stop> {
    let (other, mut writer) = (open(fs)?, claim(fs)?);
    for n in 0..2 {
        other.inbox_put(&drive::run("r"), &InboxItem { id: format!("q{n}"), body: json!({ "steer": n }) })?;
    }
    ensure(other.inbox_withdraw(&drive::run("r"), "q1")?, "I11", || "nobody had taken it".to_owned())?;
    let items = writer.claim.inbox()?;
    ensure(items.len() == 1, "I11", || format!("{items:?} wait"))?;
    writer.commit(Batch::Plain)?;
    Ok(items.iter().try_for_each(|item| writer.claim.inbox_done(&item.id))?)
}

fn labelled(fs: &ModelFs) -> Result<(), Stop> {
    let store = open(fs)?;
    drive::put_labelled(fs, &store)?;
    Ok(drive::put_labelled(fs, &store)?)
}

/// What a program of the next format would know.
pub(super) const SECOND: Formats = Formats { current: 2, steps: &[STEP] };

const STEP: Step = Step { from: 1, files: incarnations, rewrite };

fn incarnations(fs: &dyn Fs, layout: &Layout) -> super::super::Result<Vec<PathBuf>> {
    let names = fs.list(layout.wf())?;
    let runs = names.into_iter().filter(|n| !n.as_encoded_bytes().starts_with(b"."));
    Ok(runs.map(|n| layout.wf().join(n).join(layout::INCARNATION)).collect())
}

fn rewrite(_: &Path, bytes: &[u8]) -> super::super::Result<Option<Vec<u8>>> {
    let mut value: Value = serde_json::from_slice(bytes).unwrap();
    if value["form"] == 2 {
        return Ok(None);
    }
    value["form"] = json!(2);
    Ok(Some(value.to_string().into_bytes()))
}

fn migration(fs: &ModelFs) -> Result<(), Stop> {
    let store = drive::open(fs, &SECOND)?;
    is_migrated(fs, &store)?;
    fs.ledger(|l| l.migrated = true);
    Writer::claim(fs, &store, &drive::run("r"))?.commit(Batch::Plain)
}

/// Every file is new, the old one is kept, and an older program only reads.
fn is_migrated(fs: &ModelFs, _: &FileStore) -> Result<(), Stop> {
    let home = Path::new("/home/s");
    let json = |path: PathBuf| -> Value {
        fs.read(&path).ok().and_then(|b| serde_json::from_slice(&b).ok()).unwrap_or_default()
    };
    ensure(json(home.join("format"))["format"] == 2, "I11", || "the format is not the new one".to_owned())?;
    let first = home.join("backup-format-1");
    ensure(json(first.join("format"))["format"] == 1, "I8", || "the old format file is not kept".to_owned())?;
    for id in ["r", "s"] {
        let (new, old) = (
            json(home.join("wf").join(id).join(layout::INCARNATION)),
            json(first.join("wf").join(id).join(layout::INCARNATION)),
        );
        ensure(new["form"] == 2, "I8", || format!("'{id}' is not in the new form: {new}"))?;
        let same = old["form"].is_null() && old["incarnationId"] == new["incarnationId"];
        ensure(same, "I8", || format!("the old form of '{id}' is not kept: {old}"))?;
    }
    let older = drive::open(fs, &FORMATS)?;
    ensure(older.newer_format() == Some(2), "I11", || "an older program would write".to_owned()).map_err(Stop::from)
}
