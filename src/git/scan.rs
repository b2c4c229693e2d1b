//! What lies in a working tree: tracked entries, and every file that is neither tracked nor ignored.
//!
//! Repositories nested without being submodules count as what they are, directories of files; git itself
//! would show only their name. Nothing here reads file contents or writes anything.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
};

use super::{Error, Git, Repo, Result, cli};
use crate::sys::{Fs, FsError, Kind};

/// A path as git and the kernel know it.
pub(super) type Bytes = Vec<u8>;

/// Repositories inside repositories are followed this deep; below that, every file counts.
const MAX_NESTING: usize = 8;
/// Most entries of a directory walk, so that a loop of mounts ends.
const MAX_WALK: usize = 2_000_000;
/// Output of a listing: about two million paths.
pub(super) const MAX_LISTING: usize = 512 << 20;
/// Mode of a submodule.
pub(super) const GITLINK: u32 = 0o160_000;

/// One entry of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tracked {
    /// Where.
    pub(super) path: Bytes,
    /// Mode in the index.
    pub(super) mode: u32,
    /// Flagged so that git does not look at the file.
    pub(super) assumed: bool,
    /// Flagged so that git takes the file as rightly absent.
    pub(super) skipped: bool,
}

/// A working tree's listing.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Entries of the index; a path in conflict is there once.
    pub(super) tracked: Vec<Tracked>,
    /// Untracked, unignored files, nested repositories' files included.
    pub(super) others: Vec<Bytes>,
    /// Nested repositories that are no submodules.
    pub(super) nested: Vec<Bytes>,
    /// What git could not look into, in its words; empty when it saw everything.
    pub(super) unseen: String,
}

impl Scan {
    /// Fails when a directory could not be read: what is in there may be anything.
    pub(super) fn must_be_whole(&self, top: &Path) -> Result<()> {
        match self.unseen.is_empty() {
            true => Ok(()),
            false => Err(Error::Failed { what: LISTING, repo: top.to_path_buf(), stderr: self.unseen.clone() }),
        }
    }
}

impl Repo {
    /// Lists the working tree as the index that `env` names (the user's without it) sees it.
    pub(super) async fn scan(&self, env: &[(&'static str, OsString)]) -> Result<Scan> {
        let call = self.git.call(&self.top, LISTING).envs(env).max_stdout(MAX_LISTING).args(LIST).arg(STANDARD);
        let output = call.output().await?;
        if output.status != 0 {
            return Err(cli::failed(LISTING, self.top.clone(), &output));
        }
        let mut scan = parse(&output.stdout)?;
        // git goes on without a directory it may not read, and ends with status 0.
        if output.stderr.contains(UNSEEN) {
            scan.unseen = output.stderr.trim().to_owned();
        }
        let nested = std::mem::take(&mut scan.nested);
        for dir in &nested {
            scan.others.extend(nested_files(&self.git, &self.top, dir.clone(), 1).await?);
        }
        scan.nested = nested;
        scan.others.sort();
        scan.others.dedup();
        Ok(scan)
    }
}

/// How git says that it left a directory out.
const UNSEEN: &str = "could not open directory";
const LISTING: &str = "list the working tree";
const LIST: [&str; 6] = ["ls-files", "-z", "-v", "--stage", "--cached", "--others"];
/// The user's ignore rules, all of them.
const STANDARD: &str = "--exclude-standard";
/// Only rules that are files of the tree and so show up themselves: a nested repository's private ones
/// would be a place to hide files.
const VISIBLE: &str = "--exclude-per-directory=.gitignore";

/// Files of the repository nested at `dir`, with paths below `top`.
fn nested_files<'a>(
    git: &'a Git,
    top: &'a Path,
    dir: Bytes,
    depth: usize,
) -> Pin<Box<dyn Future<Output = Result<Vec<Bytes>>> + Send + 'a>> {
    Box::pin(async move {
        let path = top.join(as_path(&dir));
        let listed = match depth > MAX_NESTING {
            true => None,
            false => {
                let mut call = git.call(&path, LISTING).max_stdout(MAX_LISTING);
                call = call.arg("--git-dir").arg(path.join(".git")).arg("--work-tree").arg(&path);
                let output = call.args(LIST).arg(VISIBLE).output().await?;
                (output.status == 0).then_some(output.stdout)
            }
        };
        let Some(listed) = listed else { return walk_async(git.fs.clone(), top.to_path_buf(), dir).await };
        let scan = parse(&listed)?;
        let mut files = Vec::new();
        for entry in scan.tracked {
            let path = join(&dir, &entry.path);
            match entry.mode {
                GITLINK => files.extend(nested_files(git, top, path, depth + 1).await?),
                _ => files.push(path),
            }
        }
        files.extend(scan.others.iter().map(|other| join(&dir, other)));
        for inner in &scan.nested {
            files.extend(nested_files(git, top, join(&dir, inner), depth + 1).await?);
        }
        Ok(files)
    })
}

