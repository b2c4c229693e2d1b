//! `verify_run`: runs a contract once in a directory.
//!
//! The check runs in the background of the process; a call waits for it as long as its host allows and
//! otherwise answers with the label under which the next call picks it up. Cancelling a call that
//! waits kills the check.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    CallContext, Detach, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
    args::{invalid, run_id},
    registry::{About, Length},
    shapes::{ContractShape, Free},
    start_args::absolute,
    workflow_evidence::{self, nothing_for},
};
use crate::{
    kernel::{Error, Evidence, VerifyRequest},
    model::{Code, RunId, Time},
    sys,
};

/// How long a call without a progress token waits: below the minute at which hosts cut silent calls.
const QUIET_WAIT: Duration = Duration::from_secs(50);
/// Most checks known at once; more are refused so that a loop of calls cannot fill the machine.
const CHECKS_MAX: usize = 64;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Absolute directory to check. Required, except to pick up a check by its label.
    cwd: Option<String>,
    /// The checks to run. Required, except to pick up a check by its label.
    #[schemars(with = "Option<ContractShape>")]
    contract: Option<Value>,
    /// Commit that changes are counted from. Default: only untracked files count as changes.
    #[schemars(length(min = 1, max = 256))]
    base_sha: Option<String>,
    /// Name to store the evidence under, and to pick up a check that still runs.
    label: Option<String>,
}

/// The handle of a check that still runs.
#[derive(Debug, Serialize)]
struct Handle {
    running: bool,
    label: String,
}

/// What an answer promises: a handle, or the bundle as workflow_evidence shows it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The checks go on in the background; call verify_run with this label again.
    running: Option<bool>,
    /// Name the evidence is stored under.
    label: Option<String>,
    /// Whether every required check holds.
    passed: Option<bool>,
    /// Names the bundle.
    evidence_id: Option<String>,
    /// One entry a check: id, type, required, passed, detail, tail.
    results: Option<Vec<Free>>,
    /// Files that changed.
    changed_files: Option<Vec<String>>,
    /// Names of the files beside the bundle.
    files: Option<Vec<String>>,
    /// What was dropped from the contract or looks odd.
    warnings: Option<Vec<Free>>,
}

type Ended = Result<Evidence, Error>;

#[derive(Debug, Clone, Default)]
struct Progress {
    done: u64,
    total: u64,
    text: String,
}

/// One check of this process.
#[derive(Debug)]
pub struct Entry {
    /// Name it is picked up by.
    pub label: String,
    /// Kills it.
    pub cancel: CancellationToken,
    /// When it was started.
    pub created: Time,
    /// Where the label goes once the evidence must be kept although nobody asked for it.
    late: Option<Arc<OnceLock<RunId>>>,
    cwd: String,
    contract: Value,
    progress: watch::Sender<Progress>,
    ended: watch::Receiver<Option<Ended>>,
}

impl Entry {
    /// How it ended, once it has.
    pub fn outcome(&self) -> Option<Outcome> {
        let ended = self.ended.borrow().clone()?;
        Some(ended.and_then(|evidence| finish(evidence, Some(&self.label))))
    }
}

/// Checks of this process by label. Cheap to clone.
#[derive(Clone, Default)]
pub struct Checks {
    entries: Arc<Mutex<BTreeMap<String, Arc<Entry>>>>,
}

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checks").finish_non_exhaustive()
    }
}

impl Checks {
    /// The check called `label`, running or not yet picked up.
    pub fn get(&self, label: &str) -> Option<Arc<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).get(label).cloned()
    }

    /// Forgets a check that ended; its evidence is in the store.
    fn forget(&self, entry: &Arc<Entry>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.get(&entry.label).is_some_and(|e| Arc::ptr_eq(e, entry)) {
            entries.remove(&entry.label);
        }
    }

    /// Adds a check. Ended ones make room; a running one of the same label is [`Code::Busy`].
    fn add(&self, entry: &Arc<Entry>) -> Result<(), Error> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.get(&entry.label).is_some_and(|e| e.ended.borrow().is_none()) {
            return Err(Error::new(
                Code::Busy,
                format!(
                    "another check runs under the label '{}'; call verify_run with only that label, or choose another",
                    entry.label
                ),
            ));
        }
        if entries.len() >= CHECKS_MAX {
            entries.retain(|_, e| e.ended.borrow().is_none());
        }
        if entries.len() >= CHECKS_MAX {
            return Err(Error::new(Code::Busy, format!("{CHECKS_MAX} checks run already")));
        }
        entries.insert(entry.label.clone(), Arc::clone(entry));
        Ok(())
    }

    /// Kills every check; for the end of the process.
    pub fn cancel_all(&self) {
        for entry in self.entries.lock().unwrap_or_else(PoisonError::into_inner).values() {
            entry.cancel.cancel();
        }
    }
}

/// The tool.
pub fn tool(checks: Checks) -> Tool {
    let about = About {
        name: "verify_run",
        title: "Check a directory",
        description: "Runs an acceptance contract once in a directory and returns the evidence: the server runs the commands, \
requests, captures and file checks itself and reports each result; use it to check any work, also work not done by a \
workflow. Nothing is repaired and no run is made. With label the evidence is stored under that name. When the checks \
take longer than the call may, it answers running: true with a label; call it again with only that label. Cancelling \
the call kills the running check. Next: workflow_evidence with the label as runId for logs and files.",
        toolset: Toolset::Verify,
        hints: Hints::WORK,
        length: Length::Works,
        pairs: &["workflow_evidence"],
    };
    Tool::new::<Args, Output, _, _>(about, move |kernel, args, context| run(checks.clone(), kernel, args, context))
}

