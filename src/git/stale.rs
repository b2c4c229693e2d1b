//! Lock files that a killed git left in a worktree of ours. Nobody else ever takes them away, and git refuses to work
//! while they lie there.

use super::{
    Repo, Result,
    refs::{HEADS, is_ours},
    scan,
};
use crate::sys::Kind;

const CLEAR: &str = "clear the locks of a killed git";
const LOCK: &str = ".lock";

impl Repo {
    /// Removes the lock files of this worktree and of `branch` (short name), which must be one of ours. Whoever calls
    /// knows that no git works here any more. What the whole repository shares is left alone. Gives how many there were.
    pub async fn clear_locks(&self, branch: &str) -> Result<usize> {
        let refname = format!("{HEADS}{branch}");
        if !self.is_linked() || !is_ours(&refname) {
            return Err(self.refuse(CLEAR, format!("it is no worktree for '{branch}' of ours")));
        }
        let (fs, git_dir, common) = (self.git.fs.clone(), self.git_dir.clone(), self.common_dir.clone());
        scan::blocking(CLEAR, move || {
            let mut locks = vec![common.join(refname + LOCK)];
            let names = fs.list(&git_dir)?.into_iter();
            locks.extend(names.filter(|name| name.to_string_lossy().ends_with(LOCK)).map(|name| git_dir.join(name)));
            let mut cleared = 0;
            for lock in locks {
                if scan::kind(&*fs, &lock)? != Some(Kind::File) {
                    continue;
                }
                match fs.remove_file(&lock) {
                    Ok(()) => cleared += 1,
                    Err(e) if e.is_not_found() => {}
                    Err(e) => return Err(e.into()),
                }
            }
            Ok(cleared)
        })
        .await
    }
}
