//! `session_send`: a message to a session and its reply.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fitting;
use crate::{
    engines::{Sink, TurnEvent},
    nodes::sessions::{SendRequest, Turn, TurnView},
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset, outcome,
        registry::{About, Length},
    },
};

/// How long a call without a progress token waits: below the minute at which hosts cut silent calls.
const QUIET_WAIT: Duration = Duration::from_secs(50);
/// How often a call that waits says that it does.
const PROGRESS: Duration = Duration::from_secs(10);
/// Longest line of progress, in bytes.
const LINE_MAX: usize = 200;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Name of the session.
    name: String,
    /// What to tell the agent.
    #[schemars(length(min = 1))]
    message: String,
    /// Effort of this turn alone, where the engine takes one per turn.
    effort: Option<String>,
    /// The agent is to plan and to change nothing. Default false.
    plan: Option<bool>,
    /// Milliseconds after which the turn is interrupted. Default 300000.
    #[schemars(range(min = 1, max = 7_200_000))]
    timeout: Option<u64>,
    /// Whether to return as chunks what the agent says on the way. Default false.
    stream: Option<bool>,
    /// Whether to answer at once with a turnId; session_status then has the reply. Default false.
    background: Option<bool>,
}

/// The handle of a turn that goes on.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Handle {
    running: bool,
    turn_id: String,
}

/// A turn, or its handle.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The turn goes on; session_status with this turnId has its reply.
    running: Option<bool>,
    /// What came of the turn.
    #[serde(flatten)]
    turn: TurnView,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "session_send",
        title: "Send to a session",
        description: "Gives a session's agent a message and returns its reply; use it for every step of a conversation. Sends to \
one session are taken one after the other. Past timeout the turn is interrupted and the session lives on. With \
background: true, or when the turn takes longer than the call may, it answers with a turnId. A turn that ended well may \
have had tool calls refused: see permissionDenials. Next: session_send again, or session_status with the turnId.",
        toolset: Toolset::Session,
        hints: Hints::WORK,
        length: Length::Short,
        pairs: &["session_status"],
    };
    Tool::new::<Args, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, context: CallContext) -> Outcome {
    let name = args.name;
    let done = Arc::new(AtomicU64::new(0));
    let request = SendRequest {
        message: args.message,
        effort: args.effort,
        plan: args.plan.unwrap_or(false),
        timeout: args.timeout.map(Duration::from_millis),
        chunks: args.stream.unwrap_or(false),
        sink: sink(&context, &done),
    };
    let turn = super::sessions(&kernel).await?.begin(&name, request).await?;
    if args.background.unwrap_or(false) {
        return handle(&name, &turn);
    }
    let Some(ended) = wait(&turn, &context, &done).await else { return handle(&name, &turn) };
    let (view, cut) = fitting(ended?);
    let text = match &view.error {
        None => format!("{}\n\nNext: session_send again, or session_stop.", outcome::head(&view.output, 1_000)),
        Some(error) => format!(
            "The turn did not end well: {}. Next: session_send again, or session_status.",
            outcome::head(error, 1_000)
        ),
    };
    super::answer(&view, text, cut)
}

/// Waits for the end of the turn, or as long as the caller's host allows.
async fn wait(
    turn: &Turn,
    context: &CallContext,
    done: &AtomicU64,
) -> Option<Result<TurnView, crate::nodes::sessions::SessionError>> {
    let end = turn.end();
    tokio::pin!(end);
    let patience = async {
        match context.progress {
            Some(_) => std::future::pending().await,
            None => tokio::time::sleep(QUIET_WAIT).await,
        }
    };
    tokio::pin!(patience);
    let mut tick = tokio::time::interval(PROGRESS);
    loop {
        tokio::select! {
            biased;
            ended = &mut end => return Some(ended),
            () = &mut patience => return None,
            // Nobody waits any more; the turn goes on, as it does for a caller whose connection broke.
            () = context.cancel.cancelled() => return None,
            _ = tick.tick() => context.report(done.fetch_add(1, Ordering::Relaxed), 0, "the agent works"),
        }
    }
}

/// Lines of progress for a caller that asked for them.
fn sink(context: &CallContext, done: &Arc<AtomicU64>) -> Option<Sink> {
    let (progress, done) = (context.progress.clone()?, Arc::clone(done));
    Some(Arc::new(move |event: TurnEvent| {
        let line = match event {
            TurnEvent::Text(text) => text,
            TurnEvent::ToolCall { name, summary } => format!("{name}: {summary}"),
            TurnEvent::Retry(text) | TurnEvent::Note(text) => text,
            TurnEvent::ToolResult { .. } => return,
        };
        progress(done.fetch_add(1, Ordering::Relaxed), 0, &outcome::head(&line, LINE_MAX));
    }))
}

fn handle(name: &str, turn: &Turn) -> Outcome {
    let id = turn.id();
    let text = format!(
        "The turn goes on. Next: session_status {{\"name\": \"{name}\", \"turnId\": \"{id}\", \"waitMs\": 50000}}."
    );
    ToolResult::new(&Handle { running: true, turn_id: id.to_owned() }, text)
}
