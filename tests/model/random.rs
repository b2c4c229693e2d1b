//! Workflows and disturbances at random, each compared with the oracle. Every case has a seed of its own.
//!
//! `CLAWO_TEST_CASES` sets how many, `CLAWO_TEST_SEED` replays one.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use claw_orchestrator::model::{NodeState, RunOutcome, RunState};
use proptest::{
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner},
};

use crate::{
    case::{Answers, Case, Deed, End, Lived},
    faulty::Fault,
    flow::{Flow, Step, What, When},
    oracle,
    report::Report,
    script::{Script, Temper},
};

/// Cases where nothing else is said.
const CASES: u64 = 2000;
/// Seed of the first one.
const FIRST: u64 = 1;

/// What is made at random.
#[derive(Debug, Clone)]
struct Drawn {
    flow: Flow,
    seed: u64,
    /// Faults, by how far in the undisturbed life they come, in thousandths.
    faults: Vec<(u16, Fault)>,
    /// Deeds, by how far in its time they come, in thousandths.
    deeds: Vec<(u16, Deed)>,
    pause_ms: u64,
    answers: Answers,
}

fn temper() -> impl Strategy<Value = Temper> {
    prop_oneof![
        4 => Just(Temper::Steady),
        3 => Just(Temper::Flaky),
        1 => Just(Temper::Broken),
        2 => Just(Temper::Hanging),
        1 => Just(Temper::Denied),
        1 => Just(Temper::Rationed),
    ]
}

fn when() -> impl Strategy<Value = When> {
    let leaf = prop_oneof![
        1 => Just(When::Always),
        3 => (0..7_usize).prop_map(When::Failed),
        2 => (0..7_usize).prop_map(When::Succeeded),
        1 => (0..7_usize).prop_map(When::Verified),
        3 => (0..7_usize, 1..4_u32).prop_map(|(i, n)| When::VisitsLt(i, n)),
    ];
    leaf.prop_recursive(2, 4, 2, |inner| prop::collection::vec(inner, 0..3).prop_map(When::All))
}

fn what(depth: u32) -> BoxedStrategy<What> {
    let simple = prop_oneof![
        5 => temper().prop_map(What::Agent),
        2 => (1..5_usize, any::<bool>(), temper())
            .prop_map(|(members, merge, temper)| What::Fanout { members, merge, temper }),
        4 => (prop::bool::weighted(0.6), prop::bool::weighted(0.15))
            .prop_map(|(run, advisory)| What::Verifier { run, advisory }),
        3 => (prop::collection::vec((when(), 0..7_usize), 0..3), prop::option::weighted(0.2, 0..7_usize))
            .prop_map(|(routes, default)| What::Router { routes, default }),
        1 => Just(What::Gate),
    ];
    if depth == 0 {
        return simple.boxed();
    }
    prop_oneof![8 => simple, 1 => flow(depth - 1).prop_map(|child| What::Subflow(Box::new(child)))].boxed()
}

fn step(depth: u32) -> impl Strategy<Value = Step> {
    let retry = prop_oneof![2 => Just((0, 100)), 2 => (1..3_u32, 1..40_u64).prop_map(|(max, n)| (max, n * 25))];
    (what(depth), retry, prop::bool::weighted(0.7), prop::option::weighted(0.1, 0..7_usize))
        .prop_map(|(what, (retries, backoff_ms), go_on, next)| Step { what, retries, backoff_ms, go_on, next })
}

fn flow(depth: u32) -> impl Strategy<Value = Flow> {
    let steps = if depth == 0 { 1..4_usize } else { 2..7_usize };
    let bounds = (
        prop::option::weighted(0.12, 1..9_u64),
        prop::option::weighted(0.12, 1..20_u64),
        prop::option::weighted(0.08, 100..4000_u64),
    );
    (prop::collection::vec(step(depth), steps), any::<bool>(), 1..5_u32, 0..4_u32, bounds).prop_map(
        |(steps, contract, max_visits, no_progress, (max_turns, max_cents, max_wall_ms))| Flow {
            steps,
            contract,
            max_visits,
            no_progress,
            max_turns,
            max_cents,
            max_wall_ms,
        },
    )
}

