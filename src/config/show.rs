//! Every setting with its value and where the value comes from. Secrets are masked; nothing is changed.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{Config, Error, Flags, file, load::engine_of};
use crate::sys::Fs;

/// What stands for a secret that is set.
const MASK: &str = "(set)";

/// One effective setting.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Setting {
    /// Key as in `config.toml`; `home` and a few others have only a variable.
    pub key: String,
    /// Its value; null when nothing is set and the command decides.
    pub value: Value,
    /// `built in`, or the flag, the variable or the file that decided.
    pub origin: String,
}

/// The settings of `config`, which `flags` and the environment led to.
pub fn settings(fs: &dyn Fs, config: &Config, flags: &Flags) -> Result<Vec<Setting>, Error> {
    let set = |variable: &str| config.env.get(variable).is_some_and(|value| !value.is_empty());
    let path = match (&flags.config, config.env.get("CLAWO_CONFIG").filter(|path| !path.is_empty())) {
        (Some(path), _) => path.clone(),
        (None, Some(path)) => PathBuf::from(path),
        (None, None) => config.home.join("config.toml"),
    };
    let text = match fs.read(&path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(e) if e.is_not_found() => String::new(),
        Err(e) => return Err(e.into()),
    };
    file::parse(&path, &text)?;
    let table: toml::Table = text.parse().unwrap_or_default();
    let in_file = |key: &str| {
        let (above, name) = key.rsplit_once('.')?;
        above.split('.').try_fold(&table, |at, part| at.get(part)?.as_table())?.get(name)
    };
    let mut found = Vec::new();
    let mut add = |key: &str, value: Value, variable: &str| {
        let origin = if !variable.is_empty() && set(variable) {
            variable.to_owned()
        } else if in_file(key).is_some() {
            path.display().to_string()
        } else {
            "built in".to_owned()
        };
        found.push(Setting { key: key.to_owned(), value, origin });
    };
    add("home", json!(config.home), "CLAWO_HOME");
    add("wf_dir", json!(config.wf_dir), "CLAWO_WF_DIR");
    add("runs_dir", json!(config.runs_dir), "CLAWO_RUNS_DIR");
    add("server.host", json!(config.server.host), "CLAWO_HOST");
    add("server.port", json!(config.server.port), "CLAWO_PORT");
    add("server.allowed_hosts", json!(config.server.allowed_hosts), "");
    add("server.allowed_origins", json!(config.server.allowed_origins), "");
    add("server.rate_limit", json!(config.server.rate_limit), "CLAWO_RATE_LIMIT");
    add("server.max_body_bytes", json!(config.server.max_body_bytes), "");
    add("server.token", config.server.token.as_ref().map_or(Value::Null, |_| json!(MASK)), "CLAWO_SERVER_TOKEN");
    add("sessions.default_engine", json!(config.default_engine), "CLAWO_DEFAULT_ENGINE");
    add("sessions.max", json!(config.max_sessions), "CLAWO_MAX_SESSIONS");
    add("sessions.ttl_minutes", json!(config.sessions.ttl.map(|t| t.as_secs() / 60)), "CLAWO_SESSION_TTL_MINUTES");
    add("sessions.persist_days", json!(config.sessions.keep.as_secs() / 86_400), "");
    add("sessions.default_model", json!(config.sessions.model), "");
    add("sessions.default_permission_mode", json!(config.sessions.permission_mode), "");
    for (engine, bin) in &config.engine_bins {
        let variable = config.env.keys().find(|name| engine_of(name).as_deref() == Some(engine));
        add(&format!("engines.{engine}.bin"), json!(bin), variable.map_or("", String::as_str));
    }
    for (engine, names) in &config.engine_env {
        add(&format!("engines.{engine}.env"), json!(names), "");
    }
    add("workflow.auto_resume", json!(config.auto_resume), "");
    add("council.inter_round_delay_ms", json!(config.round_pause.as_millis()), "");
    add("budget.daily_usd", json!(config.daily_usd), "");
    add("mcp.tools", json!(config.tools), "CLAWO_MCP_TOOLS");
    add("secrets.names", json!(config.secret_names), "");
    add("chrome", json!(config.chrome), "CLAWO_CHROME_BIN");
    // Names of models have dots in them; and only the file can set a price.
    for (model, price) in &config.prices {
        let parts = [
            ("input", price.input),
            ("cached", price.cached),
            ("cache_write", price.cache_write),
            ("output", price.output),
        ];
        found.extend(parts.into_iter().filter_map(|(part, usd)| {
            let key = format!("pricing.\"{model}\".{part}");
            Some(Setting { key, value: json!(usd?), origin: path.display().to_string() })
        }));
    }
    if flags.home.is_some()
        && let Some(home) = found.first_mut()
    {
        "--home".clone_into(&mut home.origin);
    }
    Ok(found)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "real files for a test")]
mod tests {
    use super::*;
    use crate::sys::RealFs;

    /// Surface scenario 37: environment beats file, flag beats environment, and both are shown.
    #[test]
    fn every_value_says_where_it_comes_from() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("config.toml");
        let text = "[server]\nport = 1\nrate_limit = 7\n[engines.claude]\nbin = \"b\"\n\
                    [budget]\ndaily_usd = 5\n[pricing.\"gpt-6.2-sol\"]\ninput = 1.5\n";
        std::fs::write(&path, text).unwrap();
        let vars =
            [("CLAWO_HOME", "/none"), ("CLAWO_PORT", "9"), ("CLAWO_SERVER_TOKEN", "hush"), ("CLAWO_CODEX_BIN", "/c")];
        let env = vars.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let flags = Flags { home: Some(home.path().to_owned()), config: None };
        let config = Config::load(&RealFs, env, "/bin/clawo".into(), &flags).unwrap();
        let all = settings(&RealFs, &config, &flags).unwrap();
        let of = |key: &str| all.iter().find(|s| s.key == key).map(|s| (s.value.clone(), s.origin.as_str())).unwrap();
        let file = path.to_str().unwrap();
        assert_eq!(of("home"), (json!(home.path()), "--home"));
        assert_eq!(of("server.port"), (json!(9), "CLAWO_PORT"));
        assert_eq!(of("server.rate_limit"), (json!(7), file));
        assert_eq!(of("server.host"), (json!("127.0.0.1"), "built in"));
        assert_eq!(of("server.token"), (json!(MASK), "CLAWO_SERVER_TOKEN"));
        assert_eq!(of("budget.daily_usd"), (json!(5.0), file));
        assert_eq!(of("pricing.\"gpt-6.2-sol\".input"), (json!(1.5), file));
        assert_eq!(of("runs_dir"), (json!(home.path().join("runs")), "built in"));
        assert_eq!(of("engines.claude.bin"), (json!("b"), file));
        assert_eq!(of("engines.codex.bin"), (json!("/c"), "CLAWO_CODEX_BIN"));
        assert!(!serde_json::to_string(&all).unwrap().contains("hush"));
    }
}
