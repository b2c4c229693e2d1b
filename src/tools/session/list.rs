//! `session_list`: the sessions there are.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    nodes::sessions::SessionEntry,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        outcome::{RESULT_MAX, counted, wire_len},
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {}

/// The sessions.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// In order of their names.
    sessions: Vec<SessionEntry>,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "session_list",
        title: "List sessions",
        description: "Lists the named sessions that are live here or can be gone on with, with engine, directory, state, cost and \
cap; use it to find a name. Next: session_send with a name, or sessions_overview for what they do.",
        toolset: Toolset::Session,
        hints: Hints::LOOK,
        length: Length::Short,
        pairs: &["session_status"],
    };
    Tool::new::<Args, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, _args: Args, _context: CallContext) -> Outcome {
    let mut output = Output { sessions: super::sessions(&kernel).await?.list().await? };
    let all = output.sessions.len();
    while wire_len(&output) > RESULT_MAX {
        // Live ones are what a caller works with.
        output.sessions.sort_by_key(|s| (!s.live, std::cmp::Reverse(s.last_activity)));
        output.sessions.truncate(output.sessions.len() / 2);
    }
    let live = output.sessions.iter().filter(|s| s.live).count();
    let text =
        format!("{}, {live} live here. Next: session_send with a name, or session_start.", counted(all, "session"));
    let result = ToolResult::new(&output, text)?;
    let cut = output.sessions.len() < all;
    Ok(if cut { result.with("truncated", vec!["sessions: only the newest are shown"]) } else { result })
}
