//! A wall clock that is set while something is waited for. What is measured by boot time is not moved by it; a due time
//! that lies in the past is due once; a clock set back makes nothing wait longer than was asked.

use crate::{
    case::{Case, Deed, Lived},
    exhaustive::{quiet, retry, seed},
    flow::{Flow, TURN_MS, What, flow, step},
    report::Report,
    script::{LONG_MS, Temper},
};

const HOUR: i64 = 3_600_000;
/// Three hours and a day forward, an hour and a day back.
const JUMPS: [i64; 4] = [3 * HOUR, 24 * HOUR, -HOUR, -24 * HOUR];
/// Longest a wait may go on after a jump that ended it: one look at the clock.
const LOOK_MS: u64 = 1000;

/// The life of a case with one jump at a moment, which must end alike; its time is the caller's to judge.
fn jumped(case: &Case, at: u64, by: i64, undisturbed: &Lived) -> Lived {
    let lived = Case { deeds: vec![(at, Deed::Jump(by))], ..case.clone() }.live().unwrap();
    let same = |l: &Lived| (l.end.state, l.end.outcome, l.end.reason.clone(), l.end.nodes.clone(), l.end.turns);
    assert_eq!(same(&lived), same(undisturbed), "{by} at {at}");
    assert_eq!((lived.jumps, lived.lives, lived.starts.len()), (1, 1, undisturbed.starts.len()), "{by} at {at}");
    lived
}

/// A jump at every quarter of a life changes no time at all.
fn unmoved(what: &str, case: &Case) {
    let report = Report::default();
    let undisturbed = quiet_time(case);
    for by in JUMPS {
        for quarter in 0..4 {
            let lived = jumped(case, undisturbed.end.at_ms * quarter / 4, by, &undisturbed);
            assert_eq!(lived.end.at_ms, undisturbed.end.at_ms, "{what}: {by} in quarter {quarter}");
            report.add(&lived);
        }
    }
    report.say(what);
}

fn quiet_time(case: &Case) -> Lived {
    case.live().unwrap()
}

/// A time limit of a node is boot time.
#[test]
fn a_node_timeout_is_not_moved() {
    let flow = flow(vec![step(What::Agent(Temper::Hanging)).go_on(), step(What::Agent(Temper::Steady))]);
    let seed = seed(&flow, |end| end.nodes[0].1 == claw_orchestrator::model::NodeState::Failed);
    let case = Case::new(flow, seed);
    assert!(quiet(&case).end.at_ms > TURN_MS);
    unmoved("a node timeout and the clock", &case);
}

/// A bound on the run's time is boot time as long as its process lives.
#[test]
fn a_wall_bound_is_not_moved() {
    let case = Case::new(Flow { max_wall_ms: Some(7000), ..flow(vec![step(What::Agent(Temper::Long))]) }, 1);
    let undisturbed = quiet_time(&case);
    assert_eq!(undisturbed.end.reason, "budget: maxWallMs (7000) reached");
    assert!((7000..7200).contains(&undisturbed.end.at_ms), "{undisturbed:?}");
    unmoved("a bound on time and the clock", &case);
}

/// A child has what is left of its parent's time, whatever the clock says.
#[test]
fn a_bound_of_a_child_is_not_moved() {
    let child = flow(vec![step(What::Agent(Temper::Long))]);
    let steps = vec![step(What::Agent(Temper::Steady)), step(What::Subflow(Box::new(child)))];
    let case = Case::new(Flow { max_wall_ms: Some(7000), ..flow(steps) }, 1);
    assert!((7000..7200).contains(&quiet_time(&case).end.at_ms));
    unmoved("a child's bound on time and the clock", &case);
}

/// A bound on time that was half used when the process died is not given anew by a clock set back meanwhile.
#[test]
fn a_clock_set_back_between_two_lives_gives_no_time() {
    let case = Case::new(Flow { max_wall_ms: Some(7000), ..flow(vec![step(What::Agent(Temper::Long))]) }, 1);
    for by in [-HOUR, -24 * HOUR] {
        let deeds = vec![(5000, Deed::Jump(by)), (5000, Deed::Kill)];
        let lived = Case { deeds, ..case.clone() }.live().unwrap();
        assert_eq!(lived.end.reason, "budget: maxWallMs (7000) reached");
        // What is known of the first life is its last batch.
        assert!((7000..=12_200).contains(&lived.end.at_ms), "{by}: {lived:?}");
    }
}

