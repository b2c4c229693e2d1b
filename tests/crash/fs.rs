//! A file system in memory over the model of a disk: one life of a machine, from power-on to the next cut.
//!
//! Before every changing operation the whole state can be kept, to cut the power there; one operation can be
//! made to fail, as a device or a full disk does. Ids and times come from the machine too, so that the same
//! life is the same to the byte each time.

use std::{
    collections::HashMap,
    ffi::OsString,
    fmt,
    io::{Error as IoError, ErrorKind},
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use super::{
    super::scan::BELIEVE_EVERY_EPOCH,
    defects::Defect,
    disk::{Disk, Inode, NameOp, Write},
    explore::UNREAD,
    ledger::Ledger,
};
use crate::{
    model::Time,
    sys::{Clock, FileId, Fs, FsAppend, FsError, FsFile, FsLock, Kind, Meta, fs::Result, ids},
};

/// How an operation is made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The device fails; a failed sync forgets what was to be written, and the cache still shows it.
    Io,
    /// The disk is full.
    Full,
    /// The disk is full in the middle of a write, which gets half of its bytes down. Nothing but a write.
    Short,
}

/// A moment at which the power may be cut.
#[derive(Debug, Clone)]
pub(super) struct Moment {
    pub(super) disk: Disk,
    pub(super) ledger: Ledger,
    /// Number of the operation that comes next.
    pub(super) operation: u64,
    /// What it is.
    pub(super) about: String,
}

#[derive(Debug)]
struct State {
    disk: Disk,
    /// Which taking holds a lock.
    locked: HashMap<usize, u64>,
    takings: u64,
    operations: u64,
    fail_at: Option<(u64, Fault)>,
    hit: bool,
    keep_from: u64,
    kept: Option<Vec<Moment>>,
    ledger: Ledger,
    syncs: u64,
    life: u64,
    defect: Option<Defect>,
    /// Syncs put off until the next rename.
    put_off: Vec<usize>,
    deed: Option<Deed>,
}

/// What happens at a moment of another one's choosing.
struct Deed(Box<dyn FnOnce() -> bool + Send>);

impl fmt::Debug for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Deed")
    }
}

/// The file system.
#[derive(Debug, Clone)]
pub(super) struct ModelFs(Arc<Mutex<State>>);

impl ModelFs {
    /// A machine that starts on this disk; `life` counts the cuts before.
    pub(super) fn on(disk: Disk, ledger: Ledger, life: u64, defect: Option<Defect>) -> Self {
        ids::fixed::start(life << 40);
        BELIEVE_EVERY_EPOCH.set(defect == Some(Defect::NoEpochInReader));
        Self(Arc::new(Mutex::new(State {
            disk,
            locked: HashMap::new(),
            takings: 0,
            operations: 0,
            fail_at: None,
            hit: false,
            keep_from: 0,
            kept: None,
            ledger,
            syncs: 0,
            life,
            defect,
            put_off: vec![],
            deed: None,
        })))
    }

    /// A machine on a new disk, as if the state directory's parents had been there for long.
    pub(super) fn new() -> Self {
        let fs = Self::on(Disk::empty(), Ledger::default(), 0, None);
        fs.create_dir(Path::new("/home")).unwrap();
        fs.settled(None)
    }

    /// The machine after an orderly stop: all is on disk, nothing is locked, the counting begins anew.
    pub(super) fn settled(&self, defect: Option<Defect>) -> Self {
        let state = self.state();
        Self::on(state.disk.settled(), state.ledger.clone(), state.life + 1, defect)
    }

    /// The machine that starts on a disk that a cut of this one left.
    pub(super) fn after_cut(&self, disk: Disk, ledger: Ledger) -> Self {
        let state = self.state();
        Self::on(disk, ledger, state.life + 1, state.defect)
    }

    /// The machine after a cut right now, at which everything that was not synced is lost.
    pub(super) fn without_what_is_pending(&self) -> Self {
        let lost = self.state().disk.after_cut(&UNREAD, |_| true).swap_remove(0);
        let ledger = self.ledger(|l| l.clone());
        self.after_cut(lost, ledger)
    }

    pub(super) fn defect(&self) -> Option<Defect> {
        self.state().defect
    }

