//! Where things lie: every path of the store is built here, and paths that callers give are judged here.

use std::{
    collections::HashSet,
    path::{Component, Path, PathBuf},
};

use super::{Error, Result};
use crate::{
    model::RunId,
    sys::{Fs, FsError, Kind},
};

/// The normalised spec of a run.
pub(super) const SPEC: &str = "spec.json";
/// Which creation of its id a run is.
pub(super) const INCARNATION: &str = "incarnation.json";
/// The log.
pub(super) const LOG: &str = "events.jsonl";
/// The checkpoint.
pub(super) const CHECKPOINT: &str = "run.json";
/// Who executes the run, for people and other hosts.
pub(super) const LEASE: &str = "lease.json";
/// The lock of the owner.
pub(super) const LOCK: &str = "owner.lock";
/// Requests for the owner.
pub(super) const INBOX: &str = "inbox";
/// Marks a directory that holds labelled evidence and is no run.
pub(super) const LABEL: &str = "label.json";
/// Half-made files of the owner; whoever claims the run may empty it.
pub(super) const TEMP: &str = ".tmp";

/// Longest artifact path, in bytes; keeps the whole path far below what file systems take.
const PATH_MAX: usize = 1024;
/// Longest part of an artifact path, in bytes; the limit of common file systems.
const NAME_MAX: usize = 255;

/// Directories remembered as durable by one claim; forgetting them costs a sync each.
const KNOWN_MAX: usize = 10_000;

/// The directories of a store.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    home: PathBuf,
    wf: PathBuf,
}

impl Layout {
    pub(super) fn new(home: PathBuf, wf: PathBuf) -> Self {
        Self { home, wf }
    }
    pub(super) fn home(&self) -> &Path {
        &self.home
    }
    pub(super) fn format(&self) -> PathBuf {
        self.home.join("format")
    }
    /// Held while the format is judged.
    pub(super) fn gate(&self) -> PathBuf {
        self.home.join("format.lock")
    }
    /// Name of the directory of the home that keeps what a change from this format replaced.
    pub(super) fn backup(&self, format: u32) -> String {
        format!("backup-format-{format}")
    }
    pub(super) fn reserve(&self) -> PathBuf {
        self.home.join("reserve")
    }
    pub(super) fn wf(&self) -> &Path {
        &self.wf
    }
    pub(super) fn run(&self, run: &RunId) -> PathBuf {
        self.wf.join(run.as_str())
    }
    pub(super) fn staging(&self) -> PathBuf {
        self.wf.join(".staging")
    }
    pub(super) fn trash(&self) -> PathBuf {
        self.wf.join(".trash")
    }
    /// The lock that shows which process half-made and half-removed runs belong to.
    pub(super) fn process_lock(&self, token: &str) -> PathBuf {
        self.staging().join(format!("{token}.lock"))
    }
}

/// Judges a path below a run that a caller gave: relative, without `..`, and none of the store's own files.
pub(super) fn safe_relative(run: &RunId, path: &str) -> Result<PathBuf> {
    let refuse = |reason: &str| Error::Malformed {
        run: run.clone(),
        what: "artifact path",
        reason: format!("{:?} {reason}", path.chars().take(200).collect::<String>()),
    };
    if path.is_empty() || path.len() > PATH_MAX {
        return Err(refuse("must have 1 to 1024 bytes"));
    }
    if path.contains(['\0', '\\', '\n']) {
        return Err(refuse("must not contain NUL, newline or backslash"));
    }
    let mut safe = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) if name.len() <= NAME_MAX => safe.push(name),
            Component::Normal(_) => return Err(refuse("has a part longer than 255 bytes")),
            Component::CurDir | Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(refuse("must be relative and without '.' or '..'"));
            }
        }
    }
    // `components` forgives doubled slashes and inner dots; a path that is not written plainly is refused too.
    if safe.to_str() != Some(path) {
        return Err(refuse("must be written plainly, as 'a/b/c'"));
    }
    let first = path.split('/').next().unwrap_or_default();
    let own = [SPEC, INCARNATION, LOG, CHECKPOINT, LEASE, LOCK, INBOX, LABEL].contains(&first);
    if own || first.starts_with('.') || first.starts_with("events.") {
        return Err(refuse("names a file of the store itself"));
    }
    Ok(safe)
}

/// Whether a path below `root` can be reached without following a link. `None` when it is not there.
pub(super) fn lookup(fs: &dyn Fs, root: &Path, below: &Path) -> Result<Option<Kind>> {
    let mut at = root.to_owned();
    let mut kind = Kind::Dir;
    for part in below.components() {
        if kind != Kind::Dir {
            return Ok(None);
        }
        at.push(part);
        kind = match fs.metadata(&at) {
            Ok(meta) => meta.kind,
            Err(e) if e.is_not_found() => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        match kind {
            Kind::File | Kind::Dir => {}
            Kind::Symlink | Kind::Other => {
                let why = std::io::Error::new(std::io::ErrorKind::InvalidInput, "links and special files are not read");
                return Err(FsError::new("open", at, why).into());
            }
        }
    }
    Ok(Some(kind))
}

/// Makes every missing directory of `below` under `root`, each durably, without following links.
///
/// A directory that is there already may be one whose making was cut or failed before it was durable; so it
/// is synced too, once: `known` remembers what the caller has made sure of.
pub(super) fn make_dirs(fs: &dyn Fs, root: &Path, below: &Path, known: &mut HashSet<PathBuf>) -> Result<()> {
    lookup(fs, root, below)?;
    let mut at = root.to_owned();
    for part in below.components() {
        let parent = at.clone();
        at.push(part);
        if known.contains(&at) {
            continue;
        }
        match fs.create_dir(&at) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e.into()),
        }
        fs.sync_dir(&parent)?;
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(at.clone());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_the_run_or_touch_the_store_are_refused() {
        let run = RunId::parse("r").unwrap();
        let long = "a".repeat(300);
        for bad in [
            "",
            "/etc/passwd",
            "..",
            "a/../b",
            "nodes/../../x",
            "./a",
            "a/./b",
            "a//b",
            "a/",
            "a\0b",
            "a\\b",
            "a\nb",
            "events.jsonl",
            "events.torn-3",
            "run.json",
            "spec.json",
            "owner.lock",
            "lease.json",
            "inbox/x",
            ".tmp/x",
            ".hidden",
            long.as_str(),
        ] {
            assert!(matches!(safe_relative(&run, bad), Err(Error::Malformed { .. })), "{bad:?}");
        }
        for good in ["nodes/a/v1a1/out.txt", "evidence/verify-01", "nodes/a/..b", "x"] {
            assert_eq!(safe_relative(&run, good).unwrap(), Path::new(good));
        }
    }
}
