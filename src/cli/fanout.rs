//! `clawo fanout`: flags to the arguments of the `fanout` template.

use clap::Args;
use serde_json::{Map, Value, json};

use super::{
    checks::{MINUTE_MS, MINUTES_MAX},
    context::{Context, text_or_stdin},
    failure::{Failure, Outcome},
    solve::agents,
    start::{self, StartArgs},
};
use crate::model::spec::SandboxMode;

/// Arguments of `clawo fanout`.
#[derive(Debug, Clone, Args)]
pub(crate) struct FanoutArgs {
    /// What every agent is asked ('-' reads standard input)
    task: String,
    /// Agents as engine or engine:model, separated by commas [default: one on the configured engine]
    #[arg(long, value_name = "LIST")]
    engines: Option<String>,
    /// What every agent may do to files [default: as its engine has it]
    #[arg(long, value_name = "MODE", value_parser = clap::builder::PossibleValuesParser::new(SandboxMode::ALL.map(SandboxMode::as_str)))]
    sandbox: Option<String>,
    /// One more turn merges the answers
    #[arg(long)]
    synthesize: bool,
    /// Engine that merges
    #[arg(long, value_name = "ENGINE", requires = "synthesize")]
    synthesis_engine: Option<String>,
    /// Model that merges
    #[arg(long, value_name = "MODEL", requires = "synthesize")]
    synthesis_model: Option<String>,
    /// Limit of each agent in minutes
    #[arg(long, value_name = "MIN", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=MINUTES_MAX))]
    agent_timeout: u64,
    /// Model calls of each agent
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    max_turns: u32,
    /// Cap of each agent in US dollars
    #[arg(long, value_name = "USD")]
    max_budget: Option<f64>,
    /// Whose checkout the agents work in: worktree gives each a branch and a worktree of its own
    #[arg(long, value_name = "WHERE", value_parser = ["none", "worktree"])]
    isolation: Option<String>,
    /// Whose work is kept: verified merges the smallest that the checks pass; needs --isolation worktree and a check
    #[arg(long, value_name = "WHOSE", value_parser = ["all", "verified"], requires = "isolation")]
    select: Option<String>,
    #[command(flatten)]
    start: StartArgs,
}

/// Starts the run.
pub(crate) fn run(context: &Context, args: &FanoutArgs) -> Outcome {
    args.start.wait.here(context, "starting a run")?;
    let template = args.template()?;
    start::template(context, "fanout", text_or_stdin(&args.task, "task")?, template, &args.start)
}

impl FanoutArgs {
    fn template(&self) -> Result<Value, Failure> {
        let mut template = Map::new();
        let mut members = match &self.engines {
            Some(list) => agents(list, "--engines")?,
            None => json!([{ "name": "agent" }]),
        };
        if let Some(sandbox) = &self.sandbox {
            for member in members.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
                member.insert("sandboxMode".to_owned(), sandbox.clone().into());
            }
        }
        template.insert("agents".to_owned(), members);
        if self.synthesize {
            template.insert("synthesize".to_owned(), true.into());
        }
        if self.select.as_deref() == Some("verified") && self.isolation.as_deref() != Some("worktree") {
            return Err(Failure::usage(
                "--select verified judges the work of each agent by itself; nothing was started",
                "add --isolation worktree",
            ));
        }
        for (name, value) in [
            ("synthesisEngine", &self.synthesis_engine),
            ("synthesisModel", &self.synthesis_model),
            ("isolation", &self.isolation),
            ("select", &self.select),
        ] {
            if let Some(value) = value {
                template.insert(name.to_owned(), value.clone().into());
            }
        }
        template.insert("agentTimeoutMs".to_owned(), (self.agent_timeout * MINUTE_MS).into());
        template.insert("maxTurnsPerAgent".to_owned(), self.max_turns.into());
        if let Some(usd) = self.max_budget {
            if !usd.is_finite() {
                return Err(Failure::usage("--max-budget is not a number of dollars", "give a number such as 0.50"));
            }
            template.insert("maxBudgetUsd".to_owned(), usd.into());
        }
        Ok(template.into())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        fanout: FanoutArgs,
    }

    fn template(line: &[&str]) -> Result<Value, Failure> {
        Line::try_parse_from(["fanout", "do it"].iter().chain(line)).unwrap().fanout.template()
    }

    #[test]
    fn isolation_and_selection_become_arguments() {
        let plain = template(&[]).unwrap();
        assert!(plain.get("isolation").is_none() && plain.get("select").is_none());
        let best = template(&["--isolation", "worktree", "--select", "verified"]).unwrap();
        assert_eq!((&best["isolation"], &best["select"]), (&json!("worktree"), &json!("verified")));
        assert_eq!(template(&["--isolation", "none", "--select", "verified"]).unwrap_err().exit(), 2);
        for bad in
            [&["--select", "verified"][..], &["--select", "best", "--isolation", "worktree"], &["--isolation", "x"]]
        {
            assert!(Line::try_parse_from(["fanout", "do it"].iter().chain(bad)).is_err(), "{bad:?}");
        }
    }
}
