//! The reference: how a workflow ends when nothing disturbs it. Written from the rules, not from the kernel: plain
//! loops over one time line, without logs, actors or attempts that are lost.

use std::collections::BTreeMap;

use claw_orchestrator::model::{NodeState, RunOutcome, RunState};

use crate::{
    agents::merging,
    flow::{Flow, Step, TURN_MS, What, When, dollars, member},
    script::{Act, Context, How, Place, QUOTA_MS, Script, Temper, Word},
};

/// US dollars within which an amount has reached a bound.
const ROUNDING: f64 = 1e-9;
/// Added to a stated end of a quota.
const QUOTA_MARGIN_MS: u64 = 1500;

/// How a run ends.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    pub state: RunState,
    pub outcome: RunOutcome,
    /// The beginning of the reason.
    pub reason: String,
    pub nodes: Vec<(String, NodeState, u32)>,
    pub turns: u64,
    pub cents: u64,
    /// When, in milliseconds since the start.
    pub at_ms: u64,
    verdict: Option<Adopted>,
}

/// What a parent makes of its child's verdict.
#[derive(Debug, Clone, PartialEq)]
struct Adopted {
    passed: bool,
    print: Option<String>,
}

/// Everything that is shared by a run and its children.
#[derive(Debug)]
struct World {
    script: Script,
    word: Option<Word>,
    now: u64,
}

#[derive(Debug, Clone, Default)]
struct Node {
    state: NodeState,
    visits: u32,
}

#[derive(Debug, Clone)]
struct Verdict {
    passed: bool,
    advisory: bool,
    run: bool,
    seq: u64,
}

/// What is left of the bounds of a run.
#[derive(Debug, Clone, Copy, Default)]
struct Bounds {
    turns: Option<u64>,
    /// In dollars.
    cost: Option<f64>,
}

/// One run under way.
struct Sim<'a> {
    world: &'a mut World,
    flow: &'a Flow,
    prefix: &'a str,
    context: Context,
    steps: Vec<Step>,
    nodes: Vec<Node>,
    verdicts: BTreeMap<usize, Verdict>,
    red: BTreeMap<usize, (String, u32, u32)>,
    effects: u64,
    turns: u64,
    cents: u64,
    bounds: Bounds,
    /// What the runs above may use and had used when this one began, nearest first; what it uses is theirs too.
    tree: Vec<(Bounds, u64, u64)>,
}

/// How a visit ends.
enum Visit {
    Good,
    Bad(String),
    /// A bound of the run was reached.
    Bound(String),
}

/// Predicts the end of a flow.
pub fn predict(flow: &Flow, script: Script) -> End {
    let mut world = World { script, word: None, now: 0 };
    simulate(&mut world, flow, "n", Context::default(), Bounds::default(), Vec::new())
}

fn simulate(
    world: &mut World,
    flow: &Flow,
    prefix: &str,
    context: Context,
    above: Bounds,
    tree: Vec<(Bounds, u64, u64)>,
) -> End {
    let mut steps = flow.steps.clone();
    let checked = steps.iter().any(|s| matches!(s.what, What::Verifier { run: true, .. }));
    if flow.contract && !checked {
        steps.push(crate::flow::step(What::Verifier { run: true, advisory: false }));
    }
    let least = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::min);
    let bounds = Bounds {
        turns: flow.max_turns.into_iter().chain(above.turns).min(),
        cost: least(flow.max_cents.map(dollars), above.cost),
    };
    let nodes = vec![Node::default(); steps.len()];
    let (verdicts, red) = (BTreeMap::new(), BTreeMap::new());
    let mut sim =
        Sim { world, flow, prefix, context, steps, nodes, verdicts, red, effects: 0, turns: 0, cents: 0, bounds, tree };
    let (state, outcome, reason) = sim.run();
    sim.end(state, outcome, reason)
}

/// Whether an account forbids another turn.
fn reached(bounds: Bounds, turns: u64, cents: u64, under_way: u64) -> Option<String> {
    if let Some(max) = bounds.turns
        && turns + under_way >= max
    {
        return Some(format!("budget: maxAgentTurns ({max}) reached"));
    }
    let spent = cents as f64 / 100.0;
    let expected = under_way as f64 * spent / turns.max(1) as f64;
    let max = bounds.cost.filter(|max| spent + expected >= *max - ROUNDING)?;
    Some(format!("budget: maxCostUsd ({max})"))
}

