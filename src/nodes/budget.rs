//! One account of a run's bounds, asked before every agent turn.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::Boxed;
use crate::{
    model::{RunId, RunRecord, Time, run::Spend, spec::Budget},
    sys::Clock,
};

/// US dollars within which an amount has reached a bound: sums of decimal fractions come out a little less than they are.
pub const ROUNDING: f64 = 1e-9;

/// Counts turns and money of a run against its bounds, child runs included. A child's turns are reserved and settled
/// here as they happen, so that all runs of a tree draw on one account.
#[derive(Debug)]
pub struct Meter {
    bounds: Budget,
    state: Mutex<Used>,
    above: Option<Arc<dyn Above>>,
}

#[derive(Debug, Default)]
struct Used {
    /// Settled, by child runs too.
    spend: Spend,
    /// Begun and not settled.
    in_flight: u64,
    /// What each child run has used in all; part of `spend`.
    children: BTreeMap<RunId, Spend>,
}

/// The account of the run above, wherever that run is executed.
pub trait Above: Send + Sync + fmt::Debug {
    /// Reserves a turn there; `used` and `in_flight` are the asking run's own. `Ok(None)` when the run above allows it
    /// but is executed elsewhere, so that nothing can be held there.
    fn begin(&self, used: Spend, in_flight: u64) -> Boxed<'_, Result<Option<Reserved>, String>>;
}

/// A turn that may begin. Dropped without being settled, it counts for nothing.
#[derive(Debug)]
pub struct Reserved {
    meter: Arc<Meter>,
    /// The child run it is for.
    child: Option<RunId>,
    above: Option<Box<Reserved>>,
    open: bool,
}

impl Reserved {
    /// Counts what the turn used, here and in every account above that holds it.
    pub fn settle(mut self, spend: &Spend) {
        self.count(spend);
    }

    fn count(&mut self, spend: &Spend) {
        {
            let mut used = self.meter.used();
            used.in_flight = used.in_flight.saturating_sub(1);
            add(&mut used.spend, spend);
            if let Some(child) = &self.child {
                add(used.children.entry(child.clone()).or_default(), spend);
            }
        }
        self.open = false;
        if let Some(above) = &mut self.above {
            above.count(spend);
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.open {
            let mut used = self.meter.used();
            used.in_flight = used.in_flight.saturating_sub(1);
        }
    }
}

impl Meter {
    /// A meter that begins with what the run has used before, `children` being the part that child runs used.
    pub fn new(bounds: Budget, spend: Spend, children: BTreeMap<RunId, Spend>) -> Self {
        Self { bounds, state: Mutex::new(Used { spend, in_flight: 0, children }), above: None }
    }

