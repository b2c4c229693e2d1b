//! Folding a run's log over its spec: the record, and nothing but the record.
//!
//! Pure: no clock, no I/O, no async. Every part of the record comes from an event here.

mod sums;

use std::{collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::model::{
    Event, NodeKind, NodeRecord, NodeState, RunId, RunRecord, RunState, Time, WorkflowSpec,
    run::{RECORD_VERSION, Spend},
    spec::{ContractSource, Node},
};
use crate::nodes::{council::data, goal::GOAL_DATA, prompt::cut};

pub use sums::usd;
use sums::{apply_child_cost, apply_cost, apply_verdict};

/// Bytes kept of a correction that has been followed; the log has the rest.
const STEER_KEPT: usize = 200;

/// The record before the first event.
pub fn empty(run_id: &RunId, spec: &WorkflowSpec) -> RunRecord {
    RunRecord {
        v: RECORD_VERSION,
        seq: 0,
        run_id: run_id.clone(),
        workflow: spec.name.clone(),
        state: RunState::Pending,
        outcome: None,
        outcome_reason: None,
        error: None,
        created_at: Time::from_millis(0),
        updated_at: Time::from_millis(0),
        ended_at: None,
        cwd: spec.cwd.clone(),
        work_dir: spec.cwd.clone(),
        work_top: None,
        baseline: None,
        workspace_branch: None,
        workspace_path: None,
        auto_resume: false,
        parent: None,
        current_node: None,
        nodes: spec.nodes.iter().map(node_record).collect(),
        verdicts: BTreeMap::new(),
        side_effect_seq: 0,
        spend: Spend::default(),
        child_spend: BTreeMap::new(),
        steers: Vec::new(),
        injections: Vec::new(),
        winding_down: false,
        gate: None,
        waiting_for: None,
        consensus_votes: Vec::new(),
        red: BTreeMap::new(),
        unkillable: None,
        idempotency_key: None,
    }
}

fn node_record(node: &Node) -> Arc<NodeRecord> {
    Arc::new(NodeRecord { id: node.id.to_string(), kind: node.kind.name().to_owned(), ..NodeRecord::default() })
}

/// Folds one committed batch in.
pub fn apply_batch(record: &mut RunRecord, spec: &WorkflowSpec, seq: u64, at: Time, events: &[Event]) {
    for event in events {
        apply(record, spec, at, event);
    }
    record.seq = seq;
    record.updated_at = at;
}

/// Folds stored batches in; an event of a kind this version does not know is passed over.
pub fn apply_stored(record: &mut RunRecord, spec: &WorkflowSpec, lines: &[crate::store::Line]) {
    for line in lines {
        let events: Vec<Event> = line.events.iter().filter_map(parse).collect();
        apply_batch(record, spec, line.seq, line.ts, &events);
    }
}

/// One stored event; `None` when it is of a kind this version does not know.
pub fn parse(value: &Value) -> Option<Event> {
    serde::Deserialize::deserialize(value).ok()
}

fn apply(record: &mut RunRecord, spec: &WorkflowSpec, at: Time, event: &Event) {
    match event {
        Event::RunCreated {
            workflow,
            cwd,
            at: created,
            baseline,
            auto_resume,
            parent,
            workspace_branch,
            workspace_path,
            work_dir,
            idempotency_key,
        } => {
            record.workflow.clone_from(workflow);
            record.cwd.clone_from(cwd);
            record.work_dir = work_dir.clone().unwrap_or_else(|| cwd.clone());
            record.created_at = *created;
            record.baseline.clone_from(baseline);
            record.auto_resume = *auto_resume;
            record.parent.clone_from(parent);
            record.workspace_branch.clone_from(workspace_branch);
            record.workspace_path.clone_from(workspace_path);
            record.idempotency_key.clone_from(idempotency_key);
        }
        Event::Fence { .. } | Event::Log { .. } => {}
        Event::RunState { state, outcome, reason, error } => {
            record.state = *state;
            if state.is_terminal() {
                record.outcome = *outcome;
                record.outcome_reason.clone_from(reason);
                record.error.clone_from(error);
                record.ended_at = Some(at);
                record.gate = None;
                record.waiting_for = None;
            }
        }
        Event::NodeState { node, state, visit, attempt, failures, error, approved, comment } => {
            let touches = spec.node(node.as_str()).is_some_and(|(_, n)| touches_workspace(spec, n));
            let Some(entry) = record.node_mut(node.as_str()) else { return };
            let entered = *visit > entry.visits;
            let was_running = entry.state == NodeState::Running;
            if *state == NodeState::Running && *failures > entry.failures {
                // The next attempt starts a child of its own; one that a crash cut off takes up the child it has.
                entry.child_run_id = None;
            }
            entry.state = *state;
            entry.visits = *visit;
            entry.attempts = *attempt;
            entry.failures = *failures;
            entry.error.clone_from(error);
            entry.retry_at = None;
            if entered {
                entry.started_at = Some(at);
                entry.ended_at = None;
                // Conversations that several nodes share outlive a visit, and so do a goal's and what councils were;
                // everything else belongs to one.
                if let Some(kept) = entry.data.as_mut().and_then(Value::as_object_mut) {
                    let stays =
                        |key: &str| key.starts_with("session:") || key == GOAL_DATA || key.starts_with(data::PREFIX);
                    kept.retain(|key, _| stays(key));
                }
                entry.approved = None;
                entry.comment = None;
                entry.child_run_id = None;
            }
            if approved.is_some() {
                entry.approved = *approved;
                entry.comment.clone_from(comment);
            }
            match state {
                NodeState::Running => {
                    record.current_node = Some(node.clone());
                    // A green word given by an earlier visit must not outlive a visit that never gave its own.
                    if entered && record.verdicts.get(node.as_str()).is_some_and(|v| v.passed) {
                        record.verdicts.remove(node.as_str());
                    }
                }
                NodeState::Succeeded | NodeState::Failed | NodeState::Cancelled | NodeState::Skipped => {
                    entry.ended_at = Some(at);
                    record.waiting_for = None;
                    if was_running && touches {
                        record.side_effect_seq += 1;
                        if let Some(verdict) = record.verdicts.get_mut(node.as_str()) {
                            // Its own verdict was taken after its side effects.
                            verdict.side_effect_seq = verdict.side_effect_seq.max(record.side_effect_seq);
                        }
                    }
                }
                NodeState::AwaitingHuman => record.current_node = Some(node.clone()),
                NodeState::Pending => {}
            }
        }
        Event::NodeOutput { node, output } => {
            if let Some(entry) = record.node_mut(node.as_str()) {
                entry.output = Some(output.clone());
            }
        }
        Event::NodeData { node, key, data } => {
            if let Some(entry) = record.node_mut(node.as_str()) {
                let map = entry.data.get_or_insert_with(|| Value::Object(serde_json::Map::new()));
                if let Some(map) = map.as_object_mut() {
                    map.insert(key.clone(), data.clone());
                }
            }
        }
        Event::Verdict { verdict, fingerprint } => apply_verdict(record, verdict, fingerprint.as_deref()),
        Event::Evidence { node, evidence_id } => {
            if let Some(entry) = record.node_mut(node.as_str()) {
                entry.evidence_id = Some(evidence_id.clone());
            }
        }
        Event::Vote { vote } => record.consensus_votes.push(vote.clone()),
        Event::Cost { node, spend } => apply_cost(record, Some(node), spend),
        Event::ChildCost { child_run_id, node, spend } => {
            apply_child_cost(record, child_run_id, node.as_ref(), spend);
        }
        Event::Steer { steer } => record.steers.push(steer.clone()),
        Event::SteerApplied { node, ids } => {
            for steer in record.steers.iter_mut().filter(|s| ids.contains(&s.id)) {
                if !steer.applied.contains(node) {
                    steer.applied.push(node.clone());
                }
                steer.text.truncate(cut(&steer.text, STEER_KEPT).0.len());
            }
        }
        Event::Inject { injection } => record.injections.push(injection.clone()),
        Event::InjectTaken { ids, round } => {
            for taken in record.injections.iter_mut().filter(|i| ids.contains(&i.id)) {
                taken.round = Some(*round);
                taken.text.truncate(cut(&taken.text, STEER_KEPT).0.len());
            }
        }
        Event::WindDown => record.winding_down = true,
        Event::WorkDir { path, top, baseline, .. } => {
            record.work_dir.clone_from(path);
            record.work_top = Some(top.clone());
            record.baseline = Some(baseline.clone());
        }
        Event::Gate { gate } => record.gate.clone_from(gate),
        Event::RetryScheduled { node, retry_at, .. } => {
            if let Some(entry) = record.node_mut(node.as_str()) {
                entry.retry_at = Some(*retry_at);
            }
        }
        Event::Wait { waiting } => record.waiting_for.clone_from(waiting),
        Event::Child { node, child_run_id } => {
            if let Some(entry) = record.node_mut(node.as_str()) {
                entry.child_run_id = Some(child_run_id.clone());
            }
        }
        Event::Snapshot { node, snapshot_ref } => {
            if let Some(entry) = record.node_mut(node.as_str()) {
                entry.snapshot_ref = Some(snapshot_ref.clone());
            }
        }
        Event::Unkillable { detail } => record.unkillable = Some(detail.clone()),
    }
}

/// Whether a finished visit of the node may have changed the workspace: agents do, and so do the fixers of a verifier.
fn touches_workspace(spec: &WorkflowSpec, node: &Node) -> bool {
    match &node.kind {
        NodeKind::Verifier(v) => match &v.contract {
            ContractSource::Run => spec.contract.as_ref().is_some_and(|c| c.fix_on_failure_rounds > 0),
            ContractSource::Inline(contract) => contract.fix_on_failure_rounds > 0,
        },
        kind @ (NodeKind::Agent(_)
        | NodeKind::Fanout(_)
        | NodeKind::HumanGate(_)
        | NodeKind::Router(_)
        | NodeKind::Subflow(_)
        | NodeKind::Goal(_)
        | NodeKind::Council(_)) => kind.has_side_effects(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{
        kernel::spec,
        model::{
            NodeId,
            run::{Gate, OutputText, Steer, Verdict, Waiting},
        },
        store::Line,
    };

    fn workflow() -> WorkflowSpec {
        let contract =
            |rounds: u64| json!({ "checks": [{ "type": "command", "cmd": "true" }], "fixOnFailureRounds": rounds });
        let value = json!({
            "name": "n", "cwd": "/", "contract": contract(0),
            "nodes": [
                { "id": "a", "kind": "agent", "prompt": "x" },
                { "id": "v", "kind": "verifier", "contract": "run" },
                { "id": "f", "kind": "verifier", "contract": contract(1) },
                { "id": "s", "kind": "subflow", "workflow": "some-run" },
            ],
        });
        spec::read(&value, "", spec::Origin::Caller, None, None).spec.unwrap()
    }

    fn node(name: &str) -> NodeId {
        NodeId::parse(name).unwrap()
    }

    fn moved(name: &str, state: NodeState, visit: u32, failures: u32) -> Event {
        let Event::NodeState { node, state, visit, attempt, error, approved, comment, .. } =
            crate::kernel::plan::node_state(&node(name), state, visit, failures + 1)
        else {
            unreachable!("it makes node states");
        };
        Event::NodeState { node, state, visit, attempt, failures, error, approved, comment }
    }

    fn word(name: &str, passed: bool, print: Option<&str>) -> Event {
        let verdict = Verdict {
            node: node(name),
            evidence_id: None,
            evidence_run: None,
            passed,
            tree_digest: None,
            digest_cwd: None,
            side_effect_seq: 0,
            advisory: false,
            run_contract: name == "v",
            withheld: None,
        };
        Event::Verdict { verdict, fingerprint: print.map(str::to_owned) }
    }

    fn folded(events: &[Event]) -> RunRecord {
        let spec = workflow();
        let mut record = empty(&RunId::parse("r").unwrap(), &spec);
        apply_batch(&mut record, &spec, 1, Time::from_millis(1), events);
        record
    }

    /// Any event, from a few small numbers.
    fn event((kind, who, n, money): (u8, u8, u8, f64)) -> Event {
        let name = ["a", "v", "f", "s", "gone"][usize::from(who % 5)];
        let (visit, at) = (u32::from(n % 4), Time::from_millis(i64::from(n)));
        let text = "ünï\u{1f980}\n".repeat(usize::from(n));
        let states = [
            NodeState::Running,
            NodeState::Succeeded,
            NodeState::Failed,
            NodeState::AwaitingHuman,
            NodeState::Cancelled,
        ];
        match kind % 15 {
            0 | 1 => moved(name, states[usize::from(n % 5)], visit, u32::from(n / 128)),
            2 => word(name, n % 2 == 0, Some("p").filter(|_| n % 2 == 1)),
            3 => Event::NodeOutput { node: node(name), output: OutputText { text, file: None } },
            4 => Event::NodeData { node: node(name), key: format!("session:{}", n % 3), data: json!({ "ok": n }) },
            5 => Event::Cost { node: node(name), spend: Spend { cost_usd: usd(money), turns: 1, ..Spend::default() } },
            6 => Event::Steer { steer: Steer { id: format!("s{}", n % 3), text, at, applied: Vec::new() } },
            7 => Event::SteerApplied { node: node(name), ids: vec![format!("s{}", n % 3)] },
            8 => Event::Gate { gate: (n % 2 == 0).then(|| Gate { node: node(name), visit, prompt: text, since: at }) },
            9 => Event::RetryScheduled { node: node(name), attempt: 2, retry_at: at },
            10 => Event::Wait {
                waiting: (n % 2 == 0).then(|| Waiting { kind: "slot".into(), since: at, until: None, detail: text }),
            },
            11 => Event::Child { node: node(name), child_run_id: RunId::parse("c").unwrap() },
            12 => Event::Vote { vote: json!({ "n": n }) },
            13 => Event::ChildCost {
                child_run_id: RunId::parse(if n % 2 == 0 { "c" } else { "d" }).unwrap(),
                node: (n % 3 > 0).then(|| node(name)),
                spend: Spend { cost_usd: usd(money), turns: u64::from(n), ..Spend::default() },
            },
            _ => Event::RunState {
                state: if n > 250 { RunState::Completed } else { RunState::Running },
                outcome: None,
                reason: Some(text),
                error: None,
            },
        }
    }

    /// CB-3: what a child has used is charged once, however often and in whatever order it is said.
    #[test]
    fn a_childs_total_is_charged_once() {
        let said = |child: &str, usd: f64, turns| Event::ChildCost {
            child_run_id: RunId::parse(child).unwrap(),
            node: Some(node("s")),
            spend: Spend { cost_usd: usd, turns, ..Spend::default() },
        };
        let own = Event::Cost { node: node("a"), spend: Spend { cost_usd: 0.1, turns: 1, ..Spend::default() } };
        let events =
            [said("c", 0.0, 0), said("c", 0.3, 1), own, said("c", 0.3, 1), said("d", 0.2, 1), said("c", 0.2, 0)];
        let record = folded(&events);
        assert_eq!((record.spend.cost_usd, record.spend.turns), (0.6, 3));
        assert_eq!(record.node("s").unwrap().cost_usd, 0.5);
        assert_eq!(record.child_spend.len(), 2);
    }

    proptest! {
        /// Store P4, I4: what is served equals what any reader folds from the text of the log, with a
        /// checkpoint anywhere or without one.
        #[test]
        fn the_log_is_everything(
            batches in prop::collection::vec(
                prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>(), 0.0..10.0_f64).prop_map(event), 1..4),
                1..40,
            ),
            cut in any::<prop::sample::Index>(),
        ) {
            let spec = workflow();
            let start = || empty(&RunId::parse("r").unwrap(), &spec);
            let (mut served, mut lines, mut checkpoint) = (start(), Vec::new(), String::new());
            for (i, batch) in batches.iter().enumerate() {
                let (seq, ts) = (i as u64 + 1, Time::from_millis(i as i64 * 7));
                apply_batch(&mut served, &spec, seq, ts, batch);
                let text = serde_json::to_string(batch).unwrap();
                lines.push(Line { seq, epoch: 1, ts, events: serde_json::from_str(&text).unwrap() });
                if i == cut.index(batches.len()) {
                    checkpoint = serde_json::to_string(&served).unwrap();
                }
            }
            let mut whole = start();
            apply_stored(&mut whole, &spec, &lines);
            let mut rest: RunRecord = serde_json::from_str(&checkpoint).unwrap();
            apply_stored(&mut rest, &spec, &lines[cut.index(batches.len()) + 1..]);
            prop_assert_eq!(serde_json::to_string(&served).unwrap(), serde_json::to_string(&whole).unwrap());
            prop_assert_eq!(&served, &whole);
            prop_assert_eq!(&served, &rest);
        }
    }

    /// Kernel 6: a visit that begins takes a green word away and leaves a red one; agents, subflows and verifiers
    /// with fixers count as side effects, after which an older word is stale and an own one is not.
    #[test]
    fn words_and_side_effects() {
        use NodeState::{Running, Succeeded};
        let visit = |name, n| [moved(name, Running, n, 0), moved(name, Succeeded, n, 0)];
        let green = folded(&[&visit("v", 1)[..1], &[word("v", true, None)]].concat());
        assert!(green.verdicts["v"].passed);
        let again = folded(&[&visit("v", 1)[..], &[word("v", true, None)], &visit("v", 2)[..1]].concat());
        assert!(again.verdicts.is_empty());
        let red = folded(&[&visit("v", 1)[..], &[word("v", false, Some("p"))], &visit("v", 2)[..1]].concat());
        assert!(!red.verdicts["v"].passed);
        for (name, counts) in [("a", 1), ("v", 0), ("f", 1), ("s", 1)] {
            let record = folded(&[&[word("v", true, None), word("s", true, None)], &visit(name, 1)[..]].concat());
            assert_eq!(record.side_effect_seq, counts, "{name}");
        }
        let own = folded(&[moved("s", Running, 1, 0), word("s", true, None), moved("s", Succeeded, 1, 0)]);
        assert_eq!((own.side_effect_seq, own.verdicts["s"].side_effect_seq), (1, 1));
    }

    /// RL-3: equal reds count by node and by visit; another node's word and a retry in one visit change nothing.
    #[test]
    fn equal_reds_are_counted_where_they_repeat() {
        let pass = |n| {
            [
                moved("f", NodeState::Running, n, 0),
                word("f", true, None),
                moved("v", NodeState::Running, n, 0),
                word("v", false, Some("p")),
                word("v", false, Some("p")),
            ]
        };
        let record = folded(&[pass(1), pass(2), pass(3)].concat());
        assert_eq!((record.red["v"].count, record.red.len()), (3, 1));
        let other = folded(
            &[&pass(1)[..], &pass(2)[..], &[moved("v", NodeState::Running, 3, 0), word("v", false, Some("q"))]]
                .concat(),
        );
        assert_eq!(other.red["v"].count, 1);
        let mended = folded(&[&pass(1)[..], &[word("v", true, None)]].concat());
        assert!(mended.red.is_empty());
    }

    /// A retry after a failure gets a child of its own, a retry after a crash the child that is there.
    #[test]
    fn a_failed_attempt_gives_its_child_up() {
        let child = Event::Child { node: node("s"), child_run_id: RunId::parse("c").unwrap() };
        let begun = [moved("s", NodeState::Running, 1, 0), child];
        let cut_off = folded(&[&begun[..], &[moved("s", NodeState::Running, 1, 0)]].concat());
        let failed = folded(&[&begun[..], &[moved("s", NodeState::Running, 1, 1)]].concat());
        let ended = folded(&[&begun[..], &[moved("s", NodeState::Failed, 1, 1)]].concat());
        let has = |record: &RunRecord| record.node("s").unwrap().child_run_id.is_some();
        assert_eq!((has(&cut_off), has(&failed), has(&ended)), (true, false, true));
    }
}
