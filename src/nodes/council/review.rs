//! What a council has made, for whoever decides about it. Reads branches only and changes nothing.

mod preview;

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

pub use preview::MergePreview;

use super::{
    accept::Desk,
    case::{Case, Said},
    data::{Conflict, Disagreement, INTEGRATION, Layout, MergeStatus, Status, UserMoved},
    ground::Ground,
    prompt::reviewer_guidance,
    refusal::Refusal,
    reject::PLAN_MAX,
    view::VoteView,
    votes,
};
use crate::{
    git::{ChangeKind, Difference},
    model::RunOutcome,
    nodes::prompt::cut,
};

/// Most files listed.
const FILES_MAX: usize = 2_000;
/// Characters of a reply shown.
const PREVIEW_CHARS: usize = 500;
/// Bytes of a plan shown.
const PLAN_SHOWN: usize = 30_000;
/// Most turns whose changes are looked at to tell who changed a file.
const TURNS_MAX: usize = 200;

/// A council's work.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReviewView {
    /// The council.
    pub council_id: String,
    /// The project.
    pub project_dir: String,
    /// Where the council stands.
    pub status: Status,
    /// Rounds that ended.
    pub rounds: u32,
    /// Whether there is a plan.
    pub plan_exists: bool,
    /// The plan, at most 30 000 bytes of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan_content: Option<String>,
    /// Where the plan is, relative to the top of the repository.
    pub plan_file: String,
    /// What differs from the branch that should receive the work.
    pub changed_files: Vec<ChangedFile>,
    /// Whether some are left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub changed_files_truncated: bool,
    /// Branches of this council.
    pub branches: Vec<String>,
    /// Worktrees of this council.
    pub worktrees: Vec<String>,
    /// Reviews that members wrote about each other.
    pub reviews: Vec<String>,
    /// Last words of each member.
    pub agent_summaries: Vec<AgentSummary>,
    /// How to review this.
    pub reviewer_guidance: String,
    /// Branch that should receive the work.
    pub base_branch: String,
    /// Its commit at the start.
    pub base_commit: String,
    /// Branch with the work.
    pub integration_branch: String,
    /// Its commit.
    pub integration_commit: String,
    /// What accepting would do: fast-forward, merge-commit, conflict or none.
    pub merge_preview: MergePreview,
    /// Files that would not go together.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub merge_conflicts: Vec<String>,
    /// Work of members that did not fit.
    pub conflicts: Vec<Conflict>,
    /// Members whose work is not in integration.
    pub unmerged_members: Vec<String>,
    /// What members agree and disagree on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disagreement: Option<Disagreement>,
    /// Every vote; advisory.
    pub votes: Vec<VoteView>,
    /// Outcome of the run, once it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
    /// Bundle behind the verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evidence_id: Option<String>,
    /// US dollars of its members.
    pub cost_usd: f64,
    /// Changes of the user's branch or files while rounds went on.
    pub user_branch_moved: Vec<UserMoved>,
}

/// A file that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangedFile {
    /// Relative to the top of the repository.
    pub file: String,
    /// added, modified, deleted or renamed.
    pub change: &'static str,
    /// Lines.
    pub insertions: u64,
    /// Lines.
    pub deletions: u64,
    /// Whose merged work touched it.
    pub members: Vec<String>,
}

/// A member's last words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentSummary {
    /// The member.
    pub agent: String,
    /// Its last vote.
    pub consensus: bool,
    /// The beginning of its last reply.
    pub preview: String,
}

