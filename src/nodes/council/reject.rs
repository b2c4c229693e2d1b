//! Sending a council's work back: the feedback goes into the plan on the integration branch, and nothing else changes.

use schemars::JsonSchema;
use serde::Serialize;

use super::{
    accept::{Desk, ended, settled},
    case::Case,
    data::INTEGRATION,
    disposition::{Decision, Rejection},
    ground::{Ground, open},
    plan_file,
    refusal::Refusal,
};
use crate::model::{Code, RunOutcome};

/// Longest feedback, in characters.
pub const FEEDBACK_MAX: usize = 100_000;
/// Largest plan that is read, in bytes; a larger one is replaced.
pub(super) const PLAN_MAX: usize = 4 << 20;
/// Message of the commit.
const MESSAGE: &str = "council(reject): record reviewer feedback";

/// A rejection as it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RejectView {
    /// The council.
    pub council_id: String,
    /// Always true.
    pub plan_rewritten: bool,
    /// The feedback as it was recorded.
    pub feedback: String,
    /// The commit on the integration branch.
    pub commit: String,
    /// Pass it to council_start to go on.
    pub continue_from: String,
}

/// Records the feedback.
pub async fn reject(desk: Desk<'_>, case: &Case, feedback: &str) -> Result<RejectView, Refusal> {
    let feedback = feedback.trim();
    let length = feedback.chars().count();
    if length == 0 || length > FEEDBACK_MAX {
        let text = format!("feedback: give 1 to {FEEDBACK_MAX} characters, not {length}");
        return Err(Refusal::new(Code::InvalidArgument, text));
    }
    ended(case)?;
    let held = desk.dispositions.lock(&case.id).await?;
    let mut disposition = held.load().await?;
    let accepted = || Refusal::new(Code::CouncilAccepted, format!("the work of council '{}' is accepted", case.id));
    if disposition.merged() {
        return Err(accepted());
    }
    let lost = || Refusal::lost(&case.id, "the checkout");
    let layout = case.layout.as_ref().ok_or_else(lost)?;
    let repo = open(desk.git, layout).await?.ok_or_else(lost)?;
    let _lock = repo.lock().await?;
    settled(&held, &repo, &mut disposition).await?;
    if disposition.merged() {
        return Err(accepted());
    }
    let ground = Ground::open(desk.git, case).await?;
    let former = match repo.show(&ground.tip, &layout.plan_file, PLAN_MAX).await {
        Ok(found) => found.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        Err(e) => {
            tracing::warn!(council = case.id, error = %e, "the former plan is left out");
            None
        }
    };
    let at = desk.clock.wall();
    let status = disposition.over(case.status()).as_str();
    let outcome = case.outcome.map_or("none", RunOutcome::as_str);
    let rounds = u32::try_from(case.ends.len()).unwrap_or(u32::MAX);
    let plan = plan_file::rejected(former.as_deref(), &case.id, rounds, status, outcome, feedback, at);
    let files = [(layout.plan_file.clone(), Some(plan.into_bytes()))];
    let commit = repo.commit_files(&ground.tip, &files, MESSAGE).await?;
    match repo.worktree_open(&layout.worktree(INTEGRATION)).await? {
        // Its files go with the branch.
        Some(tree) if tree.current_branch().await? == Some(layout.branch(INTEGRATION)) => {
            tree.fast_forward(&commit).await?;
        }
        Some(_) | None => {
            repo.point(&format!("refs/heads/{}", layout.branch(INTEGRATION)), &commit, Some(&ground.tip)).await?;
        }
    }
    disposition.status = Some(Decision::Rejected);
    disposition.at = Some(at);
    disposition.reject.push(Rejection { feedback: feedback.to_owned(), commit: commit.clone(), at });
    held.save(&disposition).await?;
    Ok(RejectView {
        council_id: case.id.clone(),
        plan_rewritten: true,
        feedback: feedback.to_owned(),
        commit,
        continue_from: case.id.clone(),
    })
}
