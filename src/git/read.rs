//! Refs, commits and trees, through libgit2 where it can open the repository and the program where not.
//!
//! libgit2 saves the cost of a process; the program is right everywhere (reftable, sha256). Whatever
//! libgit2 refuses is asked again from the program, whose word is final. Never looks at the working tree.

use std::collections::BTreeSet;

use super::{Error, Repo, Result, cli, scan::Bytes};

impl Repo {
    /// Commit of HEAD; `None` before the first commit.
    pub async fn head(&self) -> Result<Option<String>> {
        let found = self.library(|repo| match repo.head() {
            Ok(head) => Ok(Some(head.peel_to_commit()?.id().to_string())),
            Err(e) if e.code() == git2::ErrorCode::UnbornBranch => Ok(None),
            Err(e) => Err(e),
        });
        if let Some(head) = found.await {
            return Ok(head);
        }
        let what = "read HEAD";
        let call = self.git.call(&self.top, what).args(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]);
        let output = call.output().await?;
        match output.status {
            0 => Ok(Some(cli::text(what, output.stdout)?.trim().to_owned())),
            1 if output.stderr.trim().is_empty() => Ok(None),
            _ => Err(cli::failed(what, self.top.clone(), &output)),
        }
    }

    /// Refs below `prefix` with their commits, sorted by name.
    pub async fn refs(&self, prefix: &str) -> Result<Vec<(String, String)>> {
        let below = prefix.trim_end_matches('/').to_owned();
        let found = self.library({
            let below = below.clone();
            move |repo| {
                let mut found = Vec::new();
                for reference in repo.references_glob(&format!("{below}/*"))? {
                    let reference = reference?;
                    let name = String::from_utf8_lossy(reference.name_bytes()).into_owned();
                    found.push((name, reference.peel_to_commit()?.id().to_string()));
                }
                found.sort();
                Ok(found)
            }
        });
        if let Some(found) = found.await {
            return Ok(found);
        }
        let what = "list refs";
        let call = self.git.call(&self.top, what).args(["for-each-ref", "--format=%(objectname) %(refname)"]);
        let listed = cli::text(what, call.arg(format!("{below}/")).run().await?)?;
        let mut found: Vec<_> =
            listed.lines().filter_map(|line| line.split_once(' ')).map(|(id, name)| (name.into(), id.into())).collect();
        found.sort();
        Ok(found)
    }

    /// The commit that `rev` (full or short id, tag, ref) names.
    pub(super) async fn resolve(&self, rev: &str) -> Result<String> {
        // Nothing git could take for an option or a range.
        if rev.is_empty() || rev.starts_with('-') || rev.contains(['\n', '\0', ':']) || rev.contains("..") {
            return Err(Error::BaseGone(rev.to_owned()));
        }
        let wanted = format!("{rev}^{{commit}}");
        let asked = wanted.clone();
        if let Some(id) = self.library(move |repo| Ok(repo.revparse_single(&asked)?.id().to_string())).await {
            return Ok(id);
        }
        let what = "resolve a commit";
        let output =
            self.git.call(&self.top, what).args(["rev-parse", "--verify", "--quiet", &wanted]).output().await?;
        match output.status {
            0 => Ok(cli::text(what, output.stdout)?.trim().to_owned()),
            _ => Err(Error::BaseGone(rev.to_owned())),
        }
    }

    /// Every path in the tree of `commit`.
    pub(super) async fn tree_paths(&self, commit: &str) -> Result<BTreeSet<Bytes>> {
        let asked = commit.to_owned();
        let found = self.library(move |repo| {
            let tree = repo.find_commit(git2::Oid::from_str(&asked)?)?.tree()?;
            let mut paths = BTreeSet::new();
            let mut pending = vec![(Bytes::new(), tree)];
            while let Some((dir, tree)) = pending.pop() {
                for entry in &tree {
                    let mut path = dir.clone();
                    path.extend_from_slice(entry.name_bytes());
                    if entry.kind() == Some(git2::ObjectType::Tree) {
                        path.push(b'/');
                        pending.push((path, repo.find_tree(entry.id())?));
                    } else {
                        paths.insert(path);
                    }
                }
            }
            Ok(paths)
        });
        if let Some(paths) = found.await {
            return Ok(paths);
        }
        let call = self.git.call(&self.top, "list a commit's files");
        let listed = call.args(["ls-tree", "-r", "-z", "--name-only", "--full-tree", commit]).run().await?;
        Ok(cli::records(&listed).map(<[u8]>::to_vec).collect())
    }

    /// Tree of a commit.
    pub(super) async fn tree_of(&self, commit: &str) -> Result<String> {
        let asked = commit.to_owned();
        let found = self.library(move |repo| Ok(repo.find_commit(git2::Oid::from_str(&asked)?)?.tree_id().to_string()));
        match found.await {
            Some(tree) => Ok(tree),
            None => {
                let call = self.git.call(&self.top, "read a commit's tree");
                call.args(["rev-parse", "--verify", &format!("{commit}^{{tree}}")]).word().await
            }
        }
    }

    /// The raw commit object, headers and message.
    pub(super) async fn commit_object(&self, commit: &str) -> Result<Vec<u8>> {
        let asked = commit.to_owned();
        let found = self.library(move |repo| Ok(repo.odb()?.read(git2::Oid::from_str(&asked)?)?.data().to_vec()));
        match found.await {
            Some(bytes) => Ok(bytes),
            None => self.git.call(&self.top, "read a commit").args(["cat-file", "commit", commit]).run().await,
        }
    }

    /// Asks libgit2; `None` when it cannot answer for whatever reason.
    pub(super) async fn library<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&git2::Repository) -> std::result::Result<T, git2::Error> + Send + 'static,
    ) -> Option<T> {
        let dir = self.git_dir.clone();
        let asked = tokio::task::spawn_blocking(move || git2::Repository::open(&dir).and_then(|repo| ask(&repo)));
        match asked.await {
            Ok(Ok(answer)) => Some(answer),
            Ok(Err(e)) => {
                tracing::trace!(error = %e, "libgit2 declined");
                None
            }
            Err(_) => None,
        }
    }
}
