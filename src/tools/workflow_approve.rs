//! `workflow_approve`: a person's answer to an open gate.

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
    /// The person's decision; there is no default.
    approved: bool,
    /// What the person added; agents see it.
    #[schemars(length(max = 16_384))]
    comment: Option<String>,
}

/// The tool.
pub fn tool() -> Tool {
    let about = About {
        name: "workflow_approve",
        title: "Answer a gate",
        description: "Gives a person's yes or no to the open gate of a workflow run; use it only after a person has seen the \
gate that workflow_status shows and has decided. Approving lets the run go on, also when the process that parked it is \
gone; rejecting fails the gate node. A gate is answered once; a second answer is an error. Next: workflow_status with \
waitMs.",
        toolset: Toolset::Workflow,
        hints: Hints { destructive: true, open_world: true, ..Hints::ADD },
        length: Length::Short,
        pairs: &["workflow_status"],
    };
    Tool::new::<Args, summary::RunBrief, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let id = run_id("runId", &args.run_id)?;
    let view = kernel.get().await?.approve(id.as_str(), args.approved, args.comment).await?;
    let word = if args.approved { "Approved" } else { "Rejected" };
    let mut result = ToolResult::new(&view, format!("{word}. {}", summary::run(&view)))?;
    summary::fit_run(&mut result.structured);
    Ok(result)
}
