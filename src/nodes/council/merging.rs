//! After the members' turns: their branches into integration, one after the other, and what that says about the round.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    data::{Conflict, ConflictFile, Disagreement, INTEGRATION, Merge, MergeStatus, Reply, RoundStart},
    disagreement::{self, Changed},
    fault::Fault,
    place::PLAN_MAX,
    plan_file::{self, Merged},
    shared::Shared,
};
use crate::{
    git::{ChangeKind, Difference, MergedIn, Repo, Unmerged, UnmergedKind},
    nodes::prompt::cut,
};

/// Most paths named of what a member did besides planning.
const VIOLATIONS_MAX: usize = 200;
/// Most of a lost plan that is kept, in bytes.
const LOST_PLAN_MAX: usize = 16 << 10;
/// Where members review each other, below the project.
const REVIEWS: &str = "reviews/";

/// What became of the members' work.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// By member.
    pub(super) merges: BTreeMap<String, Merge>,
    /// What did not fit.
    pub(super) conflicts: Vec<Conflict>,
    /// Plans without their markers, by member.
    pub(super) lost_plans: BTreeMap<String, String>,
    /// Tip of integration.
    pub(super) integration: String,
    /// Members whose work is not in it.
    pub(super) unmerged: Vec<String>,
}

/// Merges all members in their order. What is merged already counts as merged.
pub(super) async fn merge(shared: &Shared, start: &RoundStart, earlier: &[Conflict]) -> Result<Outcome, Fault> {
    let _lock = shared.repo.lock().await?;
    let (integration, _) = shared.worktree(INTEGRATION, &start.integration).await?;
    in_place(shared, start).await?;
    shared.settle_integration(&integration).await?;
    let mut outcome = Outcome::default();
    for seat in &shared.layout.seats {
        let name = seat.name.as_str();
        shared.go_on()?;
        let Some(tip) = shared.repo.branch_tip(&shared.layout.branch(name)).await? else {
            outcome.merges.insert(name.to_owned(), Merge::default());
            outcome.unmerged.push(name.to_owned());
            continue;
        };
        let merge = one(shared, &integration, start, name, &tip, &mut outcome).await?;
        if matches!(merge.status, MergeStatus::Skipped) {
            outcome.conflicts.extend(earlier.iter().filter(|conflict| conflict.member == name).cloned());
        }
        outcome.merges.insert(name.to_owned(), merge);
    }
    outcome.integration = shared.head(&integration).await?;
    for seat in &shared.layout.seats {
        let tip = shared.repo.branch_tip(&shared.layout.branch(&seat.name)).await?;
        if let Some(tip) = tip
            && !shared.repo.is_ancestor(&tip, &outcome.integration).await?
        {
            outcome.unmerged.push(seat.name.clone());
        }
    }
    Ok(outcome)
}

/// Brings the integration branch back when somebody else moved it to what does not follow the round's start.
async fn in_place(shared: &Shared, start: &RoundStart) -> Result<(), Fault> {
    let branch = shared.layout.branch(INTEGRATION);
    let tip = shared.repo.branch_tip(&branch).await?;
    let moved = match &tip {
        Some(tip) => !shared.repo.is_ancestor(&start.integration, tip).await?,
        None => true,
    };
    if !moved {
        return Ok(());
    }
    if let Some(tip) = &tip {
        let kept = shared.keep(tip, INTEGRATION, start.round).await?;
        shared.log("warn", format!("{branch} was moved by somebody to {tip}, which is kept as {kept}; it is put back"));
    }
    shared.repo.point(&format!("refs/heads/{branch}"), &start.integration, tip.as_deref()).await?;
    Ok(())
}

async fn one(
    shared: &Shared,
    integration: &Repo,
    start: &RoundStart,
    member: &str,
    tip: &str,
    outcome: &mut Outcome,
) -> Result<Merge, Fault> {
    let head = shared.head(integration).await?;
    if shared.repo.is_ancestor(tip, &head).await? {
        // A merge of this round that a crash did not let be told, or no work at all.
        let old = shared.repo.is_ancestor(tip, &start.integration).await?;
        let status = if old { MergeStatus::Nothing } else { MergeStatus::Merged };
        return Ok(Merge { status, files: Vec::new() });
    }
    let overrides = plan(shared, &head, tip, member, outcome).await?;
    let message = format!("council(round-{}): merge {member}", start.round);
    match integration.merge_in(tip, &message, &overrides).await {
        Ok(MergedIn::Merged(_)) => Ok(Merge { status: MergeStatus::Merged, files: Vec::new() }),
        Ok(MergedIn::Nothing) => Ok(Merge { status: MergeStatus::Nothing, files: Vec::new() }),
        Ok(MergedIn::Conflict(unmerged)) => {
            let files: Vec<ConflictFile> = unmerged.iter().map(file).collect();
            let others = others(shared, &head, tip, member, &files).await?;
            shared.log("warn", format!("conflict: round {}, {member}, {} files", start.round, files.len()));
            outcome.conflicts.push(Conflict {
                member: member.to_owned(),
                round: start.round,
                files: files.clone(),
                member_commit: tip.to_owned(),
                integration_commit: head,
                other_members: others,
            });
            Ok(Merge { status: MergeStatus::Conflict, files })
        }
        Err(e) => {
            // Of one member alone; the worktree is as before, or the next merge fails and says why.
            shared.log("warn", format!("the work of {member} cannot be merged: {e}"));
            Ok(Merge { status: MergeStatus::Skipped, files: Vec::new() })
        }
    }
}

