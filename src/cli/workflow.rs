//! `clawo workflow ...`: look at runs and act on them, whoever executes them.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use super::{
    context::{Context, absolute, directory, json_file, text_or_stdin},
    failure::{Failure, Outcome},
    out::{Out, Tone},
    start::{self, WaitArgs},
    table::Table,
    wait,
};
use crate::{
    app::Mode,
    git::RestoreTo,
    kernel::{ListQuery, RunView, Source, StartRequest, StatusQuery, view::ListEntry},
    model::{RunOutcome, RunState},
    tools::workflow_resume::custom_engines,
};

/// The commands of this family.
#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowCommand {
    /// List runs of every process, newest first
    List(ListArgs),
    /// Show one run
    Show {
        /// The run
        id: String,
        /// Its last events too, at most 500
        #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=500))]
        events: u16,
    },
    /// Start a workflow spec
    Start(SpecArgs),
    /// Check a workflow spec without starting it
    Validate(SpecArgs),
    /// Go on with a run whose process is gone
    Resume {
        /// The run
        id: String,
        /// Engine of an agent of engine custom, by the REF of a variable CLAWO_CUSTOM_ENGINE_REF; repeatable
        #[arg(long, value_name = "AGENT=REF")]
        custom_engine_ref: Vec<String>,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// End a run
    Cancel {
        /// The run
        id: String,
        /// Why
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Give the agents of a run a correction
    Steer {
        /// The run
        id: String,
        /// What they should know ('-' reads standard input)
        text: String,
    },
    /// Answer the open gate of a run
    Approve {
        /// The run
        id: String,
        /// 'reject', 'false' or 'no' refuses; anything else, or nothing, approves
        answer: Option<String>,
        /// A remark kept with the answer
        #[arg(long, value_name = "TEXT")]
        comment: Option<String>,
        #[command(flatten)]
        wait: WaitArgs,
    },
    /// Delete a run that nobody executes, with its evidence and snapshots
    Delete {
        /// The run
        id: String,
        /// Confirm; without it nothing is deleted
        #[arg(long)]
        yes: bool,
    },
    /// Bring a snapshot of a run's work back
    Restore {
        /// The run
        id: String,
        /// Which snapshot, as NODE-vVISITaATTEMPT [default: the latest]
        #[arg(long, value_name = "SNAPSHOT")]
        at: Option<String>,
        /// A new directory (starting with '/', './' or '../') or else a new branch
        #[arg(long, value_name = "DIR|BRANCH")]
        to: String,
    },
}

/// Arguments of `list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only runs in this state
    #[arg(long, value_enum)]
    state: Option<StateArg>,
    /// Only runs of this workflow
    #[arg(long, value_name = "NAME")]
    workflow: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u16).range(1..=500))]
    limit: u16,
    /// Go on after this page
    #[arg(long)]
    cursor: Option<String>,
}

/// Arguments of `start` and `validate`.
#[derive(Debug, Args)]
pub(crate) struct SpecArgs {
    /// The spec as a JSON file ('-' reads standard input)
    spec: String,
    /// A contract as a JSON file; replaces the spec's
    #[arg(long, value_name = "FILE")]
    contract: Option<String>,
    /// Directory the run works in [default: the spec's, else the current one]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    /// Id of the run [default: generated]
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// A starting server goes on with the run by itself
    #[arg(long)]
    auto_resume: bool,
    #[command(flatten)]
    wait: WaitArgs,
}

/// State of a run as an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum StateArg {
    Pending,
    Running,
    AwaitingHuman,
    Verifying,
    Completed,
    Failed,
    Cancelled,
}

impl From<StateArg> for RunState {
    fn from(state: StateArg) -> Self {
        match state {
            StateArg::Pending => Self::Pending,
            StateArg::Running => Self::Running,
            StateArg::AwaitingHuman => Self::AwaitingHuman,
            StateArg::Verifying => Self::Verifying,
            StateArg::Completed => Self::Completed,
            StateArg::Failed => Self::Failed,
            StateArg::Cancelled => Self::Cancelled,
        }
    }
}

/// Runs one of them.
pub(crate) fn run(context: &Context, command: WorkflowCommand) -> Outcome {
    match command {
        WorkflowCommand::List(args) => list(context, args),
        WorkflowCommand::Show { id, events } => show(context, &id, events),
        WorkflowCommand::Start(args) => {
            args.wait.here(context, "starting a run")?;
            start::run_here(context, args.request()?, &args.wait)
        }
        WorkflowCommand::Validate(args) => validate(context, &args),
        WorkflowCommand::Resume { id, custom_engine_ref, wait } => resume(context, &id, &custom_engine_ref, &wait),
        WorkflowCommand::Cancel { id, reason } => context.with_app(Mode::Record, async |app| {
            let view = app.kernel.cancel(&id, reason).await?;
            shown(context, &view, &format!("run {} {}", view.run_id, view.state.as_str()));
            Ok(0)
        }),
        WorkflowCommand::Steer { id, text } => {
            let text = text_or_stdin(&text, "correction")?;
            context.with_app(Mode::Record, async |app| {
                let node = app.kernel.steer(&id, &text).await?;
                context.out.document(&json!({ "runId": id, "steered": true, "queuedFor": node }));
                context.out.line(format!("queued for {node}"));
                Ok(0)
            })
        }
        WorkflowCommand::Approve { id, answer, comment, wait } => {
            approve(context, &id, answer.as_deref(), comment, &wait)
        }
        WorkflowCommand::Delete { id, yes } => delete(context, &id, yes),
        WorkflowCommand::Restore { id, at, to } => restore(context, &id, at.as_deref(), &to),
    }
}

