//! Agents that each work in a git worktree and on a branch of their own.
//!
//! Owns what a fan-out, a single agent and a council share of that. Knows nothing of rounds or of choosing.

pub mod guard;
