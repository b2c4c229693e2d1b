//! `workflow_resume`: continues a run whose process is gone.

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
}

/// The tool.
pub fn tool() -> Tool {
    let about = About {
        name: "workflow_resume",
        title: "Resume a run",
        description: "Continues a workflow run whose process ended; use it when workflow_status shows interrupted. Nodes \
that succeeded are not run again, the one that was cut off is. A run that has ended or waits for a person is returned \
as it is; one that a live process executes is refused with that process named. Next: workflow_status with waitMs.",
        toolset: Toolset::Workflow,
        hints: Hints { idempotent: true, ..Hints::WORK },
        length: Length::Short,
        pairs: &["workflow_status"],
    };
    Tool::new::<Args, summary::RunBrief, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let id = run_id("runId", &args.run_id)?;
    let view = kernel.get().await?.resume(id.as_str()).await?;
    let mut result = ToolResult::new(&view, summary::run(&view))?;
    summary::fit_run(&mut result.structured);
    Ok(result)
}
