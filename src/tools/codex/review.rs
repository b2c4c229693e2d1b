//! `codex_review`: one review by Codex.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    engines::Ask,
    kernel::Error,
    model::Code,
    tools::{
        CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset, outcome,
        registry::{About, Length},
    },
};

/// Longest review in an answer, in bytes; with all else it stays below the cap of a result.
const REVIEW_MAX: usize = 40_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Name of the session.
    name: String,
    /// Review what is not committed yet. Default false.
    uncommitted: Option<bool>,
    /// Review what differs from this branch.
    #[schemars(length(min = 1, max = 256))]
    base: Option<String>,
    /// Review this commit.
    #[schemars(length(min = 1, max = 256))]
    commit: Option<String>,
    /// Review what these words describe.
    #[schemars(length(min = 1, max = 100_000))]
    instructions: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Said {
    review: String,
}

/// A review.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Output {
    /// The session.
    name: String,
    /// What the reviewer found, cut when it is long.
    review: String,
    /// Input tokens of it, as far as Codex tells: it tells little of its reviewer.
    tokens_in: u64,
    /// Output tokens of it; estimated from the text where Codex tells none.
    tokens_out: u64,
    /// US dollars of it.
    cost_usd: f64,
}

/// The tool.
pub(super) fn tool() -> Tool {
    let about = About {
        name: "codex_review",
        title: "Review by codex",
        description: "Has a session on codex-app review exactly one range of changes (uncommitted, base, commit or \
instructions) and answers with the findings once they are there; use it for a second opinion, never as a verdict: \
verify_run gives that. Next: session_send to have findings fixed.",
        toolset: Toolset::Codex,
        hints: Hints::WORK,
        length: Length::Works,
        pairs: &["session_send"],
    };
    Tool::new::<Args, Output, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let scope = json!({
        "uncommitted": args.uncommitted, "base": args.base, "commit": args.commit, "instructions": args.instructions,
    });
    let texts = [&args.base, &args.commit, &args.instructions].into_iter().flatten();
    if usize::from(args.uncommitted.unwrap_or(false)) + texts.clone().count() != 1 {
        let text = "give exactly one of uncommitted, base, commit and instructions";
        return Err(Error::new(Code::InvalidArgument, text));
    }
    if [&args.base, &args.commit].into_iter().flatten().any(|name| name.starts_with('-')) {
        return Err(Error::new(Code::InvalidArgument, "base, commit: must not begin with '-'"));
    }
    let (said, turn) = super::ask::<Said>(&kernel, &args.name, Ask::Review(scope)).await?;
    let spend = turn.map(|turn| turn.spend).unwrap_or_default();
    let long = said.review.len() > REVIEW_MAX;
    let output = Output {
        name: args.name,
        review: outcome::head(&said.review, REVIEW_MAX),
        tokens_in: spend.tokens_in,
        tokens_out: spend.tokens_out,
        cost_usd: spend.cost_usd,
    };
    let text = format!("{}\n\nNext: session_send to have findings fixed.", outcome::head(&output.review, 1_000));
    let result = ToolResult::new(&output, text)?;
    Ok(if long { result.with("truncated", vec!["review: too long"]) } else { result })
}
