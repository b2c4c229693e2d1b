//! One case: a workflow, a world and what disturbs it, lived to its end over as many lives as it takes, then compared.
//!
//! A life is a runtime with a paused clock of its own. Its death drops the runtime, so that not one line of any
//! task runs afterwards; the next life opens the same files.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use claw_orchestrator::{
    config::{Config, Server},
    engines::{Engine, Limits, Pool, Registry, SessionSpec},
    git::Git,
    kernel::{Kernel, Role},
    model::{NodeState, RunId, RunOutcome, RunRecord, RunState},
    nodes::{
        Services,
        sessions::{self, Sessions},
    },
    store::{FileStore, Options, Store},
    sys::{Clock, Fs, redact::Redactor, supervise},
    verify::Verifier,
};
use serde_json::json;

use crate::{
    agents::{self, Agents},
    clock::ModelClock,
    defects::Forgery,
    driver::Driver,
    faulty::{Fault, Faults, FaultyStore, Life},
    flow::Flow,
    journal::Journal,
    memory::MemoryFs,
    script::Script,
};

/// The run of every case.
pub const RUN: &str = "r";
/// Longest a life may take in its own time: more than any workflow of these tests can use.
const GUARD: Duration = Duration::from_secs(1200);
/// Most lives of a case.
const LIVES_MAX: usize = 40;

/// What somebody does at a moment.
#[derive(Debug, Clone, PartialEq)]
pub enum Deed {
    /// Cancels the run.
    Cancel,
    /// Queues a correction.
    Steer,
    /// Sets the wall clock by milliseconds.
    Jump(i64),
    /// Kills the process.
    Kill,
}

/// Who answers gates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Answers {
    /// The process that executes.
    #[default]
    Here,
    /// Another one that executes nothing.
    Elsewhere,
}

/// A case.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    pub flow: Flow,
    pub seed: u64,
    /// Faults by number of the batch.
    pub faults: BTreeMap<u64, Fault>,
    /// What happens when, in true milliseconds.
    pub deeds: Vec<(u64, Deed)>,
    /// How long the process is gone after a death.
    pub pause_ms: u64,
    pub answers: Answers,
    pub forgery: Option<Forgery>,
    pub boot_is_wall: bool,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    pub state: RunState,
    pub outcome: Option<RunOutcome>,
    pub reason: String,
    pub nodes: Vec<(String, NodeState, u32)>,
    /// What is on the record as used, in turns and cents.
    pub turns: u64,
    pub cents: u64,
    /// True milliseconds from start to end, whatever the wall clock says.
    pub at_ms: u64,
}

/// What came of a case.
#[derive(Debug, Clone)]
pub struct Lived {
    pub end: End,
    pub batches: u64,
    pub deaths: u64,
    pub failures: u64,
    pub jumps: u64,
    pub lives: u64,
    /// Runs, children included.
    pub runs: usize,
    pub starts: Vec<(String, u64)>,
    /// Turns of the run and its children, as every batch together says.
    pub turns_on_log: u64,
    /// When the run's lease was renewed, in true milliseconds.
    pub beats: Vec<u64>,
}

impl Case {
    /// A case that nothing disturbs.
    pub fn new(flow: Flow, seed: u64) -> Self {
        Self {
            flow,
            seed,
            faults: BTreeMap::new(),
            deeds: Vec::new(),
            pause_ms: 0,
            answers: Answers::Here,
            forgery: None,
            boot_is_wall: false,
        }
    }

    /// Lives it to its end. `Err` says which rule was broken.
    pub fn live(&self) -> Result<Lived, String> {
        let world = World::new(self);
        for life in 0..LIVES_MAX {
            match world.life(life)? {
                Some(record) => {
                    let journal = &world.agents.journal;
                    let run = RunId::parse(RUN).unwrap();
                    let (at_ms, beats, turns) =
                        journal.with(&run, |r| (r.ended_ms, r.beats.clone(), r.turns)).unwrap_or_default();
                    let end = End { at_ms, ..end_of(&record) };
                    let faults = &world.faults;
                    let lived = Lived {
                        end,
                        batches: faults.batches.load(Ordering::SeqCst),
                        deaths: faults.deaths.load(Ordering::SeqCst),
                        failures: faults.failures.load(Ordering::SeqCst),
                        jumps: world.clock.jumps(),
                        lives: life as u64 + 1,
                        runs: journal.runs().len(),
                        starts: journal.starts(),
                        turns_on_log: turns,
                        beats,
                    };
                    return Ok(lived);
                }
                None => world.agents.journal.rules()?,
            }
        }
        Err(format!("the run did not end within {LIVES_MAX} lives"))
    }
}

