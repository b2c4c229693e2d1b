//! `config.toml`: its keys, and errors that name the line and the key.

use std::{collections::BTreeMap, path::Path};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de::Error as _};

use super::Error;

/// The configuration file. Unknown keys are errors; every key may be left out.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// The HTTP server.
    #[serde(default)]
    pub server: ServerTable,
    /// Agent sessions.
    #[serde(default)]
    pub sessions: SessionsTable,
    /// Engines, by name.
    #[serde(default)]
    pub engines: BTreeMap<String, EngineTable>,
    /// Workflow runs.
    #[serde(default)]
    pub workflow: WorkflowTable,
    /// Councils.
    #[serde(default)]
    pub council: CouncilTable,
    /// The MCP server.
    #[serde(default)]
    pub mcp: McpTable,
    /// What may be spent.
    #[serde(default)]
    pub budget: BudgetTable,
    /// Prices of models, by name; they replace those built in.
    #[serde(default)]
    pub pricing: BTreeMap<String, PriceTable>,
    /// What must not be shown or passed on.
    #[serde(default)]
    pub secrets: SecretsTable,
}

/// `[server]`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerTable {
    /// Address to bind; 127.0.0.1 by default.
    pub host: Option<String>,
    /// Port to bind; 0 is any free one. 18796 by default.
    pub port: Option<u16>,
    /// Further `Host` values that are accepted.
    #[serde(default)]
    pub allowed_hosts: Vec<String>,
    /// Further `Origin` values that are accepted.
    #[serde(default)]
    pub allowed_origins: Vec<String>,
    /// Requests a minute and address, 1 to 1000000. 300 by default.
    #[serde(default, deserialize_with = "rate_limit")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub rate_limit: Option<u32>,
    /// Longest body in bytes, 1024 to 1 GiB. 5242880 by default.
    #[serde(default, deserialize_with = "body_bytes")]
    #[schemars(range(min = 1024, max = 1_073_741_824))]
    pub max_body_bytes: Option<usize>,
}

/// `[sessions]`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionsTable {
    /// Engine where a spec names none.
    pub default_engine: Option<String>,
    /// Most live sessions, 1 to 1000. The default depends on the command.
    #[serde(default, deserialize_with = "sessions")]
    #[schemars(range(min = 1, max = 1000))]
    pub max: Option<usize>,
    /// Model where none is said.
    pub default_model: Option<String>,
    /// Permission mode where none is said. `acceptEdits` by default.
    pub default_permission_mode: Option<String>,
    /// Minutes without work after which a session's program is ended, 1 to 10080. The default depends on the command.
    #[serde(default, deserialize_with = "ttl_minutes")]
    #[schemars(range(min = 1, max = 10_080))]
    pub ttl_minutes: Option<u64>,
    /// Days after its last activity for which a session is known, 1 to 365. 7 by default.
    #[serde(default, deserialize_with = "persist_days")]
    #[schemars(range(min = 1, max = 365))]
    pub persist_days: Option<u64>,
}

/// `[engines.<name>]`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EngineTable {
    /// Its program, by path or by name.
    pub bin: Option<String>,
    /// Names of variables let through to it.
    #[serde(default)]
    pub env: Vec<String>,
}

/// `[workflow]`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkflowTable {
    /// Whether a starting server continues runs whose owner is gone. False by default.
    pub auto_resume: Option<bool>,
}

/// `[council]`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CouncilTable {
    /// Milliseconds between two rounds, 0 to 3600000. 3000 by default.
    #[serde(default, deserialize_with = "round_pause")]
    #[schemars(range(min = 0, max = 3_600_000))]
    pub inter_round_delay_ms: Option<u64>,
}

/// `[mcp]`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpTable {
    /// Only these tools are offered.
    pub tools: Option<Vec<String>>,
}

/// `[budget]`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetTable {
    /// US dollars of a UTC day after which no new turn starts; 0 or less is no limit. None by default.
    #[serde(default, deserialize_with = "finite")]
    pub daily_usd: Option<f64>,
}

