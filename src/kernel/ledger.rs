//! Reading the ledger: which turns there were, what they cost, and whether checks agreed with them.
//!
//! The verdict of a turn is that of its run, so it is joined here and never stored.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Error, Inner, Result, query, verdict};
use crate::{
    model::{Code, Contract, NodeKind, RunId, RunOutcome, Time, WorkflowSpec, spec::ContractSource},
    store::ledger::{Row, Shard, shards},
    sys::tasks,
};

/// Most rows in one answer.
const ROWS_MAX: usize = 10_000;
/// Most groups in one answer; what goes beyond them is summed under `(others)`.
const GROUPS_MAX: usize = 1000;
/// Group of what has no name.
const NONE: &str = "(none)";
/// Group of what is beyond the most groups.
const OTHERS: &str = "(others)";
/// Turns whose run is looked up are counted to this many runs; a period with more shows the rest as unchecked.
const RUNS_MAX: usize = 20_000;

/// What turns are summed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// Engine.
    Engine,
    /// Model.
    Model,
    /// UTC day.
    Day,
    /// Run.
    Parent,
}

/// Which turns.
#[derive(Debug, Clone, Default)]
pub struct LedgerQuery {
    /// Only turns that ended at or after it.
    pub since: Option<Time>,
    /// Only turns that ended before it.
    pub until: Option<Time>,
    /// Only turns of this session.
    pub session: Option<String>,
    /// Only turns of this engine.
    pub engine: Option<String>,
    /// Only turns of this model.
    pub model: Option<String>,
    /// Only turns of this run.
    pub parent: Option<String>,
    /// Only turns whose run's checks passed, or failed.
    pub verified: Option<bool>,
    /// Most rows, counted after every filter; at most 10 000.
    pub limit: usize,
    /// Sums besides.
    pub by: Option<GroupBy>,
}

/// Turns and their sums.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerPage {
    /// The newest that match, oldest first.
    pub rows: Vec<Row>,
    /// Sums over everything that matches, also over what the limit leaves out.
    pub summary: LedgerSummary,
    /// Sums by group, dearest first, when they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<LedgerGroup>>,
}

/// Sums.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerSummary {
    /// Turns.
    pub rows: u64,
    /// US dollars, to four decimals.
    pub cost_usd: f64,
    /// Tokens read.
    pub tokens_in: u64,
    /// Tokens written.
    pub tokens_out: u64,
    /// Turns whose tokens were counted from the length of their texts.
    pub estimated_rows: u64,
    /// Turns of runs whose checks passed.
    pub verified_rows: u64,
    /// Turns of runs whose checks failed.
    pub refuted_rows: u64,
    /// Turns that no check judged.
    pub unverified_rows: u64,
    /// Lines that are no rows.
    pub skipped_lines: u64,
    /// By engine.
    pub by_engine: BTreeMap<String, EngineSum>,
}

/// Sums of one engine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EngineSum {
    /// Turns.
    pub rows: u64,
    /// US dollars, to four decimals.
    pub cost_usd: f64,
}

/// Sums of one group.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerGroup {
    /// The engine, model, day or run.
    pub key: String,
    /// Turns.
    pub rows: u64,
    /// US dollars, to four decimals.
    pub cost_usd: f64,
    /// Tokens read.
    pub tokens_in: u64,
    /// Tokens written.
    pub tokens_out: u64,
}

/// An instant as callers write it: an age (`30m`, `24h`, `7d`, `2w`), milliseconds since the epoch, or a timestamp
/// with its offset.
pub fn instant(text: &str, now: Time) -> std::result::Result<Time, String> {
    let wrong = || {
        format!(
            "'{text}' is no time; write an age (30m, 24h, 7d, 2w), milliseconds since 1970, or a timestamp with offset"
        )
    };
    let trimmed = text.trim();
    if let Ok(ms) = trimmed.parse::<i64>() {
        return Timestamp::from_millisecond(ms).map(Time::new).map_err(|_| wrong());
    }
    if let Ok(at) = trimmed.parse::<Timestamp>() {
        return Ok(Time::new(at));
    }
    let unit = trimmed.chars().last().ok_or_else(wrong)?;
    let number = trimmed.strip_suffix(unit).filter(|n| n.bytes().all(|b| b.is_ascii_digit()));
    let number: i64 = number.and_then(|n| n.parse().ok()).ok_or_else(wrong)?;
    let minutes: i64 = match unit {
        'm' => 1,
        'h' => 60,
        'd' => 24 * 60,
        'w' => 7 * 24 * 60,
        _ => return Err(wrong()),
    };
    let age = minutes.checked_mul(60_000).and_then(|unit| unit.checked_mul(number)).ok_or_else(wrong)?;
    let at = now.millis().checked_sub(age).ok_or_else(wrong)?;
    Timestamp::from_millisecond(at).map(Time::new).map_err(|_| wrong())
}

