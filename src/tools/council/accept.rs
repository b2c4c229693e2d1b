//! `council_accept`: brings a council's work into the branch it is for.

use schemars::JsonSchema;
use serde::Deserialize;

use super::shapes::AcceptBrief;
use crate::{
    git::Strategy,
    kernel::councils::MERGE_MESSAGE_MAX,
    nodes::council::{
        accept::{AcceptView, Wish},
        disposition::MergeKind,
    },
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        args::invalid,
        outcome::counted,
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Id of the council.
    id: String,
    /// auto fast-forwards when it can and merges otherwise. Default auto.
    strategy: Option<StrategyShape>,
    /// Message of a merge commit, at most 5000 characters. Default: the task.
    message: Option<String>,
    /// Accept refuted, failed, rejected or incomplete work too. Default false.
    #[serde(default)]
    force: bool,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum StrategyShape {
    Auto,
    FfOnly,
    Merge,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "council_accept",
        title: "Accept a council's work",
        description: "Merges a council's work into the branch it was started on, without its plan and reviews, and removes the \
council's worktrees and branches; use it after council_review. The checkout must be clean; when something is in the \
way nothing is changed. Call it again after a crash: it finishes what it began. Next: council_status, or verify_run on \
the merged branch.",
        toolset: Toolset::Council,
        hints: Hints::END,
        length: Length::Short,
        pairs: &["council_review"],
    };
    Tool::new::<Args, AcceptBrief, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let id = super::checked(&args.id)?;
    let message = args.message.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    if message.as_ref().is_some_and(|text| text.chars().count() > MERGE_MESSAGE_MAX) {
        return Err(invalid("message", format!("give at most {MERGE_MESSAGE_MAX} characters")));
    }
    let strategy = match args.strategy {
        None | Some(StrategyShape::Auto) => Strategy::Auto,
        Some(StrategyShape::FfOnly) => Strategy::FastForwardOnly,
        Some(StrategyShape::Merge) => Strategy::Merge,
    };
    let wish = Wish { strategy, message, force: args.force };
    let view = kernel.get().await?.council_accept(id, wish).await?;
    ToolResult::new(&view, summary(&view))
}

fn summary(view: &AcceptView) -> String {
    let (id, branch) = (&view.council_id, &view.base_branch);
    let mut text = match (view.already_accepted, view.merge_kind) {
        (true, _) => format!("Council {id} was accepted before. "),
        (false, MergeKind::None) => format!("Council {id} brings nothing that {branch} does not have. "),
        (false, MergeKind::FastForward | MergeKind::MergeCommit) => {
            format!("The work of council {id} is in {branch} at {}. ", view.after)
        }
    };
    if view.cleanup_errors.is_empty() {
        text.push_str("Next: verify_run, when you want the branch checked.");
    } else {
        let errors = counted(view.cleanup_errors.len(), "thing");
        text.push_str(&format!("{errors} could not be removed. Next: council_accept again once it can be."));
    }
    text
}
