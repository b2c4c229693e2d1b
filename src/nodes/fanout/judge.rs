//! The run's contract on one candidate after the other, each in its own worktree. What was judged is on the record
//! at once, evidence first, so that a resume judges only the rest.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::{JUDGE_MARGIN_MS, candidates::Candidate};
use crate::{
    git::{At, Repo},
    model::{Contract, EvidenceBundle, run::Baseline},
    nodes::{
        NodeCtx, Report,
        isolated::{Cut, Ground, keep, recorded, seats, tidy},
    },
    sys::tasks,
    verify::{self, protected},
};

/// What one pass of the contract gives.
pub(super) struct Word {
    /// The bundle, which is stored.
    pub(super) bundle: EvidenceBundle,
    /// Processes that could not be ended.
    pub(super) unkillable: Vec<String>,
}

/// What is judged.
pub(super) struct Subject<'a> {
    /// The project in a worktree.
    pub(super) cwd: PathBuf,
    /// Commit that changes are counted from.
    pub(super) base: &'a str,
    /// Tests of that commit.
    pub(super) tests: Option<protected::Snapshot>,
    /// Part of the evidence's id after the node's.
    pub(super) name: &'a str,
}

/// Judges every candidate that changed something and was not judged. Gives the processes that could not be ended.
///
/// # Errors
/// git failed, or the run is being stopped.
pub(super) async fn all(
    ctx: &NodeCtx,
    ground: &Ground,
    contract: &Contract,
    candidates: &mut [Candidate],
) -> Result<Vec<String>, Cut> {
    let mut unkillable = Vec::new();
    if candidates.iter().all(|candidate| candidate.judged || !candidate.eligible) {
        return Ok(unkillable);
    }
    let tests = tests_at(ctx, ground, contract, &ground.layout.base_commit).await?;
    for candidate in candidates.iter_mut().filter(|candidate| candidate.eligible && !candidate.judged) {
        let tree = {
            let _lock = ground.repo.lock().await?;
            seats::worktree(ground, &candidate.agent, &candidate.commit).await?
        };
        let subject = Subject {
            cwd: ground.layout.project(tree.top()),
            base: &ground.layout.base_commit,
            tests: tests.clone(),
            name: &candidate.agent,
        };
        candidate.judged = true;
        match one(ctx, contract, subject).await? {
            Ok(word) => {
                unkillable.extend(word.unkillable);
                let bundle = word.bundle;
                let required = || bundle.results.iter().filter(|r| r.required);
                candidate.verified = Some(bundle.passed);
                candidate.green = Some((required().filter(|r| r.passed).count() as u64, required().count() as u64));
                candidate.fingerprint = (!bundle.passed).then(|| verify::brief::fingerprint(&bundle));
                let failed: Vec<&str> = required().filter(|r| !r.passed).map(|r| r.id.as_str()).collect();
                candidate.reason =
                    (!failed.is_empty()).then(|| format!("required checks failed: {}", failed.join(", ")));
                candidate.evidence_id = Some(bundle.evidence_id);
            }
            Err(why) => candidate.reason = Some(format!("the contract gave no word: {why}")),
        }
        keep(ctx, &Candidate::key(&candidate.agent), candidate).await?;
        recorded(ctx).await?;
    }
    Ok(unkillable)
}

/// One pass over the contract. `Ok(Err(_))` when it gives no word.
///
/// # Errors
/// The run is being stopped.
pub(super) async fn one(ctx: &NodeCtx, contract: &Contract, subject: Subject<'_>) -> Result<Result<Word, String>, Cut> {
    let attempt = &ctx.attempt;
    let evidence_id = format!("{}.{}-v{:02}-{:02}", attempt.node.id, subject.name, attempt.visit, attempt.attempt);
    let (cancel, report, who) = (ctx.cancel.child_token(), ctx.report.clone(), subject.name.to_owned());
    let request = verify::Request {
        contract: contract.clone(),
        cwd: subject.cwd,
        baseline: Baseline { base_sha: Some(subject.base.to_owned()), in_git: true, ..Baseline::default() },
        protected: subject.tests,
        run_env: attempt.run_env.clone(),
        evidence_id: evidence_id.clone(),
        run_id: Some(attempt.run_id.to_string()),
        node: Some(attempt.node.id.to_string()),
        cancel: cancel.clone(),
        progress: Some(Arc::new(move |_, _, line: &str| report.log("info", format!("[{who}] {line}")))),
        // A repair would be work of nobody's.
        fixer: None,
    };
    let limit = contract.worst_case_ms().saturating_add(JUDGE_MARGIN_MS);
    let mut work = std::pin::pin!(ctx.services.verifier.run(request));
    let (verified, timed_out) = tokio::select! {
        verified = &mut work => (verified, false),
        () = tokio::time::sleep(Duration::from_millis(limit)) => {
            cancel.cancel();
            (work.await, true)
        }
    };
    if ctx.cancel.is_cancelled() {
        return Err(Cut::Stopped);
    }
    if timed_out {
        return Ok(Err(format!("checks took more than {limit} ms")));
    }
    let verified = match verified {
        Ok(verified) => verified,
        Err(e) => return Ok(Err(e.to_string())),
    };
    let (kept, answer) = oneshot::channel();
    ctx.report.send(Report::Evidence { id: evidence_id, files: verified.files, kept }).await;
    answer.await.map_err(|_| Cut::Stopped)?;
    Ok(Ok(Word { bundle: verified.bundle, unkillable: verified.unkillable }))
}

/// The protected tests of a commit, read in a temporary worktree of it; `None` when the contract protects none.
///
/// # Errors
/// git failed, or the tests cannot be read.
pub(super) async fn tests_at(
    ctx: &NodeCtx,
    ground: &Ground,
    contract: &Contract,
    commit: &str,
) -> Result<Option<protected::Snapshot>, Cut> {
    if !contract.protect_tests || !contract.has_command() {
        return Ok(None);
    }
    let tree = aside(ctx, ground, "base", commit).await?;
    let (fs, top) = (ctx.services.fs.clone(), tree.top().to_path_buf());
    let (project, contract) = (ground.layout.project(&top), contract.clone());
    let taken = tasks::blocking("protect", move || protected::take_in(&*fs, &top, &project, &contract)).await;
    drop_aside(ctx, ground, "base").await?;
    match taken {
        Ok(Ok(taken)) => Ok(Some(taken)),
        Ok(Err(e)) => Err(Cut::Failed(format!("the tests of {commit} cannot be read: {e}"))),
        Err(e) => Err(Cut::Failed(format!("the tests of {commit} cannot be read: {e}"))),
    }
}

/// A temporary worktree of a commit; one that a crash left goes first.
///
/// # Errors
/// git failed, or something else stands there.
pub(super) async fn aside(ctx: &NodeCtx, ground: &Ground, what: &str, commit: &str) -> Result<Repo, Cut> {
    let path = ground.layout.aside(what);
    let _lock = ground.repo.lock().await?;
    tidy::remove_aside(ctx, &ground.repo, &path, what).await?;
    Ok(ground.repo.worktree_at(&path, At::Detached(commit)).await?)
}

/// Removes it again.
///
/// # Errors
/// git failed.
pub(super) async fn drop_aside(ctx: &NodeCtx, ground: &Ground, what: &str) -> Result<(), Cut> {
    let _lock = ground.repo.lock().await?;
    tidy::remove_aside(ctx, &ground.repo, &ground.layout.aside(what), what).await
}
