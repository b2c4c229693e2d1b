//! Ending a council, speaking to it, taking its work in or sending it back.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Located, desk, dispositions, find, find::find as located, invalid};
use crate::{
    kernel::{Error, Inner, Result, control},
    model::Code,
    nodes::council::{
        accept::{self, AcceptView, Wish},
        case::Case,
        data::{INTEGRATION, Layout},
        reject::{self, RejectView},
    },
};

/// Longest message to a council, in characters.
pub const MESSAGE_MAX: usize = 20_000;
/// Kept with a council that was ended.
const REASON: &str = "council aborted";

/// A council that was ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Aborted {
    /// The council.
    pub id: String,
    /// Always aborted.
    pub status: &'static str,
    /// Members that were in the middle of their turn.
    pub sessions_stopped: usize,
    /// Branches with what was done.
    pub branches_kept: Vec<String>,
}

/// Words that wait for a round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Injected {
    /// The council.
    pub id: String,
    /// The round whose prompts will hold them.
    pub deliver_at_round: u32,
}

/// Ends a council wherever it is executed.
pub(super) async fn abort(kernel: &Arc<Inner>, id: &str) -> Result<Aborted> {
    let Located { case, .. } = located(kernel, id).await?;
    let working = if case.live { working(&case) } else { 0 };
    control::cancel(kernel, &case.run_id, Some(REASON.to_owned())).await?;
    let Located { case, .. } = located(kernel, id).await?;
    let mut kept = Vec::new();
    if let Some(layout) = &case.layout
        && let Some(repo) = crate::nodes::council::ground::open(&kernel.services.git, layout).await?
    {
        // Nobody was there to put its worktrees away.
        if let Err(e) = put_away(&repo, layout).await {
            tracing::warn!(council = case.id, error = %e, "worktrees of a council that was ended stay");
        }
        let names = layout.seats.iter().map(|seat| seat.name.as_str()).chain([INTEGRATION]);
        for branch in names.map(|name| layout.branch(name)) {
            if repo.branch_tip(&branch).await.map_err(|e| Error::new(Code::WorktreeFailed, e.to_string()))?.is_some() {
                kept.push(branch);
            }
        }
    }
    Ok(Aborted { id: case.id, status: "aborted", sessions_stopped: working, branches_kept: kept })
}

/// Commits what is left in a council's worktrees to its branches and removes them; what is gone already is fine.
async fn put_away(repo: &crate::git::Repo, layout: &Layout) -> crate::git::Result<()> {
    let _lock = repo.lock().await?;
    for name in layout.seats.iter().map(|seat| seat.name.as_str()).chain([INTEGRATION]) {
        let path = layout.worktree(name);
        if let Some(tree) = repo.worktree_open(&path).await? {
            if tree.operation().await?.is_none() {
                tree.commit_all(&format!("council(abort): {name} - uncommitted work")).await?;
            }
            repo.worktree_remove(&path).await?;
        }
    }
    repo.remove_empty(&layout.folder()).await?;
    Ok(())
}

/// Members whose turn of the round that goes on has not ended.
fn working(case: &Case) -> usize {
    let round = case.round();
    if round == 0 || case.ends.contains_key(&round) || case.ended.is_some() {
        return 0;
    }
    let answered = case.replies.iter().filter(|said| said.reply.round == round).count();
    case.settings.agents.len().saturating_sub(answered)
}

/// Queues words for the next round.
pub(super) async fn inject(kernel: &Arc<Inner>, id: &str, message: &str) -> Result<Injected> {
    let length = message.trim().chars().count();
    if length == 0 || length > MESSAGE_MAX {
        return Err(invalid("message", &format!("give 1 to {MESSAGE_MAX} characters, not {length}")));
    }
    let Located { case, .. } = located(kernel, id).await?;
    if case.run_ended() || case.ended.is_some() {
        let text = format!("council '{}' has ended as {}", case.id, case.status().as_str());
        return Err(Error::new(Code::RunTerminal, text));
    }
    let round = control::inject(kernel, &case.run_id, &case.node, message.trim()).await?;
    Ok(Injected { id: case.id, deliver_at_round: round })
}

/// Takes the work in.
pub(super) async fn accept(kernel: &Arc<Inner>, id: &str, wish: &Wish) -> Result<AcceptView> {
    let Located { case, .. } = located(kernel, id).await?;
    let chain = find::chain(kernel, &case).await;
    let dispositions = dispositions(kernel);
    Ok(Box::pin(accept::accept(desk(kernel, &dispositions), &case, &chain, wish)).await?)
}

/// Sends the work back.
pub(super) async fn reject(kernel: &Arc<Inner>, id: &str, feedback: &str) -> Result<RejectView> {
    let Located { case, .. } = located(kernel, id).await?;
    let dispositions = dispositions(kernel);
    Ok(Box::pin(reject::reject(desk(kernel, &dispositions), &case, feedback)).await?)
}