async fn run(checks: Checks, kernel: KernelHandle, args: Args, context: CallContext) -> Outcome {
    if let Some(label) = &args.label {
        run_id("label", label)?;
    }
    let entry = match (args.cwd, args.contract, args.label) {
        (None, None, Some(label)) => match checks.get(&label) {
            Some(entry) => entry,
            None => return stored(&kernel, &label).await,
        },
        (None, _, _) => return Err(invalid("cwd", "is required")),
        (Some(_), None, _) => return Err(invalid("contract", "is required")),
        (Some(cwd), Some(contract), label) => {
            let path = absolute("cwd", &cwd)?;
            let joined = label
                .as_deref()
                .and_then(|l| checks.get(l))
                .filter(|e| e.ended.borrow().is_none() && e.cwd == cwd && e.contract == contract);
            match joined {
                Some(entry) => entry,
                None => {
                    // Evidence nobody asked to keep is kept only when the call has to answer before the end.
                    let keep = label.is_some() || context.detach == Detach::AtOnce;
                    let label = label.unwrap_or_else(|| format!("verify-{}", sys::ids::short()));
                    let kernel = kernel.get().await?;
                    let request = VerifyRequest {
                        cwd: path,
                        contract: contract.clone(),
                        base_sha: args.base_sha,
                        label: keep.then(|| label.clone()),
                        late_label: (!keep).then(Arc::default),
                        cancel: CancellationToken::new(),
                        progress: None,
                    };
                    begin(&checks, &kernel, request, Names { label, cwd, contract })?
                }
            }
        }
    };
    follow(&checks, &entry, &context).await
}

struct Names {
    label: String,
    cwd: String,
    contract: Value,
}

/// Starts the check in the background.
fn begin(
    checks: &Checks,
    kernel: &crate::kernel::Kernel,
    mut request: VerifyRequest,
    names: Names,
) -> Result<Arc<Entry>, Error> {
    let (ended_tx, ended) = watch::channel(None);
    let progress = watch::Sender::new(Progress::default());
    let told = progress.clone();
    request.progress = Some(Arc::new(move |done, total, text: &str| {
        told.send_replace(Progress { done, total, text: text.to_owned() });
    }));
    let entry = Arc::new(Entry {
        label: names.label,
        cancel: request.cancel.clone(),
        late: request.late_label.clone(),
        created: sys::Clock::wall(&sys::SystemClock),
        cwd: names.cwd,
        contract: names.contract,
        progress,
        ended,
    });
    checks.add(&entry)?;
    let kernel = kernel.clone();
    sys::tasks::spawn("verify_run", async move {
        let result = kernel.verify(request).await;
        // Nobody listening is fine: the evidence is stored.
        ended_tx.send_replace(Some(result));
    });
    Ok(entry)
}

/// Waits for the end, for the caller's patience, or for the caller to give up.
async fn follow(checks: &Checks, entry: &Arc<Entry>, context: &CallContext) -> Outcome {
    if context.detach == Detach::AtOnce {
        return running(entry);
    }
    let mut progress = entry.progress.subscribe();
    let mut ended = entry.ended.clone();
    context.report(0, 1, "the checks run");
    let patience = async {
        match context.progress {
            Some(_) => std::future::pending().await,
            None => tokio::time::sleep(QUIET_WAIT).await,
        }
    };
    tokio::pin!(patience);
    loop {
        tokio::select! {
            result = wait_end(&mut ended) => {
                checks.forget(entry);
                return match result {
                    Some(result) => result.and_then(|evidence| finish(evidence, Some(&entry.label))),
                    None => Err(Error::new(Code::Internal, "the check ended without a result")),
                };
            }
            () = context.cancel.cancelled() => {
                entry.cancel.cancel();
                // The tree is killed by the check itself; wait until that is so, within reason.
                let _ = tokio::time::timeout(Duration::from_secs(10), wait_end(&mut entry.ended.clone())).await;
                checks.forget(entry);
                return Err(Error::new(Code::Cancelled, "the check was cancelled"));
            }
            () = &mut patience => return running(entry),
            Ok(()) = progress.changed() => {
                let now = progress.borrow_and_update().clone();
                context.report(now.done, now.total, &now.text);
            }
        }
    }
}

async fn wait_end(ended: &mut watch::Receiver<Option<Ended>>) -> Option<Ended> {
    ended.wait_for(Option::is_some).await.ok().and_then(|r| r.clone())
}

fn running(entry: &Entry) -> Outcome {
    if let (Some(late), Ok(label)) = (&entry.late, RunId::parse(&entry.label)) {
        // Set before: an earlier call already had to answer.
        let _ = late.set(label);
    }
    let text = format!("The checks still run. Next: verify_run {{\"label\": \"{}\"}}.", entry.label);
    ToolResult::new(&Handle { running: true, label: entry.label.clone() }, text)
}

/// A check of an earlier call or process, from the store.
async fn stored(kernel: &KernelHandle, label: &str) -> Outcome {
    match kernel.get().await?.evidence(label, None).await {
        Ok(evidence) => finish(evidence, Some(label)),
        Err(e) if matches!(e.code, Code::RunNotFound | Code::NoEvidence) => Err(nothing_for(label)),
        Err(e) => Err(e),
    }
}

fn finish(evidence: Evidence, label: Option<&str>) -> Outcome {
    let stored = evidence.path.is_some();
    let name = evidence.bundle.run_id.clone().or_else(|| label.map(str::to_owned)).unwrap_or_default();
    let result = workflow_evidence::answer(evidence, &name, None)?;
    Ok(if stored { result.with("label", name) } else { result })
}
