//! A server program that this process talks to as its client, over the program's standard input and output.
//!
//! Owns the child and its two pipes. Speaks no protocol. Dropping it kills the child.

use std::{
    ffi::OsString,
    io,
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::process::{Child, ChildStdin, ChildStdout};

/// A running server program.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    /// Its standard input; taken by whoever writes.
    pub stdin: Option<ChildStdin>,
    /// Its standard output; taken by whoever reads.
    pub stdout: Option<ChildStdout>,
}

impl ServerProcess {
    /// Starts `program` in `cwd` with exactly this environment. Its standard error goes to the file `errors`.
    #[expect(clippy::disallowed_types, reason = "sys owns processes and files")]
    pub fn start(
        program: &Path,
        args: &[OsString],
        env: &[(OsString, OsString)],
        cwd: &Path,
        errors: &Path,
    ) -> io::Result<Self> {
        let errors = std::fs::OpenOptions::new().create(true).append(true).open(errors)?;
        let mut child = tokio::process::Command::new(program)
            .args(args)
            .env_clear()
            .envs(env.iter().map(|(name, value)| (name, value)))
            .current_dir(cwd)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self { stdin: child.stdin.take(), stdout: child.stdout.take(), child })
    }

    /// Its process id, until it was waited for.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Ends it with SIGKILL, as a crash would, and waits until it is gone.
    pub async fn kill(&mut self) -> io::Result<()> {
        self.child.kill().await
    }

    /// Waits until it ends by itself, at most `limit`; then it is killed. `None` when it had to be.
    pub async fn wait(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        match tokio::time::timeout(limit, self.child.wait()).await {
            Ok(status) => status.map(Some),
            Err(_) => self.child.kill().await.map(|()| None),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::sys::Fs;

    #[tokio::test]
    async fn it_talks_and_ends() {
        let dir = tempfile::tempdir().unwrap();
        let errors = dir.path().join("errors.log");
        let env = [("WORD".into(), "hello".into())];
        let args = ["-c".into(), "read line; echo \"$WORD $line\"; echo complaint >&2; exit 3".into()];
        let mut server = ServerProcess::start("/bin/sh".as_ref(), &args, &env, dir.path(), &errors).unwrap();
        let mut stdin = server.stdin.take().unwrap();
        stdin.write_all(b"world\n").await.unwrap();
        let mut said = String::new();
        server.stdout.take().unwrap().read_to_string(&mut said).await.unwrap();
        assert_eq!(said, "hello world\n");
        let status = server.wait(Duration::from_secs(10)).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(3));
        assert_eq!(crate::sys::RealFs.read(&errors).unwrap(), b"complaint\n");
    }

    #[tokio::test]
    async fn a_program_that_stays_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let args = ["60".into()];
        let mut server =
            ServerProcess::start("/bin/sleep".as_ref(), &args, &[], dir.path(), &dir.path().join("e")).unwrap();
        assert!(server.pid().is_some());
        assert_eq!(server.wait(Duration::from_millis(50)).await.unwrap(), None);
    }
}
