//! Whether a directory can carry worktrees of ours, in the words a caller gets.

use std::path::Path;

use crate::{
    git::{self, Dirty, Git, Standing, Unfit},
    model::Code,
};

/// Why nothing is begun: a stable code, and a sentence that says what to do.
pub type Refusal = (Code, String);

/// Looks at a directory before anything is made in its repository. The first reason against it is the answer.
///
/// # Errors
/// One of the refusals of council.md, or `internal` when git itself failed.
pub async fn preflight(git: &Git, dir: &Path, allow_dirty: bool) -> Result<Standing, Refusal> {
    let standing = match git.standing(dir).await {
        Ok(Ok(standing)) => standing,
        Ok(Err(unfit)) => return Err(unfit_words(dir, &unfit)),
        Err(e) => return Err(failed(&e)),
    };
    if standing.dirty.total > 0 && !allow_dirty {
        return Err((Code::TreeDirty, format!("{}; commit, stash or allowDirty", dirty_words(&standing.dirty))));
    }
    Ok(standing)
}

/// What whoever starts should know although nothing speaks against it.
pub fn warnings(standing: &Standing) -> Vec<String> {
    let mut warnings = Vec::new();
    if standing.dirty.total > 0 {
        warnings.push(format!(
            "agents start at commit {} and do not see what is uncommitted here ({} paths); a merge needs a clean tree",
            standing.head, standing.dirty.total
        ));
    }
    if !standing.submodules.is_empty() {
        warnings.push(format!("submodules are empty in worktrees: {}", standing.submodules.join(", ")));
    }
    warnings
}

/// The paths that are not committed.
pub fn dirty_words(dirty: &Dirty) -> String {
    let more = dirty.total.saturating_sub(dirty.paths.len());
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{} paths are not committed: {}{rest}", dirty.total, dirty.paths.join(", "))
}

/// A failure of git as a refusal.
pub fn failed(error: &git::Error) -> Refusal {
    let code = match error {
        git::Error::Busy { .. } => Code::RepoBusy,
        git::Error::Program(_)
        | git::Error::Failed { .. }
        | git::Error::BaseGone(_)
        | git::Error::Fs(_)
        | git::Error::Moved { .. }
        | git::Error::Answer { .. } => Code::WorktreeFailed,
    };
    (code, error.to_string())
}

fn unfit_words(dir: &Path, unfit: &Unfit) -> Refusal {
    let dir = dir.display();
    match unfit {
        Unfit::Git { found } => {
            let found = found.as_deref().map_or("no git on PATH".to_owned(), |found| format!("git {found}"));
            (Code::GitUnavailable, format!("found {found}; install git 2.31 or newer"))
        }
        Unfit::NotARepository => (
            Code::GitNotARepository,
            format!("{dir} is in no git repository; run git init there and commit once, or name another directory"),
        ),
        Unfit::Bare => {
            (Code::GitBareRepository, format!("{dir} has no working tree; name a checkout of the repository"))
        }
        Unfit::Inside { short_id, main } => (
            Code::CouncilWorktree,
            format!("{dir} lies in a worktree of {short_id}; use the main checkout {}", main.display()),
        ),
        Unfit::NoCommits => {
            (Code::GitNoCommits, format!("{dir} has no commit yet; commit once, nothing is committed for you"))
        }
        Unfit::Detached => (
            Code::GitDetachedHead,
            format!("HEAD of {dir} is no branch; check out the branch that should receive the work"),
        ),
        Unfit::Busy(operation) => {
            (Code::GitOperationInProgress, format!("{dir} is in the middle of a {operation}; finish or abort it"))
        }
    }
}
