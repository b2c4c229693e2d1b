//! The real file system: the only file of the product that calls `std::fs`.
//!
//! Translates [`Fs`] into system calls one to one and decides nothing.
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "the one place that touches real files")]

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, OFlags, RenameFlags};

use super::fs::{FileId, Fs, FsAppend, FsError, FsFile, FsLock, Kind, Meta, Result};

/// Times a lock file may be replaced under our hands before we give up; each round means that someone
/// unlinked the file between our opening and our locking it.
const LOCK_ROUNDS: u32 = 16;

/// The real file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealFs;

/// Names the operation and the path of a failure.
fn at<T>(op: &'static str, path: &Path, result: io::Result<T>) -> Result<T> {
    result.map_err(|source| FsError::new(op, path, source))
}

/// Which file it is.
fn id(meta: &fs::Metadata) -> FileId {
    FileId { device: meta.dev(), inode: meta.ino() }
}

/// Opens a regular file for reading and says how long it is. Not blocking, so that a pipe in its place cannot hang
/// the caller.
fn open_regular(path: &Path) -> io::Result<(File, u64)> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if meta.is_file() {
        Ok((file, meta.len()))
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

/// Reads until `len` bytes or the end of the file, which was `there`.
fn read_some(file: &File, there: u64, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let want = usize::try_from(there.saturating_sub(offset)).unwrap_or(usize::MAX).min(len);
    let mut bytes = vec![0; want];
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset.saturating_add(done as u64)) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}

impl Fs for RealFs {
    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        let read = || {
            let (mut file, len) = open_regular(path)?;
            // Room for all and one byte more, so that its end shows without asking for its length again.
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(usize::try_from(len).unwrap_or(usize::MAX).saturating_add(1))?;
            io::Read::read_to_end(&mut io::Read::take(&file, len.saturating_add(1)), &mut bytes)?;
            if bytes.len() as u64 > len {
                // It has grown since, or is one of those that do not know their length.
                io::Read::read_to_end(&mut file, &mut bytes)?;
            }
            Ok(bytes)
        };
        at("read", path, read())
    }

    fn read_range(&self, path: &Path, offset: u64, len: usize) -> Result<Vec<u8>> {
        at("read", path, open_regular(path).and_then(|(file, there)| read_some(&file, there, offset, len)))
    }

    fn metadata(&self, path: &Path) -> Result<Meta> {
        let meta = at("look at", path, fs::symlink_metadata(path))?;
        let kind = match meta.file_type() {
            t if t.is_file() => Kind::File,
            t if t.is_dir() => Kind::Dir,
            t if t.is_symlink() => Kind::Symlink,
            _ => Kind::Other,
        };
        let mtime_ns = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
        Ok(Meta { kind, id: id(&meta), len: meta.len(), mtime_ns, mode: meta.mode() & 0o7777 })
    }

    fn list(&self, dir: &Path) -> Result<Vec<OsString>> {
        let names = || -> io::Result<Vec<OsString>> {
            let mut names = fs::read_dir(dir)?.map(|e| Ok(e?.file_name())).collect::<io::Result<Vec<_>>>()?;
            names.sort_unstable();
            Ok(names)
        };
        at("list", dir, names())
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        at("read the link", path, fs::read_link(path))
    }

    fn canonicalize(&self, path: &Path) -> Result<PathBuf> {
        at("resolve", path, fs::canonicalize(path))
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        at("make the directory", path, fs::DirBuilder::new().mode(0o700).create(path))
    }

    fn create_new(&self, path: &Path) -> Result<Box<dyn FsFile>> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        Ok(Box::new(RealFile { file: at("create", path, file)?, path: path.to_owned() }))
    }

    fn open_write(&self, path: &Path) -> Result<Box<dyn FsFile>> {
        let file = OpenOptions::new().write(true).open(path);
        Ok(Box::new(RealFile { file: at("open for writing", path, file)?, path: path.to_owned() }))
    }

    fn open_append(&self, path: &Path) -> Result<Box<dyn FsAppend>> {
        let file = OpenOptions::new().append(true).open(path);
        Ok(Box::new(RealFile { file: at("open for appending", path, file)?, path: path.to_owned() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        at("rename to", to, fs::rename(from, to))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        // RENAME_NOREPLACE on Linux, RENAME_EXCL on Apple systems; a file system without it says so.
        let renamed = rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE);
        at("rename without replacing to", to, renamed.map_err(io::Error::from))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        at("sync the directory", dir, File::open(dir).and_then(|d| d.sync_all()))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        at("remove", path, fs::remove_file(path))
    }

    fn make_executable(&self, path: &Path) -> Result<()> {
        at("make executable", path, fs::set_permissions(path, fs::Permissions::from_mode(0o700)))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        at("remove the directory", path, fs::remove_dir(path))
    }

    fn try_lock(&self, path: &Path) -> Result<Option<Box<dyn FsLock>>> {
        at("lock", path, lock(path)).map(|held| held.map(|lock| Box::new(lock) as Box<dyn FsLock>))
    }

    fn free_space(&self, path: &Path) -> Result<u64> {
        let stat = at("ask for free space at", path, rustix::fs::statvfs(path).map_err(io::Error::from))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

/// Takes the lock on the file that `path` names *after* locking: a lock on a file that was unlinked or
/// replaced meanwhile would guard nothing.
fn lock(path: &Path) -> io::Result<Option<RealLock>> {
    for _ in 0..LOCK_ROUNDS {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(e)) => return Err(e),
        }
        let ours = id(&file.metadata()?);
        match fs::symlink_metadata(path) {
            Ok(there) if id(&there) == ours => return Ok(Some(RealLock { file, id: ours })),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "the lock file is replaced again and again"))
}

/// A file open for writing.
#[derive(Debug)]
struct RealFile {
    file: File,
    path: PathBuf,
}

impl FsFile for RealFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        at("write", &self.path, self.file.write_all_at(bytes, offset))
    }

    fn set_len(&mut self, len: u64) -> Result<()> {
        at("set the length of", &self.path, self.file.set_len(len))
    }

    fn sync(&mut self) -> Result<()> {
        at("sync", &self.path, self.file.sync_data())
    }

    fn len(&self) -> Result<u64> {
        at("look at", &self.path, self.file.metadata()).map(|m| m.len())
    }
}

