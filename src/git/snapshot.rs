//! Storing the working tree as a commit under a ref of ours, and deleting such refs.
//!
//! The user's HEAD, index, branches, stash, config and reflogs are not touched, and no hook runs.

use super::{
    Error, Repo, Result, Snapshot, cli,
    scan::Bytes,
    scratch::{Objects, Scratch, Untracked},
};

/// Untracked files over this size are listed, not stored: 50 MiB.
pub(super) const LARGE: u64 = 50 << 20;
/// Below this, refs are ours to write and delete.
const OURS: &str = "refs/clawo/";

impl Repo {
    /// Stores tracked and untracked, unignored files as a commit under `refname` (parent: HEAD) through an
    /// index of its own. Nothing of the user's changes. A commit that was under the ref stays reachable as
    /// a further parent; storing the same state again changes nothing.
    pub async fn snapshot(&self, refname: &str, message: &str) -> Result<Snapshot> {
        self.must_be_ours("store a snapshot", refname)?;
        let head = self.head().await?;
        let built = {
            let scratch = Scratch::new(self, Objects::Keep).await?;
            self.build(&scratch, Untracked::UpTo(LARGE)).await?
        };
        if !built.scan.unseen.is_empty() {
            // Better all the rest than nothing.
            tracing::warn!(repo = %self.top.display(), said = %built.scan.unseen, "a snapshot is not whole");
        }
        let state = self.state(&built.scan, &built.large).await?;
        let wanted = Wanted { refname: refname.into(), tree: built.tree.clone(), head, message: state.below(message)? };
        let commit = self.store(&wanted).await?;
        let skipped = built.large.iter().map(|path: &Bytes| String::from_utf8_lossy(path).into_owned()).collect();
        Ok(Snapshot { commit, tree: built.tree, skipped })
    }

    /// Deletes the refs below `prefix` (it must start with `refs/clawo/`).
    pub async fn delete_refs(&self, prefix: &str) -> Result<()> {
        let what = "delete refs";
        self.must_be_ours(what, prefix)?;
        let found = self.refs(prefix).await?;
        if found.is_empty() {
            return Ok(());
        }
        // Each only as it was listed: one that moved meanwhile makes the whole deletion fail.
        let orders: String = found.iter().map(|(name, id)| format!("delete {name} {id}\n")).collect();
        let call = self.git.call(&self.top, what).args(["update-ref", "--no-deref", "--stdin"]);
        call.stdin(orders.into_bytes()).run().await.map(drop)
    }

    fn must_be_ours(&self, what: &'static str, refname: &str) -> Result<()> {
        let good = refname.strip_prefix(OURS).is_some_and(|rest| !rest.trim_matches('/').is_empty())
            && !refname.contains("..")
            && !refname.contains(|c: char| c.is_control() || " ~^:?*[\\".contains(c));
        if good {
            return Ok(());
        }
        let stderr = format!("'{refname}' is not a name below {OURS}");
        Err(Error::Failed { what, repo: self.top.clone(), stderr })
    }

    /// Makes the commit and points the ref at it. With the program, since libgit2 syncs neither to disk
    /// and a snapshot is there for the case that the machine goes down.
    async fn store(&self, wanted: &Wanted) -> Result<String> {
        let what = "store a snapshot";
        let old = match self.resolve(&wanted.refname).await {
            Ok(old) => Some(old),
            Err(Error::BaseGone(_)) => None,
            Err(e) => return Err(e),
        };
        if let Some(old) = &old
            && wanted.is(&self.tree_of(old).await?, &self.commit_object(old).await?)
        {
            return Ok(old.clone());
        }
        let parents = wanted.head.iter().chain(&old).flat_map(|parent| ["-p", parent.as_str()]);
        let call = self.git.call(&self.top, what).args(cli::SENT).args(["commit-tree", "--no-gpg-sign"]);
        let call = call.args(parents).arg(&wanted.tree).stdin(wanted.message.clone().into_bytes());
        let commit = call.word().await?;
        let call = self.git.call(&self.top, what).args(cli::SYNCED).args(["update-ref", "--no-deref"]);
        call.args([&wanted.refname, &commit, &old.unwrap_or_default()]).run().await?;
        Ok(commit)
    }
}

/// A snapshot about to be stored.
#[derive(Debug)]
struct Wanted {
    refname: String,
    tree: String,
    head: Option<String>,
    message: String,
}

impl Wanted {
    /// Whether a stored commit is this very state.
    fn is(&self, tree: &str, commit: &[u8]) -> bool {
        let text = String::from_utf8_lossy(commit);
        let parent = text.lines().take_while(|line| !line.is_empty()).find_map(|line| line.strip_prefix("parent "));
        let message = text.split_once("\n\n").map(|(_, message)| message);
        tree == self.tree && parent == self.head.as_deref() && message == Some(self.message.as_str())
    }
}
