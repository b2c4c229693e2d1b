//! The acceptance contract as a node: runs it, repairs between rounds, gives a verdict.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;

use super::{
    NodeCtx, NodeResult, NodeVerdict, Status,
    prompt::fixer,
    turn::{self, Ended, Turn},
};
use crate::{
    engines::SessionOptions,
    model::{
        CheckResult,
        spec::{ContractSource, EngineChoice, VerifierNode},
    },
    sys::ids,
    verify::{self, Boxed, Fixer},
};

/// Room beyond what the checks themselves may take, for digests, evidence and starting processes.
const OVERHEAD_MS: u64 = 300_000;

/// Runs the node's attempt.
pub(super) async fn run(ctx: &NodeCtx, node: &VerifierNode) -> NodeResult {
    let attempt = &ctx.attempt;
    let Some(contract) = attempt.contract.clone() else {
        return NodeResult { output: Some("there is no contract to check".to_owned()), ..NodeResult::default() };
    };
    let cwd = ctx.directory(node.cwd.as_deref());
    let evidence_id = format!("{}-v{:02}-{:02}", attempt.node.id, attempt.visit, attempt.attempt);
    let worst = contract.worst_case_ms().saturating_mul(u64::from(contract.fix_on_failure_rounds) + 1);
    let own = u64::try_from(ctx.timeout().as_millis()).unwrap_or(u64::MAX);
    let limit = own.max(worst.saturating_add(OVERHEAD_MS));
    let cancel = ctx.cancel.child_token();
    let repair = (contract.fix_on_failure_rounds > 0).then(|| {
        Arc::new(Repair { ctx: ctx.clone(), choice: node.choice.clone(), cwd: cwd.clone(), cut: Mutex::default() })
    });
    let report = ctx.report.clone();
    let request = verify::Request {
        contract,
        cwd: cwd.clone(),
        baseline: attempt.baseline.clone(),
        protected: attempt.protected.clone(),
        run_env: attempt.run_env.clone(),
        evidence_id: evidence_id.clone(),
        run_id: Some(attempt.run_id.to_string()),
        node: Some(attempt.node.id.to_string()),
        cancel: cancel.clone(),
        progress: Some(Arc::new(move |_, _, line: &str| report.log("info", line.to_owned()))),
        fixer: repair.clone().map(|r| r as Arc<dyn Fixer>),
    };
    let mut work = std::pin::pin!(ctx.services.verifier.run(request));
    let (verified, timed_out) = tokio::select! {
        verified = &mut work => (verified, false),
        () = tokio::time::sleep(std::time::Duration::from_millis(limit)) => {
            cancel.cancel();
            (work.await, true)
        }
    };
    let cut = repair.map(|r| std::mem::take(&mut *r.cut.lock().unwrap_or_else(PoisonError::into_inner)));
    let cut = cut.unwrap_or_default();
    let base = NodeResult { unkillable: cut.unkillable, touched: cut.touched, ..NodeResult::default() };
    if ctx.cancel.is_cancelled() {
        return NodeResult { status: Status::Stopped, ..base };
    }
    if timed_out {
        return NodeResult { status: Status::Failed(format!("timeout: checks took more than {limit} ms")), ..base };
    }
    let verified = match verified {
        Ok(verified) => verified,
        Err(e) => return NodeResult { status: Status::Failed(e.to_string()), ..base },
    };
    let bundle = &verified.bundle;
    let failed: Vec<&CheckResult> = bundle.results.iter().filter(|r| r.required && !r.passed).collect();
    let required = bundle.results.iter().filter(|r| r.required).count();
    let status = if bundle.passed {
        Status::Succeeded
    } else if let Some(why) = cut.exhausted {
        Status::Exhausted(why)
    } else {
        let list: Vec<String> = failed.iter().map(|r| format!("{}: {}", r.id, r.detail)).collect();
        Status::Failed(format!("{} of {required} required checks failed: {}", failed.len(), list.join("; ")))
    };
    let summary = if bundle.passed {
        format!("all {required} required checks passed")
    } else {
        format!("{} of {required} required checks failed", failed.len())
    };
    let mut unkillable = base.unkillable;
    unkillable.extend(verified.unkillable.iter().cloned());
    NodeResult {
        status,
        output: Some(summary),
        data: [("rounds".to_owned(), json!(bundle.rounds))].into(),
        verdict: Some(NodeVerdict {
            passed: bundle.passed,
            evidence_id: Some(evidence_id.clone()),
            evidence_run: None,
            tree_digest: bundle.tree_digest.clone(),
            digest_cwd: Some(cwd.to_string_lossy().into_owned()),
            advisory: node.advisory,
            run_contract: node.contract == ContractSource::Run,
            fingerprint: (!bundle.passed).then(|| verify::brief::fingerprint(bundle)),
        }),
        evidence: vec![(evidence_id, verified.files)],
        unverified: None,
        steers_seen: Vec::new(),
        unkillable,
        touched: base.touched,
        work_dir: None,
    }
}

/// What the repair turns left behind besides their edits.
#[derive(Debug, Default)]
struct Cut {
    touched: bool,
    exhausted: Option<String>,
    unkillable: Vec<String>,
}

/// Sends a fixer session between two rounds.
struct Repair {
    ctx: NodeCtx,
    choice: EngineChoice,
    cwd: std::path::PathBuf,
    cut: Mutex<Cut>,
}

impl Fixer for Repair {
    fn fix<'a>(&'a self, round: u32, failing: &'a CheckResult) -> Boxed<'a, Result<(), String>> {
        Box::pin(async move {
            let ctx = &self.ctx;
            let attempt = &ctx.attempt;
            let session =
                format!("{}-{}-v{}a{}-fix-{round}", attempt.run_id, attempt.node.id, attempt.visit, attempt.attempt);
            let done = turn::take(
                ctx,
                Turn {
                    session,
                    who: Some(format!("fixer {round}")),
                    choice: self.choice.clone(),
                    cwd: self.cwd.clone(),
                    options: SessionOptions::default(),
                    env: Vec::new(),
                    message: fixer(failing, &attempt.steers, &ids::short()),
                    append_system_prompt: None,
                    max_turns: None,
                    max_budget_usd: None,
                    resume: None,
                    limit: super::ATTEMPT_TIMEOUT,
                },
            )
            .await;
            let mut cut = self.cut.lock().unwrap_or_else(PoisonError::into_inner);
            cut.touched = true;
            cut.unkillable.extend(done.unkillable);
            match done.ended {
                // What the fixer says about its work is not considered; the checks run again either way.
                Ended::Answered(_) => Ok(()),
                Ended::Failed(why) => Err(why),
                Ended::Exhausted(why) => {
                    cut.exhausted = Some(why.clone());
                    Err(why)
                }
                Ended::Stopped => Err("stopped".to_owned()),
            }
        })
    }
}
