//! `claude_goal_status`: how the goal of a Claude Code session stands.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    engines::Ask,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, Toolset,
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
        name: "claude_goal_status",
        title: "Goal of a claude session",
        description: "Sends a bare /goal to a session on claude, which costs no model call, and gives what it says: whether a goal is open, \
how often it was judged and why it is not reached. Next: claude_goal_set or session_send.",
        toolset: Toolset::Session,
        hints: Hints::LOOK,
        length: Length::Short,
        pairs: &["claude_goal_set"],
    };
    Tool::new::<Args, super::goal::GoalAnswer, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    super::goal::ask(&kernel, &args.name, Ask::GoalGet, "session_send").await
}
