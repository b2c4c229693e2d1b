//! `claude_goal_set`: has a Claude Code session follow a goal.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    engines::{Ask, GoalSet},
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
    /// What is to be reached, at most 4000 characters.
    #[schemars(length(min = 1, max = 4000))]
    objective: String,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "claude_goal_set",
        title: "Set a goal of a claude session",
        description: "Sends /goal with an objective to a session on claude and answers when the turn that follows has ended: the agent \
works until its judge calls the goal reached, or impossible, or sends it on too often. It replaces the goal there is. Next: \
claude_goal_status.",
        toolset: Toolset::Session,
        hints: Hints::WORK,
        length: Length::Works,
        pairs: &["claude_goal_status", "claude_goal_clear"],
    };
    Tool::new::<Args, super::goal::GoalAnswer, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let set = GoalSet { objective: args.objective, token_budget: None };
    super::goal::ask(&kernel, &args.name, Ask::GoalSet(set), "claude_goal_status").await
}
