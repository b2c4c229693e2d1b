//! What a council keeps on its run: small documents under named keys, long texts beside them.
//!
//! The node writes them, a resume reads them back, and everything that is shown of a council is made of them.
//! Knows neither git nor engines.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::model::{Time, run::Injection};

/// Begins every key of a council in its node's data, so that a later visit of the node leaves it there.
pub const PREFIX: &str = "council:";
/// Characters of a reply kept in place; the whole text is a file of the run.
pub const TAIL_CHARS: usize = 4_000;

/// Names a document of one visit of a council node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key<'a> {
    /// [`Layout`].
    Layout,
    /// [`RoundStart`].
    Start(u32),
    /// [`Reply`], with the whole text.
    Reply(u32, &'a str),
    /// [`RoundEnd`].
    End(u32),
    /// [`Ended`].
    Ended,
    /// `usd`: what a member has spent in all, on turns that were cut off too.
    Spent(&'a str),
    /// The patch of a merge that a member left half done in a round, as its text.
    Saved(u32, &'a str),
}

impl Key<'_> {
    /// The key in the node's data.
    pub fn of(&self, visit: u32) -> String {
        match self {
            Self::Layout => format!("{PREFIX}{visit}:layout"),
            Self::Start(round) => format!("{PREFIX}{visit}:start:{round}"),
            Self::Reply(round, member) => format!("{PREFIX}{visit}:reply:{round}:{member}"),
            Self::End(round) => format!("{PREFIX}{visit}:end:{round}"),
            Self::Ended => format!("{PREFIX}{visit}:ended"),
            Self::Spent(member) => format!("{PREFIX}{visit}:spent:{member}"),
            Self::Saved(round, member) => format!("{PREFIX}{visit}:saved:{round}:{member}"),
        }
    }

    /// The document in a node's data.
    pub fn read<T: DeserializeOwned>(&self, visit: u32, data: Option<&Value>) -> Option<T> {
        T::deserialize(data?.get(self.of(visit))?).ok()
    }
}

/// How many rounds of a visit have begun.
pub fn rounds_begun(visit: u32, data: Option<&Value>) -> u32 {
    let prefix = format!("{PREFIX}{visit}:start:");
    let keys = data.and_then(Value::as_object).into_iter().flat_map(|map| map.keys());
    keys.filter_map(|key| key.strip_prefix(&prefix)?.parse().ok()).max().unwrap_or(0)
}

/// Where a council lies. Written once, before anything is made in the repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Layout {
    /// Id of the council: its run's, or made of run, node and visit.
    pub council_id: String,
    /// Part of its branches' and folders' names.
    pub short_id: String,
    /// Top of the work tree that holds the project.
    pub top: String,
    /// The project's folder below the top; empty at the top.
    pub prefix: String,
    /// Branch that should receive the work.
    pub base_branch: String,
    /// Its commit when the first council of the chain began.
    pub base_commit: String,
    /// Commit this council begins at: the base, or the integration tip of the council it goes on with.
    pub start_commit: String,
    /// The plan, relative to the top.
    pub plan_file: String,
    /// Members in their order.
    pub seats: Vec<Seat>,
    /// The council this one goes on with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continue_from: Option<String>,
    /// What the caller should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// A member's place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Seat {
    /// Its name.
    pub name: String,
    /// Shown beside it; may be empty.
    #[serde(default)]
    pub emoji: String,
}

/// Name of the integration branch's worktree and of the last part of its branch.
pub const INTEGRATION: &str = "integration";
/// Folder of all worktrees, at the top of a work tree.
pub const WORKTREES: &str = ".worktrees";

impl Layout {
    /// Branch of a member, or of [`INTEGRATION`].
    pub fn branch(&self, name: &str) -> String {
        format!("council/{}/{name}", self.short_id)
    }

    /// Top of the worktree of a member, or of [`INTEGRATION`].
    pub fn worktree(&self, name: &str) -> std::path::PathBuf {
        self.folder().join(name)
    }

    /// The folder that holds this council's worktrees.
    pub fn folder(&self) -> std::path::PathBuf {
        std::path::Path::new(&self.top).join(WORKTREES).join(&self.short_id)
    }

    /// The project's folder in a worktree.
    pub fn project(&self, name: &str) -> std::path::PathBuf {
        if self.prefix.is_empty() { self.worktree(name) } else { self.worktree(name).join(&self.prefix) }
    }

    /// The user's folder of the project.
    pub fn user_dir(&self) -> std::path::PathBuf {
        let top = std::path::Path::new(&self.top);
        if self.prefix.is_empty() { top.to_path_buf() } else { top.join(&self.prefix) }
    }

    /// Below this, the refs that keep work a crash cut off.
    pub fn salvage_prefix(&self) -> String {
        format!("refs/clawo/council/{}/salvage/", self.short_id)
    }
}

/// The state a round begins at.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoundStart {
    /// Round, from 1.
    pub round: u32,
    /// Commit of the integration branch.
    pub integration: String,
    /// Commit of each member's branch, after it was brought up to date.
    pub members: BTreeMap<String, String>,
    /// What the operator put in; part of this round from now on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub injections: Vec<Injection>,
    /// Commit of the branch that should receive the work, which nobody but the user should move.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Digest of the user's tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_tree: Option<String>,
    /// When.
    pub at: Time,
}

/// Where a vote was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum VoteSource {
    /// The tag that was asked for.
    Strict,
    /// A form close to it.
    Variant,
    /// Nowhere, which is a no.
    #[default]
    None,
}

