//! A file system in memory: what the product sees of one, without a disk to wait for. It never loses anything; what
//! a power cut may lose is another test's matter.

use std::{
    collections::{BTreeMap, HashSet},
    ffi::OsString,
    io::{Error, ErrorKind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use claw_orchestrator::sys::{
    Fs, FsError, FsFile, FsLock, Kind, Meta,
    fs::{FileId, FsAppend, Result},
};

/// Contents of one file, shared by its name and whoever has it open.
#[derive(Debug)]
struct Contents {
    bytes: Vec<u8>,
    changed: u64,
    inode: u64,
}

type File = Arc<Mutex<Contents>>;

#[derive(Debug, Clone)]
enum Entry {
    Dir { inode: u64, changed: u64 },
    File(File),
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<PathBuf, Entry>,
    /// Files that are locked.
    locked: HashSet<u64>,
    /// Counts changes; stands for the time of the last one, and names files.
    ticks: u64,
}

/// A file system in memory. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct MemoryFs(Arc<Mutex<State>>);

fn id(inode: u64) -> FileId {
    FileId { device: 1, inode }
}

fn failed<T>(op: &'static str, path: &Path, kind: ErrorKind) -> Result<T> {
    Err(FsError::new(op, path, Error::from(kind)))
}

impl State {
    fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }

    fn new_file(&mut self, text: &str) -> File {
        let changed = self.tick();
        Arc::new(Mutex::new(Contents { bytes: text.as_bytes().to_vec(), changed, inode: changed }))
    }

    fn new_dir(&mut self) -> Entry {
        let changed = self.tick();
        Entry::Dir { inode: changed, changed }
    }

    fn file(&self, op: &'static str, path: &Path) -> Result<File> {
        match self.entries.get(path) {
            Some(Entry::File(file)) => Ok(file.clone()),
            Some(Entry::Dir { .. }) => failed(op, path, ErrorKind::IsADirectory),
            None => failed(op, path, ErrorKind::NotFound),
        }
    }

    /// Puts an entry under a free name whose parent is there.
    fn add(&mut self, op: &'static str, path: &Path, entry: Entry) -> Result<()> {
        if self.entries.contains_key(path) {
            return failed(op, path, ErrorKind::AlreadyExists);
        }
        self.touch_parent(op, path)?;
        self.entries.insert(path.to_path_buf(), entry);
        Ok(())
    }

    fn touch_parent(&mut self, op: &'static str, path: &Path) -> Result<()> {
        let now = self.tick();
        match path.parent().and_then(|parent| self.entries.get_mut(parent)) {
            Some(Entry::Dir { changed, .. }) => *changed = now,
            Some(Entry::File(_)) => return failed(op, path, ErrorKind::NotADirectory),
            None => return failed(op, path, ErrorKind::NotFound),
        }
        Ok(())
    }

    fn below(&self, dir: &Path) -> Vec<PathBuf> {
        let from = (std::ops::Bound::Excluded(dir.to_path_buf()), std::ops::Bound::Unbounded);
        self.entries.range(from).map(|(path, _)| path).take_while(|p| p.starts_with(dir)).cloned().collect()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> Result<()> {
        let Some(entry) = self.entries.remove(from) else { return failed("rename", from, ErrorKind::NotFound) };
        self.touch_parent("rename", from)?;
        self.touch_parent("rename", to)?;
        for path in self.below(from) {
            let moved = to.join(path.strip_prefix(from).unwrap());
            let entry = self.entries.remove(&path).unwrap();
            self.entries.insert(moved, entry);
        }
        self.entries.insert(to.to_path_buf(), entry);
        Ok(())
    }
}

impl MemoryFs {
    /// A file system with these directories.
    pub fn new(dirs: &[&str]) -> Self {
        let fs = Self::default();
        fs.state().entries.insert(PathBuf::from("/"), Entry::Dir { inode: 0, changed: 0 });
        for dir in dirs {
            claw_orchestrator::sys::fs::create_dir_all(&fs, Path::new(dir)).unwrap();
        }
        fs
    }

    /// Writes a whole file.
    pub fn write(&self, path: &Path, text: &str) {
        let mut state = self.state();
        let file = state.new_file(text);
        state.entries.insert(path.to_path_buf(), Entry::File(file));
    }

    /// Has a file there or not.
    pub fn put(&self, path: &Path, there: bool) {
        if there {
            self.write(path, "made");
        } else {
            self.state().entries.remove(path);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl Fs for MemoryFs {
    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        Ok(self.state().file("read", path)?.lock().unwrap().bytes.clone())
    }
    fn read_range(&self, path: &Path, offset: u64, len: usize) -> Result<Vec<u8>> {
        let file = self.state().file("read", path)?;
        let contents = file.lock().unwrap();
        let rest = contents.bytes.get(usize::try_from(offset).unwrap()..).unwrap_or_default();
        Ok(rest[..rest.len().min(len)].to_vec())
    }
    fn metadata(&self, path: &Path) -> Result<Meta> {
        let (kind, inode, len, changed, mode) = match self.state().entries.get(path) {
            Some(Entry::Dir { inode, changed }) => (Kind::Dir, *inode, 0, *changed, 0o700),
            Some(Entry::File(file)) => {
                let contents = file.lock().unwrap();
                (Kind::File, contents.inode, contents.bytes.len() as u64, contents.changed, 0o600)
            }
            None => return failed("look at", path, ErrorKind::NotFound),
        };
        Ok(Meta { kind, id: id(inode), len, mtime_ns: changed.into(), mode })
    }
    fn list(&self, dir: &Path) -> Result<Vec<OsString>> {
        let state = self.state();
        match state.entries.get(dir) {
            Some(Entry::Dir { .. }) => {}
            Some(Entry::File(_)) => return failed("list", dir, ErrorKind::NotADirectory),
            None => return failed("list", dir, ErrorKind::NotFound),
        }
        let own = state.below(dir).into_iter().filter(|path| path.parent() == Some(dir));
        Ok(own.filter_map(|path| path.file_name().map(OsString::from)).collect())
    }
    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        failed("read", path, ErrorKind::InvalidInput)
    }
    fn canonicalize(&self, path: &Path) -> Result<PathBuf> {
        self.metadata(path).map(|_| path.to_path_buf())
    }
    fn create_dir(&self, path: &Path) -> Result<()> {
        let mut state = self.state();
        let dir = state.new_dir();
        state.add("create", path, dir)
    }
    fn create_new(&self, path: &Path) -> Result<Box<dyn FsFile>> {
        let mut state = self.state();
        let file = state.new_file("");
        state.add("create", path, Entry::File(file.clone()))?;
        Ok(Box::new(Open { fs: self.clone(), file }))
    }
    fn open_write(&self, path: &Path) -> Result<Box<dyn FsFile>> {
        let file = self.state().file("open", path)?;
        Ok(Box::new(Open { fs: self.clone(), file }))
    }
    fn open_append(&self, path: &Path) -> Result<Box<dyn FsAppend>> {
        let file = self.state().file("open", path)?;
        Ok(Box::new(Open { fs: self.clone(), file }))
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.state().rename(from, to)
    }
    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        let mut state = self.state();
        if state.entries.contains_key(to) {
            return failed("rename", to, ErrorKind::AlreadyExists);
        }
        state.rename(from, to)
    }
    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.metadata(dir).map(|_| ())
    }
    fn remove_file(&self, path: &Path) -> Result<()> {
        let mut state = self.state();
        state.file("remove", path)?;
        state.entries.remove(path);
        state.touch_parent("remove", path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        let mut state = self.state();
        if !state.below(path).is_empty() {
            return failed("remove", path, ErrorKind::DirectoryNotEmpty);
        }
        match state.entries.remove(path) {
            Some(_) => state.touch_parent("remove", path),
            None => failed("remove", path, ErrorKind::NotFound),
        }
    }
    fn try_lock(&self, path: &Path) -> Result<Option<Box<dyn FsLock>>> {
        let mut state = self.state();
        if !state.entries.contains_key(path) {
            let file = state.new_file("");
            state.add("lock", path, Entry::File(file))?;
        }
        let file = state.file("lock", path)?;
        let inode = file.lock().unwrap().inode;
        let free = state.locked.insert(inode);
        Ok(free.then(|| Box::new(Lock { fs: self.clone(), inode }) as Box<dyn FsLock>))
    }
    fn free_space(&self, _: &Path) -> Result<u64> {
        // Nothing to spare, so that no reserve is made anew for each of thousands of homes.
        Ok(0)
    }
}

#[derive(Debug)]
struct Open {
    fs: MemoryFs,
    file: File,
}

impl FsFile for Open {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let changed = self.fs.state().tick();
        let mut contents = self.file.lock().unwrap();
        let from = usize::try_from(offset).unwrap();
        let end = contents.bytes.len().max(from + bytes.len());
        contents.bytes.resize(end, 0);
        contents.bytes[from..from + bytes.len()].copy_from_slice(bytes);
        contents.changed = changed;
        Ok(())
    }
    fn set_len(&mut self, len: u64) -> Result<()> {
        self.file.lock().unwrap().bytes.resize(usize::try_from(len).unwrap(), 0);
        Ok(())
    }
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        Ok(self.file.lock().unwrap().bytes.len() as u64)
    }
}

impl FsAppend for Open {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let end = FsFile::len(self)?;
        self.write_at(end, bytes)
    }
    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
    fn stat(&self) -> Result<(FileId, u64)> {
        let contents = self.file.lock().unwrap();
        Ok((id(contents.inode), contents.bytes.len() as u64))
    }
}

#[derive(Debug)]
struct Lock {
    fs: MemoryFs,
    inode: u64,
}

impl FsLock for Lock {
    fn id(&self) -> FileId {
        id(self.inode)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.fs.state().locked.remove(&self.inode);
    }
}
