//! workflow: integration tests.
