//! A fan-out whose agents work in worktrees of their own: their work as candidates, judged by the run's contract.

use std::collections::BTreeMap;

use super::{
    candidates::{self, Candidate},
    choose, judge, members,
    members::Places,
    merged, takeover,
};
use crate::{
    git::Repo,
    model::{
        Contract,
        spec::{FanoutNode, Select},
    },
    nodes::{
        Files, NodeCtx, NodeResult, NodeVerdict, Status,
        isolated::{
            self, Cut, Ground, keep, kept,
            land::{MERGE, Merge},
            layout::Kind,
            seats, tidy,
        },
    },
};

/// Key of the document in a node's data.
const SELECTION: &str = "selection";

/// Runs the node's attempt.
pub(super) async fn run(ctx: &NodeCtx, node: &FanoutNode) -> NodeResult {
    let dir = ctx.directory(node.cwd.as_deref());
    let names = node.agents.iter().map(|agent| agent.name.clone()).collect();
    let ground = match isolated::ground(ctx, Kind::Fanout, &dir, node.allow_dirty, names).await {
        Ok(ground) => ground,
        Err(cut) => return cut.result(),
    };
    let missing = members::missing(ctx, node);
    let seats = match seats::open(ctx, &ground, &missing).await {
        Ok(seats) => seats,
        Err(cut) => return cut.result(),
    };
    let own: BTreeMap<_, _> = missing.iter().map(|name| (*name).to_owned()).zip(seats).collect();
    let mut gathered = members::all(ctx, node, Places { shared: dir, own }).await;
    let mut result = std::mem::take(&mut gathered.result);
    if matches!(result.status, Status::Succeeded) {
        match merged::synthesise(ctx, node, &gathered, &mut result).await {
            Ok(text) => result.output = Some(text.unwrap_or_else(|| gathered.sections())),
            Err(status) => result.status = status,
        }
    }
    if !matches!(result.status, Status::Succeeded) {
        tidy::give_up(ctx, &ground).await;
        return result;
    }
    let failed = gathered.members.iter().any(|member| !member.ok);
    if let Err(cut) = contest(ctx, node, &ground, failed, &mut result).await {
        tidy::give_up(ctx, &ground).await;
        result.status = cut.status();
    }
    result
}

/// Candidates, verdict, selection, merge and tidying up, each on the record before the next.
async fn contest(
    ctx: &NodeCtx,
    node: &FanoutNode,
    ground: &Ground,
    failed: bool,
    result: &mut NodeResult,
) -> Result<(), Cut> {
    // Once the branch has the work, some of the agents' branches may be gone.
    let before = kept::<Merge>(ctx, MERGE).filter(|merge| merge.merged).and_then(|_| candidates::known(ctx, ground));
    let mut candidates = match before {
        Some(known) => known,
        None => candidates::collect(ctx, ground).await?,
    };
    let contract = ctx.attempt.contract.as_ref().filter(|_| !ctx.wind_down.is_cancelled());
    let mut stays = None;
    let mut merged = false;
    if let Some(contract) = contract {
        result.unkillable.extend(judge::all(ctx, ground, contract, &mut candidates).await?);
        let selection = choose::choose(&candidates);
        let ranked = choose::ranked(&candidates);
        let best = ranked.first().filter(|best| best.judged && best.verified.is_some());
        match best {
            None => result.status = Status::Failed(selection.reason.clone()),
            Some(best) if best.verified != Some(true) => {
                result.verdict = Some(red(best));
                result.evidence = stored(best.evidence_id.as_deref());
                // Only where an agent failed may another attempt come to something else.
                let why = selection.reason.clone();
                result.status = if failed { Status::Failed(why) } else { Status::Hopeless(why) };
            }
            Some(best) => match node.select {
                Select::All => {
                    green(ground, ctx, best, result).await?;
                }
                Select::Verified if !node.merge => {
                    green(ground, ctx, best, result).await?;
                    stays = Some(best.agent.clone());
                }
                Select::Verified => {
                    keep(ctx, SELECTION, &selection).await?;
                    merged = taken_over(ctx, node, ground, (contract, best), result).await?;
                }
            },
        }
        if node.select == Select::Verified {
            keep(ctx, SELECTION, &selection).await?;
        }
    }
    tidy::put_away(ctx, ground, stays.as_deref(), merged).await?;
    Ok(())
}

