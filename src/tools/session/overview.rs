//! `sessions_overview`: what all sessions do.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    nodes::sessions::Overview,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        outcome::{RESULT_MAX, counted, wire_len},
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "sessions_overview",
        title: "Overview of sessions",
        description: "Shows every named session with its state (starting, idle, busy, paused, stopped, failed), context, queue, inbox \
and last activity, and how many agents this server may run; use it to steer several sessions. Next: session_status with \
a name.",
        toolset: Toolset::Session,
        hints: Hints::LOOK,
        length: Length::Short,
        pairs: &["session_status"],
    };
    Tool::new::<Args, Overview, _, _>(about, run)
}

async fn run(kernel: KernelHandle, _args: Args, _context: CallContext) -> Outcome {
    let mut view = super::sessions(&kernel).await?.overview().await?;
    let all = view.sessions.len();
    while wire_len(&view) > RESULT_MAX {
        view.sessions.sort_by_key(|s| (!s.entry.live, std::cmp::Reverse(s.entry.last_activity)));
        view.sessions.truncate(view.sessions.len() / 2);
    }
    let text = format!(
        "{}; {} of {} agents run. Next: session_status with a name.",
        counted(all, "session"),
        view.in_use,
        view.max
    );
    let result = ToolResult::new(&view, text)?;
    let cut = view.sessions.len() < all;
    Ok(if cut { result.with("truncated", vec!["sessions: only the newest are shown"]) } else { result })
}
