//! How many agents may be alive at once in one home, over all its processes, first come first served.
//!
//! A slot is a locked file, so the slots of a process that died are free again by themselves.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use crate::sys::{Fs, FsError, FsLock, fs, tasks};

/// How often slots held by other processes are looked at.
const POLL: Duration = Duration::from_millis(100);

/// The slots as one process sees them.
#[derive(Debug)]
pub struct Slots {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    max: usize,
    here: Arc<Semaphore>,
    /// Held by the one whose turn it is; hands over in order of arrival.
    gate: Mutex<()>,
}

/// A slot in use; dropping it frees it.
#[derive(Debug)]
pub struct Slot {
    // Declared first: the file is free before the next one of this process may look for it.
    _lock: Box<dyn FsLock>,
    _permit: OwnedSemaphorePermit,
}

impl Slots {
    /// At most `max` slots (at least one), kept as files in `dir`.
    pub fn new(fs: Arc<dyn Fs>, dir: PathBuf, max: usize) -> Self {
        let max = max.max(1);
        Self { fs, dir, max, here: Arc::new(Semaphore::new(max)), gate: Mutex::new(()) }
    }

    /// The cap.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Slots this process holds.
    pub fn in_use(&self) -> usize {
        self.max.saturating_sub(self.here.available_permits())
    }

    /// Waits for a slot. `on_wait` is called once, when there is none at once. Dropping the future gives up
    /// the place in the queue.
    pub async fn take(&self, on_wait: impl Fn()) -> Result<Slot, FsError> {
        let mut told = false;
        let mut tell = || {
            if !std::mem::replace(&mut told, true) {
                on_wait();
            }
        };
        let queued = self.gate.lock();
        tokio::pin!(queued);
        // Somebody may be before us; whether it waits long is not known at first, so nothing is said yet.
        let _turn = tokio::select! {
            biased;
            turn = &mut queued => turn,
            () = tokio::time::sleep(POLL) => {
                tell();
                queued.await
            }
        };
        let permit = match Arc::clone(&self.here).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                tell();
                Arc::clone(&self.here).acquire_owned().await.map_err(|_| self.closed())?
            }
        };
        loop {
            if let Some(lock) = self.try_files().await? {
                return Ok(Slot { _lock: lock, _permit: permit });
            }
            tell();
            tokio::time::sleep(POLL).await;
        }
    }

    /// A slot when there is one at once. Those who wait come first.
    pub async fn take_now(&self) -> Result<Option<Slot>, FsError> {
        let Ok(_turn) = self.gate.try_lock() else { return Ok(None) };
        let Ok(permit) = Arc::clone(&self.here).try_acquire_owned() else { return Ok(None) };
        Ok(self.try_files().await?.map(|lock| Slot { _lock: lock, _permit: permit }))
    }

    /// Slots in use over all processes. Looks at every slot, so a waiting process may have to look once more.
    pub async fn in_home(&self) -> Result<usize, FsError> {
        self.blocking(|fs, dir, max| {
            let mut taken = 0;
            for n in 0..max {
                taken += usize::from(fs.try_lock(&slot_file(dir, n))?.is_none());
            }
            Ok(taken)
        })
        .await
    }

    async fn try_files(&self) -> Result<Option<Box<dyn FsLock>>, FsError> {
        self.blocking(|fs, dir, max| {
            for n in 0..max {
                if let Some(lock) = fs.try_lock(&slot_file(dir, n))? {
                    return Ok(Some(lock));
                }
            }
            Ok(None)
        })
        .await
    }

    /// File work away from the async threads, with the directory there.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Fs, &Path, usize) -> Result<T, FsError> + Send + 'static,
    ) -> Result<T, FsError> {
        let (fs, dir, max) = (Arc::clone(&self.fs), self.dir.clone(), self.max);
        let all = move || {
            fs::create_dir_all(fs.as_ref(), &dir)?;
            work(fs.as_ref(), &dir, max)
        };
        let done = tasks::blocking("look at slots", all).await;
        done.unwrap_or_else(|e| Err(FsError::new("search", self.dir.clone(), std::io::Error::other(e))))
    }

    fn closed(&self) -> FsError {
        FsError::new("wait for a slot in", self.dir.clone(), std::io::ErrorKind::Interrupted.into())
    }
}

fn slot_file(dir: &Path, n: usize) -> PathBuf {
    dir.join(format!("{n}.lock"))
}