/// A gate waits for its answer and for nothing else.
#[test]
fn a_gate_is_not_moved() {
    let flow = flow(vec![step(What::Gate).go_on(), step(What::Agent(Temper::Steady))]);
    let case = Case::new(flow, 1);
    quiet(&case);
    unmoved("a gate and the clock", &case);
}

/// Heartbeats come every 15 s of boot time and the run is not lost, whatever the clock says.
#[test]
fn heartbeats_are_not_moved() {
    let case = Case::new(flow(vec![step(What::Agent(Temper::Long))]), 1);
    let undisturbed = quiet(&case);
    assert_eq!(undisturbed.end.at_ms, LONG_MS);
    let every = |beats: &[u64]| beats.windows(2).map(|w| w[1] - w[0]).collect::<Vec<_>>();
    assert!(every(&undisturbed.beats).iter().all(|gap| (15_000..15_300).contains(gap)), "{:?}", undisturbed.beats);
    for by in JUMPS {
        let lived = jumped(&case, 20_000, by, &undisturbed);
        assert_eq!((lived.beats, lived.end.at_ms), (undisturbed.beats.clone(), LONG_MS), "{by}");
    }
}

/// Set forward, a wait is due at once and once; set back, it ends when it would have ended.
fn due_once(what: &str, case: &Case, step: usize) {
    let undisturbed = quiet(case);
    let report = Report::default();
    for by in JUMPS {
        for at in (0..undisturbed.end.at_ms).step_by(step) {
            let lived = jumped(case, at, by, &undisturbed);
            if by < 0 {
                assert_eq!(lived.end.at_ms, undisturbed.end.at_ms, "{by} at {at}");
            } else {
                assert!(lived.end.at_ms <= undisturbed.end.at_ms, "{by} at {at}");
            }
            report.add(&lived);
        }
    }
    report.say(what);
}

/// A retry is due at a moment of wall time, so that it can be waited for over restarts.
#[test]
fn a_backoff_is_due_once() {
    due_once("a backoff and the clock", &retry(), 50);
}

/// The same for a quota.
#[test]
fn a_quota_is_due_once() {
    let case = Case::new(flow(vec![step(What::Agent(Temper::Rationed))]), 1);
    due_once("a quota and the clock", &case, 100);
}

/// A process that goes on with a run after the clock was set back waits for a retry, or a quota, as long as was
/// asked at most; and at once when the clock was set forward.
#[test]
fn a_wait_over_a_death_and_a_jump() {
    for case in [retry(), Case::new(flow(vec![step(What::Agent(Temper::Rationed))]), 1)] {
        let undisturbed = quiet(&case);
        for by in JUMPS {
            for at in (50..undisturbed.end.at_ms).step_by(150) {
                let deeds = vec![(at, Deed::Jump(by)), (at, Deed::Kill)];
                let lived = Case { deeds, ..case.clone() }.live().unwrap();
                assert_eq!(lived.end.nodes, undisturbed.end.nodes, "{by} at {at}");
                // The whole wait again at most, and the attempt that was cut off.
                assert!(lived.end.at_ms <= 2 * undisturbed.end.at_ms + LOOK_MS, "{by} at {at}: {lived:?}");
            }
        }
    }
}

/// The lease of another host is judged by wall time, for nothing else is common to two hosts: its heartbeat counts
/// for a minute, so a clock set by more than that, in either direction, makes it count no longer. Then the lock alone
/// protects the run, as it does on one host.
#[test]
fn the_lease_of_another_host_is_judged_by_wall_time() {
    use std::time::Duration;
    for (after_s, by, taken) in
        [(10, 0, false), (59, 0, false), (61, 0, true), (10, 3 * HOUR, true), (10, -HOUR, true), (10, -20_000, false)]
    {
        let case = Case::new(flow(vec![step(What::Agent(Temper::Long))]), 1);
        let claimed = case.foreign_lease(Duration::from_secs(after_s), by);
        assert_eq!(claimed.is_ok(), taken, "after {after_s} s and a jump of {by} ms: {claimed:?}");
    }
}
