//! The program's entry.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before anything else: a supervisor starts once an attempt and must cost next to nothing.
    if std::env::args_os().nth(1).is_some_and(|arg| arg == "supervise") {
        return ExitCode::from(claw_orchestrator::sys::supervise::supervisor_main());
    }
    ExitCode::SUCCESS
}
