//! What an agent must be able to write, outside its worktree, to commit there.
//!
//! Named so narrowly that neither hooks nor configuration, nor a branch of the user's, are among it.

use std::path::PathBuf;

use super::super::{Repo, Result, refs, scan};
use crate::sys::{Kind, fs};

/// Begins the branches of runs with a worktree of their own.
const RUNS: &str = "clawo";
const WHAT: &str = "look for where commits go";

impl Repo {
    /// Folders that a commit in this worktree writes to: its own part of git's folder, the objects, and the refs and
    /// logs beside its branch. Empty outside a worktree of ours on a branch of ours. Those of the branch are made when
    /// they are missing, since git makes them at the first commit.
    pub async fn writable_for_commits(&self) -> Result<Vec<PathBuf>> {
        let Some(branch) = self.current_branch().await?.filter(|_| self.is_linked()) else { return Ok(Vec::new()) };
        let Some((above, _)) = branch.rsplit_once('/') else { return Ok(Vec::new()) };
        let ours = above == RUNS || refs::KINDS.iter().any(|kind| above.starts_with(&format!("{kind}/")));
        if !ours {
            return Ok(Vec::new());
        }
        let (files, git_dir, common) = (self.git.fs.clone(), self.git_dir.clone(), self.common_dir.clone());
        let beside = [format!("refs/heads/{above}"), format!("logs/refs/heads/{above}")];
        scan::blocking(WHAT, move || {
            let mut found = vec![files.canonicalize(&git_dir)?, common.join("objects")];
            let reftable = common.join("reftable");
            if scan::kind(&*files, &reftable)? == Some(Kind::Dir) {
                found.push(reftable);
                return Ok(found);
            }
            for place in beside {
                let dir = common.join(place);
                fs::create_dir_all(&*files, &dir)?;
                found.push(dir);
            }
            Ok(found)
        })
        .await
    }
}
