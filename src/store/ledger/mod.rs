//! The ledger of turns: one row a turn, one file (a shard) a UTC day, readable with any tool for JSON lines.
//!
//! Best effort, unlike everything else in the store: no turn ever waits for it to be durable or fails with it. Rows say
//! what engines say of their turns; whether checks agreed is never written here, because it is known only later.

mod day;
mod read;
mod row;
mod write;

pub use read::{Shard, shards};
pub use row::Row;
pub use write::Ledger;

/// Longest line in bytes, its end included. Short enough that one write adds it whole.
pub const LINE_MAX: usize = 16 * 1024;
