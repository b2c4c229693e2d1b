//! Agents as real processes: the scripted one through the pool, and the real program where it is installed.

mod pool;
mod processes;
mod real_claude;
mod sessions;
mod spending;
mod support;
mod trees;
