//! What became of a council after its run had ended: accepted, sent back, gone on with.
//!
//! A run that has ended never changes, so this is a file of its own for each council, laid over what the run tells.
//! Written whole by temporary name, sync and rename, under a lock of the council.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{data::Status, refusal::Refusal};
use crate::{
    git::{LandKind, Landing},
    model::{Code, RunOutcome, Time},
    sys::{
        Fs, FsLock,
        fs::{create_dir_all, write_atomic},
        tasks,
    },
};

/// Folder of these files in the state directory.
const FOLDER: &str = "councils";
/// Form of the file.
const VERSION: u32 = 1;
/// Pause between two tries to get a council's lock.
const PAUSE: Duration = Duration::from_millis(50);
/// Tries; together 60 s.
const TRIES: u32 = 1200;
/// Longest name of a council: a run's, a node's and a visit's together.
const NAME_MAX: usize = 210;

/// What became of a council.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Disposition {
    /// Form of this file.
    #[serde(default)]
    pub v: u32,
    /// The council.
    pub council_id: String,
    /// The latest decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Decision>,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Time>,
    /// How far an acceptance has come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accept: Option<Journal>,
    /// Every rejection, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reject: Vec<Rejection>,
    /// The council that goes on with the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continued_by: Option<String>,
}

/// A decision about a council's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    /// It is in the user's branch.
    Accepted,
    /// It was sent back.
    Rejected,
}

/// One rejection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rejection {
    /// What is wrong, as the reviewer said it.
    pub feedback: String,
    /// The commit that records it.
    pub commit: String,
    /// When.
    pub at: Time,
}

/// How far an acceptance has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// The commit is made and the branch may have moved.
    Prepared,
    /// The branch has moved.
    Merged,
    /// Everything of the council is cleaned up.
    Done,
}

/// How the work came into the branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MergeKind {
    /// The branch moved to the work itself.
    FastForward,
    /// The branch moved to a merge of both.
    MergeCommit,
    /// There was nothing to bring.
    None,
}

/// An acceptance, from the moment its commit is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Journal {
    /// How far it has come.
    pub step: Step,
    /// How the work comes in.
    pub kind: MergeKind,
    /// The branch.
    pub base_branch: String,
    /// Its commit before.
    pub before: String,
    /// Its commit afterwards.
    pub after: String,
    /// Whether what comes in is what the checks saw; absent when nothing was checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_as_verified: Option<bool>,
    /// Whether a plan is left out.
    pub plan_deleted: bool,
    /// Reviews that are left out.
    #[serde(default)]
    pub reviews_deleted: Vec<String>,
    /// Outcome of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
    /// Branches that were there to be deleted.
    #[serde(default)]
    pub branches: Vec<String>,
    /// Worktrees that were there to be removed.
    #[serde(default)]
    pub worktrees: Vec<String>,
    /// Those of them that are gone.
    #[serde(default)]
    pub branches_deleted: Vec<String>,
    /// Those of them that are gone.
    #[serde(default)]
    pub worktrees_removed: Vec<String>,
    /// What could not be removed and why.
    #[serde(default)]
    pub cleanup_errors: Vec<String>,
    /// When the commit was made.
    pub at: Time,
}

impl Journal {
    /// The move of the branch.
    pub fn landing(&self) -> Landing {
        let kind = match self.kind {
            MergeKind::FastForward => LandKind::FastForward,
            MergeKind::MergeCommit => LandKind::MergeCommit,
            MergeKind::None => LandKind::None,
        };
        Landing { kind, branch: self.base_branch.clone(), before: self.before.clone(), after: self.after.clone() }
    }
}

impl From<LandKind> for MergeKind {
    fn from(kind: LandKind) -> Self {
        match kind {
            LandKind::FastForward => Self::FastForward,
            LandKind::MergeCommit => Self::MergeCommit,
            LandKind::None => Self::None,
        }
    }
}

impl Disposition {
    /// Whether the work is in the user's branch, be everything cleaned up or not.
    pub fn merged(&self) -> bool {
        self.status == Some(Decision::Accepted) || self.accept.as_ref().is_some_and(|j| j.step >= Step::Merged)
    }

    /// The state it gives a council.
    pub fn over(&self, status: Status) -> Status {
        match self.status {
            _ if self.merged() => Status::Accepted,
            Some(Decision::Rejected) => Status::Rejected,
            Some(Decision::Accepted) | None => status,
        }
    }
}

/// The files of one state directory. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Dispositions {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
}

/// A council's lock, with which its file may be written. Dropping it lets go.
#[derive(Debug)]
pub struct Held {
    of: Dispositions,
    id: String,
    _lock: Box<dyn FsLock>,
}

impl Dispositions {
    /// Those below `home`.
    pub fn new(fs: Arc<dyn Fs>, home: &Path) -> Self {
        Self { fs, dir: home.join(FOLDER) }
    }

    /// Whether a text can be the id of a council.
    pub fn is_id(text: &str) -> bool {
        text.len() <= NAME_MAX
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    }

    /// Where a temporary worktree of a council may be made; nothing else is ever there.
    pub fn scratch(&self, id: &str) -> PathBuf {
        self.dir.join(format!(".{id}.merge"))
    }

