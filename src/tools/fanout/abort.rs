//! `fanout_abort`: nobody new begins, and those at work finish or are stopped.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    kernel::fanouts::{FanoutAborted, FanoutStatus},
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        args::run_id,
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Id of the fan-out, or of an ultrareview.
    id: String,
    /// Stop the agents at work too instead of letting them finish. Default false.
    #[serde(default)]
    stop_running: bool,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "fanout_abort",
        title: "Abort a fan-out",
        description: "Ends a fan-out: agents that wait for their turn never begin, nothing is merged or selected, and those at work \
finish, or are stopped with stopRunning; use it when the answers are no longer wanted. The run is cancelled once \
everybody has ended; what was said so far stays readable. Aborting a fan-out that has ended is an error. Next: \
fanout_status for what there is.",
        toolset: Toolset::Fanout,
        hints: Hints::END,
        length: Length::Short,
        pairs: &["fanout_start", "fanout_status"],
    };
    Tool::new::<Args, FanoutAborted, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let id = run_id("id", &args.id)?;
    let aborted = kernel.get().await?.fanout_abort(id.as_str(), args.stop_running).await?;
    let text = match (aborted.status, aborted.still_running.as_slice()) {
        (FanoutStatus::Running, []) => format!("Fan-out {id} ends now."),
        (FanoutStatus::Running, open) => {
            format!("Fan-out {id} ends when those at work have finished: {}.", open.join(", "))
        }
        (status, _) => format!("Fan-out {id} is {}.", status.as_str()),
    };
    ToolResult::new(&aborted, format!("{text} Next: fanout_status {{\"id\": \"{id}\", \"waitMs\": 50000}}."))
}
