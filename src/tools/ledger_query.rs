//! `ledger_query`: what turns there were and what they cost.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{
    CallContext, Hints, KernelHandle, Outcome, Tool, ToolResult, Toolset,
    outcome::{RESULT_MAX, counted, wire_len},
    registry::{About, Length},
};
use crate::{
    kernel::{
        Error,
        ledger::{self, GroupBy, LedgerPage, LedgerQuery},
    },
    model::{Code, Time},
};

/// Period where nothing is said.
const SINCE: &str = "24h";
/// Rows where nothing is said.
const ROWS: usize = 200;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    /// Turns from here on: an age (30m, 24h, 7d, 2w), milliseconds since 1970, or a timestamp with offset. Default 24h.
    since: Option<String>,
    /// Turns before this, in the same forms.
    until: Option<String>,
    /// Only turns of this session.
    session: Option<String>,
    /// Only turns of this engine.
    engine: Option<String>,
    /// Only turns of this model.
    model: Option<String>,
    /// Only turns of this run.
    parent: Option<String>,
    /// Only turns of runs whose checks passed (true) or failed (false).
    verified: Option<bool>,
    /// Most rows in the answer, the newest. Default 200.
    #[schemars(range(min = 1, max = 10_000))]
    limit: Option<usize>,
    /// Sums by engine, model, day or parent besides.
    by: Option<GroupBy>,
}

/// The tool.
pub fn tool() -> Tool {
    let about = About {
        name: "ledger_query",
        title: "Turns and their cost",
        description: "Lists the agent turns of every process with tokens, cost and whether the checks of their run \
passed; use it to see what was spent, on what. The summary counts everything that matches, also beyond the limit. ok is \
only the engine's word on its own turn; verified is absent where no check judged it. Next: workflow_status with a \
row's parent.",
        toolset: Toolset::Runs,
        hints: Hints::LOOK,
        length: Length::Short,
        pairs: &["workflow_status"],
    };
    Tool::new::<Args, LedgerPage, _, _>(about, run)
}

async fn run(kernel: KernelHandle, args: Args, _context: CallContext) -> Outcome {
    let kernel = kernel.get().await?;
    let now = kernel.services().clock.wall();
    let query = LedgerQuery {
        since: Some(instant("since", args.since.as_deref().unwrap_or(SINCE), now)?),
        until: args.until.as_deref().map(|text| instant("until", text, now)).transpose()?,
        session: args.session,
        engine: args.engine,
        model: args.model,
        parent: args.parent,
        verified: args.verified,
        limit: args.limit.unwrap_or(ROWS),
        by: args.by,
    };
    let mut page = kernel.ledger(query).await?;
    let given = page.rows.len();
    // The newest are kept; the summary says how many there are.
    while wire_len(&page) > RESULT_MAX && page.rows.len() > 1 {
        page.rows.drain(..page.rows.len().div_ceil(2));
    }
    if let Some(groups) = &mut page.groups
        && wire_len(&groups) > RESULT_MAX / 2
    {
        groups.truncate(100);
    }
    let sum = &page.summary;
    let text = format!(
        "{}, {:.4} USD; checks passed for {}, failed for {}, judged nothing for {}. Next: workflow_status with a parent.",
        counted(usize::try_from(sum.rows).unwrap_or(usize::MAX), "turn"),
        sum.cost_usd,
        sum.verified_rows,
        sum.refuted_rows,
        sum.unverified_rows,
    );
    let cut = page.rows.len() < given;
    let mut result = ToolResult::new(&page, text)?;
    if cut {
        let note = "rows: only the newest that fit; narrow the period or the filters for others";
        result = result.with("truncated", Value::from(vec![note]));
    }
    Ok(result)
}

fn instant(field: &str, text: &str, now: Time) -> Result<Time, Error> {
    ledger::instant(text, now).map_err(|why| Error::new(Code::InvalidArgument, format!("{field}: {why}")))
}
