//! `clawo gc`: deletes old runs that have ended; a live, parked or resumable run is never touched.

use std::collections::HashMap;

use clap::{Args, ValueEnum};
use serde_json::json;

use super::{
    context::Context,
    failure::{Failure, Outcome},
    table::Table,
};
use crate::{
    app::{App, Mode},
    kernel::{ListQuery, view::ListEntry},
    model::{Code, RunId, RunState},
    store::{GcItem, GcOptions, Standing},
    sys::tasks,
};

/// Runs read at once.
const PAGE: usize = 500;
/// Age limit where neither an age nor a number was given.
const DEFAULT_AGE_MS: i64 = 30 * DAY_MS;
/// Milliseconds in a day.
const DAY_MS: i64 = 86_400_000;

/// Arguments of `clawo gc`.
#[derive(Debug, Clone, Args)]
pub(crate) struct GcArgs {
    /// Only runs whose last change is older, as a number with h, d or w [default: 30d, none with --keep]
    #[arg(long, value_name = "AGE", value_parser = age)]
    older_than: Option<i64>,
    /// Keep this many of the newest that ended in these states, whatever their age
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
    /// Only runs in these states
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Ended::Completed, Ended::Failed, Ended::Cancelled])]
    state: Vec<Ended>,
    /// Say what would be freed and delete nothing
    #[arg(long)]
    dry_run: bool,
}

/// States in which a run has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Ended {
    Completed,
    Failed,
    Cancelled,
}

impl Ended {
    fn run_state(self) -> RunState {
        match self {
            Self::Completed => RunState::Completed,
            Self::Failed => RunState::Failed,
            Self::Cancelled => RunState::Cancelled,
        }
    }
}

/// Reads `30d`, `12h`, `2w` as milliseconds.
fn age(text: &str) -> Result<i64, String> {
    let wrong = || format!("'{text}' is not an age; write a whole number with h, d or w, for example 30d");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let number: i64 = text.strip_suffix(unit).and_then(|n| n.parse().ok()).ok_or_else(wrong)?;
    let factor = match unit {
        'h' => DAY_MS / 24,
        'd' => DAY_MS,
        'w' => 7 * DAY_MS,
        _ => return Err(wrong()),
    };
    number.checked_mul(factor).filter(|ms| *ms >= 0).ok_or_else(wrong)
}

/// Deletes them.
pub(crate) fn run(context: &Context, args: &GcArgs) -> Outcome {
    context.with_app(Mode::Record, async |app| {
        let chosen = choose(app, args).await?;
        let mut table = Table::new(["RUN", "WORKFLOW", "STATE", "CHANGED", "BYTES"]);
        let (mut freed, mut runs, mut failed) = (0, Vec::new(), Vec::new());
        for (item, workflow) in &chosen {
            if !args.dry_run
                && let Err(e) = app.kernel.delete(item.run_id.as_str()).await
            {
                // One run that cannot go must not keep the others.
                failed.push(json!({ "runId": item.run_id, "error": e.message, "code": e.code }));
                context.out.line(format!("run {} stays: {}", item.run_id, e.message));
                continue;
            }
            freed += item.bytes;
            runs.push(json!({ "runId": item.run_id, "bytes": item.bytes }));
            table.row([
                item.run_id.to_string(),
                workflow.clone(),
                item.state.clone(),
                context.out.time(item.ended_at),
                item.bytes.to_string(),
            ]);
        }
        context.out.document(&json!({ "dryRun": args.dry_run, "bytes": freed, "runs": runs, "failed": failed }));
        context.out.table(&table, "There is nothing to delete.");
        let verb = if args.dry_run { "would be freed" } else { "freed" };
        context.out.line(format!("{} runs, {freed} bytes {verb}", runs.len()));
        // The reasons were said; the status says that something is left to do.
        Ok(if failed.is_empty() { 0 } else { Code::Busy.exit() })
    })
}

