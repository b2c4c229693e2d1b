//! What happens next: from a record and its spec to the next move. Pure: no clock, no I/O, no async.

use crate::model::{
    Event, Node, NodeId, NodeKind, NodeState, RunRecord, RunState, Time, WorkflowSpec,
    run::Gate,
    spec::{Condition, OnFailure, RouterNode},
};

use super::verdict::{self, Ending};
use crate::nodes::prompt::cut;

/// Longest question of a gate in the log, in bytes; the spec has the rest and a batch stays small.
const GATE_PROMPT_MAX: usize = 16 * 1024;

/// The next move of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Move {
    /// The run has ended.
    Stop,
    /// Commit these events, then ask again.
    Commit(Vec<Event>),
    /// Run the attempt the record stands at.
    Run(NodeId),
    /// Wait for the next attempt's due time.
    Wait(NodeId, Time),
    /// A gate waits for a person; let go of the run.
    Park,
    /// Control flow reached the end: conclude.
    Conclude,
    /// End the run like this.
    End(Ending),
}

/// Decides the next move.
pub fn decide(spec: &WorkflowSpec, record: &RunRecord, now: Time) -> Move {
    if record.state.is_terminal() {
        return Move::Stop;
    }
    let Some(current) = &record.current_node else {
        return match spec.nodes.first() {
            Some(first) => enter(spec, record, first, now),
            None => Move::Conclude,
        };
    };
    let Some((index, node)) = spec.node(current.as_str()) else {
        return Move::End(verdict::cut_short(record, format!("the spec has no node '{current}'"), None));
    };
    let Some(entry) = record.node(current.as_str()) else { return Move::Conclude };
    match entry.state {
        NodeState::Running => match (&node.kind, entry.retry_at) {
            (NodeKind::Router(router), _) => leave_router(spec, record, index, router, now),
            (_, Some(due)) => Move::Wait(node.id.clone(), due),
            (_, None) => Move::Run(node.id.clone()),
        },
        NodeState::AwaitingHuman => Move::Park,
        NodeState::Cancelled => Move::Stop,
        NodeState::Failed if node.on_failure == OnFailure::Fail => {
            let why = entry.error.clone().unwrap_or_else(|| "no reason given".to_owned());
            Move::End(verdict::cut_short(record, format!("node '{}' failed: {why}", node.id), None))
        }
        NodeState::Succeeded | NodeState::Failed | NodeState::Skipped | NodeState::Pending => {
            if let Some(ending) = no_progress(spec, record, node) {
                return Move::End(ending);
            }
            match successor(spec, index, node) {
                Some(next) => enter(spec, record, next, now),
                None => Move::Conclude,
            }
        }
    }
}

/// The node after one that has ended. A router that has ended here led nowhere, so nothing follows it.
fn successor<'s>(spec: &'s WorkflowSpec, index: usize, node: &Node) -> Option<&'s Node> {
    match (&node.kind, &node.next) {
        (NodeKind::Router(_), _) => None,
        (_, Some(id)) => spec.node(id.as_str()).map(|(_, n)| n),
        (_, None) => spec.nodes.get(index + 1),
    }
}

/// Ends a loop whose checks keep failing in the same way.
fn no_progress(spec: &WorkflowSpec, record: &RunRecord, node: &Node) -> Option<Ending> {
    let limit = spec.no_progress_limit;
    let repeats = record.red.get(node.id.as_str()).map_or(0, |streak| streak.count);
    (limit > 0 && repeats >= limit).then(|| {
        let error = format!("no progress: the same checks failed in the same way {limit} times in a row");
        verdict::cut_short(record, error, Some("no progress".to_owned()))
    })
}

/// Enters a node: the events of the batch that makes it current, or the end when it was entered too often.
fn enter(spec: &WorkflowSpec, record: &RunRecord, node: &Node, now: Time) -> Move {
    let visit = record.node(node.id.as_str()).map_or(0, |n| n.visits) + 1;
    if visit > spec.max_node_visits {
        let error = format!("node '{}' exceeded maxNodeVisits ({})", node.id, spec.max_node_visits);
        return Move::End(verdict::cut_short(record, error, None));
    }
    let mut events = vec![node_state(&node.id, NodeState::Running, visit, 1)];
    let state = match &node.kind {
        NodeKind::Verifier(_) => RunState::Verifying,
        NodeKind::HumanGate(gate) => {
            events.push(node_state(&node.id, NodeState::AwaitingHuman, visit, 1));
            let gate = Gate {
                node: node.id.clone(),
                visit,
                prompt: cut(&gate.prompt, GATE_PROMPT_MAX).0.to_owned(),
                since: now,
            };
            events.push(Event::Gate { gate: Some(gate) });
            RunState::AwaitingHuman
        }
        NodeKind::Agent(_)
        | NodeKind::Fanout(_)
        | NodeKind::Router(_)
        | NodeKind::Subflow(_)
        | NodeKind::Goal(_)
        | NodeKind::Council(_) => RunState::Running,
    };
    if record.state != state {
        events.push(run_state(state));
    }
    Move::Commit(events)
}