impl Sim<'_> {
    fn name(&self, index: usize) -> String {
        // The verifier of the run's contract is added last.
        if index < self.flow.steps.len() { Flow::name(self.prefix, index) } else { "__verify".to_owned() }
    }

    fn run(&mut self) -> (RunState, RunOutcome, String) {
        let mut at = 0;
        loop {
            if at >= self.steps.len() {
                return self.conclude();
            }
            let name = self.name(at);
            let visit = self.nodes[at].visits + 1;
            if visit > self.flow.max_visits {
                return self
                    .cut_short(format!("node '{name}' exceeded maxNodeVisits ({})", self.flow.max_visits), false);
            }
            self.nodes[at] = Node { state: NodeState::Running, visits: visit };
            if self.verdicts.get(&at).is_some_and(|v| v.passed) {
                self.verdicts.remove(&at);
            }
            let step = self.steps[at].clone();
            if let What::Router { routes, default } = &step.what {
                let to = routes.iter().find(|(when, _)| self.holds(when)).map(|(_, to)| *to).or(*default);
                self.nodes[at].state = NodeState::Succeeded;
                at = to.map_or(at + 1, |to| to % self.flow.steps.len());
                continue;
            }
            let ended = self.visit(at, &name, visit, &step);
            if matches!(step.what, What::Agent(_) | What::Fanout { .. } | What::Subflow(_)) {
                self.effects += 1;
                if let Some(verdict) = self.verdicts.get_mut(&at) {
                    verdict.seq = self.effects;
                }
            }
            self.nodes[at].state = if matches!(ended, Visit::Good) { NodeState::Succeeded } else { NodeState::Failed };
            match ended {
                Visit::Bound(why) => return self.cut_short(why, true),
                Visit::Bad(why) if !step.go_on => return self.cut_short(format!("node '{name}' failed: {why}"), false),
                Visit::Good | Visit::Bad(_) => {}
            }
            let limit = self.flow.no_progress;
            if limit > 0 && self.red.get(&at).is_some_and(|(_, _, count)| *count >= limit) {
                return self.cut_short("no progress".to_owned(), true);
            }
            at = step.next.map_or(at + 1, |to| to % self.flow.steps.len());
        }
    }

    /// One visit with its attempts.
    fn visit(&mut self, at: usize, name: &str, visit: u32, step: &Step) -> Visit {
        let mut failures = 0;
        // Members of a fan-out that need not be asked again: whether they succeeded.
        let mut settled: BTreeMap<usize, bool> = BTreeMap::new();
        loop {
            let (ended, hopeless) = match &step.what {
                What::Agent(temper) => self.agent(*temper, name, visit, failures),
                What::Fanout { members, merge, temper } => {
                    let place = Place { context: self.context, node: name, visit, failures, who: "" };
                    self.fanout(*members, *merge, *temper, &place, &mut settled)
                }
                What::Verifier { run, advisory } => (self.verifier(at, visit, *run, *advisory), false),
                What::Gate => {
                    let (approved, after) = self.world.script.answer(self.context, name, visit);
                    self.world.now += after;
                    return if approved { Visit::Good } else { Visit::Bad("rejected".to_owned()) };
                }
                What::Subflow(child) => (self.subflow(at, child, name, visit, failures), false),
                What::Router { .. } => unreachable!("a router has no attempts"),
            };
            match ended {
                Visit::Bad(_) if failures < step.retries && !hopeless => {
                    failures += 1;
                    self.world.now += step.backoff_ms * u64::from(failures);
                }
                ended @ (Visit::Good | Visit::Bad(_) | Visit::Bound(_)) => return ended,
            }
        }
    }

    /// Whether a bound of this run or of one above forbids another turn while so many are under way.
    fn bound(&self, under_way: u64) -> Option<String> {
        let own = (self.bounds, 0, 0);
        let mut accounts = std::iter::once(&own).chain(&self.tree);
        accounts.find_map(|(bounds, turns, cents)| reached(*bounds, turns + self.turns, cents + self.cents, under_way))
    }

    fn agent(&mut self, temper: Temper, name: &str, visit: u32, failures: u32) -> (Visit, bool) {
        if let Some(why) = self.bound(0) {
            return (Visit::Bound(why), false);
        }
        let place = Place { context: self.context, node: name, visit, failures, who: "" };
        self.world.now += self.rationed(temper, &place);
        let act = self.world.script.act(temper, &place);
        self.world.now += lasts(&act);
        self.turns += 1;
        self.cents += act.cents;
        self.world.word = act.word.or(self.world.word);
        match act.how {
            How::Good => (Visit::Good, false),
            How::Bad => (Visit::Bad("other: it did not work".to_owned()), false),
            How::Denied => (Visit::Bad("auth: who are you".to_owned()), true),
            How::Hangs => (Visit::Bad(format!("timeout: no answer within {TURN_MS} ms")), false),
            How::Rationed => unreachable!("it is met before"),
        }
    }

    /// How long a used-up quota holds an agent up: until the stated time and a little more.
    fn rationed(&self, temper: Temper, place: &Place<'_>) -> u64 {
        let meets = temper == Temper::Rationed && place.failures == 0;
        if meets { self.world.script.rationed(place).after_ms + QUOTA_MS + QUOTA_MARGIN_MS } else { 0 }
    }

    fn fanout(
        &mut self,
        members: usize,
        merge: bool,
        temper: Temper,
        place: &Place<'_>,
        settled: &mut BTreeMap<usize, bool>,
    ) -> (Visit, bool) {
        let (mut longest, mut acts, mut bound) = (0, Vec::new(), None);
        for index in 0..members {
            if settled.contains_key(&index) {
                continue;
            }
            if let Some(why) = self.bound(acts.len() as u64) {
                bound = bound.or(Some(why));
                continue;
            }
            let who = member(index);
            let place = Place { who: &who, ..place.clone() };
            let act = self.world.script.act(temper, &place);
            longest = longest.max(self.rationed(temper, &place) + lasts(&act));
            acts.push((index, act));
        }
        let mut hopeless = settled.values().filter(|ok| !**ok).count();
        for (index, act) in acts {
            self.turns += 1;
            self.cents += act.cents;
            match act.how {
                How::Good => drop(settled.insert(index, true)),
                How::Denied => {
                    settled.insert(index, false);
                    hopeless += 1;
                }
                How::Bad | How::Hangs | How::Rationed => {}
            }
        }
        self.world.now += longest;
        if let Some(why) = bound {
            return (Visit::Bound(why), false);
        }
        let good = settled.values().filter(|ok| **ok).count();
        if good == 0 {
            return (Visit::Bad("no agent succeeded".to_owned()), hopeless == members);
        }
        if merge && good >= 2 {
            if let Some(why) = self.bound(0) {
                return (Visit::Bound(why), false);
            }
            let act = self.world.script.act(merging(temper), &Place { who: "synthesis", ..place.clone() });
            self.world.now += lasts(&act);
            self.turns += 1;
            self.cents += act.cents;
        }
        (Visit::Good, false)
    }

    fn verifier(&mut self, at: usize, visit: u32, run: bool, advisory: bool) -> Visit {
        if run && !self.flow.contract {
            return Visit::Good;
        }
        let red = match self.world.word {
            Some(Word::Good) => None,
            Some(Word::BadA) => Some((1, "b")),
            Some(Word::BadB) => Some((1, "a")),
            None => Some((2, "nothing")),
        };
        self.judge(at, visit, Verdict { passed: red.is_none(), advisory, run, seq: self.effects }, red.map(|r| r.1));
        match red {
            None => Visit::Good,
            Some((failed, _)) => Visit::Bad(format!("{failed} of 2 required checks failed")),
        }
    }

    fn judge(&mut self, at: usize, visit: u32, verdict: Verdict, print: Option<&str>) {
        if !verdict.advisory {
            match (print, self.red.get_mut(&at)) {
                (None, _) => drop(self.red.remove(&at)),
                (Some(print), Some((known, last, count))) if known == print => {
                    *count += u32::from(*last != visit);
                    *last = visit;
                }
                (Some(print), _) => drop(self.red.insert(at, (print.to_owned(), visit, 1))),
            }
        }
        self.verdicts.insert(at, verdict);
    }

    fn subflow(&mut self, at: usize, child: &Flow, name: &str, visit: u32, failures: u32) -> Visit {
        if let Some(why) = self.bound(0) {
            return Visit::Bound(why);
        }
        let left = Bounds {
            turns: self.bounds.turns.map(|max| max.saturating_sub(self.turns)),
            cost: self.bounds.cost.map(|max| (max - self.cents as f64 / 100.0).max(0.000_001)),
        };
        let context = self.context.below(name, visit, failures);
        let prefix = Flow::below(self.prefix, at);
        let above = self.tree.iter().map(|(bounds, turns, cents)| (*bounds, turns + self.turns, cents + self.cents));
        let tree = std::iter::once((self.bounds, self.turns, self.cents)).chain(above).collect();
        let end = simulate(self.world, child, &prefix, context, left, tree);
        self.turns += end.turns;
        self.cents += end.cents;
        if let Some(adopted) = end.verdict {
            let verdict = Verdict { passed: adopted.passed, advisory: false, run: false, seq: self.effects };
            self.judge(at, visit, verdict, adopted.print.as_deref());
        }
        if end.state == RunState::Completed { Visit::Good } else { Visit::Bad("child run".to_owned()) }
    }

    fn holds(&self, when: &When) -> bool {
        let node = |i: &usize| &self.nodes[i % self.flow.steps.len()];
        match when {
            When::Always => true,
            When::Failed(i) => node(i).state == NodeState::Failed,
            When::Succeeded(i) => node(i).state == NodeState::Succeeded,
            When::Verified(i) => self.verdicts.get(&(i % self.flow.steps.len())).is_some_and(|v| v.passed),
            When::VisitsLt(i, n) => node(i).visits < *n,
            When::All(all) => !all.is_empty() && all.iter().all(|w| self.holds(w)),
        }
    }

    /// Nodes whose word is red, among those that count.
    fn red_nodes(&self) -> Vec<String> {
        let mut names: Vec<String> =
            self.verdicts.iter().filter(|(_, v)| !v.advisory && !v.passed).map(|(i, _)| self.name(*i)).collect();
        names.sort();
        names
    }

    fn conclude(&self) -> (RunState, RunOutcome, String) {
        use RunOutcome::{Refuted, Unverified, Verified};
        use RunState::{Completed, Failed};
        let red = self.red_nodes();
        if !red.is_empty() {
            return (Failed, Refuted, format!("the acceptance contract failed at {}", red.join(", ")));
        }
        if self.flow.contract && !self.verdicts.values().any(|v| v.run && !v.advisory) {
            return (Failed, Unverified, "the run's acceptance contract was never checked".to_owned());
        }
        let green: Vec<&Verdict> = self.verdicts.values().filter(|v| !v.advisory).collect();
        if green.is_empty() {
            return (Completed, Unverified, "no acceptance contract".to_owned());
        }
        if green.iter().any(|v| v.seq < self.effects) {
            return (Completed, Unverified, "something ran after the checks of".to_owned());
        }
        (Completed, Verified, "every required check passed at".to_owned())
    }

    /// A failure, a bound or a loop ends the run; a red word makes it a refutation.
    fn cut_short(&self, why: String, keep: bool) -> (RunState, RunOutcome, String) {
        let red = self.red_nodes();
        if red.is_empty() {
            return (RunState::Failed, RunOutcome::Unverified, why);
        }
        let reason = if keep { why } else { format!("the acceptance contract failed at {}", red.join(", ")) };
        (RunState::Failed, RunOutcome::Refuted, reason)
    }

    fn end(self, state: RunState, outcome: RunOutcome, reason: String) -> End {
        let nodes = (0..self.steps.len()).map(|i| (self.name(i), self.nodes[i].state, self.nodes[i].visits)).collect();
        // The word that counts most is handed up: of red ones, and of green ones, the last in effect.
        let counting = || self.verdicts.iter().filter(|(_, v)| !v.advisory);
        let mut shown: Vec<(usize, &Verdict)> = counting().map(|(i, v)| (*i, v)).collect();
        shown.sort_by_key(|(i, _)| self.name(*i));
        let red = shown.iter().filter(|(_, v)| !v.passed).max_by_key(|(_, v)| v.seq);
        let best = red.or_else(|| shown.iter().max_by_key(|(_, v)| (v.run, v.seq)));
        let verdict = best.filter(|_| outcome != RunOutcome::Unverified).map(|(i, _)| Adopted {
            passed: outcome == RunOutcome::Verified,
            print: self.red.get(i).map(|(print, _, _)| print.clone()),
        });
        End { state, outcome, reason, nodes, turns: self.turns, cents: self.cents, at_ms: self.world.now, verdict }
    }
}

/// How long a turn takes until nothing of it is left.
fn lasts(act: &Act) -> u64 {
    if act.how == How::Hangs { TURN_MS + act.deaf_ms } else { act.after_ms }
}
