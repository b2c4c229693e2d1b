//! The winner's way into the branch: nothing moves that the contract has not passed as it will be.

use super::{
    candidates::Candidate,
    judge::{self, Subject},
};
use crate::{
    git::{LandKind, Landing},
    model::{Code, Contract},
    nodes::{
        NodeCtx,
        isolated::{
            Cut, Ground, keep, kept,
            land::{self, MERGE, Merge},
            recorded,
        },
        prompt::cut,
    },
};

/// Longest part of the task in the message of a merge commit, in bytes.
const SUBJECT_MAX: usize = 72;

/// What became of the winner.
pub(super) struct Taken {
    /// For the record.
    pub(super) merge: Merge,
    /// Evidence of the merge commit, when there is one and it passed.
    pub(super) evidence: Option<String>,
    /// Processes that could not be ended.
    pub(super) unkillable: Vec<String>,
}

/// Merges the winner into the branch that was checked out, or says why not. Done once, however often it is begun.
///
/// # Errors
/// git failed, or the run is being stopped.
pub(super) async fn take(
    ctx: &NodeCtx,
    ground: &Ground,
    contract: &Contract,
    winner: &Candidate,
    task: &str,
) -> Result<Taken, Cut> {
    let mut taken = Taken { merge: Merge::default(), evidence: kept(ctx, EVIDENCE), unkillable: Vec::new() };
    if let Some(done) = kept::<Merge>(ctx, MERGE).filter(|merge| merge.merged) {
        taken.merge = done;
        return Ok(taken);
    }
    taken.merge = match land::finished(ctx, ground).await? {
        Some(landing) => Merge::done(&landing),
        None => {
            taken.evidence = None;
            attempt(ctx, ground, contract, winner, task, &mut taken).await?
        }
    };
    keep(ctx, MERGE, &taken.merge).await?;
    recorded(ctx).await?;
    Ok(taken)
}

/// Key of the id of the merge commit's evidence.
const EVIDENCE: &str = "mergeEvidence";

async fn attempt(
    ctx: &NodeCtx,
    ground: &Ground,
    contract: &Contract,
    winner: &Candidate,
    task: &str,
    taken: &mut Taken,
) -> Result<Merge, Cut> {
    let first = task.trim().lines().next().unwrap_or_default();
    let message =
        format!("fanout: {}\n\nrun {}, work of {}", cut(first, SUBJECT_MAX).0, ctx.attempt.run_id, winner.agent);
    for _ in 0..land::TRIES {
        if ctx.cancel.is_cancelled() {
            return Err(Cut::Stopped);
        }
        let landing = match land::prepare(ctx, ground, &winner.commit, &message).await? {
            Ok(landing) => landing,
            Err(refused) => return Ok(refused),
        };
        if let Some(refused) = again(ctx, ground, contract, winner, &landing, taken).await? {
            return Ok(refused);
        }
        match land::publish(ctx, ground, &landing).await? {
            Ok(()) => return Ok(Merge::done(&landing)),
            Err(Some(refused)) => return Ok(refused),
            // Somebody committed meanwhile, so what was judged is not what would come out.
            Err(None) => {}
        }
    }
    Ok(land::keeps_moving(&ground.layout.base_branch))
}

/// Judges what the branch would become, where that is not what was judged. A refusal when it does not pass.
async fn again(
    ctx: &NodeCtx,
    ground: &Ground,
    contract: &Contract,
    winner: &Candidate,
    landing: &Landing,
    taken: &mut Taken,
) -> Result<Option<Merge>, Cut> {
    let repo = &ground.repo;
    let same = match landing.kind {
        LandKind::FastForward => true,
        LandKind::MergeCommit => false,
        LandKind::None => repo.tree(&landing.after).await? == repo.tree(&winner.commit).await?,
    };
    if same {
        return Ok(None);
    }
    // The user's own commits are no change of the winner's, their tests included.
    let tests = judge::tests_at(ctx, ground, contract, &landing.before).await?;
    let tree = judge::aside(ctx, ground, "check", &landing.after).await?;
    let name = format!("{}.merge", winner.agent);
    let subject = Subject { cwd: ground.layout.project(tree.top()), base: &landing.before, tests, name: &name };
    let word = judge::one(ctx, contract, subject).await?;
    judge::drop_aside(ctx, ground, "check").await?;
    let refused = |why: String| Some(Merge::refused(&landing.branch, Code::MergeNotVerified, why));
    Ok(match word {
        Ok(word) => {
            taken.unkillable.extend(word.unkillable);
            if word.bundle.passed {
                keep(ctx, EVIDENCE, &word.bundle.evidence_id).await?;
                taken.evidence = Some(word.bundle.evidence_id);
                None
            } else {
                refused(format!(
                    "'{}' moved meanwhile and the contract fails on the merge; see evidence {}",
                    landing.branch, word.bundle.evidence_id
                ))
            }
        }
        Err(why) => refused(format!("'{}' moved meanwhile and the merge could not be judged: {why}", landing.branch)),
    })
}