/// What a member gave in a round.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reply {
    /// Round, from 1.
    pub round: u32,
    /// The member.
    pub agent: String,
    /// Last [`TAIL_CHARS`] characters of its text.
    pub tail: String,
    /// Whether there is more than the tail.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Its vote.
    pub consensus: bool,
    /// Where it was found.
    pub consensus_source: VoteSource,
    /// It said both in one line.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ambiguous: bool,
    /// Its turn failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The session's name; empty when none was opened.
    #[serde(default)]
    pub session_key: String,
    /// End of its turn.
    pub timestamp: Time,
    /// Times it was asked again because it said nothing.
    pub empty_retries: u32,
    /// Times it was asked for the whole report.
    pub follow_ups: u32,
    /// Milliseconds it took.
    pub duration_ms: u64,
    /// US dollars.
    pub cost_usd: f64,
    /// Tip of its branch afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The runtime committed what it had left uncommitted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auto_committed: bool,
    /// Where work is kept that could not be taken over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salvage_ref: Option<String>,
    /// What it must be told in its next prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What became of a member's work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MergeStatus {
    /// It is in integration.
    Merged,
    /// There was none.
    Nothing,
    /// It does not fit what was merged before it.
    Conflict,
    /// It could not be looked at.
    #[default]
    Skipped,
}

/// A member's merge.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Merge {
    /// What became of it.
    pub status: MergeStatus,
    /// Files in conflict.
    pub files: Vec<ConflictFile>,
}

/// One file of a conflict.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConflictFile {
    /// Relative to the top of the repository.
    pub path: String,
    /// `content`, `added-by-both`, `deleted-by-member`, `deleted-by-others`, `other`.
    pub kind: String,
}

/// Work that did not fit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Conflict {
    /// Whose.
    pub member: String,
    /// When.
    pub round: u32,
    /// Where.
    pub files: Vec<ConflictFile>,
    /// Its commit.
    pub member_commit: String,
    /// The commit it did not fit.
    pub integration_commit: String,
    /// Members whose work the other side holds.
    pub other_members: Vec<String>,
}

/// The user's branch or tree changed while a round went on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserMoved {
    /// Commit at the start of the round.
    pub from: String,
    /// Commit at its end; the same when only the tree changed.
    pub to: String,
    /// The round.
    pub round: u32,
    /// Whether uncommitted content changed.
    pub tree: bool,
}

/// What members agree and disagree on after a round.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Disagreement {
    /// The round.
    pub round: u32,
    /// Who voted what.
    pub votes: Votes,
    /// Both yes and no occur.
    pub split: bool,
    /// Files that several members changed, conflicts first; at most 200.
    pub files: Vec<SharedFile>,
    /// How many there are.
    pub files_total: usize,
    /// Whether some are left out.
    pub truncated: bool,
}

/// Members by vote.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Votes {
    /// Who said yes.
    pub yes: Vec<String>,
    /// Who said no.
    pub no: Vec<String>,
    /// Who did not say.
    pub none: Vec<String>,
}

/// A file that several members changed in a round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SharedFile {
    /// Relative to the top of the repository.
    pub path: String,
    /// How the results compare.
    pub kind: SharedKind,
    /// What each did.
    pub members: Vec<MemberChange>,
}

/// How the results of several members compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SharedKind {
    /// It was in a merge that failed.
    Conflict,
    /// They differ.
    Divergent,
    /// They are the same.
    Identical,
}

/// What a member did to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberChange {
    /// Who.
    pub member: String,
    /// `added modified deleted renamed`.
    pub change: String,
    /// Lines.
    pub insertions: u64,
    /// Lines.
    pub deletions: u64,
    /// The file's object; absent when it was deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
}

/// What a round came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RoundEnd {
    /// Round, from 1.
    pub round: u32,
    /// Merges by member.
    pub merges: BTreeMap<String, Merge>,
    /// What did not fit, with what is open from earlier rounds.
    pub conflicts: Vec<Conflict>,
    /// Paths outside the plan changed in the planning round, by member.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub planning_violations: BTreeMap<String, Vec<String>>,
    /// Agreement.
    pub disagreement: Disagreement,
    /// Commit of the integration branch.
    pub integration: String,
    /// Members whose work is not in it.
    pub unmerged: Vec<String>,
    /// The user's branch or tree changed meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_moved: Option<UserMoved>,
    /// Whether anybody answered.
    pub replied: bool,
    /// Text of the plan of a member whose markers are gone, for its next prompt.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lost_plans: BTreeMap<String, String>,
}

/// How a council's rounds ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// They go on.
    #[default]
    Running,
    /// All said yes and everything is merged.
    Consensus,
    /// They were used up.
    MaxRounds,
    /// They could not go on.
    Error,
    /// They were stopped.
    Aborted,
    /// The work was merged into the user's branch.
    Accepted,
    /// It was sent back.
    Rejected,
}

impl Status {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Consensus => "consensus",
            Self::MaxRounds => "max_rounds",
            Self::Error => "error",
            Self::Aborted => "aborted",
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
        }
    }
}

/// The end of a council's rounds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ended {
    /// How.
    pub status: Status,
    /// For programs, when it is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_code: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Rounds that ended.
    pub rounds: u32,
    /// Commit of the integration branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integration: Option<String>,
    /// Members whose work is not in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmerged: Vec<String>,
    /// When.
    pub at: Time,
}
