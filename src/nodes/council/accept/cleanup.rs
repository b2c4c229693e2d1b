//! Removing what a council made in a repository: exactly the worktrees, branches and refs its record names. Commits
//! that nothing else reaches stay under refs of the run, as long as the run is kept.

use std::path::PathBuf;

use crate::{
    git::{Repo, Result},
    model::RunId,
    nodes::council::data::{INTEGRATION, Layout},
};

/// Names of a council's branches and worktrees, integration last.
fn names(layout: &Layout) -> impl Iterator<Item = &str> {
    layout.seats.iter().map(|seat| seat.name.as_str()).chain([INTEGRATION])
}

fn branches<'a>(layout: &'a Layout, chain: &'a [Layout]) -> impl Iterator<Item = String> + 'a {
    std::iter::once(layout).chain(chain).flat_map(|layout| names(layout).map(|name| layout.branch(name)))
}

fn worktrees<'a>(layout: &'a Layout, chain: &'a [Layout]) -> impl Iterator<Item = PathBuf> + 'a {
    std::iter::once(layout).chain(chain).flat_map(|layout| names(layout).map(|name| layout.worktree(name)))
}

/// Branches and worktrees of these councils that are there.
pub(in crate::nodes::council) async fn present(
    repo: &Repo,
    layout: &Layout,
    chain: &[Layout],
) -> Result<(Vec<String>, Vec<String>)> {
    let (mut found, mut trees) = (Vec::new(), Vec::new());
    for branch in branches(layout, chain) {
        if repo.branch_tip(&branch).await?.is_some() {
            found.push(branch);
        }
    }
    for path in worktrees(layout, chain) {
        if repo.worktree_open(&path).await?.is_some() {
            trees.push(path.to_string_lossy().into_owned());
        }
    }
    Ok((found, trees))
}

/// What need not be kept, and where the rest is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept<'a> {
    /// The run whose refs keep it.
    pub(super) run: &'a RunId,
    /// Commit of the user's branch that has what was taken in.
    pub(super) after: &'a str,
}

impl Kept<'_> {
    /// Makes sure that a commit outlives the ref `name`.
    async fn keep(&self, repo: &Repo, name: &str, tip: &str) -> Result<()> {
        if repo.is_ancestor(tip, self.after).await? {
            return Ok(());
        }
        let place = format!("refs/clawo/runs/{}/{}", self.run, name.trim_start_matches("refs/clawo/"));
        match repo.tip(&place).await? {
            Some(there) if there == tip => Ok(()),
            there => repo.point(&place, tip, there.as_deref()).await,
        }
    }
}

/// Removes all of it; what could not be removed is told. A branch that is still checked out somewhere stays.
pub(super) async fn clean(repo: &Repo, layout: &Layout, chain: &[Layout], kept: &Kept<'_>) -> Vec<String> {
    let mut errors = Vec::new();
    for path in worktrees(layout, chain) {
        let removed = async {
            match repo.worktree_open(&path).await? {
                Some(_) => repo.worktree_remove(&path).await,
                None => Ok(()),
            }
        };
        errors.extend(removed.await.err().map(|e| format!("worktree {}: {e}", path.display())));
    }
    for layout in std::iter::once(layout).chain(chain) {
        errors.extend(repo.remove_empty(&layout.folder()).await.err().map(|e| e.to_string()));
    }
    errors.extend(repo.worktree_prune().await.err().map(|e| format!("worktrees that are gone: {e}")));
    for branch in branches(layout, chain) {
        let deleted = async {
            let Some(tip) = repo.branch_tip(&branch).await? else { return Ok(()) };
            if let Some(tree) = repo.checked_out(&branch).await? {
                let top = tree.top().display().to_string();
                errors.push(format!("branch {branch}: it is checked out in {top}"));
                return Ok::<(), crate::git::Error>(());
            }
            kept.keep(repo, &branch, &tip).await?;
            repo.unpoint(&format!("refs/heads/{branch}"), &tip).await
        };
        let failed = deleted.await.err();
        errors.extend(failed.map(|e| format!("branch {branch}: {e}")));
    }
    for layout in std::iter::once(layout).chain(chain) {
        let removed = async {
            let prefix = layout.salvage_prefix();
            for (name, tip) in repo.refs(&prefix).await? {
                kept.keep(repo, &name, &tip).await?;
            }
            repo.delete_refs(&prefix).await
        };
        errors.extend(removed.await.err().map(|e| e.to_string()));
    }
    errors
}
