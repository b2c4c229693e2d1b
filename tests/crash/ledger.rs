//! What callers were told: which states of each run a disk may show after a cut.

use std::collections::BTreeMap;

use super::record::{Checked, Record, broken};

/// One state a run may be found in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Allowed {
    /// No such run.
    Absent,
    /// This creation of the id with any number of batches from `safe` to `tried`.
    There {
        generation: u32,
        safe: u64,
        tried: u64,
        /// Claim number of the writer of the batch that is safe.
        by: u64,
    },
}

/// All that was promised. Kept with every state of the disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Ledger {
    runs: BTreeMap<String, Vec<Allowed>>,
    /// Creations of each id begun so far.
    generations: BTreeMap<String, u32>,
    /// Ids of labelled bundles that were returned.
    pub(super) bundles: Vec<String>,
    /// Opening as the newer format returned.
    pub(super) migrated: bool,
}

impl Ledger {
    fn of(&mut self, run: &str) -> &mut Vec<Allowed> {
        self.runs.entry(run.to_owned()).or_insert_with(|| vec![Allowed::Absent])
    }

    /// Number for the next creation of an id.
    pub(super) fn next_generation(&mut self, run: &str) -> u32 {
        let last = self.generations.entry(run.to_owned()).or_default();
        *last += 1;
        *last
    }

    pub(super) fn begin_create(&mut self, run: &str, generation: u32) {
        self.of(run).push(Allowed::There { generation, safe: 0, tried: 0, by: 1 });
    }

    /// Only this is true of the run from now on.
    pub(super) fn settle(&mut self, run: &str, record: &Record) {
        let Record { generation, n, by, .. } = *record;
        *self.of(run) = vec![Allowed::There { generation, safe: n, tried: n, by }];
    }

    pub(super) fn begin_commit(&mut self, run: &str) {
        for allowed in self.of(run) {
            if let Allowed::There { tried, .. } = allowed {
                *tried += 1;
            }
        }
    }

    pub(super) fn begin_delete(&mut self, run: &str) {
        self.of(run).push(Allowed::Absent);
    }

    pub(super) fn deleted(&mut self, run: &str) {
        *self.of(run) = vec![Allowed::Absent];
    }

    /// Every id ever used.
    pub(super) fn ids(&self) -> impl Iterator<Item = &str> {
        self.runs.keys().map(String::as_str)
    }

    /// Holds what is found of a run against what may be found.
    pub(super) fn judge(&self, run: &str, found: Option<&Record>) -> Checked {
        let allowed = self.runs.get(run).map_or(&[Allowed::Absent][..], Vec::as_slice);
        let of = |wanted: u32| {
            allowed.iter().find_map(|a| match a {
                Allowed::There { generation, safe, tried, by } if *generation == wanted => Some((*safe, *tried, *by)),
                Allowed::There { .. } | Allowed::Absent => None,
            })
        };
        match found {
            None if allowed.contains(&Allowed::Absent) => Ok(()),
            None => Err(broken("I9", format!("run '{run}' is gone; {allowed:?}"))),
            Some(record) => match (of(record.generation), record.n) {
                (None, _) => {
                    Err(broken("I9", format!("creation {} of '{run}' is back; {allowed:?}", record.generation)))
                }
                (Some((safe, _, by)), n) if n == safe && by != record.by => {
                    Err(broken("I6", format!("batch {n} of '{run}' is from claim {}, not {by}", record.by)))
                }
                (Some((safe, _, _)), n) if n < safe => {
                    Err(broken("I1", format!("batch {safe} of '{run}' was acknowledged, {n} is the last one there")))
                }
                (Some((_, tried, _)), n) if n > tried => {
                    Err(broken("I2", format!("batch {n} of '{run}' is there, {tried} was the last one tried")))
                }
                (Some(_), _) => Ok(()),
            },
        }
    }
}
