//! `clawo council ...`: starts, looks at and decides on councils, through the calls that the tools make.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use super::{
    checks::{CheckArgs, MINUTE_MS, MINUTES_MAX},
    context::{Context, directory, json_file, text_or_stdin},
    failure::{Failure, Outcome},
    remote::Remote,
    solve::agents,
    start::WaitArgs,
    table::Table,
    wait,
};
use crate::{
    app::Mode,
    git::Strategy,
    kernel::councils::{CouncilDraft, CouncilQuery},
    model::{Code, RunOutcome, spec::CouncilNode},
    nodes::council::{
        accept::{AcceptView, Wish},
        disposition::MergeKind,
        review::ReviewView,
        view::CouncilView,
    },
};

/// Longest limit of a member's turn, in minutes.
const TIMEOUT_MAX: u64 = CouncilNode::TIMEOUT_MAX_MS / MINUTE_MS;

/// The commands of this family.
#[derive(Debug, Subcommand)]
pub(crate) enum CouncilCommand {
    /// Start a council on a git work tree
    Start(Box<StartArgs>),
    /// List councils that are runs of their own, newest first
    List {
        /// At most this many
        #[arg(long, value_name = "N", default_value_t = 25, value_parser = clap::value_parser!(u16).range(1..=500))]
        limit: u16,
        /// Go on after this page
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Show where a council stands
    Status {
        /// The council
        id: String,
        /// Whole replies
        #[arg(long)]
        full: bool,
        /// Only the replies of this round
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=50))]
        round: Option<u32>,
    },
    /// Put a message into the next prompts of every member
    Inject {
        /// The council
        id: String,
        /// What they should know ('-' reads standard input)
        message: String,
    },
    /// End a council; its branches stay
    Abort {
        /// The council
        id: String,
    },
    /// Show what a council has made and how to review it
    Review {
        /// The council
        id: String,
    },
    /// Merge a council's work into its branch and clean up
    Accept {
        /// The council
        id: String,
        /// How the branch may move
        #[arg(long, value_enum, default_value_t = StrategyArg::Auto)]
        strategy: StrategyArg,
        /// Message of a merge commit
        #[arg(long, value_name = "TEXT")]
        message: Option<String>,
        /// Accept refuted, failed, rejected or incomplete work too
        #[arg(long)]
        force: bool,
    },
    /// Send a council's work back with feedback
    Reject {
        /// The council
        id: String,
        /// What is wrong and what is wanted ('-' reads standard input)
        feedback: String,
    },
}

/// How the branch may move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum StrategyArg {
    /// Fast-forward when possible, else merge
    Auto,
    /// Fast-forward or not at all
    FfOnly,
    /// Always a merge commit
    Merge,
}

/// Arguments of `clawo council start`.
#[derive(Debug, Clone, Args)]
pub(crate) struct StartArgs {
    /// What is to be done ('-' reads standard input)
    #[arg(required_unless_present = "continue_from")]
    task: Option<String>,
    /// Members as engine or engine:model, separated by commas [default: Planner, Generator and Evaluator]
    #[arg(long, value_name = "LIST", conflicts_with = "agents_file")]
    engines: Option<String>,
    /// Members as a JSON file: a list of { name, persona, engine, ... }
    #[arg(long, value_name = "FILE")]
    agents_file: Option<String>,
    /// Most rounds
    #[arg(long, value_name = "N", default_value_t = CouncilNode::ROUNDS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=50))]
    max_rounds: u32,
    /// Limit of one message to one member in minutes
    #[arg(long, value_name = "MIN", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=TIMEOUT_MAX.min(MINUTES_MAX)))]
    agent_timeout: u64,
    /// Tool turns of a member in a round
    #[arg(long, value_name = "N", default_value_t = CouncilNode::TURNS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=500))]
    max_turns: u32,
    /// Cap of each member over all rounds in US dollars
    #[arg(long, value_name = "USD")]
    max_budget: Option<f64>,
    /// What members may do without asking [default: bypassPermissions]
    #[arg(long, value_name = "MODE")]
    permission_mode: Option<String>,
    /// Start although the checkout has uncommitted changes, which members do not see
    #[arg(long)]
    allow_dirty: bool,
    /// Go on with an earlier council of this repository
    #[arg(long, value_name = "ID")]
    continue_from: Option<String>,
    #[command(flatten)]
    checks: CheckArgs,
    /// The project [default: the current directory]
    #[arg(long, value_name = "DIR")]
    cwd: Option<PathBuf>,
    #[command(flatten)]
    wait: WaitArgs,
}

