//! `session_grep`: finds what happened in a session.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    nodes::sessions::Entry,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        outcome::{RESULT_MAX, counted, head, wire_len},
        registry::{About, Length},
    },
};

/// Longest text of one event in the answer, in bytes.
const TEXT_MAX: usize = 4_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Name of the session.
    name: String,
    /// Regular expression, case makes no difference.
    #[schemars(length(min = 1, max = 1000))]
    pattern: String,
    /// Most events in the answer. Default 50.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<usize>,
}

/// What was found.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The newest that fit, oldest first: at, turnId, type, text.
    events: Vec<Entry>,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "session_grep",
        title: "Search a session",
        description: "Searches what happened in a session (messages, replies, tool calls, retries, ends of turns), also before a restart \
of the server; use it to find when something was said or done. Linear-time regular expressions. Next: session_status.",
        toolset: Toolset::Session,
        hints: Hints::LOOK,
        length: Length::Short,
        pairs: &["session_status"],
    };
    Tool::new::<Args, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let mut events = super::sessions(&kernel).await?.grep(&args.name, &args.pattern, args.limit.unwrap_or(50)).await?;
    let found = events.len();
    for event in &mut events {
        event.text = head(&event.text, TEXT_MAX);
    }
    while wire_len(&events) > RESULT_MAX {
        events.drain(..events.len().div_ceil(2));
    }
    let cut = events.len() < found;
    let text = format!("{} found. Next: session_status.", counted(found, "event"));
    let result = ToolResult::new(&Output { events }, text)?;
    Ok(if cut {
        result.with("truncated", vec!["events: only the newest are shown; use a narrower pattern"])
    } else {
        result
    })
}
