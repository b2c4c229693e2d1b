//! `workflow_status`: where a run stands, with a wait that ends early on a change, and a node's whole output.
//!
//! While it waits at an open gate and the host can ask a person, the gate is put before them.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Answer, CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset, WAIT_MAX_MS,
    args::{run_id, word},
    outcome::object,
    registry::{About, Length},
    summary,
};
use crate::{
    kernel::{Error, Kernel, RunView, StatusQuery},
    model::Code,
};

/// Bytes of a node's output in one answer.
const OUTPUT_PAGE: usize = 40_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Id of the run.
    run_id: String,
    /// How many of the last events to include. Default 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 500))]
    events: usize,
    /// Wait up to this many milliseconds for a change before answering. Default 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = 55_000))]
    wait_ms: u64,
    /// Include the whole output of this node, from offset.
    node: Option<String>,
    /// Byte of the node's output to begin at. Default 0.
    #[serde(default)]
    offset: u64,
}

/// A run and, when asked for, a node's text.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    #[serde(flatten)]
    run: RunView,
    /// The part of the node's output that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    node_output: Option<NodeText>,
}

/// Part of a node's output.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct NodeText {
    /// The node.
    node: String,
    /// Where the text begins, in bytes.
    offset: u64,
    /// The text.
    text: String,
    /// Pass it as offset for more; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<u64>,
}

/// The tool.
pub fn tool() -> Tool {
    let about = About {
        name: "workflow_status",
        title: "Status of a run",
        description: "Shows where a workflow run stands: state, outcome, verdict, nodes, cost, what it waits for and the \
open question to a person, if any; use it after workflow_start and whenever you need to know how a run is doing. With \
waitMs it waits for a change and answers early; still running is a normal answer, call it again. With events it \
includes the last events, with node the whole output of a node. Works for runs of other processes and after \
restarts. Next: workflow_approve when a gate is open, workflow_resume when interrupted is true, workflow_evidence \
when it ended.",
        toolset: Toolset::Workflow,
        hints: Hints::LOOK,
        length: Length::Waits,
        pairs: &["workflow_start"],
    };
    Tool::new::<Args, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, context: CallContext) -> Outcome {
    let id = run_id("runId", &args.run_id)?;
    if let Some(node) = &args.node {
        word("node", node)?;
    }
    let kernel = kernel.get().await?;
    let wait = args.wait_ms.min(WAIT_MAX_MS);
    let query = StatusQuery { events: args.events, wait_ms: wait };
    if wait > 0 {
        context.report(0, 1, "waiting for a change");
    }
    let view = tokio::select! {
        () = context.cancel.cancelled() => return Err(Error::new(Code::Cancelled, "the wait was cancelled; the run goes on")),
        view = watch(&kernel, id.as_str(), query, &context) => view?,
    };
    let node_output = match &args.node {
        Some(node) => Some(text(&kernel, id.as_str(), node, args.offset).await?),
        None => None,
    };
    let summary = summary::run(&view);
    let output = Output { run: view, node_output };
    let mut result = ToolResult::new(&object(&output)?, summary)?;
    if output.node_output.is_some() {
        // The page is what was asked for; the outputs beside it would push the answer over its size.
        result.structured.remove("events");
        strip_outputs(&mut result);
    }
    summary::fit_run(&mut result.structured);
    Ok(result.link(format!("clawo://run/{id}"), "run record", "application/json"))
}

fn strip_outputs(result: &mut ToolResult) {
    if let Some(serde_json::Value::Array(nodes)) = result.structured.get_mut("nodes") {
        for node in nodes.iter_mut().filter_map(serde_json::Value::as_object_mut) {
            node.remove("output");
        }
    }
}

async fn text(kernel: &Kernel, run: &str, node: &str, offset: u64) -> Result<NodeText, Error> {
    // A page that would end inside a character is asked for a little shorter.
    for limit in (OUTPUT_PAGE - 3..=OUTPUT_PAGE).rev() {
        let text = kernel.node_output(run, node, offset, limit).await?;
        let full = text.len() >= limit;
        if full && text.ends_with(char::REPLACEMENT_CHARACTER) && limit > OUTPUT_PAGE - 3 {
            continue;
        }
        let next_offset = full.then(|| offset.saturating_add(limit as u64));
        return Ok(NodeText { node: node.to_owned(), offset, text, next_offset });
    }
    Err(Error::new(Code::Internal, "no page of the output could be read"))
}

/// Waits for a change; an open gate is asked of the person meanwhile when the host can.
async fn watch(kernel: &Kernel, run: &str, query: StatusQuery, context: &CallContext) -> Result<RunView, Error> {
    let Some(elicit) = context.elicit.as_ref().filter(|_| query.wait_ms > 0) else {
        return kernel.status(run, query).await;
    };
    let now = StatusQuery { events: query.events, wait_ms: 0 };
    let mut view = kernel.status(run, now).await?;
    let mut left = Duration::from_millis(query.wait_ms);
    if view.gate.is_none() {
        let began = tokio::time::Instant::now();
        view = kernel.status(run, query).await?;
        left = left.saturating_sub(began.elapsed());
    }
    let Some(gate) = view.gate.clone() else { return Ok(view) };
    if left.is_zero() {
        return Ok(view);
    }
    context.report(0, 1, "a person is asked");
    let wait = StatusQuery { events: query.events, wait_ms: u64::try_from(left.as_millis()).unwrap_or(WAIT_MAX_MS) };
    let answer = tokio::select! {
        answer = elicit.ask(run, &gate) => answer,
        // Answered elsewhere, or no time left.
        changed = kernel.status(run, wait) => return changed,
    };
    match answer {
        Answer::Approve(comment) => settle(kernel, run, true, comment, now).await,
        Answer::Reject(comment) => settle(kernel, run, false, comment, now).await,
        Answer::Deferred => Ok(view),
        // Nobody decided: the rest of the wait goes on as usual.
        Answer::None => kernel.status(run, wait).await,
    }
}

/// Gives the person's answer to the kernel. When somebody else was faster, theirs stands and is shown.
async fn settle(
    kernel: &Kernel,
    run: &str,
    approved: bool,
    comment: Option<String>,
    now: StatusQuery,
) -> Result<RunView, Error> {
    match kernel.approve(run, approved, comment).await {
        Ok(_) => kernel.status(run, now).await,
        Err(e) if e.code == Code::GateNotWaiting => kernel.status(run, now).await,
        Err(e) => Err(e),
    }
}
