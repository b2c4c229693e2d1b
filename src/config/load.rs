//! Puts the settings together: variables over the file over what is built in.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use super::{Config, Error, Server, Sessions, environment, file};
use crate::sys::{Fs, RealFs};

/// Name of the state directory below the user's home.
const HOME: &str = ".claw-orchestrator";

/// Port when none is set.
const PORT: u16 = 18796;

/// Requests a minute and address when nothing is set.
const RATE_LIMIT: u32 = 300;

/// Longest body when nothing is set.
const MAX_BODY_BYTES: usize = 5 << 20;

/// Milliseconds between two rounds of a council when nothing is set.
const ROUND_PAUSE_MS: u64 = 3_000;

/// What the command line says about where settings come from.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// State directory, instead of `CLAWO_HOME`.
    pub home: Option<PathBuf>,
    /// Configuration file, instead of `CLAWO_CONFIG`.
    pub config: Option<PathBuf>,
}

/// Settings of this process. Nothing is created or changed.
pub fn load(flags: &Flags) -> Result<Config, Error> {
    // Variables that are not UTF-8 reach nobody: neither we nor children could name them in JSON.
    let env =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut env: BTreeMap<String, String> = env.collect();
    // Some hosts start their servers with an almost empty environment; the account still has a home then, and
    // agents need it as much as we do.
    if env.get("HOME").is_none_or(String::is_empty)
        && let Some(dirs) = directories::BaseDirs::new()
        && let Some(home) = dirs.home_dir().to_str()
    {
        env.insert("HOME".to_owned(), home.to_owned());
    }
    let program = std::env::current_exe()
        .map_err(|e| Error::Variable { name: "the path of this program".to_owned(), reason: e.to_string() })?;
    Config::load(&RealFs, env, program, flags)
}

