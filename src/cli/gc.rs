//! `clawo gc`: deletes old runs that have ended; a live, parked or resumable run is never touched.

use std::path::Path;

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
    model::{Code, RunState},
    sys::{Clock, Fs, Kind, SystemClock},
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
    /// Keep this many of the newest runs, whatever their age
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
        let chosen = choose(args, all(app).await?, SystemClock.wall().millis());
        let mut table = Table::new(["RUN", "WORKFLOW", "STATE", "CHANGED", "BYTES"]);
        let (mut freed, mut runs, mut failed) = (0, Vec::new(), Vec::new());
        for entry in &chosen {
            let bytes = size(app.fs.as_ref(), &app.config.wf_dir.join(entry.run_id.as_str()));
            if !args.dry_run
                && let Err(e) = app.kernel.delete(entry.run_id.as_str()).await
            {
                // One run that cannot go must not keep the others.
                failed.push(json!({ "runId": entry.run_id, "error": e.message, "code": e.code }));
                context.out.line(format!("run {} stays: {}", entry.run_id, e.message));
                continue;
            }
            freed += bytes;
            runs.push(json!({ "runId": entry.run_id, "bytes": bytes }));
            table.row([
                entry.run_id.to_string(),
                entry.workflow.clone(),
                entry.state.map_or("-", RunState::as_str).to_owned(),
                context.out.time(entry.updated_at),
                bytes.to_string(),
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

/// Runs that may go, newest first as they came.
fn choose(args: &GcArgs, runs: Vec<ListEntry>, now: i64) -> Vec<ListEntry> {
    let age = args.older_than.or(if args.keep.is_some() { None } else { Some(DEFAULT_AGE_MS) });
    runs.into_iter()
        .skip(args.keep.unwrap_or(0))
        .filter(|run| !run.live && run.damaged.is_none())
        .filter(|run| run.state.and_then(ended).is_some_and(|state| args.state.contains(&state)))
        .filter(|run| age.is_none_or(|age| now.saturating_sub(run.updated_at.millis()) >= age))
        .collect()
}

fn ended(state: RunState) -> Option<Ended> {
    match state {
        RunState::Completed => Some(Ended::Completed),
        RunState::Failed => Some(Ended::Failed),
        RunState::Cancelled => Some(Ended::Cancelled),
        RunState::Pending | RunState::Running | RunState::AwaitingHuman | RunState::Verifying => None,
    }
}

/// Bytes of the files below `path`; what cannot be read counts nothing.
fn size(fs: &dyn Fs, path: &Path) -> u64 {
    match fs.metadata(path) {
        Ok(meta) if meta.kind == Kind::Dir => {
            fs.list(path).unwrap_or_default().iter().map(|name| size(fs, &path.join(name))).sum()
        }
        Ok(meta) => meta.len,
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{RunId, Time};

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

    fn chosen(older_than: Option<i64>, keep: Option<usize>, state: &[Ended]) -> Vec<String> {
        let mut live = entry("live", RunState::Completed, 90);
        live.live = true;
        let runs = vec![
            entry("new", RunState::Completed, 1),
            entry("parked", RunState::AwaitingHuman, 90),
            entry("cut", RunState::Running, 90),
            live,
            entry("old", RunState::Completed, 31),
            entry("red", RunState::Failed, 40),
        ];
        let args = GcArgs { older_than, keep, state: state.to_vec(), dry_run: true };
        choose(&args, runs, 0).into_iter().map(|r| r.run_id.to_string()).collect()
    }

    #[test]
    fn only_ended_runs_go() {
        let every = [Ended::Completed, Ended::Failed, Ended::Cancelled];
        assert_eq!(chosen(None, None, &every), ["old", "red"]);
        assert_eq!(chosen(Some(35 * DAY_MS), None, &every), ["red"]);
        assert_eq!(chosen(None, Some(0), &every), ["new", "old", "red"]);
        assert_eq!(chosen(None, Some(1), &[Ended::Completed]), ["old"]);
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
