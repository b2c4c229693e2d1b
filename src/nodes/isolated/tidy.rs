//! Removing what was made, by record and never by likeness: nothing uncommitted goes, and no commit that only a
//! deleted branch reached.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Cut, Ground, NodeCtx, keep, safe_ref, seats};
use crate::{git::Repo, nodes::Stop};

/// Key of the document in a node's data.
pub const LEFT: &str = "left";
/// Temporary worktrees there may be.
pub const ASIDE: [&str; 3] = ["base", "merge", "check"];

/// What stays in the repository when a node has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// Branches.
    pub branches: Vec<String>,
    /// Tops of worktrees.
    pub worktrees: Vec<String>,
}

/// Removes the worktrees of all agents but `but`, and with `branches` their branches, whose commits stay under refs
/// of the run. Says on the record what is left. What resists stays and is logged.
pub async fn put_away(ctx: &NodeCtx, ground: &Ground, but: Option<&str>, branches: bool) -> Result<Left, Cut> {
    let (repo, layout) = (&ground.repo, &ground.layout);
    let mut left = Left::default();
    let lock = repo.lock().await?;
    for agent in &layout.agents {
        let path = layout.worktree(agent);
        let goes = but != Some(agent.as_str());
        let removed = if goes { remove(ctx, ground, agent, &path).await } else { Ok(false) };
        let removed = removed.unwrap_or_else(|cut| {
            ctx.report.log("warn", format!("[{agent}] its worktree stays: {}", words(&cut)));
            false
        });
        if !removed {
            left.worktrees.push(path.to_string_lossy().into_owned());
        }
        let Some(tip) = repo.branch_tip(&layout.branch(agent)).await? else { continue };
        let deleted = if branches && removed { delete(ctx, ground, agent, &tip).await } else { Ok(false) };
        match deleted {
            Ok(true) => {}
            Ok(false) => left.branches.push(layout.branch(agent)),
            Err(cut) => {
                ctx.report.log("warn", format!("[{agent}] its branch stays: {}", words(&cut)));
                left.branches.push(layout.branch(agent));
            }
        }
    }
    for what in ASIDE {
        if let Err(cut) = remove_aside(ctx, repo, &layout.aside(what), what).await {
            ctx.report.log("warn", format!("a temporary worktree stays: {}", words(&cut)));
            left.worktrees.push(layout.aside(what).to_string_lossy().into_owned());
        }
    }
    repo.worktree_prune().await?;
    repo.remove_empty(&layout.folder()).await?;
    drop(lock);
    keep(ctx, LEFT, &left).await?;
    Ok(left)
}

/// Ends an attempt whose work goes nowhere: what is done is committed, worktrees go, branches stay. A run that goes
/// on elsewhere or later keeps everything as it is.
pub async fn give_up(ctx: &NodeCtx, ground: &Ground) {
    match ctx.stop.get() {
        Some(Stop::Shutdown | Stop::Superseded) => return,
        None if ctx.cancel.is_cancelled() => return,
        Some(Stop::Cancelled | Stop::Budget) | None => {}
    }
    let ended = async {
        for agent in &ground.layout.agents {
            let _lock = ground.repo.lock().await?;
            if let Some(tree) = ground.repo.worktree_open(&ground.layout.worktree(agent)).await? {
                seats::settle(ctx, ground, &tree, agent).await?;
            }
        }
        put_away(ctx, ground, None, false).await
    };
    if let Err(cut) = ended.await {
        ctx.report.log("warn", format!("the agents' worktrees stay: {}", words(&cut)));
    }
}

/// Removes the worktree of an agent; false when something of somebody else's stands there.
async fn remove(ctx: &NodeCtx, ground: &Ground, agent: &str, path: &Path) -> Result<bool, Cut> {
    let Some(tree) = ground.repo.worktree_open(path).await? else {
        let (fs, path) = (ctx.services.fs.clone(), path.to_path_buf());
        let gone = crate::sys::tasks::blocking("look", move || match fs.metadata(&path) {
            Ok(_) => false,
            Err(e) => e.is_not_found(),
        });
        return Ok(gone.await.unwrap_or(false));
    };
    clean(ctx, &tree, agent).await?;
    ground.repo.worktree_remove(path).await?;
    Ok(true)
}

/// Stores what checks left in a worktree whose agent's work is committed, and takes it away.
async fn clean(ctx: &NodeCtx, tree: &Repo, what: &str) -> Result<(), Cut> {
    if tree.dirty().await?.total == 0 && tree.operation().await?.is_none() {
        return Ok(());
    }
    let Some(head) = tree.head().await? else { return Ok(()) };
    tree.snapshot(&safe_ref(ctx, &format!("{what}-after")), &format!("{what}: left after the work")).await?;
    tree.reset_to(&head).await?;
    Ok(())
}

/// Brings the worktree of an agent back to its commit, so that what is digested there is what was judged.
///
/// # Errors
/// git failed.
pub async fn as_committed(ctx: &NodeCtx, ground: &Ground, agent: &str) -> Result<Option<Repo>, Cut> {
    let tree = ground.repo.worktree_open(&ground.layout.worktree(agent)).await?;
    if let Some(tree) = &tree {
        clean(ctx, tree, agent).await?;
    }
    Ok(tree)
}

/// Deletes the branch of an agent when it is where the record has it; its commit stays under a ref of the run.
async fn delete(ctx: &NodeCtx, ground: &Ground, agent: &str, tip: &str) -> Result<bool, Cut> {
    seats::keep_commit(&ground.repo, &safe_ref(ctx, &format!("{agent}-tip")), tip).await?;
    ground.repo.unpoint(&ground.layout.refname(agent), tip).await?;
    Ok(true)
}

/// Removes a temporary worktree. What checks wrote into it is stored, for nobody told them not to keep things there.
///
/// # Errors
/// Something else stands there, or git failed.
pub async fn remove_aside(ctx: &NodeCtx, repo: &Repo, path: &Path, what: &str) -> Result<(), Cut> {
    if let Some(tree) = repo.worktree_open(path).await? {
        clean(ctx, &tree, what).await?;
        repo.worktree_remove(path).await?;
    }
    Ok(())
}

/// Takes everything back that a start made which could not make all of it. Nobody has worked there yet.
pub(super) async fn take_back(ground: &Ground, agents: &[&str]) {
    let (repo, layout) = (&ground.repo, &ground.layout);
    for agent in agents {
        let taken = async {
            let path: PathBuf = layout.worktree(agent);
            if repo.worktree_open(&path).await?.is_some() {
                repo.worktree_remove(&path).await?;
            }
            repo.unpoint(&layout.refname(agent), &layout.base_commit).await
        };
        if let Err(e) = taken.await {
            tracing::warn!(error = %e, agent, "what a failed start made stays");
        }
    }
    if let Err(e) = repo.remove_empty(&layout.folder()).await {
        tracing::warn!(error = %e, "the folder of a failed start stays");
    }
}

fn words(cut: &Cut) -> &str {
    match cut {
        Cut::Stopped => "the run is being stopped",
        Cut::Failed(why) => why,
    }
}
