//! `codex_models`: the models Codex offers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Named;
use crate::{
    engines::Ask,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset, outcome,
        registry::{About, Length},
    },
};

/// A model.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Model {
    /// What session_start takes as model.
    id: String,
    /// For people.
    name: String,
    /// What it is for.
    description: String,
    /// Whether it is used when none is chosen.
    is_default: bool,
    /// Effort when none is chosen.
    default_effort: Option<String>,
    /// Efforts it takes.
    efforts: Vec<String>,
}

/// The models.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// In the order of the program.
    models: Vec<Model>,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "codex_models",
        title: "Models of codex",
        description: "Lists the models that the account of a session on codex-app can use, with the efforts each takes; use \
it before session_switch_model. Next: session_switch_model or session_send.",
        toolset: Toolset::Codex,
        hints: Hints::LOOK,
        length: Length::Short,
        pairs: &["session_switch_model"],
    };
    Tool::new::<Named, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Named, _context: CallContext) -> Outcome {
    let (output, _) = super::ask::<Output>(&kernel, &args.name, Ask::Models).await?;
    let models = outcome::counted(output.models.len(), "model");
    ToolResult::new(&output, format!("{models}. Next: session_switch_model with an id."))
}
