//! verify: integration tests.
