//! `session_start`: a named conversation with an agent.

use crate::{
    nodes::sessions::{StartOptions, Started},
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        registry::{About, Length},
    },
};

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "session_start",
        title: "Start a session",
        description: "Starts a named conversation with a coding agent; use it for work you want to direct message by message. \
A live session of that name is returned unchanged with existing: true; a known one goes on with its conversation when \
engine and cwd are the same (resume: auto, never, require). Options given now win over those it had. What is not \
followed is told in warnings. Next: session_send with the name.",
        toolset: Toolset::Session,
        hints: Hints::WORK,
        length: Length::Short,
        pairs: &["session_send", "session_stop"],
    };
    Tool::new::<StartOptions, Started, _, _>(about, run)
}

async fn run(kernel: KernelHandle, options: StartOptions, context: CallContext) -> Outcome {
    let started = super::sessions(&kernel).await?.start(options, super::caller(&context)).await?;
    let name = &started.name;
    let how = match (started.existing, started.resumed) {
        (true, _) => "is live already",
        (false, true) => "goes on with its conversation",
        (false, false) => "is started",
    };
    let mut text = format!("Session '{name}' on {} {how}.", started.engine);
    for warning in &started.warnings {
        text.push_str(&format!(" Warning: {warning}."));
    }
    text.push_str(&format!(" Next: session_send {{\"name\": \"{name}\", \"message\": ...}}."));
    ToolResult::new(&started, text)
}
