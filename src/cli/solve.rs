//! `clawo solve`: flags to the arguments of the `solve` template.

use clap::Args;
use serde_json::{Map, Value, json};

use super::{
    context::{Context, text_or_stdin},
    failure::{Failure, Outcome},
    start::{self, StartArgs},
};

/// Most agents in one list.
const AGENTS_MAX: usize = 16;

/// Arguments of `clawo solve`.
#[derive(Debug, Clone, Args)]
pub(crate) struct SolveArgs {
    /// What is to be done ('-' reads standard input)
    task: String,
    /// Engine of the implementer, and of the scout without --scouts [default: the configured one]
    #[arg(short, long)]
    engine: Option<String>,
    /// Model of the implementer
    #[arg(short, long)]
    model: Option<String>,
    /// Effort of the implementer
    #[arg(long)]
    effort: Option<String>,
    /// Agents that look before anything is written, as engine or engine:model, separated by commas
    #[arg(long, value_name = "LIST")]
    scouts: Option<String>,
    /// Agents that review before the check, as engine or engine:model, separated by commas
    #[arg(long, value_name = "LIST")]
    reviewers: Option<String>,
    /// Ask for approval before anything is written
    #[arg(long)]
    human_gate: bool,
    /// Times a red check sends the work back
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=20))]
    max_repairs: u32,
    #[command(flatten)]
    start: StartArgs,
}

/// Starts the run.
pub(crate) fn run(context: &Context, args: &SolveArgs) -> Outcome {
    args.start.wait.here(context, "starting a run")?;
    let template = args.template()?;
    start::template(context, "solve", text_or_stdin(&args.task, "task")?, template, &args.start)
}

impl SolveArgs {
    fn template(&self) -> Result<Value, Failure> {
        let mut template = Map::new();
        let implementer = choice(self.engine.as_deref(), self.model.as_deref(), self.effort.as_deref());
        if let Some(list) = &self.scouts {
            template.insert("agents".to_owned(), agents(list, "--scouts")?);
        } else if !implementer.is_empty() {
            let mut scout = Map::from_iter([("name".to_owned(), json!("scout"))]);
            scout.extend(implementer.clone());
            template.insert("agents".to_owned(), json!([scout]));
        }
        if !implementer.is_empty() {
            template.insert("implementer".to_owned(), implementer.into());
        }
        if let Some(list) = &self.reviewers {
            template.insert("reviewers".to_owned(), agents(list, "--reviewers")?);
        }
        if self.human_gate {
            template.insert("humanGate".to_owned(), true.into());
        }
        template.insert("maxRepairs".to_owned(), self.max_repairs.into());
        Ok(template.into())
    }
}

/// An engine choice with what was given.
pub(crate) fn choice(engine: Option<&str>, model: Option<&str>, effort: Option<&str>) -> Map<String, Value> {
    [("engine", engine), ("model", model), ("effort", effort)]
        .into_iter()
        .filter_map(|(name, value)| value.map(|v| (name.to_owned(), v.into())))
        .collect()
}

/// Reads `engine[:model],...`. A repeated engine gets `-2`, `-3`, ... so that names differ.
pub(crate) fn agents(list: &str, flag: &str) -> Result<Value, Failure> {
    let entries: Vec<&str> = list.split(',').map(str::trim).collect();
    if entries.iter().any(|e| e.is_empty() || e.starts_with(':')) {
        return Err(Failure::usage(
            format!("{flag} '{list}' names no engine in one place"),
            "write engine[:model],...",
        ));
    }
    if entries.len() > AGENTS_MAX {
        return Err(Failure::usage(
            format!("{flag} names {} agents", entries.len()),
            format!("name at most {AGENTS_MAX}"),
        ));
    }
    let mut seen: Vec<&str> = Vec::new();
    let mut agents = Vec::new();
    for entry in entries {
        let (engine, model) = match entry.split_once(':') {
            Some((engine, model)) => (engine, Some(model)),
            None => (entry, None),
        };
        seen.push(engine);
        let name = match seen.iter().filter(|e| **e == engine).count() {
            1 => engine.to_owned(),
            n => format!("{engine}-{n}"),
        };
        let mut agent = Map::from_iter([("name".to_owned(), json!(name))]);
        agent.extend(choice(Some(engine), model, None));
        agents.push(Value::Object(agent));
    }
    Ok(agents.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_engine_gets_a_number() {
        assert_eq!(
            agents("codex, claude:opus,codex:o3", "--scouts").unwrap(),
            json!([
                { "name": "codex", "engine": "codex" },
                { "name": "claude", "engine": "claude", "model": "opus" },
                { "name": "codex-2", "engine": "codex", "model": "o3" },
            ])
        );
    }

    #[test]
    fn bad_lists_are_refused() {
        let seventeen = ["a"; 17].join(",");
        for bad in ["", "a,,b", ":m", seventeen.as_str()] {
            assert_eq!(agents(bad, "--engines").unwrap_err().exit(), 2, "{bad}");
        }
    }
}
