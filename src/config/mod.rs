//! What the process was told by its environment and `config.toml`, read once and then unchanged.
//!
//! The only place that reads environment variables. Decides nothing.

pub mod environment;
pub mod paths;

use std::{collections::BTreeMap, path::PathBuf};

/// Effective settings.
#[derive(Debug, Clone)]
pub struct Config {
    /// State directory.
    pub home: PathBuf,
    /// Directory of the runs.
    pub wf_dir: PathBuf,
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
    /// Whether a starting server continues orphaned runs.
    pub auto_resume: bool,
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

/// STUB until the settings are merged.
#[derive(Debug, Default)]
pub struct Flags {
    /// Home.
    pub home: Option<PathBuf>,
    /// File.
    pub config: Option<PathBuf>,
}

/// STUB.
#[expect(clippy::disallowed_methods, reason = "stub")]
pub fn load(flags: &Flags) -> Result<Config, String> {
    let env: BTreeMap<String, String> = std::env::vars().collect();
    let home = flags.home.clone().or_else(|| env.get("CLAWO_HOME").map(PathBuf::from)).unwrap_or_default();
    Ok(Config {
        wf_dir: home.join("wf"),
        home,
        user_home: env.get("HOME").map(PathBuf::from),
        program: std::env::current_exe().unwrap_or_default(),
        default_engine: None,
        engine_bins: BTreeMap::new(),
        engine_env: BTreeMap::new(),
        max_sessions: None,
        auto_resume: false,
        chrome: None,
        tools: None,
        secret_names: Vec::new(),
        server: Server {
            host: "127.0.0.1".into(),
            port: 18796,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            rate_limit: 300,
            max_body_bytes: 5 << 20,
            token: None,
        },
        env,
    })
}