    /// Keeps the moment before every changing operation from this one on.
    pub(super) fn keep_from(&self, operation: u64) {
        let mut state = self.state();
        state.keep_from = operation;
        state.kept = Some(vec![]);
    }

    /// The kept moments, the present one included.
    pub(super) fn kept(&self) -> Vec<Moment> {
        let mut state = self.state();
        let now = state.moment("nothing more".to_owned());
        let mut kept = state.kept.take().unwrap_or_default();
        kept.push(now);
        kept
    }

    /// Reads or notes what callers were told.
    pub(super) fn ledger<T>(&self, then: impl FnOnce(&mut Ledger) -> T) -> T {
        then(&mut self.state().ledger)
    }

    /// Makes the changing operation of this number fail, counted from now.
    pub(super) fn fail_at(&self, after: u64, fault: Fault) {
        let mut state = self.state();
        state.fail_at = Some((state.operations + after, fault));
    }

    /// Whether the operation that was to fail came.
    pub(super) fn was_hit(&self) -> bool {
        self.state().hit
    }

    /// Lets go of a lock behind its holder's back, as a file system whose locks do not work does.
    pub(super) fn lose_lock(&self, path: &Path) {
        let mut state = self.state();
        if let Ok(inode) = state.find(path) {
            state.locked.remove(&inode);
        }
    }

