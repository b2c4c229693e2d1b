//! Taking up a round that was cut off: who has finished keeps everything, the others begin the round again.

use std::collections::BTreeMap;

use super::{
    data::{INTEGRATION, Reply, RoundStart},
    fault::Fault,
    shared::Shared,
};
use crate::git::Repo;

/// Brings the repository to where the round can go on. Gives the refs that keep what unfinished members had.
pub(super) async fn restore(
    shared: &Shared,
    start: &RoundStart,
    finished: &BTreeMap<String, Reply>,
) -> Result<BTreeMap<String, String>, Fault> {
    let _lock = shared.repo.lock().await?;
    there(shared, &start.integration, INTEGRATION).await?;
    shared.repo.worktree_prune().await?;
    let (integration, _) = shared.worktree(INTEGRATION, &start.integration).await?;
    shared.settle_integration(&integration).await?;
    let mut saved = BTreeMap::new();
    for seat in &shared.layout.seats {
        let name = seat.name.as_str();
        if let Some(reply) = finished.get(name) {
            let commit = reply.commit.as_deref().or(start.members.get(name).map(String::as_str));
            let commit = commit.unwrap_or(&start.integration);
            there(shared, commit, name).await?;
            shared.worktree(name, commit).await?;
            continue;
        }
        let commit = start.members.get(name).unwrap_or(&start.integration);
        there(shared, commit, name).await?;
        let (repo, _) = shared.worktree(name, commit).await?;
        if let Some(kept) = rewind(shared, &repo, name, start.round, commit).await? {
            shared.log("warn", format!("what {name} had of round {} is kept as {kept}", start.round));
            saved.insert(name.to_owned(), kept);
        }
    }
    Ok(saved)
}

async fn there(shared: &Shared, commit: &str, whose: &str) -> Result<(), Fault> {
    if shared.repo.has_commit(commit).await? {
        return Ok(());
    }
    Err(Fault::lost(format!("commit {commit} of {whose} is gone from the repository")))
}

/// Puts a worktree and its branch back to `commit`; what goes is kept under the ref that is returned.
pub(super) async fn rewind(
    shared: &Shared,
    repo: &Repo,
    member: &str,
    round: u32,
    commit: &str,
) -> Result<Option<String>, Fault> {
    let branch = shared.layout.branch(member);
    let tip = shared.repo.branch_tip(&branch).await?;
    let on_branch = repo.current_branch().await?.as_deref() == Some(branch.as_str());
    let open = repo.open_merge().await?.is_some();
    let moved = tip.as_deref() != Some(commit) || !on_branch;
    if !open && !moved && repo.dirty().await?.total == 0 {
        return Ok(None);
    }
    let kept = shared.save(repo, member, round).await?;
    if open && !on_branch {
        // Its end may bring other files back, and those must be somewhere too.
        repo.abort_operation().await?;
        shared.save(repo, member, round).await?;
    }
    match &tip {
        // Not what HEAD is at, which is kept by now.
        Some(tip) if !on_branch && tip != commit => drop(shared.keep(tip, member, round).await?),
        Some(_) => {}
        None => shared.repo.point(&format!("refs/heads/{branch}"), commit, None).await?,
    }
    repo.attach(&branch).await?;
    repo.reset_to(commit).await?;
    Ok(Some(kept))
}
