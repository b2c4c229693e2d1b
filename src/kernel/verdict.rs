//! What the verifiers' words add up to. Pure.

use crate::model::{
    Node, NodeId, NodeKind, RunOutcome, RunRecord, RunState, WorkflowSpec, run::Verdict, spec::ContractSource,
};

/// Why a run without a contract is unverified.
pub const NO_CONTRACT: &str = "no acceptance contract";

/// The verdict in force: red when any counting verifier's latest word is red, green when all are green.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InForce<'r> {
    /// Nothing has judged.
    None,
    /// At least one is red; these are.
    Red(Vec<&'r Verdict>),
    /// All are green.
    Green(Vec<&'r Verdict>),
}

/// The verdict in force of a record.
pub fn in_force(record: &RunRecord) -> InForce<'_> {
    let counting: Vec<&Verdict> = record.verdicts.values().filter(|v| !v.advisory).collect();
    let red: Vec<&Verdict> = counting.iter().copied().filter(|v| !v.passed).collect();
    match (counting.is_empty(), red.is_empty()) {
        (true, _) => InForce::None,
        (false, false) => InForce::Red(red),
        (false, true) => InForce::Green(counting),
    }
}

/// The one verdict to show: a red one, else the run contract's, else the newest.
pub fn shown(record: &RunRecord) -> Option<&Verdict> {
    match in_force(record) {
        InForce::None => None,
        InForce::Red(list) => list.into_iter().max_by_key(|v| v.side_effect_seq),
        InForce::Green(list) => list.into_iter().max_by_key(|v| (v.run_contract, v.side_effect_seq)),
    }
}

/// How a run ends, as far as the record alone tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conclusion {
    /// Settled.
    Ends(Ending),
    /// Green, but something ran after these verdicts: settled by comparing digests.
    Compare(Vec<Verdict>),
}

/// The final words about a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// Terminal state.
    pub state: RunState,
    /// Outcome.
    pub outcome: RunOutcome,
    /// Why.
    pub reason: String,
    /// What went wrong.
    pub error: Option<String>,
}

/// Concludes a run whose control flow reached the end.
pub fn conclude(spec: &WorkflowSpec, record: &RunRecord) -> Conclusion {
    let missing = spec.contract.is_some() && !record.verdicts.values().any(|v| v.run_contract && !v.advisory);
    let silent = silent(spec, record);
    match in_force(record) {
        InForce::Red(list) => Conclusion::Ends(refuted(&list)),
        InForce::None | InForce::Green(_) if missing => Conclusion::Ends(Ending {
            state: RunState::Failed,
            outcome: RunOutcome::Unverified,
            reason: "the run's acceptance contract was never checked".to_owned(),
            error: Some("control never reached a verifier of the run's contract".to_owned()),
        }),
        InForce::None | InForce::Green(_) if !silent.is_empty() => {
            Conclusion::Ends(unverified(&format!("checks ran at {} but gave no verdict", silent.join(", "))))
        }
        InForce::None => Conclusion::Ends(unverified(NO_CONTRACT)),
        InForce::Green(list) => match &record.unkillable {
            Some(left) => Conclusion::Ends(unverified(&format!("a process of the run could not be ended: {left}"))),
            None => {
                if let Some(why) = list.iter().find_map(|v| v.withheld.as_deref()) {
                    return Conclusion::Ends(unverified(why));
                }
                let stale: Vec<Verdict> =
                    list.iter().filter(|v| v.side_effect_seq < record.side_effect_seq).map(|v| (*v).clone()).collect();
                if stale.is_empty() { Conclusion::Ends(verified(&list)) } else { Conclusion::Compare(stale) }
            }
        },
    }
}

/// Verifiers that were entered and whose latest visit gave no word, because it timed out or could not look.
fn silent(spec: &WorkflowSpec, record: &RunRecord) -> Vec<String> {
    let counts = |node: &&Node| match &node.kind {
        NodeKind::Verifier(v) => !v.advisory && (v.contract != ContractSource::Run || spec.contract.is_some()),
        NodeKind::Agent(_)
        | NodeKind::Fanout(_)
        | NodeKind::HumanGate(_)
        | NodeKind::Router(_)
        | NodeKind::Subflow(_)
        | NodeKind::Goal(_)
        | NodeKind::Council(_) => false,
    };
    let mute = |node: &&Node| {
        record.node(node.id.as_str()).is_some_and(|n| n.visits > 0) && !record.verdicts.contains_key(node.id.as_str())
    };
    spec.nodes.iter().filter(counts).filter(mute).map(|n| n.id.to_string()).collect()
}