/// Looks at a council.
pub async fn review(desk: Desk<'_>, case: &Case, chain: &[Layout]) -> Result<ReviewView, Refusal> {
    let ground = Ground::open(desk.git, case).await?;
    let (repo, layout) = (&ground.repo, ground.layout);
    let disposition = desk.dispositions.load(&case.id).await?;
    let plan = repo.show(&ground.tip, &layout.plan_file, PLAN_MAX).await;
    let plan_exists = !matches!(plan, Ok(None));
    let plan = plan.ok().flatten().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let base = repo.branch_tip(&layout.base_branch).await?.unwrap_or_else(|| layout.base_commit.clone());
    let fork = repo.merge_base(&base, &ground.tip).await?.unwrap_or_else(|| layout.base_commit.clone());
    let changes = repo.differences(&fork, &ground.tip).await?;
    let talk = ground.talk(chain, &ground.tip).await?;
    let (merge_preview, merge_conflicts) = preview::of(&ground, &base, &fork, &changes, &talk).await?;
    let whose = whose(&ground, case).await?;
    let (branches, worktrees) = super::accept::present(repo, layout, &[]).await?;
    Ok(ReviewView {
        council_id: case.id.clone(),
        project_dir: case.project_dir.clone(),
        status: disposition.over(case.status()),
        rounds: u32::try_from(case.ends.len()).unwrap_or(u32::MAX),
        plan_exists,
        plan_content: plan.map(|plan| cut(&plan, PLAN_SHOWN).0.to_owned()),
        plan_file: layout.plan_file.clone(),
        changed_files: changes.iter().take(FILES_MAX).map(|change| changed(change, &whose)).collect(),
        changed_files_truncated: changes.len() > FILES_MAX,
        branches,
        worktrees,
        reviews: talk.reviews,
        agent_summaries: case.last_words().into_iter().map(summary).collect(),
        reviewer_guidance: reviewer_guidance().to_owned(),
        base_branch: layout.base_branch.clone(),
        base_commit: layout.base_commit.clone(),
        integration_branch: layout.branch(INTEGRATION),
        integration_commit: ground.tip.clone(),
        merge_preview,
        merge_conflicts,
        conflicts: case.conflicts(),
        unmerged_members: ground.unmerged().await?,
        disagreement: case.last_end().map(|end| end.disagreement.clone()),
        votes: case.replies.iter().map(|said| VoteView::of(&said.reply)).collect(),
        outcome: case.outcome,
        evidence_id: case.verdict.as_ref().and_then(|verdict| verdict.evidence_id.clone()),
        cost_usd: case.cost_usd(),
        user_branch_moved: case.ends.values().filter_map(|end| end.user_moved.clone()).collect(),
    })
}

fn changed(change: &Difference, whose: &BTreeMap<String, BTreeSet<String>>) -> ChangedFile {
    let members = whose.get(&change.path).into_iter().flatten().cloned().collect();
    ChangedFile {
        file: change.path.clone(),
        change: match change.kind {
            ChangeKind::Created => "added",
            ChangeKind::Modified => "modified",
            ChangeKind::Deleted => "deleted",
            ChangeKind::Renamed => "renamed",
        },
        insertions: change.insertions,
        deletions: change.deletions,
        members,
    }
}

/// Members by the files that their merged work touched, each turn counted from where it and integration parted.
async fn whose(ground: &Ground<'_>, case: &Case) -> Result<BTreeMap<String, BTreeSet<String>>, Refusal> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let merged = |said: &&Said| {
        let end = case.ends.get(&said.reply.round);
        end.and_then(|end| end.merges.get(&said.reply.agent)).is_some_and(|merge| merge.status == MergeStatus::Merged)
    };
    for said in case.replies.iter().rev().filter(merged).take(TURNS_MAX) {
        let reply = &said.reply;
        let (Some(commit), Some(start)) = (&reply.commit, case.starts.get(&reply.round)) else { continue };
        // What a crash or the user took away tells nothing any more.
        let Ok(Some(parted)) = ground.repo.merge_base(&start.integration, commit).await else { continue };
        for change in ground.repo.differences(&parted, commit).await? {
            for path in std::iter::once(change.path).chain(change.old_path) {
                found.entry(path).or_default().insert(reply.agent.clone());
            }
        }
    }
    Ok(found)
}

fn summary(said: &Said) -> AgentSummary {
    let text = said.text.as_ref().map_or(said.reply.tail.as_str(), |text| text.text.as_str());
    let preview = votes::strip(votes::clean(text)).trim().chars().take(PREVIEW_CHARS).collect();
    AgentSummary { agent: said.reply.agent.clone(), consensus: said.reply.consensus, preview }
}
