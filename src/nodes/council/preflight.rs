//! Whether a council can work in a directory at all: looked at before anything is made.

use std::path::Path;

use crate::{
    git::{self, Git, Standing, Unfit},
    model::Code,
};

/// Judges a directory. The first reason against it is the answer, with what to do about it.
///
/// # Errors
/// A code of its own for each reason; what git itself fails at is told in its words.
pub async fn preflight(git: &Git, dir: &Path, allow_dirty: bool) -> Result<Standing, (Code, String)> {
    let at = dir.display();
    let standing = match git.standing(dir).await {
        Ok(Ok(standing)) => standing,
        Ok(Err(unfit)) => return Err(refused(&unfit, dir)),
        Err(git::Error::Fs(e)) if e.is_not_found() => {
            return Err((Code::PathNotFound, format!("{at} is not there; name an existing directory")));
        }
        Err(e @ git::Error::Busy { .. }) => return Err((Code::RepoBusy, e.to_string())),
        Err(e) => return Err((Code::WorktreeFailed, e.to_string())),
    };
    let dirty = &standing.dirty;
    if dirty.total > 0 && !allow_dirty {
        let more = dirty.total.saturating_sub(dirty.paths.len());
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let text = format!(
            "{} paths of {at} are not committed: {}{more}; commit or stash them, or set allowDirty, and then the members \
             do not see them",
            dirty.total,
            dirty.paths.join(", "),
        );
        return Err((Code::TreeDirty, text));
    }
    Ok(standing)
}

fn refused(unfit: &Unfit, dir: &Path) -> (Code, String) {
    let at = dir.display();
    match unfit {
        Unfit::Git { found: Some(found) } => {
            (Code::GitUnavailable, format!("git {found} is too old; install 2.31 or newer"))
        }
        Unfit::Git { found: None } => {
            (Code::GitUnavailable, "there is no git to run; install 2.31 or newer".to_owned())
        }
        Unfit::NotARepository => {
            let text = format!(
                "{at} is not in a git repository; run `git init` and make a first commit there, or name another directory"
            );
            (Code::GitNotARepository, text)
        }
        Unfit::Bare => {
            (Code::GitBareRepository, format!("{at} has no working tree; name a checkout of the repository"))
        }
        Unfit::Inside { short_id, main } => {
            let text =
                format!("{at} belongs to the council or fan-out {short_id}; use the main checkout, {}", main.display());
            (Code::CouncilWorktree, text)
        }
        Unfit::NoCommits => (
            Code::GitNoCommits,
            format!("the repository of {at} has no commit; make a first one, since nothing is committed for you"),
        ),
        Unfit::Detached => {
            let text = format!("HEAD of {at} is on no branch; check out the branch that should receive the work");
            (Code::GitDetachedHead, text)
        }
        Unfit::Busy(operation) => {
            (Code::GitOperationInProgress, format!("{at} is in the middle of a {operation}; finish or abort it"))
        }
    }
}

/// What the caller of a council should know about the checkout it begins at.
pub fn warnings(standing: &Standing) -> Vec<String> {
    let mut warnings = Vec::new();
    if standing.dirty.total > 0 {
        warnings.push(format!(
            "{} uncommitted paths are not visible to the members, and the work can only be accepted into a clean tree",
            standing.dirty.total
        ));
    }
    if !standing.submodules.is_empty() {
        warnings.push(format!("submodules are empty in the members' worktrees: {}", standing.submodules.join(", ")));
    }
    warnings
}
