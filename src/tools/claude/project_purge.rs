//! `project_purge`: deletes what Claude Code keeps of a project.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    model::Code,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        registry::{About, Length},
    },
};

/// How the program says that there is nothing to delete.
const NOTHING: &str = "No Claude Code project state found";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Absolute directory of the project.
    #[schemars(length(min = 1))]
    cwd: String,
    /// Whether to only list what would go. Default true; false deletes it for good.
    #[serde(rename = "dry_run")]
    dry_run: Option<bool>,
}

/// What goes, or went.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The project.
    cwd: String,
    /// Whether nothing was deleted.
    dry_run: bool,
    /// Whether the program keeps, or kept, anything of the project.
    found: bool,
    /// The list, as the program tells it.
    plan: String,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "project_purge",
        title: "Purge a claude project",
        description: "Lists what Claude Code keeps of a project (transcripts, memory, tasks, file history, its entry in the \
settings) and, with dry_run: false, deletes it for good, so that sessions on claude there cannot be resumed; the \
project's own files stay. Only for a person who asked for it. Next: project_purge with dry_run: false, or session_start.",
        toolset: Toolset::Claude,
        hints: Hints { open_world: true, ..Hints::END },
        length: Length::Short,
        pairs: &["session_start"],
    };
    Tool::new::<Args, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let kernel = super::services(&kernel).await?;
    let services = kernel.services();
    let cwd = super::directory(services, Some(args.cwd)).await?;
    let dry = args.dry_run.unwrap_or(true);
    let path = cwd.display().to_string();
    let how = if dry { "--dry-run" } else { "--yes" };
    let said = super::ask(services, &["project", "purge", how, &path], &cwd).await?;
    // Its word for nothing to do is a failure.
    let found = said.status == 0;
    if !found && !said.errors.contains(NOTHING) {
        return Err(super::refused(Code::EngineFailed, "claude project purge", &said));
    }
    let plan = super::shown(&said.text);
    let text = match (found, dry) {
        (false, _) => "Claude Code keeps nothing of this project. Next: session_start.".to_owned(),
        (true, true) => format!("{plan}\n\nNext: project_purge with dry_run: false, if a person wants that."),
        (true, false) => format!("{plan}\n\nNext: session_start."),
    };
    ToolResult::new(&Output { cwd: path, dry_run: dry, found, plan }, text)
}
