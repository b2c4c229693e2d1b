//! `claude_goal_clear`: takes the goal of a Claude Code session away.

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
        name: "claude_goal_clear",
        title: "Clear the goal of a claude session",
        description: "Sends /goal clear to a session on claude: its next turns end when the agent stops. Harmless when there is no goal. Next: \
session_send.",
        toolset: Toolset::Session,
        hints: Hints::END,
        length: Length::Short,
        pairs: &["claude_goal_set"],
    };
    Tool::new::<Args, super::goal::GoalAnswer, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    super::goal::ask(&kernel, &args.name, Ask::GoalClear, "session_send").await
}