impl Case {
    /// Kills the process of another host, sets the clock after some time, and has a process of this host continue
    /// the run.
    pub fn foreign_lease(&self, after: Duration, jump: i64) -> Result<(), String> {
        let killed = Case { deeds: vec![(16_000, Deed::Kill)], pause_ms: 0, ..self.clone() };
        let world = World { host: "there", ..World::new(&killed) };
        assert!(world.life(0)?.is_none());
        // The last heartbeat came a second before the death.
        world.clock.end(after.saturating_sub(Duration::from_secs(1)));
        world.clock.jump(jump);
        let store = World { host: "here", ..world }.store(1);
        store.claim(&RunId::parse(RUN).unwrap()).map(|_| ()).map_err(|e| e.to_string())
    }

    /// Has a second agent asked while the first one works, for the same attempt or another one.
    pub fn second_agent(&self, attempt: &str) -> Result<(), String> {
        let world = World::new(self);
        let (agents, journal) = (&world.agents, &world.agents.journal);
        let asked = |attempt: &str| {
            let var = |name: &str, value: &str| (format!("CLAWO_{name}"), value.to_owned());
            SessionSpec {
                name: format!("{RUN}-n0-a{attempt}"),
                cwd: PathBuf::from("/project"),
                run_env: vec![var("RUN_ID", RUN), var("NODE_ID", "n0"), var("VISIT", "1"), var("ATTEMPT", attempt)],
                ..SessionSpec::default()
            }
        };
        let events = json!([{ "type": "node_state", "node": "n0", "state": "running", "visit": 1, "attempt": 1 }]);
        let run = RunId::parse(RUN).unwrap();
        journal.taken(&run, 1, Some((&[], &json!({}))));
        journal.committed(&run, 2, events.as_array().unwrap());
        let first = agents.begin(&asked("1"));
        journal.rules()?;
        let second = agents.begin(&asked(attempt));
        drop((first, second));
        journal.rules()
    }
}

/// What all lives of a case share.
pub struct World<'a> {
    pub case: &'a Case,
    pub fs: MemoryFs,
    pub clock: Arc<ModelClock>,
    pub faults: Arc<Faults>,
    pub agents: Agents,
    /// Deeds that are done, by their place.
    pub done: Arc<Mutex<BTreeSet<usize>>>,
    /// Name of the machine.
    host: &'static str,
}

impl<'a> World<'a> {
    fn new(case: &'a Case) -> Self {
        let fs = MemoryFs::new(&["/home/state/wf", "/project"]);
        let clock = Arc::new(ModelClock::default());
        clock.boot_is_wall.store(case.boot_is_wall, Ordering::SeqCst);
        let failing = |f: &Fault| matches!(f, Fault::FailsBefore | Fault::FailsAfter);
        if case.faults.values().any(failing) {
            clock.be_lenient();
        }
        let faults = Arc::new(Faults { at: Mutex::new(case.faults.clone()), ..Faults::default() });
        let agents = Agents {
            script: Script { seed: case.seed },
            flow: Arc::new(case.flow.clone()),
            journal: Journal::new(clock.clone()),
            fs: fs.clone(),
            clock: clock.clone(),
            project: PathBuf::from("/project"),
            alive: Arc::default(),
        };
        Self { case, fs, clock, faults, agents, done: Arc::default(), host: "here" }
    }

