//! A program that must end with a given status.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{Context, Outcome, blocking, log_name, process::Ending};
use crate::{
    sys::supervise::{ChildSpec, Exit, Stdin},
    verify::{
        Error,
        paths::{self, Place},
    },
};

/// The fields of the check.
pub(super) struct Asked<'a> {
    /// Names the log.
    pub id: &'a str,
    /// Program.
    pub cmd: &'a str,
    /// Arguments.
    pub args: &'a [String],
    /// Directory below the checks' one.
    pub cwd: Option<&'a str>,
    /// Status that passes.
    pub expect_exit: i32,
    /// Limit in milliseconds.
    pub timeout_ms: u64,
    /// Extra variables.
    pub env: &'a BTreeMap<String, String>,
    /// Variables of the server let through.
    pub env_from: &'a [String],
}

pub(super) async fn run(asked: &Asked<'_>, context: &mut Context<'_>) -> Result<Outcome, Error> {
    let cwd = match directory(asked.cwd, context).await {
        Ok(cwd) => cwd,
        Err(reason) => return Ok(Outcome::failed(reason)),
    };
    let mut env = context.environment(&cwd);
    for name in asked.env_from {
        let Some(value) = context.verifier.full_env.get(name) else {
            let detail = format!("envFrom names {name}, which is not set in the server's environment; set it there");
            return Ok(Outcome::not_run(detail));
        };
        env.insert(name.clone(), value.clone());
    }
    env.extend(asked.env.iter().map(|(k, v)| (k.clone(), v.clone())));
    // A relative program is meant from the check's directory, whatever the supervisor's own one is.
    let named_by_path = asked.cmd.contains('/');
    let program = if named_by_path { cwd.join(asked.cmd) } else { PathBuf::from(asked.cmd) };
    let spec = ChildSpec {
        program,
        args: asked.args.iter().map(OsString::from).collect(),
        env: env.into_iter().map(|(k, v)| (k.into(), v.into())).collect(),
        cwd: cwd.clone(),
        stdin: Stdin::Null,
        writable: None,
    };
    let started = context.verifier.clock.boot();
    let mut ran = context.processes.run(spec, Duration::from_millis(asked.timeout_ms), context.cancel).await?;
    let took = context.verifier.clock.boot().saturating_sub(started);

    let mut outcome = match &ran.ending {
        Ending::NotStarted { reason, not_found } => {
            return Ok(Outcome::not_run(not_started(asked, reason, *not_found)));
        }
        Ending::TimedOut => Outcome {
            timed_out: true,
            ..Outcome::failed(format!("was still running after {} ms and was killed", asked.timeout_ms))
        },
        Ending::Lost(reason) => Outcome::failed(format!("ended in an unknown way: {reason}")),
        Ending::Exited(exit) => exited(*exit, asked.expect_exit),
    };
    if ran.left_behind {
        outcome.detail.push_str("; a process it left behind held its output open and was killed");
    }
    let intro = format!("{} in {}", command_line(asked.cmd, asked.args), cwd.display());
    let outro = format!("{} ({} ms)", outcome.detail, took.as_millis());
    let text = ran.text(&context.verifier.redactor, intro, outro).await;
    if !outcome.passed && !text.tail.is_empty() {
        outcome.tail = Some(text.tail);
    }
    outcome.files.push((log_name(asked.id), text.log.into_bytes()));
    Ok(outcome)
}

impl Context<'_> {
    /// Variables of every program of a check: the cleaned ones, then the run's, then what says where it is.
    pub(super) fn environment(&self, cwd: &Path) -> BTreeMap<String, String> {
        let base = self.verifier.base_env.iter().chain(self.run_env);
        let mut env: BTreeMap<String, String> = base.cloned().collect();
        env.insert("CI".to_owned(), "1".to_owned());
        env.insert("PWD".to_owned(), cwd.to_string_lossy().into_owned());
        env
    }
}

/// The directory to run in, with links resolved, or why it is refused.
async fn directory(cwd: Option<&str>, context: &Context<'_>) -> Result<PathBuf, String> {
    let Some(cwd) = cwd else { return Ok(context.root.clone()) };
    let (fs, root, asked) = (context.verifier.fs.clone(), context.root.clone(), cwd.to_owned());
    match blocking(move || paths::resolve(fs.as_ref(), &root, &asked)).await {
        Some(Ok(Place::Inside(dir))) => Ok(dir),
        Some(Ok(Place::Missing)) => Err(format!("directory '{cwd}' does not exist")),
        Some(Ok(Place::Outside)) => Err(format!("directory '{cwd}' leads outside of where the checks run")),
        Some(Err(error)) => Err(error.to_string()),
        None => Err(format!("directory '{cwd}' could not be looked up")),
    }
}

fn exited(exit: Exit, expect: i32) -> Outcome {
    match exit {
        Exit { code: Some(code), .. } if code == expect => {
            Outcome { exit_code: Some(code), ..Outcome::passed(format!("exit code {code}")) }
        }
        Exit { code: Some(code), .. } => {
            Outcome { exit_code: Some(code), ..Outcome::failed(format!("exit code {code}, expected {expect}")) }
        }
        Exit { code: None, signal: Some(signal) } => {
            Outcome::failed(format!("was ended by signal {signal}, expected exit code {expect}"))
        }
        Exit { code: None, signal: None } => Outcome::failed("ended without an exit code"),
    }
}

fn not_started(asked: &Asked<'_>, reason: &str, not_found: bool) -> String {
    let cmd = asked.cmd;
    if !not_found {
        return format!("could not start '{cmd}': {reason}");
    }
    let hint = if cmd.contains(char::is_whitespace) && asked.args.is_empty() {
        "there is no shell here, so put the program into 'cmd' and every argument into 'args'"
    } else if cmd.contains('/') {
        "no such file; a relative program is looked up from the check's directory"
    } else {
        "not found on PATH; install it, or give its path"
    };
    format!("could not start '{cmd}': {hint}")
}

/// The argument vector as one line; words with anything but plain characters are quoted.
pub(in crate::verify) fn command_line(cmd: &str, args: &[String]) -> String {
    let plain = |w: &str| !w.is_empty() && w.chars().all(|c| c.is_alphanumeric() || "-_./=:@%+,".contains(c));
    let word = |w: &str| if plain(w) { w.to_owned() } else { format!("{w:?}") };
    let words: Vec<String> = std::iter::once(cmd).chain(args.iter().map(String::as_str)).map(word).collect();
    words.join(" ")
}
