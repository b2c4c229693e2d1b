//! The program: children of our own first, everything else through the command line.
//!
//! Owns the choice of the entry point and the exit status. Does no work itself.

use std::{ffi::OsString, process::ExitCode};

use claw_orchestrator::{cli, engines, sys};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    // Both are started for every attempt, so they skip argument parsing, configuration and the async runtime.
    let status = match args.first().and_then(|a| a.to_str()) {
        Some("supervise") => sys::supervise::supervisor_main(),
        Some(engines::scripted::SUBCOMMAND) => engines::scripted::agent_main(args.into_iter().skip(1)),
        Some(_) | None => {
            sys::memory::share_arena();
            cli::main(&args)
        }
    };
    ExitCode::from(status)
}
