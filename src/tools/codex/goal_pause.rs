//! `codex_goal_pause`: stops a Codex thread from following its goal for now.

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
        name: "codex_goal_pause",
        title: "Pause the goal of a codex session",
        description: "Keeps a session on codex-app from taking further turns for its goal; the goal and what it used stay. \
Next: codex_goal_resume.",
        toolset: Toolset::Codex,
        hints: Hints { idempotent: true, ..Hints::ADD },
        length: Length::Short,
        pairs: &["codex_goal_resume"],
    };
    Tool::new::<Named, GoalAnswer, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Named, _context: CallContext) -> Outcome {
    goal::ask(&kernel, &args.name, Ask::GoalPause).await
}
