//! `session_deliver_inbox`: gives a session what waits in its inbox.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    nodes::sessions::Delivered,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        outcome::counted,
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
        name: "session_deliver_inbox",
        title: "Deliver an inbox",
        description: "Gives an idle session's agent the messages that wait in its inbox, in one turn that goes on in the background; use \
it once the session has ended its turn. A busy session is refused. Next: session_status with the turnId.",
        toolset: Toolset::Session,
        hints: Hints::WORK,
        length: Length::Short,
        pairs: &["session_status", "session_inbox"],
    };
    Tool::new::<Args, Delivered, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let done = super::sessions(&kernel).await?.deliver(&args.name).await?;
    let text = match &done.turn_id {
        Some(id) => format!(
            "{} delivered. Next: session_status {{\"name\": \"{}\", \"turnId\": \"{id}\"}}.",
            counted(done.delivered, "message"),
            args.name
        ),
        None => "Nothing waits. Next: session_send.".to_owned(),
    };
    ToolResult::new(&done, text)
}
