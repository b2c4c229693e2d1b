//! `claude_agents_list`: background agents of Claude Code.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    model::Code,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        outcome::{RESULT_MAX, counted, wire_len},
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Only agents started below this absolute directory. Default: all.
    cwd: Option<String>,
    /// Whether to list ended ones as well. Default false.
    all: Option<bool>,
}

/// What the program says of an agent.
type Agent = BTreeMap<String, Value>;

/// The agents.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// As the program lists them.
    agents: Vec<Agent>,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "claude_agents_list",
        title: "Background agents of claude",
        description: "Lists the agents that Claude Code runs in the background on this machine, as its program tells of them; \
use it to see what goes on besides the sessions of this server. Next: sessions_overview.",
        toolset: Toolset::Claude,
        hints: Hints::LOOK,
        length: Length::Short,
        pairs: &["sessions_overview"],
    };
    Tool::new::<Args, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let kernel = super::services(&kernel).await?;
    let services = kernel.services();
    let narrow = args.cwd.is_some();
    let cwd = super::directory(services, args.cwd).await?;
    let below = cwd.display().to_string();
    let mut line = vec!["agents", "--json"];
    if args.all.unwrap_or(false) {
        line.push("--all");
    }
    if narrow {
        line.extend(["--cwd", &below]);
    }
    let said = super::ask(services, &line, &cwd).await?;
    let agents = serde_json::from_str::<Vec<Agent>>(&said.text).ok().filter(|_| said.status == 0);
    let Some(mut agents) = agents else { return Err(super::refused(Code::EngineFailed, "claude agents", &said)) };
    let all = agents.len();
    while wire_len(&agents) > RESULT_MAX {
        agents.truncate(agents.len() / 2);
    }
    let cut = agents.len() < all;
    let text = format!("{} in the background. Next: sessions_overview.", counted(all, "agent"));
    let result = ToolResult::new(&Output { agents }, text)?;
    Ok(if cut { result.with("truncated", vec!["agents: only the first are shown"]) } else { result })
}
