//! `codex_rollback`: drops the last turns of a Codex thread.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    engines::Ask,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset, outcome,
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Name of the session.
    name: String,
    /// How many turns to drop. Default 1.
    #[schemars(range(min = 1, max = 50))]
    turns: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct Said {
    dropped: u32,
}

/// What was dropped.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The session.
    name: String,
    /// Turns that were dropped.
    dropped: u32,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "codex_rollback",
        title: "Roll a codex session back",
        description: "Drops the last turns from what the agent of a session on codex-app remembers; use it when they led \
astray. Files stay as they are, and so does what the turns cost. Next: session_send.",
        toolset: Toolset::Codex,
        hints: Hints { destructive: true, ..Hints::ADD },
        length: Length::Short,
        pairs: &["codex_fork", "session_send"],
    };
    Tool::new::<Args, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let (said, _) = super::ask::<Said>(&kernel, &args.name, Ask::Rollback(args.turns.unwrap_or(1))).await?;
    let turns = outcome::counted(said.dropped, "turn");
    let text = format!("Session '{}' forgot {turns}; files stay as they are. Next: session_send.", args.name);
    ToolResult::new(&Output { name: args.name, dropped: said.dropped }, text)
}
