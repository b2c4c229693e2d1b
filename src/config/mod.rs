//! What the process was told by its environment and `config.toml`, read once and then unchanged.
//!
//! The only place that reads environment variables. Decides nothing.

pub mod environment;
pub mod file;
mod load;
pub mod paths;
pub mod show;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

pub use load::{Flags, load};
pub use paths::check_dir;

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A variable.
    #[error("failed to read {name}: {reason}")]
    Variable {
        /// Its name.
        name: String,
        /// What is wrong; never its value when that may be a secret.
        reason: String,
    },
    /// A place in the file.
    #[error("failed to read {}, line {line}, {key}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// The key with its table.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// The whole file.
    #[error("failed to read the configuration: {0}")]
    Unreadable(#[from] crate::sys::FsError),
}

/// Effective settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// State directory.
    pub home: PathBuf,
    /// Directory of the runs.
    pub wf_dir: PathBuf,
    /// Directory of the ledger of turns; empty when none is kept.
    pub runs_dir: PathBuf,
    /// US dollars of a UTC day after which no new turn starts; absent means no limit.
    pub daily_usd: Option<f64>,
    /// Prices of models set by the user, by model.
    pub prices: BTreeMap<String, file::PriceTable>,
    /// The user's home directory, for the directory rule.
    pub user_home: Option<PathBuf>,
    /// This program.
    pub program: PathBuf,
    /// Engine used where a spec names none.
    pub default_engine: Option<String>,
    /// Programs of engines set by the user, by engine name.
    pub engine_bins: BTreeMap<String, PathBuf>,
    /// Variables let through to an engine beyond its own list, by engine name.
    pub engine_env: BTreeMap<String, Vec<String>>,
    /// Most live agent sessions; absent means the default of the command.
    pub max_sessions: Option<usize>,
    /// Named sessions.
    pub sessions: Sessions,
    /// Whether a starting server continues orphaned runs.
    pub auto_resume: bool,
    /// Pause between two rounds of a council.
    pub round_pause: Duration,
    /// Browser for captures.
    pub chrome: Option<PathBuf>,
    /// Only these tools are offered.
    pub tools: Option<Vec<String>>,
    /// Extra name patterns of variables that count as secret.
    pub secret_names: Vec<String>,
    /// Server settings.
    pub server: Server,
    /// The whole environment at start.
    pub env: BTreeMap<String, String>,
}

/// Settings of named sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sessions {
    /// How long an idle one keeps its program; absent means the default of the command.
    pub ttl: Option<Duration>,
    /// How long one is known after its last activity.
    pub keep: Duration,
    /// Model where none is said.
    pub model: Option<String>,
    /// Permission mode where none is said and the engine has it.
    pub permission_mode: String,
}

impl Default for Sessions {
    fn default() -> Self {
        let keep = Duration::from_secs(7 * 24 * 60 * 60);
        Self { ttl: None, keep, model: None, permission_mode: "acceptEdits".to_owned() }
    }
}

/// Settings of `clawo serve`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Address to bind.
    pub host: String,
    /// Port to bind.
    pub port: u16,
    /// Further `Host` values accepted.
    pub allowed_hosts: Vec<String>,
    /// Further `Origin` values accepted.
    pub allowed_origins: Vec<String>,
    /// Requests a minute and address.
    pub rate_limit: u32,
    /// Longest body in bytes.
    pub max_body_bytes: usize,
    /// Bearer token given by the environment.
    pub token: Option<String>,
}