impl FsAppend for RealFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        at("append to", &self.path, self.file.write_all(bytes))
    }

    fn sync(&mut self) -> Result<()> {
        at("sync", &self.path, self.file.sync_data())
    }

    fn stat(&self) -> Result<(FileId, u64)> {
        at("look at", &self.path, self.file.metadata()).map(|m| (id(&m), m.len()))
    }
}

/// A lock that the system frees when the process dies.
#[derive(Debug)]
struct RealLock {
    file: File,
    id: FileId,
}

impl Drop for RealLock {
    fn drop(&mut self) {
        // Closing alone is not enough: a child between its fork and its exec holds a copy for a moment.
        let _ = self.file.unlock();
    }
}

impl FsLock for RealLock {
    fn id(&self) -> FileId {
        self.id
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::{ffi::OsStringExt, fs::symlink};

    use super::*;

    #[test]
    fn modes_locks_and_names_are_what_the_store_relies_on() {
        let dir = tempfile::tempdir().unwrap();
        let fs = RealFs;
        let sub = dir.path().join("d");
        fs.create_dir(&sub).unwrap();
        assert_eq!(fs.metadata(&sub).unwrap().mode, 0o700);
        assert_eq!(fs.create_dir(&sub).unwrap_err().kind(), io::ErrorKind::AlreadyExists);

        let name = sub.join(OsString::from_vec(vec![b'x', 0xff]));
        let mut file = fs.create_new(&name).unwrap();
        file.write_at(0, b"hello").unwrap();
        file.write_at(7, b"!").unwrap();
        file.sync().unwrap();
        assert_eq!(fs.read(&name).unwrap(), b"hello\0\0!");
        assert_eq!(fs.read_range(&name, 3, 3).unwrap(), b"lo\0");
        assert_eq!(fs.read_range(&name, 7, 100).unwrap(), b"!");
        assert_eq!(fs.read_range(&name, 99, 100).unwrap(), b"");
        let meta = fs.metadata(&name).unwrap();
        assert_eq!((meta.kind, meta.len, meta.mode), (Kind::File, 8, 0o600));
        assert_eq!(fs.list(&sub).unwrap(), vec![OsString::from_vec(vec![b'x', 0xff])]);

        symlink(&name, sub.join("link")).unwrap();
        assert_eq!(fs.metadata(&sub.join("link")).unwrap().kind, Kind::Symlink);
        assert_eq!(fs.read(&sub).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(fs.free_space(&sub).unwrap() > 0);

        let (mut one, mut two) = (fs.open_append(&name).unwrap(), fs.open_append(&name).unwrap());
        one.append(b"1").unwrap();
        two.append(b"2").unwrap();
        one.append(b"3").unwrap();
        assert_eq!(fs.read(&name).unwrap(), b"hello\0\0!123");
        assert_eq!(two.stat().unwrap(), (meta.id, 11));
    }

    /// Files of the system say that they are empty.
    #[test]
    fn a_file_is_read_to_its_end_whatever_it_says_of_its_length() {
        let dir = tempfile::tempdir().unwrap();
        for len in [0, 1, 31, 4096, 100_000] {
            let path = dir.path().join(len.to_string());
            let bytes: Vec<u8> = (0..len).map(|n| n as u8).collect();
            fs::write(&path, &bytes).unwrap();
            assert_eq!(RealFs.read(&path).unwrap(), bytes);
            assert_eq!(
                RealFs.read_range(&path, 1, 10).unwrap(),
                bytes.iter().skip(1).take(10).copied().collect::<Vec<_>>()
            );
        }
        let status = RealFs.read(Path::new("/proc/self/status")).unwrap();
        assert!(status.len() > 500 && status.ends_with(b"\n"), "{} bytes", status.len());
        assert!(RealFs.read(dir.path()).is_err());
    }

    #[test]
    fn renaming_without_replacing_spares_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let fs = RealFs;
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        fs.create_dir(&a).unwrap();
        fs.create_dir(&b).unwrap();
        assert_eq!(fs.rename_new(&a, &b).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        fs.remove_dir(&b).unwrap();
        fs.rename_new(&a, &b).unwrap();
        assert!(fs.metadata(&a).unwrap_err().is_not_found());
    }

    #[test]
    fn a_lock_is_exclusive_and_bound_to_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let fs = RealFs;
        let path = dir.path().join("l");
        let held = fs.try_lock(&path).unwrap().unwrap();
        assert!(fs.try_lock(&path).unwrap().is_none());
        fs.remove_file(&path).unwrap();
        let other = fs.try_lock(&path).unwrap();
        assert!(other.is_some(), "the name leads to another file now");
        drop((held, other));
        assert!(fs.try_lock(&path).unwrap().is_some());
    }
}
