//! `coding_agents_list`: definitions of agents for a directory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    engines::claude::agents::{self, AgentDefinition},
    kernel::Error,
    model::Code,
    sys::tasks,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        outcome::{RESULT_MAX, counted, wire_len},
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Absolute directory. Default: the server's.
    cwd: Option<String>,
}

/// The definitions.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// Those of the project, then the user's.
    agents: Vec<AgentDefinition>,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "coding_agents_list",
        title: "Agent definitions for a directory",
        description: "Lists the agents that are defined for Claude Code in a directory: those in .claude/agents of the project \
and the user's own; use it to choose one for engineOptions.claude.agent. Next: session_start.",
        toolset: Toolset::Claude,
        hints: Hints::LOOK,
        length: Length::Short,
        pairs: &["session_start"],
    };
    Tool::new::<Args, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let kernel = super::services(&kernel).await?;
    let services = kernel.services();
    let cwd = super::directory(services, args.cwd).await?;
    let (fs, config) = (services.fs.clone(), services.config.clone());
    let found = tasks::blocking("agent definitions", move || agents::defined(fs.as_ref(), &config, &cwd)).await;
    let mut agents = found.map_err(|e| Error::new(Code::Internal, e.to_string()))?;
    while wire_len(&agents) > RESULT_MAX {
        agents.truncate(agents.len() / 2);
    }
    let count = counted(agents.len(), "agent");
    ToolResult::new(&Output { agents }, format!("{count} defined. Next: session_start."))
}