/// `[pricing."<model>"]`, in US dollars per million tokens. What is left out keeps the price built in, or is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceTable {
    /// Tokens read that come neither from nor go into the cache.
    #[serde(default, deserialize_with = "price")]
    #[schemars(range(min = 0.0, max = 1_000_000.0))]
    pub input: Option<f64>,
    /// Tokens read from the cache.
    #[serde(default, deserialize_with = "price")]
    #[schemars(range(min = 0.0, max = 1_000_000.0))]
    pub cached: Option<f64>,
    /// Tokens written into the cache.
    #[serde(default, deserialize_with = "price")]
    #[schemars(range(min = 0.0, max = 1_000_000.0))]
    pub cache_write: Option<f64>,
    /// Tokens written by the model.
    #[serde(default, deserialize_with = "price")]
    #[schemars(range(min = 0.0, max = 1_000_000.0))]
    pub output: Option<f64>,
}

/// `[secrets]`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretsTable {
    /// Further shapes of variable names that count as secret, with `*` for anything.
    #[serde(default)]
    pub names: Vec<String>,
}

/// Bounds of the numbers, shared with the environment.
pub(super) const RATE_LIMIT: (u64, u64) = (1, 1_000_000);
pub(super) const BODY_BYTES: (u64, u64) = (1024, 1 << 30);
pub(super) const SESSIONS: (u64, u64) = (1, 1000);
pub(super) const TTL_MINUTES: (u64, u64) = (1, 7 * 24 * 60);
const PERSIST_DAYS: (u64, u64) = (1, 365);
const ROUND_PAUSE_MS: (u64, u64) = (0, 3_600_000);

/// A number within bounds.
pub(super) fn bounded<T: TryFrom<u64>>(number: i128, (min, max): (u64, u64)) -> Result<T, String> {
    u64::try_from(number)
        .ok()
        .filter(|number| (min..=max).contains(number))
        .and_then(|number| T::try_from(number).ok())
        .ok_or_else(|| format!("{number} is not between {min} and {max}"))
}

fn within<'de, D: Deserializer<'de>, T: TryFrom<u64>>(from: D, bounds: (u64, u64)) -> Result<Option<T>, D::Error> {
    bounded(i128::from(i64::deserialize(from)?), bounds).map(Some).map_err(D::Error::custom)
}

fn rate_limit<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    within(from, RATE_LIMIT)
}

fn body_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    within(from, BODY_BYTES)
}

fn sessions<'de, D: Deserializer<'de>>(from: D) -> Result<Option<usize>, D::Error> {
    within(from, SESSIONS)
}

fn ttl_minutes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    within(from, TTL_MINUTES)
}

fn persist_days<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    within(from, PERSIST_DAYS)
}

fn round_pause<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    within(from, ROUND_PAUSE_MS)
}

/// Dearest price of a million tokens that is not taken for a slip, in US dollars.
const PRICE_MAX: f64 = 1_000_000.0;

fn price<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let usd = f64::deserialize(from)?;
    let fits = (0.0..=PRICE_MAX).contains(&usd);
    fits.then_some(Some(usd)).ok_or_else(|| D::Error::custom(format!("{usd} is not between 0 and {PRICE_MAX}")))
}

fn finite<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let usd = f64::deserialize(from)?;
    usd.is_finite()
        .then_some(Some(usd))
        .ok_or_else(|| D::Error::custom(format!("{usd} is not an amount of US dollars")))
}

/// Reads the text of the file at `path`.
pub fn parse(path: &Path, text: &str) -> Result<File, Error> {
    toml::from_str(text).map_err(|e| {
        let start = e.span().map_or(0, |span| span.start);
        let before = text.get(..start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        Error::File { path: path.to_owned(), line, key: key_at(text, line), reason: e.message().to_owned() }
    })
}

/// The key on a line with the table it stands in.
fn key_at(text: &str, line: usize) -> String {
    let mut table = "";
    let mut key = "";
    for text in text.lines().take(line).map(str::trim) {
        if let Some(header) = text.strip_prefix('[') {
            table = header.split(']').next().unwrap_or_default();
            key = "";
        } else if let Some((name, _)) = text.split_once('=') {
            key = name.trim();
        }
    }
    match (table, key) {
        ("", "") => "(file)".to_owned(),
        ("", key) => key.to_owned(),
        (table, "") => table.to_owned(),
        (table, key) => format!("{table}.{key}"),
    }
}
