//! `session_update_tools`: other tools for a running session.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    nodes::sessions::Changed,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        args::invalid,
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Name of the session.
    name: String,
    /// Tools that need no asking.
    allowed_tools: Option<Vec<String>>,
    /// Tools that are taken away.
    disallowed_tools: Option<Vec<String>>,
    /// Tools to take out of both lists.
    remove_tools: Option<Vec<String>>,
    /// Whether the lists are added to those there are. Default false: they replace them.
    merge: Option<bool>,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "session_update_tools",
        title: "Change a session's tools",
        description: "Gives a running session other allowed or disallowed tools; use it to widen or narrow what its agent may do. The \
agent is started anew with the same conversation; when that fails, the session goes on as it was. Next: session_send.",
        toolset: Toolset::Session,
        hints: Hints::WORK,
        length: Length::Short,
        pairs: &["session_send"],
    };
    Tool::new::<Args, Changed, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let remove = args.remove_tools.unwrap_or_default();
    if args.allowed_tools.is_none() && args.disallowed_tools.is_none() && remove.is_empty() {
        return Err(invalid("allowedTools", "or disallowedTools or removeTools is required"));
    }
    let sessions = super::sessions(&kernel).await?;
    let merge = args.merge.unwrap_or(false);
    let changed = sessions.update_tools(&args.name, args.allowed_tools, args.disallowed_tools, &remove, merge).await?;
    let text = format!("The tools of '{}' are changed. Next: session_send.", args.name);
    ToolResult::new(&changed, text)
}
