//! `council_status`: where a council stands, with a wait that ends early on a change.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{shapes::CouncilBrief, summary};
use crate::{
    kernel::{Error, councils::CouncilQuery},
    model::Code,
    nodes::council::view::fit,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        outcome::RESULT_MAX,
        registry::{About, Length},
    },
};

/// Bytes of an answer with whole replies.
const FULL_MAX: usize = 1 << 20;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Id of the council, or of a run with one council.
    id: String,
    /// Whole replies instead of their ends. Default false.
    #[serde(default)]
    full: bool,
    /// Only the replies of this round.
    #[schemars(range(min = 1, max = 50))]
    round: Option<u32>,
    /// Wait up to this many milliseconds for a change before answering. Default 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 55_000))]
    wait_ms: u64,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "council_status",
        title: "Status of a council",
        description: "Shows where a council stands: status, round, replies, votes, conflicts, cost; use it after council_start. \
With waitMs it waits for a change; still running is a normal answer. It works after restarts and for councils of other \
processes. Next: council_status again while it runs, then council_review.",
        toolset: Toolset::Council,
        hints: Hints::LOOK,
        length: Length::Waits,
        pairs: &["council_start"],
    };
    Tool::new::<Args, CouncilBrief, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, context: CallContext) -> Outcome {
    super::checked(&args.id)?;
    let kernel = kernel.get().await?;
    if args.wait_ms > 0 {
        context.report(0, 1, "waiting for a change");
    }
    let query = CouncilQuery { full: args.full, round: args.round, wait_ms: args.wait_ms };
    let mut view = tokio::select! {
        () = context.cancel.cancelled() => {
            return Err(Error::new(Code::Cancelled, "the wait was cancelled; the council goes on"));
        }
        view = kernel.council_status(args.id.trim(), query) => view?,
    };
    fit(&mut view, if args.full { FULL_MAX } else { RESULT_MAX });
    let uri = format!("clawo://run/{}", view.run_id);
    Ok(ToolResult::new(&view, summary(&view))?.link(uri, "run record", "application/json"))
}