    /// The same for a child run.
    #[must_use]
    pub fn below(mut self, above: Arc<dyn Above>) -> Self {
        self.above = Some(above);
        self
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether money is bounded.
    pub fn bounds_money(&self) -> bool {
        self.bounds.max_cost_usd.is_some()
    }

    /// Reserves one turn here and in the accounts above, or says which bound forbids it.
    pub async fn begin(self: &Arc<Self>) -> Result<Reserved, String> {
        self.reserve(None).await
    }

    /// Reserves one turn of a child run.
    pub async fn begin_for(self: &Arc<Self>, child: &RunId) -> Result<Reserved, String> {
        self.reserve(Some(child.clone())).await
    }

    async fn reserve(self: &Arc<Self>, child: Option<RunId>) -> Result<Reserved, String> {
        let (spend, others) = {
            let mut used = self.used();
            if let Some(why) = forbidden(&self.bounds, &used.spend, used.in_flight) {
                return Err(why);
            }
            used.in_flight += 1;
            (used.spend.clone(), used.in_flight - 1)
        };
        let mut reserved = Reserved { meter: Arc::clone(self), child, above: None, open: true };
        if let Some(above) = &self.above {
            // Held first here, so that a refusal above gives it back.
            reserved.above = above.begin(spend, others).await?.map(Box::new);
        }
        Ok(reserved)
    }

    /// The bound that forbids another turn, when one does.
    pub fn reached(&self) -> Option<String> {
        let used = self.used();
        forbidden(&self.bounds, &used.spend, used.in_flight)
    }

    /// Learns what a child run has used in all. Saying the same or less again changes nothing.
    pub fn charge(&self, child: &RunId, total: &Spend) {
        let mut used = self.used();
        let known = used.children.entry(child.clone()).or_default();
        let more = beyond(total, known);
        add(known, &more);
        add(&mut used.spend, &more);
    }

    /// What each child run has used in all.
    pub fn children(&self) -> Vec<(RunId, Spend)> {
        self.used().children.iter().map(|(child, spend)| (child.clone(), spend.clone())).collect()
    }

    /// The bounds that are left, for a child run. `elapsed_ms` is what the run has lasted.
    pub fn left(&self, elapsed_ms: u64) -> Budget {
        let used = self.used();
        Budget {
            max_cost_usd: self.bounds.max_cost_usd.map(|max| (max - used.spend.cost_usd).max(0.000_001)),
            max_wall_ms: self.bounds.max_wall_ms.map(|max| max.saturating_sub(elapsed_ms).max(1)),
            max_agent_turns: self.bounds.max_agent_turns.map(|max| max.saturating_sub(used.spend.turns)),
        }
    }
}

/// The bound that forbids another turn beside `in_flight` others, when one does.
pub fn forbidden(bounds: &Budget, spend: &Spend, in_flight: u64) -> Option<String> {
    if let Some(max) = bounds.max_agent_turns
        && spend.turns.saturating_add(in_flight) >= max
    {
        return Some(format!("budget: maxAgentTurns ({max}) reached"));
    }
    // A turn under way is expected to cost what turns have cost so far.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let reserved = in_flight as f64 * spend.cost_usd / spend.turns.max(1) as f64;
    if let Some(max) = bounds.max_cost_usd
        && spend.cost_usd + reserved >= max - ROUNDING
    {
        return Some(format!("budget: maxCostUsd ({max}) reached after {:.4} USD", spend.cost_usd));
    }
    None
}

/// How long a run has lasted. A process that takes it up has only the wall clock to tell; from then on boot time
/// counts, so that setting the clock moves no bound.
#[derive(Debug, Clone, Copy)]
pub struct Lasted {
    before: Duration,
    since: Duration,
}

impl Lasted {
    /// Of a run that is taken up now. What is on its log has passed, whatever the clock was set to since.
    pub fn new(record: &RunRecord, clock: &dyn Clock) -> Self {
        let last: Time = clock.wall().max(record.updated_at);
        let before = last.millis().saturating_sub(record.created_at.millis());
        Self { before: Duration::from_millis(u64::try_from(before).unwrap_or(0)), since: clock.boot() }
    }

