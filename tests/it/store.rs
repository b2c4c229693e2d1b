//! store: integration tests.
