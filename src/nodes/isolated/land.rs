//! The way of a commit into the branch that was checked out, with the refusals a caller knows and in steps that a
//! crash cannot tear apart.

use serde::{Deserialize, Serialize};

use super::{Cut, Ground, NodeCtx, keep, kept, recorded, refusals, safe_ref, seats};
use crate::{
    git::{LandKind, LandRefusal, LandRequest, Landing, Strategy},
    model::Code,
};

/// Key of the outcome in a node's data.
pub const MERGE: &str = "merge";
/// Key of the move that is about to be made.
const LANDING: &str = "landing";
/// Tries while the branch keeps moving.
pub const TRIES: u32 = 3;

/// What became of a merge.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Merge {
    /// Whether the branch has the work.
    pub merged: bool,
    /// `fast-forward`, `merge-commit` or `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The branch.
    pub branch: String,
    /// Its commit before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Its commit afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The same in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Merge {
    /// Not merged, for this reason.
    pub fn refused(branch: &str, code: Code, message: impl Into<String>) -> Self {
        let (code, message) = (Some(code.as_str().to_owned()), Some(message.into()));
        Self { branch: branch.to_owned(), code, message, ..Self::default() }
    }

    /// Merged by this move.
    pub fn done(landing: &Landing) -> Self {
        Self {
            merged: true,
            kind: Some(kind_word(landing.kind).to_owned()),
            branch: landing.branch.clone(),
            before: Some(landing.before.clone()),
            after: Some(landing.after.clone()),
            ..Self::default()
        }
    }

    /// Why not, code first.
    pub fn why(&self) -> String {
        let (code, message) = (self.code.as_deref(), self.message.as_deref());
        format!("{}: {}", code.unwrap_or_default(), message.unwrap_or_default())
    }

    /// The move it was, when the branch has the work.
    pub fn landing(&self) -> Option<Landing> {
        let kind = kind_of(self.kind.as_deref().filter(|_| self.merged)?)?;
        Some(Landing { kind, branch: self.branch.clone(), before: self.before.clone()?, after: self.after.clone()? })
    }
}

fn kind_word(kind: LandKind) -> &'static str {
    match kind {
        LandKind::FastForward => "fast-forward",
        LandKind::MergeCommit => "merge-commit",
        LandKind::None => "none",
    }
}

fn kind_of(word: &str) -> Option<LandKind> {
    [LandKind::FastForward, LandKind::MergeCommit, LandKind::None].into_iter().find(|kind| kind_word(*kind) == word)
}

/// The move that an earlier attempt had decided on, when it was made; a checkout that was cut off is completed.
///
/// # Errors
/// git failed, or the checkout cannot be completed.
pub async fn finished(ctx: &NodeCtx, ground: &Ground) -> Result<Option<Landing>, Cut> {
    let Some(landing) = kept::<Merge>(ctx, LANDING).and_then(|merge| merge.landing()) else { return Ok(None) };
    let _lock = ground.repo.lock().await?;
    Ok(ground.repo.land_finish(&landing).await?.then_some(landing))
}

/// Decides how `commit` comes into the base branch. A merge commit is made and kept under a ref; nothing of the
/// user's changes.
///
/// # Errors
/// git failed. A refusal is an answer.
pub async fn prepare(
    ctx: &NodeCtx,
    ground: &Ground,
    commit: &str,
    message: &str,
) -> Result<Result<Landing, Merge>, Cut> {
    let branch = ground.layout.base_branch.as_str();
    let scratch = ground.layout.aside("merge");
    let request = LandRequest { branch, commit, strategy: Strategy::Auto, message, scratch: &scratch };
    let _lock = ground.repo.lock().await?;
    let landing = match ground.repo.land_prepare(&request).await? {
        Ok(landing) => landing,
        Err(refusal) => return Ok(Err(refused(branch, &refusal))),
    };
    if landing.kind == LandKind::MergeCommit {
        seats::keep_commit(&ground.repo, &safe_ref(ctx, "merge"), &landing.after).await?;
    }
    Ok(Ok(landing))
}

/// Moves the branch. `Ok(Err(None))` when it moved meanwhile and another look is worth it.
///
/// # Errors
/// git failed halfway; the next attempt completes it.
pub async fn publish(ctx: &NodeCtx, ground: &Ground, landing: &Landing) -> Result<Result<(), Option<Merge>>, Cut> {
    keep(ctx, LANDING, &Merge::done(landing)).await?;
    recorded(ctx).await?;
    let _lock = ground.repo.lock().await?;
    Ok(match ground.repo.land_publish(landing).await? {
        Ok(()) => Ok(()),
        Err(LandRefusal::Moved) => Err(None),
        Err(refusal) => Err(Some(refused(&landing.branch, &refusal))),
    })
}

/// The branch moved every time.
pub fn keeps_moving(branch: &str) -> Merge {
    refused(branch, &LandRefusal::Moved)
}

fn refused(branch: &str, refusal: &LandRefusal) -> Merge {
    let (code, why) = match refusal {
        LandRefusal::BranchMissing => (Code::BaseBranchMissing, format!("branch '{branch}' is gone; make it again")),
        LandRefusal::Busy(operation) => (
            Code::GitOperationInProgress,
            format!("the checkout of '{branch}' is in the middle of a {operation}; finish or abort it"),
        ),
        LandRefusal::Dirty(dirty) => {
            (Code::TreeDirty, format!("{}; commit or stash them", refusals::dirty_words(dirty)))
        }
        LandRefusal::NotFastForward => (Code::NotFastForward, format!("'{branch}' has commits of its own")),
        LandRefusal::Conflict(paths) => {
            (Code::MergeConflict, format!("'{branch}' and the work changed the same places of {}", paths.join(", ")))
        }
        LandRefusal::WouldOverwrite(paths) => (
            Code::WouldOverwrite,
            format!("ignored files stand where new ones would be written: {}; move them away", paths.join(", ")),
        ),
        LandRefusal::Moved => (Code::BaseBranchMoved, format!("'{branch}' moved {TRIES} times meanwhile; try again")),
    };
    Merge::refused(branch, code, why)
}
