//! The digest of a working tree: one value for HEAD and the bytes on disk.
//!
//! Files are read and hashed as they lie there. git is asked only which paths there are, so that neither
//! attributes, filters, index flags nor diff settings can make two different trees look the same.

use std::{collections::BTreeMap, path::Path, pin::Pin};

use sha2::{Digest as _, Sha256};

use super::{
    Repo, Result,
    scan::{self, Bytes, GITLINK, Parents},
};
use crate::sys::{Fs, FsError, Kind};

/// Bytes read at once, so that a big file costs no memory.
const CHUNK: usize = 1 << 20;
/// Submodules are followed this deep; below that, every file counts.
const MAX_DEPTH: usize = 8;

impl Repo {
    /// Digest of the content: HEAD's commit, every difference to it, and path, mode and bytes of every
    /// untracked, unignored file. Touching a file changes nothing; changing a byte does. `sha256:<hex>`.
    pub async fn digest(&self) -> Result<String> {
        let mut paths = Paths { heads: BTreeMap::new(), files: Vec::new() };
        self.collect(Vec::new(), 0, &mut paths).await?;
        let (fs, top) = (self.git.fs.clone(), self.top.clone());
        scan::blocking("digest the working tree", move || paths.hash(&*fs, &top)).await
    }

    /// Kind and content of every file that the digest covers.
    pub(super) async fn entries(&self) -> Result<BTreeMap<Bytes, Listed>> {
        let mut paths = Paths { heads: BTreeMap::new(), files: Vec::new() };
        self.collect(Vec::new(), 0, &mut paths).await?;
        let (fs, top) = (self.git.fs.clone(), self.top.clone());
        scan::blocking("read the working tree", move || {
            let (mut parents, mut found) = (Parents::default(), BTreeMap::new());
            for path in paths.files {
                if parents.are_real(&*fs, &top, &path)?
                    && let Some(listed) = Listed::at(&*fs, &top.join(scan::as_path(&path)))?
                {
                    found.insert(path, listed);
                }
            }
            Ok(found)
        })
        .await
    }

    /// Gathers what belongs to this repository, and to its submodules.
    fn collect<'a>(
        &'a self,
        prefix: Bytes,
        depth: usize,
        paths: &'a mut Paths,
    ) -> Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>> {
        Box::pin(async move {
            let head = self.head().await?;
            let scan = self.scan(&[]).await?;
            scan.must_be_whole(&self.top)?;
            let below = |path: &[u8]| if prefix.is_empty() { path.to_vec() } else { scan::join(&prefix, path) };
            paths.files.extend(scan.others.iter().map(|path| below(path)));
            // A tracked file that was taken out of the index and ignored is still a difference to HEAD.
            let mut tracked = match &head {
                Some(commit) => self.tree_paths(commit).await?,
                None => Default::default(),
            };
            paths.heads.insert(prefix.clone(), head.unwrap_or_default());
            let mut submodules = Vec::new();
            for entry in scan.tracked {
                if entry.mode == GITLINK {
                    tracked.remove(&entry.path);
                    submodules.push(entry.path);
                } else {
                    tracked.insert(entry.path);
                }
            }
            paths.files.extend(tracked.iter().map(|path| below(path)));
            for path in submodules {
                let inner = match depth < MAX_DEPTH {
                    true => self.submodule(&path).await?,
                    false => None,
                };
                match inner {
                    Some(inner) => inner.collect(below(&path), depth + 1, paths).await?,
                    None => {
                        let files = scan::walk_async(self.git.fs.clone(), self.top.clone(), path).await?;
                        paths.files.extend(files.iter().map(|path| below(path)));
                    }
                }
            }
            Ok(())
        })
    }

    /// Digest of the submodule `path` as it lies there; `None` when it holds nothing.
    pub(super) async fn submodule_digest(&self, path: &[u8]) -> Result<Option<String>> {
        if let Some(inner) = self.submodule(path).await? {
            // Boxed: a submodule's digest may itself follow submodules.
            return Ok(Some(Box::pin(inner.digest()).await?));
        }
        // No repository there, which is no reason not to look for files.
        let files = scan::walk_async(self.git.fs.clone(), self.top.clone(), path.to_vec()).await?;
        if files.is_empty() {
            return Ok(None);
        }
        let (fs, top, paths) = (self.git.fs.clone(), self.top.clone(), Paths { heads: BTreeMap::new(), files });
        scan::blocking("digest a submodule", move || paths.hash(&*fs, &top)).await.map(Some)
    }

    /// The repository checked out at the submodule `path`; `None` when there is none.
    pub(super) async fn submodule(&self, path: &[u8]) -> Result<Option<Repo>> {
        let (fs, top, dir) = (self.git.fs.clone(), self.top.clone(), path.to_vec());
        let there = scan::blocking("look for a submodule", move || {
            let real = Parents::default().are_real(&*fs, &top, &scan::join(&dir, b".git"))?;
            Ok(real && scan::kind(&*fs, &top.join(scan::as_path(&dir)).join(".git"))?.is_some())
        });
        if !there.await? {
            return Ok(None);
        }
        let dir = self.top.join(scan::as_path(path));
        Ok(self.git.open(&dir).await?.filter(|repo| repo.top == dir))
    }
}

