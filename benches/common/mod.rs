//! What benches stand on: a place on the disk the program was built on, runs in it, and the bare work beside it.

pub mod bare;

use std::{fs::File, path::PathBuf, sync::Arc, time::Duration};

use claw_orchestrator::{
    app::{App, Mode},
    kernel::{Kernel, Source, StartRequest},
    model::RunId,
    store::{FileStore, NewRun, Options},
    sys::{Fs, RealFs, SystemClock},
};
use serde_json::{Value, json};

#[path = "../../tests/support/mod.rs"]
#[expect(
    dead_code,
    unreachable_pub,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "the tests use the rest"
)]
pub mod support;

/// A state directory and a project, removed at the end.
pub struct Place {
    /// Not in the system's temporary directory, which may be in memory.
    state: tempfile::TempDir,
    /// Not below this repository, where runs would leave snapshots.
    project: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        let state = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        Self { state, project: tempfile::tempdir().unwrap() }
    }

    fn home(&self) -> PathBuf {
        self.state.path().join("home")
    }

    pub fn run_dir(&self, run: &str) -> PathBuf {
        self.home().join("wf").join(run)
    }

    /// A store of its own over the place.
    pub fn store(&self) -> FileStore {
        self.store_on(Arc::new(RealFs))
    }

    /// A store over the place that reaches it through `fs`.
    pub fn store_on(&self, fs: Arc<dyn Fs>) -> FileStore {
        let options = Options {
            home: self.home(),
            wf_dir: self.home().join("wf"),
            fs,
            clock: Arc::new(SystemClock),
            instance: "bench".to_owned(),
            host: "here".to_owned(),
            pid: std::process::id(),
            min_free: 0,
        };
        FileStore::open(options).unwrap()
    }

    /// A whole process over the place.
    pub async fn app(&self) -> App {
        let mut config = support::World::bare().config();
        config.home = self.home();
        config.wf_dir = self.home().join("wf");
        config.runs_dir = self.home().join("runs");
        App::open(config, Mode::Serve).await.unwrap()
    }

    /// A start of a workflow here.
    pub fn request(&self, spec: Value) -> StartRequest {
        StartRequest {
            source: Source::Spec(spec),
            cwd: Some(self.project.path().to_owned()),
            run_id: None,
            contract: None,
            auto_resume: false,
            idempotency_key: None,
            parent: None,
            customs: claw_orchestrator::nodes::Customs::default(),
        }
    }

    /// Starts a workflow here and gives its run's id.
    pub async fn start(&self, kernel: &Kernel, spec: Value) -> String {
        kernel.start(self.request(spec)).await.unwrap().run_id.to_string()
    }

    /// Lines of a run's log.
    pub fn lines(&self, run: &str) -> Vec<Vec<u8>> {
        bare::lines(&self.run_dir(run)).unwrap()
    }

    /// What the run's creation and commits need at least.
    pub fn bare_run(&self, run: &str) -> Duration {
        bare::run(&self.home(), &self.run_dir(run)).unwrap()
    }

    /// What the run's commits need at least.
    pub fn bare_log(&self, run: &str) -> Duration {
        bare::log(&self.home(), &self.run_dir(run)).unwrap()
    }

    /// A new file beside the runs.
    pub fn raw(&self) -> File {
        bare::make(&self.home().join(format!("raw-{}", claw_orchestrator::sys::ids::short()))).unwrap()
    }
}

/// A workflow of that many routers, each leading to the next.
pub fn routers(count: usize) -> Value {
    workflow(count, &json!([]))
}

/// Fifty nodes of which the first is visited five hundred times.
pub fn looping() -> Value {
    workflow(50, &json!([{ "when": { "type": "visits_lt", "node": "r0", "n": 500 }, "to": "r0" }]))
}

fn workflow(count: usize, routes: &Value) -> Value {
    let none = json!([]);
    let node = |i| json!({ "id": format!("r{i}"), "kind": "router", "routes": if i == 0 { routes } else { &none } });
    json!({ "name": "routers", "maxNodeVisits": 500, "nodes": (0..count).map(node).collect::<Vec<_>>() })
}

/// Waits until nothing is executed. Looks rarely enough not to be felt.
pub fn idle(kernel: &Kernel) {
    while kernel.executing() > 0 {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A run of the store with a first event.
pub fn new_run(id: &str) -> NewRun {
    NewRun {
        run_id: RunId::parse(id).unwrap(),
        spec: json!({ "name": "bench" }),
        events: vec![json!({ "type": "log", "text": "first" })],
        artifacts: Vec::new(),
    }
}

/// What a small transition commits: one node ends, the next one begins.
pub fn moves(from: &str, to: &str, visit: usize) -> Vec<Value> {
    let state = |node: &str, state: &str| json!({ "type": "node_state", "node": node, "state": state, "visit": visit, "attempt": 1, "failures": 0 });
    vec![state(from, "succeeded"), state(to, "running")]
}

/// A small transition.
pub fn batch() -> Vec<Value> {
    moves("r17", "r18", 1)
}

/// Fills the place with copies of an ended run, as old as an hour, until there are `count`.
pub fn fill(place: &Place, from: &str, count: usize) {
    let from = place.run_dir(from);
    let files: Vec<(std::ffi::OsString, Vec<u8>)> = std::fs::read_dir(&from)
        .unwrap()
        .map(Result::unwrap)
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap()))
        .collect();
    let then = std::time::SystemTime::now() - Duration::from_secs(3600);
    for i in 1..count {
        let to = place.run_dir(&format!("20260101-{:06}-bench-{i:012}", i / 10));
        std::fs::create_dir(&to).unwrap();
        for (name, bytes) in &files {
            std::fs::write(to.join(name), bytes).unwrap();
        }
        std::fs::File::open(&to).unwrap().set_modified(then).unwrap();
    }
}