/// What a run's end says about its turns.
#[derive(Debug, Clone, Default)]
struct Judged {
    verified: Option<bool>,
    evidence_id: Option<String>,
    contract_id: Option<String>,
}

/// Turns that match, with the verdicts of their runs.
pub(super) async fn query(kernel: &Arc<Inner>, asked: LedgerQuery) -> Result<LedgerPage> {
    let failed = |e: crate::sys::FsError| Error::new(Code::StoreUnavailable, format!("the ledger cannot be read: {e}"));
    let inner = Arc::clone(kernel);
    let found = tasks::blocking("ledger", move || {
        let services = &inner.services;
        shards(services.fs.as_ref(), &services.config.runs_dir)
    });
    let found = found.await.map_err(|e| super::internal(&e))?.map_err(failed)?;
    let mut gathered = Gathered::new(&asked);
    let mut runs: HashMap<String, Judged> = HashMap::new();
    for shard in found.into_iter().filter(|shard| in_period(shard, &asked)) {
        let (inner, wanted) = (Arc::clone(kernel), asked.clone());
        let read = tasks::blocking("ledger", move || {
            let mut rows = Vec::new();
            let skipped = shard.read(inner.services.fs.as_ref(), |row| {
                if matches(&wanted, &row) {
                    rows.push(row);
                }
            })?;
            // Writers of several processes may pass each other.
            rows.sort_by_key(|row| row.ts);
            Ok((rows, skipped))
        });
        let (rows, skipped) = read.await.map_err(|e| super::internal(&e))?.map_err(failed)?;
        gathered.summary.skipped_lines += skipped;
        for mut row in rows {
            if let Some(parent) = &row.parent {
                if !runs.contains_key(parent) && runs.len() < RUNS_MAX {
                    runs.insert(parent.clone(), judged(kernel, parent).await);
                }
                let judged = runs.get(parent).cloned().unwrap_or_default();
                row.verified = judged.verified;
                row.evidence_id = judged.evidence_id;
                row.contract_id = judged.contract_id;
            }
            if asked.verified.is_none_or(|wanted| row.verified == Some(wanted)) {
                gathered.add(row);
            }
        }
    }
    Ok(gathered.page())
}

/// Whether a shard may hold a row of the period; others are not opened.
fn in_period(shard: &Shard, asked: &LedgerQuery) -> bool {
    let day = |at: Time| at.to_string().chars().take(10).collect::<String>();
    asked.since.is_none_or(|at| shard.day >= day(at)) && asked.until.is_none_or(|at| shard.day <= day(at))
}

fn matches(asked: &LedgerQuery, row: &Row) -> bool {
    let same = |wanted: &Option<String>, is: Option<&str>| wanted.as_deref().is_none_or(|wanted| is == Some(wanted));
    asked.since.is_none_or(|at| row.ts >= at)
        && asked.until.is_none_or(|at| row.ts < at)
        && same(&asked.session, Some(&row.session))
        && same(&asked.engine, Some(&row.engine))
        && same(&asked.model, row.model.as_deref())
        && same(&asked.parent, row.parent.as_deref())
}

/// What a run says about its turns; nothing when it is gone, unfinished or judged by nobody.
async fn judged(kernel: &Arc<Inner>, run: &str) -> Judged {
    let Ok(id) = RunId::parse(run) else { return Judged::default() };
    let Ok(found) = query::load(kernel, &id).await else { return Judged::default() };
    let verified = match found.record.outcome {
        Some(RunOutcome::Verified) => true,
        Some(RunOutcome::Refuted) => false,
        Some(RunOutcome::Unverified) | None => return Judged::default(),
    };
    let shown = verdict::shown(&found.record);
    let node = shown.map(|verdict| verdict.node.as_str());
    Judged {
        verified: Some(verified),
        evidence_id: shown.and_then(|verdict| verdict.evidence_id.clone()),
        contract_id: contract(&found.spec, node).and_then(|contract| contract.id.clone()),
    }
}

/// The contract that `node` judged by.
fn contract<'a>(spec: &'a WorkflowSpec, node: Option<&str>) -> Option<&'a Contract> {
    let kind = node.and_then(|node| spec.node(node)).map(|(_, node)| &node.kind);
    match kind {
        Some(NodeKind::Verifier(verifier)) => match &verifier.contract {
            ContractSource::Inline(contract) => Some(contract),
            ContractSource::Run => spec.contract.as_ref(),
        },
        Some(
            NodeKind::Agent(_)
            | NodeKind::Fanout(_)
            | NodeKind::HumanGate(_)
            | NodeKind::Router(_)
            | NodeKind::Subflow(_)
            | NodeKind::Goal(_)
            | NodeKind::Council(_),
        )
        | None => spec.contract.as_ref(),
    }
}

