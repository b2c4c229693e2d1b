//! What a snapshot's tree cannot hold, as a note in its commit message: the state of submodules, large
//! untracked files by hash, and the private ignore rules of the time.
//!
//! Paths are base64 because they are bytes. A commit without the note reads as an empty one.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde::{Deserialize, Serialize};

use super::{
    Error, Repo, Result,
    digest::{file_hash, hex},
    scan::{self, Bytes, GITLINK, Scan},
};

/// Starts the line of the note.
const LINE: &str = "clawo-state: ";
/// Form of the note.
const VERSION: u32 = 1;

/// The note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    v: u32,
    /// Digest of each submodule that holds anything.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    submodules: BTreeMap<String, String>,
    /// SHA-256 of each untracked file that is too large to store.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    large: BTreeMap<String, String>,
    /// Ignore rules outside the tree.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    exclude: String,
}

impl State {
    /// A state in which nothing stands out.
    pub(super) fn empty() -> Self {
        Self { v: VERSION, submodules: BTreeMap::new(), large: BTreeMap::new(), exclude: String::new() }
    }

    /// `message` with the note below it.
    pub(super) fn below(&self, message: &str) -> Result<String> {
        let note = serde_json::to_string(self)
            .map_err(|e| Error::Answer { what: "write a snapshot's note", reason: e.to_string() })?;
        Ok(format!("{}\n\n{LINE}{note}\n", message.trim_end()))
    }

    /// The note of a commit object.
    pub(super) fn of(commit: &[u8]) -> Result<Self> {
        let text = String::from_utf8_lossy(commit);
        match text.lines().rev().find_map(|line| line.strip_prefix(LINE)) {
            Some(note) => serde_json::from_str(note)
                .map_err(|e| Error::Answer { what: "read a snapshot's note", reason: e.to_string() }),
            None => Ok(Self::empty()),
        }
    }

    /// Submodules that differ between two states, by path.
    pub(super) fn submodules_changed(&self, now: &Self) -> Result<Vec<Bytes>> {
        differing(&self.submodules, &now.submodules)
    }

    /// Large files that differ between two states, by path, with whether each was and is there.
    pub(super) fn large_changed(&self, now: &Self) -> Result<Vec<(Bytes, bool, bool)>> {
        let there = |state: &Self, path: &Bytes| state.large.contains_key(&BASE64.encode(path));
        let paths = differing(&self.large, &now.large)?;
        Ok(paths.into_iter().map(|path| (path.clone(), there(self, &path), there(now, &path))).collect())
    }

    /// The private ignore rules of the time.
    pub(super) fn exclude(&self) -> Result<Vec<u8>> {
        decode(&self.exclude)
    }
}

fn differing(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Result<Vec<Bytes>> {
    let mut paths: Vec<&String> =
        before.iter().filter(|(path, was)| after.get(*path) != Some(*was)).map(|(p, _)| p).collect();
    paths.extend(after.keys().filter(|path| !before.contains_key(*path)));
    paths.into_iter().map(|path| decode(path)).collect()
}

fn decode(text: &str) -> Result<Vec<u8>> {
    BASE64.decode(text).map_err(|e| Error::Answer { what: "read a snapshot's note", reason: e.to_string() })
}

impl Repo {
    /// The state now of what a tree cannot hold.
    pub(super) async fn state(&self, scan: &Scan, large: &[Bytes]) -> Result<State> {
        let mut state = State::empty();
        for entry in scan.tracked.iter().filter(|entry| entry.mode == GITLINK) {
            if let Some(digest) = self.submodule_digest(&entry.path).await? {
                state.submodules.insert(BASE64.encode(&entry.path), digest);
            }
        }
        state.exclude = BASE64.encode(self.private_rules().await?);
        let (fs, top, large) = (self.git.fs.clone(), self.top.clone(), large.to_vec());
        scan::blocking("read large files", move || {
            for path in large {
                match file_hash(&*fs, &top.join(scan::as_path(&path))) {
                    Ok(hash) => drop(state.large.insert(BASE64.encode(&path), hex(&hash))),
                    Err(e) if e.is_not_found() => {}
                    Err(e) => return Err(e.into()),
                }
            }
            Ok(state)
        })
        .await
    }
}
