//! The tools of fan-outs, one file each.

mod abort;
mod start;
mod status;

use super::{
    Outcome, Tool, ToolResult,
    outcome::{RESULT_MAX, wire_len},
};
use crate::kernel::{Error, Keep, Kernel, fanouts::FanoutView};

/// Every tool of the set.
pub(super) fn tools() -> Vec<Tool> {
    vec![abort::tool(), start::tool(), status::tool()]
}

/// Characters of an agent's words in a status.
const TAIL: usize = 4_000;
/// Fewer of them, when those of many agents would make the answer too long.
const TAILS: [usize; 4] = [TAIL, 2_000, 1_000, 400];
/// Bytes of all words together when they are asked for in full.
const FULL: usize = 4 << 20;

/// A fan-out with the ends of its texts, short enough for an answer, or with all of them.
async fn view(kernel: &Kernel, id: &str, wait_ms: u64, full: bool) -> Result<FanoutView, Error> {
    if full {
        return kernel.fanout(id, wait_ms, Keep::Whole(FULL)).await;
    }
    let mut view = kernel.fanout(id, wait_ms, Keep::Tail(TAIL)).await?;
    for tail in TAILS.into_iter().skip(1) {
        if wire_len(&view) <= RESULT_MAX {
            break;
        }
        view = kernel.fanout(id, 0, Keep::Tail(tail)).await?;
    }
    Ok(view)
}

/// Where a fan-out stands and what to call next.
fn summary(view: &FanoutView) -> String {
    let id = &view.id;
    let good = view.results.iter().filter(|r| r.ok).count();
    let ended = view.results.len();
    let mut text = format!("Fan-out {id} is {}: {good} of {} agents ok", view.status.as_str(), view.agent_count);
    if ended as u64 != view.agent_count {
        text.push_str(&format!(", {ended} ended"));
    }
    if let Some(outcome) = view.outcome {
        text.push_str(&format!(", {}", outcome.as_str()));
    }
    if let Some(error) = &view.error {
        text.push_str(&format!(": {}", super::outcome::head(error, 300)));
    }
    text.push_str(". ");
    text.push_str(&if view.interrupted {
        format!("Nothing executes it: call workflow_resume {{\"runId\": \"{id}\"}}.")
    } else if view.finished_at.is_none() {
        format!("Next: fanout_status {{\"id\": \"{id}\", \"waitMs\": 50000}}.")
    } else if view.results.iter().any(|r| r.truncated) {
        format!("Next: fanout_status {{\"id\": \"{id}\", \"full\": true}} for the whole texts.")
    } else if view.candidates.is_some() {
        format!("Next: workflow_evidence {{\"runId\": \"{id}\"}} for the checks, if there was a contract.")
    } else {
        "Next: verify_run when something independent should check the work.".to_owned()
    });
    text
}

/// The view as an answer.
fn answer(view: &FanoutView, structured: &impl serde::Serialize, text: String) -> Outcome {
    let result = ToolResult::new(structured, text)?;
    let cut: Vec<String> = view
        .results
        .iter()
        .filter(|r| r.truncated)
        .map(|r| format!("output of {}: its end is shown; call with full: true", r.agent))
        .collect();
    let result = if cut.is_empty() { result } else { result.with("truncated", cut) };
    Ok(result.link(format!("clawo://run/{}", view.id), "run record", "application/json"))
}