/// The end of a green run whose older verdicts were compared: `moved` says which tree no longer is what was checked.
pub fn after_compare(record: &RunRecord, moved: Option<String>) -> Ending {
    match (moved, in_force(record)) {
        (Some(why), _) => unverified(&why),
        (None, InForce::Green(list)) => verified(&list),
        (None, InForce::Red(list)) => refuted(&list),
        (None, InForce::None) => unverified(NO_CONTRACT),
    }
}

/// The end of a run that a failure, a bound or a stop cut short.
pub fn cut_short(record: &RunRecord, error: String, reason: Option<String>) -> Ending {
    match in_force(record) {
        InForce::Red(list) => {
            let mut ending = refuted(&list);
            ending.reason = reason.unwrap_or(ending.reason);
            ending.error = Some(error);
            ending
        }
        InForce::None | InForce::Green(_) => Ending {
            state: RunState::Failed,
            outcome: RunOutcome::Unverified,
            reason: reason.unwrap_or_else(|| error.clone()),
            error: Some(error),
        },
    }
}

/// The end of a cancelled run: cancelling never verifies and never refutes.
pub fn cancelled(reason: Option<&str>) -> Ending {
    Ending {
        state: RunState::Cancelled,
        outcome: RunOutcome::Unverified,
        reason: reason.map_or_else(|| "cancelled".to_owned(), |r| format!("cancelled: {r}")),
        error: None,
    }
}

fn names(list: &[&Verdict]) -> String {
    let ids: Vec<&str> = list.iter().map(|v| v.node.as_str()).collect();
    ids.join(", ")
}

fn refuted(list: &[&Verdict]) -> Ending {
    let reason = format!("the acceptance contract failed at {}", names(list));
    Ending { state: RunState::Failed, outcome: RunOutcome::Refuted, error: Some(reason.clone()), reason }
}

fn verified(list: &[&Verdict]) -> Ending {
    Ending {
        state: RunState::Completed,
        outcome: RunOutcome::Verified,
        reason: format!("every required check passed at {}", names(list)),
        error: None,
    }
}

fn unverified(reason: &str) -> Ending {
    Ending { state: RunState::Completed, outcome: RunOutcome::Unverified, reason: reason.to_owned(), error: None }
}

