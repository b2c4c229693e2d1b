//! cli: integration tests.