/// Runs one of them.
pub(crate) fn run(context: &Context, command: CouncilCommand) -> Outcome {
    match command {
        CouncilCommand::Start(args) => start(context, &args),
        CouncilCommand::List { limit, cursor } => list(context, limit, cursor),
        CouncilCommand::Status { id, full, round } => context.with_app(Mode::Record, async |app| {
            let view = app.kernel.council_status(&id, CouncilQuery { full, round, wait_ms: 0 }).await?;
            context.out.document(&json!(view));
            describe(context, &view);
            Ok(0)
        }),
        CouncilCommand::Inject { id, message } => {
            let message = text_or_stdin(&message, "message")?;
            context.with_app(Mode::Record, async |app| {
                let injected = app.kernel.council_inject(&id, &message).await?;
                context.out.document(&json!(injected));
                context.out.line(format!("members read it in round {}", injected.deliver_at_round));
                Ok(0)
            })
        }
        CouncilCommand::Abort { id } => context.with_app(Mode::Record, async |app| {
            let aborted = app.kernel.council_abort(&id).await?;
            context.out.document(&json!(aborted));
            context.out.line(format!("council {id} aborted; its work stays on:"));
            aborted.branches_kept.iter().for_each(|branch| context.out.line(format!("  {branch}")));
            Ok(0)
        }),
        CouncilCommand::Review { id } => context.with_app(Mode::Record, async |app| {
            let view = app.kernel.council_review(&id).await?;
            context.out.document(&json!(view));
            reviewed(context, &view);
            Ok(0)
        }),
        CouncilCommand::Accept { id, strategy, message, force } => {
            let strategy = match strategy {
                StrategyArg::Auto => Strategy::Auto,
                StrategyArg::FfOnly => Strategy::FastForwardOnly,
                StrategyArg::Merge => Strategy::Merge,
            };
            let wish = Wish { strategy, message, force };
            context.with_app(Mode::Record, async |app| {
                let view = app.kernel.council_accept(&id, wish).await?;
                context.out.document(&json!(view));
                accepted(context, &view);
                Ok(0)
            })
        }
        CouncilCommand::Reject { id, feedback } => {
            let feedback = text_or_stdin(&feedback, "feedback")?;
            context.with_app(Mode::Record, async |app| {
                let view = app.kernel.council_reject(&id, &feedback).await?;
                context.out.document(&json!(view));
                context.out.line(format!("the feedback is in the plan of council {id}, commit {}", view.commit));
                context.out.line(format!("go on: clawo council start --continue-from {id} --wait"));
                Ok(0)
            })
        }
    }
}

impl StartArgs {
    /// Fields of the node.
    fn fields(&self) -> Result<Map<String, Value>, Failure> {
        let mut fields = Map::new();
        if let Some(task) = &self.task {
            fields.insert("task".to_owned(), text_or_stdin(task, "task")?.into());
        }
        if let Some(list) = &self.engines {
            fields.insert("agents".to_owned(), agents(list, "--engines")?);
        } else if let Some(file) = &self.agents_file {
            fields.insert("agents".to_owned(), json_file(file, "list of members")?);
        }
        fields.insert("maxRounds".to_owned(), self.max_rounds.into());
        fields.insert("agentTimeoutMs".to_owned(), (self.agent_timeout * MINUTE_MS).into());
        fields.insert("maxTurnsPerAgent".to_owned(), self.max_turns.into());
        if let Some(usd) = self.max_budget {
            if !usd.is_finite() {
                return Err(Failure::usage("--max-budget is not a number of dollars", "give a number such as 0.50"));
            }
            fields.insert("maxBudgetUsd".to_owned(), usd.into());
        }
        if let Some(mode) = &self.permission_mode {
            fields.insert("defaultPermissionMode".to_owned(), mode.clone().into());
        }
        if self.allow_dirty {
            fields.insert("allowDirty".to_owned(), true.into());
        }
        if let Some(id) = &self.continue_from {
            fields.insert("continueFrom".to_owned(), id.clone().into());
        }
        Ok(fields)
    }
}

