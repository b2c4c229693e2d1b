//! A whole log of a run.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| claw_orchestrator::fuzzing::log(data));
