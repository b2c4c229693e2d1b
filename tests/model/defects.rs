//! Defects the model must catch. A kernel that is served a forged past when it resumes does what a kernel that forgot
//! or ignored that part of it would do; a clock that mixes its two times does what wrong timers would do.

use claw_orchestrator::store::Line;
use serde_json::Value;

use crate::{
    case::{Case, Deed},
    exhaustive::{differs, fan_out, quiet, repair_loop, retry},
    faulty::Fault,
    flow::{Flow, What, flow, step},
    script::Temper,
};

/// What a resumed kernel does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgery {
    /// Where the run was.
    Counter,
    /// Which members of a fan-out have succeeded.
    Members,
    /// When a retry is due.
    DueTime,
    /// What the run has used.
    Spent,
    /// How often a node failed in its visit.
    Failures,
    /// What the checks said.
    Verdicts,
}

impl Forgery {
    /// The log as the defective kernel would read it.
    pub fn forge(self, mut lines: Vec<Line>) -> Vec<Line> {
        for line in &mut lines {
            line.events.retain(|event| !self.hides(event));
            for event in line.events.iter_mut().filter(|_| self == Self::Failures) {
                if event["type"] == "node_state" {
                    event["failures"] = 0.into();
                }
            }
        }
        lines
    }

    fn hides(self, event: &Value) -> bool {
        let is = |name: &str| event["type"] == name;
        match self {
            Self::Counter => is("node_state"),
            Self::Members => is("node_data"),
            Self::DueTime => is("retry_scheduled"),
            Self::Spent => is("cost"),
            Self::Verdicts => is("verdict"),
            Self::Failures => false,
        }
    }
}

/// What the model says about a case when its process dies at each batch in turn: the first objection.
fn objection(case: &Case) -> Option<String> {
    let undisturbed = quiet(&Case { forgery: None, ..case.clone() });
    let deaths = (1..undisturbed.batches).flat_map(|at| [(at, Fault::DiesBefore), (at, Fault::DiesAfter)]);
    deaths.into_iter().find_map(|(at, fault)| {
        let disturbed = Case { faults: [(at, fault)].into(), pause_ms: 10, ..case.clone() };
        if !case.flow.is_bounded() {
            return differs(&disturbed, &undisturbed).err();
        }
        // A turn that is taken again counts again, so such a run may end earlier.
        disturbed.live().and_then(|lived| crate::random::bounded(&case.flow, &lived)).err()
    })
}

/// A run whose third turn is one too many.
fn bounded() -> Case {
    Case::new(Flow { max_turns: Some(3), ..flow(vec![step(What::Agent(Temper::Steady)); 4]) }, 1)
}

/// Without a defect nothing is objected to; with one the objection names it.
#[test]
fn every_defect_is_caught() {
    let table = [
        (Forgery::Counter, repair_loop(), "(\"n0\", Pending, 0)"),
        (Forgery::Members, fan_out(), "although its success is on the log"),
        (Forgery::DueTime, retry(), "before it was due"),
        (Forgery::Spent, bounded(), "turns of at most 3"),
        (Forgery::Failures, retry(), "failures before"),
        (Forgery::Verdicts, repair_loop(), "undisturbed it ends as"),
    ];
    for (defect, case, words) in table {
        let found = objection(&Case { forgery: Some(defect), ..case.clone() });
        let found = found.unwrap_or_else(|| panic!("{defect:?} was not caught"));
        assert!(found.contains(words), "{defect:?} was caught as: {found}");
        assert_eq!(objection(&case), None, "without a defect");
    }
}

/// Timers that follow the wall clock where boot time counts are seen by the clock tests' own measures.
#[test]
fn timers_on_the_wrong_clock_are_caught() {
    let bounded = Case::new(Flow { max_wall_ms: Some(7000), ..flow(vec![step(What::Agent(Temper::Long))]) }, 1);
    let deeds = vec![(3000, Deed::Jump(3 * 3_600_000))];
    let right = Case { deeds: deeds.clone(), ..bounded.clone() }.live().unwrap();
    let wrong = Case { deeds, boot_is_wall: true, ..bounded }.live().unwrap();
    assert!(right.end.at_ms >= 7000 && wrong.end.at_ms < 4000, "{} and {}", right.end.at_ms, wrong.end.at_ms);
    let long = Case::new(flow(vec![step(What::Agent(Temper::Long))]), 1);
    let back = Case { deeds: vec![(20_000, Deed::Jump(-3_600_000))], ..long };
    assert_eq!(back.live().unwrap().beats.len(), 2);
    assert_eq!(Case { boot_is_wall: true, ..back }.live().unwrap().beats.len(), 1, "the second comes an hour late");
}

/// Agents that outlive what asked for them are seen: two of one node, and one of an attempt that is over.
#[test]
fn agents_that_should_not_be_there_are_caught() {
    for (attempt, words) in [("1", "lives"), ("2", "while the log says")] {
        let found = retry().second_agent(attempt).unwrap_err();
        assert!(found.contains(words), "{found}");
    }
}
