//! What the model found, each as a case of its own.

use claw_orchestrator::model::{NodeState, RunOutcome, RunState};

use crate::{
    case::{Case, Deed},
    exhaustive::{quiet, seed},
    faulty::Fault,
    flow::{Flow, What, flow, step},
    report::Report,
    script::Temper,
};

/// A disk that fails when a parent takes its child up again after a crash: the parent gave its node up and ended,
/// and the child stayed open for ever. Now it asks again, as for any run.
#[test]
fn a_child_is_taken_up_over_a_failing_disk() {
    let child = Flow { contract: true, ..flow(vec![step(What::Agent(Temper::Steady))]) };
    let parent = flow(vec![step(What::Subflow(Box::new(child))), step(What::Agent(Temper::Steady))]);
    let seed = seed(&parent, |end| end.state == RunState::Completed);
    let case = Case::new(parent, seed);
    let undisturbed = quiet(&case);
    let report = Report::default();
    for dies in 0..undisturbed.batches {
        for fails in dies + 1..undisturbed.batches + 4 {
            for fault in [Fault::FailsBefore, Fault::FailsAfter] {
                let faults = [(dies, Fault::DiesAfter), (fails, fault)].into();
                let lived = Case { faults, ..case.clone() }.live();
                let lived = lived.unwrap_or_else(|e| panic!("dies at {dies}, fails at {fails}: {e}"));
                assert_eq!(lived.end.nodes, undisturbed.end.nodes, "dies at {dies}, fails at {fails}");
                assert_eq!(lived.end.reason, undisturbed.end.reason, "dies at {dies}, fails at {fails}");
                report.add(&lived);
            }
        }
    }
    report.say("a child and a failing disk");
}

/// A run that ends before the attempt that looks after its child begins: the time was up, or somebody cancelled,
/// right when another process went on with it. The child stayed open for ever. Now it ends with its parent.
#[test]
fn a_child_ends_with_a_parent_that_never_looked_after_it() {
    let child = flow(vec![step(What::Agent(Temper::Long))]);
    let parent = flow(vec![step(What::Subflow(Box::new(child)))]);
    let killed = (300, Deed::Kill);
    let late = Case {
        deeds: vec![killed.clone()],
        pause_ms: 2000,
        ..Case::new(Flow { max_wall_ms: Some(1000), ..parent.clone() }, 1)
    };
    let lived = late.live().unwrap();
    assert_eq!((lived.runs, lived.end.reason.as_str()), (2, "budget: maxWallMs (1000) reached"));
    let cancelled = Case { deeds: vec![killed, (300, Deed::Cancel)], pause_ms: 2000, ..Case::new(parent, 1) };
    let lived = cancelled.live().unwrap();
    assert_eq!((lived.runs, lived.end.state), (2, RunState::Cancelled));
}

/// CB-2: a run whose money is used up started a child all the same, which had room for a first turn, again with every
/// visit and retry. Now the bound ends the run before.
#[test]
fn a_bound_ends_a_run_before_its_next_child() {
    let child = flow(vec![step(What::Fanout { members: 2, merge: false, temper: Temper::Broken })]);
    let steps = vec![step(What::Agent(Temper::Steady)), step(What::Subflow(Box::new(child))).retry(2, 100).go_on()];
    for bounded in [Flow { max_cents: Some(1), ..flow(steps.clone()) }, Flow { max_turns: Some(1), ..flow(steps) }] {
        let seed = seed(&bounded, |end| end.turns == 1 && end.cents > 0 && end.reason.starts_with("budget: "));
        let lived = quiet(&Case::new(bounded, seed));
        assert_eq!((lived.end.state, lived.end.outcome), (RunState::Failed, Some(RunOutcome::Unverified)));
        assert_eq!((lived.turns_on_log, lived.runs), (1, 1), "{lived:?}");
        assert_eq!(lived.end.nodes[1].1, NodeState::Failed);
    }
}