/// Leaves a router: its end and the entry of where it leads are one batch, so a jump is never half made.
fn leave_router(spec: &WorkflowSpec, record: &RunRecord, index: usize, router: &RouterNode, now: Time) -> Move {
    let Some(node) = spec.nodes.get(index) else { return Move::Conclude };
    let visit = record.node(node.id.as_str()).map_or(1, |n| n.visits);
    let mut events = vec![node_state(&node.id, NodeState::Succeeded, visit, 1)];
    let taken = router.routes.iter().find(|route| holds(&route.when, record)).map(|route| &route.to);
    let next = match taken.or(router.default.as_ref()) {
        Some(id) => spec.node(id.as_str()).map(|(_, n)| n),
        None => spec.nodes.get(index + 1),
    };
    match next.map(|next| enter(spec, record, next, now)) {
        Some(Move::Commit(more)) => events.extend(more),
        Some(Move::End(end)) => events.push(ending(&end)),
        Some(Move::Stop | Move::Run(_) | Move::Wait(..) | Move::Park | Move::Conclude) | None => {}
    }
    Move::Commit(events)
}

/// Whether a condition holds for a record.
fn holds(condition: &Condition, record: &RunRecord) -> bool {
    let state = |id: &NodeId| record.node(id.as_str()).map(|n| n.state);
    match condition {
        Condition::Always => true,
        Condition::NodeFailed(id) => state(id) == Some(NodeState::Failed),
        Condition::NodeSucceeded(id) => state(id) == Some(NodeState::Succeeded),
        Condition::Verified(id) => verdict::node_verified(record, id),
        Condition::VisitsLt(id, n) => record.node(id.as_str()).is_some_and(|node| node.visits < *n),
        Condition::And(all) => !all.is_empty() && all.iter().all(|c| holds(c, record)),
    }
}

/// An event that moves the run.
pub fn run_state(state: RunState) -> Event {
    Event::RunState { state, outcome: None, reason: None, error: None }
}

/// An event that ends the run.
pub fn ending(ending: &Ending) -> Event {
    Event::RunState {
        state: ending.state,
        outcome: Some(ending.outcome),
        reason: Some(ending.reason.clone()),
        error: ending.error.clone(),
    }
}

