//! `codex_goal_get`: how the goal of a Codex thread stands.

use super::{
    Named,
    goal::{self, GoalAnswer},
};
use crate::{
    engines::Ask,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, Toolset,
        registry::{About, Length},
    },
};

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "codex_goal_get",
        title: "Goal of a codex session",
        description: "Shows the goal of a session on codex-app: objective, status, tokens and seconds so far; use it to see \
whether the agent is done. It waits for a turn under way. Next: session_status, or codex_goal_resume when it stands still.",
        toolset: Toolset::Codex,
        hints: Hints::LOOK,
        length: Length::Short,
        pairs: &["codex_goal_set"],
    };
    Tool::new::<Named, GoalAnswer, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Named, _context: CallContext) -> Outcome {
    goal::ask(&kernel, &args.name, Ask::GoalGet).await
}
