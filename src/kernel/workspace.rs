//! The git side of a run: its own worktree when it has one, and a snapshot after every attempt.

use std::path::{Path, PathBuf};

use super::Inner;
use crate::{
    git::Repo,
    model::{Event, RunId, RunRecord, run::NodeRecord, spec::Node},
    sys::tasks,
};

/// Ref under which an attempt's tree is kept.
pub(super) fn snapshot_ref(run: &RunId, label: &str) -> String {
    format!("{}{label}", snapshot_prefix(run))
}

/// Prefix of every snapshot ref of a run.
pub(super) fn snapshot_prefix(run: &RunId) -> String {
    format!("refs/clawo/runs/{run}/")
}

/// Stores the tree an attempt leaves behind. A failure is told, never fatal: the work itself is untouched.
pub(super) async fn snapshot(kernel: &Inner, record: &RunRecord, node: &Node, entry: &NodeRecord) -> Vec<Event> {
    let dir = Path::new(&record.work_dir);
    let label = format!("{}-v{}a{}", node.id, entry.visits, entry.attempts);
    let refname = snapshot_ref(&record.run_id, &label);
    let log = |level: &str, text: String| Event::Log { node: Some(node.id.clone()), level: level.to_owned(), text };
    let repo = match kernel.services.git.open(dir).await {
        Ok(Some(repo)) => repo,
        Ok(None) => return Vec::new(),
        Err(e) => return vec![log("warn", format!("no snapshot of the workspace: {e}"))],
    };
    match repo.snapshot(&refname, &format!("clawo run {} {label}", record.run_id)).await {
        Ok(snapshot) => {
            let mut events = vec![Event::Snapshot { node: node.id.clone(), snapshot_ref: refname }];
            if !snapshot.skipped.is_empty() {
                let list: Vec<&str> = snapshot.skipped.iter().take(20).map(String::as_str).collect();
                events.push(log("warn", format!("too large for the snapshot, not stored: {}", list.join(", "))));
            }
            events
        }
        Err(e) => vec![log("warn", format!("no snapshot of the workspace: {e}"))],
    }
}

/// A run's own worktree, as it was made at start.
#[derive(Debug)]
pub(super) struct Own {
    /// Branch of the work.
    pub(super) branch: String,
    /// Top of the checkout.
    pub(super) path: PathBuf,
    /// Directory in it that matches the one given at start.
    pub(super) work_dir: PathBuf,
}

/// Makes the worktree of a run.
pub(super) async fn open(kernel: &Inner, repo: &Repo, run: &RunId) -> Result<Own, String> {
    let home = kernel.services.config.home.join("worktrees");
    crate::sys::fs::create_dir_all(kernel.services.fs.as_ref(), &home).map_err(|e| e.to_string())?;
    let path = home.join(run.as_str());
    let branch = format!("clawo/{run}");
    repo.worktree_add(&path, &branch).await.map_err(|e| e.to_string())?;
    let work_dir = if repo.prefix().is_empty() { path.clone() } else { path.join(repo.prefix()) };
    Ok(Own { branch, path, work_dir })
}

/// Does [`close`] for a run whose checkout is still there.
pub(super) async fn close_left(kernel: &Inner, record: &RunRecord, path: &str) {
    let (fs, dir) = (kernel.services.fs.clone(), PathBuf::from(path));
    let there = crate::sys::tasks::blocking("worktree", move || fs.metadata(&dir).is_ok()).await;
    if there.unwrap_or(false) {
        close(kernel, record, path).await;
    }
}

/// Commits what a finished run left in its worktree to its branch and removes the checkout; the branch stays.
pub(super) async fn close(kernel: &Inner, record: &RunRecord, path: &str) {
    let path = Path::new(path);
    let run = &record.run_id;
    let committed = async {
        let Some(tree) = kernel.services.git.open(path).await? else { return Ok(()) };
        tree.commit_all(&format!("clawo run {run}: {}", record.workflow)).await?;
        if let Some(main) = kernel.services.git.open(Path::new(&record.cwd)).await? {
            main.worktree_remove(path).await?;
        }
        Ok::<(), crate::git::Error>(())
    };
    if let Err(e) = committed.await {
        tracing::warn!(%run, path = %path.display(), error = %e, "the run's worktree stays");
    }
}

/// Proves that a worktree run's checkout is still its own, so that no agent works in the checkout around it.
pub(super) async fn proven(kernel: &Inner, record: &RunRecord) -> Result<(), String> {
    let Some(path) = &record.workspace_path else { return Ok(()) };
    let broken =
        |why: &str| format!("workspace_missing: the run's worktree {path} {why}; its snapshots can be restored");
    let fs = kernel.services.fs.clone();
    let dir = std::path::PathBuf::from(path);
    let real = tasks::blocking("worktree", move || fs.canonicalize(&dir)).await.map_err(|e| e.to_string())?;
    let real = real.map_err(|_| broken("is gone"))?;
    match kernel.services.git.open(&real).await {
        Ok(Some(repo)) if repo.top() == real => Ok(()),
        Ok(Some(_)) => Err(broken("is no longer a worktree of its own")),
        Ok(None) => Err(broken("is no longer a git worktree")),
        Err(e) => Err(broken(&format!("cannot be read: {e}"))),
    }
}
