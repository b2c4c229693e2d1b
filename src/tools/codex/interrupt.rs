//! `codex_interrupt`: ends the turn a Codex thread is taking.

use schemars::JsonSchema;
use serde::Serialize;

use super::Named;
use crate::tools::{
    CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
    registry::{About, Length},
};

/// Whether there was something to end.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The session.
    name: String,
    /// Whether a turn, or something else that was asked, was under way.
    interrupted: bool,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "codex_interrupt",
        title: "Interrupt a codex session",
        description: "Ends the turn that a session on codex-app is taking, with the commands it started; the session lives \
on and its send is answered as interrupted. Turns that the agent takes by itself for a goal are held by \
codex_goal_pause instead. Next: session_send.",
        toolset: Toolset::Codex,
        hints: Hints::END,
        length: Length::Short,
        pairs: &["codex_steer", "session_send"],
    };
    Tool::new::<Named, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Named, _context: CallContext) -> Outcome {
    let interrupted = super::of_codex(&kernel, &args.name).await?.interrupt(&args.name).await?;
    let what = if interrupted { "is interrupted" } else { "takes no turn now" };
    let text = format!("Session '{}' {what}. Next: session_send.", args.name);
    ToolResult::new(&Output { name: args.name, interrupted }, text)
}
