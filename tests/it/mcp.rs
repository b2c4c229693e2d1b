//! mcp: integration tests.
