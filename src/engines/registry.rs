//! Which engines there are, and which one answers when a spec names none.

use std::{ffi::OsString, path::PathBuf, sync::Arc};

use super::{
    Engine, Limits, SessionSpec, acp, agy, claude, codex, codex_app, custom, environment, grok, opencode,
    process::Launch, scripted,
};
use crate::{
    config::Config,
    model::{Code, spec::EngineChoice},
    sys::{
        Clock, Fs, fs,
        redact::Redactor,
        supervise::{self, ChildSpec, Stdin},
    },
};

/// Engines of this version.
const NAMES: &[&str] = &[
    claude::NAME,
    codex::NAME,
    codex_app::NAME,
    opencode::NAME,
    acp::NAME,
    agy::NAME,
    grok::NAME,
    custom::NAME,
    scripted::NAME,
];
/// Those that answer when a spec names none, the first one found.
const DEFAULTS: &[&str] = &[claude::NAME, codex::NAME, opencode::NAME];
/// Names of old and what took their place.
const LEGACY: &[(&str, &str)] =
    &[("gemini", "`acp` with the gemini preset, or `agy`"), ("cursor", "`acp` with a preset, or `grok`")];

/// What adapters share.
#[derive(Debug)]
pub(crate) struct Context {
    /// Settings.
    pub(crate) config: Arc<Config>,
    /// Id of this server, put into the environment of everything it starts.
    pub(crate) owner: String,
    /// Time.
    pub(crate) clock: Arc<dyn Clock>,
    /// Files.
    pub(crate) fs: Arc<dyn Fs>,
    /// Clocks of every session.
    pub(crate) limits: Limits,
}

impl Context {
    /// A program of a session, under its launcher.
    pub(crate) fn launch(
        &self,
        engine: &'static str,
        program: PathBuf,
        args: Vec<OsString>,
        env: environment::ChildEnv,
        spec: &SessionSpec,
        stdin: Stdin,
    ) -> Launch {
        let (program, args) = match spec.options.launcher.split_first() {
            Some((first, rest)) => {
                let before = rest.iter().map(OsString::from).chain([program.into_os_string()]);
                (PathBuf::from(first), before.chain(args).collect())
            }
            None => (program, args),
        };
        let writable = spec.options.writable.clone().map(|mut paths| {
            paths.extend(state_dirs(self.fs.as_ref(), engine, &env.vars));
            paths
        });
        Launch {
            engine,
            child: ChildSpec { program, args, env: env.vars, cwd: spec.cwd.clone(), stdin, writable },
            supervise: self.supervise(),
            redactor: Redactor::new(env.secrets),
            limits: self.limits,
            clock: Arc::clone(&self.clock),
        }
    }

    /// How the supervisor of a session is started.
    pub(crate) fn supervise(&self) -> supervise::Options {
        supervise::Options { program: self.config.program.clone(), owner: self.owner.clone() }
    }
}

/// Directories in which the program of an engine keeps its own state, below the home directory of the account. One
/// that must not write anything else still logs in, keeps transcripts and caches.
const STATE: &[(&str, &[&str])] = &[
    (claude::NAME, &[".claude"]),
    (codex::NAME, &[".codex"]),
    (codex_app::NAME, &[".codex"]),
    (opencode::NAME, OPENCODE),
    (agy::NAME, &[".gemini"]),
    (grok::NAME, &[".grok"]),
];
const OPENCODE: &[&str] = &[".cache/opencode", ".config/opencode", ".local/share/opencode", ".local/state/opencode"];
/// The same for agents of which only the protocol is known; what is not there is not made.
const OTHERS: &[&str] = &[
    ".cache",
    ".claude",
    ".codex",
    ".config/goose",
    ".config/opencode",
    ".gemini",
    ".kimi",
    ".local/share/goose",
    ".local/share/opencode",
    ".local/state/goose",
    ".local/state/opencode",
];
/// Files of theirs beside these directories.
const FILES: &[&str] = &[".claude.json"];
/// Variables that name further ones.
const STATE_VARIABLES: &[&str] =
    &["CLAUDE_CONFIG_DIR", "CODEX_HOME", "KIMI_SHARE_DIR", "OPENCODE_CONFIG_DIR", "XDG_CACHE_HOME", "XDG_STATE_HOME"];

/// Where a program of `engine` with these variables keeps its state. Its own directories are made, because only what is
/// there can be named to the kernel.
fn state_dirs(fs: &dyn Fs, engine: &str, vars: &[(OsString, OsString)]) -> Vec<PathBuf> {
    let get = |name: &str| vars.iter().find(|(n, _)| n == name).map(|(_, value)| PathBuf::from(value));
    let own = STATE.iter().find(|(name, _)| *name == engine).map(|(_, dirs)| *dirs);
    let mut paths = Vec::new();
    if let Some(home) = get("HOME") {
        paths.extend(own.unwrap_or(OTHERS).iter().chain(FILES).map(|dir| home.join(dir)));
        for dir in own.into_iter().flatten() {
            let dir = home.join(dir);
            if let Err(e) = fs::create_dir_all(fs, &dir) {
                tracing::warn!(engine, error = %e, "the engine cannot keep its state");
            }
        }
    }
    paths.extend(STATE_VARIABLES.iter().filter_map(|name| get(name)));
    paths.extend(get("XDG_DATA_HOME").into_iter().flat_map(|dir| [dir.join("opencode"), dir.join("goose")]));
    paths
}