fn start(context: &Context, args: &StartArgs) -> Outcome {
    let fields = args.fields()?;
    let project_dir = directory(args.cwd.as_ref())?;
    let contract = args.checks.contract()?;
    if !args.wait.wait && !context.global.local {
        return ask_server(context, fields, &project_dir, contract);
    }
    let draft =
        CouncilDraft { fields, project_dir: Some(project_dir), contract, local: true, ..CouncilDraft::default() };
    context.with_app(Mode::Command, async |app| {
        let started = app.kernel.council_start(draft).await?;
        for warning in &started.council.warnings {
            context.out.note(format!("warning: {warning}"));
        }
        context.out.progress(format!("council {} started", started.council.id));
        wait::follow(context, app, started.council.run_id.as_str(), 0, args.wait.wait_timeout).await
    })
}

/// Has a running server start and execute it.
fn ask_server(
    context: &Context,
    mut arguments: Map<String, Value>,
    project_dir: &std::path::Path,
    contract: Option<Value>,
) -> Outcome {
    let config = context.config()?;
    let remote = Remote::find(&config, context.global.api.as_deref())?;
    arguments.insert("projectDir".to_owned(), json!(project_dir));
    if let Some(contract) = contract {
        arguments.insert("contract".to_owned(), contract);
    }
    context.block_on(async {
        let started = remote.call("council_start", arguments).await.map_err(|failure| {
            let hint = "start one with 'clawo serve', or add --wait to run it here and follow it".to_owned();
            if failure.code == Code::NoServer { Failure { hint: Some(hint), ..failure } } else { failure }
        })?;
        context.out.document(&started);
        for warning in started.get("warnings").and_then(Value::as_array).into_iter().flatten() {
            context.out.note(format!("warning: {}", warning.as_str().unwrap_or_default()));
        }
        let id = started.get("id").and_then(Value::as_str).unwrap_or_default();
        context.out.line(format!("council {id} started; follow it: clawo council status {id}"));
        Ok(0)
    })
}

fn list(context: &Context, limit: u16, cursor: Option<String>) -> Outcome {
    context.with_app(Mode::Record, async |app| {
        let page = app.kernel.council_list(usize::from(limit), cursor).await?;
        context.out.document(&json!(page));
        let mut table = Table::new(["COUNCIL", "STATUS", "ROUND", "OUTCOME", "COST", "CREATED", "TASK"]);
        for entry in &page.councils {
            table.row([
                entry.id.clone(),
                entry.status.as_str().to_owned(),
                entry.round.to_string(),
                entry.outcome.map_or("-", RunOutcome::as_str).to_owned(),
                format!("{:.4}", entry.cost_usd),
                context.out.time(entry.created_at),
                entry.task.clone(),
            ]);
        }
        context.out.table(&table, "There are no councils.");
        if let Some(cursor) = &page.next_cursor {
            context.out.note(format!("more: --cursor {cursor}"));
        }
        Ok(0)
    })
}

/// A council in words.
fn describe(context: &Context, view: &CouncilView) {
    let out = &context.out;
    if out.json() {
        return;
    }
    let outcome = view.outcome.map_or(String::new(), |outcome| format!(", {}", outcome.as_str()));
    out.line(format!("council {}  {}{outcome}", view.id, view.status.as_str()));
    out.line(format!("round {} of at most {}, cost ${:.4}", view.round, view.config.max_rounds, view.cost_usd));
    if let Some(error) = &view.error {
        out.line(format!("error: {}", wait::first_line(error)));
    }
    if let Some(branch) = &view.integration_branch {
        out.line(format!("branch: {branch} for {}", view.base_branch.as_deref().unwrap_or("-")));
    }
    let mut table = Table::new(["ROUND", "MEMBER", "VOTE", "MERGE", "COST", "SAYS"]);
    for response in &view.responses {
        let merge = response.merge.as_ref().map(|merge| json!(merge.status).as_str().unwrap_or("-").to_owned());
        table.row([
            response.round.to_string(),
            response.agent.clone(),
            (if response.consensus { "yes" } else { "no" }).to_owned(),
            merge.unwrap_or_else(|| "-".to_owned()),
            format!("{:.4}", response.cost_usd),
            wait::first_line(&response.content).chars().take(80).collect(),
        ]);
    }
    out.table(&table, "Nobody has answered yet.");
    for line in view.unmerged_members.iter().map(|name| format!("not merged: {name}")) {
        out.line(line);
    }
    for line in view.warnings.iter().map(|warning| format!("warning: {warning}")) {
        out.line(line);
    }
    if view.resumable {
        out.line(format!("nothing executes it: clawo workflow resume {} --wait", view.run_id));
    }
    if let Some(next) = &view.continued_by {
        out.line(format!("gone on with by {next}"));
    }
}

