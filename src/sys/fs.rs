//! Every file operation the product makes, as one trait, so that a test can stop or fail any of them.

use std::{
    ffi::OsString,
    fmt, io,
    path::{Path, PathBuf},
};

/// A file operation that failed: what was tried, where, and the system's reason.
#[derive(Debug, thiserror::Error)]
#[error("failed to {op} {}: {source}", path.display())]
pub struct FsError {
    /// The operation, as a verb.
    pub op: &'static str,
    /// Where.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

impl FsError {
    /// An error of `op` at `path`.
    pub fn new(op: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self { op, path: path.into(), source }
    }

    /// The system's kind of error.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// Whether the thing is simply not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    }
}

/// Result of a file operation.
pub type Result<T> = std::result::Result<T, FsError>;

/// What stands at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link, not followed.
    Symlink,
    /// Pipe, socket or device.
    Other,
}

/// Which file it is, whatever it is called. No two files that exist or are open have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    /// The file system.
    pub device: u64,
    /// The file on it.
    pub inode: u64,
}

/// What is known about a path without opening it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// What it is; links are not followed.
    pub kind: Kind,
    /// Which file it is.
    pub id: FileId,
    /// Length in bytes.
    pub len: u64,
    /// Last change of the contents, nanoseconds since the epoch.
    pub mtime_ns: i128,
    /// Permission bits.
    pub mode: u32,
}

/// The file operations. Directories are made 0700 and files 0600.
///
/// Blocking by design: callers on async threads go through `tokio::task::spawn_blocking`.
pub trait Fs: Send + Sync + fmt::Debug + 'static {
    /// Whole contents of a regular file, links followed.
    fn read(&self, path: &Path) -> Result<Vec<u8>>;
    /// Up to `len` bytes from `offset`; shorter at the end of the file.
    fn read_range(&self, path: &Path, offset: u64, len: usize) -> Result<Vec<u8>>;
    /// What stands at `path`; links are not followed.
    fn metadata(&self, path: &Path) -> Result<Meta>;
    /// Names in a directory, sorted bytewise.
    fn list(&self, dir: &Path) -> Result<Vec<OsString>>;
    /// Target of a link.
    fn read_link(&self, path: &Path) -> Result<PathBuf>;
    /// Absolute path with every link resolved.
    fn canonicalize(&self, path: &Path) -> Result<PathBuf>;
    /// Makes one directory; its parent must exist, itself must not.
    fn create_dir(&self, path: &Path) -> Result<()>;
    /// Makes a new file for writing; fails when something is there.
    fn create_new(&self, path: &Path) -> Result<Box<dyn FsFile>>;
    /// Opens an existing file for writing in place.
    fn open_write(&self, path: &Path) -> Result<Box<dyn FsFile>>;
    /// Opens an existing file for adding to its end, wherever that is by then.
    fn open_append(&self, path: &Path) -> Result<Box<dyn FsAppend>>;
    /// Renames, replacing what is there.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Renames only when nothing is at `to` (`ErrorKind::AlreadyExists` otherwise), atomically.
    fn rename_new(&self, from: &Path, to: &Path) -> Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Path) -> Result<()>;
    /// Removes a file or link.
    fn remove_file(&self, path: &Path) -> Result<()>;
    /// Lets the owner run a file.
    fn make_executable(&self, path: &Path) -> Result<()> {
        Err(FsError::new("make executable", path, io::ErrorKind::Unsupported.into()))
    }
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// Tries to take the exclusive lock on a file, making the file when missing. `None` when another holds it.
    fn try_lock(&self, path: &Path) -> Result<Option<Box<dyn FsLock>>>;
    /// Bytes free for this user on the file system of `path`.
    fn free_space(&self, path: &Path) -> Result<u64>;
}

/// A file open for writing.
pub trait FsFile: Send + fmt::Debug {
    /// Writes all of `bytes` at `offset`.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Cuts or extends the file.
    fn set_len(&mut self, len: u64) -> Result<()>;
    /// Makes the contents durable (fdatasync).
    fn sync(&mut self) -> Result<()>;
    /// Length now.
    fn len(&self) -> Result<u64>;
    /// Whether it is empty now.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// A file that only grows. Two writers never overwrite each other.
pub trait FsAppend: Send + fmt::Debug {
    /// Adds all of `bytes` at the end.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;
    /// Makes the contents durable (fdatasync).
    fn sync(&mut self) -> Result<()>;
    /// Which file it is, and its length now.
    fn stat(&self) -> Result<(FileId, u64)>;
}

/// A held lock; dropping it, or dying, lets go.
pub trait FsLock: Send + Sync + fmt::Debug {
    /// The file that is locked. A path that names another file is not locked by this.
    fn id(&self) -> FileId;
}

/// Makes `path` and every missing parent.
pub fn create_dir_all(fs: &dyn Fs, path: &Path) -> Result<()> {
    match fs.create_dir(path) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => match fs.metadata(&fs.canonicalize(path)?)?.kind {
            Kind::Dir => Ok(()),
            Kind::File | Kind::Symlink | Kind::Other => Err(e),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => match path.parent() {
            Some(parent) if parent != path => {
                create_dir_all(fs, parent)?;
                match fs.create_dir(path) {
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                    other => other,
                }
            }
            _ => Err(e),
        },
        Err(e) => Err(e),
    }
}

/// Removes `path` and everything below it, links not followed. Missing is fine.
pub fn remove_tree(fs: &dyn Fs, path: &Path) -> Result<()> {
    let meta = match fs.metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.is_not_found() => return Ok(()),
        Err(e) => return Err(e),
    };
    if meta.kind != Kind::Dir {
        return fs.remove_file(path);
    }
    for name in fs.list(path)? {
        remove_tree(fs, &path.join(name))?;
    }
    fs.remove_dir(path)
}

/// Writes a file so that it is there whole or not at all: temporary name, sync, rename, directory sync.
pub fn write_atomic(fs: &dyn Fs, path: &Path, bytes: &[u8]) -> Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", super::ids::short()));
    let temp = dir.join(name);
    let written = (|| {
        let mut file = fs.create_new(&temp)?;
        file.write_at(0, bytes)?;
        file.sync()?;
        fs.rename(&temp, path)?;
        fs.sync_dir(dir)
    })();
    if written.is_err() {
        let _ = fs.remove_file(&temp);
    }
    written
}
