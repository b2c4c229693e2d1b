//! From the id of a council to its run, node and visit.

use std::sync::Arc;

use serde_json::json;

use crate::{
    kernel::{
        Error, Inner, Result,
        query::{self, Found},
        verdict,
    },
    model::{Code, NodeId, NodeKind, RunId},
    nodes::council::{
        case::{Case, id_of},
        data::Layout,
        disposition::Dispositions,
    },
};

/// Most councils that are followed back from one.
const CHAIN_MAX: usize = 100;

/// A council that was found.
#[derive(Debug)]
pub(super) struct Located {
    /// The council.
    pub(super) case: Case,
    /// Last commit of its run.
    pub(super) seq: u64,
}

/// The council called `id`.
pub(super) async fn find(kernel: &Arc<Inner>, id: &str) -> Result<Located> {
    if !Dispositions::is_id(id) {
        return Err(super::invalid("id", "not the id of a council"));
    }
    if let Some(found) = load(kernel, id).await? {
        return by_run(&found);
    }
    // Run and node can have any number of dashes.
    for (at, _) in id.rmatch_indices('-') {
        let (Some(run), Some(rest)) = (id.get(..at), id.get(at + 1..)) else { continue };
        if let Some(found) = load(kernel, run).await?
            && let Some(located) = by_visit(&found, rest)
        {
            return Ok(located);
        }
    }
    let text = format!("there is no council '{id}'; clawo council list, or workflow_list with workflow \"council\"");
    Err(Error::new(Code::RunNotFound, text))
}

async fn load(kernel: &Arc<Inner>, id: &str) -> Result<Option<Found>> {
    let Ok(run) = RunId::parse(id) else { return Ok(None) };
    match query::load(kernel, &run).await {
        Ok(found) => Ok(Some(found)),
        Err(e) if e.code == Code::RunNotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// The one council of a run.
fn by_run(found: &Found) -> Result<Located> {
    let (spec, record) = (&found.spec, &found.record);
    let councils = spec.nodes.iter().filter(|node| matches!(node.kind, NodeKind::Council(_)));
    let visits: Vec<(&NodeId, u32)> = councils
        .flat_map(|node| {
            let visits = record.node(node.id.as_str()).map_or(0, |entry| entry.visits);
            (1..=visits.max(1)).map(move |visit| (&node.id, visit))
        })
        .collect();
    let entered = |(node, _): &&(&NodeId, u32)| record.node(node.as_str()).is_some_and(|entry| entry.visits > 0);
    let begun: Vec<&(&NodeId, u32)> = visits.iter().filter(entered).collect();
    let wrong = || {
        let text = format!("'{}' is a run of workflow '{}' and no council", record.run_id, record.workflow);
        Error::new(Code::RunWrongKind, text)
    };
    let one = match (begun.as_slice(), visits.as_slice()) {
        ([one], _) => **one,
        ([], [one]) => *one,
        (_, []) => return Err(wrong()),
        (_, several) => {
            let ids: Vec<String> = several.iter().map(|(node, visit)| own_id(found, node, *visit)).collect();
            let text = format!("run '{}' has several councils: {}", record.run_id, ids.join(", "));
            return Err(Error { details: Some(json!({ "ids": ids })), ..Error::new(Code::AmbiguousCouncil, text) });
        }
    };
    located(found, one.0, one.1).ok_or_else(wrong)
}

/// An id of a visit that no run has: the first visit of a run's only council is called as the run.
fn own_id(found: &Found, node: &NodeId, visit: u32) -> String {
    let (run, id) = (&found.record.run_id, id_of(&found.spec, &found.record.run_id, node, visit));
    if id == run.as_str() { format!("{run}-{node}") } else { id }
}

/// The visit that `rest`, what follows a run's id and a dash, names: a node, or a node and a visit.
fn by_visit(found: &Found, rest: &str) -> Option<Located> {
    let is_council =
        |id: &str| found.spec.node(id).filter(|(_, n)| matches!(n.kind, NodeKind::Council(_))).map(|(_, n)| &n.id);
    if let Some(node) = is_council(rest) {
        return located(found, node, 1);
    }
    let (node, visit) = rest.rsplit_once("-v")?;
    let visit = visit.parse().ok().filter(|visit| *visit > 0)?;
    let node = is_council(node)?;
    let visits = found.record.node(node.as_str())?.visits;
    (visit <= visits.max(1)).then(|| located(found, node, visit)).flatten()
}

fn located(found: &Found, node: &NodeId, visit: u32) -> Option<Located> {
    let shown = verdict::shown(&found.record);
    let case = Case::of(&found.spec, &found.record, node, visit, shown, found.live)?;
    Some(Located { case, seq: found.record.seq })
}

/// Where the councils lie that this one goes on with, the latest first. One whose run was deleted ends the list.
pub(super) async fn chain(kernel: &Arc<Inner>, case: &Case) -> Vec<Layout> {
    let mut layouts: Vec<Layout> = Vec::new();
    let mut next = case.layout.as_ref().and_then(|layout| layout.continue_from.clone());
    while let Some(id) = next.take().filter(|_| layouts.len() < CHAIN_MAX) {
        let Ok(found) = find(kernel, &id).await else { break };
        let Some(layout) = found.case.layout else { break };
        if layouts.iter().any(|known| known.short_id == layout.short_id) {
            break;
        }
        next.clone_from(&layout.continue_from);
        layouts.push(layout);
    }
    layouts
}