impl SpecArgs {
    fn request(&self) -> Result<StartRequest, Failure> {
        let spec = json_file(&self.spec, "workflow spec")?;
        // The spec's own directory is the kernel's to check; only its absence is filled here.
        let named = spec.get("cwd").is_some_and(|cwd| !cwd.is_null());
        let cwd = if named && self.cwd.is_none() { None } else { Some(directory(self.cwd.as_ref())?) };
        Ok(StartRequest {
            source: Source::Spec(spec),
            cwd,
            run_id: self.run_id.clone(),
            contract: self.contract.as_deref().map(|path| json_file(path, "contract")).transpose()?,
            auto_resume: self.auto_resume,
            idempotency_key: None,
            parent: None,
            customs: crate::nodes::Customs::default(),
        })
    }
}

fn list(context: &Context, args: ListArgs) -> Outcome {
    let query = ListQuery {
        workflow: args.workflow,
        state: args.state.map(Into::into),
        limit: usize::from(args.limit),
        cursor: args.cursor,
    };
    context.with_app(Mode::Record, async |app| {
        let page = app.kernel.list(query).await?;
        context.out.document(&json!(page));
        let mut table = Table::new(["RUN", "WORKFLOW", "STATE", "OUTCOME", "CREATED"]);
        for entry in &page.runs {
            table.row([
                entry.run_id.to_string(),
                entry.workflow.clone(),
                state_word(entry),
                outcome_word(entry.outcome).to_owned(),
                context.out.time(entry.created_at),
            ]);
        }
        context.out.table(&table, "There are no such runs.");
        if let Some(cursor) = &page.next_cursor {
            context.out.note(format!("more: --cursor {cursor}"));
        }
        Ok(0)
    })
}

fn state_word(entry: &ListEntry) -> String {
    match (&entry.damaged, entry.state) {
        (Some(_), _) => "damaged".to_owned(),
        (None, Some(state)) if entry.interrupted => format!("{} (interrupted)", state.as_str()),
        (None, Some(state)) => state.as_str().to_owned(),
        (None, None) => "-".to_owned(),
    }
}

fn outcome_word(outcome: Option<RunOutcome>) -> &'static str {
    match outcome {
        Some(RunOutcome::Verified) => "verified",
        Some(RunOutcome::Refuted) => "REFUTED",
        Some(RunOutcome::Unverified) => "unchecked",
        None => "-",
    }
}

fn show(context: &Context, id: &str, events: u16) -> Outcome {
    context.with_app(Mode::Record, async |app| {
        let view = app.kernel.status(id, StatusQuery { events: usize::from(events), wait_ms: 0 }).await?;
        if context.out.json() {
            context.out.document(&json!(view));
        } else {
            describe(&context.out, &view);
            if view.state.is_terminal() {
                wait::summary(context, &view);
            }
        }
        Ok(0)
    })
}

/// Header, nodes and events of a run.
fn describe(out: &Out, view: &RunView) {
    out.line(format!("run {}  {}  {}", view.run_id, view.workflow, view.state.as_str()));
    out.line(format!("in {}  created {}", view.cwd, out.time(view.created_at)));
    if view.interrupted {
        out.line(format!("interrupted: go on with clawo workflow resume {} --wait", view.run_id));
    }
    if let Some(waiting) = &view.waiting_for {
        out.line(format!("waiting for {}: {}", waiting.kind, waiting.detail));
    }
    if let Some(gate) = &view.gate {
        out.line(format!("gate {}: {}", gate.node, gate.prompt));
        out.line(format!("answer: clawo workflow approve {}", view.run_id));
    }
    if view.pending_steers > 0 {
        out.line(format!("{} corrections wait for the next agent", view.pending_steers));
    }
    let mut table = Table::new(["NODE", "KIND", "STATE", "VISITS", "ATTEMPTS", "DURATION", "ERROR"]);
    for node in &view.nodes {
        table.row([
            node.id.clone(),
            node.kind.clone(),
            wait::node_word(node.state).to_owned(),
            node.visits.to_string(),
            node.attempts.to_string(),
            node.duration_ms.map_or("-".to_owned(), wait::duration),
            node.error.as_deref().map_or(String::new(), |e| wait::first_line(e).to_owned()),
        ]);
    }
    out.table(&table, "It has no nodes.");
    for (node, goal) in view.nodes.iter().filter_map(|n| n.goal.as_ref().map(|g| (n, g))) {
        out.line(format!(
            "goal {}: {}, {} tokens in {}, resumed {} times, thread {}",
            node.id,
            if goal.status.is_empty() { "not set" } else { &goal.status },
            goal.tokens_used,
            wait::duration(goal.time_used_seconds.saturating_mul(1000)),
            goal.resumes,
            if goal.thread_id.is_empty() { "-" } else { &goal.thread_id },
        ));
        if let Some(error) = &goal.last_error {
            out.line(format!("  last error: {}", wait::first_line(error)));
        }
    }
    for event in &view.events {
        out.line(format!("{:>6}  {}  {}", event.seq, out.time(event.ts), event.event));
    }
}

