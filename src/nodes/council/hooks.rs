//! The hooks that members' commands of git run instead of the repository's. A guard, no sandbox.

use std::path::{Path, PathBuf};

use crate::sys::{
    Fs, FsError,
    fs::{create_dir_all, write_atomic},
};

/// The hook that keeps members from pushing.
const PRE_PUSH: &str = "#!/bin/sh\necho 'council members never push' >&2\nexit 1\n";
/// Its owner may run it.
const RUNS: u32 = 0o100;

/// Where they are.
pub(super) fn folder(home: &Path) -> PathBuf {
    home.join("hooks").join("council")
}

/// Writes what is missing of them. Blocking.
pub(super) fn write(fs: &dyn Fs, dir: &Path) -> Result<(), FsError> {
    let path = dir.join("pre-push");
    let same = fs.read(&path).is_ok_and(|bytes| bytes == PRE_PUSH.as_bytes());
    if same && fs.metadata(&path).is_ok_and(|meta| meta.mode & RUNS != 0) {
        return Ok(());
    }
    create_dir_all(fs, dir)?;
    write_atomic(fs, &path, PRE_PUSH.as_bytes())?;
    fs.make_executable(&path)
}
