//! What the present day has cost so far, as every process writes it down.

use std::path::Path;

use super::{
    read::{self, Shard},
    row::day,
};
use crate::{model::Time, sys::Fs};

/// A sum that is carried on: only what was added to the shard since the last look is read.
#[derive(Debug, Default)]
pub(super) struct Day {
    day: String,
    /// Bytes of the shard that are in the sum.
    read: u64,
    usd: f64,
    /// Of rows that could not be written.
    unwritten: f64,
}

impl Day {
    /// US dollars of the day of `now`. A shard that cannot be read counts as far as it was read.
    pub(super) fn spent(&mut self, fs: &dyn Fs, dir: &Path, now: Time) -> f64 {
        self.turn_to(now);
        let shard = Shard::of(dir, &self.day);
        let length = fs.metadata(shard.path()).map_or(0, |meta| meta.len);
        if length < self.read {
            // Somebody took lines away, so what was counted is no longer what is there.
            (self.read, self.usd) = (0, 0.0);
        }
        if length > self.read {
            let mut more = 0.0;
            match read::rows(fs, shard.path(), self.read, false, |row| more += row.cost_usd) {
                Ok(found) => {
                    self.read += found.bytes;
                    self.usd += more;
                }
                Err(e) => tracing::warn!(error = %e, "the ledger of the day cannot be read"),
            }
        }
        self.usd + self.unwritten
    }

    /// Counts a row that could not be written.
    pub(super) fn lost(&mut self, now: Time, usd: f64) {
        self.turn_to(now);
        self.unwritten += usd;
    }

    fn turn_to(&mut self, now: Time) {
        let today = day(now);
        if today != self.day {
            *self = Self { day: today, ..Self::default() };
        }
    }
}
