//! A program somebody installed: where it is, and its version, asked once.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::sync::OnceCell;

use super::{environment, registry::Context};
use crate::sys::command::{self, Command};

/// How long a program may take to say its version; some take seconds on a busy machine.
const VERSION_WAIT: Duration = Duration::from_secs(20);

/// The program of an adapter.
#[derive(Debug)]
pub(crate) struct Installed {
    context: Arc<Context>,
    /// Engine, as in settings.
    engine: &'static str,
    /// Name on PATH.
    program: &'static str,
    /// Version whose conversations were recorded; empty when none was. Others of the same major version are expected
    /// to talk alike.
    measured: &'static str,
    version: OnceCell<Option<String>>,
}

impl Installed {
    /// Nothing is looked up yet.
    pub(crate) fn new(
        context: Arc<Context>,
        engine: &'static str,
        program: &'static str,
        measured: &'static str,
    ) -> Self {
        Self { context, engine, program, measured, version: OnceCell::new() }
    }

    /// What adapters share.
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Where it is: as set, else on PATH; `None` when it is not there.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let set = &self.context.config.engine_bins;
        // Two engines of one program find it where either is set.
        match set.get(self.engine).or_else(|| set.get(self.program)) {
            Some(path) => command::find(&path.to_string_lossy()),
            None => command::find(self.program),
        }
    }

    /// What `--version` says: the first word that begins with a digit.
    pub(crate) async fn version(&self) -> Option<String> {
        self.version.get_or_init(|| self.ask()).await.clone()
    }

    async fn ask(&self) -> Option<String> {
        let program = self.path()?;
        let config = &self.context.config;
        let mut command = Command::new(program, &config.home).args(["--version"]);
        command.timeout = VERSION_WAIT;
        command.env_remove = config.env.keys().filter(|n| environment::is_marker(n)).map(Into::into).collect();
        let output = command.env("DISABLE_AUTOUPDATER", "1").run().await.ok().filter(|o| o.status == 0)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let word = text.split_whitespace().find(|w| w.starts_with(|c: char| c.is_ascii_digit()));
        let version = word?.to_owned();
        if !self.measured.is_empty() && version.split('.').next() != self.measured.split('.').next() {
            let (engine, measured) = (self.engine, self.measured);
            tracing::warn!(engine, version, measured, "a version never measured; it may talk differently");
        }
        Some(version)
    }
}
