//! One writer of a repository at a time: refs, worktrees and merges of ours, across tasks and processes.
//!
//! The lock is a file in git's common folder. It binds only us; the user's git does not know it. Nothing in
//! this module takes it by itself: whoever changes several things that belong together holds it meanwhile.

use std::time::Duration;

use super::{Error, Repo, Result, scan};
use crate::sys::FsLock;

const WHAT: &str = "lock the repository";
/// The file, in git's common folder.
const NAME: &str = "clawo.lock";
/// Longest wait.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between tries.
const PAUSE: Duration = Duration::from_millis(25);

/// A repository held for writing; dropping it, or dying, lets go.
#[derive(Debug)]
pub struct RepoLock {
    _held: Box<dyn FsLock>,
}

impl Repo {
    /// Waits for the lock of this repository, which all of its worktrees share. [`Error::Busy`] when
    /// somebody else has it for 60 s.
    pub async fn lock(&self) -> Result<RepoLock> {
        self.lock_within(PATIENCE).await
    }

    async fn lock_within(&self, patience: Duration) -> Result<RepoLock> {
        let path = self.common_dir.join(NAME);
        let taken = async {
            loop {
                let (fs, path) = (self.git.fs.clone(), path.clone());
                if let Some(held) = scan::blocking(WHAT, move || Ok(fs.try_lock(&path)?)).await? {
                    return Ok(RepoLock { _held: held });
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        match tokio::time::timeout(patience, taken).await {
            Ok(taken) => taken,
            Err(_) => Err(Error::Busy { repo: self.top.clone(), seconds: patience.as_secs() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{git::Git, sys::RealFs};

    #[tokio::test]
    async fn one_at_a_time_across_worktrees_and_with_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let git = Git { fs: Arc::new(RealFs), program: "git".into() };
        git.call(dir.path(), "make a repository").args(["init", "-q"]).run().await.unwrap();
        let repo = git.open(dir.path()).await.unwrap().unwrap();
        let held = repo.lock().await.unwrap();
        let refused = repo.lock_within(Duration::from_millis(60)).await.unwrap_err();
        assert!(matches!(&refused, Error::Busy { repo: named, .. } if named == repo.top()));
        let waiting = {
            let repo = repo.clone();
            crate::sys::tasks::spawn("wait", async move { repo.lock().await.map(drop) })
        };
        tokio::time::sleep(PAUSE * 3).await;
        assert!(!waiting.is_finished());
        drop(held);
        waiting.await.unwrap().unwrap();
        // And again: nothing of the lock stays with whoever had it.
        repo.lock().await.unwrap();
    }
}
