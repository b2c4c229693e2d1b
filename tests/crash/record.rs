//! The record of these tests: what folding the log gives, held against the invariants while it is folded.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::super::{Error, FileStore, Line, Store as _};
use crate::model::RunId;

/// An invariant that does not hold.
#[derive(Debug, Clone)]
pub(super) struct Broken {
    pub(super) invariant: &'static str,
    what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

pub(super) fn broken(invariant: &'static str, what: impl Into<String>) -> Broken {
    Broken { invariant, what: what.into() }
}

pub(super) type Checked<T = ()> = Result<T, Broken>;

pub(super) fn ensure(holds: bool, invariant: &'static str, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(broken(invariant, what())) }
}

/// A file the log names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Named {
    pub(super) path: String,
    pub(super) bytes: u64,
    pub(super) sha256: String,
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// One run, folded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Which creation of the id.
    pub(super) generation: u32,
    /// Number of the last batch; the one of the creation is 0.
    pub(super) n: u64,
    /// Claim number of the writer of that batch.
    pub(super) by: u64,
    /// The attempt that was started last.
    pub(super) attempt: u64,
    /// Attempts that succeeded.
    pub(super) succeeded: BTreeSet<u64>,
    pub(super) ended: bool,
    pub(super) files: Vec<Named>,
    /// Stands for every byte of every event.
    sum: u32,
    begun: bool,
}

/// Parts of a batch, so that half of one would show.
const PARTS: u64 = 2;

impl Record {
    /// The two events of the next batch: a node goes on, and what it gave.
    pub(super) fn next(&self, generation: u32, by: u64, finishes: bool, files: &[Named]) -> [Value; 2] {
        let n = if self.begun { self.n + 1 } else { 0 };
        let attempt = if finishes { self.attempt } else { self.attempt + 1 };
        let state = if finishes { "succeeded" } else { "running" };
        let event = |part: u64, kind: &str| json!({ "type": kind, "g": generation, "by": by, "n": n, "part": part });
        let mut first = event(0, "node_state");
        first["attempt"] = json!(attempt);
        first["state"] = json!(state);
        let mut second = event(1, "node_output");
        second["files"] = json!(files);
        [first, second]
    }

    /// Adds one line.
    pub(super) fn fold(&mut self, events: &[Value]) -> Checked {
        let own: Vec<&Value> = events.iter().filter(|e| e["type"] != "fence").collect();
        if own.is_empty() {
            return ensure(!events.is_empty(), "I3", || "a line without an event".to_owned());
        }
        ensure(own.len() as u64 == PARTS, "I3", || format!("{} of {PARTS} parts of a batch", own.len()))?;
        let want = if self.begun { self.n + 1 } else { 0 };
        ensure(!self.ended, "I10", || "a batch after the end".to_owned())?;
        for (part, event) in own.iter().enumerate() {
            ensure(event["late"].is_null(), "I6", || "a batch of a writer that had lost the run counts".to_owned())?;
            ensure(event["n"] == want && event["part"] == part as u64, "I3", || {
                format!("part {} of batch {} where part {part} of {want} belongs", event["part"], event["n"])
            })?;
            self.by = event["by"].as_u64().unwrap_or(0);
            self.generation = event["g"].as_u64().unwrap_or(0) as u32;
            self.node(event)?;
            self.files.extend(serde_json::from_value::<Vec<Named>>(event["files"].clone()).unwrap_or_default());
            self.ended |= event["ended"] == true;
            self.sum = crc32c::crc32c_append(self.sum, event.to_string().as_bytes());
        }
        (self.n, self.begun) = (want, true);
        Ok(())
    }

    fn node(&mut self, event: &Value) -> Checked {
        let Some(attempt) = event["attempt"].as_u64() else { return Ok(()) };
        if event["state"] == "running" {
            ensure(attempt == self.attempt + 1, "I7", || format!("attempt {attempt} after {}", self.attempt))?;
            self.attempt = attempt;
            Ok(())
        } else {
            let once = attempt == self.attempt && self.succeeded.insert(attempt);
            ensure(once, "I7", || format!("attempt {attempt} succeeded without one start of its own"))
        }
    }
}

/// Reads a run as a reader does and from the log alone; both must give the same. `None` when it is not there.
pub(super) fn read(store: &FileStore, run: &RunId) -> Result<Option<Record>, Unread> {
    let loaded = match store.load(run) {
        Err(Error::NotFound(_)) => return Ok(None),
        other => other?,
    };
    let mut served = match loaded.checkpoint {
        Some((_, value)) => serde_json::from_value(value).map_err(|e| broken("I4", e.to_string()))?,
        None => Record::default(),
    };
    loaded.lines.iter().try_for_each(|line| served.fold(&line.events))?;
    let lines = store.lines(run, 0, usize::MAX)?;
    let logged = fold_all(&lines)?;
    ensure(served == logged, "I4", || format!("served {served:?}, the log says {logged:?}"))?;
    Ok(Some(served))
}

fn fold_all(lines: &[Line]) -> Checked<Record> {
    let mut record = Record::default();
    let mut epoch = 0;
    for (at, line) in lines.iter().enumerate() {
        ensure(line.seq == at as u64 + 1, "I5", || format!("line {} has seq {}", at + 1, line.seq))?;
        let fence = line.events.iter().any(|e| e["type"] == "fence");
        ensure(line.epoch == epoch + u64::from(fence), "I6", || format!("epoch {} after {epoch}", line.epoch))?;
        epoch = line.epoch;
        record.fold(&line.events)?;
        let own = line.events.iter().all(|e| e["type"] == "fence" || e["by"] == epoch);
        ensure(own, "I6", || format!("line {} of epoch {epoch} has another one's events", line.seq))?;
    }
    Ok(record)
}

/// Every file the log names is there with its bytes.
pub(super) fn files(store: &FileStore, run: &RunId, record: &Record) -> Checked {
    for file in &record.files {
        let bytes = store
            .read_artifact(run, &file.path, 0, usize::MAX)
            .map_err(|e| broken("I8", format!("{} of '{run}': {e}", file.path)))?;
        let same = bytes.len() as u64 == file.bytes && sha256(&bytes) == file.sha256;
        ensure(same, "I8", || format!("{} of '{run}' has other bytes than the log says", file.path))?;
    }
    Ok(())
}

/// Why a run could not be read.
#[derive(Debug)]
pub(super) enum Unread {
    Store(Error),
    Broken(Broken),
}

impl From<Error> for Unread {
    fn from(e: Error) -> Self {
        Self::Store(e)
    }
}

impl From<Broken> for Unread {
    fn from(e: Broken) -> Self {
        Self::Broken(e)
    }
}
