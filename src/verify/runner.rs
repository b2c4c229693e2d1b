//! Runs a contract's checks in order, repairs between rounds, and hands what came of it to the bundle.
//!
//! Every check runs, however many are red. A cancelled verification has no result at all. What a fixer
//! says is not looked at.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    Error, Request, Verified, Verifier, bundle,
    checks::{self, Context, Outcome, Processes, Repository, blocking, or_cancelled},
    contract::PROTECTED_ID,
    protected,
};
use crate::model::{Check, CheckResult, Contract};

/// The type word of the check that the runtime adds.
const PROTECTED_KIND: &str = "protected_tests";

/// What the rounds came to.
pub(super) struct Rounds {
    /// Results of the last pass.
    pub results: Vec<CheckResult>,
    /// Files of the last pass.
    pub files: Vec<(String, Vec<u8>)>,
    /// Fixer rounds used.
    pub used: u32,
    /// For the reader of the bundle.
    pub notes: Vec<String>,
    /// Content of the tree when the last pass ended.
    pub digest: Option<String>,
    /// The repository of the last pass.
    pub repo: Repository,
}

pub(super) async fn run(verifier: &Verifier, request: Request) -> Result<Verified, Error> {
    let mut processes = Processes::new(verifier.supervisor.clone());
    let rounds = Box::pin(rounds(verifier, &request, &mut processes)).await;
    // Before anything is answered, also when cancelled: nothing the checks started lives on.
    let unkillable = processes.end().await;
    let rounds = rounds?;
    let cancel = request.cancel.clone();
    let verified = or_cancelled(&cancel, Box::pin(bundle::assemble(verifier, request, rounds, unkillable))).await??;
    if cancel.is_cancelled() { Err(Error::Cancelled) } else { Ok(verified) }
}

async fn rounds(verifier: &Verifier, request: &Request, processes: &mut Processes) -> Result<Rounds, Error> {
    let (fs, cwd) = (verifier.fs.clone(), request.cwd.clone());
    let root = blocking(move || fs.canonicalize(&cwd)).await.ok_or(Error::Thread("resolve the directory"))??;
    let tests = Tests {
        contract: Arc::new(request.contract.clone()),
        start: request.protected.clone().map(Arc::new),
        verifier,
    };
    let mut used = 0;
    let mut told = Told { request, done: 0, all: 0 };
    loop {
        let mut pass = Box::pin(one_pass(verifier, request, &root, &tests, processes, &mut told)).await?;
        pass.used = used;
        let Some(fixer) = request.fixer.as_ref().filter(|_| used < request.contract.fix_on_failure_rounds) else {
            return Ok(pass);
        };
        if first_failure(&pass.results).is_none() {
            return Ok(pass);
        }
        // The checks themselves may have changed test files; the fixer must be told that first.
        if let Some(now) = tests.compare(&pass.repo, request).await?.filter(|r| r.required && !r.passed) {
            pass.results.retain(|r| r.id != PROTECTED_ID);
            pass.results.insert(0, now);
        }
        let Some(failing) = first_failure(&pass.results) else { return Ok(pass) };
        used = used.saturating_add(1);
        pass.used = used;
        told.say(&format!("repair round {used}: {}", failing.id));
        if let Err(reason) = or_cancelled(&request.cancel, fixer.fix(used, failing)).await? {
            pass.notes.push(verifier.redactor.text(&format!("repair round {used} failed: {reason}")));
            return Ok(pass);
        }
    }
}

/// One pass over everything.
async fn one_pass(
    verifier: &Verifier,
    request: &Request,
    root: &std::path::Path,
    tests: &Tests<'_>,
    processes: &mut Processes,
    told: &mut Told<'_>,
) -> Result<Rounds, Error> {
    let contract = &request.contract;
    let mut notes = Vec::new();
    let repo = match or_cancelled(&request.cancel, verifier.git.open(root)).await? {
        Ok(Some(repo)) => Repository::Found(repo),
        Ok(None) => Repository::None,
        Err(error) => Repository::Unreadable(error.to_string()),
    };
    if let Repository::Unreadable(reason) = &repo {
        notes.push(format!("the repository could not be read: {reason}"));
    }
    let before = digest(&repo, request).await?;
    told.begin(contract.checks.len());
    let mut results = Vec::new();
    let mut files = Vec::new();
    results.extend(tests.compare(&repo, request).await?);
    let mut shots = BTreeSet::new();
    for (index, check) in contract.checks.iter().enumerate() {
        let mut context = Context {
            verifier,
            root: root.to_path_buf(),
            repo: &repo,
            baseline: &request.baseline,
            run_env: &request.run_env,
            cancel: &request.cancel,
            processes,
            shots: &mut shots,
        };
        let started = verifier.clock.boot();
        let outcome = Box::pin(checks::run(check, &mut context)).await?;
        let took = verifier.clock.boot().saturating_sub(started);
        let duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        results.push(result(verifier, check, outcome, duration_ms, &mut files));
        told.checked(contract.checks.get(index.saturating_add(1)));
    }
    let after = digest(&repo, request).await?;
    match (&before, &after) {
        (Some(Ok(before)), Some(Ok(after))) if before != after => {
            notes.push("the tree changed while the checks ran; the digest is that of the tree afterwards".to_owned());
            // Checks run the project's own code, which must not rewrite what a later check is about to run.
            if let Some(held) = results.iter_mut().find(|r| r.id == PROTECTED_ID && r.passed)
                && let Some(mut now) = tests.compare(&repo, request).await?.filter(|now| !now.passed)
            {
                now.detail = format!("changed while the checks ran: {}", now.detail);
                *held = now;
            }
        }
        (_, Some(Err(reason))) => notes.push(format!("the tree has no digest: {reason}")),
        _ => {}
    }
    Ok(Rounds { results, files, used: 0, notes, digest: after.and_then(Result::ok), repo })
}

