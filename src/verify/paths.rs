//! Paths of contracts: what stays inside, what a prefix covers.
//!
//! Lexical rules are pure; [`resolve`] follows links. Nothing is opened here.

use std::path::{Component, Path, PathBuf};

use crate::sys::{Fs, FsError};

/// Why a relative path of a contract is refused as written; `None` when it stays inside.
pub(super) fn escapes(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        return Some("must not be empty");
    }
    let mut depth = 0_usize;
    for part in Path::new(path).components() {
        match part {
            Component::Normal(_) => depth = depth.saturating_add(1),
            Component::CurDir => {}
            Component::ParentDir => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return Some("leads outside through '..'"),
            },
            Component::RootDir | Component::Prefix(_) => return Some("is an absolute path"),
        }
    }
    None
}

/// A prefix in its one form: no leading `./`, no empty steps, no trailing `/`; `.` for everything.
pub(super) fn prefix(text: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    if parts.is_empty() { ".".to_owned() } else { parts.join("/") }
}

/// Whether `path` is `prefix` or lies under it, whole segments only.
pub(super) fn covers(prefix: &str, path: &str) -> bool {
    prefix == "." || path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Where a relative path of a contract leads.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Something is there, inside; every link is resolved.
    Inside(PathBuf),
    /// Nothing is there, and what exists of the way is inside.
    Missing,
    /// It leads outside.
    Outside,
}

/// Follows `path` below `root` (itself with links resolved). Blocking.
pub(super) fn resolve(fs: &dyn Fs, root: &Path, path: &str) -> Result<Place, FsError> {
    if escapes(path).is_some() {
        return Ok(Place::Outside);
    }
    let wanted = root.join(path);
    match fs.canonicalize(&wanted) {
        Ok(real) if real.starts_with(root) => return Ok(Place::Inside(real)),
        Ok(_) => return Ok(Place::Outside),
        Err(e) if e.is_not_found() => {}
        Err(e) => return Err(e),
    }
    // Missing: the part of the way that exists must not lead out either, or "does not exist" would
    // be an answer about a place outside.
    for above in wanted.ancestors().skip(1) {
        match fs.canonicalize(above) {
            Ok(real) if real.starts_with(root) => return Ok(Place::Missing),
            Ok(_) => return Ok(Place::Outside),
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(e),
        }
    }
    Ok(Place::Missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acceptance scenario 9, the part that can be seen on paper.
    #[test]
    fn escaping_paths_are_seen_on_paper() {
        for bad in ["/etc/passwd", "..", "../..", "a/../../x", "", "./../x"] {
            assert!(escapes(bad).is_some(), "{bad}");
        }
        for good in ["a", "a/../b", "./a", "...", "a/..", "..a/b", "-x"] {
            assert!(escapes(good).is_none(), "{good}");
        }
    }

    /// Acceptance scenario 10, prefix semantics.
    #[test]
    fn prefixes_cover_whole_segments() {
        assert!(covers("src", "src/a.ts") && covers("src", "src") && covers(".", "x"));
        assert!(!covers("src", "srcfoo/a.ts") && !covers("src/a", "src/ab") && !covers("src/a.ts", "src"));
        assert_eq!(prefix("./src//x/"), "src/x");
        assert_eq!(prefix("./"), ".");
        assert!(covers(&prefix("naïve dir/"), "naïve dir/ü\n.txt"));
    }
}
