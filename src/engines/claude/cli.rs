//! What the program is asked outside of conversations: its subcommands that print something and end.

use std::{collections::BTreeSet, ffi::OsString, path::Path, time::Duration};

use super::{NAME, base_env};
use crate::{
    config::Config,
    engines::{EngineError, ErrorClass, Registry},
    sys::command::Command,
};

/// Most bytes of an answer; the longest there is, an inventory of a plugin, has a few thousand.
const OUTPUT_MAX: usize = 1 << 20;
/// How long it may take. It reads files of the user's and talks to no model.
const WAIT: Duration = Duration::from_secs(40);

/// What a subcommand printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Exit status.
    pub status: i32,
    /// Standard output.
    pub text: String,
    /// The end of standard error.
    pub errors: String,
}

/// Runs the program with `args` in `cwd` and the environment its conversations have, without any input.
pub async fn ask(registry: &Registry, config: &Config, args: &[&str], cwd: &Path) -> Result<Said, EngineError> {
    let program = registry.get(NAME).ok().and_then(|engine| engine.program());
    let missing = || EngineError::new(ErrorClass::StartFailed, "the program claude was not found");
    let mut command = Command::new(program.ok_or_else(missing)?, cwd).args(args);
    let env = base_env(config, &[], &[]);
    let kept: BTreeSet<OsString> = env.vars.iter().map(|(name, _)| name.clone()).collect();
    command.env_remove = config.env.keys().map(OsString::from).filter(|name| !kept.contains(name)).collect();
    command.env = env.vars;
    (command.max_stdout, command.timeout) = (OUTPUT_MAX, WAIT);
    let output = command.run().await.map_err(|e| EngineError::new(ErrorClass::StartFailed, e.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(Said { status: output.status, text, errors: output.stderr })
}
