//! One account of a run's bounds, asked before every agent turn.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::{
    model::{RunRecord, Time, run::Spend, spec::Budget},
    sys::Clock,
};

/// Counts turns and money of a run against its bounds.
#[derive(Debug)]
pub struct Meter {
    bounds: Budget,
    state: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    /// Settled.
    spend: Spend,
    /// Begun and not settled.
    in_flight: u64,
}

impl Meter {
    /// A meter that begins with what the run has used before.
    pub fn new(bounds: Budget, spend: Spend) -> Self {
        Self { bounds, state: Mutex::new(Used { spend, in_flight: 0 }) }
    }

    /// Reserves one turn, or says which bound forbids it.
    pub fn begin(&self) -> Result<(), String> {
        let mut used = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match self.bound(&used) {
            Some(why) => return Err(why),
            None => used.in_flight += 1,
        }
        Ok(())
    }

    /// The bound that forbids another turn, when one does.
    pub fn reached(&self) -> Option<String> {
        self.bound(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn bound(&self, used: &Used) -> Option<String> {
        if let Some(max) = self.bounds.max_agent_turns
            && used.spend.turns + used.in_flight >= max
        {
            return Some(format!("budget: maxAgentTurns ({max}) reached"));
        }
        // A turn under way is expected to cost what turns have cost so far.
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let reserved = used.in_flight as f64 * used.spend.cost_usd / used.spend.turns.max(1) as f64;
        if let Some(max) = self.bounds.max_cost_usd
            && used.spend.cost_usd + reserved >= max
        {
            return Some(format!("budget: maxCostUsd ({max}) reached after {:.4} USD", used.spend.cost_usd));
        }
        None
    }

    /// Settles a turn that `begin` allowed.
    pub fn settle(&self, spend: &Spend) {
        let mut used = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        used.in_flight = used.in_flight.saturating_sub(1);
        add(&mut used.spend, spend);
    }

    /// Adds what a child run used.
    pub fn adopt(&self, spend: &Spend) {
        add(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner).spend, spend);
    }

    /// The bounds that are left, for a child run. `elapsed_ms` is what the run has lasted.
    pub fn left(&self, elapsed_ms: u64) -> Budget {
        let used = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Budget {
            max_cost_usd: self.bounds.max_cost_usd.map(|max| (max - used.spend.cost_usd).max(0.000_001)),
            max_wall_ms: self.bounds.max_wall_ms.map(|max| max.saturating_sub(elapsed_ms).max(1)),
            max_agent_turns: self.bounds.max_agent_turns.map(|max| max.saturating_sub(used.spend.turns)),
        }
    }
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

    /// CB-2, CB-3: nothing starts once the bound is reached, and what was spent before a restart counts.
    #[test]
    fn turns_and_money_are_bounded_over_restarts() {
        let bounds = Budget { max_cost_usd: Some(1.0), max_wall_ms: None, max_agent_turns: Some(3) };
        let meter = Meter::new(bounds.clone(), Spend { cost_usd: 0.2, turns: 1, ..Spend::default() });
        meter.begin().unwrap();
        meter.begin().unwrap();
        assert!(meter.begin().unwrap_err().contains("maxAgentTurns (3)"), "turns in flight count");
        meter.settle(&Spend { cost_usd: 0.3, turns: 0, ..Spend::default() });
        assert!(meter.begin().unwrap_err().contains("maxCostUsd"), "another one under way will cost 0.5 too");
        meter.settle(&Spend { cost_usd: 0.5, turns: 0, ..Spend::default() });
        assert!(meter.begin().unwrap_err().contains("maxCostUsd"));
        assert_eq!(Meter::new(bounds, Spend { cost_usd: 0.25, ..Spend::default() }).left(0).max_cost_usd, Some(0.75));
    }
}