/// Reads the listing: `<tag> <mode> <id> <stage>\t<path>` for index entries, `? <path>` for others.
fn parse(listed: &[u8]) -> Result<Scan> {
    let odd = |record: &[u8]| Error::Answer { what: LISTING, reason: String::from_utf8_lossy(record).into_owned() };
    let mut scan = Scan::default();
    for record in cli::records(listed) {
        let Some((&tag, rest)) = record.split_first() else { continue };
        let rest = rest.strip_prefix(b" ").ok_or_else(|| odd(record))?;
        if tag == b'?' {
            match rest.strip_suffix(b"/") {
                Some(dir) => scan.nested.push(dir.to_vec()),
                None => scan.others.push(rest.to_vec()),
            }
            continue;
        }
        let tab = rest.iter().position(|b| *b == b'\t').ok_or_else(|| odd(record))?;
        let (head, path) = rest.split_at(tab);
        let mode = std::str::from_utf8(head).ok().and_then(|head| head.split(' ').next());
        let mode = mode.and_then(|mode| u32::from_str_radix(mode, 8).ok()).ok_or_else(|| odd(record))?;
        let path = path.get(1..).unwrap_or_default().to_vec();
        if scan.tracked.last().is_some_and(|last| last.path == path) {
            continue;
        }
        let (assumed, skipped) = (tag.is_ascii_lowercase(), tag.eq_ignore_ascii_case(&b'S'));
        scan.tracked.push(Tracked { path, mode, assumed, skipped });
    }
    Ok(scan)
}

/// Every file below `dir` (below `top`), repositories' own folders left out. For what git cannot list.
pub(super) async fn walk_async(fs: Arc<dyn Fs>, top: PathBuf, dir: Bytes) -> Result<Vec<Bytes>> {
    blocking("walk a directory", move || walk(&*fs, &top, dir)).await
}

/// The same, on this thread.
pub(super) fn walk(fs: &dyn Fs, top: &Path, dir: Bytes) -> Result<Vec<Bytes>> {
    let (mut found, mut pending, mut seen) = (Vec::new(), vec![dir], 0_usize);
    while let Some(dir) = pending.pop() {
        let names = match fs.list(&top.join(as_path(&dir))) {
            Ok(names) => names,
            Err(e) if e.is_not_found() => continue,
            Err(e) => return Err(e.into()),
        };
        for name in names {
            seen += 1;
            if seen > MAX_WALK {
                let reason = format!("more than {MAX_WALK} files below {}", top.display());
                return Err(Error::Answer { what: "walk a directory", reason });
            }
            if name == ".git" {
                continue;
            }
            let path = join(&dir, name.as_bytes());
            match kind(fs, &top.join(as_path(&path)))? {
                Some(Kind::Dir) => pending.push(path),
                Some(Kind::File | Kind::Symlink) => found.push(path),
                Some(Kind::Other) | None => {}
            }
        }
    }
    Ok(found)
}

/// What stands at a path; `None` for nothing.
pub(super) fn kind(fs: &dyn Fs, path: &Path) -> std::result::Result<Option<Kind>, FsError> {
    match fs.metadata(path) {
        Ok(meta) => Ok(Some(meta.kind)),
        Err(e) if e.is_not_found() => Ok(None),
        Err(e) => Err(e),
    }
}

/// Tells whether a path is reached through real directories only; remembers what it saw.
#[derive(Debug, Default)]
pub(super) struct Parents(HashMap<Bytes, bool>);

impl Parents {
    /// False when a directory above `path` is a link, a file or missing: git does not look beyond those.
    pub(super) fn are_real(&mut self, fs: &dyn Fs, top: &Path, path: &[u8]) -> std::result::Result<bool, FsError> {
        let Some(slash) = path.iter().rposition(|b| *b == b'/') else { return Ok(true) };
        let (parent, _) = path.split_at(slash);
        if let Some(known) = self.0.get(parent) {
            return Ok(*known);
        }
        let real = self.are_real(fs, top, parent)? && kind(fs, &top.join(as_path(parent)))? == Some(Kind::Dir);
        self.0.insert(parent.to_vec(), real);
        Ok(real)
    }
}

/// Runs file work off the async threads.
pub(super) async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(e) => Err(Error::Answer { what, reason: e.to_string() }),
    }
}

/// The path in the system's form.
pub(super) fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// `dir/name`.
pub(super) fn join(dir: &[u8], name: &[u8]) -> Bytes {
    [dir, b"/", name].concat()
}