/// Where money and turns are bounded no agent meets a quota: of several that go on after one, the order in which
/// they begin and end decides who is still allowed to.
fn without_quotas(mut flow: Flow) -> Flow {
    for step in &mut flow.steps {
        match &mut step.what {
            What::Agent(temper) | What::Fanout { temper, .. } if *temper == Temper::Rationed => {
                *temper = Temper::Steady;
            }
            What::Subflow(child) => **child = without_quotas((**child).clone()),
            What::Agent(_) | What::Fanout { .. } | What::Verifier { .. } | What::Router { .. } | What::Gate => {}
        }
    }
    flow
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let fault = prop_oneof![
        3 => Just(Fault::DiesBefore),
        3 => Just(Fault::DiesAfter),
        1 => Just(Fault::FailsBefore),
        1 => Just(Fault::FailsAfter),
    ];
    let hour = 3_600_000;
    let jump = prop::sample::select(vec![3 * hour, -hour, 24 * hour, -24 * hour, 2000, -2000, 150, -150]);
    let deed = prop_oneof![
        3 => jump.prop_map(Deed::Jump),
        3 => Just(Deed::Steer),
        2 => Just(Deed::Kill),
        1 => Just(Deed::Cancel),
    ];
    let answers = prop_oneof![4 => Just(Answers::Here), 1 => Just(Answers::Elsewhere)];
    (
        flow(1),
        any::<u64>(),
        prop::collection::vec((0..1000_u16, fault), 0..5),
        prop::collection::vec((0..1100_u16, deed), 0..3),
        prop_oneof![2 => Just(0), 1 => 0..3000_u64],
        answers,
    )
        .prop_map(|(flow, seed, faults, deeds, pause_ms, answers)| Drawn {
            flow: if flow.is_bounded() { without_quotas(flow) } else { flow },
            seed,
            faults,
            deeds,
            pause_ms,
            answers,
        })
}

/// Lives the case undisturbed and disturbed, and compares.
fn check(drawn: &Drawn, report: &Report) -> Result<(), String> {
    let Drawn { flow, seed, .. } = drawn;
    let predicted = oracle::predict(flow, Script { seed: *seed });
    let quiet = Case::new(flow.clone(), *seed).live().map_err(|e| format!("undisturbed: {e}"))?;
    report.add(&quiet);
    undisturbed(flow, &predicted, &quiet.end).map_err(|e| format!("undisturbed: {e}"))?;
    bounded(flow, &quiet).map_err(|e| format!("undisturbed: {e}"))?;
    let case = disturbed(drawn, &quiet);
    let lived = case.live()?;
    report.add(&lived);
    bounded(flow, &lived)?;
    compare(flow, &case, &quiet.end, &lived)
}

fn disturbed(drawn: &Drawn, quiet: &Lived) -> Case {
    let part = |of: u64, thousandths: u16| of * u64::from(thousandths) / 1000;
    let faults: BTreeMap<u64, Fault> =
        drawn.faults.iter().map(|(at, fault)| (part(quiet.batches, *at), *fault)).collect();
    let deeds = drawn.deeds.iter().map(|(at, deed)| (part(quiet.end.at_ms, *at), deed.clone())).collect();
    let new = Case::new(drawn.flow.clone(), drawn.seed);
    Case { faults, deeds, pause_ms: drawn.pause_ms, answers: drawn.answers, ..new }
}

/// The life without disturbances is exactly what the oracle says.
fn undisturbed(flow: &Flow, predicted: &oracle::End, end: &End) -> Result<(), String> {
    if flow_has_wall(flow) {
        // The oracle has no bound on time: either it was not reached, or it ended the run (or a child).
        let same = end.state == predicted.state && end.nodes == predicted.nodes;
        let late = predicted.at_ms + 200 >= least_wall(flow);
        return if same || late { Ok(()) } else { Err(format!("expected {predicted:?}, found {end:?}")) };
    }
    let same = end.state == predicted.state
        && end.outcome == Some(predicted.outcome)
        && end.reason.starts_with(&predicted.reason)
        && end.nodes == predicted.nodes
        && (end.turns, end.cents) == (predicted.turns, predicted.cents);
    // A gate in a child is seen to be answered by its parent at its next look.
    let slack = 100 * gates_below(flow) * u64::from(flow.max_visits).pow(2) * 3;
    let in_time = (predicted.at_ms..=predicted.at_ms + slack).contains(&end.at_ms);
    if same && in_time { Ok(()) } else { Err(format!("expected {predicted:?}, found {end:?}")) }
}

