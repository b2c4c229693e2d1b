//! Commits made from other commits through an index of our own. No working tree is looked at or written.

use std::ffi::OsString;

use super::{
    Repo, Result, cli,
    differences::Side,
    scan::Bytes,
    scratch::{Objects, Scratch},
};

const COMMIT: &str = "make a commit";
/// Mode of an ordinary file.
const PLAIN_FILE: &str = "100644";

/// What becomes of a path; `None` takes it away.
pub(super) type Edit = (Bytes, Option<Side>);

impl Repo {
    /// A commit on `parent` of its tree with these files written (their mode stays, a new one is an ordinary
    /// file) or, with `None`, removed. Returns `parent` when that changes nothing. No ref is moved.
    pub async fn commit_files(
        &self,
        parent: &str,
        files: &[(String, Option<Vec<u8>>)],
        message: &str,
    ) -> Result<String> {
        let parent = self.resolve(parent).await?;
        let scratch = Scratch::new(self, Objects::Keep).await?;
        self.read_tree(&scratch, &parent).await?;
        let mut edits = Vec::new();
        for (path, bytes) in files {
            let side = match bytes {
                Some(bytes) => Some(self.side(scratch.env(), path.as_bytes(), bytes).await?),
                None => None,
            };
            edits.push((path.clone().into_bytes(), side));
        }
        self.edited(&scratch, &parent, &edits, message).await
    }

    /// A commit on `parent` in which these paths are as in `base`, and gone where they are absent there. Returns
    /// `parent` when that changes nothing. No ref is moved.
    pub async fn restore_from(&self, parent: &str, base: &str, paths: &[String], message: &str) -> Result<String> {
        let (parent, base) = (self.resolve(parent).await?, self.resolve(base).await?);
        let scratch = Scratch::new(self, Objects::Keep).await?;
        self.read_tree(&scratch, &parent).await?;
        let rows = self.plain_rows(&base, &parent, &[]).await?;
        let named = rows.into_iter().filter(|row| paths.iter().any(|path| *path == String::from_utf8_lossy(&row.path)));
        let edits: Vec<Edit> = named.map(|row| (row.path, row.old)).collect();
        self.edited(&scratch, &parent, &edits, message).await
    }

    async fn read_tree(&self, scratch: &Scratch, commit: &str) -> Result<()> {
        let call = self.git.call(&self.top, COMMIT).envs(scratch.env()).limit(cli::QUICK);
        call.args(["read-tree", commit]).run().await.map(drop)
    }

    async fn edited(&self, scratch: &Scratch, parent: &str, edits: &[Edit], message: &str) -> Result<String> {
        self.edit(scratch.env(), edits, parent.len()).await?;
        let tree = self.written_tree(scratch.env()).await?;
        if tree == self.tree_of(parent).await? {
            return Ok(parent.to_owned());
        }
        self.commit_of(&tree, &[parent], message, &[]).await
    }

    /// Stores content for `path`, with the mode the path has in the index that `env` names.
    pub(super) async fn side(&self, env: &[(&'static str, OsString)], path: &[u8], bytes: &[u8]) -> Result<Side> {
        let call = self.git.call(&self.top, "store a file").args(cli::SENT);
        let call = call.args(["hash-object", "-w", "--no-filters", "--stdin"]).stdin(bytes.to_vec());
        let blob = call.word().await?;
        let call = self.git.call(&self.top, "read the index").envs(env).limit(cli::QUICK);
        let call = call.args(["--literal-pathspecs", "ls-files", "-z", "--stage", "--full-name", "--"]);
        let listed = call.arg(super::open::path(path).into_os_string()).run().await?;
        let mut modes = cli::records(&listed).filter_map(|record| {
            let (head, name) = record.split_at(record.iter().position(|b| *b == b'\t')?);
            let mode = std::str::from_utf8(head).ok()?.split(' ').next()?;
            (name.get(1..) == Some(path) && mode.starts_with("100")).then(|| mode.to_owned())
        });
        Ok(Side { mode: modes.next().unwrap_or_else(|| PLAIN_FILE.to_owned()), blob })
    }

    /// Writes entries of the index that `env` names; a conflict of a path is over with it. `id_len` is the
    /// length of the repository's object ids.
    pub(super) async fn edit(&self, env: &[(&'static str, OsString)], edits: &[Edit], id_len: usize) -> Result<()> {
        if edits.is_empty() {
            return Ok(());
        }
        // git would pass over these with no more than a warning.
        if let Some((path, _)) = edits.iter().find(|(path, _)| !is_file_path(path)) {
            return Err(self.refuse(COMMIT, format!("'{}' is no path of a file", String::from_utf8_lossy(path))));
        }
        let mut orders = Vec::new();
        let mut order = |head: String, path: &[u8]| {
            orders.extend(head.into_bytes());
            orders.extend_from_slice(path);
            orders.push(0);
        };
        // What goes, goes first, so that a file can take the place of a directory and the other way round.
        for (path, _) in edits {
            order(format!("0 {}\t", "0".repeat(id_len)), path);
        }
        for (path, side) in edits {
            if let Some(Side { mode, blob }) = side {
                order(format!("{mode} {blob}\t"), path);
            }
        }
        let call = self.git.call(&self.top, "write the index").envs(env).limit(cli::QUICK);
        call.args(["update-index", "-z", "--index-info"]).stdin(orders).run().await.map(drop)
    }

    /// The tree of the index that `env` names.
    pub(super) async fn written_tree(&self, env: &[(&'static str, OsString)]) -> Result<String> {
        let call = self.git.call(&self.top, "write a tree").envs(env).args(cli::SENT).limit(cli::QUICK);
        call.args(["write-tree", "--missing-ok"]).word().await
    }

    /// A commit, unsigned; by us unless `identity` says otherwise.
    pub(super) async fn commit_of(
        &self,
        tree: &str,
        parents: &[&str],
        message: &str,
        identity: &[(&'static str, OsString)],
    ) -> Result<String> {
        let call = self.git.call(&self.top, COMMIT).envs(identity).args(cli::SENT).limit(cli::QUICK);
        let call = call.args(["commit-tree", "--no-gpg-sign"]).args(parents.iter().flat_map(|parent| ["-p", parent]));
        call.arg(tree).stdin(message.as_bytes().to_vec()).word().await
    }
}

/// Whether a tree can hold a file of this path.
fn is_file_path(path: &[u8]) -> bool {
    path.split(|b| *b == b'/')
        .all(|part| !matches!(part, b"" | b"." | b"..") && !part.eq_ignore_ascii_case(b".git") && !part.contains(&0))
}
