//! Every death of small workflows: with each batch and right after it, one by one and in pairs.

use claw_orchestrator::model::{RunOutcome, RunState};

use crate::{
    case::{Answers, Case, Lived},
    faulty::Fault,
    flow::{Flow, What, When, flow, step},
    oracle,
    report::Report,
    script::{Script, Temper},
};

/// Longest time that an attempt which is cut off can have cost.
const ATTEMPT_MS: u64 = 1000;
/// How often a parent looks at a child that waits for a person.
const CHILD_LOOK_MS: u64 = 100;
/// How often a process looks whether somebody else answered a gate.
const GATE_LOOK_MS: u64 = 1000;

/// A seed with which the flow goes as wanted.
pub fn seed(flow: &Flow, wanted: impl Fn(&oracle::End) -> bool) -> u64 {
    (0..10_000).find(|seed| wanted(&oracle::predict(flow, Script { seed: *seed }))).unwrap()
}

/// The undisturbed life of a case, which must be what the oracle says.
pub fn quiet(case: &Case) -> Lived {
    let predicted = oracle::predict(&case.flow, Script { seed: case.seed });
    let lived = case.live().unwrap();
    let end = &lived.end;
    assert_eq!((end.state, end.outcome, &end.nodes), (predicted.state, Some(predicted.outcome), &predicted.nodes));
    assert_eq!((end.turns, end.cents), (predicted.turns, predicted.cents));
    assert!(end.reason.starts_with(&predicted.reason), "{end:?} {predicted:?}");
    // A person's answer is seen at the next look.
    assert!(case.flow.has_gate() || end.at_ms == predicted.at_ms, "{end:?} {predicted:?}");
    lived
}

/// What is wrong with a disturbed life.
pub fn differs(case: &Case, quiet: &Lived) -> Result<Lived, String> {
    let lived = case.live()?;
    let (end, expected) = (&lived.end, &quiet.end);
    if (end.state, end.outcome, &end.reason, &end.nodes)
        != (expected.state, expected.outcome, &expected.reason, &expected.nodes)
    {
        return Err(format!("undisturbed it ends as {expected:?}, disturbed as {end:?}"));
    }
    crate::random::bounded(&case.flow, &lived)?;
    // An answer of another process, or to a child, is seen at the next look.
    let looks = match (case.flow.has_gate(), case.answers) {
        (false, _) => 0,
        (true, Answers::Here) => CHILD_LOOK_MS,
        (true, Answers::Elsewhere) => GATE_LOOK_MS,
    };
    let most = expected.at_ms + lived.deaths * (case.pause_ms + ATTEMPT_MS) + looks;
    // What waits is waited for, and what was cut off is done again.
    if end.at_ms + looks < expected.at_ms || end.at_ms > most {
        return Err(format!("it took {} ms, undisturbed {} ms, at most {most}", end.at_ms, expected.at_ms));
    }
    Ok(lived)
}

/// Lives with every single death, and with every pair when asked for.
fn every_death(what: &str, case: &Case, pairs: bool) {
    let report = Report::default();
    let quiet = quiet(case);
    report.add(&quiet);
    let live = |faults: &[(u64, Fault)], pause_ms: u64| {
        let disturbed = Case { faults: faults.iter().copied().collect(), pause_ms, ..case.clone() };
        let lived = differs(&disturbed, &quiet).unwrap_or_else(|e| panic!("{what}: {faults:?} {pause_ms}: {e}"));
        // A second one may come after the end.
        assert!(lived.deaths >= 1, "{what}: nobody died: {faults:?}");
        report.add(&lived);
    };
    let kinds = [Fault::DiesBefore, Fault::DiesAfter];
    for at in 0..quiet.batches {
        for fault in kinds {
            for pause in [0, 137, 5000] {
                live(&[(at, fault)], pause);
            }
        }
    }
    // A taken-over run has a batch or two more.
    for first in (0..quiet.batches).filter(|_| pairs) {
        for second in first + 1..quiet.batches + 3 {
            for (fault, then) in
                [(kinds[0], kinds[0]), (kinds[0], kinds[1]), (kinds[1], kinds[0]), (kinds[1], kinds[1])]
            {
                live(&[(first, fault), (second, then)], 137);
            }
        }
    }
    report.say(what);
}

/// A repair loop that needs three passes.
pub fn repair_loop() -> Case {
    let back = When::All(vec![When::Failed(1), When::VisitsLt(0, 4)]);
    let steps = vec![
        step(What::Agent(Temper::Steady)),
        step(What::Verifier { run: true, advisory: false }).go_on(),
        step(What::Router { routes: vec![(back, 0)], default: None }),
    ];
    let flow = Flow { contract: true, no_progress: 0, ..flow(steps) };
    let seed = seed(&flow, |end| end.nodes[0].2 == 3 && end.outcome == RunOutcome::Verified);
    Case::new(flow, seed)
}

