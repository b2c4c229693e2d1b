//! Adding rows. Blocking, like every file operation.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{Row, day::Day, read::Shard};
use crate::sys::{
    Clock, Fs, FsAppend, FsError,
    fs::{Result, create_dir_all},
};

/// Pause between two warnings about a ledger that cannot be written.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The ledger of a home, as one of the processes that write it.
#[derive(Debug)]
pub struct Ledger {
    fs: Arc<dyn Fs>,
    clock: Arc<dyn Clock>,
    /// Empty when no ledger is kept.
    dir: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the last warning was given, since boot.
    warned: Option<Duration>,
    day: Day,
}

impl Ledger {
    /// The ledger in `dir`, which is made when the first row is written. Without a directory nothing is kept.
    pub fn new(fs: Arc<dyn Fs>, clock: Arc<dyn Clock>, dir: PathBuf) -> Self {
        Self { fs, clock, dir, state: Mutex::default() }
    }

    /// Adds a row. A failure is logged at most once a minute and otherwise without consequence. Says whether the row is
    /// there.
    pub fn add(&self, row: &Row) -> bool {
        if self.dir.as_os_str().is_empty() {
            return false;
        }
        let Err(e) = self.write(row) else { return true };
        let now = self.clock.boot();
        let mut state = self.state();
        state.day.lost(row.ts, row.cost_usd);
        if state.warned.is_none_or(|at| now.saturating_sub(at) >= WARN_EVERY) {
            state.warned = Some(now);
            tracing::warn!(error = %e, "the ledger cannot be written; turns go on without it");
        }
        false
    }

    /// US dollars that the rows of the present UTC day add up to, over every process.
    pub fn spent_today(&self) -> f64 {
        if self.dir.as_os_str().is_empty() {
            return 0.0;
        }
        let now = self.clock.wall();
        self.state().day.spent(self.fs.as_ref(), &self.dir, now)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, row: &Row) -> Result<()> {
        let shard = Shard::of(&self.dir, &row.day());
        let path = shard.path();
        let refused = |reason: &str| FsError::new("write a row to", path, io::Error::other(reason.to_owned()));
        let mut line = row.line().ok_or_else(|| refused("the row is too long"))?;
        let mut file = self.open(&shard)?;
        // A writer that died in the middle of a line must not take ours with it.
        let (_, length) = file.stat()?;
        if let Some(last) = length.checked_sub(1)
            && self.fs.read_range(path, last, 1)?.first().is_some_and(|byte| *byte != b'\n')
        {
            line.insert(0, b'\n');
        }
        file.append(&line)
    }

    fn open(&self, shard: &Shard) -> Result<Box<dyn FsAppend>> {
        match self.fs.open_append(shard.path()) {
            Err(e) if e.is_not_found() => {
                create_dir_all(self.fs.as_ref(), &self.dir)?;
                match self.fs.create_new(shard.path()) {
                    Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                    Ok(_) | Err(_) => {}
                }
                self.fs.open_append(shard.path())
            }
            opened => opened,
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "real files for a test")]
mod tests {
    use super::*;
    use crate::{
        model::Time,
        store::ledger::{row::blank, shards},
        sys::{RealFs, SystemClock},
    };

    fn ledger(dir: &std::path::Path) -> Ledger {
        Ledger::new(Arc::new(RealFs), Arc::new(SystemClock), dir.to_owned())
    }

    fn row(ts: Time, usd: f64) -> Row {
        Row { cost_usd: usd, ..blank(ts) }
    }

    /// Surface scenario 21: the last millisecond of a day and the first of the next lie in two files.
    #[test]
    fn midnight_parts_two_shards() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = ledger(&dir.path().join("deep/runs"));
        let midnight = Time::from_millis(1_767_225_600_000);
        assert!(ledger.add(&row(midnight.plus_millis(-1), 0.1)) && ledger.add(&row(midnight, 0.2)));
        let found = shards(&RealFs, &dir.path().join("deep/runs")).unwrap();
        assert_eq!(found.iter().map(|s| s.day.as_str()).collect::<Vec<_>>(), ["2025-12-31", "2026-01-01"]);
        let mut costs = Vec::new();
        for shard in found {
            assert_eq!(shard.read(&RealFs, |row| costs.push(row.cost_usd)).unwrap(), 0);
        }
        assert_eq!(costs, [0.1, 0.2]);
    }

    #[test]
    fn the_day_is_summed_over_writers() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = (ledger(dir.path()), ledger(dir.path()));
        let now = SystemClock.wall();
        assert_eq!(ours.spent_today(), 0.0);
        ours.add(&row(now, 0.25));
        theirs.add(&row(now, 0.5));
        theirs.add(&row(now.plus_millis(-86_400_000), 8.0));
        assert_eq!((ours.spent_today(), theirs.spent_today()), (0.75, 0.75));
        theirs.add(&row(now, 1.0));
        assert_eq!(ours.spent_today(), 1.75);
        // A line under way is counted once it is whole.
        let path = dir.path().join(format!("{}.jsonl", row(now, 0.0).day()));
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [whole.as_slice(), b"{\"ts\""].concat()).unwrap();
        assert_eq!(ours.spent_today(), 1.75);
        ours.add(&row(now, 0.125));
        assert_eq!(ours.spent_today(), 1.875);
    }

    /// Surface scenario 22: what cannot be written is counted all the same.
    #[test]
    fn a_ledger_that_cannot_be_written_fails_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let blocked = dir.path().join("file");
        std::fs::write(&blocked, "").unwrap();
        let ledger = ledger(&blocked);
        assert!(!ledger.add(&row(SystemClock.wall(), 0.5)) && !ledger.add(&row(SystemClock.wall(), 0.5)));
        assert_eq!(ledger.spent_today(), 1.0);
        assert!(ledger.state().warned.is_some());
        let none = super::Ledger::new(Arc::new(RealFs), Arc::new(SystemClock), PathBuf::new());
        assert!(!none.add(&row(SystemClock.wall(), 0.5)));
        assert_eq!(none.spent_today(), 0.0);
    }
}
