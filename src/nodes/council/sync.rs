//! Before a round: everybody's branch at the tip of integration, save who has a conflict to resolve.

use std::collections::{BTreeMap, BTreeSet};

use super::{data::INTEGRATION, fault::Fault, resume, shared::Shared};

/// Brings the members forward, `open` excepted. Gives the commits of integration and of each member.
pub(super) async fn all(
    shared: &Shared,
    round: u32,
    open: &BTreeSet<&str>,
) -> Result<(String, BTreeMap<String, String>), Fault> {
    let _lock = shared.repo.lock().await?;
    shared.repo.worktree_prune().await?;
    let branch = shared.layout.branch(INTEGRATION);
    let tip = shared.repo.branch_tip(&branch).await?;
    let tip = tip.ok_or_else(|| Fault::lost(format!("branch {branch} is gone")))?;
    shared.worktree(INTEGRATION, &tip).await?;
    let mut members = BTreeMap::new();
    for seat in &shared.layout.seats {
        let name = seat.name.as_str();
        let (repo, _) = shared.worktree(name, &tip).await?;
        let own = shared.repo.branch_tip(&shared.layout.branch(name)).await?.unwrap_or_else(|| tip.clone());
        // Nobody has worked since the branch was looked at, so this is what a crash left of an earlier try.
        if let Some(kept) = resume::rewind(shared, &repo, name, round, &own).await? {
            shared.log("warn", format!("what lay in the worktree of {name} is kept as {kept}"));
        }
        if open.contains(name) || !shared.repo.is_ancestor(&own, &tip).await? {
            members.insert(name.to_owned(), own);
            continue;
        }
        repo.fast_forward(&tip).await?;
        members.insert(name.to_owned(), tip.clone());
    }
    Ok((tip, members))
}
