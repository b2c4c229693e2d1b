//! Short helper programs of our own (git, version probes): bounded output, bounded time, no shell.
//!
//! For programs that we ourselves need an answer from. Agents and checks go through `supervise`.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

/// What to run and how far to let it go.
#[derive(Debug, Clone)]
pub struct Command {
    /// Program, by name on PATH or by path.
    pub program: PathBuf,
    /// Arguments.
    pub args: Vec<OsString>,
    /// Variables set on top of the server's own environment.
    pub env: Vec<(OsString, OsString)>,
    /// Variables taken away.
    pub env_remove: Vec<OsString>,
    /// Directory.
    pub cwd: PathBuf,
    /// Bytes given on standard input; `None` is an empty one.
    pub stdin: Option<Vec<u8>>,
    /// Most bytes of standard output kept; more is an error.
    pub max_stdout: usize,
    /// Wall-clock limit; TERM, a second, then KILL.
    pub timeout: Duration,
}

/// How it ended.
#[derive(Debug, Clone)]
pub struct Output {
    /// Exit status; a signal is 128 plus its number.
    pub status: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Last 16 KiB of standard error, invalid UTF-8 replaced.
    pub stderr: String,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not found or not executable.
    #[error("failed to start {}: {source}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Over the limit.
    #[error("failed to finish {} within {limit:?}", program.display())]
    Timeout {
        /// The program.
        program: PathBuf,
        /// The limit.
        limit: Duration,
    },
    /// Too much output.
    #[error("failed to read {}: more than {limit} bytes of output", program.display())]
    TooLong {
        /// The program.
        program: PathBuf,
        /// The limit.
        limit: usize,
    },
    /// Reading or waiting failed.
    #[error("failed to talk to {}: {source}", program.display())]
    Io {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl Command {
    /// `program` in `cwd` with usual limits: 64 MiB of output, 60 s.
    pub fn new(program: impl Into<PathBuf>, cwd: impl AsRef<Path>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            env_remove: Vec::new(),
            cwd: cwd.as_ref().to_path_buf(),
            stdin: None,
            max_stdout: 64 << 20,
            timeout: Duration::from_secs(60),
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I, S>(mut self, args: I) -> Self
    where
        I: IntoIterator<Item = S>,
        S: Into<OsString>,
    {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Runs it to its end. Dropping the future ends the program too.
    pub async fn run(self) -> Result<Output, Error> {
        todo!("helper: sys")
    }
}

/// Finds `program` on PATH (or checks a path); `None` when there is no executable file.
pub fn find(program: &str) -> Option<PathBuf> {
    let _ = program;
    todo!("helper: sys")
}
