//! `ultrareview_status`: where a review stands, and what was found.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    kernel::fanouts::ReviewView,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, Toolset, WAIT_MAX_MS,
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Id of the ultrareview.
    id: String,
    /// Wait up to this many milliseconds for a change before answering. Default 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 55_000))]
    wait_ms: u64,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "ultrareview_status",
        title: "Status of an ultrareview",
        description: "Shows where an ultrareview stands: running, completed with the merged findings, or error, and how each reviewer \
ended; use it after ultrareview_start. With waitMs it waits for a change and answers early; running is a normal answer, \
call it again. Works after restarts. Next: ultrareview_status again while it runs, or fanout_status with the same id for \
each review by itself.",
        toolset: Toolset::Ultra,
        hints: Hints::LOOK,
        length: Length::Waits,
        pairs: &["ultrareview_start", "fanout_abort"],
    };
    Tool::new::<Args, ReviewView, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, context: CallContext) -> Outcome {
    let id = super::run_id("id", &args.id)?;
    let kernel = kernel.get().await?;
    let wait = args.wait_ms.min(WAIT_MAX_MS);
    let look = kernel.ultrareview(id.as_str(), wait, super::FINDINGS_MAX);
    let (view, cut) = super::watched(&context, wait, look).await?;
    super::review_answer(&view, &view, cut, super::reviewed(&view))
}