/// Everything a digest covers.
struct Paths {
    /// HEAD of the repository and of each submodule.
    heads: BTreeMap<Bytes, String>,
    /// Files below the top.
    files: Vec<Bytes>,
}

impl Paths {
    fn hash(mut self, fs: &dyn Fs, top: &Path) -> Result<String> {
        self.files.sort();
        self.files.dedup();
        let mut whole = Sha256::new();
        let mut field = |bytes: &[u8]| {
            whole.update((bytes.len() as u64).to_be_bytes());
            whole.update(bytes);
        };
        field(b"clawo tree 1");
        for (path, head) in &self.heads {
            field(b"head");
            field(path);
            field(head.as_bytes());
        }
        let mut parents = Parents::default();
        for path in &self.files {
            let on_disk = top.join(scan::as_path(path));
            // What is absent needs no word: HEAD is in the digest, so a path that is missing is missed.
            let Some((kind, content)) = (match parents.are_real(fs, top, path)? {
                true => entry(fs, &on_disk)?,
                false => None,
            }) else {
                continue;
            };
            field(path);
            field(kind.as_bytes());
            field(&content);
        }
        Ok(format!("sha256:{}", hex(&whole.finalize())))
    }
}

/// Kind and content of one path, as far as two of them can be told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed(&'static str, Vec<u8>);

impl Listed {
    /// What stands at `path`; `None` where neither a file nor a link is.
    pub fn at(fs: &dyn Fs, path: &Path) -> std::result::Result<Option<Self>, FsError> {
        Ok(entry(fs, path)?.map(|(kind, content)| Self(kind, content)))
    }

    /// A commit.
    pub(super) fn head(commit: String) -> Self {
        Self("head", commit.into_bytes())
    }

    /// The commit, if it is one.
    pub fn commit(&self) -> Option<&str> {
        let Self(kind, content) = self;
        std::str::from_utf8(content).ok().filter(|commit| *kind == "head" && !commit.is_empty())
    }
}

/// Kind and content of one path, `None` where neither a file nor a link is; a file's content is its hash.
fn entry(fs: &dyn Fs, path: &Path) -> std::result::Result<Option<(&'static str, Vec<u8>)>, FsError> {
    let read = || {
        let meta = fs.metadata(path)?;
        Ok(match meta.kind {
            Kind::File if meta.mode & 0o100 != 0 => Some(("executable", file_hash(fs, path)?)),
            Kind::File => Some(("file", file_hash(fs, path)?)),
            Kind::Symlink => Some(("link", fs.read_link(path)?.into_os_string().into_encoded_bytes())),
            // A directory's files are listed for themselves.
            Kind::Dir | Kind::Other => None,
        })
    };
    match read() {
        Err(e) if FsError::is_not_found(&e) => Ok(None),
        other => other,
    }
}

/// SHA-256 of a file's bytes, read in pieces.
pub(super) fn file_hash(fs: &dyn Fs, path: &Path) -> std::result::Result<Vec<u8>, FsError> {
    let (mut hash, mut offset) = (Sha256::new(), 0_u64);
    loop {
        let bytes = fs.read_range(path, offset, CHUNK)?;
        hash.update(&bytes);
        offset += bytes.len() as u64;
        if bytes.len() < CHUNK {
            return Ok(hash.finalize().to_vec());
        }
    }
}

/// Lower-case hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
