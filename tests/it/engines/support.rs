//! A home, a repository and a pool in a temporary directory.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use claw_orchestrator::{
    config::{Config, Server},
    engines::{ErrorClass, Limits, Pool, PooledSession, Registry, SessionSpec, Sink, TurnEvent, TurnOutcome},
    git::Git,
    model::spec::EngineChoice,
    nodes::read_only::ReadOnly,
    sys::{RealFs, SystemClock},
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// Everything a test of engines needs.
pub(crate) struct Bench {
    dir: tempfile::TempDir,
    pub(crate) config: Config,
    pub(crate) limits: Limits,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["home", "repo", "user"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let env = BTreeMap::from([
            ("PATH".to_owned(), std::env::var("PATH").unwrap()),
            ("HOME".to_owned(), dir.path().join("user").to_string_lossy().into_owned()),
        ]);
        let config = config(dir.path(), env);
        let limits = Limits { busy_backoff: Duration::from_millis(10), ..Limits::default() };
        Self { dir, config, limits }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn repo(&self) -> PathBuf {
        self.path("repo")
    }

    pub(crate) fn registry(&self) -> Registry {
        let config = Arc::new(self.config.clone());
        Registry::with_limits(config, "test-owner", Arc::new(SystemClock), Arc::new(RealFs), self.limits)
    }

    pub(crate) fn pool(&self, max: usize) -> Pool {
        Pool::new(Arc::new(self.registry()), &self.path("home"), Arc::new(RealFs), max)
    }

    /// A pool that gives read-only sessions a place; `confined` where the kernel can keep them there.
    pub(crate) fn isolating_pool(&self, max: usize, confined: bool) -> Pool {
        let git = Git { fs: Arc::new(RealFs), program: "git".into() };
        let places = ReadOnly::new(git, &self.path("home"));
        let places = if confined { places } else { places.watching_only() };
        self.pool(max).with_isolation(Arc::new(places))
    }

    /// A scenario file; its prompts are recorded beside it.
    pub(crate) fn scenario(&self, name: &str, mut scenario: Value) -> String {
        let path = self.path(&format!("{name}.json"));
        scenario["record"] = format!("{name}.prompts").into();
        std::fs::write(&path, scenario.to_string()).unwrap();
        path.to_string_lossy().into_owned()
    }

    /// A scenario of one turn that is played for every prompt.
    pub(crate) fn always(&self, name: &str, steps: Value) -> String {
        let mut turn = serde_json::json!({ "times": 0 });
        turn["steps"] = steps;
        self.scenario(name, serde_json::json!({ "turns": [turn] }))
    }

    /// Prompts recorded by a scenario.
    pub(crate) fn prompts(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.path(&format!("{name}.prompts"))).unwrap_or_default();
        let prompt = |l: &str| serde_json::from_str::<Value>(l).unwrap()["prompt"].as_str().unwrap().to_owned();
        text.lines().map(prompt).collect()
    }

    pub(crate) fn spec(&self, model: &str) -> SessionSpec {
        let choice =
            EngineChoice { engine: Some("scripted".into()), model: Some(model.into()), ..EngineChoice::default() };
        SessionSpec { name: "test-session".into(), choice, cwd: self.repo(), ..SessionSpec::default() }
    }

    pub(crate) async fn open(&self, model: &str) -> PooledSession {
        open(&self.pool(1), self.spec(model)).await
    }

    /// One turn of a scenario of its own.
    pub(crate) async fn once(&self, steps: Value) -> TurnOutcome {
        let mut session = self.open(&self.always("once", steps)).await;
        let outcome = say(&mut session, "go").await;
        assert_eq!(session.close().await, Vec::<String>::new());
        outcome
    }
}

/// Settings as the environment gives them, without reading any of the machine's.
fn config(dir: &Path, env: BTreeMap<String, String>) -> Config {
    Config {
        home: dir.join("home"),
        wf_dir: dir.join("home/wf"),
        runs_dir: dir.join("home/runs"),
        daily_usd: None,
        prices: BTreeMap::new(),
        user_home: Some(dir.join("user")),
        program: env!("CARGO_BIN_EXE_clawo").into(),
        default_engine: None,
        engine_bins: BTreeMap::new(),
        engine_env: BTreeMap::new(),
        max_sessions: None,
        sessions: claw_orchestrator::config::Sessions::default(),
        auto_resume: false,
        round_pause: std::time::Duration::ZERO,
        chrome: None,
        tools: None,
        secret_names: Vec::new(),
        server: Server {
            host: "127.0.0.1".into(),
            port: 0,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            rate_limit: 0,
            max_body_bytes: 0,
            token: None,
        },
        env,
    }
}

pub(crate) async fn open(pool: &Pool, spec: SessionSpec) -> PooledSession {
    pool.open(spec, CancellationToken::new(), |_| {}).await.unwrap()
}

pub(crate) fn silent() -> Sink {
    Arc::new(|_| {})
}

pub(crate) async fn say(session: &mut PooledSession, message: &str) -> TurnOutcome {
    session.turn(message, silent(), CancellationToken::new()).await
}

/// A turn and what was told during it.
pub(crate) async fn watch(session: &mut PooledSession, message: &str) -> (TurnOutcome, Vec<TurnEvent>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let events = Arc::clone(&seen);
    let sink: Sink = Arc::new(move |event| events.lock().unwrap().push(event));
    let outcome = session.turn(message, sink, CancellationToken::new()).await;
    let seen = seen.lock().unwrap().clone();
    (outcome, seen)
}

pub(crate) fn class(outcome: &TurnOutcome) -> Option<ErrorClass> {
    assert_eq!(outcome.ok, outcome.error.is_none());
    outcome.error.as_ref().map(|e| e.class)
}

pub(crate) fn message(outcome: &TurnOutcome) -> &str {
    outcome.error.as_ref().map_or("", |e| e.message.as_str())
}

/// Processes that have `mark` in their environment: ids and command lines.
pub(crate) fn marked(mark: &str) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        let Ok(environ) = std::fs::read(entry.path().join("environ")) else { continue };
        if environ.windows(mark.len()).any(|w| w == mark.as_bytes()) {
            let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push((pid, String::from_utf8_lossy(&command).replace('\0', " ")));
        }
    }
    found
}

/// Their command lines.
pub(crate) fn alive(mark: &str) -> Vec<String> {
    marked(mark).into_iter().map(|(_, command)| command).collect()
}

/// Waits until `test` holds.
pub(crate) async fn until(what: &str, test: impl Fn() -> bool) {
    let begun = Instant::now();
    while !test() {
        assert!(begun.elapsed() < Duration::from_secs(90), "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// An executable shell script.
pub(crate) fn script(path: &Path, body: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_path_buf()
}
