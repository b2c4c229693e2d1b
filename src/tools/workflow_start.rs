//! `workflow_start`: starts a durable run and answers with its handle at once.

use super::{
    CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
    outcome::counted,
    registry::{About, Length},
    start_args::StartArgs,
};
use crate::kernel::Started;

/// The tool.
pub fn tool() -> Tool {
    let about = About {
        name: "workflow_start",
        title: "Start a workflow run",
        description: "Starts coding agents on a task as a durable run and returns its runId at once; use it for any \
work that agents should do in a directory, with a contract so that the result is checked by the server and not by \
the agents' word. Give template (solve or fanout) with task and cwd, or an own spec. The run goes on in the \
background, survives crashes and can be watched, steered, approved and cancelled from any client. Nothing is \
started when anything in the request is wrong; every problem is listed with its path. Check a request first with \
workflow_validate. Next: workflow_status with the runId and waitMs.",
        toolset: Toolset::Workflow,
        hints: Hints::WORK,
        length: Length::Works,
        pairs: &["workflow_status", "workflow_cancel"],
    };
    Tool::new::<StartArgs, Started, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: StartArgs, context: CallContext) -> Outcome {
    let request = args.request(context.parent)?;
    let started = kernel.get().await?.start(request).await?;
    let id = &started.run_id;
    let mut text = if started.existing {
        format!("Run {id} was started before with this idempotency key; nothing new was started. ")
    } else {
        format!("Started run {id} ({}, {}). ", started.workflow, counted(started.nodes.len(), "node"))
    };
    if !started.warnings.is_empty() {
        let list: Vec<String> = started.warnings.iter().take(5).map(ToString::to_string).collect();
        text.push_str(&format!("{}: {}. ", counted(started.warnings.len(), "warning"), list.join("; ")));
    }
    text.push_str(&format!("Next: workflow_status {{\"runId\": \"{id}\", \"waitMs\": 50000}}."));
    Ok(ToolResult::new(&started, text)?.link(format!("clawo://run/{id}"), "run record", "application/json"))
}