    /// What became of a council; nothing yet when there is no file.
    pub async fn load(&self, id: &str) -> Result<Disposition, Refusal> {
        let (fs, path) = (self.fs.clone(), self.file(id)?);
        let bytes = match blocking(move || Ok(fs.read(&path))).await? {
            Ok(bytes) => bytes,
            Err(e) if e.is_not_found() => {
                return Ok(Disposition { v: VERSION, council_id: id.to_owned(), ..Disposition::default() });
            }
            Err(e) => return Err(e.into()),
        };
        let unreadable = |why: String| Refusal::new(Code::StoreUnavailable, format!("councils/{id}.json {why}"));
        let found: Disposition =
            serde_json::from_slice(&bytes).map_err(|e| unreadable(format!("does not parse: {e}")))?;
        if found.v > VERSION {
            return Err(unreadable(format!("is of a newer version ({})", found.v)));
        }
        Ok(found)
    }

    /// Waits for the council's lock, at most 60 s.
    pub async fn lock(&self, id: &str) -> Result<Held, Refusal> {
        self.file(id)?;
        let path = self.dir.join(format!(".{id}.lock"));
        for _ in 0..TRIES {
            let (fs, dir, path) = (self.fs.clone(), self.dir.clone(), path.clone());
            let taken = blocking(move || {
                create_dir_all(fs.as_ref(), &dir)?;
                Ok(fs.try_lock(&path)?)
            });
            if let Some(lock) = taken.await? {
                return Ok(Held { of: self.clone(), id: id.to_owned(), _lock: lock });
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(Refusal::new(Code::Busy, format!("council '{id}' is being decided on elsewhere; call again")))
    }

    fn file(&self, id: &str) -> Result<PathBuf, Refusal> {
        if Self::is_id(id) {
            Ok(self.dir.join(format!("{id}.json")))
        } else {
            Err(Refusal::new(Code::InvalidArgument, "id: not the id of a council"))
        }
    }
}

impl Held {
    /// What became of the council.
    pub async fn load(&self) -> Result<Disposition, Refusal> {
        self.of.load(&self.id).await
    }

    /// Writes it durably.
    pub async fn save(&self, disposition: &Disposition) -> Result<(), Refusal> {
        let bytes = serde_json::to_vec_pretty(disposition)
            .map_err(|e| Refusal::new(Code::Internal, format!("a disposition could not be written: {e}")))?;
        let (fs, path) = (self.of.fs.clone(), self.of.file(&self.id)?);
        blocking(move || Ok(write_atomic(fs.as_ref(), &path, &bytes)?)).await
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Refusal> + Send + 'static) -> Result<T, Refusal> {
    tasks::blocking("council", work).await.map_err(|e| Refusal::new(Code::Internal, e.to_string()))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::RealFs;

    fn at() -> Time {
        Time::from_millis(1)
    }

    fn journal(step: Step) -> Journal {
        Journal {
            step,
            kind: MergeKind::FastForward,
            base_branch: "main".into(),
            before: "a".into(),
            after: "b".into(),
            tree_as_verified: None,
            plan_deleted: true,
            reviews_deleted: vec![],
            outcome: None,
            branches: vec![],
            worktrees: vec![],
            branches_deleted: vec![],
            worktrees_removed: vec![],
            cleanup_errors: vec![],
            at: at(),
        }
    }

    #[tokio::test]
    async fn what_is_saved_is_read_back_and_lies_over_the_state() {
        let home = tempfile::tempdir().unwrap();
        let all = Dispositions::new(Arc::new(RealFs), home.path());
        let empty = all.load("council-1-ab").await.unwrap();
        assert_eq!(empty.over(Status::Consensus), Status::Consensus);
        let held = all.lock("council-1-ab").await.unwrap();
        let mut kept = held.load().await.unwrap();
        kept.status = Some(Decision::Rejected);
        kept.reject.push(Rejection { feedback: "no".into(), commit: "c".into(), at: at() });
        held.save(&kept).await.unwrap();
        assert_eq!(all.load("council-1-ab").await.unwrap(), kept);
        assert_eq!(kept.over(Status::Consensus), Status::Rejected);
        // A branch that has moved is accepted, whatever was said before.
        kept.accept = Some(journal(Step::Prepared));
        assert_eq!(kept.over(Status::Consensus), Status::Rejected);
        kept.accept = Some(journal(Step::Merged));
        assert_eq!(kept.over(Status::Consensus), Status::Accepted);
    }

    #[tokio::test]
    async fn ids_stay_in_their_folder_and_bad_files_are_named() {
        let home = tempfile::tempdir().unwrap();
        let all = Dispositions::new(Arc::new(RealFs), home.path());
        for bad in ["", "../x", "a/b", ".x", "a b", &"x".repeat(211)] {
            assert_eq!(all.load(bad).await.unwrap_err().code, Code::InvalidArgument, "{bad}");
            assert_eq!(all.lock(bad).await.unwrap_err().code, Code::InvalidArgument, "{bad}");
        }
        drop(all.lock("c").await.unwrap());
        for (text, words) in [("{", "does not parse"), ("{\"v\":9,\"councilId\":\"c\"}", "newer version")] {
            crate::sys::fs::write_atomic(&RealFs, &home.path().join("councils/c.json"), text.as_bytes()).unwrap();
            let error = all.load("c").await.unwrap_err();
            assert!(error.code == Code::StoreUnavailable && error.message.contains(words), "{error}");
        }
    }
}
