//! Merging into the branch of a worktree of ours, whole or not at all.
//!
//! A conflict is never decided here: it is reported and the worktree is put back. No hook runs, nothing is signed,
//! and the user's record of resolved conflicts (`rerere`) is neither used nor written.

use std::{collections::BTreeMap, ffi::OsString};

use super::{
    Error, Repo, Result, cli, open,
    scan::{self, Bytes, GITLINK},
};
use crate::sys::fs;

const MERGE: &str = "merge";
const UNDO: &str = "take back a merge";

/// How a merge ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergedIn {
    /// The merge commit, which the branch is at now.
    Merged(String),
    /// The branch had it all already.
    Nothing,
    /// These paths, sorted; the worktree is as before.
    Conflict(Vec<Unmerged>),
}

/// A path that two sides changed in ways that do not go together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmerged {
    /// Relative to the repository's top; invalid UTF-8 is replaced.
    pub path: String,
    /// What the sides did.
    pub kind: UnmergedKind,
}

/// What the two sides did to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnmergedKind {
    /// Both changed its content.
    Content,
    /// Both added it, differently.
    AddedByBoth,
    /// Ours deleted it, theirs changed it.
    DeletedByUs,
    /// Theirs deleted it, ours changed it.
    DeletedByThem,
    /// Renames that cross, submodules and the like.
    Other,
}

/// A merge that is begun and not committed.
#[derive(Debug)]
enum Begun {
    Nothing,
    Open,
}

impl Repo {
    /// Merges a commit into the branch of this worktree of ours, always as a merge commit. Content in `overrides`
    /// replaces what the merge made of these files and ends their conflict. The worktree must be clean.
    pub async fn merge_in(&self, commit: &str, message: &str, overrides: &[(String, Vec<u8>)]) -> Result<MergedIn> {
        self.must_be_our_worktree(MERGE).await?;
        self.merge_here(commit, message, overrides, &[]).await
    }

