//! Bringing a state directory of an older format up to date: step by step, with a copy of every file that is
//! changed, safe to be cut anywhere and begun again.
//!
//! A file is copied durably before it is replaced as a whole, and the format is written last; so a process that
//! was cut leaves files of both formats, all of them with a copy, and the next one goes on where it stopped.

use std::{
    collections::HashSet,
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::json;

use super::{Result, layout, layout::Layout, recover};
use crate::sys::{Fs, FsError, FsLock, fs::write_atomic};

/// Gives the new contents of a file from its old ones.
type Rewrite = fn(&Path, &[u8]) -> Result<Option<Vec<u8>>>;

/// One step from a format to the next one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    /// Format it starts from.
    pub(super) from: u32,
    /// Files it may have to change.
    pub(super) files: fn(&dyn Fs, &Layout) -> Result<Vec<PathBuf>>,
    /// New contents of such a file; `None` when they are new already, as after a step that was cut.
    pub(super) rewrite: Rewrite,
}

/// What a program can open: the format it writes, and the steps that lead there from older ones.
#[derive(Debug, Clone, Copy)]
pub(super) struct Formats {
    pub(super) current: u32,
    pub(super) steps: &'static [Step],
}

/// What this program can open. The first format is its own.
pub(super) const FORMATS: Formats = Formats { current: 1, steps: &[] };

/// Times the gate is tried before its holder is believed to be busy for longer.
const GATE_TRIES: u32 = 300;
/// Pause between two of these, in milliseconds.
const GATE_PAUSE_MS: u64 = 10;

/// Lets one process at a time judge the format: who holds the gate knows that nobody is about to use the
/// format it has just read.
pub(super) fn gate(fs: &dyn Fs, layout: &Layout) -> Result<Box<dyn FsLock>> {
    let path = layout.gate();
    for _ in 1..GATE_TRIES {
        if let Some(lock) = fs.try_lock(&path)? {
            return Ok(lock);
        }
        std::thread::sleep(Duration::from_millis(GATE_PAUSE_MS));
    }
    fs.try_lock(&path)?.ok_or_else(|| busy(&path, "another process is bringing the state directory up to date").into())
}

/// Applies every step from the format found on. The caller holds the gate.
pub(super) fn migrate(fs: &dyn Fs, layout: &Layout, found: u32, formats: &Formats) -> Result<()> {
    let _others = exclude_others(fs, layout)?;
    for format in found..formats.current {
        let Some(step) = formats.steps.iter().find(|s| s.from == format) else {
            let why = std::io::Error::new(ErrorKind::Unsupported, format!("nothing leads on from format {format}"));
            return Err(FsError::new("bring up to date", layout.format(), why).into());
        };
        tracing::info!(from = format, to = format + 1, "bringing the state directory up to date");
        apply(fs, layout, step)?;
        write_format(fs, layout, format + 1)?;
    }
    Ok(())
}

/// Writes the format file.
pub(super) fn write_format(fs: &dyn Fs, layout: &Layout, format: u32) -> Result<()> {
    Ok(write_atomic(fs, &layout.format(), format!("{}\n", json!({ "format": format })).as_bytes())?)
}

/// Changes every file that is not new yet, each after its copy is durable.
fn apply(fs: &dyn Fs, layout: &Layout, step: &Step) -> Result<()> {
    let (backup, mut known) = (layout.backup(step.from), HashSet::new());
    back_up(fs, layout, &backup, &layout.format(), &fs.read(&layout.format())?, &mut known)?;
    for path in (step.files)(fs, layout)? {
        let old = fs.read(&path)?;
        if let Some(new) = (step.rewrite)(&path, &old)? {
            back_up(fs, layout, &backup, &path, &old, &mut known)?;
            write_atomic(fs, &path, &new)?;
        } else if let Some(dir) = path.parent() {
            // A process that failed may have replaced it without making the new name durable.
            fs.sync_dir(dir)?;
        }
    }
    Ok(())
}

/// Copies a file durably under the same path below the backup. A different copy that is there stays too.
fn back_up(
    fs: &dyn Fs,
    layout: &Layout,
    backup: &str,
    path: &Path,
    bytes: &[u8],
    known: &mut HashSet<PathBuf>,
) -> Result<()> {
    let below = match path.strip_prefix(layout.wf()) {
        Ok(below) => Path::new("wf").join(below),
        Err(_) => path.strip_prefix(layout.home()).unwrap_or(path).to_owned(),
    };
    let outside = || FsError::new("copy", path, std::io::Error::new(ErrorKind::InvalidInput, "it is no file of ours"));
    let (dir, name) = below.parent().zip(below.file_name().and_then(|n| n.to_str())).ok_or_else(outside)?;
    let dir = Path::new(backup).join(dir);
    layout::make_dirs(fs, layout.home(), &dir, known)?;
    recover::keep(fs, &layout.home().join(dir), name, bytes)
}

/// Takes the locks of all processes that ever opened this state directory; a live one keeps its own.
fn exclude_others(fs: &dyn Fs, layout: &Layout) -> Result<Vec<Box<dyn FsLock>>> {
    let mut locks = Vec::new();
    for name in fs.list(&layout.staging())? {
        let path = layout.staging().join(&name);
        if path.extension().is_some_and(|e| e == "lock") {
            let free = fs.try_lock(&path)?;
            locks.push(free.ok_or_else(|| busy(&path, "a process uses the older format; stop it first"))?);
        }
    }
    Ok(locks)
}

fn busy(path: &Path, why: &str) -> FsError {
    FsError::new("bring up to date, for the lock", path, std::io::Error::new(ErrorKind::ResourceBusy, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_leads_on_from_every_older_format() {
        let from: Vec<u32> = FORMATS.steps.iter().map(|s| s.from).collect();
        assert_eq!(from, (1..FORMATS.current).collect::<Vec<_>>());
    }
}
