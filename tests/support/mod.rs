//! What integration tests stand on: a world of its own with a home, a repository, agents and a kernel.

#[macro_use]
pub mod files;
pub mod model;
pub mod openai;
pub mod schema;
pub mod untouched;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use claw_orchestrator::{
    app::{App, Mode},
    config::{Config, Server, file::PriceTable},
    kernel::{Kernel, RunView, Source, StartRequest, StatusQuery},
    model::{Code, RunState},
};
use serde_json::{Value, json};

/// The program under test.
pub fn clawo() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_clawo"))
}

/// Runs git in `dir` and gives what it printed.
pub fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A home, a project and whatever processes a test starts on them.
pub struct World {
    root: tempfile::TempDir,
    /// Extra environment of the server.
    pub env: BTreeMap<String, String>,
    /// Most sessions at once.
    pub sessions: usize,
    /// Pause between two rounds of a council.
    pub round_pause: Duration,
    /// Programs of engines.
    pub bins: BTreeMap<String, PathBuf>,
    /// Prices of the user's own.
    pub prices: BTreeMap<String, PriceTable>,
    open: std::sync::Mutex<Vec<App>>,
}

impl World {
    /// A world with an empty project directory that is no repository.
    pub fn bare() -> Self {
        let root = tempfile::Builder::new().prefix("clawo world ").tempdir().unwrap();
        std::fs::create_dir(root.path().join("project")).unwrap();
        Self {
            root,
            env: BTreeMap::new(),
            sessions: 8,
            round_pause: Duration::ZERO,
            bins: BTreeMap::new(),
            prices: BTreeMap::new(),
            open: std::sync::Mutex::default(),
        }
    }

    /// A world whose project is a repository with one commit.
    pub fn new() -> Self {
        let world = Self::bare();
        let dir = world.project();
        git(&dir, &["init", "-q", "-b", "main"]);
        git(&dir, &["config", "user.name", "Test User"]);
        git(&dir, &["config", "user.email", "test@example.invalid"]);
        world.write("README", "a project\n");
        git(&dir, &["add", "-A"]);
        git(&dir, &["commit", "-q", "-m", "first"]);
        world
    }

    /// Root of everything.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// The project.
    pub fn project(&self) -> PathBuf {
        self.root.path().join("project").canonicalize().unwrap()
    }

    /// The state directory.
    pub fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    /// Directory of a run.
    pub fn run_dir(&self, run: &str) -> PathBuf {
        self.home().join("wf").join(run)
    }

    /// Writes a file of the project.
    pub fn write(&self, path: &str, content: &str) {
        let path = self.project().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Reads a file of the project.
    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.project().join(path)).unwrap()
    }

    /// Writes a scenario beside the project and gives its path, for `model`. What its agents are asked is
    /// recorded beside it.
    pub fn scenario(&self, name: &str, turns: Value) -> String {
        let path = self.root.path().join(format!("{name}.json"));
        let record = self.root.path().join(format!("{name}.prompts.jsonl"));
        let mut scenario = json!({ "record": record });
        scenario["turns"] = turns;
        std::fs::write(&path, serde_json::to_vec_pretty(&scenario).unwrap()).unwrap();
        path.to_string_lossy().into_owned()
    }

    /// What the agents of a scenario were asked, in order.
    pub fn prompts(&self, name: &str) -> Vec<String> {
        let record = self.root.path().join(format!("{name}.prompts.jsonl"));
        let text = std::fs::read_to_string(record).unwrap_or_default();
        text.lines()
            .map(|line| {
                let value: Value = serde_json::from_str(line).unwrap();
                value.get("message").or_else(|| value.get("prompt")).and_then(Value::as_str).unwrap().to_owned()
            })
            .collect()
    }

    /// Settings of a process in this world.
    pub fn config(&self) -> Config {
        let mut env: BTreeMap<String, String> = std::env::vars().collect();
        env.extend(self.env.clone());
        Config {
            home: self.home(),
            wf_dir: self.home().join("wf"),
            runs_dir: self.home().join("runs"),
            daily_usd: None,
            prices: self.prices.clone(),
            user_home: None,
            program: clawo(),
            default_engine: Some("scripted".to_owned()),
            engine_bins: self.bins.clone(),
            engine_env: BTreeMap::new(),
            max_sessions: Some(self.sessions),
            sessions: claw_orchestrator::config::Sessions::default(),
            auto_resume: false,
            round_pause: self.round_pause,
            chrome: None,
            tools: None,
            secret_names: Vec::new(),
            server: Server {
                host: "127.0.0.1".to_owned(),
                port: 0,
                allowed_hosts: Vec::new(),
                allowed_origins: Vec::new(),
                rate_limit: 300,
                max_body_bytes: 5 << 20,
                token: None,
            },
            env,
        }
    }

    /// A kernel in this process; it lives as long as the world.
    pub async fn kernel(&self) -> Kernel {
        let app = App::open(self.config(), Mode::Serve).await.unwrap();
        let kernel = app.kernel.clone();
        self.open.lock().unwrap().push(app);
        kernel
    }

    /// A start of `spec` in the project.
    pub fn start(&self, spec: Value) -> StartRequest {
        StartRequest {
            source: Source::Spec(spec),
            cwd: Some(self.project()),
            run_id: None,
            contract: None,
            auto_resume: false,
            idempotency_key: None,
            parent: None,
            customs: claw_orchestrator::nodes::Customs::default(),
        }
    }

    /// Starts `spec` and waits for its end.
    pub async fn run(&self, kernel: &Kernel, spec: Value) -> RunView {
        let started = kernel.start(self.start(spec)).await.unwrap();
        finished(kernel, started.run_id.as_str()).await
    }

    /// Files below the state directory and the project, for "changes nothing" tests.
    pub fn listing(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut open = vec![self.home(), self.project()];
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
                found.push(entry.path());
                if entry.file_type().is_ok_and(|t| t.is_dir()) {
                    open.push(entry.path());
                }
            }
        }
        found.sort();
        found
    }
}

