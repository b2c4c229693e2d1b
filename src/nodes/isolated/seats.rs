//! The worktree of an agent: made or taken up again, set back before it works, settled after it worked.

use std::path::PathBuf;

use super::{Cut, Ground, NodeCtx, guard, safe_ref, tidy};
use crate::{
    git::{At, Repo},
    model::Code,
};

/// What is ignored in every repository with worktrees of ours.
const EXCLUDED: &str = ".worktrees/";

/// Where an agent works.
#[derive(Debug, Clone)]
pub struct Seat {
    /// The project in its worktree.
    pub cwd: PathBuf,
    /// Variables of its processes.
    pub env: Vec<(String, String)>,
}

/// Opens the worktrees of `agents`, each at the base commit. What an earlier attempt left in one is stored first.
/// When a first start cannot make one, everything it made goes again.
///
/// # Errors
/// `worktree_failed` or `repo_busy`.
pub async fn open(ctx: &NodeCtx, ground: &Ground, agents: &[&str]) -> Result<Vec<Seat>, Cut> {
    let hooks = guard::hooks_dir(ctx.services.fs.clone(), &ctx.services.config.home).await;
    let hooks = hooks.map_err(|e| Cut::of(Code::StoreUnavailable, e))?;
    let layout = &ground.layout;
    let _lock = ground.repo.lock().await?;
    ground.repo.exclude(EXCLUDED).await?;
    let mut seats = Vec::new();
    for agent in agents {
        let opened = async {
            let tree = worktree(ground, agent, &layout.base_commit).await?;
            set_back(ctx, ground, &tree, agent).await?;
            Ok::<_, Cut>(tree)
        };
        match opened.await {
            Ok(tree) => seats.push(Seat {
                cwd: layout.project(tree.top()),
                env: guard::identity_env(agent, layout.kind.word(), &hooks),
            }),
            Err(cut) => {
                if ground.fresh {
                    tidy::take_back(ground, agents).await;
                }
                return Err(cut);
            }
        }
    }
    Ok(seats)
}

/// The worktree of an agent, made on its branch when it is missing; a missing branch starts at `commit`.
///
/// # Errors
/// Something else stands at its place, or git cannot make it.
pub async fn worktree(ground: &Ground, agent: &str, commit: &str) -> Result<Repo, Cut> {
    let (repo, layout) = (&ground.repo, &ground.layout);
    let (path, branch) = (layout.worktree(agent), layout.branch(agent));
    if let Some(tree) = repo.worktree_open(&path).await? {
        return Ok(tree);
    }
    let at = match repo.branch_tip(&branch).await? {
        Some(_) => At::Branch(&branch),
        None => At::New { branch: &branch, commit },
    };
    Ok(repo.worktree_at(&path, at).await?)
}

/// Brings a worktree to the base commit. What is in it, commits and files, is under a ref before that.
async fn set_back(ctx: &NodeCtx, ground: &Ground, tree: &Repo, agent: &str) -> Result<(), Cut> {
    let (layout, base) = (&ground.layout, ground.layout.base_commit.as_str());
    let branch = layout.branch(agent);
    let tip = ground.repo.branch_tip(&branch).await?;
    let on_branch = tree.current_branch().await?.as_deref() == Some(branch.as_str());
    let clean = tree.operation().await?.is_none() && tree.dirty().await?.total == 0;
    if on_branch && clean && tip.as_deref() == Some(base) {
        return Ok(());
    }
    let saved = safe_ref(ctx, agent);
    let note = format!("{agent}: unfinished work of an earlier attempt");
    tree.snapshot(&saved, &note).await?;
    if let Some(tip) = tip.filter(|tip| tip != base) {
        keep_commit(&ground.repo, &format!("{saved}-branch"), &tip).await?;
    }
    if tree.operation().await?.is_some() {
        tree.abort_operation().await?;
        // The end of an operation moves HEAD and files once more.
        tree.snapshot(&saved, &note).await?;
    }
    tree.attach(&branch).await?;
    tree.reset_to(base).await?;
    ctx.report.log("info", format!("[{agent}] what an earlier attempt left is stored under {saved}"));
    Ok(())
}

/// Keeps a commit reachable under a ref of ours.
pub(super) async fn keep_commit(repo: &Repo, refname: &str, commit: &str) -> Result<(), Cut> {
    let old = repo.tip(refname).await?;
    if old.as_deref() != Some(commit) {
        repo.point(refname, commit, old.as_deref()).await?;
    }
    Ok(())
}

/// Commits what an agent left in its worktree to its branch and gives the branch's commit. A half-done operation is
/// stored and aborted; commits made off the branch come onto it when they follow it, and are stored when not.
///
/// # Errors
/// git failed; the worktree is as the agent left it, or stored.
pub async fn settle(ctx: &NodeCtx, ground: &Ground, tree: &Repo, agent: &str) -> Result<String, Cut> {
    let (repo, layout) = (&ground.repo, &ground.layout);
    let (branch, refname) = (layout.branch(agent), layout.refname(agent));
    let saved = safe_ref(ctx, agent);
    let warn = |text: String| ctx.report.log("warn", format!("[{agent}] {text}"));
    if let Some(open) = tree.open_merge().await? {
        tree.snapshot(&saved, &format!("{agent}: left half done")).await?;
        tree.abort_operation().await?;
        warn(format!("left a half-done {}; it is stored under {saved}", open.operation));
    }
    let tip = match repo.branch_tip(&branch).await? {
        Some(tip) => tip,
        None => {
            // Its own branch was deleted under it; what it is at decides.
            let head = tree.head().await?.unwrap_or_else(|| layout.base_commit.clone());
            repo.point(&refname, &head, None).await?;
            head
        }
    };
    if tree.current_branch().await?.as_deref() != Some(branch.as_str()) {
        let head = tree.head().await?.unwrap_or_else(|| tip.clone());
        if repo.is_ancestor(&tip, &head).await? {
            if head != tip {
                repo.point(&refname, &head, Some(&tip)).await?;
            }
            tree.attach(&branch).await?;
        } else {
            tree.snapshot(&saved, &format!("{agent}: left off its branch")).await?;
            tree.attach(&branch).await?;
            tree.reset_to(&tip).await?;
            warn(format!("ended off its branch; what it had there is stored under {saved}"));
        }
    }
    tree.commit_all(&format!("{}: {agent} - uncommitted work", layout.kind.word())).await?;
    match tree.head().await? {
        Some(head) => Ok(head),
        None => Err(Cut::of(Code::WorktreeFailed, format!("{branch} has no commit"))),
    }
}