/// Why no engine answers to a choice.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Is gone.
    #[error("engine `{name}` is no longer supported; its replacement is {replacement}")]
    Legacy {
        /// What was asked for.
        name: String,
        /// What to use.
        replacement: &'static str,
    },
    /// Never was.
    #[error("no engine is called `{name}`; use one of {}", NAMES.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
    },
    /// The program is not there.
    #[error("{0}")]
    Unavailable(String),
    /// The choice names no program, or one that is not there.
    #[error("{0}")]
    Choice(String),
}

impl Refusal {
    /// Its stable code.
    pub fn code(&self) -> Code {
        match self {
            Self::Legacy { .. } | Self::Unknown { .. } => Code::InvalidArgument,
            Self::Unavailable(_) | Self::Choice(_) => Code::EngineUnavailable,
        }
    }
}

/// The table of engines.
#[derive(Debug, Clone)]
pub struct Registry {
    context: Arc<Context>,
    engines: Vec<Arc<dyn Engine>>,
}

impl Registry {
    /// The engines of this version. `owner` is the id of this server instance.
    pub fn new(config: Arc<Config>, owner: impl Into<String>, clock: Arc<dyn Clock>, fs: Arc<dyn Fs>) -> Self {
        Self::with_limits(config, owner, clock, fs, Limits::default())
    }

    /// The same with other clocks.
    pub fn with_limits(
        config: Arc<Config>,
        owner: impl Into<String>,
        clock: Arc<dyn Clock>,
        fs: Arc<dyn Fs>,
        limits: Limits,
    ) -> Self {
        let mut registry = Self::of(config, owner, clock, fs, limits, Vec::new());
        registry.engines = vec![
            Arc::new(claude::Claude::new(Arc::clone(&registry.context))),
            Arc::new(codex::Codex::new(Arc::clone(&registry.context))),
            Arc::new(opencode::Opencode::new(Arc::clone(&registry.context))),
            Arc::new(agy::Agy::new(Arc::clone(&registry.context))),
            Arc::new(grok::Grok::new(Arc::clone(&registry.context))),
            Arc::new(custom::Custom::new(Arc::clone(&registry.context))),
            Arc::new(codex_app::CodexApp::new(Arc::clone(&registry.context))),
            Arc::new(acp::Acp::new(Arc::clone(&registry.context))),
            Arc::new(scripted::Scripted::new(Arc::clone(&registry.context))),
        ];
        registry
    }

    /// A table of these engines alone.
    pub fn of(
        config: Arc<Config>,
        owner: impl Into<String>,
        clock: Arc<dyn Clock>,
        fs: Arc<dyn Fs>,
        limits: Limits,
        engines: Vec<Arc<dyn Engine>>,
    ) -> Self {
        Self { context: Arc::new(Context { config, owner: owner.into(), clock, fs, limits }), engines }
    }

    /// Names a spec can use.
    pub fn names() -> &'static [&'static str] {
        NAMES
    }

    /// Every engine, found or not.
    pub fn all(&self) -> &[Arc<dyn Engine>] {
        &self.engines
    }

    /// What adapters share.
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The engine called `name`, whether or not its program is there.
    pub fn get(&self, name: &str) -> Result<Arc<dyn Engine>, Refusal> {
        if let Some(engine) = self.engines.iter().find(|e| e.name() == name) {
            return Ok(Arc::clone(engine));
        }
        let name = name.to_owned();
        if let Some((_, replacement)) = LEGACY.iter().find(|(old, _)| *old == name) {
            return Err(Refusal::Legacy { name, replacement });
        }
        Err(Refusal::Unknown { name })
    }

    /// The engine that answers to `choice`; its program is there.
    pub fn resolve(&self, choice: &EngineChoice) -> Result<Arc<dyn Engine>, Refusal> {
        let implied = choice.acp_agent.as_ref().map(|_| acp::NAME);
        let asked = choice.engine.as_deref().or(implied).or(self.context.config.default_engine.as_deref());
        if let Some(name) = asked {
            let engine = self.get(name)?;
            if implied.is_some_and(|acp| acp != name) {
                let text = format!("engine `{name}` runs no acp agent; use engine \"acp\" or leave `acpAgent` out");
                return Err(Refusal::Choice(text));
            }
            if engine.program_of(choice).is_some() || engine.program_in_options() {
                return Ok(engine);
            }
            // What is wrong with the choice says more than that nothing answers to it.
            return Err(match engine.check(choice).into_iter().next() {
                Some(problem) => Refusal::Choice(problem),
                None => self.missing(name),
            });
        }
        let mut real = DEFAULTS.iter().filter_map(|name| self.engines.iter().find(|e| e.name() == *name));
        real.find(|e| e.program_of(choice).is_some()).map(Arc::clone).ok_or_else(|| {
            Refusal::Unavailable(
                "no engine was found; install Claude Code (npm install -g @anthropic-ai/claude-code), Codex (npm install \
                 -g @openai/codex) or OpenCode (npm install -g opencode-ai), or name its program in CLAWO_CLAUDE_BIN, \
                 CLAWO_CODEX_BIN or CLAWO_OPENCODE_BIN, or try the same without one: engine \"scripted\", model \
                 \"demo-solve\""
                    .to_owned(),
            )
        })
    }

    fn missing(&self, name: &str) -> Refusal {
        let set = self.context.config.engine_bins.get(name);
        let place = set.map_or_else(|| "on PATH".to_owned(), |p| format!("at {}", p.display()));
        let upper = name.to_ascii_uppercase().replace('-', "_");
        Refusal::Unavailable(format!(
            "the program of engine `{name}` was not found {place}; install it or name it in CLAWO_{upper}_BIN, or try \
             the same with engine \"scripted\""
        ))
    }
}
