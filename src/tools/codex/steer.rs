//! `codex_steer`: adds input to the turn a Codex thread is taking.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tools::{
    CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
    registry::{About, Length},
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Name of the session.
    name: String,
    /// What the agent should know now.
    #[schemars(length(min = 1, max = 100_000))]
    text: String,
}

/// The text was taken.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The session.
    name: String,
    /// Whether the turn took the text; else the call fails.
    steered: bool,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "codex_steer",
        title: "Steer a codex session",
        description: "Adds a text to the turn that a session on codex-app is taking, without ending it; use it to correct \
the agent while it works. Fails when no turn is under way. Next: session_status.",
        toolset: Toolset::Codex,
        hints: Hints { open_world: true, ..Hints::ADD },
        length: Length::Short,
        pairs: &["codex_interrupt"],
    };
    Tool::new::<Args, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    super::of_codex(&kernel, &args.name).await?.steer(&args.name, &args.text).await?;
    let text = format!("The turn of session '{}' has the text. Next: session_status.", args.name);
    ToolResult::new(&Output { name: args.name, steered: true }, text)
}
