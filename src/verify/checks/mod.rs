//! The checks: one file a type, all called through [`run`].
//!
//! A check answers with an [`Outcome`] whatever happens to what it looks at; an error is only for
//! cancellation. Knows nothing of rounds, bundles or evidence files beyond the names it is given.

mod command;
mod diff_policy;
mod file;
mod http;
mod process;
mod screenshot;

use std::{collections::BTreeSet, path::PathBuf};

use tokio_util::sync::CancellationToken;

use super::{Error, Verifier};
use crate::{
    git::Repo,
    model::{Check, CheckSpec, run::Baseline},
    sys::tasks,
};

pub(super) use command::command_line;
pub(super) use process::Processes;

/// How the repository of the checks' directory was found.
pub(super) enum Repository {
    /// It is there.
    Found(Repo),
    /// The directory lies in none.
    None,
    /// It could not be asked, and why.
    Unreadable(String),
}

/// What every check of one pass works with.
pub(super) struct Context<'a> {
    /// The process's means.
    pub verifier: &'a Verifier,
    /// Directory of the checks, links resolved.
    pub root: PathBuf,
    /// Its repository.
    pub repo: &'a Repository,
    /// What the change set is counted from.
    pub baseline: &'a Baseline,
    /// Variables of the run.
    pub run_env: &'a [(String, String)],
    /// Ends everything at once.
    pub cancel: &'a CancellationToken,
    /// What programs run under.
    pub processes: &'a mut Processes,
    /// Names of pictures already taken in this pass.
    pub shots: &'a mut BTreeSet<String>,
}

/// How a check ended.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Whether it held.
    pub passed: bool,
    /// One sentence for a person.
    pub detail: String,
    /// End of the output of a failed check.
    pub tail: Option<String>,
    /// Its limit passed.
    pub timed_out: bool,
    /// Exit status of a command.
    pub exit_code: Option<i32>,
    /// It could not be run at all.
    pub skipped: bool,
    /// Files for the bundle.
    pub files: Vec<(String, Vec<u8>)>,
}

impl Outcome {
    /// It held.
    pub(super) fn passed(detail: impl Into<String>) -> Self {
        Self { passed: true, detail: detail.into(), ..Self::default() }
    }

    /// It did not hold.
    pub(super) fn failed(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), ..Self::default() }
    }

    /// It did not hold because it could not be run.
    pub(super) fn not_run(detail: impl Into<String>) -> Self {
        Self { detail: detail.into(), skipped: true, ..Self::default() }
    }
}

/// Runs one check. Errs only when cancelled.
pub(super) async fn run(check: &Check, context: &mut Context<'_>) -> Result<Outcome, Error> {
    if context.cancel.is_cancelled() {
        return Err(Error::Cancelled);
    }
    match &check.spec {
        CheckSpec::Command { cmd, args, cwd, expect_exit, timeout_ms, env, env_from } => {
            let asked = command::Asked {
                id: &check.id,
                cmd,
                args,
                cwd: cwd.as_deref(),
                expect_exit: *expect_exit,
                timeout_ms: *timeout_ms,
                env,
                env_from,
            };
            Box::pin(command::run(&asked, context)).await
        }
        CheckSpec::Http { url, expect_status, timeout_ms, interval_ms, expect_body } => {
            let asked = http::Asked {
                url,
                expect_status: *expect_status,
                timeout_ms: *timeout_ms,
                interval_ms: *interval_ms,
                expect_body: expect_body.as_deref(),
            };
            Box::pin(http::run(&asked, context)).await
        }
        CheckSpec::Screenshot { url, viewports, browser_bin, timeout_ms } => {
            let asked =
                screenshot::Asked { url, viewports, browser_bin: browser_bin.as_deref(), timeout_ms: *timeout_ms };
            Box::pin(screenshot::run(&asked, context)).await
        }
        CheckSpec::DiffPolicy { max_files, max_lines, forbid_paths, require_paths } => {
            let asked = diff_policy::Asked {
                id: &check.id,
                max_files: *max_files,
                max_lines: *max_lines,
                forbid_paths,
                require_paths,
            };
            Box::pin(diff_policy::run(&asked, context)).await
        }
        CheckSpec::File { path, exists, matches } => {
            Box::pin(file::run(path, *exists, matches.as_deref(), context)).await
        }
    }
}

/// Name of a check's log inside the bundle.
pub(super) fn log_name(id: &str) -> String {
    format!("checks/{id}.log")
}

/// Waits for `future` unless the verification is cancelled first.
pub(super) async fn or_cancelled<F: Future>(cancel: &CancellationToken, future: F) -> Result<F::Output, Error> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err(Error::Cancelled),
        output = future => Ok(output),
    }
}

/// Runs blocking work on a thread where it may block. `None` when it panicked, which is logged there.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tasks::blocking("check", work).await.ok()
}
