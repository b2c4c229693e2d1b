//! `session_handoff`: another engine goes on with a conversation.

use schemars::JsonSchema;
use serde::Deserialize;

use super::fitting;
use crate::{
    nodes::sessions::{HandedOff, HandoffRequest},
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, Toolset,
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Name of the session to hand on; it runs on.
    name: String,
    /// Engine of the new session.
    #[schemars(length(min = 1, max = 64))]
    engine: String,
    /// Model of the new session.
    model: Option<String>,
    /// Name of the new session. Default: the old name, a dash and the engine.
    new_name: Option<String>,
    /// First message to the new session; its reply is in result.
    #[schemars(length(min = 1))]
    message: Option<String>,
    /// Most characters of history that are carried over. Default 240000.
    #[schemars(range(min = 4_000, max = 1_000_000))]
    max_chars: Option<usize>,
    /// With engine custom: name of a preset; from a caller on this machine also the config itself.
    #[schemars(extend("contentMediaType" = "application/json"))]
    custom_engine: Option<String>,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "session_handoff",
        title: "Hand a session on",
        description: "Starts a session on another engine that is told what was said in this one; use it when another agent should go on. \
Directory, permissions, effort, cap and prompts are inherited; model and tools are not. A long history keeps its \
opening and its newest turns. The old session runs on. Next: session_send with the new name.",
        toolset: Toolset::Session,
        hints: Hints::WORK,
        length: Length::Short,
        pairs: &["session_send"],
    };
    Tool::new::<Args, HandedOff, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, context: CallContext) -> Outcome {
    let request = HandoffRequest {
        engine: args.engine,
        model: args.model,
        new_name: args.new_name,
        message: args.message,
        max_chars: args.max_chars,
        custom_engine: args.custom_engine,
    };
    let mut done = super::sessions(&kernel).await?.handoff(&args.name, request, super::caller(&context)).await?;
    let mut cut = false;
    done.result = done.result.take().map(|result| {
        let (result, long) = fitting(result);
        cut = long;
        result
    });
    let (turns, omitted) = (done.carried.turns, done.carried.omitted);
    let text = format!(
        "Session '{}' on {} knows {turns} turns of '{}'; {omitted} are left out. Next: session_send with its name.",
        done.name, done.engine, done.from
    );
    super::answer(&done, text, cut)
}
