//! `clawo engines`: which engines there are, their programs and what they can do.

use std::{path::PathBuf, sync::Arc};

use serde::Serialize;
use serde_json::json;

use super::{context::Context, failure::Outcome, table::Table};
use crate::{
    config::Config,
    engines::{Capabilities, Registry, scripted},
    sys::{RealFs, SystemClock, ids},
};

/// An engine as it is on this machine.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Installed {
    /// Name in specs.
    pub(crate) name: &'static str,
    /// Comes with this program.
    pub(crate) built_in: bool,
    /// Its program, when it is installed.
    pub(crate) program: Option<PathBuf>,
    /// Its program is named by the options of a session.
    pub(crate) described: bool,
    /// What it says about its version.
    pub(crate) version: Option<String>,
    /// What it can do.
    pub(crate) capabilities: Capabilities,
    /// What to do when its program is not there.
    #[serde(skip)]
    pub(crate) fix: String,
}

/// Every engine, asked for its version.
pub(crate) async fn installed(config: &Config) -> Vec<Installed> {
    let registry = Registry::new(Arc::new(config.clone()), ids::short(), Arc::new(SystemClock), Arc::new(RealFs));
    let mut engines = Vec::new();
    for engine in registry.all() {
        let program = engine.program();
        let version = if program.is_some() { engine.version().await } else { None };
        engines.push(Installed {
            name: engine.name(),
            built_in: engine.name() == scripted::NAME,
            described: engine.program_in_options(),
            program,
            version,
            capabilities: engine.capabilities(),
            fix: engine.how_to_install(),
        });
    }
    engines
}

/// Lists them.
pub(crate) fn run(context: &Context) -> Outcome {
    let config = context.config()?;
    let engines = context.block_on(async { Ok(installed(&config).await) })?;
    context.out.document(&json!({ "engines": engines }));
    let mut table = Table::new(["ENGINE", "PROGRAM", "VERSION", "CAPABILITIES"]);
    for engine in &engines {
        table.row([
            engine.name.to_owned(),
            match (&engine.program, engine.built_in) {
                (_, true) => "built in".to_owned(),
                (Some(program), false) => program.display().to_string(),
                (None, false) if engine.described => "named by its description".to_owned(),
                (None, false) => "not installed".to_owned(),
            },
            engine.version.clone().unwrap_or_else(|| "-".to_owned()),
            words(engine.capabilities),
        ]);
    }
    context.out.table(&table, "There are no engines.");
    Ok(0)
}

fn words(can: Capabilities) -> String {
    let all = [
        (can.resume, "resume"),
        (can.append_system_prompt, "system prompt"),
        (can.interrupt, "interrupt"),
        (can.own_cost, "own cost"),
        (can.read_only, "read-only"),
        (can.steer, "steer"),
        (can.compact, "compaction"),
        (can.goals, "goals"),
        (!can.efforts.is_empty(), "effort"),
        (!can.permission_modes.is_empty(), "permission modes"),
        (!can.verified, "unverified: never run by our tests"),
    ];
    all.iter().filter(|(can, _)| *can).map(|(_, word)| *word).collect::<Vec<_>>().join(", ")
}
