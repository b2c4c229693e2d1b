//! `session_send_to`: a message from one session to another.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    nodes::sessions::SentTo,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Session that speaks.
    from: String,
    /// Session that is spoken to; * is all others that are live here.
    to: String,
    /// What it says.
    #[schemars(length(min = 1, max = 65_536))]
    message: String,
    /// What it is about, in a few words.
    #[schemars(length(max = 500))]
    summary: Option<String>,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "session_send_to",
        title: "Message another session",
        description: "Passes a message from one session to another, or to all others with *; use it to let agents tell each other \
things. An idle session gets it at once as a turn, a busy one keeps it in its inbox. Next: session_inbox or \
session_deliver_inbox for what waits.",
        toolset: Toolset::Session,
        hints: Hints::WORK,
        length: Length::Short,
        pairs: &["session_inbox", "session_deliver_inbox"],
    };
    Tool::new::<Args, SentTo, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let sessions = super::sessions(&kernel).await?;
    let sent = sessions.send_to(&args.from, &args.to, &args.message, args.summary.as_deref()).await?;
    let text = match (sent.delivered, sent.queued) {
        (true, true) => "Some got it at once, some have it in their inbox. Next: session_deliver_inbox.",
        (true, false) => "Delivered. Next: session_status of the receiver.",
        (false, true) => "It waits in the inbox. Next: session_deliver_inbox once the receiver is idle.",
        (false, false) => "No other session is live. Next: session_list.",
    };
    ToolResult::new(&sent, text)
}
