//! Starting a run from the command line: in this process, or not at all.
//!
//! A run lives in the process that executes it. Without `--wait` or `--local` a server would have to take it, and
//! handing a run to a server is not part of this version; so nothing is started and the way out is named.

use std::path::PathBuf;

use clap::Args;

use super::{
    checks::{CheckArgs, MINUTES_MAX},
    context::{Context, directory},
    failure::{Failure, Outcome},
    wait,
};
use crate::{
    app::Mode,
    kernel::{Source, StartRequest},
    model::{Code, RunId},
};

/// Flags of a command that follows a run.
#[derive(Debug, Clone, Args)]
pub(crate) struct WaitArgs {
    /// Run here and follow it to its end; exit 0 only if it ends completed
    #[arg(short, long)]
    pub(crate) wait: bool,
    /// Stop waiting after this many minutes (exit 7); the run is left resumable
    #[arg(long, value_name = "MIN", value_parser = clap::value_parser!(u64).range(1..=MINUTES_MAX))]
    pub(crate) wait_timeout: Option<u64>,
}

/// Flags shared by the commands that start a template.
#[derive(Debug, Clone, Args)]
pub(crate) struct StartArgs {
    #[command(flatten)]
    pub(crate) checks: CheckArgs,
    /// Directory the run works in [default: the current one]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// Id of the run [default: generated]
    #[arg(long, value_name = "ID")]
    pub(crate) run_id: Option<String>,
    #[command(flatten)]
    pub(crate) wait: WaitArgs,
}

impl WaitArgs {
    /// Refuses what only a server could do, before anything is started.
    pub(crate) fn here(&self, context: &Context, what: &str) -> Result<(), Failure> {
        if self.wait || context.global.local {
            return Ok(());
        }
        Err(Failure {
            code: Code::NoServer,
            message: format!(
                "{what} needs a process that executes the run, and no server can be asked; nothing was started"
            ),
            hint: Some(
                "add --wait to run it here and follow it, or start it through an MCP client of 'clawo serve'"
                    .to_owned(),
            ),
            details: None,
        })
    }
}

/// Starts a template with its arguments and follows it.
pub(crate) fn template(
    context: &Context,
    name: &str,
    task: String,
    args: serde_json::Value,
    start: &StartArgs,
) -> Outcome {
    let request = StartRequest {
        source: Source::Template { name: name.to_owned(), task, args },
        cwd: Some(directory(start.cwd.as_ref())?),
        run_id: start.run_id.clone(),
        contract: start.checks.contract()?,
        auto_resume: false,
        idempotency_key: None,
        parent: None,
        customs: crate::nodes::Customs::default(),
    };
    run_here(context, request, &start.wait)
}

/// Starts a run in this process and follows it to its end.
pub(crate) fn run_here(context: &Context, request: StartRequest, wait: &WaitArgs) -> Outcome {
    wait.here(context, "starting a run")?;
    if let Some(id) = &request.run_id {
        RunId::parse(id).map_err(|e| Failure::usage(e.to_string(), "choose another --run-id, or leave it out"))?;
    }
    context.with_app(Mode::Command, async |app| {
        let started = app.kernel.start(request).await?;
        for warning in &started.warnings {
            context.out.note(format!("warning: {warning}"));
        }
        context.out.progress(format!(
            "run {} ({}) started, {} nodes",
            started.run_id,
            started.workflow,
            started.nodes.len()
        ));
        wait::follow(context, app, started.run_id.as_str(), 0, wait.wait_timeout).await
    })
}
