//! Codex over `codex app-server`: one long process that is asked in JSON-RPC and tells what it does.
//!
//! `adapter` says how it is started and what it can do; `app` is the protocol as a state machine without I/O,
//! so that every recorded conversation can be replayed into it.

mod adapter;
mod app;
mod asks;
mod catalog;
mod classify;
mod events;
mod goal;
mod opening;
mod refuse;
#[cfg(test)]
mod replay;
mod tokens;
mod turn;

pub use adapter::{CodexApp, NAME};
