//! `workflow_list`: runs of every process, newest first.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{
    CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
    outcome::{RESULT_MAX, counted, wire_len},
    registry::{About, Length},
};
use crate::{
    kernel::{ListPage, ListQuery},
    model::RunState,
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Only runs of this workflow name.
    workflow: Option<String>,
    /// Only runs in this state.
    state: Option<RunState>,
    /// Most runs in the answer. Default 25.
    #[schemars(range(min = 1, max = 500))]
    limit: Option<usize>,
    /// nextCursor of the page before.
    #[schemars(length(max = 1024))]
    cursor: Option<String>,
}

/// The tool.
pub fn tool() -> Tool {
    let about = About {
        name: "workflow_list",
        title: "List runs",
        description: "Lists workflow runs, newest first, across processes and restarts; use it to find a runId or to see \
what is running, parked or interrupted. Filter by workflow name or state; nextCursor leads to the next page. Damaged \
runs are listed with what is wrong. Next: workflow_status with a runId.",
        toolset: Toolset::Workflow,
        hints: Hints::LOOK,
        length: Length::Short,
        pairs: &["workflow_status"],
    };
    Tool::new::<Args, ListPage, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let limit = args.limit.unwrap_or(25);
    let query = ListQuery { workflow: args.workflow, state: args.state, limit, cursor: args.cursor };
    let kernel = kernel.get().await?;
    let mut page = kernel.list(query.clone()).await?;
    // A page that is too long is asked for again in a size that fits, so that its cursor is right.
    let mut fits = page.runs.len();
    while wire_len(&page) > RESULT_MAX && fits > 1 {
        fits /= 2;
        page = kernel.list(ListQuery { limit: fits, ..query.clone() }).await?;
    }
    let live = page.runs.iter().filter(|r| r.live).count();
    let interrupted = page.runs.iter().filter(|r| r.interrupted).count();
    let mut text = format!("{}, {live} executing, {interrupted} interrupted.", counted(page.runs.len(), "run"));
    if page.next_cursor.is_some() {
        text.push_str(" More with cursor.");
    }
    text.push_str(if page.runs.is_empty() { " Next: workflow_start." } else { " Next: workflow_status with a runId." });
    let mut result = ToolResult::new(&page, text)?;
    if fits < limit && page.next_cursor.is_some() {
        result = result.with("truncated", Value::from(vec!["runs: the page was too long; go on with nextCursor"]));
    }
    Ok(result)
}