/// Waits until a run has ended or parked.
pub async fn finished(kernel: &Kernel, run: &str) -> RunView {
    until(kernel, run, |view| view.state.is_terminal() || view.state == RunState::AwaitingHuman).await
}

/// Waits until a run looks like this; fails after a minute with what it looks like then.
pub async fn until(kernel: &Kernel, run: &str, wanted: impl Fn(&RunView) -> bool) -> RunView {
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        match kernel.status(run, StatusQuery { events: 0, wait_ms: 0 }).await {
            Ok(view) if wanted(&view) => return view,
            Ok(_) => {}
            // A child is named by its parent a moment before it is there.
            Err(e) => assert_eq!(e.code, Code::RunNotFound, "{e}"),
        }
        if std::time::Instant::now() > deadline {
            let view = kernel.status(run, StatusQuery { events: 50, wait_ms: 0 }).await.unwrap();
            panic!("the run did not get there: {view:#?}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A contract with one command.
pub fn check(argv: &[&str]) -> Value {
    json!({ "checks": [{ "type": "command", "cmd": argv[0], "args": &argv[1..] }] })
}

/// An agent node on a scripted scenario.
pub fn agent(id: &str, prompt: &str, model: &str) -> Value {
    json!({ "id": id, "kind": "agent", "prompt": prompt, "engine": "scripted", "model": model })
}

/// `node` with further fields.
pub fn with(mut node: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("not fields: {more}") };
    node.as_object_mut().unwrap().extend(more);
    node
}

/// A verifier with a contract of its own.
pub fn verifier(id: &str, argv: &[&str]) -> Value {
    json!({ "id": id, "kind": "verifier", "contract": check(argv) })
}

/// Processes whose command line holds `needle`.
pub fn processes(needle: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().into_string().unwrap_or_default().parse::<u32>() else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(needle) && pid != std::process::id() {
            found.push(format!("{pid} {line}"));
        }
    }
    found
}

/// Processes that were started for a run: ids, command lines and environments.
pub fn of_run(run: &str) -> Vec<(i32, String, String)> {
    let mark = format!("CLAWO_RUN_ID={run}\n");
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().into_string().unwrap_or_default().parse::<i32>() else { continue };
        let read = |name: &str| std::fs::read(entry.path().join(name)).unwrap_or_default();
        let env = String::from_utf8_lossy(&read("environ")).replace('\0', "\n");
        if env.contains(&mark) {
            found.push((pid, String::from_utf8_lossy(&read("cmdline")).replace('\0', " "), env));
        }
    }
    found
}

/// Waits until `test` holds; fails after twenty seconds.
pub async fn happens(what: &str, test: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !test() {
        assert!(std::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
