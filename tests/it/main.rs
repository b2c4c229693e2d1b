//! The integration tests, one binary.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the product's layers")]

mod cli;
mod engines;
mod git;
mod mcp;
mod process;
mod protected;
mod store;
mod store_files;
mod tidy;
mod verify;
mod workflow;