/// A fan-out of four with a merge.
pub fn fan_out() -> Case {
    let flow = flow(vec![step(What::Fanout { members: 4, merge: true, temper: Temper::Steady })]);
    let seed = seed(&flow, |end| end.at_ms > 300);
    Case::new(flow, seed)
}

/// A gate that is approved, and what comes after it.
fn gate(approved: bool) -> Case {
    let agent = || step(What::Agent(Temper::Steady));
    let flow = Flow { contract: true, ..flow(vec![agent(), step(What::Gate).go_on(), agent()]) };
    let seed = seed(&flow, |end| {
        use claw_orchestrator::model::NodeState::{Failed, Succeeded};
        end.outcome == RunOutcome::Verified && end.nodes[1].1 == if approved { Succeeded } else { Failed }
    });
    Case::new(flow, seed)
}

/// An agent that fails twice and then succeeds.
pub fn retry() -> Case {
    let flow = flow(vec![step(What::Agent(Temper::Flaky)).retry(2, 300), step(What::Agent(Temper::Steady))]);
    let seed = seed(&flow, |end| end.turns == 4 && end.state == RunState::Completed);
    Case::new(flow, seed)
}

/// A child run with a contract, and a step after it.
fn subflow(inner: Vec<crate::flow::Step>, retries: u32) -> Flow {
    let child = Flow { contract: true, ..flow(inner) };
    flow(vec![
        step(What::Subflow(Box::new(child))).retry(retries, 200),
        step(What::Verifier { run: true, advisory: false }),
    ])
}

/// Kernel scenario 7, LW-2: a repair loop keeps its place and its count.
#[test]
fn a_repair_loop() {
    every_death("a repair loop", &repair_loop(), true);
}

/// LW-3: members of a fan-out that succeeded are not asked again, whoever else was at work.
#[test]
fn a_fan_out() {
    every_death("a fan-out", &fan_out(), true);
}

/// Kernel scenario 12, HG-3: an answer is applied once, whoever gave it.
#[test]
fn a_gate() {
    for approved in [true, false] {
        let case = gate(approved);
        every_death("a gate answered here", &case, approved);
        every_death("a gate answered elsewhere", &Case { answers: Answers::Elsewhere, ..case }, false);
    }
}

/// Kernel scenario 15: one child is made and adopted; a retry after its failure makes another one.
#[test]
fn a_subflow() {
    let once = subflow(vec![step(What::Agent(Temper::Steady))], 0);
    let verified = seed(&once, |end| end.outcome == RunOutcome::Verified);
    every_death("a subflow", &Case::new(once, verified), true);
    let twice = subflow(vec![step(What::Agent(Temper::Steady))], 1);
    let repeated = seed(&twice, |end| end.outcome == RunOutcome::Verified && end.turns == 2);
    every_death("a subflow with a retry", &Case::new(twice, repeated), false);
    let parked = subflow(vec![step(What::Gate), step(What::Agent(Temper::Steady))], 0);
    let approved = seed(&parked, |end| end.outcome == RunOutcome::Verified);
    every_death("a subflow with a gate", &Case::new(parked, approved), false);
}

/// Kernel scenario 10: the rest of a backoff is waited for to the millisecond, and a lost attempt burns no retry.
#[test]
fn a_retry() {
    every_death("a retry", &retry(), true);
}

/// A wait for a quota goes on where it was.
#[test]
fn a_quota() {
    let flow = flow(vec![step(What::Agent(Temper::Rationed)), step(What::Agent(Temper::Steady))]);
    every_death("a quota", &Case::new(flow, 1), true);
}

/// Kernel scenario 17, CB-3: what was used before a death counts after it.
#[test]
fn a_bound() {
    let steps = vec![step(What::Agent(Temper::Steady)); 4];
    let case = Case::new(Flow { max_turns: Some(3), ..flow(steps) }, 1);
    let undisturbed = quiet(&case);
    assert_eq!(undisturbed.end.reason, "budget: maxAgentTurns (3) reached");
    let report = Report::default();
    for at in 0..undisturbed.batches {
        for fault in [Fault::DiesBefore, Fault::DiesAfter] {
            let lived = Case { faults: [(at, fault)].into(), ..case.clone() }.live().unwrap();
            crate::random::bounded(&case.flow, &lived).unwrap();
            assert_eq!(lived.end.reason, undisturbed.end.reason);
            report.add(&lived);
        }
    }
    report.say("a bound");
}
