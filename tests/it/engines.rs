//! Agents as real processes: the scripted one through the pool, and the real program where it is installed.

mod openai;
mod pool;
mod processes;
mod read_only;
mod real_acp;
mod real_claude;
mod real_codex;
mod real_opencode;
mod sessions;
mod support;
mod trees;
mod turnwise;
mod turnwise_custom;
