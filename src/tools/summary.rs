//! Short texts for people and models: where a run stands and which tool to call next; and cutting views to size.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::outcome::{RESULT_MAX, head, wire_len};
use crate::{
    kernel::RunView,
    model::{NodeState, RunId, RunOutcome, RunState},
};

/// What the answers to resume, cancel and approve promise of a run; they carry all that workflow_status shows.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunBrief {
    /// The run.
    pub run_id: RunId,
    /// Name of its spec.
    pub workflow: String,
    /// Where it stands.
    pub state: RunState,
    /// Present once terminal.
    pub outcome: Option<RunOutcome>,
    /// Why the outcome is what it is.
    pub outcome_reason: Option<String>,
    /// Node entered last.
    pub current_node: Option<String>,
    /// US dollars so far, children included.
    pub cost_usd: f64,
}

/// Longest text of a node shown in a status, in bytes.
const NODE_TEXT_MAX: usize = 4096;
/// Longest text of a node once a status has to be cut, in bytes.
const NODE_TEXT_TIGHT: usize = 400;

/// Where the run stands and what to call next.
pub fn run(view: &RunView) -> String {
    let id = &view.run_id;
    let mut text = format!("Run {id} ({}) is {}", view.workflow, view.state.as_str());
    if let Some(outcome) = view.outcome {
        text.push_str(&format!(", {}", outcome.as_str()));
    }
    if let Some(reason) = &view.outcome_reason {
        text.push_str(&format!(": {}", head(reason, 300)));
    } else if let Some(error) = &view.error {
        text.push_str(&format!(": {}", head(error, 300)));
    }
    text.push_str(". ");
    let done = view.nodes.iter().filter(|n| n.state == NodeState::Succeeded).count();
    if !view.state.is_terminal() {
        text.push_str(&format!("{done} of {} nodes done", view.nodes_total));
        if let Some(node) = &view.current_node {
            text.push_str(&format!(", now at '{node}'"));
        }
        text.push_str(". ");
    }
    if view.cost_usd > 0.0 {
        text.push_str(&format!("Cost so far ${:.2}. ", view.cost_usd));
    }
    text.push_str(&next(view));
    text
}

fn next(view: &RunView) -> String {
    let id = &view.run_id;
    if let Some(gate) = &view.gate {
        return format!(
            "It waits for a person at '{}': {}{} Ask the person, then call workflow_approve {{\"runId\": \"{id}\", \"approved\": true or false}}; never decide for them.",
            gate.node,
            head(gate.prompt.trim_end(), 500),
            if gate.prompt.trim_end().ends_with(['.', '?', '!', ':']) { "" } else { "." },
        );
    }
    if view.interrupted {
        return format!("Nothing executes it: call workflow_resume {{\"runId\": \"{id}\"}}.");
    }
    match view.state {
        RunState::Completed | RunState::Failed => match (view.outcome, &view.evidence_id) {
            (_, Some(evidence)) => format!(
                "Call workflow_evidence {{\"runId\": \"{id}\", \"evidenceId\": \"{evidence}\"}} for the checks."
            ),
            (Some(RunOutcome::Verified | RunOutcome::Refuted), None) => {
                format!("Call workflow_evidence {{\"runId\": \"{id}\"}} for the checks.")
            }
            (Some(RunOutcome::Unverified) | None, None) => {
                "Nothing independent checked the work; call verify_run to do so.".to_owned()
            }
        },
        RunState::Cancelled => "It stays cancelled; call workflow_start for a new run.".to_owned(),
        RunState::Pending | RunState::Running | RunState::AwaitingHuman | RunState::Verifying => {
            let waiting = view.waiting_for.as_ref().map(|w| format!("It waits: {}. ", head(&w.detail, 200)));
            format!(
                "{}Call workflow_status {{\"runId\": \"{id}\", \"waitMs\": 50000}} to follow it.",
                waiting.unwrap_or_default()
            )
        }
    }
}

/// Cuts a run's object to the size of a result: oldest events first, then long texts.
pub fn fit_run(map: &mut Map<String, Value>) {
    let mut cut = Vec::new();
    if trim_texts(map, NODE_TEXT_MAX) {
        cut.push("node outputs: call workflow_status with node for the whole text");
    }
    let mut dropped = false;
    while wire_len(map) > RESULT_MAX {
        let Some(Value::Array(events)) = map.get_mut("events") else { break };
        if events.is_empty() {
            break;
        }
        let half = events.len().div_ceil(2);
        events.drain(..half);
        dropped = true;
    }
    if dropped {
        cut.push("older events: read clawo://run/{id}/events, or ask for fewer events");
    }
    if wire_len(map) > RESULT_MAX && trim_texts(map, NODE_TEXT_TIGHT) {
        cut.push("node texts: call workflow_status with node for the whole text");
    }
    for field in ["consensusVotes", "nodes"] {
        let mut shortened = false;
        while wire_len(map) > RESULT_MAX {
            let Some(Value::Array(items)) = map.get_mut(field) else { break };
            if items.len() < 2 {
                break;
            }
            let half = items.len() / 2;
            items.truncate(half);
            shortened = true;
        }
        if shortened {
            cut.push(if field == "nodes" {
                "later nodes: read clawo://run/{id}"
            } else {
                "later votes: read clawo://run/{id}"
            });
        }
    }
    if !cut.is_empty() {
        map.insert("truncated".to_owned(), json!(cut));
    }
}

/// Shortens `output` and `error` of every node; says whether anything was.
fn trim_texts(map: &mut Map<String, Value>, max: usize) -> bool {
    let mut any = false;
    let Some(Value::Array(nodes)) = map.get_mut("nodes") else { return false };
    for node in nodes.iter_mut().filter_map(Value::as_object_mut) {
        for field in ["output", "error"] {
            if let Some(Value::String(text)) = node.get_mut(field)
                && text.len() > max + 64
            {
                *text = head(text, max);
                any = true;
            }
        }
    }
    any
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kernel scenario 20: a status stays small whatever the agents wrote.
    #[test]
    fn a_status_fits_whatever_it_holds() {
        let nodes: Vec<Value> = (0..1000)
            .map(|i| json!({ "id": format!("n{i}"), "output": "é".repeat(30_000), "error": "x".repeat(9000) }))
            .collect();
        let events: Vec<Value> = (0..500).map(|i| json!({ "seq": i, "event": { "text": "y".repeat(4000) } })).collect();
        let mut map = Map::new();
        map.insert("nodes".to_owned(), Value::Array(nodes));
        map.insert("events".to_owned(), Value::Array(events));
        fit_run(&mut map);
        assert!(wire_len(&map) <= RESULT_MAX + 1000);
        assert!(map["truncated"].as_array().unwrap().len() >= 2);
        let mut small = json!({ "nodes": [{ "id": "a", "output": "short" }], "events": [1] });
        let before = small.clone();
        fit_run(small.as_object_mut().unwrap());
        assert_eq!(small, before);
    }
}
