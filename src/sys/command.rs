//! Short helper programs of our own (git, version probes): bounded output, bounded time, no shell.
//!
//! For programs that we ourselves need an answer from. Agents and checks go through `supervise`.

use std::{
    ffi::{OsStr, OsString},
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    time::{sleep, timeout},
};

use super::{executable, tasks, text::Tail};

/// Time between TERM and KILL: enough for git to take its lock files away.
const GRACE: Duration = Duration::from_secs(1);

/// How long pipes that something else still holds are read after the program ended.
const DRAIN: Duration = Duration::from_secs(2);

/// How the names of variables begin that hold descriptions of engines, with the credentials of others in them. No
/// helper needs one, and git runs hooks.
const PRIVATE: &str = "CLAWO_CUSTOM_ENGINE_";

/// Standard error kept.
const STDERR_KEPT: usize = 16 << 10;

/// Pause between looks at a process group that is ending.
const LOOK_EVERY: Duration = Duration::from_millis(10);

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
    ///
    /// What it leaves running in its process group is killed once its output has been read for 2 s more.
    pub async fn run(self) -> Result<Output, Error> {
        let Self { program, stdin, max_stdout, timeout: limit, .. } = &self;
        let io = |source: io::Error| Error::Io { program: program.clone(), source };
        let running = self.start().map_err(|source| Error::Start { program: program.clone(), source })?;
        let mut guard = Guard(Some(running));
        let mut stdout = Vec::new();
        let mut stderr = Tail::new(STDERR_KEPT);
        let Some(running) = &mut guard.0 else { return Err(io(io::ErrorKind::NotConnected.into())) };
        let Running { child, stdin: input, stdout: output, stderr: errors, .. } = running;
        let work = async {
            // The three pipes run together: a program may write before it has read all of its input.
            let talk = async {
                let feed = async {
                    if let (Some(mut pipe), Some(bytes)) = (input.take(), stdin.as_deref()) {
                        // A program need not read what it is given.
                        let _ = pipe.write_all(bytes).await;
                    }
                    Ok(())
                };
                let out = read(output.as_mut(), |chunk| {
                    let room = max_stdout.saturating_sub(stdout.len());
                    stdout.extend_from_slice(chunk.get(..room).unwrap_or(chunk));
                    if chunk.len() > room { Err(Stop::TooLong) } else { Ok(()) }
                });
                let err = read(errors.as_mut(), |chunk| {
                    stderr.push(chunk);
                    Ok(())
                });
                tokio::try_join!(feed, out, err).map(|_| ())
            };
            tokio::pin!(talk);
            let status = tokio::select! {
                status = child.wait() => {
                    let status = status.map_err(Stop::Io)?;
                    match timeout(DRAIN, talk).await {
                        Ok(talked) => talked?,
                        Err(_) => tracing::debug!(program = %program.display(), "its output stayed open after its end"),
                    }
                    status
                }
                talked = &mut talk => {
                    talked?;
                    child.wait().await.map_err(Stop::Io)?
                }
            };
            Ok::<ExitStatus, Stop>(status)
        };
        let ended = timeout(*limit, work).await;
        match ended {
            Ok(Ok(status)) => {
                guard.finish();
                Ok(Output { status: code(status), stdout, stderr: stderr.to_text() })
            }
            Ok(Err(stop)) => {
                guard.terminate().await;
                Err(match stop {
                    Stop::TooLong => Error::TooLong { program: program.clone(), limit: *max_stdout },
                    Stop::Io(source) => io(source),
                })
            }
            Err(_) => {
                guard.terminate().await;
                Err(Error::Timeout { program: program.clone(), limit: *limit })
            }
        }
    }

    #[expect(clippy::disallowed_types, reason = "one of the two places that start processes")]
    fn start(&self) -> io::Result<Running> {
        let mut command = tokio::process::Command::new(&self.program);
        command.args(&self.args).current_dir(&self.cwd).process_group(0);
        // The last resort when the runtime itself goes down: the task that would ask politely is gone then.
        command.kill_on_drop(true);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with(PRIVATE)) {
            command.env_remove(name);
        }
        for name in &self.env_remove {
            command.env_remove(name);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.stdin(if self.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let group = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        Ok(Running { child, group, stdin, stdout, stderr })
    }
}

/// Why the exchange with a program was broken off.
enum Stop {
    TooLong,
    Io(io::Error),
}

/// A program that was started.
struct Running {
    child: tokio::process::Child,
    group: Option<Pid>,
    stdin: Option<tokio::process::ChildStdin>,
    stdout: Option<tokio::process::ChildStdout>,
    stderr: Option<tokio::process::ChildStderr>,
}

impl Running {
    async fn end(mut self) {
        signal(self.group, Signal::TERM);
        let Self { child, group, stdout, stderr, .. } = &mut self;
        let gone = async {
            let _ = child.wait().await;
            // The others of its group get the rest of the time.
            while group.is_some_and(|group| rustix::process::test_kill_process_group(group).is_ok()) {
                sleep(LOOK_EVERY).await;
            }
        };
        // Still read: a program that says something while it cleans up must not die of a closed pipe.
        let quiet = async {
            let _ = tokio::join!(read(stdout.as_mut(), |_| Ok(())), read(stderr.as_mut(), |_| Ok(())));
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = gone => return,
            () = quiet => {}
            () = sleep(GRACE) => {}
        }
        signal(self.group, Signal::KILL);
        let _ = self.child.wait().await;
    }
}

