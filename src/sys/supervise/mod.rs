//! Process trees that end whole: a re-executed supervisor owns everything an attempt or a check starts.
//!
//! Killing a process group is not killing a tree, because agents' shells start sessions of their own.
//! The hidden subcommand `clawo supervise` is a child subreaper that holds one end of a socket from the
//! server (the lifeline): when that closes, or when it is asked to, it ends everything below it until
//! nothing is left and then says so. One supervisor serves one attempt and may run several programs.
//!
//! ```text
//!  server                         supervisor (one thread)            programs
//!  Supervisor::start  --socket-->  subreaper, waits
//!  spawn              --request+pipe ends-->  posix_spawn  ------->  own process group
//!  Child::wait        <--exited--  reaps everything re-parented
//!  kill_all           --request-->  TERM, grace, (STOP all, KILL)*   none left
//!  died or dropped    --end of file-->  the same without grace, then exits
//! ```
//!
//! A supervisor's "nothing left" is the kernel's word (no child, with everything below adopted), never the result of a scan: a relay,
//! whose links each start the next one and end, hides from scans. What has not ended within `KILL_LIMIT` is named to
//! a server that lives; when the server is dead the supervisor stays until nothing is left.
//!
//! Output never passes through the supervisor: the pipes are made in the server and their far ends travel
//! with the request. A supervisor that is itself killed leaves its tree to the server, which finds it by a
//! variable with a random value (`CLAWO_TREE`) and by the supervisor's session. In that case alone something
//! can get away: a process that cleared its environment, left the session and lost its parents.
//!
//! Elsewhere than on Linux there is no subreaper and no `/proc`: only the process groups of the programs
//! asked for are ended, and a program that leaves its group escapes.

mod client;
mod confine;
mod protocol;
mod subreaper;

use std::{ffi::OsString, path::PathBuf};

pub use client::{Child, Supervisor};
pub use confine::can_confine;
pub use subreaper::supervisor_main;

/// Variable that names the server process which started something.
pub const OWNER_VARIABLE: &str = "CLAWO_OWNER";

/// Variable with a random value shared by everything below one supervisor.
pub const TREE_VARIABLE: &str = "CLAWO_TREE";

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
    /// Where it may write, when it may not everywhere: then everything that its supervisor starts from now on is held
    /// to these paths, and does not start where the kernel cannot hold it; see [`can_confine`].
    pub writable: Option<Vec<PathBuf>>,
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

impl Ended {
    fn from_left(left: Vec<String>) -> Self {
        if left.is_empty() { Self::Empty } else { Self::Left(left) }
    }
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

/// Makes this process adopt what its dead supervisors leave behind, so that it stays below us.
///
/// Called once at the start of a server. Without it (or elsewhere than on Linux) such processes go to
/// the system's first process and are still found by their variables.
pub fn become_subreaper() -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}
