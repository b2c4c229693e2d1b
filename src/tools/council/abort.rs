//! `council_abort`: ends a council for good.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    kernel::councils::Aborted,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        outcome::counted,
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Id of the council.
    id: String,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "council_abort",
        title: "Abort a council",
        description: "Ends a council for good and kills its members' processes; use it when the work is no longer wanted. What \
was done is committed to the council's branches, which stay. Next: council_review, or council_start with continueFrom.",
        toolset: Toolset::Council,
        hints: Hints::END,
        length: Length::Short,
        pairs: &["council_start"],
    };
    Tool::new::<Args, Aborted, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let id = super::checked(&args.id)?;
    let aborted = kernel.get().await?.council_abort(id).await?;
    let text = format!(
        "Council {0} is aborted; {1} with its work stay. Next: council_review {{\"id\": \"{0}\"}}.",
        aborted.id,
        counted(aborted.branches_kept.len(), "branch")
    );
    ToolResult::new(&aborted, text)
}
