//! Runs coding agents as durable, verified work.
//!
//! Layers, top to bottom; a module imports only from layers below it:
//! `protocol` -> `tools` -> `kernel` -> `nodes` -> `engines`, `verify`, `git` -> `store`, `sys` -> `model`.

pub mod app;
pub mod cli;
pub mod config;
pub mod engines;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod git;
pub mod kernel;
pub mod model;
pub mod nodes;
pub mod protocol;
pub mod store;
pub mod sys;
pub mod tools;
pub mod verify;