impl Config {
    /// Settings from `env` and the file it leads to. Nothing is created or changed.
    pub fn load(fs: &dyn Fs, env: BTreeMap<String, String>, program: PathBuf, flags: &Flags) -> Result<Self, Error> {
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
        let given = match &flags.home {
            Some(home) if !home.is_absolute() => {
                return Err(wrong("--home", format!("{} is not absolute; give the whole path", home.display())));
            }
            Some(home) => Some(home.clone()),
            None => absolute("CLAWO_HOME")?,
        };
        let home = match (given, &user_home) {
            (Some(home), _) => home,
            (None, Some(user)) => user.join(HOME),
            (None, None) => {
                return Err(wrong("CLAWO_HOME", "neither it nor HOME is set; set it to a directory".to_owned()));
            }
        };
        let named = flags.config.clone().or(absolute("CLAWO_CONFIG")?);
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
        let defaults = Sessions::default();
        Ok(Self {
            wf_dir: absolute("CLAWO_WF_DIR")?.unwrap_or_else(|| home.join("wf")),
            runs_dir: absolute("CLAWO_RUNS_DIR")?.unwrap_or_else(|| home.join("runs")),
            daily_usd: parsed.budget.daily_usd.filter(|usd| *usd > 0.0),
            prices: parsed.pricing,
            home,
            user_home,
            program,
            default_engine: get("CLAWO_DEFAULT_ENGINE").map(str::to_owned).or(parsed.sessions.default_engine),
            engine_bins,
            engine_env,
            max_sessions: narrow(number("CLAWO_MAX_SESSIONS", file::SESSIONS)?).or(parsed.sessions.max),
            sessions: Sessions {
                ttl: number("CLAWO_SESSION_TTL_MINUTES", file::TTL_MINUTES)?
                    .or(parsed.sessions.ttl_minutes)
                    .map(|minutes| Duration::from_secs(minutes * 60)),
                keep: parsed.sessions.persist_days.map_or(defaults.keep, |days| Duration::from_secs(days * 86_400)),
                model: parsed.sessions.default_model,
                permission_mode: parsed.sessions.default_permission_mode.unwrap_or(defaults.permission_mode),
            },
            auto_resume: parsed.workflow.auto_resume.unwrap_or_default(),
            round_pause: Duration::from_millis(parsed.council.inter_round_delay_ms.unwrap_or(ROUND_PAUSE_MS)),
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
pub(super) fn engine_of(variable: &str) -> Option<String> {
    let middle = variable.strip_prefix("CLAWO_")?.strip_suffix("_BIN")?;
    let engine = middle != "CHROME" && !middle.is_empty() && !middle.starts_with("CUSTOM_ENGINE_");
    engine.then(|| middle.to_ascii_lowercase().replace('_', "-"))
}

/// Checked against narrower bounds before.
fn narrow<T: TryFrom<u64>>(number: Option<u64>) -> Option<T> {
    number.and_then(|number| T::try_from(number).ok())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "real files for a test")]
mod tests {
    use super::*;
    use crate::{config::check_dir, model::Code};

    fn with(home: &std::path::Path, vars: &[(&str, &str)]) -> Result<Config, Error> {
        let mut env: BTreeMap<String, String> = vars.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        env.entry("CLAWO_HOME".to_owned()).or_insert(home.to_str().unwrap().to_owned());
        Config::load(&RealFs, env, "/bin/clawo".into(), &Flags::default())
    }

    #[test]
    fn variables_beat_the_file_and_the_file_beats_what_is_built_in() {
        let home = tempfile::tempdir().unwrap();
        let config = with(home.path(), &[]).unwrap();
        assert_eq!(
            (config.server.port, config.server.rate_limit, config.server.max_body_bytes),
            (18796, 300, 5_242_880)
        );
        assert_eq!((config.wf_dir, config.max_sessions, config.auto_resume), (home.path().join("wf"), None, false));
        let text = "[server]\nport = 1\nrate_limit = 7\n[sessions]\nmax = 3\n[engines.codex-app]\nbin = \"a\"\nenv = [\"X\"]\n\
                    [engines.claude]\nbin = \"b\"\n[workflow]\nauto_resume = true\n[council]\ninter_round_delay_ms = 0\n[mcp]\ntools = [\"x\"]\n[secrets]\nnames = [\"*_DSN\"]\n";
        std::fs::write(home.path().join("config.toml"), text).unwrap();
        let vars = [
            ("CLAWO_PORT", "0"),
            ("CLAWO_CODEX_APP_BIN", "/c"),
            ("CLAWO_CHROME_BIN", "/d"),
            ("CLAWO_MCP_TOOLS", "p, q,"),
        ];
        let config = with(home.path(), &vars).unwrap();
        assert_eq!((config.server.port, config.server.rate_limit, config.max_sessions), (0, 7, Some(3)));
        assert_eq!(config.round_pause, Duration::ZERO);
        let bins: Vec<_> =
            config.engine_bins.iter().map(|(name, bin)| (name.as_str(), bin.to_str().unwrap())).collect();
        assert_eq!(bins, [("claude", "b"), ("codex-app", "/c")]);
        assert_eq!((config.tools.unwrap(), config.auto_resume), (vec!["p".to_owned(), "q".to_owned()], true));
        assert_eq!((config.chrome.unwrap(), config.secret_names), (PathBuf::from("/d"), vec!["*_DSN".to_owned()]));
    }

    #[test]
    fn mistakes_name_line_and_key() {
        let home = tempfile::tempdir().unwrap();
        for (text, line, key) in [
            ("[server]\n\nport = \"x\"\n", 3, "server.port"),
            ("[server]\nport = 70000\n", 2, "server.port"),
            ("[server]\nrate_limit = 0\n", 2, "server.rate_limit"),
            ("[sessions]\nmax = -1\n", 2, "sessions.max"),
            ("[council]\ninter_round_delay_ms = -1\n", 2, "council.inter_round_delay_ms"),
            ("[server]\nhost = \"a\"\nprot = 1\n", 3, "server.prot"),
            ("[sever]\nport = 1\n", 1, "sever"),
            ("[mcp]\ntools = [1]\n", 2, "mcp.tools"),
            ("[budget]\ndaily_usd = \"much\"\n", 2, "budget.daily_usd"),
            ("[pricing.\"m-1\"]\ninput = 1.0\nimput = 2.0\n", 3, "pricing.\"m-1\".imput"),
            ("[pricing.\"m-1\"]\noutput = -1.0\n", 2, "pricing.\"m-1\".output"),
            ("[mcp]\ntools = [\n", 2, "mcp.tools"),
        ] {
            std::fs::write(home.path().join("config.toml"), text).unwrap();
            match with(home.path(), &[]) {
                Err(Error::File { line: seen, key: named, reason, .. }) => {
                    assert_eq!((seen, named.as_str()), (line, key), "{text}: {reason}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
        std::fs::remove_file(home.path().join("config.toml")).unwrap();
        for vars in [
            [("CLAWO_HOME", "relative")],
            [("CLAWO_PORT", "65536")],
            [("CLAWO_PORT", "many")],
            [("CLAWO_MAX_SESSIONS", "0")],
            [("CLAWO_WF_DIR", "wf")],
        ] {
            let error = with(home.path(), &vars).unwrap_err();
            assert!(matches!(&error, Error::Variable { name, .. } if name == vars[0].0), "{error}");
        }
        // A file that was asked for has to be there.
        assert!(matches!(with(home.path(), &[("CLAWO_CONFIG", "/no/such/file")]), Err(Error::Unreadable(_))));
    }

    #[test]
    fn directories_follow_the_rule() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        // PA-2: spaces and brackets everywhere.
        let user = root.join("My Folder (1) & co");
        let (home, project) = (user.join(".state"), user.join("project"));
        for dir in [&home, &project, &user.join(".ssh/deep")] {
            std::fs::create_dir_all(dir).unwrap();
        }
        std::fs::write(project.join("file"), "").unwrap();
        std::os::unix::fs::symlink(&project, user.join("good")).unwrap();
        std::os::unix::fs::symlink(user.join(".ssh"), project.join("bad")).unwrap();
        let config = with(&home, &[("HOME", user.to_str().unwrap())]).unwrap();
        let check = |path: PathBuf| check_dir(&RealFs, &config, &path).map_err(|(code, _)| code);
        assert_eq!(check(project.clone()), Ok(project.clone()));
        assert_eq!(check(user.join("good/../good/.")), Ok(project.clone()));
        for refused in ["/", "/etc", "/etc/none", "/proc/self", "/sbin", "/usr/../etc", "/var/log", "/run/../var/run"] {
            assert_eq!(check(refused.into()), Err(Code::PathRefused), "{refused}");
        }
        for refused in
            [user.join(".ssh"), user.join(".ssh/deep"), home.clone(), home.join("wf"), project.join("bad/deep")]
        {
            assert_eq!(check(refused.clone()), Err(Code::PathRefused), "{}", refused.display());
        }
        assert_eq!(check(user.join("none")), Err(Code::PathNotFound));
        assert_eq!(check(project.join("file")), Err(Code::PathNotDirectory));
        assert_eq!(check("relative".into()), Err(Code::InvalidArgument));
        // Only whole names count.
        std::fs::create_dir(user.join(".sshx")).unwrap();
        assert!(check(user.join(".sshx")).is_ok());
    }
}
