//! Finding a program the way `execvp` would, and saying precisely why not. Runs nothing.

use std::{
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use rustix::fs::{Access, FileType};

/// Searched when an environment has no PATH.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Why there is no program to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Nothing of the name.
    NotFound,
    /// Something is there that cannot be run.
    NotExecutable,
}

/// The absolute path of `program`: by name on `path`, or relative to `cwd` when it has a slash.
pub fn resolve(program: &OsStr, path: Option<&OsStr>, cwd: &Path) -> Result<PathBuf, Missing> {
    if program.is_empty() {
        return Err(Missing::NotFound);
    }
    if program.as_bytes().contains(&b'/') {
        let whole = cwd.join(program);
        return check(&whole).map(|()| whole);
    }
    let mut reason = Missing::NotFound;
    for dir in path.unwrap_or(OsStr::new(DEFAULT_PATH)).as_bytes().split(|byte| *byte == b':') {
        // An empty element means the current directory.
        let candidate = cwd.join(OsStr::from_bytes(dir)).join(program);
        match check(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(Missing::NotExecutable) => reason = Missing::NotExecutable,
            Err(Missing::NotFound) => {}
        }
    }
    Err(reason)
}

/// Whether a directory can be entered; the reason otherwise.
pub fn check_dir(dir: &Path) -> io::Result<()> {
    let stat = rustix::fs::stat(dir)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        return Err(io::Error::from(io::ErrorKind::NotADirectory));
    }
    Ok(rustix::fs::access(dir, Access::EXEC_OK)?)
}

fn check(candidate: &Path) -> Result<(), Missing> {
    let stat = rustix::fs::stat(candidate).map_err(|_| Missing::NotFound)?;
    let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    if regular && rustix::fs::access(candidate, Access::EXEC_OK).is_ok() { Ok(()) } else { Err(Missing::NotExecutable) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test makes real files")]
    fn names_paths_and_reasons() {
        // PA-2: the directory has spaces and brackets.
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("My Folder (1) & co");
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("plain"), "x").unwrap();
        std::os::unix::fs::symlink("/bin/sh", dir.join("tool")).unwrap();
        let path = Some(dir.as_os_str());
        assert_eq!(resolve(OsStr::new("tool"), path, Path::new("/")), Ok(dir.join("tool")));
        assert_eq!(resolve(OsStr::new("./tool"), None, &dir), Ok(dir.join("./tool")));
        assert_eq!(resolve(OsStr::new("plain"), path, Path::new("/")), Err(Missing::NotExecutable));
        assert_eq!(resolve(OsStr::new("none"), path, Path::new("/")), Err(Missing::NotFound));
        assert_eq!(resolve(OsStr::new(""), path, Path::new("/")), Err(Missing::NotFound));
        assert_eq!(resolve(dir.as_os_str(), None, Path::new("/")), Err(Missing::NotExecutable));
        assert!(resolve(OsStr::new("sh"), None, Path::new("/")).is_ok());
        assert!(
            check_dir(&dir).is_ok() && check_dir(&dir.join("plain")).is_err() && check_dir(&dir.join("x")).is_err()
        );
    }
}