    /// One life: the record when the run ended in it.
    fn life(&self, number: usize) -> Result<Option<RunRecord>, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .max_blocking_threads(2)
            .build()
            .unwrap();
        let life = Arc::new(Life::default());
        let ended = runtime.block_on(async {
            self.clock.begin();
            let work = async {
                let kernel = self.kernel(&life, number, Role::Executor);
                let driver = Driver { world: self, kernel, life: life.clone(), number };
                driver.run().await
            };
            let ended = tokio::select! {
                biased;
                () = life.died.notified() => Ok(None),
                ended = work => ended.map(Some),
                () = tokio::time::sleep(GUARD) => Err(self.hang()),
            };
            self.clock.end(Duration::from_millis(self.case.pause_ms));
            ended
        });
        drop(runtime);
        match self.agents.living() {
            0 => ended,
            n => Err(format!("{n} agents outlived their process")),
        }
    }

    fn hang(&self) -> String {
        let stand = |run: &RunId| format!("{run}: {:?}", self.agents.journal.with(run, |r| (r.state, r.nodes.clone())));
        let runs: Vec<String> = self.agents.journal.runs().iter().map(stand).collect();
        format!("nothing happens any more: {}", runs.join("; "))
    }

    /// The files as a process opens them.
    pub fn store(&self, number: usize) -> FileStore {
        FileStore::open(Options {
            home: PathBuf::from("/home/state"),
            wf_dir: PathBuf::from("/home/state/wf"),
            fs: Arc::new(self.fs.clone()),
            clock: self.clock.clone(),
            instance: format!("life-{number}"),
            host: self.host.to_owned(),
            pid: std::process::id(),
            min_free: 0,
        })
        .unwrap()
    }

    /// A kernel as a process would make it.
    pub fn kernel(&self, life: &Arc<Life>, number: usize, role: Role) -> Kernel {
        let fs: Arc<dyn Fs> = Arc::new(self.fs.clone());
        let clock: Arc<dyn Clock> = self.clock.clone();
        let inner = self.store(number);
        let store = FaultyStore {
            inner,
            faults: self.faults.clone(),
            life: life.clone(),
            journal: self.agents.journal.clone(),
            forgery: self.case.forgery.filter(|_| number > 0),
        };
        let config = Arc::new(config());
        let redactor = Arc::new(Redactor::new(Vec::new()));
        let git = Git { fs: fs.clone(), program: PathBuf::from("git") };
        let verifier = Verifier {
            fs: fs.clone(),
            clock: clock.clone(),
            git: git.clone(),
            supervisor: supervise::Options { program: config.program.clone(), owner: "model".to_owned() },
            base_env: Vec::new(),
            full_env: Arc::default(),
            redactor: redactor.clone(),
            chrome: None,
        };
        let engines: Vec<Arc<dyn Engine>> = vec![Arc::new(self.agents.clone())];
        let limits = Limits::default();
        let registry = Arc::new(Registry::of(config.clone(), "model", clock.clone(), fs.clone(), limits, engines));
        let pool = Arc::new(Pool::new(registry.clone(), &config.home, fs.clone(), 64));
        let settings = sessions::Settings::with_ttl(std::time::Duration::from_secs(60));
        let sessions =
            Sessions::new(config.clone(), pool.clone(), fs.clone(), clock.clone(), redactor.clone(), settings);
        let services = Services { config, fs, clock, git, verifier, registry, pool, sessions, redactor };
        Kernel::new(Arc::new(services), Arc::new(store), role)
    }
}

fn config() -> Config {
    Config {
        home: PathBuf::from("/home/state"),
        wf_dir: PathBuf::from("/home/state/wf"),
        // Best effort and no part of what the model looks at.
        runs_dir: PathBuf::new(),
        daily_usd: None,
        prices: BTreeMap::new(),
        user_home: None,
        program: PathBuf::from("/bin/false"),
        default_engine: Some(agents::NAME.to_owned()),
        engine_bins: BTreeMap::new(),
        engine_env: BTreeMap::new(),
        max_sessions: None,
        sessions: claw_orchestrator::config::Sessions::default(),
        auto_resume: true,
        round_pause: std::time::Duration::ZERO,
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
        env: BTreeMap::new(),
    }
}

/// The end as a record tells it.
fn end_of(record: &RunRecord) -> End {
    End {
        state: record.state,
        outcome: record.outcome,
        reason: nameless(record.outcome_reason.as_deref().unwrap_or_default()),
        nodes: record.nodes.iter().map(|n| (n.id.clone(), n.state, n.visits)).collect(),
        turns: record.spend.turns,
        cents: (record.spend.cost_usd * 100.0).round() as u64,
        at_ms: 0,
    }
}

/// A reason without the name of a child run, which has the number of its attempt in it.
fn nameless(reason: &str) -> String {
    let parts: Vec<&str> = reason.split("child run '").collect();
    let rest = parts.iter().skip(1).map(|part| part.split_once('\'').map_or(*part, |(_, rest)| rest));
    parts.first().map(|first| (*first).to_owned()).into_iter().chain(rest.map(|r| format!("child run{r}"))).collect()
}
