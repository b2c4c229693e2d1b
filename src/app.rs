//! Builds everything and decides the order of shutdown.

use std::sync::Arc;

use crate::{config::Config, kernel::Kernel, sys::Fs};

/// What a process does with the state directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// One command of the command line.
    Command,
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
    /// All file access.
    pub fs: Arc<dyn Fs>,
    /// Settings.
    pub config: Arc<Config>,
}

impl App {
    /// Builds everything over the state directory.
    pub async fn open(config: Config, mode: Mode) -> anyhow::Result<Self> {
        let _ = (config, mode);
        anyhow::bail!("the application is not assembled in this build")
    }

    /// Ends what runs, leaves every run resumable.
    pub async fn shutdown(self) {
        self.kernel.shutdown().await;
    }
}
