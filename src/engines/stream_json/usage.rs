//! What turns used, out of totals that run over a whole process.

use serde_json::Value;

use crate::{
    engines::{Usage, account::Counter},
    model::run::Spend,
};

/// The totals seen at the end of our latest turn.
#[derive(Debug)]
pub(super) struct Totals {
    cost: f64,
    tokens: Counter,
}

impl Default for Totals {
    fn default() -> Self {
        Self { cost: 0.0, tokens: Counter::fresh() }
    }
}

impl Totals {
    /// The share of the turn that `result` ends: tokens, and the cost in US dollars when one is stated. Summed over a
    /// process this is exactly its total, whatever the program did between our turns.
    pub(super) fn share(&mut self, result: &Value) -> (Option<Usage>, Option<f64>) {
        let stated = result.get("total_cost_usd").and_then(Value::as_f64);
        // A bill that is no amount of money is none: it must neither lower nor blow up what a run has used.
        let total = stated.filter(|usd| usd.is_finite() && *usd >= 0.0);
        let cost = total.map(|total| {
            let before = std::mem::replace(&mut self.cost, total);
            if total < before { total } else { total - before }
        });
        let usage = match of_models(result) {
            Some(total) => self.tokens.share(total),
            None => result.get("usage").map(of_usage),
        };
        (usage, cost)
    }
}

/// The same as an amount to be charged.
pub(super) fn spend(usage: Option<Usage>, cost: Option<f64>) -> Spend {
    let used = usage.unwrap_or_default();
    Spend {
        cost_usd: cost.unwrap_or_default(),
        turns: 1,
        tokens_in: used.read(),
        tokens_out: used.output,
        // What was used and not billed is known only in part.
        estimated: cost.is_none() && used != Usage::default(),
    }
}

fn number(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or(0)
}

/// Running totals of all models; `None` when the program gave none.
fn of_models(result: &Value) -> Option<Usage> {
    let models = result.get("modelUsage").and_then(Value::as_object).filter(|m| !m.is_empty())?;
    Some(models.values().fold(Usage::default(), |sum, m| {
        sum.plus(Usage {
            input: number(m, "inputTokens"),
            cached: number(m, "cacheReadInputTokens"),
            cache_write: number(m, "cacheCreationInputTokens"),
            output: number(m, "outputTokens"),
        })
    }))
}

fn of_usage(usage: &Value) -> Usage {
    Usage {
        input: number(usage, "input_tokens"),
        cached: number(usage, "cache_read_input_tokens"),
        cache_write: number(usage, "cache_creation_input_tokens"),
        output: number(usage, "output_tokens"),
    }
}

/// What a turn is known to have used before its end, from the replies seen.
#[derive(Debug, Default)]
pub(super) struct Partial {
    last_id: String,
    tokens: Usage,
}

impl Partial {
    /// Counts a reply; several lines of one reply count once.
    pub(super) fn assistant(&mut self, message: &Value) {
        let id = message.get("id").and_then(Value::as_str).unwrap_or_default();
        if id == self.last_id {
            return;
        }
        id.clone_into(&mut self.last_id);
        self.tokens = self.tokens.plus(message.get("usage").map(of_usage).unwrap_or_default());
    }

    /// The share of a turn that was cut off; its cost was never stated.
    pub(super) fn usage(&self) -> Option<Usage> {
        Some(self.tokens).filter(|u| *u != Usage::default())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Partial, Totals, spend};

    #[test]
    fn shares_add_up_to_the_total() {
        let mut totals = Totals::default();
        let result = |cost: f64, input: u64| json!({ "total_cost_usd": cost, "modelUsage": { "a": { "inputTokens": input, "outputTokens": 1 }, "b": { "cacheReadInputTokens": 5 } } });
        let mut share = |result| {
            let (usage, cost) = totals.share(&result);
            let spend = spend(usage, cost);
            (spend.cost_usd, spend.tokens_in, spend.tokens_out)
        };
        assert_eq!(share(result(0.25, 100)), (0.25, 105, 1));
        assert_eq!(share(result(1.0, 300)), (0.75, 200, 0));
        assert_eq!(share(json!({ "usage": { "input_tokens": 7, "output_tokens": 2 } })), (0.0, 7, 2));
    }

    /// Numbers of a broken program: the highest ones do not overflow, and no bill is negative.
    #[test]
    fn absurd_numbers_stay_numbers() {
        let most = u64::MAX;
        let mut totals = Totals::default();
        let models =
            json!({ "a": { "inputTokens": most, "cacheReadInputTokens": most }, "b": { "outputTokens": most } });
        let (usage, cost) = totals.share(&json!({ "total_cost_usd": -5.0, "modelUsage": models }));
        let first = spend(usage, cost);
        assert_eq!((first.cost_usd, first.tokens_in, first.tokens_out), (0.0, most, most));
        let bill = |totals: &mut Totals, usd: f64| totals.share(&json!({ "total_cost_usd": usd })).1;
        assert_eq!((bill(&mut totals, 0.5), bill(&mut totals, -0.25)), (Some(0.5), None));
        let mut partial = Partial::default();
        for id in ["a", "b"] {
            let usage = json!({ "input_tokens": most, "cache_creation_input_tokens": 1, "output_tokens": most });
            partial.assistant(&json!({ "id": id, "usage": usage }));
        }
        let used = partial.usage().unwrap();
        assert_eq!((used.read(), used.output), (most, most));
    }
}