/// Ends the program when whoever waits for it goes away.
struct Guard(Option<Running>);

impl Guard {
    /// The program ended by itself; only what it left in its group remains to be ended.
    fn finish(mut self) {
        signal(self.0.take().and_then(|running| running.group), Signal::KILL);
    }

    async fn terminate(mut self) {
        if let Some(running) = self.0.take() {
            // In a task, so that dropping the caller meanwhile does not cut it short.
            let _ = tasks::spawn("end-command", running.end()).await;
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(running) = self.0.take() else { return };
        if tokio::runtime::Handle::try_current().is_ok() {
            tasks::spawn("end-command", running.end());
        } else {
            signal(running.group, Signal::KILL);
        }
    }
}

fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // Nobody left is as good.
        let _ = rustix::process::kill_process_group(group, signal);
    }
}

async fn read(
    pipe: Option<&mut (impl AsyncRead + Unpin)>,
    mut take: impl FnMut(&[u8]) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let Some(pipe) = pipe else { return Ok(()) };
    let mut buffer = vec![0; 64 << 10];
    loop {
        match pipe.read(&mut buffer).await.map_err(Stop::Io)? {
            0 => return Ok(()),
            len => take(buffer.get(..len).unwrap_or_default())?,
        }
    }
}

fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

/// The directory this process was started in, when it is still there.
pub fn here() -> Option<PathBuf> {
    std::env::current_dir().ok()
}

/// Finds `program` on PATH (or checks a path); `None` when there is no executable file.
#[expect(clippy::disallowed_methods, reason = "the search path of this process, as for starting a program")]
pub fn find(program: &str) -> Option<PathBuf> {
    let here = std::env::current_dir().unwrap_or_default();
    executable::resolve(OsStr::new(program), std::env::var_os("PATH").as_deref(), &here).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        Command::new("sh", "/").args(["-c", script])
    }

    #[tokio::test]
    async fn input_output_status_and_environment() {
        let mut cat = Command::new("cat", "/");
        // More than two pipes hold: fed and read at once or not at all.
        cat.stdin = Some(vec![b'x'; 1 << 20]);
        let output = cat.run().await.unwrap();
        assert_eq!((output.status, output.stdout.len()), (0, 1 << 20));
        let output = sh("read x; echo \"$A-$HOME-$x\"; echo \"$PWD\" >&2; exit 3");
        let output = Command { env_remove: vec!["HOME".into()], ..output.env("A", "a b") }.run().await.unwrap();
        assert_eq!(
            (output.status, output.stdout.as_slice(), output.stderr.as_str()),
            (3, b"a b--\n".as_slice(), "/\n")
        );
        assert_eq!(sh("kill -9 $$").run().await.unwrap().status, 128 + 9);
        // Input that nobody reads is no error.
        let ignoring = Command { stdin: Some(vec![0; 1 << 20]), ..sh("exit 0") };
        assert_eq!(ignoring.run().await.unwrap().status, 0);
    }

    #[tokio::test]
    async fn limits_hold() {
        // HO-2: endless output of both kinds.
        let endless = Command { max_stdout: 1000, ..sh("yes") };
        assert!(matches!(endless.run().await, Err(Error::TooLong { limit: 1000, .. })));
        let noisy = sh("head -c 3000000 /dev/zero | tr '\\0' e >&2; echo end >&2").run().await.unwrap();
        assert!(noisy.stderr.len() <= STDERR_KEPT && noisy.stderr.ends_with("end\n"));
        let missing = Command::new("no-such-program-here", "/").run().await;
        assert!(matches!(missing, Err(Error::Start { source, .. }) if source.kind() == io::ErrorKind::NotFound));
        // A background child that keeps the pipe does not keep us.
        let output = sh("echo done; sleep 1000 &").run().await.unwrap();
        assert_eq!(output.stdout, b"done\n");
    }

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "a test looks at real files")]
    async fn term_comes_before_kill_on_timeout_and_on_drop() {
        // GT-2: the program gets the chance to clean up.
        let dir = tempfile::tempdir().unwrap();
        let script = "trap 'echo x > cleaned; exit' TERM; echo $$ > pid; while :; do sleep 0.05; done";
        let cleaned = dir.path().join("cleaned");
        let asked = Command { timeout: Duration::from_millis(500), cwd: dir.path().into(), ..sh(script) };
        assert!(matches!(asked.clone().run().await, Err(Error::Timeout { .. })));
        assert!(std::fs::read(&cleaned).is_ok());
        std::fs::remove_file(&cleaned).unwrap();
        let asked = Command { timeout: Duration::from_secs(60), ..asked };
        assert!(timeout(Duration::from_millis(500), asked.run()).await.is_err());
        for _ in 0..500 {
            sleep(LOOK_EVERY).await;
            if std::fs::read(&cleaned).is_ok() {
                return;
            }
        }
        panic!("no TERM after the drop");
    }

    #[tokio::test]
    async fn kill_comes_after_an_ignored_term() {
        let stubborn = "trap '' TERM; echo start; while :; do sleep 0.05; done";
        let asked = Command { timeout: Duration::from_millis(300), ..sh(stubborn) };
        let ended = timeout(Duration::from_secs(10), asked.run()).await.unwrap();
        assert!(matches!(ended, Err(Error::Timeout { .. })));
    }

    #[test]
    fn programs_are_found() {
        assert!(find("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(find("no-such-program-here"), None);
        assert!(find("/bin/sh").is_some());
    }
}
