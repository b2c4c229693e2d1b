//! The command line: one file a command family.
//!
//! Turns arguments into one call of the kernel, the protocol or the verifier and shows what came back. Decides
//! nothing about runs, and prints only through `out`. Exit statuses are those of `model::Code` and `failure`.

mod checks;
mod config;
mod context;
mod council;
mod demo;
mod doctor;
mod engines;
mod failure;
mod fanout;
mod gc;
mod goal;
mod logging;
mod out;
mod remote;
mod runs;
mod schemas;
mod serve;
mod session;
mod solve;
mod start;
mod table;
mod verify;
mod wait;
mod workflow;

use std::{ffi::OsString, panic::AssertUnwindSafe, path::PathBuf};

use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use self::{
    context::Context,
    failure::{Failure, Outcome},
};
use crate::model::Code;

/// Runs coding agents as durable, verified work.
#[derive(Debug, Parser)]
#[command(name = "clawo", version, max_term_width = 110, propagate_version = false)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Flags of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// One JSON document on standard output, everything else on standard error
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// No progress and no remarks
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// More logs on standard error; repeat for more
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// No colours
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
    /// Never cut cells of a table
    #[arg(long, global = true)]
    pub(crate) no_truncate: bool,
    /// State directory [default: ~/.claw-orchestrator]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// Configuration file [default: config.toml in the state directory]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Address of the server to ask [default: the one running on this state directory]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) api: Option<String>,
    /// Run in this process until the end instead of asking a server
    #[arg(long, global = true)]
    pub(crate) local: bool,
    /// Form of the logs
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, value_name = "FORM")]
    pub(crate) log_format: LogFormat,
}

/// Form of the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve MCP over standard input and output
    Mcp(serve::McpArgs),
    /// Serve MCP over HTTP on the loopback interface
    Serve(serve::ServeArgs),
    /// Own the processes of one attempt (started by the program itself)
    #[command(hide = true)]
    Supervise,
    /// Play a scripted agent (started by the program itself)
    #[command(hide = true)]
    AgentScript {
        /// Scenario file or built-in name
        scenario: String,
    },
    /// Look at runs and act on them
    #[command(subcommand)]
    Workflow(workflow::WorkflowCommand),
    /// Have several agents work on one repository in rounds, and decide on their work
    #[command(subcommand)]
    Council(council::CouncilCommand),
    /// Start, speak to and look at named sessions of a running server
    #[command(subcommand)]
    Session(session::SessionCommand),
    /// Show what a run's checks said, or run checks on a directory now
    Verify(verify::VerifyArgs),
    /// Scout, implement, check and repair a task
    Solve(solve::SolveArgs),
    /// Give several agents the same task
    Fanout(fanout::FanoutArgs),
    /// Have one agent follow a goal until it is reached, and check the work
    Goal(goal::GoalArgs),
    /// Show the product at work, without a key or a network
    Demo(demo::DemoArgs),
    /// Say what is missing on this machine
    Doctor,
    /// List the engines, their programs and what they can do
    Engines,
    /// JSON Schemas of everything that is read or answered
    #[command(subcommand)]
    Schemas(schemas::SchemasCommand),
    /// Print the manifest of the MCP server
    Manifest,
    /// Show the settings in force
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// List agent turns and what they cost
    Runs(runs::RunsArgs),
    /// Delete old runs
    Gc(gc::GcArgs),
}

/// Parses the arguments, runs the command, and returns the exit status. The program's name is not part of `args`.
pub fn main(args: &[OsString]) -> u8 {
    // A panic has already been reported on standard error; what is left is the right status.
    std::panic::catch_unwind(AssertUnwindSafe(|| run(args))).unwrap_or_else(|_| Code::Internal.exit())
}

fn run(args: &[OsString]) -> u8 {
    let name = OsString::from("clawo");
    let parsed = Cli::command()
        .try_get_matches_from(std::iter::once(&name).chain(args))
        .and_then(|matches| Cli::from_arg_matches(&matches));
    match parsed {
        Ok(cli) => {
            let context = Context::new(cli.global);
            match dispatch(&context, cli.command) {
                Ok(status) => status,
                Err(failure) => {
                    context.out.failure(&failure);
                    failure.exit()
                }
            }
        }
        Err(e) => usage(args, &e),
    }
}

fn dispatch(context: &Context, command: Command) -> Outcome {
    match command {
        Command::Mcp(args) => serve::mcp(context, &args),
        Command::Serve(args) => serve::http(context, &args),
        Command::Supervise | Command::AgentScript { .. } => Err(Failure::usage(
            "this subcommand is started by the program itself",
            "put it directly after the program's name, without global flags",
        )),
        Command::Workflow(command) => workflow::run(context, command),
        Command::Council(command) => council::run(context, command),
        Command::Session(command) => session::run(context, &command),
        Command::Verify(args) => verify::run(context, &args),
        Command::Solve(args) => solve::run(context, &args),
        Command::Fanout(args) => fanout::run(context, &args),
        Command::Goal(args) => goal::run(context, &args),
        Command::Demo(args) => demo::run(context, &args),
        Command::Doctor => doctor::run(context),
        Command::Engines => engines::run(context),
        Command::Schemas(command) => schemas::run(context, &command),
        Command::Manifest => schemas::manifest(context),
        Command::Config(command) => config::run(context, &command),
        Command::Runs(args) => runs::run(context, &args),
        Command::Gc(args) => gc::run(context, &args),
    }
}

/// Help and version go to standard output; a mistake is a failure like any other, also in JSON.
fn usage(args: &[OsString], error: &clap::Error) -> u8 {
    let json = args.iter().any(|a| a == "--json");
    let style = out::Style { json, ..out::Style::default() };
    let out = out::Out::new(style);
    let text = error.render().to_string();
    if error.use_stderr() {
        let first = text.trim_start_matches("error: ").lines().take_while(|l| !l.trim().is_empty());
        let message = first.map(str::trim).collect::<Vec<_>>().join(" ");
        out.failure(&Failure::usage(message, "see 'clawo --help', or '--help' after the command's name"));
        return Code::InvalidArgument.exit();
    }
    if json {
        out.document(&serde_json::json!({ "text": text }));
    } else {
        out.raw(&text);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_tree_is_consistent() {
        Cli::command().debug_assert();
    }
}
