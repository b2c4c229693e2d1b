//! `workflow_cancel`: ends a run wherever it is executed.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
    args::run_id,
    registry::{About, Length},
    summary,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Id of the run.
    run_id: String,
    /// Why; kept with the run.
    #[schemars(length(max = 4096))]
    reason: Option<String>,
}

/// The tool.
pub fn tool() -> Tool {
    let about = About {
        name: "workflow_cancel",
        title: "Cancel a run",
        description: "Ends a workflow run for good and kills the processes of its current node; use it when the work is no \
longer wanted. It works for runs of other processes too. What was done so far stays in the directory and its \
snapshots; a cancelled run is never verified and cannot be resumed. Cancelling a run that has ended is an error. Next: \
workflow_start for a new run, or workflow_delete to remove the record.",
        toolset: Toolset::Workflow,
        hints: Hints::END,
        length: Length::Short,
        pairs: &["workflow_start"],
    };
    Tool::new::<Args, summary::RunBrief, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let id = run_id("runId", &args.run_id)?;
    let view = kernel.get().await?.cancel(id.as_str(), args.reason).await?;
    let mut result = ToolResult::new(&view, summary::run(&view))?;
    summary::fit_run(&mut result.structured);
    Ok(result)
}