/// Digest of the tree, absent outside git.
async fn digest(repo: &Repository, request: &Request) -> Result<Option<Result<String, String>>, Error> {
    Ok(match repo {
        Repository::Found(repo) => Some(or_cancelled(&request.cancel, repo.digest()).await?.map_err(|e| e.to_string())),
        Repository::None | Repository::Unreadable(_) => None,
    })
}

fn first_failure(results: &[CheckResult]) -> Option<&CheckResult> {
    results.iter().find(|r| r.required && !r.passed)
}

fn result(
    verifier: &Verifier,
    check: &Check,
    outcome: Outcome,
    duration_ms: u64,
    files: &mut Vec<(String, Vec<u8>)>,
) -> CheckResult {
    let artifacts = outcome.files.iter().map(|(name, _)| name.clone()).collect();
    files.extend(outcome.files);
    CheckResult {
        id: check.id.clone(),
        kind: check.spec.type_name().to_owned(),
        required: check.required,
        passed: outcome.passed && !outcome.timed_out && !outcome.skipped,
        duration_ms,
        detail: verifier.redactor.text(&outcome.detail),
        tail: outcome.tail,
        artifacts,
        timed_out: outcome.timed_out,
        exit_code: outcome.exit_code,
        skipped: outcome.skipped,
    }
}

/// The protected tests of the run.
struct Tests<'a> {
    contract: Arc<Contract>,
    start: Option<Arc<protected::Snapshot>>,
    verifier: &'a Verifier,
}

impl Tests<'_> {
    /// How they compare with the start; `None` when there is nothing to say.
    async fn compare(&self, repo: &Repository, request: &Request) -> Result<Option<CheckResult>, Error> {
        let Some(start) = self.start.clone().filter(|_| self.contract.protect_tests) else {
            let could_matter = self.contract.has_command() && matches!(repo, Repository::Found(_));
            return Ok(could_matter.then(|| self.unchecked()));
        };
        let top = match repo {
            Repository::Found(repo) => repo.top().to_path_buf(),
            Repository::None => {
                return Ok(Some(protected_result(true, "the repository the tests were recorded in is gone")));
            }
            Repository::Unreadable(reason) => return Ok(Some(protected_result(true, reason))),
        };
        let (fs, contract, clock) = (self.verifier.fs.clone(), self.contract.clone(), self.verifier.clock.clone());
        let started = clock.boot();
        let work = blocking(move || protected::compare(fs.as_ref(), &top, &contract, &start));
        let compared = or_cancelled(&request.cancel, work).await?;
        let mut result = match compared {
            Some(Ok(result)) => result,
            Some(Err(error)) => protected_result(true, &format!("the test files could not be compared: {error}")),
            None => protected_result(true, "the test files could not be compared"),
        };
        result.duration_ms = u64::try_from(clock.boot().saturating_sub(started).as_millis()).unwrap_or(u64::MAX);
        Ok(Some(result))
    }

    fn unchecked(&self) -> CheckResult {
        let detail = if self.contract.protect_tests {
            "not checked: there is no record of the test files from before the work"
        } else {
            "not checked: the contract has protectTests false"
        };
        CheckResult { skipped: true, ..protected_result(false, detail) }
    }
}

/// A result of the check that the runtime adds, not passed.
fn protected_result(required: bool, detail: &str) -> CheckResult {
    CheckResult {
        id: PROTECTED_ID.to_owned(),
        kind: PROTECTED_KIND.to_owned(),
        required,
        passed: false,
        duration_ms: 0,
        detail: detail.to_owned(),
        tail: None,
        artifacts: Vec::new(),
        timed_out: false,
        exit_code: None,
        skipped: false,
    }
}

/// Tells the caller how far it is. Counts grow over all rounds.
struct Told<'a> {
    request: &'a Request,
    done: u64,
    all: u64,
}

impl Told<'_> {
    fn begin(&mut self, checks: usize) {
        self.all = self.all.saturating_add(checks as u64);
    }

    fn checked(&mut self, next: Option<&Check>) {
        self.done = self.done.saturating_add(1);
        self.say(&next.map_or_else(|| "checks done".to_owned(), |check| format!("next: {}", check.id)));
    }

    fn say(&self, line: &str) {
        if let Some(progress) = &self.request.progress {
            progress(self.done, self.all, line);
        }
    }
}
