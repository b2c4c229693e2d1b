//! What differs between two commits, with lines and blobs, and single files of commits. Never looks at a
//! working tree.

use std::{collections::BTreeMap, ffi::OsString};

use super::{
    ChangeKind, Error, Repo, Result,
    changes::{MAX_LIST, PLAIN, empty_tree},
    cli,
    scan::Bytes,
};

const LISTING: &str = "compare two commits";
const SHOW: &str = "read a file of a commit";

/// One path that differs between two commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Relative to the repository's top; invalid UTF-8 is replaced.
    pub path: String,
    /// Where it came from, for a rename.
    pub old_path: Option<String>,
    /// How.
    pub kind: ChangeKind,
    /// Lines added; a binary file counts one.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
    /// Whether it is no text.
    pub binary: bool,
    /// Object of the newer content; `None` when it is gone.
    pub blob: Option<String>,
    /// Object of the older content; `None` when it was not there.
    pub old_blob: Option<String>,
}

/// Mode and object of one side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) mode: String,
    pub(super) blob: String,
}

/// The same with everything git says.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) path: Bytes,
    pub(super) old_path: Option<Bytes>,
    pub(super) kind: ChangeKind,
    pub(super) old: Option<Side>,
    pub(super) new: Option<Side>,
    insertions: u64,
    deletions: u64,
    binary: bool,
}

impl Repo {
    /// What differs between two commits, sorted by path, renames found.
    pub async fn differences(&self, from: &str, to: &str) -> Result<Vec<Difference>> {
        let rows = self.rows(from, to, &["-M", "--numstat"], &[]).await?;
        let show = |path: Bytes| String::from_utf8_lossy(&path).into_owned();
        let differences = rows.into_iter().map(|row| Difference {
            path: show(row.path),
            old_path: row.old_path.map(show),
            kind: row.kind,
            insertions: row.insertions,
            deletions: row.deletions,
            binary: row.binary,
            blob: row.new.map(|side| side.blob),
            old_blob: row.old.map(|side| side.blob),
        });
        Ok(differences.collect())
    }

    /// Paths that differ between two commits or trees, a rename as two, sorted by path.
    pub(super) async fn plain_rows(&self, from: &str, to: &str, env: &[(&'static str, OsString)]) -> Result<Vec<Row>> {
        self.rows(from, to, &["--no-renames"], env).await
    }

    async fn rows(&self, from: &str, to: &str, how: &[&str], env: &[(&'static str, OsString)]) -> Result<Vec<Row>> {
        // Attributes of the working tree could call a text file binary.
        let attributes = ("GIT_ATTR_SOURCE", OsString::from(empty_tree(from)));
        let call = self.git.call(&self.top, LISTING).envs(env).envs(&[attributes]).max_stdout(MAX_LIST).args(PLAIN);
        let call = call.args(how).args(["--raw", "-z", from, to]);
        parse(&call.run().await?)
    }

    /// Tree of a commit.
    pub async fn tree(&self, commit: &str) -> Result<String> {
        self.tree_of(commit).await
    }

    /// Bytes of the file `path` in a commit, as git stores it. `None` when there is no file. One of more than
    /// `max` bytes is an error, so that nobody goes on with half of it.
    pub async fn show(&self, commit: &str, path: &str, max: usize) -> Result<Option<Vec<u8>>> {
        let commit = self.resolve(commit).await?;
        if path.is_empty() || path.starts_with("./") || path.starts_with("../") || path.contains('\0') {
            return Ok(None);
        }
        let call = self.git.call(&self.top, SHOW).limit(cli::QUICK);
        let output = call.args(["rev-parse", "--verify", "--quiet", &format!("{commit}:{path}")]).output().await?;
        if output.status != 0 {
            return Ok(None);
        }
        let id = cli::text(SHOW, output.stdout)?.trim().to_owned();
        let call = self.git.call(&self.top, SHOW).limit(cli::QUICK);
        // A directory or a submodule is no file.
        let output = call.args(["cat-file", "-t", &id]).output().await?;
        if output.status != 0 || output.stdout.trim_ascii() != b"blob" {
            return Ok(None);
        }
        let call = self.git.call(&self.top, SHOW).limit(cli::QUICK).max_stdout(max);
        call.args(["cat-file", "blob", &id]).run().await.map(Some)
    }
}

/// Reads `--raw -z`, with or without `--numstat`.
fn parse(answer: &[u8]) -> Result<Vec<Row>> {
    let odd = |record: &[u8]| Error::Answer { what: LISTING, reason: String::from_utf8_lossy(record).into_owned() };
    let mut found: BTreeMap<Bytes, Row> = BTreeMap::new();
    let mut fields = answer.split(|b| *b == 0);
    while let Some(record) = fields.next() {
        if record.is_empty() {
            continue;
        }
        if let Some(head) = record.strip_prefix(b":") {
            let head = std::str::from_utf8(head).map_err(|_| odd(record))?;
            let path = fields.next().ok_or_else(|| odd(record))?.to_vec();
            let mut words = head.split(' ');
            let (Some(old_mode), Some(mode), Some(old_blob), Some(blob), Some(status)) =
                (words.next(), words.next(), words.next(), words.next(), words.next())
            else {
                return Err(odd(record));
            };
            let (path, old_path, kind) = match status.as_bytes().first() {
                Some(b'A') => (path, None, ChangeKind::Created),
                Some(b'D') => (path, None, ChangeKind::Deleted),
                Some(b'M' | b'T') => (path, None, ChangeKind::Modified),
                Some(b'R') => {
                    let new = fields.next().ok_or_else(|| odd(record))?.to_vec();
                    (new, Some(path), ChangeKind::Renamed)
                }
                _ => return Err(odd(record)),
            };
            let side = |mode: &str, blob: &str| {
                let there = mode.bytes().any(|b| b != b'0');
                there.then(|| Side { mode: mode.to_owned(), blob: blob.to_owned() })
            };
            let (old, new) = (side(old_mode, old_blob), side(mode, blob));
            let row = Row { path, old_path, kind, old, new, insertions: 0, deletions: 0, binary: false };
            found.insert(row.path.clone(), row);
            continue;
        }
        let mut parts = record.splitn(3, |b| *b == b'\t');
        let (Some(added), Some(removed), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(odd(record));
        };
        let path = match path.is_empty() {
            false => path,
            // A rename has both paths in fields of their own.
            true => {
                fields.next();
                fields.next().ok_or_else(|| odd(record))?
            }
        };
        let row = found.get_mut(path).ok_or_else(|| odd(record))?;
        let count = |count: &[u8]| {
            std::str::from_utf8(count).ok().and_then(|count| count.parse::<u64>().ok()).ok_or_else(|| odd(record))
        };
        // A binary file is `-` twice.
        row.binary = added == b"-";
        (row.insertions, row.deletions) = match row.binary {
            true => (1, 0),
            false => (count(added)?, count(removed)?),
        };
    }
    Ok(found.into_values().collect())
}
