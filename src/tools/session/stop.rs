//! `session_stop`: ends a session's processes.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    nodes::sessions::Stopped,
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
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "session_stop",
        title: "Stop a session",
        description: "Ends a session's agent and everything it started, and frees its place; use it when a conversation is over or \
stuck. A message that waits for a reply fails with session_stopped. The conversation stays known for a week. Next: \
session_start with the same name to go on with it.",
        toolset: Toolset::Session,
        hints: Hints::END,
        length: Length::Short,
        pairs: &["session_start"],
    };
    Tool::new::<Args, Stopped, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let stopped = super::sessions(&kernel).await?.stop(&args.name).await?;
    let text = format!("Session '{}' is stopped. Next: session_start with its name to go on.", stopped.name);
    ToolResult::new(&stopped, text)
}
