//! A file system in memory over the model of a disk. For tests.
//!
//! Before every changing operation the whole state can be kept, to cut the power there; one operation can be
//! made to fail, as a device or a full disk does.

use std::{
    collections::HashSet,
    ffi::OsString,
    io::{Error as IoError, ErrorKind},
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
};

use super::disk::{Disk, Inode, NameOp, Write};
use crate::sys::{Fs, FsError, FsFile, FsLock, Kind, Meta, fs::Result};

/// How an operation is made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The device fails; a failed sync forgets what was to be written, and the cache still shows it.
    Io,
    /// The disk is full; a write gets half of its bytes down.
    Full,
}

/// A sync that is claimed and not done, as if the store had left it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeftOut {
    /// Of files.
    Files,
    /// Of directories.
    Dirs,
}

#[derive(Debug)]
struct State {
    disk: Disk,
    locked: HashSet<usize>,
    operations: u64,
    fail_at: Option<(u64, Fault)>,
    kept: Option<Vec<(Disk, u64)>>,
    acknowledged: u64,
    syncs: u64,
    left_out: Option<LeftOut>,
}

/// The file system.
#[derive(Debug, Clone)]
pub(super) struct ModelFs(Arc<Mutex<State>>);

impl ModelFs {
    pub(super) fn new() -> Self {
        Self::on(Disk::empty())
    }

    /// A machine that starts on this disk.
    pub(super) fn on(disk: Disk) -> Self {
        Self(Arc::new(Mutex::new(State {
            disk,
            locked: HashSet::new(),
            operations: 0,
            fail_at: None,
            kept: None,
            acknowledged: 0,
            syncs: 0,
            left_out: None,
        })))
    }

    /// From now on these syncs do nothing.
    pub(super) fn leave_out(&self, syncs: LeftOut) {
        self.state().left_out = Some(syncs);
    }

    /// Keeps the state before every changing operation from now on.
    pub(super) fn keep_states(&self) {
        self.state().kept = Some(vec![]);
    }

    /// The kept states, the present one included, each with the number acknowledged by then.
    pub(super) fn kept_states(&self) -> Vec<(Disk, u64)> {
        let mut state = self.state();
        let now = (state.disk.clone(), state.acknowledged);
        let mut kept = state.kept.take().unwrap_or_default();
        kept.push(now);
        kept
    }

    /// The caller was told that everything up to `n` is safe.
    pub(super) fn acknowledge(&self, n: u64) {
        self.state().acknowledged = n;
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.state().acknowledged
    }

    /// Makes the changing operation of this number fail, counted from now.
    pub(super) fn fail_at(&self, after: u64, fault: Fault) {
        let mut state = self.state();
        state.fail_at = Some((state.operations + after, fault));
    }

