//! A directory of one session for what its programs leave behind.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    engines::{EngineError, ErrorClass, registry::Context},
    sys::{
        Fs,
        fs::{create_dir_all, remove_tree},
        ids, tasks,
    },
};

/// A directory that goes with its owner.
#[derive(Debug)]
pub(crate) struct Scratch {
    fs: Arc<dyn Fs>,
    dir: Option<PathBuf>,
}

impl Scratch {
    /// Makes it, empty, with these files in it. The name is random, so that two never meet.
    pub(crate) async fn new(context: &Context, files: Vec<(&'static str, Vec<u8>)>) -> Result<Self, EngineError> {
        let fs = Arc::clone(&context.fs);
        let dir = context.config.home.join("scratch").join(ids::sortable());
        let scratch = Self { fs: Arc::clone(&fs), dir: Some(dir.clone()) };
        let made = tasks::blocking("make scratch directory", move || {
            create_dir_all(fs.as_ref(), &dir)?;
            for (name, bytes) in files {
                fs.create_new(&dir.join(name))?.write_at(0, &bytes)?;
            }
            Ok::<(), crate::sys::FsError>(())
        });
        match made.await {
            Ok(Ok(())) => Ok(scratch),
            Ok(Err(e)) => Err(EngineError::new(ErrorClass::StartFailed, format!("no directory for the session: {e}"))),
            Err(_) => Err(EngineError::new(ErrorClass::StartFailed, "no directory for the session")),
        }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        self.dir.as_deref().unwrap_or(Path::new(""))
    }

    /// Removes it with everything in it.
    pub(crate) async fn remove(mut self) {
        if let Some(dir) = self.dir.take() {
            let fs = Arc::clone(&self.fs);
            // Whoever waits for it is told nothing: the log was.
            let _ = tasks::blocking("remove scratch directory", move || remove(fs.as_ref(), &dir)).await;
        }
    }
}

fn remove(fs: &dyn Fs, dir: &Path) {
    if let Err(e) = remove_tree(fs, dir) {
        tracing::warn!(dir = %dir.display(), error = %e, "a session's own directory stays behind");
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Only of a session that was let go of without being stopped.
        if let Some(dir) = self.dir.take() {
            remove(self.fs.as_ref(), &dir);
        }
    }
}

/// Those of `paths` at which nothing stands.
pub(super) async fn absent(fs: &Arc<dyn Fs>, paths: Vec<PathBuf>) -> Vec<PathBuf> {
    if paths.is_empty() {
        return paths;
    }
    let fs = Arc::clone(fs);
    let missing = move || paths.into_iter().filter(|p| fs.metadata(p).is_err_and(|e| e.is_not_found())).collect();
    tasks::blocking("look for what is there", missing).await.unwrap_or_default()
}

/// Removes those of `paths` that are empty directories.
pub(super) async fn sweep(fs: &Arc<dyn Fs>, paths: Vec<PathBuf>) {
    if paths.is_empty() {
        return;
    }
    let fs = Arc::clone(fs);
    let removed = tasks::blocking("remove what a killed program left", move || {
        for path in paths {
            // Only an empty directory can be removed so; anything else there is somebody's.
            let _ = fs.remove_dir(&path);
        }
    });
    let _ = removed.await;
}
