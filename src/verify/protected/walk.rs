//! One walk over a tree, links not followed, and the written form of its names. Reads no file.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use super::patterns;
use crate::sys::{Fs, FsError, Kind, Meta, fs::Result};

/// Names looked at in one walk, at most; a larger tree is refused rather than half seen.
const MAX_NAMES: usize = 2_000_000;
/// Levels entered, at most. Deeper directories exist only by design: paths that long cannot be opened.
const MAX_DEPTH: usize = 256;

/// A file, link or other thing that is no directory.
#[derive(Debug)]
pub(super) struct Found<'a> {
    /// Path relative to the top, written with `/` (see [`escape`]).
    pub(super) rel: &'a str,
    /// Where it is.
    pub(super) path: &'a Path,
    /// What it is.
    pub(super) meta: &'a Meta,
}

/// What the walk could not see.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    /// Directories that could not be listed.
    pub(super) dirs: BTreeSet<String>,
    /// Directories below the deepest level entered.
    pub(super) too_deep: usize,
}

/// Visits everything below `top` that is no directory.
pub(super) fn walk(fs: &dyn Fs, top: &Path, visit: &mut dyn FnMut(Found<'_>) -> Result<()>) -> Result<Unseen> {
    let mut unseen = Unseen::default();
    let mut names = 0;
    let mut pending = vec![(top.to_path_buf(), String::new(), 0_usize)];
    while let Some((dir, rel, depth)) = pending.pop() {
        let entries = match fs.list(&dir) {
            Ok(entries) => entries,
            Err(e) if depth == 0 => return Err(e),
            Err(e) => {
                if !e.is_not_found() {
                    unseen.dirs.insert(rel);
                }
                continue;
            }
        };
        names += entries.len();
        if names > MAX_NAMES {
            let why = format!("more than {MAX_NAMES} names; set protectTests to false for a tree of this size");
            return Err(FsError::new("record the tests of", top, io::Error::other(why)));
        }
        let dotnet = entries.iter().any(|name| patterns::is_dotnet_project(name.as_bytes()));
        for name in entries {
            let path = dir.join(&name);
            let written = escape(name.as_bytes());
            // Vanished between listing and looking: as if never listed.
            let Ok(meta) = fs.metadata(&path) else { continue };
            let below = if rel.is_empty() { written.clone() } else { format!("{rel}/{written}") };
            match meta.kind {
                Kind::Dir if patterns::skipped_dir(&written, dotnet) => {}
                Kind::Dir if depth + 1 > MAX_DEPTH => unseen.too_deep += 1,
                Kind::Dir => pending.push((path, below, depth + 1)),
                Kind::File | Kind::Symlink | Kind::Other => {
                    visit(Found { rel: &below, path: &path, meta: &meta })?;
                }
            }
        }
    }
    Ok(unseen)
}

/// A name as text, losslessly: `%` and every byte that is not part of valid UTF-8 become `%XX`.
pub(super) fn escape(name: &[u8]) -> String {
    let mut out = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '%' => out.push_str("%25"),
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// The path that [`escape`] wrote.
pub(super) fn unescape(written: &str) -> PathBuf {
    let mut out = Vec::with_capacity(written.len());
    let mut rest = written;
    while let Some((before, after)) = rest.split_once('%') {
        out.extend_from_slice(before.as_bytes());
        match after.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                out.push(b'%');
                rest = after;
            }
        }
    }
    out.extend_from_slice(rest.as_bytes());
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_survives_being_written() {
        for name in
            [b"plain.rs".as_slice(), "тест %25.rs".as_bytes(), b"bad\xff\xfe%.py", b"nl\n\t\"'\\.js", b"%", b"%4"]
        {
            let written = escape(name);
            assert_eq!(unescape(&written).as_os_str().as_bytes(), name, "{written}");
        }
        assert_ne!(escape(b"%FF"), escape(b"\xff"));
    }
}
