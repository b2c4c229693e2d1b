//! The tools of long plans and of reviews from many sides, one file each.

mod angles;
mod plan_start;
mod plan_status;
mod review_start;
mod review_status;

use super::{
    CallContext, Outcome, Tool, ToolResult,
    args::run_id,
    outcome::{RESULT_MAX, head},
};
use crate::{
    kernel::{
        Error,
        fanouts::{ReviewView, UltraStatus},
        ultraplans::PlanView,
    },
    model::Code,
};

/// Every tool of the set.
pub(super) fn tools() -> Vec<Tool> {
    vec![plan_start::tool(), plan_status::tool(), review_start::tool(), review_status::tool()]
}

/// Longest findings of a review in an answer, in bytes; with all else it stays below the cap of a result.
const FINDINGS_MAX: usize = RESULT_MAX - 16_000;

/// Where a plan stands and what to call next.
fn planned(view: &PlanView) -> String {
    let id = &view.id;
    let mut text = match (view.status, &view.plan, &view.error) {
        (UltraStatus::Completed, Some(plan), _) => {
            format!("Ultraplan {id} is completed: a plan of {} characters is in plan. ", plan.chars().count())
        }
        (_, _, Some(error)) => format!("Ultraplan {id} failed: {}. ", head(error, 300)),
        (status, _, _) => format!("Ultraplan {id} is {}. ", status.as_str()),
    };
    warn(&mut text, &view.warnings);
    text.push_str(&if view.interrupted {
        format!("Nothing executes it: call workflow_resume {{\"runId\": \"{id}\"}}.")
    } else if view.status == UltraStatus::Running {
        format!("Next: ultraplan_status {{\"id\": \"{id}\", \"waitMs\": 50000}}.")
    } else {
        "Next: workflow_start to have it built, with a contract.".to_owned()
    });
    text
}

/// Where a review stands and what to call next.
fn reviewed(view: &ReviewView) -> String {
    let id = &view.id;
    let good = view.reviewers.iter().filter(|r| r.ok).count();
    let mut text = format!("Ultrareview {id} is {}: {good} of {} reviews", view.status.as_str(), view.agent_count);
    if let Some(error) = &view.error {
        text.push_str(&format!("; {}", head(error, 300)));
    }
    text.push_str(". ");
    warn(&mut text, &view.warnings);
    text.push_str(&if view.interrupted {
        format!("Nothing executes it: call workflow_resume {{\"runId\": \"{id}\"}}.")
    } else if view.status == UltraStatus::Running {
        format!("Next: ultrareview_status {{\"id\": \"{id}\", \"waitMs\": 50000}}.")
    } else {
        format!("Next: fanout_status {{\"id\": \"{id}\", \"full\": true}} for each review by itself.")
    });
    text
}

fn warn(text: &mut String, warnings: &[String]) {
    for warning in warnings.iter().take(5) {
        text.push_str(&format!("Warning: {warning}. "));
    }
}

/// A look at a run that ends with the caller's wish to wait.
async fn watched<T>(
    context: &CallContext,
    wait_ms: u64,
    look: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    if wait_ms > 0 {
        context.report(0, 1, "waiting for a change");
    }
    tokio::select! {
        () = context.cancel.cancelled() => Err(Error::new(Code::Cancelled, "the wait was cancelled; the run goes on")),
        view = look => view,
    }
}

/// A review as an answer.
fn review_answer(view: &ReviewView, structured: &impl serde::Serialize, cut: bool, text: String) -> Outcome {
    let result = ToolResult::new(structured, text)?;
    let note = format!("findings: their end is missing; read clawo://run/{}/node/main/output", view.id);
    let result = if cut { result.with("truncated", vec![note]) } else { result };
    Ok(result.link(format!("clawo://run/{}", view.id), "run record", "application/json"))
}
