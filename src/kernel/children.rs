//! Child runs of a subflow node: started, taken up again, waited for, cancelled with their parent.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use super::{
    Inner, query, spec,
    spec::{Origin, SUBFLOW_DEPTH_MAX},
    start,
    validate::inline_cwd,
    verdict,
};
use crate::{
    model::{
        Code, NodeKind, RunId, RunOutcome, RunRecord, RunState, WorkflowSpec, run::ParentRef, spec::SubflowSource,
    },
    nodes::{Boxed, ChildOutcome, Children, Customs, NoChild, NodeCtx, NodeVerdict, Report, Stop},
    sys::tasks,
};

/// Longest single wait for a child; looked at again and again, so its value only bounds one call.
const LOOK: Duration = Duration::from_secs(30);

/// Pause before looking again at a child that another process takes over at this moment.
const OWNED_PAUSE: Duration = Duration::from_millis(50);
/// Most of a child's output handed up, in bytes: far more than a prompt shows.
const OUTPUT_MAX: usize = 1 << 20;

/// Gives nodes their child runs.
#[derive(Debug)]
pub(super) struct KernelChildren {
    kernel: Arc<Inner>,
}

impl KernelChildren {
    pub(super) fn new(kernel: Arc<Inner>) -> Self {
        Self { kernel }
    }

    async fn child(&self, ctx: &NodeCtx) -> Result<ChildOutcome, NoChild> {
        let attempt = &ctx.attempt;
        let child = match &attempt.child {
            Some(child) if !self.is_ours(ctx, child).await? => {
                return Err(format!("run '{child}' exists, but this node did not start it").into());
            }
            Some(child) => {
                // Started by an attempt that a crash cut off; it may be running, interrupted, ended or never made.
                match self.go_on_with(ctx, child).await {
                    Ok(()) => child.clone(),
                    Err(e) if e.code == Code::RunOwned => child.clone(),
                    Err(e) if e.code == Code::RunNotFound => self.begin(ctx).await?,
                    Err(e) => return Err(format!("child run '{child}': {e}").into()),
                }
            }
            None => self.begin(ctx).await?,
        };
        let record = self.follow(ctx, &child).await?;
        let mut outcome = outcome(&child, &record);
        if let Some(output) = &mut outcome.output
            && let Some(file) = output.file.take()
        {
            let (store, run) = (self.kernel.store.clone(), child.clone());
            let read = tasks::blocking("output", move || store.read_artifact(&run, &file.path, 0, OUTPUT_MAX)).await;
            let bytes = read.map_err(|e| e.to_string())?.map_err(|e| format!("the output of '{child}': {e}"))?;
            output.text = String::from_utf8_lossy(&bytes).into_owned();
        }
        Ok(outcome)
    }

