//! Counting what turns use, out of whatever an engine counts by.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tokens by kind. The kinds do not overlap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Read by the model, neither from nor into its cache.
    pub input: u64,
    /// Read from the cache.
    #[serde(default)]
    pub cached: u64,
    /// Written into the cache.
    #[serde(default)]
    pub cache_write: u64,
    /// Written by the model, reasoning included.
    pub output: u64,
}

impl Usage {
    /// Everything the model read.
    pub fn read(self) -> u64 {
        self.input.saturating_add(self.cached).saturating_add(self.cache_write)
    }

    /// Both together. What a program says has no bound, so sums stop at the highest number.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            input: self.input.saturating_add(more.input),
            cached: self.cached.saturating_add(more.cached),
            cache_write: self.cache_write.saturating_add(more.cache_write),
            output: self.output.saturating_add(more.output),
        }
    }

    /// What was added since `before`; `None` when a kind has fewer, so that this is no later total of the same count.
    pub fn since(self, before: Self) -> Option<Self> {
        Some(Self {
            input: self.input.checked_sub(before.input)?,
            cached: self.cached.checked_sub(before.cached)?,
            cache_write: self.cache_write.checked_sub(before.cache_write)?,
            output: self.output.checked_sub(before.output)?,
        })
    }
}

/// What an engine's numbers are totals of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Counting {
    /// Each turn states its own.
    PerTurn,
    /// They grow over the life of a process.
    CumulativeProcess,
    /// They grow over the life of a conversation, across processes.
    CumulativeThread,
}

/// Turns running totals into shares. Summed over a conversation, the shares are its total.
#[derive(Debug, Clone, Copy)]
pub struct Counter {
    total: Option<Usage>,
}

impl Counter {
    /// Nothing was used before.
    pub fn fresh() -> Self {
        Self { total: Some(Usage::default()) }
    }

    /// Goes on from a total that was counted before; `None` when a conversation is taken up whose total nobody kept.
    pub fn from(total: Option<Usage>) -> Self {
        Self { total }
    }

    /// The share that leads to `total`. `None` when the total before is not known: then this one is only a baseline.
    /// A total that shrank belongs to a count that began anew.
    pub fn share(&mut self, total: Usage) -> Option<Usage> {
        let before = self.total.replace(total)?;
        Some(total.since(before).unwrap_or(total))
    }

    /// The latest total.
    pub fn total(&self) -> Option<Usage> {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(input: u64, output: u64) -> Usage {
        Usage { input, output, ..Usage::default() }
    }

    /// Scenario 10: shares of running totals add up, also over a resume with and without a known total.
    #[test]
    fn shares_of_a_running_total_add_up_to_it() {
        let mut counter = Counter::fresh();
        assert_eq!(counter.share(usage(100, 10)), Some(usage(100, 10)));
        assert_eq!(counter.share(usage(250, 10)), Some(usage(150, 0)));
        let mut resumed = Counter::from(counter.total());
        assert_eq!(resumed.share(usage(300, 30)), Some(usage(50, 20)));
        let mut unknown = Counter::from(None);
        assert_eq!(unknown.share(usage(300, 30)), None);
        assert_eq!(unknown.share(usage(310, 31)), Some(usage(10, 1)));
        assert_eq!(unknown.share(usage(5, 1)), Some(usage(5, 1)), "a count that began anew");
    }
}