/// Whether the node's own latest evidence is a pass, of work that is where it should be.
pub fn node_verified(record: &RunRecord, node: &NodeId) -> bool {
    record.verdicts.get(node.as_str()).is_some_and(|v| v.passed && v.withheld.is_none())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        kernel::{spec, state},
        model::RunId,
    };

    /// A spec with a run contract or without, and one inline and one advisory verifier beside the run's own.
    fn workflow(contract: bool) -> WorkflowSpec {
        let checks = json!({ "checks": [{ "type": "command", "cmd": "true" }] });
        let mut value = json!({
            "name": "n", "cwd": "/",
            "nodes": [
                { "id": "run", "kind": "verifier", "contract": "run" },
                { "id": "own", "kind": "verifier", "contract": checks },
                { "id": "note", "kind": "verifier", "contract": "run", "advisory": true },
            ],
        });
        if contract {
            value["contract"] = checks;
        }
        spec::read(&value, "", spec::Origin::Caller, None, None).spec.unwrap()
    }

    /// A record in which these verifiers ran: name, word (none when it was cut short), side effects before it.
    fn record(spec: &WorkflowSpec, words: &[(&str, Option<bool>, u64)], now: u64) -> RunRecord {
        let mut record = state::empty(&RunId::parse("r").unwrap(), spec);
        record.side_effect_seq = now;
        for (name, word, seq) in words {
            record.node_mut(name).unwrap().visits = 1;
            if let Some(passed) = word {
                let verdict = Verdict {
                    node: NodeId::parse(name).unwrap(),
                    evidence_id: None,
                    evidence_run: None,
                    passed: *passed,
                    tree_digest: None,
                    digest_cwd: None,
                    side_effect_seq: *seq,
                    advisory: *name == "note",
                    run_contract: *name != "own",
                    withheld: None,
                };
                record.verdicts.insert((*name).to_owned(), verdict);
            }
        }
        record
    }

    /// Kernel 6, scenarios 2 to 6: what the words add up to at the end.
    #[test]
    fn how_runs_end() {
        use RunOutcome::{Refuted, Unverified, Verified};
        use RunState::{Completed, Failed};
        let (yes, no, mute) = (Some(true), Some(false), None);
        type Word<'c> = (&'c str, Option<bool>, u64);
        type Case<'c> = (&'c str, bool, &'c [Word<'c>], u64, Option<(RunState, RunOutcome)>);
        let cases: &[Case<'_>] = &[
            ("no contract", false, &[], 3, Some((Completed, Unverified))),
            ("an own contract is enough without a run's", false, &[("own", yes, 0)], 0, Some((Completed, Verified))),
            ("all green", true, &[("run", yes, 2), ("own", yes, 2)], 2, Some((Completed, Verified))),
            ("never reached", true, &[], 1, Some((Failed, Unverified))),
            ("an own pass does not stand in", true, &[("own", yes, 1)], 1, Some((Failed, Unverified))),
            ("an own red refutes", true, &[("own", no, 1)], 1, Some((Failed, Refuted))),
            ("a weaker pass later", true, &[("run", no, 1), ("own", yes, 2)], 2, Some((Failed, Refuted))),
            ("an advisory red", true, &[("run", yes, 1), ("note", no, 1)], 1, Some((Completed, Verified))),
            ("an advisory look is none", true, &[("own", yes, 1), ("note", yes, 1)], 1, Some((Failed, Unverified))),
            (
                "an advisory red is none either",
                true,
                &[("own", yes, 1), ("note", no, 1)],
                1,
                Some((Failed, Unverified)),
            ),
            ("timed out", true, &[("run", mute, 0)], 1, Some((Failed, Unverified))),
            ("one timed out", true, &[("run", yes, 1), ("own", mute, 0)], 1, Some((Completed, Unverified))),
            ("own timed out", false, &[("own", mute, 0)], 1, Some((Completed, Unverified))),
            ("red and timed out", true, &[("run", no, 1), ("own", mute, 0)], 1, Some((Failed, Refuted))),
            ("something ran later", true, &[("run", yes, 1), ("own", yes, 2)], 2, None),
        ];
        for (what, contract, words, now, expected) in cases {
            let spec = workflow(*contract);
            let mut record = record(&spec, words, *now);
            let ends = |record: &RunRecord| match conclude(&spec, record) {
                Conclusion::Ends(end) => Some((end.state, end.outcome)),
                Conclusion::Compare(stale) => {
                    assert_eq!(stale.len(), 1, "{what}");
                    None
                }
            };
            assert_eq!(ends(&record), *expected, "{what}");
            record.unkillable = Some("7 sleep".to_owned());
            assert_ne!(ends(&record).map(|(_, outcome)| outcome), Some(Verified), "{what} with a process left");
        }
    }

    /// Council 14.1: work that passed and could not be merged leaves the run unverified; a red word still refutes.
    #[test]
    fn a_withheld_green_verifies_nothing() {
        let spec = workflow(true);
        let mut record = record(&spec, &[("run", Some(true), 1)], 1);
        record.verdicts.get_mut("run").unwrap().withheld = Some("tree_dirty: commit first".to_owned());
        let Conclusion::Ends(end) = conclude(&spec, &record) else { panic!("nothing to compare") };
        assert_eq!((end.state, end.outcome), (RunState::Completed, RunOutcome::Unverified));
        assert_eq!(end.reason, "tree_dirty: commit first");
        assert!(!node_verified(&record, &NodeId::parse("run").unwrap()));
        record.verdicts.get_mut("run").unwrap().passed = false;
        assert_eq!(cut_short(&record, "red".to_owned(), None).outcome, RunOutcome::Refuted);
    }

    /// Kernel 4.6, VF-2: a run that is cut short is never verified, and refuted only by a red word.
    #[test]
    fn how_runs_are_cut_short() {
        let spec = workflow(true);
        for (words, outcome) in [
            (vec![], RunOutcome::Unverified),
            (vec![("run", Some(true), 0)], RunOutcome::Unverified),
            (vec![("run", Some(false), 0)], RunOutcome::Refuted),
        ] {
            let record = record(&spec, &words, 0);
            let end = cut_short(&record, "it broke".to_owned(), None);
            assert_eq!((end.state, end.outcome, end.error.as_deref()), (RunState::Failed, outcome, Some("it broke")));
        }
        let end = cancelled(Some("enough"));
        assert_eq!((end.state, end.outcome), (RunState::Cancelled, RunOutcome::Unverified));
        let green = record(&spec, &[("run", Some(true), 0)], 1);
        assert_eq!(after_compare(&green, Some("moved".to_owned())).outcome, RunOutcome::Unverified);
        assert_eq!(after_compare(&green, None).outcome, RunOutcome::Verified);
    }
}
