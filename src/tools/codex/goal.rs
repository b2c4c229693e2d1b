//! What the tools about goals of codex-app sessions share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    engines::{Ask, GoalStatus, GoalView},
    tools::{KernelHandle, Outcome, ToolResult},
};

/// What the engine says of a goal.
#[derive(Debug, Deserialize)]
struct Said {
    goal: Option<GoalView>,
}

/// The goal of a session.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct GoalAnswer {
    /// The session.
    name: String,
    /// Whether the agent works on the goal by itself.
    active: bool,
    /// The goal; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    goal: Option<GoalView>,
}

/// Asks a codex-app session about its goal.
pub(super) async fn ask(kernel: &KernelHandle, name: &str, ask: Ask) -> Outcome {
    let (said, _) = super::ask::<Said>(kernel, name, ask).await?;
    let active = said.goal.as_ref().is_some_and(|goal| goal.status == GoalStatus::Active);
    let text = match &said.goal {
        None => format!("Session '{name}' has no goal. Next: codex_goal_set."),
        Some(_) if active => format!("Session '{name}' works on its goal. Next: codex_goal_get."),
        Some(goal) => {
            let status = serde_json::to_value(goal.status).unwrap_or_default();
            let status = status.as_str().unwrap_or("known").to_owned();
            format!("The goal of session '{name}' is {status}. Next: codex_goal_resume or session_send.")
        }
    };
    ToolResult::new(&GoalAnswer { name: name.to_owned(), active, goal: said.goal }, text)
}
