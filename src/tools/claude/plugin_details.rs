//! `plugin_details`: inventory of a plugin of Claude Code.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    kernel::Error,
    model::Code,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// The plugin, as name or name@marketplace.
    #[schemars(length(min = 1, max = 256))]
    name: String,
    /// Absolute directory whose project's plugins count too. Default: the server's.
    cwd: Option<String>,
}

/// The inventory.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The plugin.
    name: String,
    /// Skills, agents, hooks and servers with what they cost in tokens, as the program tells them.
    inventory: String,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "plugin_details",
        title: "Details of a claude plugin",
        description: "Shows what an installed plugin of Claude Code consists of and how many tokens it adds to a session; use \
it before starting a session with it. Next: session_start.",
        toolset: Toolset::Claude,
        hints: Hints::LOOK,
        length: Length::Short,
        pairs: &["session_start"],
    };
    Tool::new::<Args, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let kernel = super::services(&kernel).await?;
    let services = kernel.services();
    let cwd = super::directory(services, args.cwd).await?;
    if args.name.starts_with('-') {
        return Err(Error::new(Code::InvalidArgument, "name: must not begin with '-'"));
    }
    let said = super::ask(services, &["plugin", "details", &args.name], &cwd).await?;
    if said.status != 0 {
        return Err(super::refused(Code::InvalidArgument, "name", &said));
    }
    let inventory = super::shown(&said.text);
    let text = format!("{inventory}\n\nNext: session_start.");
    ToolResult::new(&Output { name: args.name, inventory }, text)
}
