//! Builds everything and decides the order of shutdown.

use std::{path::PathBuf, sync::Arc, time::Duration};

use crate::{
    config::{Config, environment},
    engines::{Pool, Registry},
    git::Git,
    kernel::{Kernel, Role},
    nodes::{
        Services,
        read_only::ReadOnly,
        sessions::{self, Sessions},
    },
    store::{FileStore, MIN_FREE, Options},
    sys::{
        Clock, Fs, RealFs, SystemClock, host_name,
        instance::{self, Instance},
        redact::Redactor,
        supervise, tasks,
    },
    verify::Verifier,
};

/// Live agent sessions under `clawo mcp` and for single commands, which share a desktop with its user.
const SESSIONS_DESKTOP: usize = 5;
/// Live agent sessions under `clawo serve`.
const SESSIONS_SERVER: usize = 32;

/// How long an idle named session keeps its program under `clawo mcp` and for single commands.
const TTL_DESKTOP: Duration = Duration::from_secs(120 * 60);
/// The same under `clawo serve`, whose slots more people want.
const TTL_SERVER: Duration = Duration::from_secs(60 * 60);

/// What a process does with the state directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One command that executes what it starts and waits for it.
    Command,
    /// One command that only records what it asks for.
    Record,
    /// `clawo mcp`.
    Stdio,
    /// `clawo serve`.
    Serve,
}

/// Everything of a process.
#[derive(Debug)]
pub struct App {
    /// Runs.
    pub kernel: Kernel,
    /// Where runs are kept; the kernel has the same one.
    pub store: FileStore,
    /// All file access.
    pub fs: Arc<dyn Fs>,
    /// Times.
    pub clock: Arc<dyn Clock>,
    /// Settings.
    pub config: Arc<Config>,
    /// Engines.
    pub registry: Arc<Registry>,
    /// Agents.
    pub pool: Arc<Pool>,
    /// Named sessions.
    pub sessions: Sessions,
    /// This process's place in the home; children carry its id.
    _place: Instance,
}

impl App {
    /// Builds everything over the state directory. Blocking work goes to the blocking pool.
    pub async fn open(config: Config, mode: Mode) -> anyhow::Result<Self> {
        tasks::blocking("open", move || Self::build(config, mode)).await?
    }

    fn build(config: Config, mode: Mode) -> anyhow::Result<Self> {
        let fs: Arc<dyn Fs> = Arc::new(RealFs);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        if let Err(e) = supervise::become_subreaper() {
            tracing::warn!(error = %e, "orphans of a killed supervisor will not be seen");
        }
        // What a crashed server left running ends before any of its runs can be taken over.
        for dead in instance::recover(fs.as_ref(), clock.as_ref(), &config.home)? {
            tracing::debug!(owner = dead.id, swept = ?dead.swept, "looked after a dead server");
        }
        let place = Instance::register(fs.clone(), clock.as_ref(), &config.home)?;
        let instance = place.id().to_owned();
        let store = FileStore::open(Options {
            home: config.home.clone(),
            wf_dir: config.wf_dir.clone(),
            fs: fs.clone(),
            clock: clock.clone(),
            instance: instance.clone(),
            host: host_name(),
            pid: std::process::id(),
            min_free: MIN_FREE,
        })?;
        let config = Arc::new(config);
        let cleaned = environment::clean(&config.env, &config.secret_names);
        let redactor = Arc::new(Redactor::new(cleaned.dropped_values));
        let git = Git { fs: fs.clone(), program: PathBuf::from("git") };
        let verifier = Verifier {
            fs: fs.clone(),
            clock: clock.clone(),
            git: git.clone(),
            supervisor: supervise::Options { program: config.program.clone(), owner: instance.clone() },
            base_env: cleaned.kept,
            full_env: Arc::new(config.env.clone()),
            redactor: redactor.clone(),
            chrome: config.chrome.clone(),
        };
        let registry = Arc::new(Registry::new(config.clone(), instance, clock.clone(), fs.clone()));
        let sessions = config.max_sessions.unwrap_or(match mode {
            Mode::Command | Mode::Record | Mode::Stdio => SESSIONS_DESKTOP,
            Mode::Serve => SESSIONS_SERVER,
        });
        let isolation = Arc::new(ReadOnly::new(git.clone(), &config.home));
        let pool = Arc::new(Pool::new(registry.clone(), &config.home, fs.clone(), sessions).with_isolation(isolation));
        let ttl = config.sessions.ttl.unwrap_or(match mode {
            Mode::Command | Mode::Record | Mode::Stdio => TTL_DESKTOP,
            Mode::Serve => TTL_SERVER,
        });
        let settings = sessions::Settings { keep: config.sessions.keep, ..sessions::Settings::with_ttl(ttl) };
        let named = Sessions::new(config.clone(), pool.clone(), fs.clone(), clock.clone(), redactor.clone(), settings);
        let services = Services {
            config: config.clone(),
            fs: fs.clone(),
            clock: clock.clone(),
            git,
            verifier,
            registry: registry.clone(),
            pool: pool.clone(),
            sessions: named.clone(),
            redactor,
        };
        let role = match mode {
            Mode::Record => Role::Recorder,
            Mode::Command | Mode::Stdio | Mode::Serve => Role::Executor,
        };
        let kernel = Kernel::new(Arc::new(services), Arc::new(store.clone()), role);
        Ok(Self { kernel, store, fs, clock, config, registry, pool, sessions: named, _place: place })
    }

    /// Ends what runs, leaves every run and every session resumable.
    pub async fn shutdown(self) {
        tokio::join!(self.kernel.shutdown(), self.sessions.shutdown());
    }
}
