//! Files of a run beside its log: long texts and evidence. Written durably before the batch that names them.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::{Error, Result, layout, shared::Shared};
use crate::{
    model::{RunId, run::ArtifactRef},
    sys::{FsError, Kind, fs::remove_tree},
};

/// Stores one file: temporary name, sync, rename, directory sync. Whatever stood there is replaced; only a
/// batch that was never committed can have left it.
pub(super) fn put(
    shared: &Shared,
    run: &RunId,
    path: &str,
    bytes: &[u8],
    known: &mut HashSet<PathBuf>,
) -> Result<ArtifactRef> {
    let below = layout::safe_relative(run, path)?;
    let dir = shared.layout.run(run);
    let parent = below.parent().unwrap_or(Path::new(""));
    layout::make_dirs(shared.fs.as_ref(), &dir, parent, known)?;
    let temp = shared.temp(&dir.join(layout::TEMP))?;
    let written = shared.write_synced(&temp, bytes).and_then(|()| Ok(shared.fs.rename(&temp, &dir.join(&below))?));
    if written.is_err() {
        let _ = shared.fs.remove_file(&temp);
    }
    written?;
    shared.fs.sync_dir(&dir.join(parent))?;
    Ok(ArtifactRef { path: path.to_owned(), bytes: bytes.len() as u64, sha256: sha256(bytes) })
}

/// SHA-256 in hex.
fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// Stores a directory so that it is there whole or not at all. A directory that stood there is moved away first.
pub(super) fn put_directory(
    shared: &Shared,
    run: &RunId,
    path: &str,
    files: &[(String, Vec<u8>)],
    known: &mut HashSet<PathBuf>,
) -> Result<()> {
    let below = layout::safe_relative(run, path)?;
    let dir = shared.layout.run(run);
    let parent = below.parent().unwrap_or(Path::new(""));
    layout::make_dirs(shared.fs.as_ref(), &dir, parent, known)?;
    let temp = shared.temp(&dir.join(layout::TEMP))?;
    let target = dir.join(&below);
    let placed = fill(shared, run, &temp, files).and_then(|()| place(shared, &temp, &target));
    if placed.is_err() {
        let _ = remove_tree(shared.fs.as_ref(), &temp);
    }
    placed?;
    Ok(shared.fs.sync_dir(&dir.join(parent))?)
}

/// Writes and syncs every file and directory below `root`, which is made.
pub(super) fn fill(shared: &Shared, run: &RunId, root: &Path, files: &[(String, Vec<u8>)]) -> Result<()> {
    let fs = shared.fs.as_ref();
    fs.create_dir(root)?;
    let (mut dirs, mut known) = (vec![root.to_owned()], HashSet::new());
    for (name, bytes) in files {
        let below = layout::safe_relative(run, name)?;
        let parent = below.parent().unwrap_or(Path::new(""));
        layout::make_dirs(fs, root, parent, &mut known)?;
        shared.write_synced(&root.join(&below), bytes)?;
        let dir = root.join(parent);
        if !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    for dir in dirs.iter().rev() {
        fs.sync_dir(dir)?;
    }
    Ok(())
}

/// Renames a finished directory into place.
fn place(shared: &Shared, temp: &Path, target: &Path) -> Result<()> {
    let fs = shared.fs.as_ref();
    match fs.rename_new(temp, target) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            let away = shared.layout.trash().join(shared.fresh_name());
            fs.rename(target, &away)?;
            fs.rename_new(temp, target)?;
            if let Err(e) = remove_tree(fs, &away) {
                tracing::warn!(error = %e, "a replaced directory could not be removed");
            }
            Ok(())
        }
        other => Ok(other?),
    }
}

/// Directory that holds the artifacts of a run or a label.
fn root(shared: &Shared, run: &RunId) -> Result<PathBuf> {
    if shared.is_taken(run)? { Ok(shared.layout.run(run)) } else { Err(Error::NotFound(run.clone())) }
}

/// Contents of an artifact.
pub(super) fn read(shared: &Shared, run: &RunId, path: &str, offset: u64, limit: usize) -> Result<Vec<u8>> {
    let below = layout::safe_relative(run, path)?;
    let dir = root(shared, run)?;
    match layout::lookup(shared.fs.as_ref(), &dir, &below)? {
        Some(Kind::File) => Ok(shared.fs.read_range(&dir.join(&below), offset, limit)?),
        Some(Kind::Dir | Kind::Symlink | Kind::Other) | None => {
            let why = std::io::Error::new(std::io::ErrorKind::NotFound, "the run has no such artifact");
            Err(FsError::new("read", dir.join(&below), why).into())
        }
    }
}

/// Names of the entries of an artifact directory.
pub(super) fn list(shared: &Shared, run: &RunId, path: &str) -> Result<Vec<String>> {
    let below = layout::safe_relative(run, path)?;
    let dir = root(shared, run)?;
    match layout::lookup(shared.fs.as_ref(), &dir, &below)? {
        Some(Kind::Dir) => {
            let names = shared.fs.list(&dir.join(&below))?;
            Ok(names.into_iter().filter_map(|n| n.into_string().ok()).filter(|n| !n.starts_with('.')).collect())
        }
        Some(Kind::File | Kind::Symlink | Kind::Other) | None => Ok(Vec::new()),
    }
}