fn validate(context: &Context, args: &SpecArgs) -> Outcome {
    let request = args.request()?;
    context.with_app(Mode::Record, async |app| {
        let validation = app.kernel.validate(request).await;
        if !validation.ok {
            let problems = validation.errors;
            return Err(crate::kernel::Error::problems(
                crate::model::Code::SpecInvalid,
                "the spec is not valid",
                &problems,
            )
            .into());
        }
        context.out.document(&json!(validation));
        for warning in &validation.warnings {
            context.out.line(format!("warning: {warning}"));
        }
        context.out.line(context.out.paint(Tone::Good, "valid"));
        if let Some(most) = &validation.forecast {
            context.out.line(format!(
                "at most {} agent turns, {} agents at once, {} repair passes{}",
                most.max_agent_turns,
                most.fanout_width,
                most.repair_passes,
                most.max_wall_ms.map_or(String::new(), |ms| format!(", {}", wait::duration(ms))),
            ));
        }
        Ok(0)
    })
}

fn resume(context: &Context, id: &str, engines: &[String], wait: &WaitArgs) -> Outcome {
    let mut refs = serde_json::Map::new();
    for engine in engines {
        let wrong = || Failure::usage(format!("'{engine}' is not AGENT=REF"), "for example --custom-engine-ref a=MINE");
        let (agent, reference) = engine.split_once('=').ok_or_else(wrong)?;
        refs.insert(agent.to_owned(), reference.into());
    }
    context.with_app(Mode::Command, async |app| {
        let view = app.kernel.status(id, StatusQuery::default()).await?;
        if view.state.is_terminal() {
            shown(context, &view, "the run has ended already; nothing was changed");
            return Ok(0);
        }
        wait.here(context, "resuming a run")?;
        let customs = custom_engines(&refs.into(), &app.kernel.services().config.env)?;
        app.kernel.resume_with(id, customs).await?;
        wait::follow(context, app, id, view.seq, wait.wait_timeout).await
    })
}

fn approve(context: &Context, id: &str, answer: Option<&str>, comment: Option<String>, wait: &WaitArgs) -> Outcome {
    let approved = !matches!(answer, Some("reject" | "false" | "no"));
    let follow = wait.wait || context.global.local;
    context.with_app(if follow { Mode::Command } else { Mode::Record }, async |app| {
        let view = app.kernel.approve(id, approved, comment).await?;
        if follow {
            return wait::follow(context, app, id, view.seq, wait.wait_timeout).await;
        }
        shown(context, &view, if approved { "approved" } else { "rejected" });
        if !view.state.is_terminal() {
            context.out.note(format!(
                "the answer is recorded; if no waiting command or server goes on with the run, use: clawo workflow resume {id} --wait"
            ));
        }
        Ok(0)
    })
}

fn delete(context: &Context, id: &str, yes: bool) -> Outcome {
    if !yes {
        return Err(Failure::usage(
            format!("deleting run '{id}' removes its log, evidence and snapshots for good; nothing was deleted"),
            "add --yes",
        ));
    }
    context.with_app(Mode::Record, async |app| {
        let deleted = app.kernel.delete(id).await?;
        context.out.document(&json!(deleted));
        context.out.line(format!("run {id} deleted"));
        if let Some(branch) = &deleted.branch {
            context.out.line(format!("its work stays on branch {branch}; git branch -D {branch} drops it"));
        }
        Ok(0)
    })
}

fn restore(context: &Context, id: &str, at: Option<&str>, to: &str) -> Outcome {
    let target = if ["/", "./", "../"].iter().any(|start| to.starts_with(start)) || matches!(to, "." | "..") {
        RestoreTo::Directory(absolute(to.as_ref())?)
    } else {
        RestoreTo::Branch(to.to_owned())
    };
    context.with_app(Mode::Record, async |app| {
        let what = app.kernel.restore(id, at, target).await?;
        context.out.document(&json!({ "runId": id, "restored": what, "to": to }));
        context.out.line(format!("restored {what} to {to}"));
        Ok(0)
    })
}

/// A run after an action: the whole view in JSON, a sentence and the end's summary for people.
fn shown(context: &Context, view: &RunView, sentence: &str) {
    context.out.document(&json!(view));
    context.out.line(sentence);
    if view.state.is_terminal() && !context.out.json() {
        wait::summary(context, view);
    }
}
