//! `workflow_delete`: removes a run nobody executes.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
    args::run_id,
    registry::{About, Length},
};
use crate::kernel::Deleted;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Id of the run.
    run_id: String,
}

/// The tool.
pub fn tool() -> Tool {
    let about = About {
        name: "workflow_delete",
        title: "Delete a run",
        description: "Removes a workflow run with its log, outputs, evidence and snapshots for good; use it to clean up runs \
that nobody needs. A run that a process executes is refused. Files in the work directory are not touched, and the \
branch of a run that had its own worktree stays. Next: workflow_list to see what is left.",
        toolset: Toolset::Workflow,
        hints: Hints::END,
        length: Length::Short,
        pairs: &["workflow_list"],
    };
    Tool::new::<Args, Deleted, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let id = run_id("runId", &args.run_id)?;
    let deleted = kernel.get().await?.delete(id.as_str()).await?;
    let branch = deleted.branch.as_ref().map(|b| format!(" Its work stays on branch {b}.")).unwrap_or_default();
    let text = format!("Run {id} is deleted with its evidence and snapshots.{branch} Next: workflow_list.");
    ToolResult::new(&deleted, text)
}
