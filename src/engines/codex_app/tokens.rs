//! What turns used, out of the totals that the program keeps for a thread.

use serde_json::Value;

use crate::engines::Usage;

/// The account of one thread.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    /// Latest total of the thread; `None` while nobody knows it.
    seen: Option<Usage>,
    /// Used since the last turn that was accounted for.
    pending: Option<Usage>,
}

impl Tokens {
    /// Goes on from a total; `None` when a thread is taken up whose total nobody kept.
    pub(super) fn from(total: Option<Usage>) -> Self {
        Self { seen: total, pending: None }
    }

    /// The program says how the thread stands. The same numbers come more than once, so it is the growth of the total
    /// that counts. A total that is no later one of the same count says nothing, and neither does the first of an
    /// unknown count; then the latest request alone is counted, if it was made in the turn `under_way`.
    pub(super) fn told(&mut self, usage: &Value, under_way: bool) {
        let (Some(total), Some(last)) = (usage.get("total"), usage.get("last")) else { return };
        let (total, last) = (kinds(total), kinds(last));
        let grown = self.seen.replace(total).and_then(|before| total.since(before));
        if let Some(more) = grown.or(under_way.then_some(last)) {
            self.pending = Some(self.pending.unwrap_or_default().plus(more));
        }
    }

    /// The thread was cut back: its next total is no growth of the one before.
    pub(super) fn cut_back(&mut self) {
        self.seen = None;
    }

    /// What was used since this was asked the last time.
    pub(super) fn take(&mut self) -> Option<Usage> {
        self.pending.take()
    }

    /// The thread's latest total.
    pub(super) fn total(&self) -> Option<Usage> {
        self.seen
    }
}

/// Tokens by kind. The program counts what it read from or wrote into a cache among its input as well.
fn kinds(breakdown: &Value) -> Usage {
    let number = |key: &str| breakdown.get(key).and_then(Value::as_u64).unwrap_or(0);
    let (cached, cache_write) = (number("cachedInputTokens"), number("cacheWriteInputTokens"));
    let input = number("inputTokens").saturating_sub(cached).saturating_sub(cache_write);
    Usage { input, cached, cache_write, output: number("outputTokens") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(tokens: &mut Tokens, total: (u64, u64), last: (u64, u64), under_way: bool) -> Option<u64> {
        let side = |(input, output): (u64, u64)| json!({ "inputTokens": input, "cachedInputTokens": input / 10, "outputTokens": output });
        tokens.told(&json!({ "total": side(total), "last": side(last) }), under_way);
        tokens.take().map(|u| u.read() + u.output)
    }

    /// Scenario 10 of the engines: sums are the true total, over repeats, a cut and resumes with and without a baseline.
    #[test]
    fn growth_is_counted_once() {
        let mut tokens = Tokens::from(Some(Usage::default()));
        assert_eq!(told(&mut tokens, (100, 10), (100, 10), true), Some(110));
        assert_eq!(told(&mut tokens, (100, 10), (100, 10), true), Some(0), "said twice");
        assert_eq!(told(&mut tokens, (300, 30), (100, 10), true), Some(220), "one of two was never told");
        assert_eq!(tokens.total().unwrap(), Usage { input: 270, cached: 30, cache_write: 0, output: 30 });
        tokens.cut_back();
        assert_eq!(told(&mut tokens, (900, 90), (800, 80), true), Some(880), "more than before, and yet another count");
        let mut unknown = Tokens::from(None);
        assert_eq!(told(&mut unknown, (500, 50), (100, 10), false), None, "a baseline");
        assert_eq!(told(&mut unknown, (600, 60), (100, 10), true), Some(110));
        let mut kept = Tokens::from(Some(Usage { input: 90, cached: 10, cache_write: 0, output: 10 }));
        assert_eq!(told(&mut kept, (200, 20), (100, 10), false), Some(110), "used by a process that died");
    }
}
