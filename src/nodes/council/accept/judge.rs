//! The run's contract on a merge of the council's work with what the user's branch got since: each passed alone, and
//! together they may still break. The branch does not move before this is green.

use std::path::Path;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::Acceptance;
use crate::{
    git::{At, Repo},
    model::{Code, Contract, run::Baseline},
    nodes::council::refusal::Refusal,
    sys::tasks,
    verify::{self, protected},
};

/// Room beyond what the checks themselves may take, in milliseconds.
const MARGIN_MS: u64 = 60_000;

/// Judges the merge that the journal names.
///
/// # Errors
/// `merge_not_verified` when the contract is red or gives no word.
pub(super) async fn judge(this: &Acceptance<'_>, repo: &Repo) -> Result<(), Refusal> {
    let Some(contract) = &this.case.contract else { return Ok(()) };
    let journal = this.journal()?;
    let scratch = this.desk.dispositions.scratch(&this.case.id);
    let tests = match contract.protect_tests && contract.has_command() {
        true => Some(aside(this, repo, &scratch, &journal.before, Work::Tests(contract)).await?),
        false => None,
    };
    let tests = tests.and_then(Done::tests);
    let bundle = aside(this, repo, &scratch, &journal.after, Work::Checks { contract, tests }).await?;
    let Done::Checked(bundle) = bundle else { return Ok(()) };
    if bundle.passed {
        return Ok(());
    }
    let failed: Vec<_> = bundle.results.iter().filter(|r| r.required && !r.passed).collect();
    let list: Vec<String> = failed.iter().map(|r| format!("{}: {}", r.id, r.detail)).collect();
    let text = format!(
        "the council's work and what '{}' got since do not pass the contract together: {}",
        journal.base_branch,
        list.join("; ")
    );
    let ids: Vec<&str> = failed.iter().map(|r| r.id.as_str()).collect();
    Err(Refusal::new(Code::MergeNotVerified, text).with(json!({ "checks": ids, "merge": journal.after })))
}

/// What is done in a temporary worktree.
enum Work<'a> {
    /// Reads the tests that the contract protects.
    Tests(&'a Contract),
    /// Runs the contract.
    Checks { contract: &'a Contract, tests: Option<Box<protected::Snapshot>> },
}

/// What it gives.
enum Done {
    Tests(Box<protected::Snapshot>),
    Checked(Box<crate::model::EvidenceBundle>),
}

impl Done {
    fn tests(self) -> Option<Box<protected::Snapshot>> {
        match self {
            Self::Tests(tests) => Some(tests),
            Self::Checked(_) => None,
        }
    }
}

/// Works in a worktree of a commit that is gone afterwards, with whatever the checks left there.
async fn aside(
    this: &Acceptance<'_>,
    repo: &Repo,
    scratch: &Path,
    commit: &str,
    work: Work<'_>,
) -> Result<Done, Refusal> {
    let tree = {
        let _lock = repo.lock().await?;
        repo.discard(scratch).await?;
        repo.worktree_at(scratch, At::Detached(commit)).await?
    };
    let done = within(this, &tree, work).await;
    let _lock = repo.lock().await?;
    repo.discard(scratch).await?;
    done
}

async fn within(this: &Acceptance<'_>, tree: &Repo, work: Work<'_>) -> Result<Done, Refusal> {
    let prefix = this.case.layout.as_ref().map(|layout| layout.prefix.clone()).unwrap_or_default();
    let (top, project) = (tree.top().to_path_buf(), tree.top().join(prefix));
    let unknown = |why: String| Refusal::new(Code::MergeNotVerified, format!("the contract gave no word: {why}"));
    match work {
        Work::Tests(contract) => {
            let (fs, contract) = (this.desk.git.fs.clone(), contract.clone());
            let taken = tasks::blocking("protect", move || protected::take_in(&*fs, &top, &project, &contract)).await;
            let taken = taken.map_err(|e| unknown(e.to_string()))?;
            Ok(Done::Tests(Box::new(taken.map_err(|e| unknown(e.to_string()))?)))
        }
        Work::Checks { contract, tests } => {
            let base = this.journal()?.before.clone();
            let cancel = CancellationToken::new();
            let limit = contract.worst_case_ms().saturating_add(MARGIN_MS);
            let request = verify::Request {
                contract: contract.clone(),
                cwd: project,
                baseline: Baseline { base_sha: Some(base), in_git: true, ..Baseline::default() },
                protected: tests.map(|tests| *tests),
                run_env: Vec::new(),
                evidence_id: "accept-01".to_owned(),
                run_id: Some(this.case.run_id.to_string()),
                node: Some(this.case.node.to_string()),
                cancel: cancel.clone(),
                progress: None,
                // A repair would be work that no council agreed on.
                fixer: None,
            };
            let mut checks = std::pin::pin!(this.desk.verifier.run(request));
            let verified = tokio::select! {
                verified = &mut checks => verified,
                () = tokio::time::sleep(std::time::Duration::from_millis(limit)) => {
                    cancel.cancel();
                    checks.await
                }
            };
            let verified = verified.map_err(|e| unknown(e.to_string()))?;
            Ok(Done::Checked(Box::new(verified.bundle)))
        }
    }
}
