//! `clawo demo`: the product at work on a repository of its own, seen through a real MCP client.
//!
//! Starts `clawo mcp` as a host would and does everything through its tools. Says what it saw, and exits 0 only
//! if that is what it promises: a claim refuted once, then repaired and verified.

mod client;
mod project;
mod watch;

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use serde_json::json;

use self::{client::Client, project::Project, watch::Watch};
use super::{
    context::{Context, absolute},
    failure::{EXIT_RED, Failure, Outcome},
    out::Tone,
};

/// How long the checks of the crash demo take at least; the kill must land before they are over.
const SETTLE: Duration = Duration::from_secs(1);

/// Arguments of `clawo demo`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DemoArgs {
    /// Which one
    #[arg(value_enum, default_value_t = Kind::Solve)]
    kind: Kind,
    /// New directory that keeps the repository, the state and the evidence [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// The demonstrations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// An agent claims success, the check refutes it, the repair passes
    Solve,
    /// The same with the server killed in the middle and started again
    Crash,
}

/// Runs it.
pub(crate) fn run(context: &Context, args: &DemoArgs) -> Outcome {
    let config = context.config()?;
    let dir = args.dir.as_deref().map(absolute).transpose()?;
    context.block_on(async {
        let project = Project::create(&config, dir).await?;
        context.out.progress(format!("a repository with a failing test: {}", project.repo.display()));
        let watch = match args.kind {
            Kind::Solve => solve(context, &project).await?,
            Kind::Crash => crash(context, &project).await?,
        };
        Ok(conclude(context, &project, &watch, args.kind))
    })
}

/// Starts the run and watches it to its end.
async fn solve(context: &Context, project: &Project) -> Result<Watch, Failure> {
    let client = Client::start(project).await?;
    let mut watch = begin(context, project, &client, None).await?;
    watch.until(context, &client, |_| false).await?;
    client.close().await?;
    Ok(watch)
}

/// The same, but the server dies while the repair is under way.
async fn crash(context: &Context, project: &Project) -> Result<Watch, Failure> {
    let client = Client::start(project).await?;
    let mut watch = begin(context, project, &client, Some(SETTLE)).await?;
    watch.until(context, &client, Watch::repairing).await?;
    if watch.ended() {
        return Err(Failure::new(crate::model::Code::Internal, "the run ended before the server could be killed"));
    }
    let pid = client.kill().await?;
    context.out.progress(format!("the server (process {pid}) was killed with SIGKILL in the middle of the repair"));
    let client = Client::start(project).await?;
    context.out.progress("a new server was started on the same state; resuming the run");
    client.call("workflow_resume", json!({ "runId": watch.run })).await?;
    watch.until(context, &client, |_| false).await?;
    client.close().await?;
    Ok(watch)
}

async fn begin(
    context: &Context,
    project: &Project,
    client: &Client,
    settle: Option<Duration>,
) -> Result<Watch, Failure> {
    context
        .out
        .progress(format!("connected to '{}' over MCP; starting a solve run with a scripted agent", client.server));
    let started = client.call("workflow_start", project.start_arguments(settle)).await?;
    let run = started.get("runId").and_then(|id| id.as_str()).map(str::to_owned);
    let run =
        run.ok_or_else(|| Failure::new(crate::model::Code::Internal, "workflow_start answered without a runId"))?;
    context.out.progress(format!("run {run} started; its contract: {}", project.contract_words()));
    Ok(Watch::new(run))
}

/// Says what was seen and whether it is what was promised.
fn conclude(context: &Context, project: &Project, watch: &Watch, kind: Kind) -> u8 {
    let mut missing = watch.missing();
    if kind == Kind::Crash && watch.owners < 2 {
        missing.push("the log does not show a second process taking the run over".to_owned());
    }
    let home = project.home.display();
    let look = format!("clawo --home {home} verify {}", watch.run);
    context.out.document(&json!({
        "proved": missing.is_empty(),
        "missing": missing,
        "runId": watch.run,
        "outcome": watch.outcome,
        "refutedPasses": watch.refuted,
        "verifiedPasses": watch.verified,
        "home": project.home,
        "repository": project.repo,
        "evidence": look,
    }));
    if missing.is_empty() {
        context.out.line(format!("outcome: {}", context.out.paint(Tone::Good, "verified")));
        context
            .out
            .line("proved: the agent said it was done, the check said it was not; the repair was checked and passed");
        if kind == Kind::Crash {
            context.out.line("proved: the run went on after kill -9 and lost nothing");
        }
    }
    for what in &missing {
        context.out.line(format!("{}: {what}", context.out.paint(Tone::Bad, "NOT proved")));
    }
    context.out.line(format!("evidence: {look}"));
    context.out.line(format!("state kept in {home}"));
    if missing.is_empty() { 0 } else { EXIT_RED }
}
