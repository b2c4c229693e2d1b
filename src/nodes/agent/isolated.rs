//! An agent in a worktree of its own, whose work comes into the checked-out branch when it is done.

use serde_json::{Value, json};

use super::one;
use crate::{
    git::Landing,
    model::spec::AgentNode,
    nodes::{
        NodeCtx, NodeResult, Report, Status,
        isolated::{
            self, Cut, Ground, keep, kept,
            land::{self, MERGE, Merge},
            layout::Kind,
            recorded, seats, tidy,
        },
        prompt::cut,
    },
};

/// Longest part of the prompt in the message of a merge commit, in bytes.
const SUBJECT_MAX: usize = 72;

/// Runs the node's attempt. An agent that answered is not asked again; only its way into the branch is repeated.
pub(super) async fn run(ctx: &NodeCtx, node: &AgentNode) -> NodeResult {
    let name = ctx.attempt.node.id.to_string();
    let dir = ctx.directory(node.cwd.as_deref());
    let ground = match isolated::ground(ctx, Kind::Agent, &dir, false, vec![name.clone()]).await {
        Ok(ground) => ground,
        Err(cut) => return cut.result(),
    };
    let mut result = match answered(ctx, &name) {
        Some(result) => result,
        None => {
            let seat = match seats::open(ctx, &ground, &[name.as_str()]).await {
                Ok(seats) => seats.into_iter().next(),
                Err(cut) => return cut.result(),
            };
            let Some(seat) = seat else { return NodeResult::failed("there is no worktree") };
            let mut result = one(ctx, node, seat.cwd, seat.env).await;
            // It worked elsewhere.
            result.touched = false;
            if !matches!(result.status, Status::Succeeded) {
                tidy::give_up(ctx, &ground).await;
                return result;
            }
            let mut data = result.data.get("turn").cloned().unwrap_or_else(|| json!({}));
            if let Some(map) = data.as_object_mut() {
                map.insert("ok".to_owned(), json!(true));
            }
            ctx.report.send(Report::Part { key: key(&name), data, text: result.output.clone() }).await;
            result
        }
    };
    match taken_over(ctx, node, &ground, &name).await {
        Ok(merge) if merge.merged => result.touched = true,
        Ok(merge) => result.status = Status::Failed(format!("the work is not merged: {}", merge.why())),
        Err(cut) => {
            tidy::give_up(ctx, &ground).await;
            result.status = cut.status();
        }
    }
    result
}

fn key(name: &str) -> String {
    format!("agent:{name}")
}

/// What the agent said in an earlier attempt of the visit.
fn answered(ctx: &NodeCtx, name: &str) -> Option<NodeResult> {
    let (data, text) = ctx.attempt.parts.get(&key(name))?;
    let ok = data.get("ok").and_then(Value::as_bool) == Some(true);
    ok.then(|| NodeResult { output: text.clone(), ..NodeResult::default() })
}

/// Commits what the agent left, merges it and tidies up.
async fn taken_over(ctx: &NodeCtx, node: &AgentNode, ground: &Ground, name: &str) -> Result<Merge, Cut> {
    let merge = match kept::<Merge>(ctx, MERGE).filter(|merge| merge.merged) {
        Some(done) => done,
        None => {
            let merge = match land::finished(ctx, ground).await? {
                Some(landing) => Merge::done(&landing),
                None => merged(ctx, node, ground, name).await?,
            };
            keep(ctx, MERGE, &merge).await?;
            recorded(ctx).await?;
            merge
        }
    };
    tidy::put_away(ctx, ground, None, merge.merged).await?;
    Ok(merge)
}

async fn merged(ctx: &NodeCtx, node: &AgentNode, ground: &Ground, name: &str) -> Result<Merge, Cut> {
    let commit = {
        let _lock = ground.repo.lock().await?;
        let tree = seats::worktree(ground, name, &ground.layout.base_commit).await?;
        seats::settle(ctx, ground, &tree, name).await?
    };
    let first = node.prompt.trim().lines().next().unwrap_or_default();
    let message = format!("agent: {}\n\nrun {}, node {name}", cut(first, SUBJECT_MAX).0, ctx.attempt.run_id);
    for _ in 0..land::TRIES {
        if ctx.cancel.is_cancelled() {
            return Err(Cut::Stopped);
        }
        let landing: Landing = match land::prepare(ctx, ground, &commit, &message).await? {
            Ok(landing) => landing,
            Err(refused) => return Ok(refused),
        };
        match land::publish(ctx, ground, &landing).await? {
            Ok(()) => return Ok(Merge::done(&landing)),
            Err(Some(refused)) => return Ok(refused),
            Err(None) => {}
        }
    }
    Ok(land::keeps_moving(&ground.layout.base_branch))
}
