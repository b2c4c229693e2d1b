//! What models cost: a table in the binary, the user's own prices over it, and the arithmetic.

use std::{collections::BTreeMap, sync::OnceLock};

use serde::Deserialize;

use super::Usage;
use crate::config::file::PriceTable;

/// The table.
const TABLE: &str = include_str!("prices.toml");

/// Tokens a price is stated for.
const PER: f64 = 1_000_000.0;

/// Prices of one model in US dollars per million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Price {
    /// Tokens read that come neither from nor go into the cache.
    pub input: f64,
    /// Tokens read from the cache.
    pub cached: f64,
    /// Tokens written into the cache.
    pub cache_write: f64,
    /// Tokens written by the model.
    pub output: f64,
}

impl Price {
    /// US dollars for `usage`.
    #[expect(clippy::cast_precision_loss, reason = "no turn has 2^53 tokens")]
    pub fn of(&self, usage: Usage) -> f64 {
        let part = |tokens: u64, usd: f64| tokens as f64 * usd / PER;
        part(usage.input, self.input)
            + part(usage.cached, self.cached)
            + part(usage.cache_write, self.cache_write)
            + part(usage.output, self.output)
    }

    /// Whether nothing costs anything.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    fn dearer(self, other: Self) -> Self {
        Self {
            input: self.input.max(other.input),
            cached: self.cached.max(other.cached),
            cache_write: self.cache_write.max(other.cache_write),
            output: self.output.max(other.output),
        }
    }
}

/// Where a price comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The engine's own bill.
    Engine,
    /// The model's own row, built in or set by the user.
    Registry,
    /// The row its family names for models without one.
    FamilyDefault,
    /// No price is known.
    None,
}

impl Source {
    /// The word in ledger rows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Registry => "registry",
            Self::FamilyDefault => "family-default",
            Self::None => "none",
        }
    }
}

/// One row of the table.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    family: String,
    input: f64,
    cached: f64,
    cache_write: f64,
    output: f64,
    /// Tokens that fit into a conversation.
    context: u64,
    /// Day of the source.
    checked: String,
}

impl Row {
    fn price(&self) -> Price {
        Price { input: self.input, cached: self.cached, cache_write: self.cache_write, output: self.output }
    }
}

/// Models named alike.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Family {
    name: String,
    vendor: String,
    prefixes: Vec<String>,
    default: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    vendors: BTreeMap<String, String>,
    family: Vec<Family>,
    model: Vec<Row>,
}

fn table() -> &'static Table {
    static READ: OnceLock<Table> = OnceLock::new();
    // The file is part of the binary and a test reads it, so it cannot fail here.
    READ.get_or_init(|| toml::from_str(TABLE).unwrap_or_default())
}

/// The prices in force.
#[derive(Debug, Clone, Default)]
pub struct Prices {
    own: BTreeMap<String, PriceTable>,
}

impl Prices {
    /// The table built in, under the user's own prices.
    pub fn new(own: &BTreeMap<String, PriceTable>) -> Self {
        Self { own: own.iter().map(|(model, price)| (model.to_ascii_lowercase(), *price)).collect() }
    }

    /// The price of `model`: its own, else its family's; `None` when neither is known.
    pub fn of(&self, model: &str) -> Option<(Price, Source)> {
        let names = spellings(model);
        let rows = &table().model;
        let row = names.iter().find_map(|name| rows.iter().find(|row| row.name == *name));
        let built_in = match row {
            Some(row) => Some((row.price(), Source::Registry)),
            None => family(&names).and_then(|family| {
                let row = rows.iter().find(|row| row.name == family.default)?;
                Some((row.price(), Source::FamilyDefault))
            }),
        };
        let Some(own) = names.iter().find_map(|name| self.own.get(name)) else { return built_in };
        let base = built_in.map(|(price, _)| price).unwrap_or_default();
        let price = Price {
            input: own.input.unwrap_or(base.input),
            cached: own.cached.unwrap_or(base.cached),
            cache_write: own.cache_write.unwrap_or(base.cache_write),
            output: own.output.unwrap_or(base.output),
        };
        Some((price, Source::Registry))
    }

    /// The dearest of every kind among the models that `engine` may run; what an unknown model is taken to cost while
    /// money is bounded.
    pub fn dearest(&self, engine: &str) -> Price {
        let table = table();
        let vendor = table.vendors.get(engine);
        let of_vendor = |row: &&Row| {
            let family = table.family.iter().find(|family| family.name == row.family);
            vendor.is_none_or(|vendor| family.is_some_and(|family| family.vendor == *vendor))
        };
        table.model.iter().filter(of_vendor).map(Row::price).fold(Price::default(), Price::dearer)
    }

    /// Tokens that fit into a conversation with `model`.
    pub fn context(&self, model: &str) -> Option<u64> {
        let names = spellings(model);
        names.iter().find_map(|name| table().model.iter().find(|row| row.name == *name)).map(|row| row.context)
    }

    /// The latest day on which a built-in price was looked up.
    pub fn checked() -> &'static str {
        table().model.iter().map(|row| row.checked.as_str()).max().unwrap_or_default()
    }

    /// Models whose price the user set to nothing, so that no cap in money holds them.
    pub fn free(&self) -> Vec<String> {
        let free = |model: &&String| self.of(model).is_some_and(|(price, _)| price.is_zero());
        self.own.keys().filter(free).cloned().collect()
    }
}

