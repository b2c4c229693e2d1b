//! What a member left in its worktree after its turn: committed to its branch, or kept aside and told.

use super::{fault::Fault, kept, shared::Shared};
use crate::{git::Repo, nodes::prompt::cut};

/// Most of a patch that its author is shown again, in bytes.
const SHOWN: usize = 8 << 10;

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Collected {
    /// Tip of the member's branch.
    pub(super) commit: Option<String>,
    /// Something was committed for it.
    pub(super) auto_committed: bool,
    /// Where work is that is not on its branch.
    pub(super) salvage_ref: Option<String>,
    /// What it must be told.
    pub(super) notes: Vec<String>,
}

/// Commits what is uncommitted, under `message`. `start` is the commit that the member's branch was at.
pub(super) async fn collect(
    shared: &Shared,
    member: &str,
    round: u32,
    start: &str,
    message: &str,
) -> Result<Collected, Fault> {
    let _lock = shared.repo.lock().await?;
    let mut found = Collected::default();
    let path = shared.layout.worktree(member);
    let Some(repo) = shared.repo.worktree_open(&path).await? else {
        found.commit = shared.repo.branch_tip(&shared.layout.branch(member)).await?;
        found.notes.push("Your worktree was gone at the end of your turn and was made again.".to_owned());
        return Ok(found);
    };
    open_merge(shared, &repo, member, round, &mut found).await?;
    on_branch(shared, &repo, member, round, start, &mut found).await?;
    if repo.commit_all(message).await?.is_some() {
        found.auto_committed = true;
    }
    // One whose conflicts were all resolved holds nothing more now that its files are committed.
    leave(shared, &repo, member, round, &mut found).await?;
    found.commit = shared.repo.branch_tip(&shared.layout.branch(member)).await?;
    Ok(found)
}

/// Aborts a merge with open conflicts; its state is kept and told.
async fn open_merge(
    shared: &Shared,
    repo: &Repo,
    member: &str,
    round: u32,
    found: &mut Collected,
) -> Result<(), Fault> {
    let Some(open) = repo.open_merge().await?.filter(|open| !open.unmerged.is_empty()) else { return Ok(()) };
    if let Some(commit) = &open.stranded {
        found.salvage_ref = Some(shared.keep(commit, member, round).await?);
    }
    let patch = String::from_utf8_lossy(&open.patch).into_owned();
    let operation = if open.operation.is_empty() { "merge" } else { open.operation };
    let (shown, more) = cut(&patch, SHOWN);
    let rest = if more { "\n[the rest is left out]" } else { "" };
    found.notes.push(format!(
        "You left a {operation} half done, with conflicts in {}. It was aborted; this is what your files held:\n{shown}{rest}",
        open.unmerged.join(", "),
    ));
    kept::write_saved(&shared.ctx, round, member, patch).await;
    repo.abort_operation().await?;
    Ok(())
}

/// Ends an operation that holds no conflict.
async fn leave(shared: &Shared, repo: &Repo, member: &str, round: u32, found: &mut Collected) -> Result<(), Fault> {
    let Some(open) = repo.open_merge().await? else { return Ok(()) };
    if let Some(commit) = &open.stranded {
        found.salvage_ref = Some(shared.keep(commit, member, round).await?);
    }
    found.notes.push(format!(
        "You left a {} without ending it. Its files were committed for you as a plain commit; when it was to be a merge, \
         merge again.",
        open.operation
    ));
    repo.abort_operation().await?;
    let head = shared.head(repo).await?;
    on_branch(shared, repo, member, round, &head, found).await
}

/// Puts a worktree whose HEAD is elsewhere back on the member's branch: with its commits when they follow the branch,
/// else without them, and then they are kept under a ref.
async fn on_branch(
    shared: &Shared,
    repo: &Repo,
    member: &str,
    round: u32,
    start: &str,
    found: &mut Collected,
) -> Result<(), Fault> {
    let branch = shared.layout.branch(member);
    let refname = format!("refs/heads/{branch}");
    let tip = match shared.repo.branch_tip(&branch).await? {
        Some(tip) => tip,
        None => {
            shared.repo.point(&refname, start, None).await?;
            found.notes.push(format!("Your branch {branch} was gone and was made again."));
            start.to_owned()
        }
    };
    if repo.current_branch().await?.as_deref() == Some(branch.as_str()) {
        return Ok(());
    }
    let head = shared.head(repo).await?;
    if shared.repo.is_ancestor(&tip, &head).await? {
        if tip != head {
            shared.repo.point(&refname, &head, Some(&tip)).await?;
        }
        repo.attach(&branch).await?;
        return Ok(());
    }
    let saved = shared.save(repo, member, round).await?;
    found.notes.push(format!(
        "Your worktree was not on your branch {branch}, and its commits do not follow that branch. They are not merged; \
         they are kept as {saved}."
    ));
    found.salvage_ref = Some(saved);
    repo.attach(&branch).await?;
    repo.reset_to(&tip).await?;
    Ok(())
}
