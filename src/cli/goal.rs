//! `clawo goal`: flags to the arguments of the `goal` template.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use super::{
    checks::{MINUTE_MS, MINUTES_MAX},
    context::{Context, absolute, text_or_stdin},
    failure::{Failure, Outcome},
    start::{self, StartArgs},
};
use crate::model::spec::{GoalNode, OBJECTIVE_MAX};

/// Largest objective file that is read, in bytes; four for a character and some to spare for blank lines.
const FILE_MAX: u64 = 64 * 1024;

/// Arguments of `clawo goal`.
#[derive(Debug, Clone, Args)]
pub(crate) struct GoalArgs {
    /// What is to be reached, 1 to 4000 characters ('-' reads standard input)
    #[arg(required_unless_present = "objective_file", conflicts_with = "objective_file")]
    objective: Option<String>,
    /// The objective as a file instead ('-' reads standard input)
    #[arg(long, value_name = "FILE")]
    objective_file: Option<PathBuf>,
    /// Who follows it: codex (an app-server thread) or claude (a Claude Code session)
    #[arg(short, long, default_value = "codex")]
    engine: String,
    /// Its model
    #[arg(short, long)]
    model: Option<String>,
    /// Its effort
    #[arg(long)]
    effort: Option<String>,
    /// What it may do to files; codex only [default: workspace-write]
    #[arg(long, value_enum, value_name = "MODE")]
    sandbox: Option<Sandbox>,
    /// A word of the command the engine runs under; repeatable, one argument each
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    launcher: Vec<String>,
    /// Begin on this thread or session: its goal is replaced, its history kept
    #[arg(long, value_name = "ID")]
    thread: Option<String>,
    /// Tokens after which the goal ends
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=GoalNode::TOKENS_MAX))]
    token_budget: Option<u64>,
    /// Limit of one pass in minutes [default: none]
    #[arg(long, value_name = "MIN", value_parser = clap::value_parser!(u64).range(1..=MINUTES_MAX))]
    goal_timeout: Option<u64>,
    /// Times a red check sends the goal back to the same thread
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=20))]
    max_repairs: u32,
    #[command(flatten)]
    start: StartArgs,
}

/// What an agent may do to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sandbox {
    ReadOnly,
    WorkspaceWrite,
    DangerFullAccess,
}

impl Sandbox {
    fn word(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::WorkspaceWrite => "workspace-write",
            Self::DangerFullAccess => "danger-full-access",
        }
    }
}

/// Starts the run.
pub(crate) fn run(context: &Context, args: &GoalArgs) -> Outcome {
    let template = args.template()?;
    let objective = args.objective()?;
    args.start.wait.here(context, "starting a run")?;
    start::template(context, "goal", objective, template, &args.start)
}

impl GoalArgs {
    /// The objective, of a length that engines take.
    fn objective(&self) -> Result<String, Failure> {
        let text = match (&self.objective, &self.objective_file) {
            (Some(text), _) => text_or_stdin(text, "objective")?,
            (None, Some(path)) if path.as_os_str() == "-" => text_or_stdin("-", "objective")?,
            (None, Some(path)) => read(path)?,
            (None, None) => String::new(),
        };
        let text = text.trim_end_matches(['\n', '\r']).to_owned();
        let length = text.chars().count();
        if text.trim().is_empty() || length > OBJECTIVE_MAX {
            return Err(Failure::usage(
                format!("the objective has {length} characters; nothing was started"),
                format!("give 1 to {OBJECTIVE_MAX}, with the details in a file of the project that it names"),
            ));
        }
        Ok(text)
    }

