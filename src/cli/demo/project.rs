//! The demo's own world: a git repository with a failing test and a state directory beside it.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};

use super::super::failure::Failure;
use crate::{
    config::Config,
    engines::scripted,
    model::Code,
    sys::{Fs, RealFs, command::Command, fs::create_dir_all},
};

/// What the agent is asked.
const TASK: &str = "total.sh prints a wrong sum. Make test.sh pass.";

/// Directories and settings of one demonstration.
#[derive(Debug)]
pub(super) struct Project {
    /// Everything below.
    pub(super) dir: PathBuf,
    /// State directory of the server.
    pub(super) home: PathBuf,
    /// The repository.
    pub(super) repo: PathBuf,
    /// This program.
    pub(super) program: PathBuf,
    /// Environment of the server.
    pub(super) server_env: Vec<(OsString, OsString)>,
}

impl Project {
    /// Makes the directories and the repository with its first commit.
    pub(super) async fn create(config: &Config, dir: Option<PathBuf>) -> Result<Self, Failure> {
        let fs = RealFs;
        let dir = match dir {
            Some(dir) => {
                create_dir_all(&fs, &dir).map_err(|e| Failure::io("make the directory", e))?;
                if !fs.list(&dir).map_err(|e| Failure::io("read the directory", e))?.is_empty() {
                    return Err(Failure::usage(format!("{} is not empty", dir.display()), "name a new directory"));
                }
                dir
            }
            None => tempfile::Builder::new()
                .prefix("clawo-demo-")
                .tempdir()
                .map_err(|e| Failure::io("make a temporary directory", e))?
                .keep(),
        };
        // The server refuses directories by their resolved name.
        let dir = fs.canonicalize(&dir).map_err(|e| Failure::io("resolve the directory", e))?;
        let (home, repo) = (dir.join("home"), dir.join("repository"));
        for new in [&home, &repo] {
            fs.create_dir(new).map_err(|e| Failure::io("make a directory", e))?;
        }
        for (path, contents) in scripted::demo_files() {
            let path = repo.join(path);
            create_dir_all(&fs, path.parent().unwrap_or(&repo)).map_err(|e| Failure::io("make a directory", e))?;
            let mut file = fs.create_new(&path).map_err(|e| Failure::io("write the repository", e))?;
            file.write_at(0, contents.as_bytes()).map_err(|e| Failure::io("write the repository", e))?;
        }
        let git = |args: &'static [&'static str]| git(&repo, args);
        git(&["init", "--quiet", "--initial-branch=main"]).await?;
        git(&["add", "--all"]).await?;
        git(&["commit", "--quiet", "--message", "A project whose test fails"]).await?;
        let mut server_env: Vec<(OsString, OsString)> = config
            .env
            .iter()
            // Settings of the user's own server must not reach the demo's.
            .filter(|(name, _)| !name.starts_with("CLAWO_"))
            .map(|(name, value)| (name.into(), value.into()))
            .collect();
        server_env.push(("CLAWO_HOME".into(), home.clone().into_os_string()));
        Ok(Self { dir, home, repo, program: config.program.clone(), server_env })
    }

    /// Arguments of `workflow_start`. `settle` is a further check that takes a while: time in which to kill the server.
    pub(super) fn start_arguments(&self, settle: Option<Duration>) -> Value {
        let mut checks = vec![json!({ "id": "test", "type": "command", "cmd": "sh", "args": ["test.sh"] })];
        if let Some(time) = settle {
            let args = [time.as_secs_f64().to_string()];
            checks.push(json!({ "id": "settle", "type": "command", "cmd": "sleep", "args": args }));
        }
        let agent = json!({ "engine": "scripted", "model": "demo-solve" });
        let scout = json!({ "name": "scout", "engine": "scripted", "model": "demo-solve" });
        json!({
            "template": "solve",
            "task": TASK,
            "cwd": self.repo,
            "agents": [scout],
            "implementer": agent,
            "maxRepairs": 3,
            "contract": { "id": "demo", "checks": checks },
        })
    }

    /// The contract for people.
    pub(super) fn contract_words(&self) -> &'static str {
        "'sh test.sh' must exit 0, run by the server itself"
    }
}

/// One git command with an identity of the demo's own and without the user's configuration.
async fn git(repo: &Path, args: &[&str]) -> Result<(), Failure> {
    let identity = ["-c", "user.name=clawo demo", "-c", "user.email=demo@localhost", "-c", "commit.gpgsign=false"];
    let command = Command::new("git", repo)
        .args(identity.iter().chain(args))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null");
    match command.run().await {
        Ok(output) if output.status == 0 => Ok(()),
        Ok(output) => Err(Failure::new(Code::Internal, format!("git {args:?} failed: {}", output.stderr.trim()))),
        Err(e) => Err(Failure {
            code: Code::Internal,
            message: e.to_string(),
            hint: Some("install git 2.31 or newer; 'clawo doctor' says what else is missing".to_owned()),
            details: None,
        }),
    }
}
