//! MCP over stdio and HTTP.

pub mod manifest;