    /// Changing operations so far.
    pub(super) fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Syncs of files and directories so far.
    pub(super) fn syncs(&self) -> u64 {
        self.state().syncs
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl State {
    fn find(&self, path: &Path) -> std::io::Result<usize> {
        let mut at = 0;
        for part in path.components() {
            match part {
                Component::Normal(name) => {
                    let names = self.disk.names(at).ok_or(ErrorKind::NotADirectory)?;
                    at = *names.get(name).ok_or(ErrorKind::NotFound)?;
                }
                Component::RootDir | Component::CurDir | Component::ParentDir | Component::Prefix(_) => {}
            }
        }
        Ok(at)
    }

    fn find_parent(&self, path: &Path) -> std::io::Result<(usize, OsString)> {
        let dir = self.find(path.parent().ok_or(ErrorKind::InvalidInput)?)?;
        self.disk.names(dir).ok_or(ErrorKind::NotADirectory)?;
        Ok((dir, path.file_name().ok_or(ErrorKind::InvalidInput)?.to_owned()))
    }

    fn at(&self, path: &Path) -> std::io::Result<Option<usize>> {
        match self.find(path) {
            Ok(inode) => Ok(Some(inode)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Counts a changing operation; the fault that is due now.
    fn step(&mut self) -> Option<Fault> {
        if let Some(kept) = &mut self.kept {
            kept.push((self.disk.clone(), self.acknowledged));
        }
        let now = self.operations;
        self.operations += 1;
        self.fail_at.filter(|(at, _)| *at == now).map(|(_, fault)| fault)
    }

    fn step_or_fail(&mut self) -> std::io::Result<()> {
        self.step().map_or(Ok(()), |fault| Err(fault.error()))
    }

    fn change(&mut self, dir: usize, op: NameOp) {
        if let Inode::Dir { live, pending, .. } = Arc::make_mut(&mut self.disk.inodes[dir]) {
            op.apply(live);
            pending.push(op);
        }
    }

    fn link_new(&mut self, path: &Path, inode: Arc<Inode>) -> std::io::Result<usize> {
        let (dir, name) = self.find_parent(path)?;
        if self.at(path)?.is_some() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.step_or_fail()?;
        self.disk.inodes.push(inode);
        let new = self.disk.inodes.len() - 1;
        let number = self.operations;
        self.change(dir, NameOp { number, remove: None, add: Some((name, new)) });
        Ok(new)
    }

    fn rename(&mut self, from: &Path, to: &Path, replace: bool) -> std::io::Result<()> {
        let moved = self.find(from)?;
        let ((from_dir, from_name), (to_dir, to_name)) = (self.find_parent(from)?, self.find_parent(to)?);
        if let Some(there) = self.at(to)? {
            if !replace {
                return Err(ErrorKind::AlreadyExists.into());
            }
            if self.disk.names(there).is_some_and(|n| !n.is_empty()) {
                return Err(ErrorKind::DirectoryNotEmpty.into());
            }
        }
        self.step_or_fail()?;
        let (number, add) = (self.operations, Some((to_name, moved)));
        if from_dir == to_dir {
            self.change(from_dir, NameOp { number, remove: Some(from_name), add });
        } else {
            self.change(from_dir, NameOp { number, remove: Some(from_name), add: None });
            self.change(to_dir, NameOp { number, remove: None, add });
        }
        Ok(())
    }

    fn remove(&mut self, path: &Path, dir: bool) -> std::io::Result<()> {
        let inode = self.find(path)?;
        match (self.disk.names(inode), dir) {
            (Some(names), true) if !names.is_empty() => return Err(ErrorKind::DirectoryNotEmpty.into()),
            (Some(_), true) | (None, false) => {}
            (Some(_), false) => return Err(ErrorKind::IsADirectory.into()),
            (None, true) => return Err(ErrorKind::NotADirectory.into()),
        }
        let (parent, name) = self.find_parent(path)?;
        self.step_or_fail()?;
        let number = self.operations;
        self.change(parent, NameOp { number, remove: Some(name), add: None });
        Ok(())
    }

    /// Makes the first `n` changes of a directory durable, and with each rename its other half.
    fn settle(&mut self, dir: usize, n: usize) {
        let Inode::Dir { durable, pending, .. } = Arc::make_mut(&mut self.disk.inodes[dir]) else { return };
        let done: Vec<NameOp> = pending.drain(..n).collect();
        done.iter().for_each(|op| op.apply(durable));
        for op in done {
            for other in 0..self.disk.inodes.len() {
                let half = match self.disk.inodes[other].as_ref() {
                    Inode::Dir { pending, .. } => pending.iter().position(|p| p.number == op.number),
                    Inode::File { .. } => None,
                };
                if let Some(at) = half {
                    self.settle(other, at + 1);
                }
            }
        }
    }

    fn write(&mut self, inode: usize, write: Write) -> std::io::Result<()> {
        let fault = self.step();
        let now = self.operations;
        let Inode::File { live, pending, changed, .. } = Arc::make_mut(&mut self.disk.inodes[inode]) else {
            return Err(ErrorKind::IsADirectory.into());
        };
        let done = match fault {
            None => Some(write),
            Some(Fault::Io) => None,
            Some(Fault::Full) => write.partly(live.len()).into_iter().next(),
        };
        if let Some(write) = done {
            write.apply(live);
            pending.push(write);
            *changed = now;
        }
        fault.map_or(Ok(()), |fault| Err(fault.error()))
    }

    fn sync(&mut self, inode: usize) -> std::io::Result<()> {
        self.syncs += 1;
        let fault = self.step();
        let kind = match self.disk.inodes[inode].as_ref() {
            Inode::File { .. } => LeftOut::Files,
            Inode::Dir { .. } => LeftOut::Dirs,
        };
        if fault.is_none() && self.left_out == Some(kind) {
            return Ok(());
        }
        let names = match Arc::make_mut(&mut self.disk.inodes[inode]) {
            Inode::File { durable, pending, .. } => {
                let pending = std::mem::take(pending);
                if fault.is_none() {
                    pending.iter().for_each(|w| w.apply(durable));
                }
                0
            }
            Inode::Dir { pending, .. } => pending.len(),
        };
        match fault {
            None => self.settle(inode, names),
            Some(fault) => return Err(fault.error()),
        }
        Ok(())
    }
}

impl Fault {
    fn error(self) -> IoError {
        match self {
            Self::Io => IoError::other("the device failed"),
            Self::Full => ErrorKind::StorageFull.into(),
        }
    }
}

fn named<T>(op: &'static str, path: &Path, outcome: std::io::Result<T>) -> Result<T> {
    outcome.map_err(|e| FsError::new(op, path, e))
}

impl Fs for ModelFs {
    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        self.read_range(path, 0, usize::MAX)
    }

    fn read_range(&self, path: &Path, offset: u64, len: usize) -> Result<Vec<u8>> {
        let state = self.state();
        let inode = named("read", path, state.find(path))?;
        match state.disk.inodes[inode].as_ref() {
            Inode::File { live, .. } => Ok(live.iter().skip(offset as usize).take(len).copied().collect()),
            Inode::Dir { .. } => named("read", path, Err(ErrorKind::InvalidInput.into())),
        }
    }

    fn metadata(&self, path: &Path) -> Result<Meta> {
        let state = self.state();
        let inode = named("look at", path, state.find(path))?;
        Ok(match state.disk.inodes[inode].as_ref() {
            Inode::File { live, changed, .. } => {
                Meta { kind: Kind::File, len: live.len() as u64, mtime_ns: i128::from(*changed), mode: 0o600 }
            }
            Inode::Dir { .. } => Meta { kind: Kind::Dir, len: 0, mtime_ns: 0, mode: 0o700 },
        })
    }

    fn list(&self, dir: &Path) -> Result<Vec<OsString>> {
        let state = self.state();
        let inode = named("list", dir, state.find(dir))?;
        let names = state.disk.names(inode).ok_or_else(|| ErrorKind::NotADirectory.into());
        named("list", dir, names.map(|n| n.keys().cloned().collect()))
    }

    fn read_link(&self, path: &Path) -> Result<PathBuf> {
        named("read the link", path, Err(ErrorKind::InvalidInput.into()))
    }

    fn canonicalize(&self, path: &Path) -> Result<PathBuf> {
        named("resolve", path, self.state().find(path)).map(|_| path.to_owned())
    }

    fn create_dir(&self, path: &Path) -> Result<()> {
        named("make", path, self.state().link_new(path, Inode::dir())).map(drop)
    }

    fn create_new(&self, path: &Path) -> Result<Box<dyn FsFile>> {
        let inode = named("create", path, self.state().link_new(path, Inode::file()))?;
        Ok(Box::new(ModelFile { fs: self.clone(), inode, path: path.to_owned() }))
    }

    fn open_write(&self, path: &Path) -> Result<Box<dyn FsFile>> {
        let inode = named("open", path, self.state().find(path))?;
        Ok(Box::new(ModelFile { fs: self.clone(), inode, path: path.to_owned() }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        named("rename", from, self.state().rename(from, to, true))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        named("rename", from, self.state().rename(from, to, false))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        let mut state = self.state();
        let inode = named("sync", dir, state.find(dir))?;
        named("sync", dir, state.sync(inode))
    }

    fn remove_file(&self, path: &Path) -> Result<()> {
        named("remove", path, self.state().remove(path, false))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        named("remove", path, self.state().remove(path, true))
    }

    fn try_lock(&self, path: &Path) -> Result<Option<Box<dyn FsLock>>> {
        let there = named("lock", path, self.state().at(path))?;
        let inode = match there {
            Some(inode) => inode,
            None => named("lock", path, self.state().link_new(path, Inode::file()))?,
        };
        let got = self.state().locked.insert(inode);
        Ok(got.then(|| Box::new(ModelLock { fs: self.clone(), inode }) as Box<dyn FsLock>))
    }

    fn free_space(&self, _: &Path) -> Result<u64> {
        Ok(u64::from(u32::MAX))
    }
}

#[derive(Debug)]
struct ModelFile {
    fs: ModelFs,
    inode: usize,
    path: PathBuf,
}

impl FsFile for ModelFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let write = Write::Bytes(offset as usize, bytes.to_vec());
        named("write", &self.path, self.fs.state().write(self.inode, write))
    }

    fn set_len(&mut self, len: u64) -> Result<()> {
        named("cut", &self.path, self.fs.state().write(self.inode, Write::Len(len as usize)))
    }

    fn sync(&mut self) -> Result<()> {
        named("sync", &self.path, self.fs.state().sync(self.inode))
    }

    fn len(&self) -> Result<u64> {
        match self.fs.state().disk.inodes[self.inode].as_ref() {
            Inode::File { live, .. } => Ok(live.len() as u64),
            Inode::Dir { .. } => named("look at", &self.path, Err(ErrorKind::IsADirectory.into())),
        }
    }
}

#[derive(Debug)]
struct ModelLock {
    fs: ModelFs,
    inode: usize,
}

impl FsLock for ModelLock {}

impl Drop for ModelLock {
    fn drop(&mut self) {
        self.fs.state().locked.remove(&self.inode);
    }
}
