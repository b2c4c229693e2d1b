//! Workflow specs between a caller's JSON and the normalised form, with every problem at its path.
//!
//! Reads and writes shapes only; what a spec refers to (directories, engines, runs) is `validate`'s.

mod council;
mod fields;
mod goal;
mod nodes;
mod read;
mod write;

pub use council::TASK_CHARS;
pub use fields::{Fields, NOT_YET, STRING_MAX};
pub(crate) use nodes::{MEMBER_RESERVED, fanout_agents, member_name};
pub use read::{Origin, Read, condition, read};
pub use write::{condition_value, write};

/// Most nodes in one spec.
pub const NODES_MAX: usize = 1000;
/// Most extra attempts.
pub const RETRY_MAX: u64 = 100;
/// Highest `maxNodeVisits`.
pub const VISITS_MAX: u64 = 10_000;
/// `maxNodeVisits` where none is given.
pub const VISITS_DEFAULT: u32 = 50;
/// Most agents of one node.
pub const AGENTS_MAX: usize = 16;
/// Most agents of a node that one of our own tools builds: one for every angle of a review.
pub const REVIEWERS_MAX: usize = 20;
/// Deepest nesting of `and`.
pub const AND_DEPTH_MAX: usize = 6;
/// Deepest nesting of subflows.
pub const SUBFLOW_DEPTH_MAX: u32 = 8;
/// Equal red verdicts in a row that end a loop where nothing else is said.
pub const NO_PROGRESS_DEFAULT: u32 = 3;
/// Longest limit that may be asked for, 30 days in milliseconds: longer is a slip of the pen.
pub const LIMIT_MS_MAX: u64 = 30 * 24 * 3600 * 1000;
