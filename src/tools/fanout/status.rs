//! `fanout_status`: where a fan-out stands and what its agents said.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    kernel::{Error, fanouts::FanoutView},
    model::Code,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, Toolset, WAIT_MAX_MS,
        args::run_id,
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Id of the fan-out, or of an ultrareview.
    id: String,
    /// Wait up to this many milliseconds for a change before answering. Default 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 55_000))]
    wait_ms: u64,
    /// Whole texts instead of their last 4000 characters. Default false.
    #[serde(default)]
    full: bool,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "fanout_status",
        title: "Status of a fan-out",
        description: "Shows where a fan-out stands: running, done, error or aborted, how each agent ended with the end of what it \
said, the merged answer, and for isolated agents the candidates, who was selected and what became of the merge; use it \
after fanout_start. With waitMs it waits for a change and answers early; running is a normal answer, call it again. \
Works for ultrareviews, for runs of other processes and after restarts. Next: fanout_status again while it runs, with \
full for whole texts, or workflow_evidence for the checks.",
        toolset: Toolset::Fanout,
        hints: Hints::LOOK,
        length: Length::Waits,
        pairs: &["fanout_start"],
    };
    Tool::new::<Args, FanoutView, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, context: CallContext) -> Outcome {
    let id = run_id("id", &args.id)?;
    let kernel = kernel.get().await?;
    let wait = args.wait_ms.min(WAIT_MAX_MS);
    if wait > 0 {
        context.report(0, 1, "waiting for a change");
    }
    let view = tokio::select! {
        () = context.cancel.cancelled() => return Err(Error::new(Code::Cancelled, "the wait was cancelled; the run goes on")),
        view = super::view(&kernel, id.as_str(), wait, args.full) => view?,
    };
    super::answer(&view, &view, super::summary(&view))
}
