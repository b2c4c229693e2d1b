//! Puts the settings together: variables over the file over what is built in.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{Config, Error, Server, environment, file};
use crate::sys::Fs;

/// Name of the state directory below the user's home.
const HOME: &str = ".claw-orchestrator";

/// Port when none is set.
const PORT: u16 = 18796;

/// Requests a minute and address when nothing is set.
const RATE_LIMIT: u32 = 300;

/// Longest body when nothing is set.
const MAX_BODY_BYTES: usize = 5 << 20;

impl Config {
    /// Settings of this process. `file` is the file named on the command line, if any.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    pub fn from_process(fs: &dyn Fs, file: Option<&Path>) -> Result<Self, Error> {
        // Variables that are not UTF-8 reach nobody: neither we nor children could name them in JSON.
        let env =
            std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let program = std::env::current_exe()
            .map_err(|e| Error::Variable { name: "the path of this program".to_owned(), reason: e.to_string() })?;
        Self::load(fs, env.collect(), program, file)
    }

    /// Settings from `env` and the file it leads to. Nothing is created or changed.
    pub fn load(
        fs: &dyn Fs,
        env: BTreeMap<String, String>,
        program: PathBuf,
        file: Option<&Path>,
    ) -> Result<Self, Error> {
        let get = |name: &str| env.get(name).map(String::as_str).filter(|value| !value.is_empty());
        let wrong = |name: &str, reason: String| Error::Variable { name: name.to_owned(), reason };
        let absolute = |name: &str| match get(name).map(PathBuf::from) {
            Some(path) if !path.is_absolute() => {
                Err(wrong(name, format!("{} is not absolute; give the whole path", path.display())))
            }
            other => Ok(other),
        };
        let number = |name: &str, bounds: (u64, u64)| match get(name) {
            None => Ok(None),
            Some(text) => {
                let parsed = text.trim().parse::<i128>().map_err(|_| format!("'{text}' is not a whole number"));
                parsed.and_then(|number| file::bounded::<u64>(number, bounds)).map(Some).map_err(|e| wrong(name, e))
            }
        };

        let user_home = absolute("HOME").ok().flatten();
        let home = match (absolute("CLAWO_HOME")?, &user_home) {
            (Some(home), _) => home,
            (None, Some(user)) => user.join(HOME),
            (None, None) => {
                return Err(wrong("CLAWO_HOME", "neither it nor HOME is set; set it to a directory".to_owned()));
            }
        };
        let named = file.map(Path::to_path_buf).or(absolute("CLAWO_CONFIG")?);
        let path = named.clone().unwrap_or_else(|| home.join("config.toml"));
        let parsed = match fs.read(&path) {
            Ok(bytes) => {
                let text = String::from_utf8(bytes).map_err(|e| Error::File {
                    path: path.clone(),
                    line: e.as_bytes().iter().take(e.utf8_error().valid_up_to()).filter(|b| **b == b'\n').count() + 1,
                    key: "(file)".to_owned(),
                    reason: "it is not UTF-8".to_owned(),
                })?;
                file::parse(&path, &text)?
            }
            // Only a file that somebody named has to be there.
            Err(e) if e.is_not_found() && named.is_none() => file::File::default(),
            Err(e) => return Err(e.into()),
        };

        let mut engine_bins: BTreeMap<String, PathBuf> = BTreeMap::new();
        let mut engine_env = BTreeMap::new();
        for (name, engine) in parsed.engines {
            engine_bins.extend(engine.bin.map(|bin| (name.clone(), PathBuf::from(bin))));
            engine_env.insert(name, engine.env);
        }
        for (name, value) in &env {
            if let Some(engine) = engine_of(name).filter(|_| !value.is_empty()) {
                engine_bins.insert(engine, PathBuf::from(value));
            }
        }
        let list =
            |text: &str| text.split(',').map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect();
        let server = Server {
            host: get("CLAWO_HOST").map(str::to_owned).or(parsed.server.host).unwrap_or("127.0.0.1".to_owned()),
            port: narrow(number("CLAWO_PORT", (0, u64::from(u16::MAX)))?).or(parsed.server.port).unwrap_or(PORT),
            allowed_hosts: parsed.server.allowed_hosts,
            allowed_origins: parsed.server.allowed_origins,
            rate_limit: narrow(number("CLAWO_RATE_LIMIT", file::RATE_LIMIT)?)
                .or(parsed.server.rate_limit)
                .unwrap_or(RATE_LIMIT),
            max_body_bytes: parsed.server.max_body_bytes.unwrap_or(MAX_BODY_BYTES),
            token: get("CLAWO_SERVER_TOKEN").map(str::to_owned),
        };
        Ok(Self {
            wf_dir: absolute("CLAWO_WF_DIR")?.unwrap_or_else(|| home.join("wf")),
            home,
            user_home,
            program,
            default_engine: get("CLAWO_DEFAULT_ENGINE").map(str::to_owned).or(parsed.sessions.default_engine),
            engine_bins,
            engine_env,
            max_sessions: narrow(number("CLAWO_MAX_SESSIONS", file::SESSIONS)?).or(parsed.sessions.max),
            auto_resume: parsed.workflow.auto_resume.unwrap_or_default(),
            chrome: get("CLAWO_CHROME_BIN").map(PathBuf::from),
            tools: get("CLAWO_MCP_TOOLS").map(list).or(parsed.mcp.tools),
            secret_names: parsed.secrets.names,
            server,
            env,
        })
    }

    /// The environment for children, and the values kept from them.
    pub fn clean_env(&self) -> environment::Cleaned {
        environment::clean(&self.env, &self.secret_names)
    }
}

/// `CODEX_APP` of `CLAWO_CODEX_APP_BIN`, as the engine is called.
fn engine_of(variable: &str) -> Option<String> {
    let middle = variable.strip_prefix("CLAWO_")?.strip_suffix("_BIN")?;
    let engine = middle != "CHROME" && !middle.is_empty() && !middle.starts_with("CUSTOM_ENGINE_");
    engine.then(|| middle.to_ascii_lowercase().replace('_', "-"))
}

/// Checked against narrower bounds before.
fn narrow<T: TryFrom<u64>>(number: Option<u64>) -> Option<T> {
    number.and_then(|number| T::try_from(number).ok())
}
