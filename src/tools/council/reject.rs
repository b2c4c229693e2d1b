//! `council_reject`: sends a council's work back.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    nodes::council::reject::RejectView,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Id of the council.
    id: String,
    /// What is wrong and what is wanted, 1 to 100000 characters.
    feedback: String,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "council_reject",
        title: "Reject a council's work",
        description: "Records your feedback in the plan on the council's integration branch; use it when the work is not good \
enough. Nothing is deleted and your checkout is not touched. Next: council_start with continueFrom to go on with the \
feedback.",
        toolset: Toolset::Council,
        hints: Hints { destructive: true, ..Hints::ADD },
        length: Length::Short,
        pairs: &["council_review", "council_start"],
    };
    Tool::new::<Args, RejectView, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let id = super::checked(&args.id)?;
    let view = kernel.get().await?.council_reject(id, &args.feedback).await?;
    let id = &view.council_id;
    let text = format!(
        "The feedback is in the plan of council {id}. Next: council_start {{\"projectDir\": ..., \"continueFrom\": \"{id}\"}}."
    );
    ToolResult::new(&view, text)
}
