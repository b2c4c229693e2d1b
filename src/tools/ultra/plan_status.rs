//! `ultraplan_status`: where a long plan stands, and the plan.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    kernel::ultraplans::PlanView,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset, WAIT_MAX_MS,
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Id of the ultraplan.
    id: String,
    /// Wait up to this many milliseconds for a change before answering. Default 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 55_000))]
    wait_ms: u64,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "ultraplan_status",
        title: "Status of an ultraplan",
        description: "Shows where an ultraplan stands: running, completed with the whole plan, or error with the reason; use it after \
ultraplan_start. With waitMs it waits for a change and answers early; running is a normal answer, call it again. Works \
after restarts. Next: ultraplan_status again while it runs, then workflow_start to have the plan built.",
        toolset: Toolset::Ultra,
        hints: Hints::LOOK,
        length: Length::Waits,
        pairs: &["ultraplan_start"],
    };
    Tool::new::<Args, PlanView, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, context: CallContext) -> Outcome {
    let id = super::run_id("id", &args.id)?;
    let kernel = kernel.get().await?;
    let wait = args.wait_ms.min(WAIT_MAX_MS);
    let view = super::watched(&context, wait, kernel.ultraplan(id.as_str(), wait)).await?;
    let result = ToolResult::new(&view, super::planned(&view))?;
    Ok(result.link(format!("clawo://run/{id}"), "run record", "application/json"))
}
