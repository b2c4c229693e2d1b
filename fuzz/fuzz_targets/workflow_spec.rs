//! A workflow spec as a caller sends it.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| claw_orchestrator::fuzzing::workflow_spec(data));