fn file(unmerged: &Unmerged) -> ConflictFile {
    // Integration is the side that merges, so "us" are the others.
    let kind = match unmerged.kind {
        UnmergedKind::Content => "content",
        UnmergedKind::AddedByBoth => "added-by-both",
        UnmergedKind::DeletedByUs => "deleted-by-others",
        UnmergedKind::DeletedByThem => "deleted-by-member",
        UnmergedKind::Other => "other",
    };
    ConflictFile { path: unmerged.path.clone(), kind: kind.to_owned() }
}

/// The plan as it is to be after the merge: integration's, with the member's section.
async fn plan(
    shared: &Shared,
    head: &str,
    tip: &str,
    member: &str,
    outcome: &mut Outcome,
) -> Result<Vec<(String, Vec<u8>)>, Fault> {
    let path = &shared.layout.plan_file;
    let Some(ours) = read_plan(shared, head).await else { return Ok(Vec::new()) };
    let theirs = read_plan(shared, tip).await;
    let old = match shared.repo.merge_base(head, tip).await? {
        Some(base) => read_plan(shared, &base).await,
        None => None,
    };
    // A plan that the member did not touch is no version of its own.
    if theirs == old {
        return Ok(vec![(path.clone(), ours)]);
    }
    let text = theirs.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    match plan_file::merge(&String::from_utf8_lossy(&ours), &text, member) {
        Merged::Text(merged) => Ok(vec![(path.clone(), merged.into_bytes())]),
        Merged::LostMarkers => {
            shared.log("warn", format!("the plan of {member} has lost its markers"));
            outcome.lost_plans.insert(member.to_owned(), cut(&text, LOST_PLAN_MAX).0.to_owned());
            Ok(vec![(path.clone(), ours)])
        }
    }
}

async fn read_plan(shared: &Shared, commit: &str) -> Option<Vec<u8>> {
    match shared.repo.show(commit, &shared.layout.plan_file, PLAN_MAX).await {
        Ok(bytes) => bytes,
        Err(e) => {
            shared.log("warn", format!("the plan of {commit} cannot be read: {e}"));
            None
        }
    }
}

/// Members whose work the other side of a conflict holds: those whose own changes touch its files, else all.
async fn others(
    shared: &Shared,
    head: &str,
    tip: &str,
    member: &str,
    files: &[ConflictFile],
) -> Result<Vec<String>, Fault> {
    let base = shared.repo.merge_base(head, tip).await?;
    let (mut touching, mut all) = (Vec::new(), Vec::new());
    for seat in &shared.layout.seats {
        if seat.name == member {
            continue;
        }
        let Some(other) = shared.repo.branch_tip(&shared.layout.branch(&seat.name)).await? else { continue };
        if let Some(base) = &base
            && shared.repo.is_ancestor(&other, head).await?
            && !shared.repo.is_ancestor(&other, base).await?
        {
            all.push(seat.name.clone());
            let from = shared.repo.merge_base(base, &other).await?.unwrap_or_else(|| base.clone());
            let changed = shared.repo.differences(&from, &other).await?;
            if changed.iter().any(|d| files.iter().any(|file| is_of(d, &file.path))) {
                touching.push(seat.name.clone());
            }
        }
    }
    Ok(if touching.is_empty() { all } else { touching })
}

fn is_of(difference: &Difference, path: &str) -> bool {
    difference.path == path || difference.old_path.as_deref() == Some(path)
}

/// What a member changed in a round, merges of others' work left out.
async fn changed(shared: &Shared, start: &RoundStart, reply: &Reply) -> Result<Vec<Difference>, Fault> {
    let Some(tip) = &reply.commit else { return Ok(Vec::new()) };
    let Some(base) = shared.repo.merge_base(&start.integration, tip).await? else { return Ok(Vec::new()) };
    Ok(shared.repo.differences(&base, tip).await?)
}

/// What the members agree and disagree on, and what they changed besides the plan when they were to plan only.
pub(super) async fn compare(
    shared: &Shared,
    start: &RoundStart,
    replies: &BTreeMap<String, Reply>,
    conflicts: &[Conflict],
) -> Result<(Disagreement, BTreeMap<String, Vec<String>>), Fault> {
    let (mut votes, mut changes, mut violations) = (Vec::new(), Vec::new(), BTreeMap::new());
    let plan = shared.layout.plan_file.as_str();
    let reviews = match shared.layout.prefix.as_str() {
        "" => REVIEWS.to_owned(),
        prefix => format!("{prefix}/{REVIEWS}"),
    };
    for seat in &shared.layout.seats {
        let Some(reply) = replies.get(&seat.name) else { continue };
        votes.push((seat.name.clone(), reply.consensus, reply.consensus_source));
        // Everybody writes to the plan, each in a place of its own.
        let mut own = changed(shared, start, reply).await?;
        own.retain(|d| d.path != plan);
        if start.round == 1 {
            let code = own.iter().filter(|d| !d.path.starts_with(&reviews)).map(|d| d.path.clone());
            let code: Vec<String> = code.take(VIOLATIONS_MAX).collect();
            if !code.is_empty() {
                shared.log("warn", format!("{} changed {} files in the planning round", seat.name, code.len()));
                violations.insert(seat.name.clone(), code);
            }
        }
        changes.push((seat.name.clone(), own.into_iter().map(shown).collect()));
    }
    let paths: BTreeSet<String> =
        conflicts.iter().flat_map(|conflict| conflict.files.iter().map(|file| file.path.clone())).collect();
    Ok((disagreement::of(start.round, &votes, &changes, &paths), violations))
}

fn shown(difference: Difference) -> Changed {
    let change = match difference.kind {
        ChangeKind::Created => "added",
        ChangeKind::Modified => "modified",
        ChangeKind::Deleted => "deleted",
        ChangeKind::Renamed => "renamed",
    };
    Changed {
        path: difference.path,
        change,
        insertions: difference.insertions,
        deletions: difference.deletions,
        blob: difference.blob,
    }
}