/// What a council has made, in words.
fn reviewed(context: &Context, view: &ReviewView) {
    let out = &context.out;
    if out.json() {
        return;
    }
    let preview = json!(view.merge_preview).as_str().unwrap_or_default().to_owned();
    out.line(format!("council {}  {} after {} rounds", view.council_id, view.status.as_str(), view.rounds));
    out.line(format!("{} into {}: {preview}", view.integration_branch, view.base_branch));
    let mut table = Table::new(["FILE", "CHANGE", "LINES", "MEMBERS"]);
    for file in &view.changed_files {
        table.row([
            file.file.clone(),
            file.change.to_owned(),
            format!("+{} -{}", file.insertions, file.deletions),
            file.members.join(", "),
        ]);
    }
    out.table(&table, "No file differs.");
    for summary in &view.agent_summaries {
        let vote = if summary.consensus { "yes" } else { "no" };
        out.line(format!("{} ({vote}): {}", summary.agent, wait::first_line(&summary.preview)));
    }
    out.line(format!("\n{}", view.reviewer_guidance.trim_end()));
}

/// An acceptance in words.
fn accepted(context: &Context, view: &AcceptView) {
    let out = &context.out;
    let how = match (view.already_accepted, view.merge_kind) {
        (true, _) => "was accepted before".to_owned(),
        (false, MergeKind::None) => format!("brings nothing that {} does not have", view.base_branch),
        (false, MergeKind::FastForward) => format!("is in {} by fast-forward, {}", view.base_branch, view.after),
        (false, MergeKind::MergeCommit) => format!("is in {} by merge commit {}", view.base_branch, view.after),
    };
    out.line(format!("the work of council {} {how}", view.council_id));
    out.line(format!(
        "{} branches and {} worktrees removed",
        view.branches_deleted.len(),
        view.worktrees_removed.len()
    ));
    for error in &view.cleanup_errors {
        out.line(format!("not removed: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(subcommand)]
        command: CouncilCommand,
    }

    fn start_of(line: &[&str]) -> StartArgs {
        let parsed = Line::try_parse_from(["council", "start"].iter().chain(line)).unwrap();
        let CouncilCommand::Start(args) = parsed.command else { panic!("{line:?}") };
        *args
    }

    #[test]
    fn flags_become_fields() {
        let plain = start_of(&["do the task"]).fields().unwrap();
        let wanted =
            json!({ "task": "do the task", "maxRounds": 15, "agentTimeoutMs": 1_800_000, "maxTurnsPerAgent": 30 });
        assert_eq!(Value::Object(plain), wanted);
        let full = start_of(&[
            "x",
            "--engines",
            "codex,codex:fast",
            "--max-rounds",
            "2",
            "--agent-timeout",
            "1",
            "--max-turns",
            "9",
            "--max-budget",
            "0.5",
            "--permission-mode",
            "plan",
            "--allow-dirty",
            "--continue-from",
            "council-a-b",
        ]);
        let wanted = json!({
            "task": "x", "maxRounds": 2, "agentTimeoutMs": 60_000, "maxTurnsPerAgent": 9, "maxBudgetUsd": 0.5,
            "defaultPermissionMode": "plan", "allowDirty": true, "continueFrom": "council-a-b",
            "agents": [{ "name": "codex", "engine": "codex" }, { "name": "codex-2", "engine": "codex", "model": "fast" }],
        });
        assert_eq!(Value::Object(full.fields().unwrap()), wanted);
        for bad in [&["start"][..], &["start", "x", "--max-rounds", "51"], &["start", "x", "--agent-timeout", "241"]] {
            assert!(Line::try_parse_from(std::iter::once(&"council").chain(bad)).is_err(), "{bad:?}");
        }
        assert!(Line::try_parse_from(["council", "start", "--continue-from", "council-a-b"]).is_ok());
    }
}
