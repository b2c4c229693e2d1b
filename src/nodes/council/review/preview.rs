//! What accepting would do to the user's branch, told without doing any of it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    git::{ChangeKind, Difference},
    nodes::council::{
        ground::{Ground, Talk},
        refusal::Refusal,
    },
};

/// Bytes of conflicts looked for in one file.
const HUNKS_MAX: usize = 4096;
/// How git begins a conflict.
const OPENS: &str = "<<<<<<< ";
/// Most files that are merged to see whether they go together.
const FILES_MAX: usize = 200;

/// What accepting would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MergePreview {
    /// The branch would move to the work.
    FastForward,
    /// The branch would move to a merge of both.
    MergeCommit,
    /// Both changed the same lines.
    Conflict,
    /// There is nothing to bring.
    None,
}

/// Judges the way from `base` to integration, which differ from `fork`, and names the files in conflict.
pub(super) async fn of(
    ground: &Ground<'_>,
    base: &str,
    fork: &str,
    changes: &[Difference],
    talk: &Talk,
) -> Result<(MergePreview, Vec<String>), Refusal> {
    let left_out = talk.paths();
    let ours: Vec<&Difference> = changes.iter().filter(|change| !left_out.contains(&change.path)).collect();
    if ours.is_empty() {
        return Ok((MergePreview::None, Vec::new()));
    }
    if base == fork {
        return Ok((MergePreview::FastForward, Vec::new()));
    }
    let theirs = ground.repo.differences(fork, base).await?;
    let theirs: BTreeMap<&str, &Difference> = theirs.iter().map(|change| (change.path.as_str(), change)).collect();
    let mut conflicts = Vec::new();
    let both = ours.iter().filter_map(|mine| Some((*mine, *theirs.get(mine.path.as_str())?)));
    for (mine, other) in both.filter(|(mine, other)| mine.blob != other.blob).take(FILES_MAX) {
        let gone = mine.kind == ChangeKind::Deleted || other.kind == ChangeKind::Deleted;
        let path = [mine.path.clone()];
        let marked = |text: &str| text.lines().any(|line| line.starts_with(OPENS));
        if gone || mine.binary || marked(&ground.repo.hunks(base, &ground.tip, &path, HUNKS_MAX).await?) {
            conflicts.push(mine.path.clone());
        }
    }
    let preview = if conflicts.is_empty() { MergePreview::MergeCommit } else { MergePreview::Conflict };
    Ok((preview, conflicts))
}
