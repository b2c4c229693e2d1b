//! `session_status`: one session in detail, and turns in the background.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::fitting;
use crate::{
    nodes::sessions::StatusView,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, Toolset,
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Name of the session.
    name: String,
    /// A turn of it, as session_send named it. Default: the latest.
    turn_id: Option<String>,
    /// Milliseconds to wait for the end of the turn. Default 0.
    #[schemars(range(min = 0, max = 55_000))]
    wait_ms: Option<u64>,
}

fn about(name: &'static str, title: &'static str) -> About {
    About {
        name,
        title,
        description: "Shows one session: state, tokens, cost, context, turns, tool calls, retries and uptime, and how its latest turn \
or the one in turnId stands; use it to fetch the reply of a turn in the background. Waits up to waitMs for the turn's \
end. Next: session_send, or session_status again while the turn runs.",
        toolset: Toolset::Session,
        hints: Hints::LOOK,
        length: Length::Short,
        pairs: &["session_send"],
    }
}

/// The tool.
pub(super) fn tool() -> Tool {
    Tool::new::<Args, StatusView, _, _>(about("session_status", "Status of a session"), run)
}

/// The tool under its older name.
pub(super) fn alias() -> Tool {
    Tool::new::<Args, StatusView, _, _>(about("coding_session_status", "Status of a session (older name)"), run)
}

async fn run(kernel: KernelHandle, args: Args, context: CallContext) -> Outcome {
    let wait = Duration::from_millis(args.wait_ms.unwrap_or(0));
    let sessions = super::sessions(&kernel).await?;
    let look = sessions.status(&args.name, args.turn_id.as_deref(), wait);
    let mut view = tokio::select! {
        view = look => view?,
        () = context.cancel.cancelled() => sessions.status(&args.name, args.turn_id.as_deref(), Duration::ZERO).await?,
    };
    let mut cut = false;
    if let Some(turn) = &mut view.turn {
        turn.result = turn.result.take().map(|result| {
            let (result, long) = fitting(result);
            cut = long;
            result
        });
    }
    let turn = view.turn.as_ref().map(|t| format!(" Turn {} is {}.", t.turn_id, t.state)).unwrap_or_default();
    let next = match view.turn.as_ref().map(|t| t.state) {
        Some("queued" | "running") => "session_status again with waitMs",
        Some(_) | None => "session_send",
    };
    let state = view.entry.entry.state.as_str();
    super::answer(&view, format!("Session '{}' is {state}.{turn} Next: {next}.", args.name), cut)
}
