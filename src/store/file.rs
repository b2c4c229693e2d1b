//! The store on a local file system.

use std::{path::PathBuf, sync::Arc};

use super::{
    Claim, Error, InboxItem, Line, Listed, Loaded, MakeFiles, NewRun, Result, Store, artifacts, create, home, inbox,
    label,
    layout::Layout,
    lease, list, load,
    migrate::{self, Formats},
    recover,
    shared::{Parts, Shared},
};
use crate::{
    model::RunId,
    sys::{Clock, Fs, fs::remove_tree},
};

/// Free space below which nothing new is begun: room for the logs and evidence of runs under way.
pub const MIN_FREE: u64 = 64 * 1024 * 1024;

/// The part of it that a run needs to go on after the disk was full. With less, a result that is lost today is
/// lost again, and whoever made it is paid again.
const GO_ON_PART: u64 = 4;

/// What a store is opened with.
#[derive(Debug, Clone)]
pub struct Options {
    /// The state directory; made when missing.
    pub home: PathBuf,
    /// Directory of the runs; made when missing.
    pub wf_dir: PathBuf,
    /// Every file access goes through it.
    pub fs: Arc<dyn Fs>,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// Names this process, for people.
    pub instance: String,
    /// Name of this host; runs of another host are told apart by it.
    pub host: String,
    /// This process, for people.
    pub pid: u32,
    /// Free bytes below which no run is created; [`MIN_FREE`] unless there is a reason.
    pub min_free: u64,
}

/// Durable runs on a local file system. Cheap to clone.
#[derive(Debug, Clone)]
pub struct FileStore {
    pub(super) shared: Arc<Shared>,
}

impl FileStore {
    /// Opens the state directory, making it when missing and clearing what dead processes left half-made.
    ///
    /// An older format is brought up to date first, with a copy of what that changes. A newer format is opened
    /// for reading: see [`FileStore::newer_format`].
    pub fn open(options: Options) -> Result<Self> {
        Self::open_as(options, &migrate::FORMATS)
    }

    /// Opens the state directory as a program that knows these formats.
    pub(super) fn open_as(options: Options, formats: &Formats) -> Result<Self> {
        let Options { home, wf_dir, fs, clock, instance, host, pid, min_free } = options;
        let layout = Layout::new(home, wf_dir);
        let home = home::open(fs.as_ref(), &layout, &instance, min_free, formats)?;
        let boot_id = boot_id(fs.as_ref());
        let parts = Parts { fs, clock, layout, instance, host, pid, boot_id, min_free, home };
        Ok(Self { shared: Arc::new(Shared::new(parts)) })
    }

    /// The format of the state directory when it is newer than this program's; then nothing is written.
    pub fn newer_format(&self) -> Option<u32> {
        self.shared.home.newer
    }
}

/// Which boot of the machine this is, where the system tells.
fn boot_id(fs: &dyn Fs) -> Option<String> {
    let bytes = fs.read(std::path::Path::new("/proc/sys/kernel/random/boot_id")).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    Some(text.trim().chars().take(64).collect())
}

impl Store for FileStore {
    fn create(&self, run: NewRun) -> Result<Box<dyn Claim>> {
        Ok(Box::new(create::create(&self.shared, &run)?))
    }

    fn room(&self) -> Result<()> {
        let Shared { fs, layout, min_free, .. } = self.shared.as_ref();
        let (free, needed) = (fs.free_space(layout.wf())?, min_free / GO_ON_PART);
        if free < needed { Err(Error::LowSpace { free, needed }) } else { Ok(()) }
    }

    fn claim(&self, run: &RunId) -> Result<Box<dyn Claim>> {
        Ok(Box::new(recover::claim(&self.shared, run)?))
    }

    fn load(&self, run: &RunId) -> Result<Loaded> {
        self.shared.must_be_run(run)?;
        load::load(&self.shared, run)
    }

    fn lines(&self, run: &RunId, after: u64, limit: usize) -> Result<Vec<Line>> {
        self.shared.must_be_run(run)?;
        load::lines(&self.shared, run, after, limit)
    }

    fn list(&self) -> Result<Vec<Arc<Listed>>> {
        list::list(&self.shared)
    }

    fn stamp(&self, run: &RunId) -> Result<Option<u128>> {
        list::stamp(&self.shared, run)
    }

    fn is_live(&self, run: &RunId) -> Result<bool> {
        lease::is_live(&self.shared, run, &lease::read(&self.shared, run)?)
    }

    fn exists(&self, run: &RunId) -> Result<bool> {
        self.shared.is_taken(run)
    }

    fn delete(&self, run: &RunId) -> Result<()> {
        let shared = &self.shared;
        shared.writable()?;
        shared.must_be_run(run)?;
        let lock = recover::lock(shared, run)?;
        let away = shared.layout.trash().join(shared.fresh_name());
        match shared.fs.rename_new(&shared.layout.run(run), &away) {
            Err(e) if e.is_not_found() => return Err(Error::NotFound(run.clone())),
            other => other?,
        }
        shared.note_deleted(run);
        shared.fs.sync_dir(shared.layout.wf())?;
        // It is gone now; what cannot be removed is removed when a later process starts.
        if let Err(e) = remove_tree(shared.fs.as_ref(), &away) {
            tracing::warn!(run = %run, error = %e, "a deleted run could not be removed whole");
        }
        drop(lock);
        Ok(())
    }

    fn read_artifact(&self, run: &RunId, path: &str, offset: u64, limit: usize) -> Result<Vec<u8>> {
        artifacts::read(&self.shared, run, path, offset, limit)
    }

    fn list_artifacts(&self, run: &RunId, dir: &str) -> Result<Vec<String>> {
        artifacts::list(&self.shared, run, dir)
    }

    fn put_labelled(&self, label: &RunId, files: MakeFiles<'_>) -> Result<String> {
        label::put(&self.shared, label, files)
    }

    fn inbox_put(&self, run: &RunId, item: &InboxItem) -> Result<()> {
        inbox::put(&self.shared, run, item)
    }

    fn inbox_withdraw(&self, run: &RunId, id: &str) -> Result<bool> {
        inbox::withdraw(&self.shared, run, id)
    }
}
