//! `codex_fork`: branches a Codex thread off.

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

/// The branch.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The new thread; it has all that was said so far.
    thread_id: String,
    /// The thread it comes from, which goes on unchanged.
    forked_from: Option<String>,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "codex_fork",
        title: "Fork a codex session",
        description: "Branches the thread of a session on codex-app off and gives the new thread's id; use it to try \
something without the session knowing. Next: session_start with engine codex-app and the id as resumeSessionId, or \
codex_resume.",
        toolset: Toolset::Codex,
        hints: Hints::ADD,
        length: Length::Short,
        pairs: &["codex_resume", "session_start"],
    };
    Tool::new::<Named, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Named, _context: CallContext) -> Outcome {
    let (fork, _) = super::ask::<Output>(&kernel, &args.name, Ask::Fork).await?;
    let text = format!("Session '{}' is branched off as thread {}. Next: codex_resume.", args.name, fork.thread_id);
    ToolResult::new(&fork, text)
}
