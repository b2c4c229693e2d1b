//! What Claude Code prints.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| claw_orchestrator::fuzzing::claude_lines(data));
