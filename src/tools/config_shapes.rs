//! `config.toml` as users write it, for its schema alone: `config` reads and judges the file itself.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of claw-orchestrator. Flags and environment variables win over this file.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConfigShape {
    /// The HTTP server.
    pub server: Option<ServerTable>,
    /// Agent sessions.
    pub sessions: Option<SessionsTable>,
    /// Engines by name.
    pub engines: Option<BTreeMap<String, EngineTable>>,
    /// Workflow runs.
    pub workflow: Option<WorkflowTable>,
    /// Councils.
    pub council: Option<CouncilTable>,
    /// Money.
    pub budget: Option<BudgetTable>,
    /// US dollars for a million tokens, by model name.
    pub pricing: Option<BTreeMap<String, PriceTable>>,
    /// The MCP surface.
    pub mcp: Option<McpTable>,
}

/// The HTTP server.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ServerTable {
    /// Address to bind. Default 127.0.0.1.
    pub host: Option<String>,
    /// Port to bind; 0 takes any free one. Default 18796.
    pub port: Option<u16>,
    /// Further Host values accepted.
    pub allowed_hosts: Option<Vec<String>>,
    /// Further Origin values accepted.
    pub allowed_origins: Option<Vec<String>>,
    /// Requests a minute from one address. Default 300.
    #[schemars(range(min = 1))]
    pub rate_limit: Option<u32>,
    /// Longest request body in bytes. Default 5242880.
    #[schemars(range(min = 1))]
    pub max_body_bytes: Option<u64>,
}

/// Agent sessions.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SessionsTable {
    /// Engine where a spec names none.
    pub default_engine: Option<String>,
    /// Model where a spec names none.
    pub default_model: Option<String>,
    /// Permission mode where none is named. Default acceptEdits.
    pub default_permission_mode: Option<String>,
    /// Most live sessions.
    #[schemars(range(min = 1))]
    pub max: Option<u32>,
    /// Minutes an idle session lives.
    #[schemars(range(min = 1))]
    pub ttl_minutes: Option<u32>,
    /// Days a session can be resumed. Default 7.
    pub persist_days: Option<u32>,
}

/// One engine.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EngineTable {
    /// Its program.
    pub bin: Option<String>,
    /// Names of environment variables let through to it.
    pub env: Option<Vec<String>>,
    /// Model where a spec names none.
    pub default_model: Option<String>,
}

/// Workflow runs.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkflowTable {
    /// Whether a starting server continues orphaned runs. Default false.
    pub auto_resume: Option<bool>,
    /// Days runs that ended are kept.
    pub retention: Option<u32>,
}

/// Councils.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CouncilTable {
    /// Milliseconds between two rounds. Default 3000.
    #[schemars(range(min = 0, max = 3_600_000))]
    pub inter_round_delay_ms: Option<u64>,
}

/// Money.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetTable {
    /// US dollars of a UTC day after which no new turn starts; 0 or less is no limit.
    pub daily_usd: Option<f64>,
}

/// US dollars for a million tokens.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PriceTable {
    /// Fresh input.
    pub input: Option<f64>,
    /// Input read from a cache.
    pub cached: Option<f64>,
    /// Input written to a cache.
    pub cache_write: Option<f64>,
    /// Output.
    pub output: Option<f64>,
}

/// The MCP surface.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McpTable {
    /// Only these tools are offered.
    pub tools: Option<Vec<String>>,
}
