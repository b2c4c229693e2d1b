//! `council_inject`: words of the operator for the next round.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    kernel::councils::Injected,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Id of the council.
    id: String,
    /// What every member should know, 1 to 20000 characters.
    message: String,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "council_inject",
        title: "Speak to a council",
        description: "Puts a message into every member's next prompt; use it to correct a council under way. The round that \
runs is not changed, and the council does not end before the message was read. Next: council_status with waitMs.",
        toolset: Toolset::Council,
        hints: Hints::ADD,
        length: Length::Short,
        pairs: &["council_status"],
    };
    Tool::new::<Args, Injected, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let id = super::checked(&args.id)?;
    let injected = kernel.get().await?.council_inject(id, &args.message).await?;
    let (id, round) = (&injected.id, injected.deliver_at_round);
    let text =
        format!("Members read it in round {round}. Next: council_status {{\"id\": \"{id}\", \"waitMs\": 50000}}.");
    ToolResult::new(&injected, text)
}
