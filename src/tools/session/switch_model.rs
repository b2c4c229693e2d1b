//! `session_switch_model`: another model for a running session.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    nodes::sessions::Changed,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Name of the session.
    name: String,
    /// Model as the engine knows it.
    #[schemars(length(min = 1, max = 256))]
    model: String,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "session_switch_model",
        title: "Switch a session's model",
        description: "Makes a running session use another model in the same conversation; use it when a task needs more, or less, than \
the one it has. Where the engine cannot do that while it runs, its program is started anew; when that fails, the session \
goes on as it was. Next: session_send.",
        toolset: Toolset::Session,
        hints: Hints::WORK,
        length: Length::Short,
        pairs: &["session_send"],
    };
    Tool::new::<Args, Changed, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let changed = super::sessions(&kernel).await?.switch_model(&args.name, &args.model).await?;
    let text = format!("Session '{}' uses {} from now on. Next: session_send.", args.name, args.model);
    ToolResult::new(&changed, text)
}