/// Runs that may go, oldest first, with the names of their workflows.
async fn choose(app: &App, args: &GcArgs) -> Result<Vec<(GcItem, String)>, Failure> {
    let runs: HashMap<RunId, ListEntry> = all(app).await?.into_iter().map(|run| (run.run_id.clone(), run)).collect();
    let (store, options) = (app.store.clone(), options(args));
    let planned = tasks::blocking("gc", move || {
        let plan = store.plan_gc(&options, &mut |run| runs.get(run).map_or(Standing::Kept, standing));
        plan.map(|items| (items, runs))
    });
    let failed = |e: &dyn std::fmt::Display| Failure::io("plan", e);
    let (items, runs) = planned.await.map_err(|e| failed(&e))?.map_err(|e| failed(&e))?;
    let workflow = |item: &GcItem| runs.get(&item.run_id).map(|run| run.workflow.clone()).unwrap_or_default();
    let named = |item: GcItem| {
        let name = workflow(&item);
        (item, name)
    };
    Ok(items.into_iter().map(named).collect())
}

/// How a run stands that no live process holds.
fn standing(run: &ListEntry) -> Standing {
    match run.state.filter(|state| state.is_terminal() && !run.live) {
        Some(state) => Standing::Ended { state: state.as_str().to_owned(), at: run.updated_at },
        None => Standing::Kept,
    }
}

fn options(args: &GcArgs) -> GcOptions {
    let older_than_ms = args.older_than.or(if args.keep.is_some() { None } else { Some(DEFAULT_AGE_MS) });
    let states = args.state.iter().map(|state| state.run_state().as_str().to_owned()).collect();
    GcOptions { older_than_ms, keep: args.keep, states }
}

async fn all(app: &App) -> Result<Vec<ListEntry>, Failure> {
    let mut runs = Vec::new();
    let mut query = ListQuery { limit: PAGE, ..ListQuery::default() };
    loop {
        let page = app.kernel.list(query.clone()).await?;
        runs.extend(page.runs);
        match page.next_cursor {
            Some(cursor) => query.cursor = Some(cursor),
            None => return Ok(runs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Time;

    fn entry(id: &str, state: RunState, days: i64) -> ListEntry {
        ListEntry {
            run_id: RunId::parse(id).unwrap(),
            workflow: "w".to_owned(),
            state: Some(state),
            outcome: None,
            created_at: Time::from_millis(0),
            updated_at: Time::from_millis(-days * DAY_MS),
            current_node: None,
            cost_usd: 0.0,
            live: false,
            interrupted: false,
            damaged: None,
            parent: None,
        }
    }

    #[test]
    fn only_ended_runs_may_go() {
        let mut live = entry("live", RunState::Completed, 90);
        live.live = true;
        for kept in [entry("parked", RunState::AwaitingHuman, 90), entry("cut", RunState::Running, 90), live] {
            assert_eq!(standing(&kept), Standing::Kept, "{kept:?}");
        }
        let mut damaged = entry("damaged", RunState::Completed, 90);
        damaged.state = None;
        assert_eq!(standing(&damaged), Standing::Kept);
        let at = Time::from_millis(-40 * DAY_MS);
        assert_eq!(standing(&entry("red", RunState::Failed, 40)), Standing::Ended { state: "failed".to_owned(), at });
    }

    #[test]
    fn an_age_is_the_default_only_without_a_number() {
        let asked = |older_than, keep| options(&GcArgs { older_than, keep, state: vec![Ended::Failed], dry_run: true });
        let wanted = |older_than_ms, keep| GcOptions { older_than_ms, keep, states: vec!["failed".to_owned()] };
        assert_eq!(asked(None, None), wanted(Some(DEFAULT_AGE_MS), None));
        assert_eq!(asked(None, Some(3)), wanted(None, Some(3)));
        assert_eq!(asked(Some(DAY_MS), Some(3)), wanted(Some(DAY_MS), Some(3)));
    }

    #[test]
    fn ages_are_read_strictly() {
        assert_eq!(age("2w"), Ok(14 * DAY_MS));
        assert_eq!(age("36h"), Ok(36 * DAY_MS / 24));
        for bad in ["", "d", "30", "-1d", "1.5d", "30m", "9999999999999999d", "é"] {
            assert!(age(bad).is_err(), "{bad}");
        }
    }
}