    /// Continues a child. A store that fails is asked again, as for any other run: the child is there, and a parent
    /// that gave up would end before it.
    async fn go_on_with(&self, ctx: &NodeCtx, child: &RunId) -> super::Result<()> {
        let mut pause = super::storage::REOPEN_FIRST;
        loop {
            match start::resume(&self.kernel, child, Customs::default()).await {
                Err(e) if e.code == Code::StoreUnavailable && !ctx.cancel.is_cancelled() => {
                    tracing::warn!(%child, error = %e, "a child run cannot be continued yet");
                }
                other => return other,
            }
            tokio::select! {
                () = ctx.cancel.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(super::storage::REOPEN_LAST);
        }
    }

    /// Whether a run is this node's child, or not there at all. Anybody may start a run under any free id.
    async fn is_ours(&self, ctx: &NodeCtx, child: &RunId) -> Result<bool, String> {
        match query::load(&self.kernel, child).await {
            Ok(found) => Ok(found
                .record
                .parent
                .as_ref()
                .is_some_and(|p| p.run_id == ctx.attempt.run_id && p.node.as_ref() == Some(&ctx.attempt.node.id))),
            Err(e) if e.code == Code::RunNotFound => Ok(true),
            Err(e) => Err(e.to_string()),
        }
    }

    /// Starts the child of this attempt.
    async fn begin(&self, ctx: &NodeCtx) -> Result<RunId, NoChild> {
        let attempt = &ctx.attempt;
        let NodeKind::Subflow(node) = &attempt.node.kind else { return Err("not a subflow".to_owned().into()) };
        if let Some(why) = ctx.budget.reached() {
            return Err(NoChild::Exhausted(why));
        }
        let mut name = format!("{}.{}.{}", attempt.run_id, attempt.node.id, attempt.visit);
        if attempt.attempt > 1 {
            name.push_str(&format!(".{}", attempt.attempt));
        }
        let child = RunId::parse(&name).map_err(|e| format!("the child run needs a shorter name: {e}"))?;
        let parent = query::load(&self.kernel, &attempt.run_id).await.map_err(|e| e.to_string())?;
        let depth = parent.record.parent.as_ref().map_or(0, |p| p.depth) + 1;
        if depth > SUBFLOW_DEPTH_MAX {
            return Err(format!("subflows are nested more than {SUBFLOW_DEPTH_MAX} deep").into());
        }
        let spec = self.spec_of(&node.workflow, &parent.record).await?;
        let used = ctx.lasted.now(ctx.services.clock.as_ref());
        let budget = ctx.budget.left(u64::try_from(used.as_millis()).unwrap_or(u64::MAX));
        let spec = WorkflowSpec { budget: crate::nodes::budget::tighter(&spec.budget, &budget), ..spec };
        let protected = match &parent.record.baseline.as_ref().and_then(|b| b.protected.clone()) {
            None => None,
            Some(file) => {
                let (store, run, path) = (self.kernel.store.clone(), attempt.run_id.clone(), file.path.clone());
                let limit = usize::try_from(file.bytes).unwrap_or(usize::MAX);
                let read = tasks::blocking("protected", move || store.read_artifact(&run, &path, 0, limit)).await;
                let bytes =
                    read.map_err(|e| e.to_string())?.map_err(|e| format!("the parent's protected tests: {e}"))?;
                Some(bytes)
            }
        };
        // A child in the parent's directory is judged from where the parent began.
        let shared = spec.cwd == parent.record.cwd || spec.cwd == parent.record.work_dir;
        let lineage = start::Lineage {
            parent: Some(ParentRef { run_id: attempt.run_id.clone(), node: Some(attempt.node.id.clone()), depth }),
            baseline: parent.record.baseline.clone().filter(|_| shared),
            protected: protected.filter(|_| shared),
            ..start::Lineage::default()
        };
        // On the record first, so that whoever goes on with this run finds its child.
        let (recorded, on_record) = tokio::sync::oneshot::channel();
        ctx.report.send(Report::Child { run: child.clone(), recorded }).await;
        if on_record.await.is_err() || ctx.cancel.is_cancelled() {
            return Err("stopped".to_owned().into());
        }
        match start::launch(&self.kernel, child.clone(), spec, lineage, false, None, Customs::default()).await {
            Ok(_) => Ok(child),
            // Made by an attempt whose answer a crash swallowed.
            Err(e) if e.code == Code::RunExists && self.is_ours(ctx, &child).await? => {
                self.go_on_with(ctx, &child).await.map_err(|e| e.to_string())?;
                Ok(child)
            }
            Err(e) => Err(format!("child run '{child}' did not start: {e}").into()),
        }
    }

    /// The spec a child executes.
    async fn spec_of(&self, source: &SubflowSource, parent: &RunRecord) -> Result<WorkflowSpec, String> {
        let read = match source {
            SubflowSource::Inline(value) => {
                spec::read(value, "", Origin::Caller, inline_cwd(value, &parent.work_dir).as_deref(), None)
            }
            SubflowSource::RunId(id) => {
                let run = RunId::parse(id).map_err(|e| e.to_string())?;
                let store = self.kernel.store.clone();
                let loaded = tasks::blocking("spec", move || store.load(&run)).await.map_err(|e| e.to_string())?;
                let stored: Value = loaded.map_err(|e| e.to_string())?.spec;
                spec::read(&stored, "", Origin::Stored, None, None)
            }
        };
        read.spec.ok_or_else(|| read.errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    }

    /// Waits for the child's end; a stopped parent stops its child first.
    async fn follow(&self, ctx: &NodeCtx, child: &RunId) -> Result<Arc<RunRecord>, String> {
        let mut seq = 0;
        loop {
            let found = query::load(&self.kernel, child).await.map_err(|e| e.to_string())?;
            if found.record.state.is_terminal() {
                return Ok(found.record);
            }
            if found.record.state != RunState::AwaitingHuman && !found.live && self.kernel.live.get(child).is_none() {
                // Its executor is gone (the process that ran it ended); this one goes on with it.
                match self.go_on_with(ctx, child).await {
                    Ok(()) => {}
                    Err(e) if e.code == Code::RunOwned => tokio::time::sleep(OWNED_PAUSE).await,
                    Err(e) => return Err(e.to_string()),
                }
            }
            seq = seq.max(found.record.seq);
            tokio::select! {
                () = ctx.cancel.cancelled() => {
                    let for_good = match ctx.stop.get() {
                        Some(Stop::Cancelled | Stop::Budget) => true,
                        // Whoever goes on with this run goes on with its child.
                        Some(Stop::Shutdown | Stop::Superseded) | None => false,
                    };
                    if for_good {
                        let reason = Some(format!("its parent run '{}' was stopped", ctx.attempt.run_id));
                        if let Err(e) = super::control::cancel(&self.kernel, child, reason).await {
                            tracing::warn!(%child, error = %e, "a child run could not be cancelled");
                        }
                        let found = query::load(&self.kernel, child).await.map_err(|e| e.to_string())?;
                        return Ok(found.record);
                    }
                    return Err("stopped".to_owned());
                }
                moved = query::changed(&self.kernel, child, seq, LOOK) => {
                    seq = moved.map_err(|e| e.to_string())?;
                }
            }
        }
    }
}

impl Children for KernelChildren {
    fn run<'a>(&'a self, ctx: &'a NodeCtx) -> Boxed<'a, Result<ChildOutcome, NoChild>> {
        Box::pin(self.child(ctx))
    }
}

/// What a parent makes of its child's end.
fn outcome(child: &RunId, record: &RunRecord) -> ChildOutcome {
    let word = record.outcome.map_or("unverified", RunOutcome::as_str);
    let mut summary = format!("child run '{child}' ended {} and {word}", record.state.as_str());
    if let Some(reason) = &record.outcome_reason {
        summary.push_str(&format!(": {reason}"));
    }
    let judged = verdict::shown(record).filter(|_| record.outcome != Some(RunOutcome::Unverified));
    let verdict = judged.map(|v| NodeVerdict {
        passed: record.outcome == Some(RunOutcome::Verified),
        evidence_id: v.evidence_id.clone(),
        evidence_run: v.evidence_run.clone().or_else(|| Some(child.clone())),
        tree_digest: v.tree_digest.clone(),
        digest_cwd: v.digest_cwd.clone(),
        advisory: false,
        run_contract: false,
        fingerprint: record.red.get(v.node.as_str()).map(|streak| streak.fingerprint.clone()),
    });
    ChildOutcome {
        run: child.clone(),
        summary,
        completed: record.state == RunState::Completed,
        verdict,
        spend: record.spend.clone(),
        output: record.nodes.iter().rev().find_map(|n| n.output.clone()),
    }
}
