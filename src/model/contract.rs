//! Acceptance contracts in their normalised form. `verify::contract` makes them from a caller's JSON.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Checks that the runtime itself runs and reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Contract {
    /// Caller's name for the contract.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What must hold, in the order it is run. At least one is required.
    pub checks: Vec<Check>,
    /// How often a red verifier may send a fixer and run everything again, 0 to 10.
    #[serde(default)]
    pub fix_on_failure_rounds: u32,
    /// Whether test files of the start must still be as they were.
    #[serde(default = "yes")]
    pub protect_tests: bool,
}

fn yes() -> bool {
    true
}

/// One check with its identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Check {
    /// Unique inside the contract, `[A-Za-z0-9._-]{1,64}`.
    pub id: String,
    /// Whether a failure refutes. A failing optional check is recorded only.
    #[serde(default = "yes")]
    pub required: bool,
    /// What is checked.
    pub spec: CheckSpec,
}

/// The five kinds of check. There is no shell anywhere: a command is its argument vector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum CheckSpec {
    /// A program that must exit with a given status.
    Command {
        /// Program, by name on PATH or by path.
        cmd: String,
        /// Arguments, passed as they are.
        #[serde(default)]
        args: Vec<String>,
        /// Directory relative to where the checks run; must stay inside it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
        /// Exit status that passes.
        #[serde(default)]
        expect_exit: i32,
        /// Wall-clock limit in milliseconds.
        timeout_ms: u64,
        /// Plain extra environment values.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        env: BTreeMap<String, String>,
        /// Names of server variables let through although they look secret.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        env_from: Vec<String>,
    },
    /// A GET that must be answered as expected within the deadline. Redirects are not followed.
    Http {
        /// `http://` or `https://` address.
        url: String,
        /// Status that passes.
        expect_status: u16,
        /// Deadline in milliseconds.
        timeout_ms: u64,
        /// Pause between tries in milliseconds.
        interval_ms: u64,
        /// Regular expression the body must match.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expect_body: Option<String>,
    },
    /// A page captured at one or more sizes.
    Screenshot {
        /// `http://` or `https://` address.
        url: String,
        /// 1 to 8 window sizes.
        viewports: Vec<Viewport>,
        /// Browser program; otherwise the usual names are looked up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        browser_bin: Option<String>,
        /// Limit for each viewport in milliseconds.
        timeout_ms: u64,
    },
    /// Bounds on what the run changed.
    DiffPolicy {
        /// Most files that may have changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_files: Option<u64>,
        /// Most added plus removed lines.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_lines: Option<u64>,
        /// No changed path may lie under any of these prefixes.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        forbid_paths: Vec<String>,
        /// At least one changed path must lie under one of these prefixes.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        require_paths: Vec<String>,
    },
    /// A file that must exist (or not) and match.
    File {
        /// Path relative to where the checks run; must stay inside it.
        path: String,
        /// Whether it must exist.
        #[serde(default = "yes")]
        exists: bool,
        /// Regular expression for its contents.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        matches: Option<String>,
    },
}

/// A window size in CSS pixels, 100 to 4096 each way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Viewport {
    /// Width in pixels.
    pub width: u32,
    /// Height in pixels.
    pub height: u32,
    /// Name used for the picture's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

impl CheckSpec {
    /// The word a caller writes as `type`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Command { .. } => "command",
            Self::Http { .. } => "http",
            Self::Screenshot { .. } => "screenshot",
            Self::DiffPolicy { .. } => "diff_policy",
            Self::File { .. } => "file",
        }
    }

    /// The longest this check can take by its own limits, in milliseconds.
    pub fn worst_case_ms(&self) -> u64 {
        match self {
            Self::Command { timeout_ms, .. } | Self::Http { timeout_ms, .. } => *timeout_ms,
            Self::Screenshot { timeout_ms, viewports, .. } => timeout_ms.saturating_mul(viewports.len() as u64),
            Self::DiffPolicy { .. } | Self::File { .. } => 60_000,
        }
    }
}

impl Contract {
    /// Whether any check runs a command.
    pub fn has_command(&self) -> bool {
        self.checks.iter().any(|c| matches!(c.spec, CheckSpec::Command { .. }))
    }

    /// The longest one pass over all checks can take, in milliseconds.
    pub fn worst_case_ms(&self) -> u64 {
        self.checks.iter().fold(0, |sum, c| sum.saturating_add(c.spec.worst_case_ms()))
    }
}
