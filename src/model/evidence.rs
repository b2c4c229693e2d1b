//! What a verification leaves behind.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Contract, Time};

/// Version of the bundle's JSON form.
pub const BUNDLE_VERSION: u32 = 1;

/// The record of one verification: what was checked, where, and how each check ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvidenceBundle {
    /// Form of this document.
    pub v: u32,
    /// Names the bundle inside its run, for example `verify-v02-01`.
    pub evidence_id: String,
    /// The run, or the label of a `verify_run`; absent when nothing is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// The verifier node; absent outside a run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Caller's name for the contract.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contract_id: Option<String>,
    /// SHA-256 over the normalised contract, hex.
    pub contract_hash: String,
    /// When the bundle was finished.
    pub created_at: Time,
    /// Directory the checks ran in.
    pub cwd: String,
    /// Commit the change set is counted from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_sha: Option<String>,
    /// HEAD when the checks ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_sha: Option<String>,
    /// Whether every required check passed.
    pub passed: bool,
    /// Fixer rounds used.
    pub rounds: u32,
    /// One entry a check, in the contract's order, `protected-tests` first when it was compared.
    pub results: Vec<CheckResult>,
    /// Files that differ from the baseline.
    pub changed_files: Vec<String>,
    /// Digest of the tree the checks saw; absent outside git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_digest: Option<String>,
    /// The contract as it was run.
    pub contract: Contract,
    /// Host name.
    pub host: String,
    /// Program that ran the checks.
    pub tool: String,
    /// Its version.
    pub version: String,
    /// Anything a reader should know that is not a check's result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// How one check ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckResult {
    /// The check's id.
    pub id: String,
    /// The check's type, or `protected_tests`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether a failure refutes.
    pub required: bool,
    /// Whether it held.
    pub passed: bool,
    /// Wall time in milliseconds.
    pub duration_ms: u64,
    /// One sentence for a person.
    pub detail: String,
    /// End of the output, ANSI removed, for failed command checks and change sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<String>,
    /// Files of the bundle that belong to this check.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<String>,
    /// The limit passed; never together with `passed`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// Exit status of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The check was not run, and why `detail` says.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
}

impl EvidenceBundle {
    /// The first required check that failed.
    pub fn first_failure(&self) -> Option<&CheckResult> {
        self.results.iter().find(|r| r.required && !r.passed)
    }
}
