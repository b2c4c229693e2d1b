//! `codex_resume`: one more message in a thread Codex keeps.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    engines::codex_app,
    model::{Code, spec::SandboxMode},
    nodes::sessions::{Caller, SendRequest, SessionError, StartOptions, TurnView},
    sys::ids,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset, outcome,
        registry::{About, Length},
    },
};

/// Longest reply in an answer, in bytes; with all else it stays below the cap of a result.
const OUTPUT_MAX: usize = 40_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// The thread, as codex_thread_list or codex_fork named it.
    #[schemars(length(min = 1, max = 128))]
    thread_id: String,
    /// What to tell the agent.
    #[schemars(length(min = 1))]
    message: String,
    /// Absolute directory the agent works in. Default: the server's.
    cwd: Option<String>,
    /// Model. Default: the program's.
    model: Option<String>,
    /// What the agent may do to files: read-only, workspace-write or danger-full-access.
    sandbox_mode: Option<SandboxMode>,
    /// Milliseconds after which the turn is interrupted. Default 300000.
    #[schemars(range(min = 1, max = 7_200_000))]
    timeout: Option<u64>,
}

/// The turn.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// Name of the session that took it, which is stopped again.
    name: String,
    /// What came of the turn.
    #[serde(flatten)]
    turn: TurnView,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "codex_resume",
        title: "Go on with a codex thread once",
        description: "Goes on with a thread that Codex keeps for one message and answers with the reply; the session made \
for it is stopped again. Use it for a single question to an old conversation; for more of them use session_start with \
engine codex-app and resumeSessionId. Next: codex_resume again, or session_start.",
        toolset: Toolset::Codex,
        hints: Hints::WORK,
        length: Length::Works,
        pairs: &["codex_thread_list", "session_start"],
    };
    Tool::new::<Args, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, context: CallContext) -> Outcome {
    let sessions = super::sessions(&kernel).await?;
    let name = format!("codex-resume-{}", ids::short());
    let options = StartOptions {
        name: Some(name.clone()),
        engine: Some(codex_app::NAME.to_owned()),
        resume_session_id: Some(args.thread_id),
        cwd: args.cwd,
        model: args.model,
        sandbox_mode: args.sandbox_mode,
        ..StartOptions::default()
    };
    let caller = if context.local { Caller::Local } else { Caller::Remote };
    sessions.start(options, caller).await?;
    let timeout = args.timeout.map(Duration::from_millis);
    let request = SendRequest { timeout, ..SendRequest::from(args.message.as_str()) };
    let turn = tokio::select! {
        turn = sessions.send(&name, request) => turn,
        () = context.cancel.cancelled() => Err(SessionError::new(Code::Cancelled, "the call was cancelled")),
    };
    sessions.stop(&name).await?;
    let mut turn = turn?;
    let long = turn.output.len() > OUTPUT_MAX;
    turn.output = outcome::head(&turn.output, OUTPUT_MAX);
    let text = match &turn.error {
        None => format!("{}\n\nNext: codex_resume again.", outcome::head(&turn.output, 1_000)),
        Some(error) => format!("The turn did not end well: {}. Next: codex_resume again.", outcome::head(error, 1_000)),
    };
    let result = ToolResult::new(&Output { name, turn }, text)?;
    Ok(if long { result.with("truncated", vec!["output: too long"]) } else { result })
}
