//! The state directory itself: its format, its reserve for a full disk, and leftovers of dead processes.

use std::{io::ErrorKind, path::Path};

use serde_json::Value;

use super::{
    Result,
    layout::Layout,
    migrate::{self, Formats},
};
use crate::sys::{
    Fs, FsError, FsLock,
    fs::{create_dir_all, remove_tree},
    ids,
};

/// Size of the reserve: some commits, checkpoints and leases, to note that the disk is full.
pub(super) const RESERVE: usize = 1024 * 1024;

/// What opening found and holds.
#[derive(Debug)]
pub(super) struct Home {
    /// A newer format than ours: nothing is written.
    pub(super) newer: Option<u32>,
    /// The newest format this program knows.
    pub(super) known: u32,
    /// Names the directories this process makes or removes; its lock is held as long as the store lives.
    pub(super) token: String,
    _lock: Option<Box<dyn FsLock>>,
}

/// Opens the state directory: makes it when missing, judges its format, clears what dead processes left.
pub(super) fn open(fs: &dyn Fs, layout: &Layout, instance: &str, min_free: u64, formats: &Formats) -> Result<Home> {
    let (token, known) = (format!("{}-{}", plain(instance), ids::short()), formats.current);
    let newer = |found| {
        tracing::warn!(found, known, "the state directory has a newer format and is only read");
        Home { newer: Some(found), known, token: token.clone(), _lock: None }
    };
    // Looked at before anything is made, since a newer state directory is not written to.
    if let Some(found) = format(fs, layout)?.filter(|found| *found > known) {
        return Ok(newer(found));
    }
    for dir in [layout.home(), layout.wf(), &layout.staging(), &layout.trash()] {
        make_durably(fs, dir)?;
    }
    let gate = migrate::gate(fs, layout)?;
    match format(fs, layout)? {
        None => migrate::write_format(fs, layout, known)?,
        Some(found) if found < known => migrate::migrate(fs, layout, found, formats)?,
        Some(found) if found > known => return Ok(newer(found)),
        Some(_) => {}
    }
    let lock = hold(fs, layout, &token)?;
    drop(gate);
    clear_leftovers(fs, layout, &token);
    if let Err(e) = make_reserve(fs, layout, min_free) {
        tracing::warn!(error = %e, "no reserve for a full disk could be set aside");
    }
    Ok(Home { newer: None, known, token, _lock: Some(lock) })
}

/// Makes a directory and its missing parents so that a power cut cannot take their names away again. One that
/// is there already may have been made by a process that was cut before it could do the same.
fn make_durably(fs: &dyn Fs, dir: &Path) -> Result<()> {
    let parent = dir.parent().unwrap_or(dir);
    match fs.create_dir(dir) {
        Ok(()) => Ok(fs.sync_dir(parent)?),
        Err(e) if e.kind() == ErrorKind::NotFound && parent != dir => {
            make_durably(fs, parent)?;
            create_dir_all(fs, dir)?;
            Ok(fs.sync_dir(parent)?)
        }
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            create_dir_all(fs, dir)?;
            // The parent may be one that this user cannot open; then it was not made by us.
            match fs.sync_dir(parent) {
                Err(e) if e.kind() != ErrorKind::PermissionDenied => Err(e.into()),
                Ok(()) | Err(_) => Ok(()),
            }
        }
        Err(e) => Err(e.into()),
    }
}

