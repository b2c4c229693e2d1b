//! The smallest MCP server the SDK allows: what `scripts/measure` compares start-up and memory with.

use rmcp::{ServiceExt, tool, tool_router};

#[derive(Debug, Clone)]
struct Bare;

#[tool_router(server_handler)]
impl Bare {
    #[tool(description = "Answers with its name")]
    async fn name(&self) -> String {
        "bare".to_owned()
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    Bare.serve((tokio::io::stdin(), tokio::io::stdout())).await?.waiting().await?;
    Ok(())
}
