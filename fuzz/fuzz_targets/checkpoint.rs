//! The checkpoint of a run.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| claw_orchestrator::fuzzing::checkpoint(data));
