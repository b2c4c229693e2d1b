//! Folding what was used and what was judged. Pure.

use crate::model::{
    NodeId, RunId, RunRecord,
    run::{RedStreak, Spend, Verdict},
};

/// Takes a child's total in: what is new of it.
pub(super) fn apply_child_cost(record: &mut RunRecord, child_run_id: &RunId, node: Option<&NodeId>, spend: &Spend) {
    let known = record.child_spend.entry(child_run_id.clone()).or_default();
    let more = Spend {
        cost_usd: usd((spend.cost_usd - known.cost_usd).max(0.0)),
        turns: spend.turns.saturating_sub(known.turns),
        tokens_in: spend.tokens_in.saturating_sub(known.tokens_in),
        tokens_out: spend.tokens_out.saturating_sub(known.tokens_out),
        estimated: spend.estimated,
    };
    add(known, &more);
    apply_cost(record, node, &more);
}

/// Adds to what the run and one of its nodes have used.
pub(super) fn apply_cost(record: &mut RunRecord, node: Option<&NodeId>, spend: &Spend) {
    add(&mut record.spend, spend);
    if let Some(entry) = node.and_then(|node| record.node_mut(node.as_str())) {
        entry.cost_usd = usd(entry.cost_usd + spend.cost_usd);
    }
}

fn add(sum: &mut Spend, more: &Spend) {
    sum.cost_usd = usd(sum.cost_usd + more.cost_usd);
    sum.turns = sum.turns.saturating_add(more.turns);
    sum.tokens_in = sum.tokens_in.saturating_add(more.tokens_in);
    sum.tokens_out = sum.tokens_out.saturating_add(more.tokens_out);
    sum.estimated |= more.estimated;
}

/// Takes a word in, and counts equal red ones in a row.
pub(super) fn apply_verdict(record: &mut RunRecord, verdict: &Verdict, fingerprint: Option<&str>) {
    let node = verdict.node.to_string();
    if !verdict.advisory {
        let visit = record.node(&node).map_or(0, |n| n.visits);
        match (fingerprint.filter(|_| !verdict.passed), record.red.get_mut(&node)) {
            (Some(print), Some(streak)) if streak.fingerprint == print => {
                streak.count += u32::from(streak.visit != visit);
                streak.visit = visit;
            }
            (Some(print), _) => {
                record.red.insert(node.clone(), RedStreak { fingerprint: print.to_owned(), visit, count: 1 });
            }
            (None, _) => {
                record.red.remove(&node);
            }
        }
    }
    record.verdicts.insert(node, verdict.clone());
}

/// Money in whole billionths of a dollar, so that it reads back from text as exactly what was written.
pub fn usd(amount: f64) -> f64 {
    if amount.is_finite() { (amount * 1e9).round() / 1e9 } else { 0.0 }
}
