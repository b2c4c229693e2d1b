//! `session_compact`: shortens a conversation.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    nodes::sessions::Compacted,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Name of the session.
    name: String,
    /// What the summary should keep.
    #[schemars(length(max = 4000))]
    summary: Option<String>,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "session_compact",
        title: "Compact a session",
        description: "Makes a session's agent replace its conversation by a summary; use it when the context is nearly full. An engine \
without compaction answers compacted: false with the reason. Next: session_send.",
        toolset: Toolset::Session,
        hints: Hints::WORK,
        length: Length::Short,
        pairs: &["session_status"],
    };
    Tool::new::<Args, Compacted, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let done = super::sessions(&kernel).await?.compact(&args.name, args.summary).await?;
    let text = match &done.reason {
        None => format!("The conversation of '{}' is compacted. Next: session_send.", args.name),
        Some(reason) => format!("Not compacted: {reason}. Next: session_send, or session_handoff to a new session."),
    };
    ToolResult::new(&done, text)
}
