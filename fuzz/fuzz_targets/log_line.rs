//! One line of a run's log.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| claw_orchestrator::fuzzing::log_line(data));