    /// The same in any linked worktree, in the name of `identity`.
    pub(super) async fn merge_here(
        &self,
        commit: &str,
        message: &str,
        overrides: &[(String, Vec<u8>)],
        identity: &[(&'static str, OsString)],
    ) -> Result<MergedIn> {
        if let Some(operation) = self.operation().await? {
            return Err(self.refuse(MERGE, format!("it is in the middle of a {operation}; end that first")));
        }
        let dirty = self.dirty().await?;
        if let Some(first) = dirty.paths.first() {
            let why = format!("{} paths are not committed, {first} among them; commit them first", dirty.total);
            return Err(self.refuse(MERGE, why));
        }
        let Some(head) = self.head().await? else { return Err(self.refuse(MERGE, "it has no commit".to_owned())) };
        let commit = self.resolve(commit).await?;
        match self.begin(&head, &commit).await? {
            Begun::Nothing => return Ok(MergedIn::Nothing),
            Begun::Open => {}
        }
        let merged = self.conclude(&head, &commit, message, overrides, identity).await;
        match &merged {
            Ok(MergedIn::Merged(_)) => self.forget_merge().await?,
            Ok(MergedIn::Nothing | MergedIn::Conflict(_)) | Err(_) => self.undo(&head).await?,
        }
        merged
    }

    async fn begin(&self, head: &str, commit: &str) -> Result<Begun> {
        if self.is_ancestor(commit, head).await? {
            return Ok(Begun::Nothing);
        }
        let call = self.git.users_call(&self.top, MERGE).limit(cli::FILES).args(cli::SENT);
        let call = call.args(["-c", "merge.conflictStyle=merge", "-c", "merge.verifySignatures=false"]);
        let call = call.args(["merge", "--quiet", "--no-ff", "--no-commit", "--no-stat", "--no-autostash"]);
        let output = call.args(["--no-rerere-autoupdate", commit]).output().await?;
        let open = self.operation().await?.is_some();
        match output.status {
            0 if open => Ok(Begun::Open),
            1 if open && !self.unmerged().await?.is_empty() => Ok(Begun::Open),
            _ => {
                self.undo(head).await?;
                Err(cli::failed(MERGE, self.top.clone(), &output))
            }
        }
    }

    async fn conclude(
        &self,
        head: &str,
        commit: &str,
        message: &str,
        overrides: &[(String, Vec<u8>)],
        identity: &[(&'static str, OsString)],
    ) -> Result<MergedIn> {
        let mut edits = Vec::new();
        for (path, bytes) in overrides {
            edits.push((path.clone().into_bytes(), Some(self.side(&[], path.as_bytes(), bytes).await?)));
        }
        self.edit(&[], &edits, head.len()).await?;
        let unmerged = self.unmerged().await?;
        if !unmerged.is_empty() {
            return Ok(MergedIn::Conflict(unmerged));
        }
        if !edits.is_empty() {
            let paths = edits.iter().flat_map(|(path, _)| path.iter().copied().chain([0])).collect();
            let call = self.git.users_call(&self.top, MERGE).limit(cli::FILES).stdin(paths);
            call.args(["checkout-index", "--force", "--index", "-z", "--stdin"]).run().await?;
        }
        let tree = self.written_tree(&[]).await?;
        let merge = self.commit_of(&tree, &[head, commit], message, identity).await?;
        let call = self.git.call(&self.top, MERGE).limit(cli::QUICK).args(cli::SYNCED);
        call.args(["update-ref", "-m", "merge: by clawo", "HEAD", &merge, head]).run().await?;
        Ok(MergedIn::Merged(merge))
    }

    async fn forget_merge(&self) -> Result<()> {
        self.git.call(&self.top, MERGE).limit(cli::QUICK).args(["merge", "--quit"]).run().await.map(drop)
    }

    /// Puts a worktree that was clean at `head` back. Everything that is not in `head` came from the merge.
    async fn undo(&self, head: &str) -> Result<()> {
        let call = self.git.users_call(&self.top, UNDO).limit(cli::FILES);
        call.args(["reset", "--quiet", "--hard", "--no-recurse-submodules", head]).run().await?;
        let left = self.scan(&[]).await?;
        let (files, top) = (self.git.fs.clone(), self.top.clone());
        scan::blocking(UNDO, move || remove_files(&*files, &top, &left.others)).await
    }

    /// Paths in conflict in the index, sorted.
    pub(super) async fn unmerged(&self) -> Result<Vec<Unmerged>> {
        let call = self.git.call(&self.top, "list conflicts").limit(cli::QUICK).max_stdout(scan::MAX_LISTING);
        let listed = call.args(["ls-files", "-z", "--unmerged", "--full-name"]).run().await?;
        let odd = |record: &[u8]| Error::Answer {
            what: "list conflicts",
            reason: String::from_utf8_lossy(record).into_owned(),
        };
        let mut found: BTreeMap<Bytes, (u8, bool)> = BTreeMap::new();
        for record in cli::records(&listed) {
            let tab = record.iter().position(|b| *b == b'\t').ok_or_else(|| odd(record))?;
            let (head, path) = record.split_at(tab);
            let head = std::str::from_utf8(head).map_err(|_| odd(record))?;
            let mut words = head.split(' ');
            let (mode, stage) = (words.next(), words.nth(1));
            let bit = match stage {
                Some("1") => 1,
                Some("2") => 2,
                Some("3") => 4,
                Some(_) | None => return Err(odd(record)),
            };
            let link = mode.and_then(|mode| u32::from_str_radix(mode, 8).ok()) == Some(GITLINK);
            let entry = found.entry(path.get(1..).unwrap_or_default().to_vec()).or_default();
            *entry = (entry.0 | bit, entry.1 || link);
        }
        let unmerged = found.into_iter().map(|(path, (stages, link))| Unmerged {
            path: String::from_utf8_lossy(&path).into_owned(),
            kind: match (link, stages) {
                (false, 7) => UnmergedKind::Content,
                (false, 6) => UnmergedKind::AddedByBoth,
                (false, 5) => UnmergedKind::DeletedByUs,
                (false, 3) => UnmergedKind::DeletedByThem,
                _ => UnmergedKind::Other,
            },
        });
        Ok(unmerged.collect())
    }
}

/// Removes files below `top` and the directories that are empty then. Only through real directories.
pub(super) fn remove_files(files: &dyn fs::Fs, top: &std::path::Path, paths: &[Bytes]) -> Result<()> {
    let mut parents = scan::Parents::default();
    for path in paths {
        if !parents.are_real(files, top, path)? {
            continue;
        }
        match files.remove_file(&top.join(scan::as_path(path))) {
            Ok(()) => {}
            Err(e) if e.is_not_found() => continue,
            Err(e) => return Err(e.into()),
        }
        let path = open::path(path);
        for above in path.ancestors().skip(1).filter(|above| above.parent().is_some()) {
            let above = top.join(above);
            if !files.list(&above)?.is_empty() || files.remove_dir(&above).is_err() {
                break;
            }
            // Known as real until now.
            parents = scan::Parents::default();
        }
    }
    Ok(())
}
