//! `workflow_steer`: an operator's correction for the next agent prompt.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
    args::{invalid, run_id},
    registry::{About, Length},
};
use crate::model::RunId;

/// Longest correction in bytes.
const TEXT_MAX: usize = 16 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Id of the run.
    run_id: String,
    /// The correction, 1 byte to 16 KiB.
    #[schemars(length(min = 1, max = 16_384))]
    text: String,
}

/// A queued correction.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The run.
    run_id: RunId,
    /// Node whose next agent prompt begins with it.
    queued_for: String,
}

/// The tool.
pub fn tool() -> Tool {
    let about = About {
        name: "workflow_steer",
        title: "Steer a run",
        description: "Queues a correction from the operator that is put before the next agent prompt of a workflow run; use \
it to redirect work without cancelling it. It is kept durably, survives crashes, and several keep their order. It does \
not interrupt the agent turn under way. Next: workflow_status to see when it was taken up (pendingSteers becomes 0).",
        toolset: Toolset::Workflow,
        hints: Hints::ADD,
        length: Length::Short,
        pairs: &["workflow_status"],
    };
    Tool::new::<Args, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let id = run_id("runId", &args.run_id)?;
    if args.text.trim().is_empty() {
        return Err(invalid("text", "must not be empty"));
    }
    if args.text.len() > TEXT_MAX {
        return Err(invalid("text", format!("is {} bytes long, at most {TEXT_MAX} are taken", args.text.len())));
    }
    let queued_for = kernel.get().await?.steer(id.as_str(), &args.text).await?;
    let text = format!("Queued for '{queued_for}' of run {id}. Next: workflow_status {{\"runId\": \"{id}\"}}.");
    ToolResult::new(&Output { run_id: id, queued_for }, text)
}