/// Evidence that is stored already.
fn stored(id: Option<&str>) -> Vec<(String, Files)> {
    id.map(|id| (id.to_owned(), Vec::new())).into_iter().collect()
}

fn word(best: &Candidate, passed: bool) -> NodeVerdict {
    NodeVerdict {
        passed,
        evidence_id: best.evidence_id.clone(),
        evidence_run: None,
        tree_digest: None,
        digest_cwd: None,
        advisory: false,
        run_contract: true,
        fingerprint: None,
    }
}

fn red(best: &Candidate) -> NodeVerdict {
    NodeVerdict { fingerprint: best.fingerprint.clone(), ..word(best, false) }
}

/// A green word about a candidate in its worktree.
async fn green(ground: &Ground, ctx: &NodeCtx, best: &Candidate, result: &mut NodeResult) -> Result<(), Cut> {
    let mut verdict = word(best, true);
    {
        let _lock = ground.repo.lock().await?;
        seats::worktree(ground, &best.agent, &best.commit).await?;
    }
    if let Some(tree) = tidy::as_committed(ctx, ground, &best.agent).await? {
        verdict.tree_digest = Some(tree.digest().await?);
        verdict.digest_cwd = Some(ground.layout.project(tree.top()).to_string_lossy().into_owned());
    }
    result.verdict = Some(verdict);
    result.evidence = stored(best.evidence_id.as_deref());
    Ok(())
}

/// Merges the winner and says what the run's word is then; true when the branch has it.
async fn taken_over(
    ctx: &NodeCtx,
    node: &FanoutNode,
    ground: &Ground,
    (contract, best): (&Contract, &Candidate),
    result: &mut NodeResult,
) -> Result<bool, Cut> {
    let taken = takeover::take(ctx, ground, contract, best, &node.prompt).await?;
    result.unkillable.extend(taken.unkillable);
    let mut verdict = word(best, true);
    if let Some(evidence) = taken.evidence.filter(|_| taken.merge.merged) {
        verdict.evidence_id = Some(evidence);
    }
    result.evidence = stored(verdict.evidence_id.as_deref());
    if taken.merge.merged {
        result.touched = true;
        match digest(ctx, node, ground, &taken.merge).await? {
            Ok((digest, cwd)) => {
                verdict.tree_digest = Some(digest);
                verdict.digest_cwd = Some(cwd);
            }
            Err(why) => result.unverified = Some(why),
        }
    } else {
        result.unverified = Some(format!("the work that passed is not merged: {}", taken.merge.why()));
    }
    result.verdict = Some(verdict);
    Ok(taken.merge.merged)
}

/// Digest of the user's tree, once it is shown to be what was judged.
async fn digest(
    ctx: &NodeCtx,
    node: &FanoutNode,
    ground: &Ground,
    merge: &Merge,
) -> Result<Result<(String, String), String>, Cut> {
    let dir = ctx.directory(node.cwd.as_deref());
    let repo: &Repo = &ground.repo;
    let (Some(after), Some(head)) = (merge.after.as_deref(), repo.head().await?) else {
        return Ok(Err("the checkout has no commit any more".to_owned()));
    };
    if repo.tree(&head).await? != repo.tree(after).await? {
        return Ok(Err(format!(
            "the work is merged into '{}' as {after}, but {} has {head} checked out",
            merge.branch, ground.layout.top
        )));
    }
    Ok(Ok((repo.digest().await?, dir.to_string_lossy().into_owned())))
}
