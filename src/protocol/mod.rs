//! The only code that knows MCP: what is served, over what.