/// An event that moves a node.
pub fn node_state(node: &NodeId, state: NodeState, visit: u32, attempt: u32) -> Event {
    Event::NodeState {
        node: node.clone(),
        state,
        visit,
        attempt,
        failures: 0,
        error: None,
        approved: None,
        comment: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        kernel::{spec, state},
        model::{RunId, run::RedStreak},
    };

    fn workflow() -> WorkflowSpec {
        let own = json!({ "checks": [{ "type": "command", "cmd": "true" }] });
        let value = json!({
            "name": "n", "cwd": "/", "maxNodeVisits": 5,
            "nodes": [
                { "id": "a", "kind": "agent", "prompt": "x", "next": "v" },
                { "id": "b", "kind": "agent", "prompt": "x", "onFailure": "continue" },
                { "id": "v", "kind": "verifier", "contract": own, "onFailure": "continue" },
                { "id": "r", "kind": "router", "routes": [
                    { "when": { "type": "and", "all": [] }, "to": "b" },
                    { "when": { "type": "and", "all": [
                        { "type": "node_failed", "node": "v" }, { "type": "visits_lt", "node": "a", "n": 3 },
                    ] }, "to": "a" },
                    { "when": { "type": "verified", "node": "v" }, "to": "g" },
                ], "default": "b" },
                { "id": "g", "kind": "human_gate", "prompt": "?".repeat(500_000) },
                { "id": "z", "kind": "agent", "prompt": "x" },
            ],
        });
        spec::read(&value, "", spec::Origin::Caller, None, None).spec.unwrap()
    }

    /// The record when `current` stands like this, with further nodes' states and visits.
    fn standing(current: &str, nodes: &[(&str, NodeState, u32)]) -> RunRecord {
        let mut record = state::empty(&RunId::parse("r").unwrap(), &workflow());
        record.state = RunState::Running;
        record.current_node = Some(NodeId::parse(current).unwrap());
        for (id, state, visits) in nodes {
            let node = record.node_mut(id).unwrap();
            (node.state, node.visits, node.attempts) = (*state, *visits, 1);
        }
        record
    }

    /// The move in one word, with the node it leads to.
    fn word(record: &RunRecord) -> String {
        match decide(&workflow(), record, Time::from_millis(0)) {
            Move::Commit(events) => {
                assert!(serde_json::to_string(&events).unwrap().len() < 64 * 1024, "a batch stays small");
                let entered = events.iter().rev().find_map(|e| {
                    if let Event::NodeState { node, visit, .. } = e { Some(format!("{node} {visit}")) } else { None }
                });
                let ended = events.iter().any(|e| matches!(e, Event::RunState { state, .. } if state.is_terminal()));
                if ended { "commit end".to_owned() } else { format!("enter {}", entered.unwrap()) }
            }
            Move::Run(node) => format!("run {node}"),
            Move::Wait(node, _) => format!("wait {node}"),
            Move::Park => "park".to_owned(),
            Move::Conclude => "conclude".to_owned(),
            Move::Stop => "stop".to_owned(),
            Move::End(end) => end.error.unwrap(),
        }
    }

    /// Kernel 2 to 4, scenario 11: from where a run stands to its next move.
    #[test]
    fn next_moves() {
        use NodeState::{AwaitingHuman, Failed, Pending, Running, Skipped, Succeeded};
        type Case<'c> = (&'c str, &'c [(&'c str, NodeState, u32)], &'c str);
        let cases: &[Case<'_>] = &[
            ("a", &[("a", Running, 1)], "run a"),
            ("a", &[("a", Succeeded, 1)], "enter v 1"),
            ("a", &[("a", Skipped, 1)], "enter v 1"),
            ("a", &[("a", Succeeded, 1), ("v", Failed, 4)], "enter v 5"),
            ("a", &[("a", Succeeded, 1), ("v", Failed, 5)], "node 'v' exceeded maxNodeVisits (5)"),
            ("a", &[("a", Failed, 1)], "node 'a' failed: no reason given"),
            ("b", &[("b", Failed, 1)], "enter v 1"),
            ("r", &[("r", Running, 1), ("v", Failed, 1), ("a", Succeeded, 2)], "enter a 3"),
            ("r", &[("r", Running, 1), ("v", Failed, 1), ("a", Succeeded, 3)], "enter b 1"),
            ("r", &[("r", Running, 1), ("v", Pending, 0), ("a", Pending, 0)], "enter b 1"),
            ("r", &[("r", Running, 1), ("v", Failed, 1), ("a", Succeeded, 3), ("b", Failed, 5)], "commit end"),
            ("r", &[("r", Succeeded, 1)], "conclude"),
            ("g", &[("g", AwaitingHuman, 1)], "park"),
            ("g", &[("g", Failed, 1)], "node 'g' failed: no reason given"),
            ("z", &[("z", Succeeded, 1)], "conclude"),
        ];
        for (current, nodes, expected) in cases {
            assert_eq!(word(&standing(current, nodes)), *expected, "{current} {nodes:?}");
        }
        let fresh = state::empty(&RunId::parse("r").unwrap(), &workflow());
        assert_eq!(word(&fresh), "enter a 1");
        let mut record = standing("a", &[("a", Running, 1)]);
        record.node_mut("a").unwrap().retry_at = Some(Time::from_millis(9));
        assert_eq!(word(&record), "wait a");
        record.state = RunState::Cancelled;
        assert_eq!(word(&record), "stop");
    }

    /// A gate's question may be a megabyte; the batch that opens it stays below what the log takes.
    #[test]
    fn a_long_question_fits_the_log() {
        let mut record = standing("r", &[("r", NodeState::Running, 1), ("v", NodeState::Succeeded, 1)]);
        record.verdicts.insert(
            "v".to_owned(),
            crate::model::run::Verdict {
                node: NodeId::parse("v").unwrap(),
                evidence_id: None,
                evidence_run: None,
                passed: true,
                tree_digest: None,
                digest_cwd: None,
                side_effect_seq: 0,
                advisory: false,
                run_contract: false,
                withheld: None,
            },
        );
        assert_eq!(word(&record), "enter g 1");
    }

    /// RL-3: three equal reds of the verifier itself end the loop; those of another node do not.
    #[test]
    fn no_progress_ends_a_loop() {
        let streak = |count| RedStreak { fingerprint: "p".to_owned(), visit: 1, count };
        let mut record = standing("v", &[("v", NodeState::Failed, 3)]);
        for (node, count, ends) in [("v", 2, false), ("z", 3, false), ("v", 3, true)] {
            record.red.insert(node.to_owned(), streak(count));
            assert_eq!(word(&record).starts_with("no progress"), ends, "{node} {count}");
        }
    }
}
