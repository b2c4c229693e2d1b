//! git: integration tests.
