//! Shapes of nested arguments, for their schemas alone: they are never built, the kernel reads the JSON itself.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who answers.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineShape {
    /// Engine name, for example claude, codex or scripted. Default: the server's default engine.
    pub engine: Option<String>,
    /// Model name as the engine knows it; a scenario for the scripted engine.
    pub model: Option<String>,
    /// Thinking effort.
    pub effort: Option<Effort>,
    /// Permission mode of the engine, for example bypassPermissions or acceptEdits.
    pub permission_mode: Option<String>,
    /// Agent that engine acp runs, for example opencode or codex-acp.
    pub acp_agent: Option<String>,
}

/// One agent of several.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentShape {
    /// Name, distinct among the agents of one node.
    pub name: String,
    /// Engine name, for example claude, codex or scripted. Default: the server's default engine.
    pub engine: Option<String>,
    /// Model name as the engine knows it; a scenario for the scripted engine.
    pub model: Option<String>,
    /// Thinking effort.
    pub effort: Option<Effort>,
    /// Who the agent is; put before the shared task.
    pub persona: Option<String>,
    /// Own instructions that replace persona and shared task.
    pub prompt: Option<String>,
    /// Permission mode of the engine, for example bypassPermissions or acceptEdits.
    pub permission_mode: Option<String>,
    /// Agent that engine acp runs, for example opencode or codex-acp.
    pub acp_agent: Option<String>,
    /// What it may do to files. A read-only agent works in a copy that is thrown away.
    pub sandbox_mode: Option<SandboxShape>,
}

/// What an agent may do to files.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the words say it; descriptions would bloat every schema")]
pub enum SandboxShape {
    ReadOnly,
    WorkspaceWrite,
    DangerFullAccess,
}

/// Thinking effort.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the words say it; descriptions would bloat every schema")]
pub enum Effort {
    Low,
    Medium,
    High,
    Xhigh,
    Max,
    Ultra,
    Auto,
}

/// An acceptance contract: checks that the server runs and reads itself. At least one must be required.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContractShape {
    /// Name of the contract.
    pub id: Option<String>,
    /// What must hold, in order. All are run, whatever the earlier ones say.
    pub checks: Vec<CheckShape>,
    /// How often a red verifier of a workflow may send a repair agent, 0 to 10. Default 0.
    #[schemars(range(min = 0, max = 10))]
    pub fix_on_failure_rounds: Option<u32>,
    /// Whether test files must still be as they were at the start. Default true.
    pub protect_tests: Option<bool>,
}

/// One check: its type and the fields of that type, bare, or wrapped as { id, required, spec: { type, ... } }.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckShape {
    /// Kind of check.
    #[serde(rename = "type")]
    pub kind: Option<CheckKind>,
    /// Wrapped form only: the check itself with its type and fields.
    #[schemars(with = "Option<BTreeMap<String, serde_json::Value>>")]
    pub spec: Option<serde_json::Value>,
    /// Wrapped form only: id, letters, digits, '.', '_' and '-'.
    pub id: Option<String>,
    /// Wrapped form only: whether a failure refutes. Default true.
    pub required: Option<bool>,
    /// command: the program; there is no shell.
    pub cmd: Option<String>,
    /// command: its arguments.
    pub args: Option<Vec<String>>,
    /// command: directory relative to where the checks run.
    pub cwd: Option<String>,
    /// command: exit status that passes. Default 0.
    pub expect_exit: Option<i32>,
    /// command, http, screenshot: limit in milliseconds. Default 600000, 30000, 60000 a viewport.
    pub timeout_ms: Option<u64>,
    /// command: extra plain environment values, name to text.
    pub env: Option<BTreeMap<String, String>>,
    /// command: names of server variables to let through although they look secret.
    pub env_from: Option<Vec<String>>,
    /// http, screenshot: address, http or https.
    pub url: Option<String>,
    /// http: status that passes. Default 200.
    pub expect_status: Option<u16>,
    /// http: pause between tries in milliseconds. Default 1000.
    pub interval_ms: Option<u64>,
    /// http: regular expression the body must match.
    pub expect_body: Option<String>,
    /// screenshot: 1 to 8 sizes in pixels, each { width, height, label? }.
    pub viewports: Option<Vec<ViewportShape>>,
    /// screenshot: browser program.
    pub browser_bin: Option<String>,
    /// diff_policy: most changed files.
    pub max_files: Option<u64>,
    /// diff_policy: most added plus removed lines.
    pub max_lines: Option<u64>,
    /// diff_policy: path prefixes that must not change.
    pub forbid_paths: Option<Vec<String>>,
    /// diff_policy: path prefixes one of which must change.
    pub require_paths: Option<Vec<String>>,
    /// file: path relative to where the checks run.
    pub path: Option<String>,
    /// file: whether it must exist. Default true.
    pub exists: Option<bool>,
    /// file: regular expression for its contents.
    pub matches: Option<String>,
}

/// Kind of check.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words say it; descriptions would bloat every schema")]
pub enum CheckKind {
    Command,
    Http,
    Screenshot,
    DiffPolicy,
    File,
}

/// A window size.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ViewportShape {
    /// Width in pixels.
    #[schemars(range(min = 100, max = 4096))]
    pub width: u32,
    /// Height in pixels.
    #[schemars(range(min = 100, max = 4096))]
    pub height: u32,
    /// Name for the picture's file.
    pub label: Option<String>,
}

/// Bounds over the whole run, children included.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BudgetShape {
    /// Most US dollars.
    pub max_cost_usd: Option<f64>,
    /// Most wall time in milliseconds.
    pub max_wall_ms: Option<u64>,
    /// Most turns of all agents together.
    pub max_agent_turns: Option<u64>,
}

/// Where a run works.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "explained where it is used")]
pub enum WorkspaceShape {
    InPlace,
    Worktree,
}

/// A free-form object.
pub type Free = BTreeMap<String, serde_json::Value>;