    /// Until now.
    pub fn now(self, clock: &dyn Clock) -> Duration {
        self.before + clock.boot().saturating_sub(self.since)
    }
}

/// Adds `more` to `sum`.
pub fn add(sum: &mut Spend, more: &Spend) {
    sum.cost_usd += more.cost_usd;
    sum.turns = sum.turns.saturating_add(more.turns);
    sum.tokens_in = sum.tokens_in.saturating_add(more.tokens_in);
    sum.tokens_out = sum.tokens_out.saturating_add(more.tokens_out);
    sum.estimated |= more.estimated;
}

/// What `total` has beyond `known`; nothing where it has less.
pub fn beyond(total: &Spend, known: &Spend) -> Spend {
    Spend {
        cost_usd: (total.cost_usd - known.cost_usd).max(0.0),
        turns: total.turns.saturating_sub(known.turns),
        tokens_in: total.tokens_in.saturating_sub(known.tokens_in),
        tokens_out: total.tokens_out.saturating_sub(known.tokens_out),
        estimated: total.estimated,
    }
}

/// The tighter of two budgets, bound by bound.
pub fn tighter(a: &Budget, b: &Budget) -> Budget {
    fn least<T: PartialOrd + Copy>(a: Option<T>, b: Option<T>) -> Option<T> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if a < b { a } else { b }),
            (a, b) => a.or(b),
        }
    }
    Budget {
        max_cost_usd: least(a.max_cost_usd, b.max_cost_usd),
        max_wall_ms: least(a.max_wall_ms, b.max_wall_ms),
        max_agent_turns: least(a.max_agent_turns, b.max_agent_turns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(usd: f64, turns: Option<u64>) -> Budget {
        Budget { max_cost_usd: Some(usd), max_wall_ms: None, max_agent_turns: turns }
    }

    fn spend(usd: f64, turns: u64) -> Spend {
        Spend { cost_usd: usd, turns, ..Spend::default() }
    }

    fn meter(bounds: Budget, spend: Spend) -> Arc<Meter> {
        Arc::new(Meter::new(bounds, spend, BTreeMap::new()))
    }

    /// The run above, executed here.
    #[derive(Debug)]
    struct Parent(Arc<Meter>, RunId);

    impl Above for Parent {
        fn begin(&self, _used: Spend, _in_flight: u64) -> Boxed<'_, Result<Option<Reserved>, String>> {
            Box::pin(async { self.0.begin_for(&self.1).await.map(Some) })
        }
    }

    /// CB-2, CB-3: nothing starts once the bound is reached, and what was spent before a restart counts.
    #[tokio::test]
    async fn turns_and_money_are_bounded_over_restarts() {
        let account = meter(bounds(1.0, Some(3)), spend(0.2, 1));
        let first = account.begin().await.unwrap();
        let second = account.begin().await.unwrap();
        assert!(account.begin().await.unwrap_err().contains("maxAgentTurns (3)"), "turns in flight count");
        first.settle(&spend(0.3, 0));
        assert!(account.begin().await.unwrap_err().contains("maxCostUsd"), "another one under way will cost 0.5 too");
        second.settle(&spend(0.5, 0));
        assert!(account.begin().await.unwrap_err().contains("maxCostUsd"));
        let resumed = meter(bounds(1.0, Some(3)), spend(0.25, 0));
        assert_eq!(resumed.left(0).max_cost_usd, Some(0.75));
        drop(resumed.begin().await.unwrap());
        let in_flight = resumed.used().in_flight;
        assert_eq!((in_flight, resumed.reached()), (0, None), "a turn that never began holds nothing");
    }

    /// CB-1, CB-2: two children and their parent draw on one account, and a refusal above gives back what was held below.
    #[tokio::test]
    async fn a_tree_has_one_account() {
        let parent = meter(bounds(0.75, Some(4)), spend(0.25, 1));
        let child = |name: &str| {
            let above = Arc::new(Parent(Arc::clone(&parent), RunId::parse(name).unwrap()));
            Arc::new(Meter::new(bounds(0.7, None), Spend::default(), BTreeMap::new()).below(above))
        };
        let (a, b) = (child("a"), child("b"));
        a.begin().await.unwrap().settle(&spend(0.25, 1));
        let held = b.begin().await.unwrap();
        assert!(a.begin().await.unwrap_err().contains("maxCostUsd (0.75)"), "0.5 spent and 0.25 under way");
        assert_eq!(a.used().in_flight, 0);
        held.settle(&spend(0.125, 1));
        assert_eq!(parent.used().spend, spend(0.625, 3));
        a.begin().await.unwrap().settle(&spend(0.0625, 1));
        assert!(b.begin().await.unwrap_err().contains("maxAgentTurns (4)"));
        let totals = parent.children();
        assert_eq!((totals[0].1.clone(), totals[1].1.clone()), (spend(0.3125, 2), spend(0.125, 1)));
        // The same total again, as a message that comes late, is nothing new.
        parent.charge(&totals[0].0, &spend(0.25, 1));
        parent.charge(&totals[0].0, &totals[0].1);
        assert_eq!(parent.used().spend.turns, 4);
        parent.charge(&totals[1].0, &spend(0.25, 2));
        assert_eq!(parent.used().spend, spend(0.8125, 5));
    }

    /// Acceptance 11 of the engines: three agents for five rounds at 0.30 under 1.00.
    #[tokio::test]
    async fn no_turn_starts_once_spent_and_reserved_reach_the_bound() {
        let account = meter(bounds(1.0, None), Spend::default());
        let mut taken = 0;
        for _round in 0..5 {
            let mut under_way = Vec::new();
            for _agent in 0..3 {
                under_way.extend(account.begin().await.ok());
            }
            taken += under_way.len();
            for turn in under_way {
                turn.settle(&spend(0.3, 1));
            }
        }
        // After the first round nothing is known, so its three began together; 0.9 leaves room for one more.
        assert_eq!(taken, 4);
    }
}