/// What the table may call a model that an engine calls `model`: as it is, without its provider, without what says
/// how large its window or how old its snapshot is.
fn spellings(model: &str) -> Vec<String> {
    let whole = model.trim().to_ascii_lowercase();
    let mut names = vec![whole.clone()];
    let mut add = |name: &str| {
        if !name.is_empty() && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    };
    let bare = whole.rsplit('/').next().unwrap_or(&whole);
    add(bare);
    let bare = bare.split('[').next().unwrap_or(bare);
    add(bare);
    let undated = undated(bare);
    add(undated);
    for ending in ["-latest", "-preview"] {
        add(undated.strip_suffix(ending).unwrap_or_default());
    }
    names
}

/// `gpt-6-sol` of `gpt-6-sol-2026-09-22`, `claude-haiku-4-5` of `claude-haiku-4-5-20251001`.
fn undated(name: &str) -> &str {
    for length in [8, 10] {
        let Some((head, tail)) = name.len().checked_sub(length).and_then(|at| name.split_at_checked(at)) else {
            continue;
        };
        let digits = tail.bytes().filter(u8::is_ascii_digit).count();
        let form = tail.starts_with("20") && tail.bytes().all(|b| b.is_ascii_digit() || b == b'-') && digits == 8;
        if let Some(head) = head.strip_suffix('-').filter(|_| form) {
            return head;
        }
    }
    name
}

/// The family whose prefix fits one of `names` best.
fn family(names: &[String]) -> Option<&'static Family> {
    let fits = |family: &'static Family| {
        let prefixes = family.prefixes.iter().filter(|p| names.iter().any(|n| n.starts_with(p.as_str())));
        prefixes.map(String::len).max().map(|length| (length, family))
    };
    table().family.iter().filter_map(fits).max_by_key(|(length, _)| *length).map(|(_, family)| family)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usd(price: Price) -> [f64; 4] {
        [price.input, price.cached, price.cache_write, price.output]
    }

    #[test]
    fn the_table_is_whole() {
        let table: Table = toml::from_str(TABLE).unwrap();
        let mut names: Vec<&str> = table.model.iter().map(|row| row.name.as_str()).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!((names.len(), all > 40), (all, true), "a name twice");
        for family in &table.family {
            assert!(names.contains(&family.default.as_str()), "{family:?}");
        }
        let prefixes: Vec<&String> = table.family.iter().flat_map(|f| &f.prefixes).collect();
        for row in &table.model {
            assert!(prefixes.iter().any(|p| row.name.starts_with(p.as_str())), "{}", row.name);
            assert!(table.family.iter().any(|f| f.name == row.family), "{}", row.name);
            assert!(row.cached <= row.input && row.input <= row.cache_write && row.input < row.output, "{}", row.name);
            assert!(row.context >= 100_000, "{}", row.name);
            let day: jiff::civil::Date = row.checked.parse().unwrap();
            assert!(day.year() >= 2026, "{}", row.name);
        }
        for vendor in table.vendors.values() {
            assert!(table.family.iter().any(|f| f.vendor == *vendor), "{vendor}");
        }
    }

    #[test]
    fn a_model_is_found_by_name_then_by_family() {
        let prices = Prices::default();
        for (model, input, source) in [
            ("claude-opus-4-8", 5.0, Source::Registry),
            ("claude-opus-4-8[1m]", 5.0, Source::Registry),
            ("claude-haiku-4-5-20251001", 1.0, Source::Registry),
            ("anthropic/claude-opus-4-1", 15.0, Source::Registry),
            ("gpt-6-sol-2026-09-22", 2.0, Source::Registry),
            ("gemini-3-flash-preview", 0.5, Source::Registry),
            ("sonnet", 3.0, Source::FamilyDefault),
            ("gpt-6.9-nova", 2.0, Source::FamilyDefault),
            ("gpt-4.1-tiny", 2.0, Source::FamilyDefault),
        ] {
            let found = prices.of(model).unwrap();
            assert_eq!((found.0.input, found.1), (input, source), "{model}");
        }
        assert_eq!((prices.of("scripted-1"), prices.of("")), (None, None));
        assert_eq!((prices.context("gpt-6.2-sol"), prices.context("scripted-1")), (Some(1_050_000), None));
    }

    #[test]
    fn the_users_prices_come_first() {
        let table = |input, output| PriceTable { input, output, ..PriceTable::default() };
        let own = BTreeMap::from([
            ("GPT-6.2-sol".to_owned(), table(Some(7.0), None)),
            ("local-7b".to_owned(), table(Some(0.0), Some(0.0))),
        ]);
        let prices = Prices::new(&own);
        let (price, source) = prices.of("openai/gpt-6.2-sol").unwrap();
        assert_eq!((usd(price), source), ([7.0, 0.1, 2.5, 10.0], Source::Registry));
        assert_eq!(prices.of("local-7b"), Some((Price::default(), Source::Registry)));
        assert_eq!(prices.free(), ["local-7b"]);
    }

    #[test]
    fn kinds_are_priced_apart() {
        let (price, _) = Prices::default().of("claude-opus-4-8").unwrap();
        let usage = Usage { input: 1_000_000, cached: 2_000_000, cache_write: 100_000, output: 10_000 };
        assert!((price.of(usage) - (5.0 + 1.0 + 0.625 + 0.25)).abs() < 1e-9);
    }

    /// CB-4: the declared worst case of a model without a price.
    #[test]
    fn the_dearest_is_of_the_engines_vendor() {
        let prices = Prices::default();
        assert_eq!(usd(prices.dearest("codex")), [10.0, 1.0, 12.5, 50.0]);
        assert_eq!(usd(prices.dearest("claude")), [15.0, 1.5, 18.75, 75.0]);
        assert_eq!(usd(prices.dearest("grok")), [3.0, 0.75, 3.0, 15.0]);
        assert_eq!(usd(prices.dearest("opencode")), usd(prices.dearest("claude")), "anybody's models");
    }
}
