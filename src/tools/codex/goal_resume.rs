//! `codex_goal_resume`: has a Codex thread follow its goal again.

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
        name: "codex_goal_resume",
        title: "Resume the goal of a codex session",
        description: "Makes the goal of a session on codex-app active again after a pause, a limit or a failure; the agent \
then goes on by itself. Next: codex_goal_get.",
        toolset: Toolset::Codex,
        hints: Hints::WORK,
        length: Length::Short,
        pairs: &["codex_goal_get", "codex_goal_pause"],
    };
    Tool::new::<Named, GoalAnswer, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Named, _context: CallContext) -> Outcome {
    goal::ask(&kernel, &args.name, Ask::GoalResume).await
}
