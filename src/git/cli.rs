//! Calling the git program: its fixed environment, the configuration it is held to, and its answers.
//!
//! Never a shell string, never a prompt, a pager or a hook. Knows no subcommand's meaning.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{Error, Git, Result};
use crate::sys::command::{Command, Output};

/// Name in commits of ours; the user's identity is neither read nor written.
pub(super) const NAME: &str = "clawo runtime";
/// Address in commits of ours.
pub(super) const EMAIL: &str = "runtime@clawo.invalid";

/// Longest a call may take: hashing a big working tree is slow, hanging for ever is a fault.
const TIMEOUT: Duration = Duration::from_secs(600);
/// The same for a call that only reads or moves refs and commits.
pub(super) const QUICK: Duration = Duration::from_secs(30);
/// The same for a call that writes or removes the files of a whole tree.
pub(super) const FILES: Duration = Duration::from_secs(300);

/// Settings that would run programs of the repository's choosing, write more than was asked, or let a
/// repository hide what changed in it.
const CONFIG: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.splitIndex=false",
    "core.fileMode=true",
    "core.symlinks=true",
    "core.trustctime=true",
    "core.checkStat=default",
    "core.ignoreStat=false",
    "core.safecrlf=false",
    "core.protectNTFS=false",
    "core.protectHFS=false",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
];

/// Of these, the ones that also hold where a tree is to be seen the way the user's own git sees it.
const LEAST: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.safecrlf=false",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "rerere.enabled=false",
];

/// Settings that send objects to disk without waiting for its cache; [`SYNCED`] afterwards waits for all.
pub(super) const SENT: [&str; 4] = ["-c", "core.fsync=objects", "-c", "core.fsyncMethod=writeout-only"];
/// Settings with which a ref, and what was sent before it, is on disk when the call ends.
pub(super) const SYNCED: [&str; 4] = ["-c", "core.fsync=reference", "-c", "core.fsyncMethod=fsync"];

/// Variables a caller's shell or an outer git may have left that point a call elsewhere.
const CLEARED: &[&str] = &[
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INDEX_VERSION",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_PREFIX",
    "GIT_CONFIG",
    "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT",
    "GIT_EXTERNAL_DIFF",
    "GIT_DIFF_OPTS",
    "GIT_LITERAL_PATHSPECS",
    "GIT_GLOB_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
    "GIT_ATTR_SOURCE",
    "GIT_QUARANTINE_PATH",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_GRAFT_FILE",
    "GIT_TRACE",
    "GIT_AUTHOR_DATE",
    "GIT_COMMITTER_DATE",
];

/// Variables every call has.
const SET: &[(&str, &str)] = &[
    ("LC_ALL", "C"),
    ("LANGUAGE", ""),
    ("GIT_PAGER", "cat"),
    ("GIT_EDITOR", "true"),
    ("GIT_SEQUENCE_EDITOR", "true"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", "false"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_AUTHOR_NAME", NAME),
    ("GIT_AUTHOR_EMAIL", EMAIL),
    ("GIT_COMMITTER_NAME", NAME),
    ("GIT_COMMITTER_EMAIL", EMAIL),
];

/// One call of the git program.
#[derive(Debug)]
pub(super) struct Call {
    command: Command,
    what: &'static str,
}

impl Git {
    /// A call in `cwd`; `what` is the verb phrase its failure is reported with.
    pub(super) fn call(&self, cwd: &Path, what: &'static str) -> Call {
        self.held_to(CONFIG, cwd, what)
    }

    /// The same with the user's own notion of what a change is (file modes, links, times). For what is
    /// compared with or written to a checked-out tree.
    pub(super) fn users_call(&self, cwd: &Path, what: &'static str) -> Call {
        self.held_to(LEAST, cwd, what)
    }

    fn held_to(&self, settings: &[&str], cwd: &Path, what: &'static str) -> Call {
        let mut command = Command::new(&self.program, cwd);
        command.timeout = TIMEOUT;
        command.env = SET.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))).collect();
        command.env_remove = CLEARED.iter().map(OsString::from).collect();
        command.args = settings.iter().flat_map(|setting| ["-c".into(), OsString::from(setting)]).collect();
        Call { command, what }
    }
}

impl Call {
    /// Adds arguments.
    pub(super) fn args<I, S>(mut self, args: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<OsString>,
    {
        self.command = self.command.args(args);
        self
    }

    /// Adds one argument.
    pub(super) fn arg(self, arg: impl Into<OsString>) -> Self {
        self.args([arg.into()])
    }

    /// Sets a variable.
    pub(super) fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.command.env_remove.retain(|removed| removed != name);
        self.command = self.command.env(name, value);
        self
    }

    /// Sets several variables.
    pub(super) fn envs(self, env: &[(&'static str, OsString)]) -> Self {
        env.iter().fold(self, |call, (name, value)| call.env(name, value))
    }

    /// Sets how long it may take.
    pub(super) fn limit(mut self, limit: Duration) -> Self {
        self.command.timeout = limit;
        self
    }

    /// Gives bytes on standard input.
    pub(super) fn stdin(mut self, bytes: Vec<u8>) -> Self {
        self.command.stdin = Some(bytes);
        self
    }

    /// Allows that many bytes of output.
    pub(super) fn max_stdout(mut self, bytes: usize) -> Self {
        self.command.max_stdout = bytes;
        self
    }

    /// Runs it; any exit status is an answer.
    pub(super) async fn output(self) -> Result<Output> {
        Ok(self.command.run().await?)
    }

    /// Runs it; a status other than 0 is a failure.
    pub(super) async fn run(self) -> Result<Vec<u8>> {
        let (what, repo) = (self.what, self.command.cwd.clone());
        let output = self.output().await?;
        if output.status == 0 { Ok(output.stdout) } else { Err(failed(what, repo, &output)) }
    }

    /// Runs it and reads one word, such as an object id.
    pub(super) async fn word(self) -> Result<String> {
        let what = self.what;
        let word = text(what, self.run().await?)?.trim().to_owned();
        if word.is_empty() {
            return Err(Error::Answer { what, reason: "it is empty".to_owned() });
        }
        Ok(word)
    }
}

/// The failure of a call that ended with a status other than 0.
pub(super) fn failed(what: &'static str, repo: PathBuf, output: &Output) -> Error {
    let stderr = match output.stderr.trim() {
        "" => format!("git ended with status {} and no message", output.status),
        said => said.to_owned(),
    };
    Error::Failed { what, repo, stderr }
}

/// Bytes of an answer that must be text.
pub(super) fn text(what: &'static str, bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|e| Error::Answer { what, reason: e.to_string() })
}

/// NUL-ended records; nothing after the last NUL.
pub(super) fn records(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|b| *b == 0).filter(|record| !record.is_empty())
}
