//! engines: integration tests.
