//! Process trees that end whole: a re-executed supervisor owns everything an attempt or a check starts.
//!
//! Killing a process group is not killing a tree, because agents' shells start sessions of their own.
//! The hidden subcommand `clawo supervise` is a child subreaper that holds one end of a socket from the
//! server (the lifeline): when that closes, or when it is asked to, it ends everything below it until
//! nothing is left and then says so. One supervisor serves one attempt and may run several programs.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use tokio::net::unix::pipe;

/// How a supervisor is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// This program (it is run as `<program> supervise`).
    pub program: PathBuf,
    /// Put into the environment of everything started, as `CLAWO_OWNER`, so that escapees can be found.
    pub owner: String,
}

/// A program to run under a supervisor.
#[derive(Debug, Clone)]
pub struct ChildSpec {
    /// Program, by path or by name on the PATH of `env`.
    pub program: PathBuf,
    /// Arguments.
    pub args: Vec<OsString>,
    /// The complete environment; nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// Directory.
    pub cwd: PathBuf,
    /// Whether standard input is a pipe; otherwise it is empty.
    pub stdin: Stdin,
}

/// Standard input of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stdin {
    /// `/dev/null`: programs that see a pipe may wait for ever.
    Null,
    /// A pipe we write to.
    Pipe,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// Exit status, absent when a signal ended it.
    pub code: Option<i32>,
    /// Signal number that ended it.
    pub signal: Option<i32>,
}

/// What is left after everything below a supervisor was asked to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Nothing.
    Empty,
    /// These could not be killed (uninterruptible), as `pid name`.
    Left(Vec<String>),
}

/// Why a process could not be run or watched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program could not be started.
    #[error("failed to start {}: {reason}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The system's reason.
        reason: String,
        /// Whether the program does not exist.
        not_found: bool,
    },
    /// The supervisor itself failed or went away.
    #[error("failed to {op} the process supervisor: {reason}")]
    Supervisor {
        /// The step.
        op: &'static str,
        /// Why.
        reason: String,
    },
}

/// A running supervisor. Dropping it closes the lifeline, which ends everything below it.
#[derive(Debug)]
pub struct Supervisor {
    _todo: (),
}

/// A running program.
#[derive(Debug)]
pub struct Child {
    /// Its process id.
    pub pid: u32,
    /// Standard input, when asked for.
    pub stdin: Option<pipe::Sender>,
    /// Standard output; taken by whoever reads it.
    pub stdout: Option<pipe::Receiver>,
    /// Standard error; taken by whoever reads it.
    pub stderr: Option<pipe::Receiver>,
}

impl Supervisor {
    /// Starts a supervisor.
    pub async fn start(options: &Options) -> Result<Self, Error> {
        let _ = options;
        todo!("helper: sys")
    }

    /// Starts a program below it, in a process group of its own.
    pub async fn spawn(&self, spec: ChildSpec) -> Result<Child, Error> {
        let _ = spec;
        todo!("helper: sys")
    }

    /// Ends everything below it: TERM, `grace`, then stop and KILL until nothing is left. The supervisor
    /// stays and can run further programs.
    pub async fn kill_all(&self, grace: Duration) -> Result<Ended, Error> {
        let _ = grace;
        todo!("helper: sys")
    }

    /// Ends everything and the supervisor itself.
    pub async fn end(self, grace: Duration) -> Ended {
        let _ = grace;
        todo!("helper: sys")
    }
}

impl Child {
    /// Waits until the program itself has ended (its descendants may live on). Can be called again.
    pub async fn wait(&mut self) -> Result<Exit, Error> {
        todo!("helper: sys")
    }

    /// Sends a signal to the program's process group.
    pub async fn signal(&self, signal: i32) -> Result<(), Error> {
        let _ = signal;
        todo!("helper: sys")
    }
}

/// Body of the hidden subcommand. Returns the exit status.
pub fn supervisor_main() -> u8 {
    todo!("helper: sys")
}
