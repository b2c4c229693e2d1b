//! Several agents on one repository, in rounds, each in a worktree of its own.
//!
//! The runtime merges after every round; members vote, and votes only end the talk. Nothing here writes the user's
//! branch, index or files.

pub mod accept;
mod briefing;
pub mod case;
pub mod charter;
mod collect;
pub mod data;
pub mod disagreement;
pub mod disposition;
mod ending;
mod fault;
pub mod ground;
mod history;
mod kept;
mod member;
mod merging;
mod place;
pub mod plan_file;
pub mod preflight;
pub mod prompt;
mod quote;
pub mod refusal;
pub mod reject;
mod resume;
pub mod review;
mod rounds;
mod session;
mod shared;
mod sync;
pub mod team;
pub mod transcript;
pub mod view;
pub mod votes;

use std::{collections::BTreeSet, sync::Arc};

use super::{NodeCtx, NodeResult, Report, isolated::guard};
use crate::model::spec::CouncilNode;
use data::{Ended, Key, Layout, Status};
use fault::{Fault, recorded};
use kept::Kept;
pub use preflight::{preflight, warnings};
use rounds::Rounds;
use shared::{Shared, files};

/// The user's own charter, below the home.
const CHARTER: &str = "prompts/council-charter.md";
/// Largest charter of the user's own, in bytes.
const CHARTER_MAX: usize = 256 << 10;

/// Runs the node's attempt.
pub(super) async fn run(ctx: &NodeCtx, node: &CouncilNode) -> NodeResult {
    let rounds = match open(ctx, node).await {
        Ok(rounds) => rounds,
        Err(fault) => return refused(ctx, fault).await,
    };
    follow(rounds).await
}

/// Follows the rounds within the attempt's limit.
async fn follow(mut rounds: Rounds) -> NodeResult {
    // An attempt that ended well and died before its end was on the record ends the same way again.
    if let Some(status) = rounds.kept.ended.as_ref().map(|ended| ended.status).filter(|status| ending::is_good(*status))
    {
        return rounds.finish(Ok(status), false).await;
    }
    let (cancel, limit) = (rounds.shared.cancel.clone(), rounds.shared.limit());
    let ctx = rounds.shared.ctx.clone();
    rounds.forgiven = if rounds.kept.ended.is_some() { rounds.kept.silent() } else { 0 };
    rounds.kept.reopen(&ctx).await;
    let (end, late) = {
        let mut work = std::pin::pin!(rounds.run());
        tokio::select! {
            end = &mut work => (end, false),
            () = tokio::time::sleep(limit) => {
                cancel.cancel();
                (work.await, true)
            }
        }
    };
    rounds.finish(end, late).await
}

/// Finds or chooses where the council lies.
async fn open(ctx: &NodeCtx, node: &CouncilNode) -> Result<Rounds, Fault> {
    let mut kept = Kept::of(ctx.attempt.visit, &ctx.attempt.parts);
    let again = kept.former.is_some();
    let continued = ctx.attempt.council.continued.as_deref();
    let former: Option<Layout> = kept.former.as_ref().map(|(_, layout)| layout).or(continued).cloned();
    if let (Some(id), None, None) = (&node.continue_from, &former, &kept.layout) {
        return Err(Fault::hopeless(
            crate::model::Code::RunNotFound.as_str(),
            format!("continueFrom: there is no council '{id}'; list the runs to find its id"),
        ));
    }
    let (layout, repo) = match &kept.layout {
        Some(layout) => (layout.clone(), place::open(ctx, layout).await?),
        None => {
            let (layout, repo) = place::choose(ctx, node, former.as_ref(), again).await?;
            for warning in &layout.warnings {
                ctx.report.log("warn", warning.clone());
            }
            kept.write_layout(ctx, &layout).await;
            // Before anything is made, so that whoever goes on knows what is ours.
            recorded(ctx).await?;
            (layout, repo)
        }
    };
    let hooks = guard::folder(&ctx.services.config.home);
    let charter = prepare(ctx).await.map_err(|why| Fault::failed("internal", why))?;
    let shared = Shared {
        ctx: ctx.clone(),
        node: node.clone(),
        layout,
        former,
        repo,
        cancel: ctx.cancel.child_token(),
        charter,
        hooks,
    };
    Ok(Rounds { shared: Arc::new(shared), kept, steers: BTreeSet::new(), unkillable: Vec::new(), forgiven: 0 })
}

/// Writes the hooks and reads the user's own charter.
async fn prepare(ctx: &NodeCtx) -> Result<Option<String>, String> {
    let (fs, home) = (ctx.services.fs.clone(), ctx.services.config.home.clone());
    files("council", move || {
        guard::write(fs.as_ref(), &guard::folder(&home))?;
        match fs.read_range(&home.join(CHARTER), 0, CHARTER_MAX) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned()).filter(|text| !text.trim().is_empty())),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    })
    .await
}

/// The end of an attempt that could not begin.
async fn refused(ctx: &NodeCtx, fault: Fault) -> NodeResult {
    if let Fault::Failed { code, text, .. } = &fault {
        let ended = Ended {
            status: Status::Error,
            error_code: Some((*code).to_owned()),
            error: Some(text.clone()),
            at: ctx.now(),
            ..Ended::default()
        };
        let data = serde_json::to_value(ended).unwrap_or_default();
        ctx.report.send(Report::Part { key: Key::Ended.of(ctx.attempt.visit), data, text: None }).await;
    }
    NodeResult { status: fault.status(), ..NodeResult::default() }
}
