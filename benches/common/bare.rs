//! The least a disk must do for a run: what the store is compared with.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::Path,
    time::{Duration, Instant},
};

/// One append and its sync.
pub fn append(file: &mut File, bytes: &[u8]) -> io::Result<Duration> {
    let begun = Instant::now();
    file.write_all(bytes)?;
    file.sync_data()?;
    Ok(begun.elapsed())
}

/// A new file to append to.
pub fn make(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create_new(true).open(path)
}

/// Lines of a run's log, ends included.
pub fn lines(run: &Path) -> io::Result<Vec<Vec<u8>>> {
    let log = fs::read(run.join("events.jsonl"))?;
    Ok(log.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect())
}

/// Appends the lines of a run's log to a new file in `dir`, each with its sync.
pub fn log(dir: &Path, run: &Path) -> io::Result<Duration> {
    let (lines, path) = (lines(run)?, dir.join("bare-log"));
    let mut file = make(&path)?;
    // What others left to be written must not be written at our cost.
    file.sync_all()?;
    let took = lines.iter().map(|line| append(&mut file, line)).sum();
    fs::remove_file(path)?;
    took
}

/// What the creation and the commits of a run need at least: its files, each synced, a rename, and its lines.
pub fn run(dir: &Path, run: &Path) -> io::Result<Duration> {
    let (spec, birth, lines) = (fs::read(run.join("spec.json"))?, fs::read(run.join("incarnation.json"))?, lines(run)?);
    let (stage, whole) = (dir.join("bare-stage"), dir.join("bare-run"));
    fs::create_dir_all(&stage)?;
    let half = stage.join("half");
    let sync = |dir: &Path| File::open(dir)?.sync_all();
    // What others left to be written must not be written at our cost.
    sync(&stage)?;
    let begun = Instant::now();
    fs::create_dir(&half)?;
    append(&mut make(&half.join("spec.json"))?, &spec)?;
    append(&mut make(&half.join("incarnation.json"))?, &birth)?;
    let mut log = make(&half.join("events.jsonl"))?;
    let mut rest = lines.iter();
    for first in rest.by_ref().take(1) {
        append(&mut log, first)?;
    }
    sync(&half)?;
    fs::rename(&half, &whole)?;
    sync(dir)?;
    sync(&stage)?;
    for line in rest {
        append(&mut log, line)?;
    }
    let took = begun.elapsed();
    fs::remove_dir_all(whole)?;
    Ok(took)
}
