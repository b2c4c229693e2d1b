//! process: integration tests.
