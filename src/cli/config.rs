//! `clawo config show`: the effective settings, and where each comes from.

use clap::Subcommand;
use serde_json::json;

use super::{
    context::Context,
    failure::{Failure, Outcome},
    table::Table,
};
use crate::{
    config::{Flags, show},
    sys::RealFs,
};

/// The commands of this family.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting as it is in force; secrets are masked
    Show {
        /// Say where each comes from: a flag, a variable, the file, or built in
        #[arg(long)]
        origin: bool,
    },
}

/// Runs one of them.
pub(crate) fn run(context: &Context, command: &ConfigCommand) -> Outcome {
    let ConfigCommand::Show { origin } = command;
    let config = context.config()?;
    let flags = Flags { home: context.global.home.clone(), config: context.global.config.clone() };
    let settings = show::settings(&RealFs, &config, &flags)
        .map_err(|e| Failure::usage(e.to_string(), "correct the configuration file"))?;
    if context.out.json() {
        context.out.document(&json!({ "settings": settings }));
        return Ok(0);
    }
    let shown = |value: &serde_json::Value| match value.as_str() {
        Some(text) => text.to_owned(),
        None if value.is_null() => "-".to_owned(),
        None => value.to_string(),
    };
    let mut with_origin = Table::new(["KEY", "VALUE", "ORIGIN"]);
    let mut without = Table::new(["KEY", "VALUE"]);
    for setting in &settings {
        with_origin.row([setting.key.clone(), shown(&setting.value), setting.origin.clone()]);
        without.row([setting.key.clone(), shown(&setting.value)]);
    }
    context.out.table(if *origin { &with_origin } else { &without }, "There are no settings.");
    Ok(0)
}