/// The format found. One that cannot be read is an error: guessing could harm.
fn format(fs: &dyn Fs, layout: &Layout) -> Result<Option<u32>> {
    let bytes = match fs.read(&layout.format()) {
        Ok(bytes) => bytes,
        Err(e) if e.is_not_found() => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let value: Option<Value> = serde_json::from_slice(&bytes).ok();
    let found = value.as_ref().and_then(|v| v.get("format")).and_then(Value::as_u64).filter(|n| *n > 0);
    match found {
        Some(n) => Ok(Some(u32::try_from(n).unwrap_or(u32::MAX))),
        None => {
            let why = std::io::Error::new(ErrorKind::InvalidData, "it does not name a store format");
            Err(FsError::new("understand", layout.format(), why).into())
        }
    }
}

/// Holds the lock of this process, and says so when locks do not work here.
fn hold(fs: &dyn Fs, layout: &Layout, token: &str) -> Result<Box<dyn FsLock>> {
    let path = layout.process_lock(token);
    let busy = || {
        let why = std::io::Error::new(ErrorKind::ResourceBusy, "a name made a moment ago is locked by another");
        FsError::new("lock", &path, why)
    };
    let lock = fs.try_lock(&path)?.ok_or_else(busy)?;
    if fs.try_lock(&path)?.is_some() {
        tracing::warn!(
            path = %layout.wf().display(),
            "file locks do not exclude here (a network file system?); let only one process use this state directory"
        );
    }
    Ok(lock)
}

/// Removes half-made and half-removed runs of processes that are gone. Failing to is no reason not to start.
fn clear_leftovers(fs: &dyn Fs, layout: &Layout, own: &str) {
    let mut gone: Vec<(String, Box<dyn FsLock>)> = Vec::new();
    let names = |dir: &Path| -> Vec<String> {
        let listed: Vec<_> = fs.list(dir).unwrap_or_default();
        listed.into_iter().filter_map(|n| n.into_string().ok()).collect()
    };
    for dir in [layout.staging(), layout.trash()] {
        for name in names(&dir) {
            let token = name.split('.').next().unwrap_or_default();
            if token.is_empty() || token == own || name.ends_with(".lock") {
                continue;
            }
            if !gone.iter().any(|(t, _)| t == token) {
                // A lock that cannot be taken, for whatever reason, may belong to a live process.
                match fs.try_lock(&layout.process_lock(token)) {
                    Ok(Some(lock)) => gone.push((token.to_owned(), lock)),
                    Ok(None) | Err(_) => continue,
                }
            }
            if let Err(e) = remove_tree(fs, &dir.join(&name)) {
                tracing::warn!(error = %e, "a leftover could not be removed");
            }
        }
    }
    for name in names(&layout.staging()) {
        let Some(token) = name.strip_suffix(".lock").filter(|t| *t != own) else { continue };
        let known = gone.iter().any(|(t, _)| t == token);
        let lock = if known { None } else { fs.try_lock(&layout.process_lock(token)).ok().flatten() };
        if known || lock.is_some() {
            let _ = fs.remove_file(&layout.process_lock(token));
        }
    }
}

/// Sets the reserve aside when it is missing and space is plentiful.
pub(super) fn make_reserve(fs: &dyn Fs, layout: &Layout, min_free: u64) -> Result<()> {
    let path = layout.reserve();
    match fs.metadata(&path) {
        Ok(meta) if meta.len >= RESERVE as u64 => return Ok(()),
        Ok(_) => fs.remove_file(&path)?,
        Err(e) if e.is_not_found() => {}
        Err(e) => return Err(e.into()),
    }
    if fs.free_space(layout.home())? < min_free.saturating_add(RESERVE as u64) {
        return Ok(());
    }
    // Bytes that are not zero, so that a file system cannot leave them out.
    match fs.create_new(&path) {
        Ok(mut file) => Ok(file.write_at(0, &vec![0x5a; RESERVE])?),
        Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Frees the reserve, so that a run on a full disk can still note why it stands still.
pub(super) fn free_reserve(fs: &dyn Fs, layout: &Layout) {
    match fs.remove_file(&layout.reserve()) {
        Ok(()) => tracing::warn!("the disk is full; the reserve was freed"),
        Err(e) if e.is_not_found() => {}
        Err(e) => tracing::warn!(error = %e, "the disk is full and the reserve could not be freed"),
    }
}

/// The instance id as a part of a file name.
fn plain(instance: &str) -> String {
    let kept = instance.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    let text: String = kept.take(64).collect();
    if text.is_empty() { "process".to_owned() } else { text }
}
