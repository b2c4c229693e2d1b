//! The environment an agent gets: the cleaned one, plus what its engine documents, minus the traces of an
//! agent that we ourselves may be running inside.

use std::ffi::OsString;

use super::custom;
use crate::config::{self, Config};

/// What an adapter knows about its program's variables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    /// Names passed on although they look like secrets. A trailing `*` matches any rest.
    pub(crate) needed: &'static [&'static str],
}

/// Signs of an agent that we ourselves may be running inside. With them a program would refuse to start, share that
/// agent's session or believe in its sandbox. Never passed on, unless an engine needs one by name.
const MARKERS: &[&str] = &[
    "AI_AGENT",
    "CLAUDECODE",
    "CLAUDE_*",
    "CODEX_CI",
    "CODEX_INTERNAL_*",
    "CODEX_MANAGED_*",
    "CODEX_SANDBOX*",
    "CODEX_THREAD_ID",
    "CURSOR_AGENT",
    "CURSOR_TRACE_ID",
    "GEMINI_CLI",
    "OPENCODE",
    "OPENCODE_CALLER",
    "OPENCODE_CLIENT",
    "OPENCODE_PID",
    "OPENCODE_RUN_ID",
];

/// Whether a variable tells of an agent around us.
pub(crate) fn is_marker(name: &str) -> bool {
    MARKERS.iter().any(|p| matches(p, name))
}

/// Environment of an agent, and the values it must never repeat to us.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChildEnv {
    /// The complete environment.
    pub(crate) vars: Vec<(OsString, OsString)>,
    /// Values of everything that looks like a secret, passed on or not.
    pub(crate) secrets: Vec<String>,
}

/// Builds it; `added` are further names to pass on. Later sources win: cleaned, needed, `run_env`, `fixed`.
pub(crate) fn build(
    config: &Config,
    rules: Rules,
    added: &[String],
    run_env: &[(String, String)],
    fixed: &[(&str, &str)],
) -> ChildEnv {
    let cleaned = config::environment::clean(&config.env, &config.secret_names);
    let listed = |name: &str| rules.needed.iter().any(|p| matches(p, name)) || added.iter().any(|p| matches(p, name));
    // Whatever a list lets through: descriptions of custom engines hold credentials of others.
    let needed = |name: &str| listed(name) && !name.starts_with(custom::VARIABLE);
    let marker = |name: &str| is_marker(name) && !needed(name);
    let mut vars = std::collections::BTreeMap::new();
    vars.extend(cleaned.kept.into_iter().filter(|(name, _)| !marker(name)));
    vars.extend(config.env.iter().filter(|(name, _)| needed(name)).map(|(n, v)| (n.clone(), v.clone())));
    vars.extend(run_env.iter().cloned());
    vars.extend(fixed.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
    ChildEnv { vars: vars.into_iter().map(|(n, v)| (n.into(), v.into())).collect(), secrets: cleaned.dropped_values }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}