/// No bound is passed by more than one step.
pub fn bounded(flow: &Flow, lived: &Lived) -> Result<(), String> {
    let end = &lived.end;
    let widest = flow.steps.iter().map(width).max().unwrap_or(0);
    if let Some(max) = flow.max_turns.filter(|max| lived.turns_on_log > *max) {
        return Err(format!("{} turns of at most {max}", lived.turns_on_log));
    }
    if let Some(max) = flow.max_cents.filter(|max| end.cents > *max + 3 * widest) {
        return Err(format!("{} cents of at most {max} and a step of {widest} turns", end.cents));
    }
    Ok(())
}

/// Turns that may be under way at once in a step.
fn width(step: &Step) -> u64 {
    match &step.what {
        What::Fanout { members, .. } => *members as u64,
        What::Subflow(child) => child.steps.iter().map(width).max().unwrap_or(0),
        What::Agent(_) => 1,
        What::Verifier { .. } | What::Router { .. } | What::Gate => 0,
    }
}

/// The disturbed life ends like the quiet one, or in a way that its disturbances allow.
fn compare(flow: &Flow, case: &Case, quiet: &End, lived: &Lived) -> Result<(), String> {
    let end = &lived.end;
    let same =
        (end.state, end.outcome, &end.reason, &end.nodes) == (quiet.state, quiet.outcome, &quiet.reason, &quiet.nodes);
    if same {
        return Ok(());
    }
    let cancelled = case.deeds.iter().any(|(_, deed)| *deed == Deed::Cancel);
    let before = |a: &[(String, NodeState, u32)], b: &[(String, NodeState, u32)]| {
        a.iter().zip(b).all(|((a, _, visits), (b, _, most))| a == b && visits <= most)
    };
    if cancelled && end.state == RunState::Cancelled && before(&end.nodes, &quiet.nodes) {
        let open = end.nodes.iter().any(|(_, state, _)| matches!(state, NodeState::Running | NodeState::AwaitingHuman));
        return match end.outcome {
            Some(RunOutcome::Unverified) if !open => Ok(()),
            _ => Err(format!("a cancelled run ended as {end:?}")),
        };
    }
    // Turns that were paid for twice, and time that passed meanwhile, count against the bounds.
    if flow.is_bounded() && lived.deaths + lived.failures + lived.jumps > 0 {
        return Ok(());
    }
    Err(format!("undisturbed it ends as {quiet:?}, disturbed as {end:?}"))
}

fn flow_has_wall(flow: &Flow) -> bool {
    least_wall(flow) < u64::MAX
}

fn least_wall(flow: &Flow) -> u64 {
    let below = flow.steps.iter().map(|s| match &s.what {
        What::Subflow(child) => least_wall(child),
        What::Agent(_) | What::Fanout { .. } | What::Verifier { .. } | What::Router { .. } | What::Gate => u64::MAX,
    });
    below.chain([flow.max_wall_ms.unwrap_or(u64::MAX)]).min().unwrap_or(u64::MAX)
}

fn gates_below(flow: &Flow) -> u64 {
    let count = |s: &Step| match &s.what {
        What::Subflow(child) => child.steps.iter().filter(|s| s.what == What::Gate).count() as u64 + gates_below(child),
        What::Agent(_) | What::Fanout { .. } | What::Verifier { .. } | What::Router { .. } | What::Gate => 0,
    };
    flow.steps.iter().map(count).sum()
}

/// One case by its seed; `Err` has the smallest case that fails.
fn one(seed: u64, report: &Report) -> Result<(), String> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases: 1, max_shrink_iters: 400, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let ran = runner.run(&drawn(), |drawn| check(&drawn, report).map_err(TestCaseError::fail));
    ran.map_err(|e| format!("CLAWO_TEST_SEED={seed}\n{e}"))
}

/// Store's proof 2, kernel scenario 7: a resumed run ends as an uninterrupted one; nothing is accepted twice; bounds
/// hold; every run ends or waits for something that is named; cancelling never verifies.
#[test]
fn random_workflows_end_as_the_oracle_says() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let (first, cases) = match number("CLAWO_TEST_SEED") {
        Some(seed) => (seed, 1),
        None => (FIRST, number("CLAWO_TEST_CASES").unwrap_or(CASES)),
    };
    let (next, report, failed) = (AtomicU64::new(0), Report::default(), Mutex::new(None));
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= cases || failed.lock().unwrap().is_some() {
                        return;
                    }
                    if let Err(why) = one(first + index, &report) {
                        failed.lock().unwrap().get_or_insert(why);
                    }
                }
            });
        }
    });
    if let Some(why) = failed.into_inner().unwrap() {
        panic!("{why}");
    }
    report.say("kernel model");
}