    fn template(&self) -> Result<Value, Failure> {
        let claude = self.engine == "claude";
        if claude && self.sandbox.is_some() {
            return Err(Failure::usage(
                "--sandbox is for codex; claude has none; nothing was started",
                "leave --sandbox out, or use --engine codex",
            ));
        }
        let mut template = Map::from_iter([("engine".to_owned(), Value::from(self.engine.clone()))]);
        for (name, value) in [("model", &self.model), ("effort", &self.effort), ("threadId", &self.thread)] {
            if let Some(value) = value {
                template.insert(name.to_owned(), value.clone().into());
            }
        }
        if self.engine.starts_with("codex") {
            let sandbox = self.sandbox.unwrap_or(Sandbox::WorkspaceWrite);
            template.insert("sandboxMode".to_owned(), sandbox.word().into());
        } else if let Some(sandbox) = self.sandbox {
            template.insert("sandboxMode".to_owned(), sandbox.word().into());
        }
        if !self.launcher.is_empty() {
            template.insert("launcher".to_owned(), self.launcher.clone().into());
        }
        if let Some(tokens) = self.token_budget {
            template.insert("tokenBudget".to_owned(), tokens.into());
        }
        if let Some(minutes) = self.goal_timeout {
            template.insert("timeoutMs".to_owned(), (minutes * MINUTE_MS).into());
        }
        template.insert("maxRepairs".to_owned(), self.max_repairs.into());
        Ok(template.into())
    }
}

/// An objective file.
fn read(path: &std::path::Path) -> Result<String, Failure> {
    use crate::sys::Fs;
    let path = absolute(path)?;
    let unreadable = |why: String| Failure::usage(why, "give a readable file as --objective-file");
    let size = crate::sys::RealFs.metadata(&path).map_err(|e| unreadable(e.to_string()))?.len;
    if size > FILE_MAX {
        return Err(Failure::usage(
            format!("{} is longer than {FILE_MAX} bytes; nothing was started", path.display()),
            format!("an objective has at most {OBJECTIVE_MAX} characters"),
        ));
    }
    let bytes = crate::sys::RealFs.read(&path).map_err(|e| unreadable(e.to_string()))?;
    String::from_utf8(bytes)
        .map_err(|_| Failure::usage(format!("{} is not UTF-8", path.display()), "convert it to UTF-8"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        goal: GoalArgs,
    }

    fn parsed(line: &[&str]) -> GoalArgs {
        Line::try_parse_from(["goal"].iter().chain(line)).unwrap().goal
    }

    #[test]
    fn flags_become_arguments() {
        let plain = parsed(&["reach it"]);
        assert_eq!(plain.objective().unwrap(), "reach it");
        let wanted = json!({ "engine": "codex", "sandboxMode": "workspace-write", "maxRepairs": 1 });
        assert_eq!(plain.template().unwrap(), wanted);
        let full = parsed(&[
            "x",
            "-e",
            "claude",
            "-m",
            "opus",
            "--effort",
            "high",
            "--launcher",
            "nice",
            "--launcher",
            "-n",
            "--thread",
            "t",
            "--token-budget",
            "9",
            "--goal-timeout",
            "2",
            "--max-repairs",
            "0",
        ]);
        let wanted = json!({
            "engine": "claude", "model": "opus", "effort": "high", "launcher": ["nice", "-n"], "threadId": "t",
            "tokenBudget": 9, "timeoutMs": 120_000, "maxRepairs": 0,
        });
        assert_eq!(full.template().unwrap(), wanted);
    }

    /// Scenario 4 of the surfaces, and a sandbox that claude has none of.
    #[test]
    fn what_cannot_be_is_refused() {
        for objective in ["", "  \n", &"é".repeat(4001)] {
            assert_eq!(parsed(&[objective]).objective().unwrap_err().exit(), 2);
        }
        assert_eq!(parsed(&[&"é".repeat(4000)]).objective().unwrap().chars().count(), 4000);
        let claude = parsed(&["x", "-e", "claude", "--sandbox", "read-only"]);
        assert_eq!(claude.template().unwrap_err().exit(), 2);
        for bad in [&["goal"][..], &["goal", "x", "--objective-file", "y"], &["goal", "x", "--token-budget", "0"]] {
            assert!(Line::try_parse_from(bad).is_err(), "{bad:?}");
        }
    }
}
