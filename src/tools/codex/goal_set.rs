//! `codex_goal_set`: has a Codex thread follow a goal.

use schemars::JsonSchema;
use serde::Deserialize;

use super::goal::{self, GoalAnswer};
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
    /// Tokens after which the engine stops. Default: no bound of the goal's own.
    #[schemars(range(min = 1))]
    token_budget: Option<u64>,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "codex_goal_set",
        title: "Set a goal of a codex session",
        description: "Gives a session on codex-app a goal, in place of the one it has, and answers at once: the agent then takes turn \
after turn by itself until it calls the goal complete or blocked, or a budget is used up. Its turns are counted with the \
session. Next: codex_goal_get.",
        toolset: Toolset::Codex,
        hints: Hints::WORK,
        length: Length::Short,
        pairs: &["codex_goal_get", "codex_goal_pause", "codex_goal_clear"],
    };
    Tool::new::<Args, GoalAnswer, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let set = GoalSet { objective: args.objective, token_budget: args.token_budget };
    goal::ask(&kernel, &args.name, Ask::GoalSet(set)).await
}
