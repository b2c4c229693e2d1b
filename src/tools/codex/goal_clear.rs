//! `codex_goal_clear`: takes the goal of a Codex thread away.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Named;
use crate::{
    engines::Ask,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize)]
struct Said {
    cleared: Option<bool>,
}

/// Whether there was a goal.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The session.
    name: String,
    /// Whether there was a goal.
    cleared: bool,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "codex_goal_clear",
        title: "Clear the goal of a codex session",
        description: "Takes the goal of a session on codex-app away; use it when the goal no longer matters. What was said \
stays. Next: codex_goal_set or session_send.",
        toolset: Toolset::Codex,
        hints: Hints::END,
        length: Length::Short,
        pairs: &["codex_goal_set"],
    };
    Tool::new::<Named, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Named, _context: CallContext) -> Outcome {
    let (said, _) = super::ask::<Said>(&kernel, &args.name, Ask::GoalClear).await?;
    let cleared = said.cleared.unwrap_or(false);
    let what = if cleared { "no longer has a goal" } else { "had no goal" };
    let text = format!("Session '{}' {what}. Next: codex_goal_set or session_send.", args.name);
    ToolResult::new(&Output { name: args.name, cleared }, text)
}
