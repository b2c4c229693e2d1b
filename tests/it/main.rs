//! The integration tests, one binary.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]
#![expect(clippy::print_stdout, reason = "a test that cannot run says why")]
#![expect(unreachable_pub, reason = "one binary, its modules share helpers")]
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests stand outside the product's layers")]

#[macro_use]
#[path = "../support/mod.rs"]
mod support;

mod budgets;
mod claims;
mod cli;
mod council;
mod engines;
mod fanout_isolated;
mod fanout_tools;
mod git;
mod goal;
mod ledger;
mod mcp;
mod mcp_http;
mod mcp_rules;
mod mcp_runs;
mod mcp_wire;
mod process;
mod protected;
mod quota;
mod real_claude;
mod real_together;
mod secrets;
mod server;
mod sessions;
mod store;
mod store_fence;
mod store_files;
mod store_list;
mod survival;
mod tidy;
mod ultra;
mod verify;
mod workflow;
mod workflow_children;
mod workflow_control;
mod workflow_crash;
mod workflow_limits;
mod workflow_list;
