//! What each agent of an isolated fan-out has to offer: a commit on its branch, what it changes, its patch.

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::{
    git::Difference,
    model::run::{ArtifactRef, Baseline},
    nodes::{
        NodeCtx, Report,
        isolated::{Cut, Ground, keep, kept, seats},
    },
    sys::tasks,
};

/// Largest patch kept, in bytes.
const PATCH_MAX: usize = 64 << 20;

/// One agent's work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Candidate {
    /// Whose.
    pub(super) agent: String,
    /// Its branch.
    pub(super) branch: String,
    /// The branch's commit.
    pub(super) commit: String,
    /// Files that differ from the base.
    pub(super) changed_files: u64,
    /// Lines added; a binary file counts one.
    pub(super) insertions: u64,
    /// Lines removed.
    pub(super) deletions: u64,
    /// Both together.
    pub(super) changed_lines: u64,
    /// What the contract says; nothing when it was not asked or gave no word.
    pub(super) verified: Option<bool>,
    /// The bundle behind that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) evidence_id: Option<String>,
    /// Required checks that passed, of how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) green: Option<(u64, u64)>,
    /// Tells equal failures apart from others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fingerprint: Option<String>,
    /// Whether it can be chosen.
    pub(super) eligible: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// Its patch to the base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) patch: Option<ArtifactRef>,
    /// Whether the contract was asked.
    #[serde(default)]
    pub(super) judged: bool,
}

impl Candidate {
    /// Key of the document in a node's data.
    pub(super) fn key(agent: &str) -> String {
        format!("candidate:{agent}")
    }
}

/// What earlier attempts found, when they found everybody's.
pub(super) fn known(ctx: &NodeCtx, ground: &Ground) -> Option<Vec<Candidate>> {
    ground.layout.agents.iter().map(|agent| kept(ctx, &Candidate::key(agent))).collect()
}

/// Commits what the agents left and looks at what each of them made. Work that was looked at before is not again.
///
/// # Errors
/// git failed, or the run is being stopped.
pub(super) async fn collect(ctx: &NodeCtx, ground: &Ground) -> Result<Vec<Candidate>, Cut> {
    let layout = &ground.layout;
    let mut candidates = Vec::new();
    for agent in &layout.agents {
        if ctx.cancel.is_cancelled() {
            return Err(Cut::Stopped);
        }
        let branch = layout.branch(agent);
        let before = kept::<Candidate>(ctx, &Candidate::key(agent));
        let tip = ground.repo.branch_tip(&branch).await?;
        if let Some(before) = &before
            && tip.as_ref() == Some(&before.commit)
        {
            candidates.push(before.clone());
            continue;
        }
        let start = before.map_or_else(|| layout.base_commit.clone(), |before| before.commit);
        let candidate = look(ctx, ground, agent, &start).await?;
        keep(ctx, &Candidate::key(agent), &candidate).await?;
        candidates.push(candidate);
    }
    Ok(candidates)
}

/// One agent's work as it is now.
async fn look(ctx: &NodeCtx, ground: &Ground, agent: &str, start: &str) -> Result<Candidate, Cut> {
    let (repo, layout) = (&ground.repo, &ground.layout);
    let tree = {
        let _lock = repo.lock().await?;
        seats::worktree(ground, agent, start).await?
    };
    let commit = {
        let _lock = repo.lock().await?;
        seats::settle(ctx, ground, &tree, agent).await?
    };
    let differences = repo.differences(&layout.base_commit, &commit).await?;
    let sum = |of: fn(&Difference) -> u64| differences.iter().map(of).fold(0, u64::saturating_add);
    let (insertions, deletions) = (sum(|d| d.insertions), sum(|d| d.deletions));
    let eligible = !differences.is_empty();
    let patch = if eligible {
        let base = Baseline { base_sha: Some(layout.base_commit.clone()), in_git: true, ..Baseline::default() };
        store(ctx, agent, tree.patch(&base).await?.bytes).await?
    } else {
        None
    };
    Ok(Candidate {
        agent: agent.to_owned(),
        branch: layout.branch(agent),
        commit,
        changed_files: differences.len() as u64,
        insertions,
        deletions,
        changed_lines: insertions.saturating_add(deletions),
        eligible,
        reason: (!eligible).then(|| "it changed nothing".to_owned()),
        patch,
        ..Candidate::default()
    })
}

/// Stores a patch beside the run, with secrets taken out.
async fn store(ctx: &NodeCtx, agent: &str, bytes: Vec<u8>) -> Result<Option<ArtifactRef>, Cut> {
    if bytes.len() > PATCH_MAX {
        let text = format!("[{agent}] its patch of {} bytes is not kept; the most is {PATCH_MAX}", bytes.len());
        ctx.report.log("warn", text);
        return Ok(None);
    }
    let redactor = ctx.services.redactor.clone();
    let shown = tasks::blocking("redact a patch", move || redactor.bytes(&bytes)).await;
    let Ok(bytes) = shown else { return Ok(None) };
    let (kept, answer) = oneshot::channel();
    ctx.report.send(Report::File { name: format!("{agent}.patch"), bytes, kept }).await;
    answer.await.map(Some).map_err(|_| Cut::Stopped)
}