    /// Lets something happen right before the next line is added, when its writer has already looked around. When
    /// it gives false, the writer does not wake up again.
    pub(super) fn before_the_next_line(&self, deed: impl FnOnce() -> bool + Send + 'static) {
        self.state().deed = Some(Deed(Box::new(deed)));
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

    fn moment(&self, about: String) -> Moment {
        Moment { disk: self.disk.clone(), ledger: self.ledger.clone(), operation: self.operations, about }
    }

    /// Counts a changing operation; the fault that is due now.
    fn step(&mut self, verb: &str, path: &Path) -> Option<Fault> {
        let now = self.operations;
        if self.kept.is_some() && now >= self.keep_from {
            let moment = self.moment(format!("{verb} {}", path.display()));
            self.kept.get_or_insert_default().push(moment);
        }
        self.operations += 1;
        let due = self.fail_at.filter(|(at, fault)| *at == now && (*fault != Fault::Short || verb == "write"));
        self.hit |= due.is_some();
        due.map(|(_, fault)| fault)
    }

    fn step_or_fail(&mut self, verb: &str, path: &Path) -> std::io::Result<()> {
        self.step(verb, path).map_or(Ok(()), |fault| Err(fault.error()))
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
        self.step_or_fail("create", path)?;
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
        self.step_or_fail("rename to", to)?;
        let (number, add) = (self.operations, Some((to_name, moved)));
        if from_dir == to_dir {
            self.change(from_dir, NameOp { number, remove: Some(from_name), add });
        } else {
            self.change(from_dir, NameOp { number, remove: Some(from_name), add: None });
            self.change(to_dir, NameOp { number, remove: None, add });
        }
        for inode in std::mem::take(&mut self.put_off) {
            self.sync_now(inode, to)?;
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
        self.step_or_fail("remove", path)?;
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

    fn write(&mut self, inode: usize, write: Write, path: &Path) -> std::io::Result<()> {
        let again = matches!((self.disk.inodes[inode].as_ref(), &write),
            (Inode::File { live, .. }, Write::Bytes(at, new)) if live.get(*at..*at + new.len()) == Some(new));
        if again && self.defect == Some(Defect::TrustedTail) {
            return Ok(());
        }
        if again
            && self.defect == Some(Defect::TruncateAndAppend)
            && let Write::Bytes(at, _) = &write
        {
            self.write_now(inode, Write::Len(*at), path)?;
        }
        self.write_now(inode, write, path)
    }

    fn write_now(&mut self, inode: usize, write: Write, path: &Path) -> std::io::Result<()> {
        let fault = self.step("write", path);
        let now = self.operations;
        let Inode::File { live, pending, changed, .. } = Arc::make_mut(&mut self.disk.inodes[inode]) else {
            return Err(ErrorKind::IsADirectory.into());
        };
        let done = match fault {
            None => Some(write),
            Some(Fault::Io | Fault::Full) => None,
            Some(Fault::Short) => write.partly(live.len()).into_iter().next(),
        };
        if let Some(write) = done {
            write.apply(live);
            pending.push(write);
            *changed = now;
        }
        fault.map_or(Ok(()), |fault| Err(fault.error()))
    }

    fn sync(&mut self, inode: usize, path: &Path) -> std::io::Result<()> {
        let is_file = matches!(self.disk.inodes[inode].as_ref(), Inode::File { .. });
        let half_made = path.components().any(|c| c.as_os_str().as_encoded_bytes().starts_with(b"."));
        let is = |defect| self.defect == Some(defect);
        if (is_file && is(Defect::NoFsync)) || (!is_file && is(Defect::NoDirFsync)) {
            return Ok(());
        }
        if is_file && half_made && is(Defect::RenameBeforeSync) {
            self.put_off.push(inode);
            return Ok(());
        }
        let retried = is(Defect::RetryFailedSync);
        let done = self.sync_now(inode, path);
        if done.is_err() && retried { self.sync_now(inode, path) } else { done }
    }

    fn sync_now(&mut self, inode: usize, path: &Path) -> std::io::Result<()> {
        self.syncs += 1;
        let fault = self.step("sync", path);
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
            Self::Full | Self::Short => ErrorKind::StorageFull.into(),
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
            Inode::File { live, .. } => {
                let from = (offset as usize).min(live.len());
                Ok(live[from..from.saturating_add(len).min(live.len())].to_vec())
            }
            Inode::Dir { .. } => named("read", path, Err(ErrorKind::InvalidInput.into())),
        }
    }

    fn metadata(&self, path: &Path) -> Result<Meta> {
        let state = self.state();
        let inode = named("look at", path, state.find(path))?;
        Ok(match state.disk.inodes[inode].as_ref() {
            Inode::File { live, changed, .. } => {
                let (id, len) = (file_id(inode), live.len() as u64);
                Meta { kind: Kind::File, id, len, mtime_ns: i128::from(*changed), mode: 0o600 }
            }
            Inode::Dir { .. } => Meta { kind: Kind::Dir, id: file_id(inode), len: 0, mtime_ns: 0, mode: 0o700 },
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

    fn open_append(&self, path: &Path) -> Result<Box<dyn FsAppend>> {
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
        named("sync", dir, state.sync(inode, dir))
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
        let mut state = self.state();
        if state.locked.contains_key(&inode) {
            return Ok(None);
        }
        state.takings += 1;
        let taking = state.takings;
        state.locked.insert(inode, taking);
        Ok(Some(Box::new(ModelLock { fs: self.clone(), inode, taking })))
    }

    fn free_space(&self, _: &Path) -> Result<u64> {
        // Enough to begin, too little for the reserve.
        Ok(1000)
    }
}

impl Clock for ModelFs {
    fn wall(&self) -> Time {
        let state = self.state();
        Time::from_millis(1_700_000_000_000 + (state.life * 100_000 + state.operations) as i64)
    }

    fn boot(&self) -> Duration {
        Duration::from_millis(self.operations())
    }
}

fn file_id(inode: usize) -> FileId {
    FileId { device: 1, inode: inode as u64 }
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
        named("write", &self.path, self.fs.state().write(self.inode, write, &self.path))
    }

    fn set_len(&mut self, len: u64) -> Result<()> {
        named("cut", &self.path, self.fs.state().write(self.inode, Write::Len(len as usize), &self.path))
    }

    fn sync(&mut self) -> Result<()> {
        named("sync", &self.path, self.fs.state().sync(self.inode, &self.path))
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
    taking: u64,
}

impl FsAppend for ModelFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let deed = self.fs.state().deed.take();
        if deed.is_some_and(|Deed(deed)| !deed()) {
            return named("append", &self.path, Err(IoError::other("the writer sleeps for good")));
        }
        let end = FsFile::len(self)?;
        self.write_at(end, bytes)
    }

    fn sync(&mut self) -> Result<()> {
        FsFile::sync(self)
    }

    fn stat(&self) -> Result<(FileId, u64)> {
        Ok((file_id(self.inode), FsFile::len(self)?))
    }
}

impl FsLock for ModelLock {
    fn id(&self) -> FileId {
        file_id(self.inode)
    }
}

impl Drop for ModelLock {
    fn drop(&mut self) {
        let mut state = self.fs.state();
        if state.locked.get(&self.inode) == Some(&self.taking) {
            state.locked.remove(&self.inode);
        }
    }
}
