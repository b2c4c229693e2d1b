//! Logs: standard error only, quiet unless asked. Standard output belongs to results and to the protocol.

use tracing_subscriber::{EnvFilter, fmt};

use super::{Global, LogFormat};
use crate::config::Config;

/// Filter where nobody asked for one. The SDK warns of every answer that is an error; the caller has that already.
const DEFAULT_FILTER: &str = "warn,rmcp=error";

/// Starts logging; a second start changes nothing.
pub(crate) fn start(global: &Global, config: &Config) {
    let chosen = ["CLAWO_LOG", "RUST_LOG"].iter().find_map(|name| config.env.get(*name)).filter(|f| !f.is_empty());
    let fallback = match (global.quiet, global.verbose) {
        (true, _) => "error",
        (false, 0) => DEFAULT_FILTER,
        (false, 1) => "warn,claw_orchestrator=info",
        (false, 2) => "info,claw_orchestrator=debug",
        (false, _) => "debug,claw_orchestrator=trace",
    };
    let (filter, complaint) = match chosen.map(EnvFilter::try_new) {
        Some(Ok(filter)) => (filter, None),
        Some(Err(e)) => (EnvFilter::new(fallback), Some(e)),
        None => (EnvFilter::new(fallback), None),
    };
    let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    let started = match global.log_format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    if let (Ok(()), Some(e)) = (started, complaint) {
        tracing::warn!("the log filter does not parse and is ignored: {e}");
    }
}
