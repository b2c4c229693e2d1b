//! What the tools about goals of claude sessions share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    engines::{Ask, claude},
    tools::{KernelHandle, Outcome, ToolResult, outcome},
};

/// What a session said about its goal.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct GoalAnswer {
    /// The session.
    name: String,
    /// Whether a goal is open.
    active: bool,
    /// What the program or its agent said, cut when it is long.
    text: String,
    /// Input tokens of the turn.
    tokens_in: u64,
    /// Output tokens of the turn.
    tokens_out: u64,
    /// US dollars of the turn.
    cost_usd: f64,
}

/// Asks a claude session about its goal.
pub(super) async fn ask(kernel: &KernelHandle, name: &str, ask: Ask, next: &str) -> Outcome {
    let answer = super::sessions(kernel).await?.ask(name, ask, Some(claude::NAME)).await?;
    let said = answer.data.get("text").and_then(serde_json::Value::as_str).unwrap_or_default();
    let active = answer.data.get("active").and_then(serde_json::Value::as_bool).unwrap_or(false);
    let spend = answer.turn.map(|turn| turn.spend).unwrap_or_default();
    let view = GoalAnswer {
        name: name.to_owned(),
        active,
        text: outcome::head(said, super::OUTPUT_MAX),
        tokens_in: spend.tokens_in,
        tokens_out: spend.tokens_out,
        cost_usd: spend.cost_usd,
    };
    let stands = if active { "A goal is open" } else { "No goal is open" };
    let text = format!("{stands} in session '{name}'. Next: {next}.");
    ToolResult::new(&view, text)
}
