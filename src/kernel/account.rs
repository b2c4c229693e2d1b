//! One account for a tree of runs: where a run's turns are counted besides its own log.
//!
//! A run above that this process executes is asked directly. One that another process executes is read from its log,
//! and told through its inbox to look at this one's. What is charged is always a total, so it can be charged twice and
//! late.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Inner, actor::Actor, query, spec::SUBFLOW_DEPTH_MAX};
use crate::{
    model::{Event, NodeId, RunId, RunRecord, WorkflowSpec, run::Spend},
    nodes::{
        Boxed,
        budget::{Above, Meter, Reserved, add, beyond, forbidden},
    },
    store::InboxItem,
    sys::{ids, tasks},
};

/// Kind of a message that says that a child run has used something.
pub(super) const SPENT: &str = "spent";

/// The account of a run, for looking only.
pub(super) fn of(spec: &WorkflowSpec, record: &RunRecord) -> Meter {
    Meter::new(spec.budget.clone(), record.spend.clone(), record.child_spend.clone())
}

/// The account of a run that is executed here.
pub(super) fn open(kernel: &Arc<Inner>, spec: &WorkflowSpec, record: &RunRecord) -> Meter {
    let meter = of(spec, record);
    match &record.parent {
        None => meter,
        Some(parent) => {
            let (run, nested) = (record.run_id.clone(), parent.node.is_none());
            meter.below(Arc::new(RunAbove { kernel: Arc::clone(kernel), parent: parent.run_id.clone(), run, nested }))
        }
    }
}

/// The child run that a message is about. How much it has used is on its own log, which is believed more than a file
/// that anybody may leave.
pub(super) fn said(body: &Value) -> Option<RunId> {
    RunId::parse(body.get("child")?.as_str()?).ok()
}

/// What was used, with money as the log can hold it exactly.
pub(super) fn exact(spend: &Spend) -> Spend {
    Spend { cost_usd: super::state::usd(spend.cost_usd), ..spend.clone() }
}

/// The run above one that is executed here.
#[derive(Debug)]
struct RunAbove {
    kernel: Arc<Inner>,
    parent: RunId,
    run: RunId,
    /// An agent of the run above started this one in the middle of its turn.
    nested: bool,
}

impl RunAbove {
    /// Whether the logs of the runs above leave room for a turn. What is under way in another process is not seen,
    /// except the turn that started this run.
    async fn read(&self, used: Spend, in_flight: u64) -> Result<(), String> {
        let (mut below, mut run, mut total) = (self.run.clone(), self.parent.clone(), used);
        let mut under_way = in_flight;
        for level in 0..SUBFLOW_DEPTH_MAX {
            // A run that is gone has no account any more.
            let Ok(found) = query::load(&self.kernel, &run).await else { return Ok(()) };
            let known = found.record.child_spend.get(&below).cloned().unwrap_or_default();
            let mut sum = beyond(&found.record.spend, &known);
            add(&mut sum, &total);
            total = sum;
            under_way += u64::from(level == 0 && self.nested && !found.record.state.is_terminal());
            if let Some(why) = forbidden(&found.spec.budget, &total, under_way) {
                return Err(why);
            }
            let Some(parent) = &found.record.parent else { return Ok(()) };
            (below, run) = (run, parent.run_id.clone());
        }
        Ok(())
    }
}

impl Above for RunAbove {
    fn begin(&self, used: Spend, in_flight: u64) -> Boxed<'_, Result<Option<Reserved>, String>> {
        Box::pin(async move {
            match self.kernel.live.get(&self.parent) {
                Some(live) => live.meter.begin_for(&self.run).await.map(Some),
                None => self.read(used, in_flight).await.map(|()| None),
            }
        })
    }
}

impl Actor {
    /// Events that put on the record what child runs have used beyond what is there.
    pub(super) fn child_costs(&self, node: Option<&NodeId>) -> Vec<Event> {
        let record = &self.writer.record;
        if record.state.is_terminal() {
            return Vec::new();
        }
        let news = |(child, total): (RunId, Spend)| {
            let total = exact(&total);
            let more = record.child_spend.get(&child).is_none_or(|known| {
                let more = beyond(&total, known);
                more.cost_usd > 0.0 || more.turns > 0 || more.tokens_in > 0 || more.tokens_out > 0
            });
            let node = node.cloned().or_else(|| record.current_node.clone());
            more.then_some(Event::ChildCost { child_run_id: child, node, spend: total })
        };
        self.meter.children().into_iter().filter_map(news).collect()
    }

    /// Reads what child runs have used while nobody executed this one.
    pub(super) async fn look_after_children(&mut self) {
        let record = Arc::clone(&self.writer.record);
        let waited_for = record.nodes.iter().filter_map(|node| node.child_run_id.clone());
        let children: std::collections::BTreeSet<RunId> =
            record.child_spend.keys().cloned().chain(waited_for).collect();
        for child in children {
            self.look_at_child(&child).await;
        }
    }

    /// Reads what a child run has used in all.
    pub(super) async fn look_at_child(&mut self, child: &RunId) {
        let Ok(found) = query::load(&self.kernel, child).await else { return };
        // Anybody may start a run under any free id.
        if found.record.parent.as_ref().is_some_and(|parent| parent.run_id == self.writer.record.run_id) {
            self.meter.charge(child, &found.record.spend);
        }
    }

    /// Tells the run above what this one has used in all. Best effort: it looks for itself when it is taken up.
    pub(super) async fn tell_above(&mut self) {
        let record = Arc::clone(&self.writer.record);
        let Some(parent) = record.parent.as_ref().map(|parent| parent.run_id.clone()) else { return };
        if let Some(live) = self.kernel.live.get(&parent) {
            live.meter.charge(&record.run_id, &record.spend);
            return;
        }
        let Ok(found) = query::load(&self.kernel, &parent).await else { return };
        if found.record.state.is_terminal() {
            return;
        }
        let before = self.told.take();
        let body = json!({ "kind": SPENT, "child": record.run_id });
        let item = InboxItem { id: ids::sortable(), body };
        let (store, id) = (self.kernel.store.clone(), item.id.clone());
        let put = tasks::blocking("inbox", move || {
            // One word at a time: the next one says the same.
            if let Some(before) = before {
                let _ = store.inbox_withdraw(&parent, &before);
            }
            store.inbox_put(&parent, &item)
        });
        match put.await {
            Ok(Ok(())) => self.told = Some(id),
            Ok(Err(e)) => tracing::debug!(error = %e, "the run above could not be told what was used"),
            Err(e) => tracing::debug!(error = %e, "the run above could not be told what was used"),
        }
    }
}
