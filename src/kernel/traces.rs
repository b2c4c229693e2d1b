//! What a run of agents left behind, as the tools of one kind of run show it: texts and changes. Read only.

use std::{path::Path, sync::Arc};

use serde_json::Value;

use super::{Error, Inner, Result};
use crate::{
    model::{
        Code, RunId, RunRecord,
        run::{NodeRecord, OutputText},
    },
    sys::tasks,
};

/// How much of a text is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Its last characters.
    Tail(usize),
    /// All of it, up to this many bytes.
    Whole(usize),
}

/// Part of a text, and whether something of it is missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) text: String,
    pub(super) cut: bool,
}

/// The part of a stored text that is wanted.
pub(super) async fn text(kernel: &Arc<Inner>, run: &RunId, stored: &OutputText, keep: Keep) -> Result<Kept> {
    let Some(file) = &stored.file else { return Ok(part(&stored.text, false, keep)) };
    let (offset, limit) = match keep {
        // A character has at most four bytes; one more may be torn at the beginning.
        Keep::Tail(chars) => {
            let room = chars.saturating_mul(4).saturating_add(4);
            (file.bytes.saturating_sub(room as u64), room)
        }
        Keep::Whole(most) => (0, most),
    };
    let (store, id, path) = (kernel.store.clone(), run.clone(), file.path.clone());
    let read = tasks::blocking("text", move || store.read_artifact(&id, &path, offset, limit)).await;
    let bytes = read.map_err(|e| super::internal(&e))?.map_err(|e| super::store_error(&e))?;
    let more = (bytes.len() as u64) < file.bytes;
    Ok(part(&String::from_utf8_lossy(&bytes), more, keep))
}

fn part(text: &str, more: bool, keep: Keep) -> Kept {
    match keep {
        Keep::Tail(chars) => {
            let start = text.char_indices().rev().nth(chars.saturating_sub(1)).map_or(0, |(at, _)| at);
            Kept { text: text.get(start..).unwrap_or_default().to_owned(), cut: more || start > 0 }
        }
        Keep::Whole(most) => {
            let (head, cut) = crate::nodes::prompt::cut(text, most);
            Kept { text: head.to_owned(), cut: more || cut }
        }
    }
}

/// The text stored beside a document of a node's data.
pub(super) fn beside(document: &Value) -> Option<OutputText> {
    document.get("text").and_then(|text| serde_json::from_value(text.clone()).ok())
}

/// Whether the checkout was another one after the node than at the run's start: other files, or HEAD elsewhere.
/// Nothing where that cannot be told: outside a repository, or without both snapshots.
pub(super) async fn tree_changed(kernel: &Inner, record: &RunRecord, node: &NodeRecord) -> Option<bool> {
    let before = record.baseline.as_ref()?.snapshot.as_deref()?;
    let after = node.snapshot_ref.as_deref()?;
    let found = async {
        let Some(repo) = kernel.services.git.open(Path::new(&record.cwd)).await? else { return Ok(None) };
        Ok::<_, crate::git::Error>(Some(repo.stored(before).await? != repo.stored(after).await?))
    };
    match found.await {
        Ok(changed) => changed,
        Err(e) => {
            tracing::debug!(run = %record.run_id, error = %e, "what a run changed cannot be told");
            None
        }
    }
}

/// What is told when the checkout changed under agents that only had to look.
pub(super) const CHANGED: &str = "the checkout changed while the agents looked at it: files or HEAD differ from the \
                                  start; they were to change nothing";

/// The refusal of an id that belongs to another kind of run.
pub(super) fn wrong_kind(record: &RunRecord, wanted: &str) -> Error {
    let (is, tool) = match record.workflow.as_str() {
        "council" => ("a council".to_owned(), "council_status"),
        "fanout" => ("a fan-out".to_owned(), "fanout_status"),
        "ultraplan" => ("an ultraplan".to_owned(), "ultraplan_status"),
        "ultrareview" => ("an ultrareview".to_owned(), "ultrareview_status"),
        other => (format!("a run of the workflow '{other}'"), "workflow_status"),
    };
    Error::new(Code::RunWrongKind, format!("'{}' is {is}, not {wanted}; use {tool}", record.run_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_between_characters() {
        let kept = |text: &str, cut| Kept { text: text.to_owned(), cut };
        assert_eq!(part("aéb", false, Keep::Tail(2)), kept("éb", true));
        assert_eq!(part("aéb", false, Keep::Tail(3)), kept("aéb", false));
        assert_eq!(part("aéb", false, Keep::Tail(9)), kept("aéb", false));
        assert_eq!(part("", false, Keep::Tail(9)), kept("", false));
        assert_eq!(part("aéb", false, Keep::Whole(2)), kept("a", true));
        assert_eq!(part("aéb", true, Keep::Whole(4)), kept("aéb", true));
    }
}
