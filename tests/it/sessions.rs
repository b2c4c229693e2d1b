//! Named sessions: on the scripted agent in this process, over MCP, over deaths of the server, and on the real program.

mod claude_tools;
mod codex;
mod deaths;
mod inbox;
mod real;
mod real_openai;
mod service;
mod support;
mod tools;
