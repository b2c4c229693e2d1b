//! What turns cost, out of totals that run over a whole process.

use serde_json::Value;

use crate::model::run::Spend;

/// The totals seen at the end of our latest turn.
#[derive(Debug, Default)]
pub(super) struct Totals {
    cost: f64,
    tokens: Tokens,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Tokens {
    input: u64,
    output: u64,
}

impl Totals {
    /// The share of the turn that `result` ends. Summed over a process this is exactly its total, whatever
    /// the program did between our turns.
    pub(super) fn spend(&mut self, result: &Value) -> Spend {
        let stated = result.get("total_cost_usd").and_then(Value::as_f64);
        // A bill that is no amount of money is none: it must neither lower nor blow up what a run has used.
        let cost = stated.filter(|usd| usd.is_finite() && *usd >= 0.0).unwrap_or(self.cost);
        let cost_usd = if cost < self.cost { cost } else { cost - self.cost };
        self.cost = cost;
        let tokens = match of_models(result) {
            Some(now) => {
                let before = if now.input < self.tokens.input || now.output < self.tokens.output {
                    Tokens::default()
                } else {
                    self.tokens
                };
                self.tokens = now;
                Tokens { input: now.input - before.input, output: now.output - before.output }
            }
            None => of_usage(result.get("usage").unwrap_or(&Value::Null)),
        };
        Spend { cost_usd, turns: 1, tokens_in: tokens.input, tokens_out: tokens.output, estimated: false }
    }
}

fn number(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or(0)
}

/// The sum of some numbers. What a program says has no bound, so sums stop at the highest number.
fn numbers(value: &Value, keys: [&str; 3]) -> u64 {
    keys.iter().fold(0, |sum, key| sum.saturating_add(number(value, key)))
}

/// Running totals of all models; `None` when the program gave none.
fn of_models(result: &Value) -> Option<Tokens> {
    let models = result.get("modelUsage").and_then(Value::as_object).filter(|m| !m.is_empty())?;
    Some(models.values().fold(Tokens::default(), |sum, m| Tokens {
        input:
            numbers(m, ["inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens"]).saturating_add(sum.input),
        output: sum.output.saturating_add(number(m, "outputTokens")),
    }))
}

fn of_usage(usage: &Value) -> Tokens {
    let input = numbers(usage, ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"]);
    Tokens { input, output: number(usage, "output_tokens") }
}

/// What a turn is known to have used before its end, from the replies seen.
#[derive(Debug, Default)]
pub(super) struct Partial {
    last_id: String,
    tokens: Tokens,
}

impl Partial {
    /// Counts a reply; several lines of one reply count once.
    pub(super) fn assistant(&mut self, message: &Value) {
        let id = message.get("id").and_then(Value::as_str).unwrap_or_default();
        if id == self.last_id {
            return;
        }
        id.clone_into(&mut self.last_id);
        let used = of_usage(message.get("usage").unwrap_or(&Value::Null));
        self.tokens.input = self.tokens.input.saturating_add(used.input);
        self.tokens.output = self.tokens.output.saturating_add(used.output);
    }

    /// The share of a turn that was cut off. Its cost was never stated, so it is marked.
    pub(super) fn spend(&self) -> Spend {
        let estimated = self.tokens != Tokens::default();
        Spend { cost_usd: 0.0, turns: 1, tokens_in: self.tokens.input, tokens_out: self.tokens.output, estimated }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Partial, Totals};

    #[test]
    fn shares_add_up_to_the_total() {
        let mut totals = Totals::default();
        let result = |cost: f64, input: u64| json!({ "total_cost_usd": cost, "modelUsage": { "a": { "inputTokens": input, "outputTokens": 1 }, "b": { "cacheReadInputTokens": 5 } } });
        let first = totals.spend(&result(0.25, 100));
        let second = totals.spend(&result(1.0, 300));
        assert_eq!((first.cost_usd, first.tokens_in, first.tokens_out), (0.25, 105, 1));
        assert_eq!((second.cost_usd, second.tokens_in, second.tokens_out), (0.75, 200, 0));
        let plain = totals.spend(&json!({ "usage": { "input_tokens": 7, "output_tokens": 2 } }));
        assert_eq!((plain.cost_usd, plain.tokens_in, plain.tokens_out), (0.0, 7, 2));
    }

    /// Numbers of a broken program: the highest ones do not overflow, and no bill is negative.
    #[test]
    fn absurd_numbers_stay_numbers() {
        let most = u64::MAX;
        let mut totals = Totals::default();
        let models =
            json!({ "a": { "inputTokens": most, "cacheReadInputTokens": most }, "b": { "outputTokens": most } });
        let first = totals.spend(&json!({ "total_cost_usd": -5.0, "modelUsage": models }));
        assert_eq!((first.cost_usd, first.tokens_in, first.tokens_out), (0.0, most, most));
        let second = totals.spend(&json!({ "total_cost_usd": 0.5 }));
        let third = totals.spend(&json!({ "total_cost_usd": -0.25 }));
        assert_eq!((second.cost_usd, third.cost_usd), (0.5, 0.0));
        let mut partial = Partial::default();
        for id in ["a", "b"] {
            let usage = json!({ "input_tokens": most, "cache_creation_input_tokens": 1, "output_tokens": most });
            partial.assistant(&json!({ "id": id, "usage": usage }));
        }
        assert_eq!((partial.spend().tokens_in, partial.spend().tokens_out), (most, most));
    }
}
