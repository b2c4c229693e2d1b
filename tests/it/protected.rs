//! protected: integration tests.
