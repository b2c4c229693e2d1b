//! What a council's attempt is told about the run around it, and about the council it goes on with.

use std::{path::PathBuf, sync::Arc};

use serde::Deserialize as _;
use serde_json::Value;

use super::{Inner, query, start};
use crate::{
    model::{NodeKind, RunId, RunRecord, WorkflowSpec, spec::Node},
    nodes::{
        CouncilFacts,
        council::data::{Layout, PREFIX},
    },
};

/// Ends the key of a layout in a node's data.
const LAYOUT: &str = ":layout";

/// Directory the run worked in before a council moved it.
pub(super) fn home_dir(record: &RunRecord) -> PathBuf {
    if record.work_top.is_none() {
        return PathBuf::from(&record.work_dir);
    }
    let layout = layouts(record).next().filter(|_| record.workspace_path.is_some());
    layout.map_or_else(|| PathBuf::from(&record.cwd), |layout| layout.user_dir())
}

/// What only a council's attempt needs.
pub(super) async fn facts(kernel: &Arc<Inner>, spec: &WorkflowSpec, record: &RunRecord, node: &Node) -> CouncilFacts {
    let NodeKind::Council(council) = &node.kind else { return CouncilFacts::default() };
    let continued = match &council.continue_from {
        Some(id) => find(kernel, id).await.map(Box::new),
        None => None,
    };
    CouncilFacts {
        sole: spec.nodes.iter().filter(|n| matches!(n.kind, NodeKind::Council(_))).count() == 1,
        votes: record.consensus_votes.clone(),
        protecting: start::protecting(spec),
        continued,
    }
}

/// Where the council called `id` lies: its id is that of its run, or begins with it.
async fn find(kernel: &Arc<Inner>, id: &str) -> Option<Layout> {
    let ends = std::iter::once(id.len()).chain(id.rmatch_indices('-').map(|(at, _)| at));
    for end in ends {
        let Some(Ok(run)) = id.get(..end).map(RunId::parse) else { continue };
        let Ok(found) = query::load(kernel, &run).await else { continue };
        if let Some(layout) = layouts(&found.record).find(|layout| layout.council_id == id) {
            return Some(layout);
        }
    }
    None
}

/// The layouts of all councils of a run.
fn layouts(record: &RunRecord) -> impl Iterator<Item = Layout> + '_ {
    let data = record.nodes.iter().filter_map(|node| node.data.as_ref().and_then(Value::as_object));
    let kept = data.flatten().filter(|(key, _)| key.starts_with(PREFIX) && key.ends_with(LAYOUT));
    kept.filter_map(|(_, value)| Layout::deserialize(value).ok())
}
