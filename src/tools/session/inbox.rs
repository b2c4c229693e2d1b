//! `session_inbox`: messages other sessions sent.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    nodes::sessions::InboxMessage,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        outcome::{RESULT_MAX, counted, head, wire_len},
        registry::{About, Length},
    },
};

/// Longest message in the answer, in bytes.
const TEXT_MAX: usize = 4_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Name of the session.
    name: String,
    /// Whether to leave out what was given to the agent already. Default true.
    unread_only: Option<bool>,
}

/// The messages.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// Oldest first: id, from, summary, message, at, read.
    messages: Vec<InboxMessage>,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "session_inbox",
        title: "Inbox of a session",
        description: "Lists what other sessions sent to a session, by default only what its agent was not given yet; use it to see what \
waits. Nothing is marked as read. Next: session_deliver_inbox.",
        toolset: Toolset::Session,
        hints: Hints::LOOK,
        length: Length::Short,
        pairs: &["session_deliver_inbox"],
    };
    Tool::new::<Args, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let mut messages = super::sessions(&kernel).await?.inbox(&args.name, args.unread_only.unwrap_or(true)).await?;
    let all = messages.len();
    for message in &mut messages {
        message.message = head(&message.message, TEXT_MAX);
    }
    while wire_len(&messages) > RESULT_MAX {
        messages.drain(..messages.len().div_ceil(2));
    }
    let cut = messages.len() < all;
    let text = format!("{}. Next: session_deliver_inbox.", counted(all, "message"));
    let result = ToolResult::new(&Output { messages }, text)?;
    Ok(if cut { result.with("truncated", vec!["messages: only the newest are shown"]) } else { result })
}
