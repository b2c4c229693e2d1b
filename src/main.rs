//! The program's entry.

use std::process::ExitCode;

use claw_orchestrator::{engines::scripted, sys::supervise};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    // Before anything else: a supervisor starts once an attempt and must cost next to nothing.
    let status = match args.next().as_deref().and_then(|a| a.to_str()) {
        Some("supervise") => supervise::supervisor_main(),
        Some(scripted::SUBCOMMAND) => scripted::agent_main(args),
        Some(_) | None => 0,
    };
    ExitCode::from(status)
}
