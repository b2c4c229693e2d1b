//! `council_review`: what a council has made, for whoever decides about it.

use schemars::JsonSchema;
use serde::Deserialize;

use super::shapes::ReviewBrief;
use crate::{
    nodes::council::review::ReviewView,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
        outcome::{RESULT_MAX, counted, wire_len},
        registry::{About, Length},
    },
};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Id of the council.
    id: String,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "council_review",
        title: "Review a council's work",
        description: "Shows what a council has made: plan, changed files, branches, reviews, votes, conflicts, what a merge would \
do, and how to review it; use it before you decide. It reads the council's integration branch and changes nothing. \
Read every changed file there yourself. Next: council_accept or council_reject.",
        toolset: Toolset::Council,
        hints: Hints::LOOK,
        length: Length::Short,
        pairs: &["council_accept", "council_reject"],
    };
    Tool::new::<Args, ReviewBrief, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let id = super::checked(&args.id)?;
    let mut view = kernel.get().await?.council_review(id).await?;
    let files = view.changed_files.len();
    let cut = fit(&mut view);
    let text = format!(
        "Council {0} ({1}): {2} changed on {3}. Read them there, for example with git show {3}:FILE. \
Next: council_accept {{\"id\": \"{0}\"}}, or council_reject with feedback.",
        view.council_id,
        view.status.as_str(),
        counted(files, "file"),
        view.integration_branch
    );
    let result = ToolResult::new(&view, text)?;
    Ok(if cut.is_empty() { result } else { result.with("truncated", cut) })
}

/// Cuts lists until the answer has the size of a result; tells what was cut.
fn fit(view: &mut ReviewView) -> Vec<&'static str> {
    let mut cut = Vec::new();
    let mut shorten = |view: &mut ReviewView, what: &'static str, half: fn(&mut ReviewView) -> bool| {
        while wire_len(view) > RESULT_MAX && half(view) {
            if !cut.contains(&what) {
                cut.push(what);
            }
        }
    };
    shorten(view, "changedFiles: git diff --stat of baseBranch and integrationBranch", |view| {
        let left = view.changed_files.len() / 2;
        view.changed_files_truncated |= left > 0;
        halve(&mut view.changed_files, 50)
    });
    shorten(view, "planContent: read planFile on integrationBranch", |view| {
        let Some(plan) = &mut view.plan_content else { return false };
        let end = (0..=plan.len() / 2).rev().find(|end| plan.is_char_boundary(*end)).unwrap_or(0);
        let more = end > 1_000;
        plan.truncate(end);
        more
    });
    shorten(view, "votes: call council_status", |view| halve(&mut view.votes, 16));
    shorten(view, "disagreement: call council_status", |view| {
        let Some(disagreement) = &mut view.disagreement else { return false };
        disagreement.truncated = true;
        halve(&mut disagreement.files, 5)
    });
    shorten(view, "conflicts: call council_status", |view| halve(&mut view.conflicts, 2));
    shorten(view, "changedFiles: git diff --stat of baseBranch and integrationBranch", |view| {
        halve(&mut view.changed_files, 1)
    });
    shorten(view, "reviews and conflicts: read integrationBranch", |view| {
        halve(&mut view.reviews, 1) | halve(&mut view.merge_conflicts, 1)
    });
    cut
}

/// Drops the second half of a list that has more than `least` entries.
fn halve<T>(list: &mut Vec<T>, least: usize) -> bool {
    if list.len() <= least {
        return false;
    }
    list.truncate((list.len() / 2).max(least));
    true
}
