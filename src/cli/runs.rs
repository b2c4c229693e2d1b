//! `clawo runs`: the turns of every process, what they cost and whether checks agreed.

use clap::{Args, ValueEnum};
use serde_json::json;

use super::{
    context::Context,
    failure::{Failure, Outcome},
    table::Table,
};
use crate::{
    app::Mode,
    kernel::ledger::{self, GroupBy, LedgerPage, LedgerQuery},
    model::Time,
    store::ledger::Row,
};

/// Longest error shown in the table, in characters.
const ERROR_MAX: usize = 60;

/// Arguments of `clawo runs`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunsArgs {
    /// Turns from here on: an age (30m, 24h, 7d, 2w), milliseconds since 1970, or a timestamp with offset
    #[arg(long, value_name = "TIME", default_value = "24h")]
    since: String,
    /// Turns before this, in the same forms
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Most turns shown, the newest
    #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    limit: u16,
    /// Only turns of this session
    #[arg(long, value_name = "NAME")]
    session: Option<String>,
    /// Only turns of this engine
    #[arg(short, long, value_name = "ENGINE")]
    engine: Option<String>,
    /// Only turns of this model
    #[arg(short, long, value_name = "MODEL")]
    model: Option<String>,
    /// Only turns of this run
    #[arg(long, value_name = "RUN")]
    parent: Option<String>,
    /// Only turns of runs whose checks passed
    #[arg(long, conflicts_with = "refuted")]
    verified: bool,
    /// Only turns of runs whose checks failed
    #[arg(long)]
    refuted: bool,
    /// Sums instead of turns
    #[arg(long, value_enum, value_name = "WHAT")]
    by: Option<By>,
}

/// What turns are summed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Engine,
    Model,
    Day,
    Parent,
}

impl From<By> for GroupBy {
    fn from(by: By) -> Self {
        match by {
            By::Engine => Self::Engine,
            By::Model => Self::Model,
            By::Day => Self::Day,
            By::Parent => Self::Parent,
        }
    }
}

/// Shows them.
pub(crate) fn run(context: &Context, args: &RunsArgs) -> Outcome {
    context.with_app(Mode::Record, async |app| {
        let now = app.kernel.services().clock.wall();
        let verified = if args.verified { Some(true) } else { args.refuted.then_some(false) };
        let query = LedgerQuery {
            since: Some(instant("--since", &args.since, now)?),
            until: args.until.as_deref().map(|text| instant("--until", text, now)).transpose()?,
            session: args.session.clone(),
            engine: args.engine.clone(),
            model: args.model.clone(),
            parent: args.parent.clone(),
            verified,
            limit: usize::from(args.limit),
            by: args.by.map(Into::into),
        };
        let page = app.kernel.ledger(query).await?;
        context.out.document(&json!(page));
        match &page.groups {
            Some(_) => groups(context, &page),
            None => turns(context, &page),
        }
        for line in footer(&page) {
            context.out.line(line);
        }
        Ok(0)
    })
}

fn instant(flag: &str, text: &str, now: Time) -> Result<Time, Failure> {
    ledger::instant(text, now)
        .map_err(|why| Failure::usage(format!("{flag}: {why}"), "for example --since 24h, or --since 2w"))
}

fn turns(context: &Context, page: &LedgerPage) {
    let header = ["TIME", "SESSION", "ENGINE", "TURN", "IN", "OUT", "COST", "DUR", "VERIFIED", "STATUS"];
    let mut table = Table::new(header);
    for row in &page.rows {
        table.row([
            context.out.time(row.ts),
            row.session.clone(),
            row.engine.clone(),
            row.turn.to_string(),
            row.tokens_in.to_string(),
            row.tokens_out.to_string(),
            cost(row),
            seconds(row.duration_ms),
            match row.verified {
                Some(true) => "yes",
                Some(false) => "NO",
                None => "—",
            }
            .to_owned(),
            status(row),
        ]);
    }
    context.out.table(&table, "There are no such turns.");
}

fn groups(context: &Context, page: &LedgerPage) {
    let mut table = Table::new(["WHAT", "TURNS", "IN", "OUT", "COST"]);
    for group in page.groups.iter().flatten() {
        table.row([
            group.key.clone(),
            group.rows.to_string(),
            group.tokens_in.to_string(),
            group.tokens_out.to_string(),
            format!("{:.4}", group.cost_usd),
        ]);
    }
    context.out.table(&table, "There are no such turns.");
}

/// A cost that rests on a guess ends in a tilde.
fn cost(row: &Row) -> String {
    let guess = row.tokens_estimated || (row.cost_source == "none" && row.cost_usd > 0.0);
    format!("{:.4}{}", row.cost_usd, if guess { "~" } else { "" })
}

fn seconds(ms: u64) -> String {
    format!("{}.{}s", ms / 1000, ms % 1000 / 100)
}

fn status(row: &Row) -> String {
    match (&row.error, row.ok) {
        (Some(error), _) => {
            let mut text: String = error.chars().take(ERROR_MAX).collect();
            if error.chars().count() > ERROR_MAX {
                text.push('…');
            }
            format!("error: {text}")
        }
        (None, true) => "ok".to_owned(),
        (None, false) => "not counted as succeeded".to_owned(),
    }
}

fn footer(page: &LedgerPage) -> Vec<String> {
    let sum = &page.summary;
    if sum.rows == 0 && sum.skipped_lines == 0 {
        return Vec::new();
    }
    let shown = page.rows.len() as u64;
    let about = if page.groups.is_none() && shown < sum.rows {
        format!(" (the newest {shown} are shown)")
    } else {
        String::new()
    };
    let mut lines = vec![format!(
        "{} turns{about}, {:.4} USD, {} tokens in, {} tokens out",
        sum.rows, sum.cost_usd, sum.tokens_in, sum.tokens_out
    )];
    let engines = sum.by_engine.iter().map(|(name, of)| format!("{name} {:.4} USD in {} turns", of.cost_usd, of.rows));
    let engines: Vec<String> = engines.collect();
    if !engines.is_empty() {
        lines.push(engines.join(", "));
    }
    lines.push(match sum.unverified_rows {
        0 => "checks judged the run of every turn".to_owned(),
        1 => "nothing checked 1 of these turns".to_owned(),
        n => format!("nothing checked {n} of these turns"),
    });
    if sum.estimated_rows > 0 {
        lines.push(format!("~ the tokens of {} turns were counted from the length of their texts", sum.estimated_rows));
    }
    if sum.skipped_lines > 0 {
        lines.push(format!("{} lines of the ledger are damaged and were skipped", sum.skipped_lines));
    }
    lines
}