/// What was gathered so far.
struct Gathered {
    by: Option<GroupBy>,
    limit: usize,
    newest: VecDeque<Row>,
    summary: LedgerSummary,
    groups: HashMap<String, LedgerGroup>,
}

impl Gathered {
    fn new(asked: &LedgerQuery) -> Self {
        Self {
            by: asked.by,
            limit: asked.limit.clamp(1, ROWS_MAX),
            newest: VecDeque::new(),
            summary: LedgerSummary::default(),
            groups: HashMap::new(),
        }
    }

    fn add(&mut self, row: Row) {
        let sum = &mut self.summary;
        sum.rows += 1;
        sum.cost_usd += row.cost_usd;
        sum.tokens_in = sum.tokens_in.saturating_add(row.tokens_in);
        sum.tokens_out = sum.tokens_out.saturating_add(row.tokens_out);
        sum.estimated_rows += u64::from(row.tokens_estimated);
        match row.verified {
            Some(true) => sum.verified_rows += 1,
            Some(false) => sum.refuted_rows += 1,
            None => sum.unverified_rows += 1,
        }
        if sum.by_engine.len() < GROUPS_MAX || sum.by_engine.contains_key(&row.engine) {
            let engine = sum.by_engine.entry(row.engine.clone()).or_default();
            engine.rows += 1;
            engine.cost_usd += row.cost_usd;
        }
        if let Some(by) = self.by {
            let key = match by {
                GroupBy::Engine => row.engine.clone(),
                GroupBy::Model => row.model.clone().unwrap_or_else(|| NONE.to_owned()),
                GroupBy::Day => row.ts.to_string().chars().take(10).collect(),
                GroupBy::Parent => row.parent.clone().unwrap_or_else(|| NONE.to_owned()),
            };
            let full = self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&key);
            let key = if full { OTHERS.to_owned() } else { key };
            let group = self.groups.entry(key.clone()).or_insert_with(|| LedgerGroup { key, ..LedgerGroup::default() });
            group.rows += 1;
            group.cost_usd += row.cost_usd;
            group.tokens_in = group.tokens_in.saturating_add(row.tokens_in);
            group.tokens_out = group.tokens_out.saturating_add(row.tokens_out);
        }
        if self.newest.len() == self.limit {
            self.newest.pop_front();
        }
        self.newest.push_back(row);
    }

    fn page(mut self) -> LedgerPage {
        self.summary.cost_usd = rounded(self.summary.cost_usd);
        for engine in self.summary.by_engine.values_mut() {
            engine.cost_usd = rounded(engine.cost_usd);
        }
        let by = self.by;
        let mut groups: Vec<LedgerGroup> = self.groups.into_values().collect();
        for group in &mut groups {
            group.cost_usd = rounded(group.cost_usd);
        }
        match by {
            Some(GroupBy::Day) => groups.sort_by(|a, b| a.key.cmp(&b.key)),
            Some(GroupBy::Engine | GroupBy::Model | GroupBy::Parent) | None => {
                groups.sort_by(|a, b| b.cost_usd.total_cmp(&a.cost_usd).then_with(|| a.key.cmp(&b.key)));
            }
        }
        LedgerPage { rows: self.newest.into(), summary: self.summary, groups: by.map(|_| groups) }
    }
}

/// To four decimals.
fn rounded(usd: f64) -> f64 {
    (usd * 10_000.0).round() / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Surface scenario 25.
    #[test]
    fn instants_are_read_strictly() {
        let now = Time::from_millis(1_800_000_000_000);
        let ago = |minutes: i64| Ok(now.plus_millis(-minutes * 60_000));
        assert_eq!(instant("30m", now), ago(30));
        assert_eq!(instant("24h", now), ago(24 * 60));
        assert_eq!(instant("7d", now), ago(7 * 24 * 60));
        assert_eq!(instant("2w", now), ago(14 * 24 * 60));
        assert_eq!(instant("1700000000000", now), Ok(Time::from_millis(1_700_000_000_000)));
        let with_offset = instant("2026-11-30T12:00:00+02:00", now).unwrap();
        assert_eq!(with_offset.to_string(), "2026-11-30T10:00:00.000Z");
        for bad in ["yesterday", "abc", "", "h", "1.5h", "-1h", "30s", "2026-11-30", "99999999999999999w", "é"] {
            assert!(instant(bad, now).is_err(), "{bad}");
        }
    }
}
