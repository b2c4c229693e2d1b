//! The git side of a run: its own worktree when it has one, and a snapshot after every attempt.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::json;

use super::Inner;
use crate::{
    git::Repo,
    model::{Event, RunId, RunRecord, run::NodeRecord, spec::Node},
    nodes::{
        NodeVerdict,
        council::data::{INTEGRATION, WORKTREES},
    },
    sys::{Fs, FsError, FsLock, fs::create_dir_all, tasks},
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

/// Commits what a node left in the worktree that an earlier one made for it. A green word about that tree goes on to
/// be about it: the commit changes what HEAD is, and no file.
pub(super) async fn keep(
    kernel: &Inner,
    record: &RunRecord,
    node: &Node,
    verdict: Option<&mut NodeVerdict>,
) -> Vec<Event> {
    let Some(top) = &record.work_top else { return Vec::new() };
    let warn = |text: String| vec![Event::Log { node: Some(node.id.clone()), level: "warn".to_owned(), text }];
    let dir = Path::new(&record.work_dir);
    let kept = async {
        let Some(repo) = kernel.services.git.open(dir).await?.filter(|repo| repo.top() == Path::new(top)) else {
            return Ok(None);
        };
        let before = repo.digest().await?;
        if repo.commit_all(&format!("{}: work left after the council", node.id)).await?.is_some()
            && let Some(verdict) = verdict
            && verdict.tree_digest.as_deref() == Some(before.as_str())
            && verdict.digest_cwd.as_deref() == Some(record.work_dir.as_str())
        {
            verdict.tree_digest = Some(repo.digest().await?);
        }
        repo.head().await
    };
    match kept.await {
        Ok(Some(commit)) => {
            vec![Event::NodeData {
                node: node.id.clone(),
                key: INTEGRATION.to_owned(),
                data: json!({ "commit": commit }),
            }]
        }
        Ok(None) => warn(format!("{top} is no longer a worktree; nothing was committed there")),
        Err(e) => warn(format!("what is left in {top} is not committed: {e}")),
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
    /// Kept until the run is there, so that another start of the same id does not take the worktree for a leftover.
    _making: Making,
}

/// The making of one run's worktree, which one process does at a time. Dies with the process.
#[derive(Debug)]
pub(super) struct Making {
    fs: Arc<dyn Fs>,
    path: PathBuf,
    _lock: Box<dyn FsLock>,
}

impl Drop for Making {
    fn drop(&mut self) {
        // Still locked, so that nobody waits on a file without a name. One that stays is taken by the next.
        if let Err(e) = self.fs.remove_file(&self.path) {
            tracing::debug!(error = %e, "the lock of a worktree stays");
        }
    }
}

/// Directory of all worktrees.
fn home(kernel: &Inner) -> PathBuf {
    kernel.services.config.home.join("worktrees")
}

/// Takes the making of the worktree of `run`. `None` while another process has it.
pub(super) async fn making(kernel: &Inner, run: &RunId) -> Result<Option<Making>, String> {
    let (fs, home) = (kernel.services.fs.clone(), home(kernel));
    // No run's id begins with a dot.
    let path = home.join(format!(".{run}.lock"));
    let taken = tasks::blocking("worktree", move || {
        create_dir_all(fs.as_ref(), &home)?;
        let lock = fs.try_lock(&path)?;
        Ok::<_, FsError>(lock.map(|lock| Making { fs, path, _lock: lock }))
    });
    taken.await.map_err(|e| e.to_string())?.map_err(|e| e.to_string())
}

/// Makes the worktree of a run that does not exist yet. What a start of the same run left when its process died
/// is cleared away first, as long as no work is in it.
pub(super) async fn open(kernel: &Inner, repo: &Repo, run: &RunId, making: Making) -> Result<Own, String> {
    let path = home(kernel).join(run.as_str());
    let branch = format!("clawo/{run}");
    if let Err(first) = repo.worktree_add(&path, &branch).await {
        // Both refuse what has changes or commits of its own, and a failure of either shows in the second try.
        let cleared = repo.worktree_remove(&path).await;
        let deleted = repo.branch_delete_merged(&branch).await;
        if cleared.is_err() && deleted.is_err() {
            return Err(first.to_string());
        }
        repo.worktree_add(&path, &branch).await.map_err(|e| e.to_string())?;
    }
    let work_dir = if repo.prefix().is_empty() { path.clone() } else { path.join(repo.prefix()) };
    Ok(Own { branch, path, work_dir, _making: making })
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
        if holds_worktrees(kernel, path).await {
            tracing::warn!(%run, path = %path.display(), "agents' worktrees are left in the run's worktree; it stays");
            return Ok(());
        }
        if let Some(main) = kernel.services.git.open(Path::new(&record.cwd)).await? {
            main.worktree_remove(path).await?;
        }
        Ok::<(), crate::git::Error>(())
    };
    if let Err(e) = committed.await {
        tracing::warn!(%run, path = %path.display(), error = %e, "the run's worktree stays");
    }
}

/// Whether worktrees of agents are left in the checkout at `path`. git ignores them and would delete them with it.
async fn holds_worktrees(kernel: &Inner, path: &Path) -> bool {
    let (fs, dir) = (kernel.services.fs.clone(), path.join(WORKTREES));
    let listed = tasks::blocking("worktree", move || fs.list(&dir)).await;
    match listed {
        Ok(Ok(names)) => !names.is_empty(),
        Ok(Err(e)) => !e.is_not_found(),
        Err(_) => true,
    }
}

/// Proves that a worktree run's checkout is still its own, so that no agent works in the checkout around it.
pub(super) async fn proven(kernel: &Inner, record: &RunRecord) -> Result<(), String> {
    let Some(path) = record.work_top.as_ref().or(record.workspace_path.as_ref()) else { return Ok(()) };
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
