//! Where agents work that must not write: a copy of the directory, looked at after every turn.
//!
//! The copy of a repository is a repository of its own at the same commit. It lies at the same place whenever a
//! session of the same name is opened, because some programs keep their conversations by directory.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use sha2::{Digest as _, Sha256};

use crate::{
    engines::{Boxed, EngineError, ErrorClass, Isolated, Isolation},
    git::{Git, HEAD, Listed, Repo},
    sys::{Fs, FsError, FsLock, Kind, command::Command, fs, supervise, tasks},
};

/// Most files of a directory that is no repository; a bigger one is nothing to be copied for a look.
const MAX_FILES: usize = 20_000;
/// Most bytes of it: 512 MiB.
const MAX_BYTES: u64 = 512 << 20;
/// Longest readable part of a place's name.
const MAX_NAME: usize = 80;

/// What lies in a directory, by path below it.
type Listing = BTreeMap<Vec<u8>, Listed>;

/// Makes such places below the state directory.
#[derive(Debug)]
pub struct ReadOnly {
    git: Git,
    root: PathBuf,
    confined: bool,
}

impl ReadOnly {
    /// Places below `home`.
    pub fn new(git: Git, home: &Path) -> Self {
        Self { git, root: home.join("read-only"), confined: supervise::can_confine() }
    }

    /// The same as if this system had no means to keep programs from writing.
    #[must_use]
    pub fn watching_only(self) -> Self {
        Self { confined: false, ..self }
    }

    async fn make(&self, name: &str, cwd: &Path) -> Result<Place, EngineError> {
        let (fs, root, folder) = (Arc::clone(&self.git.fs), self.root.clone(), folder(name));
        let (place, lock) = blocking("make a read-only place", move || {
            fs::create_dir_all(&*fs, &root)?;
            let place = root.join(&folder);
            let lock = fs.try_lock(&root.join(format!("{folder}.lock")))?;
            if lock.is_some() {
                clear(&*fs, &place)?;
                fs.create_dir(&place)?;
                fs.create_dir(&place.join("tmp"))?;
            }
            Ok((place, lock))
        })
        .await?;
        let Some(lock) = lock else {
            return Err(failed(format!("a read-only session called {name} is open already; close it first")));
        };
        let tree = place.join("tree");
        let source = match self.git.open(cwd).await.map_err(told)? {
            Some(repo) => {
                Source::Repo { copy: Box::new(repo.copy_to(&tree).await.map_err(told)?), repo: Box::new(repo) }
            }
            None => {
                let (fs, dir) = (Arc::clone(&self.git.fs), cwd.to_path_buf());
                blocking("look at the directory", move || walk(&*fs, &dir, Some(MAX_BYTES))).await??;
                copy(&cwd.join("."), &tree).await?;
                Source::Dir { dir: cwd.to_path_buf() }
            }
        };
        let mut made = Place {
            fs: Arc::clone(&self.git.fs),
            place,
            source,
            confined: self.confined,
            here: Listing::new(),
            there: Listing::new(),
            _lock: lock,
        };
        made.here = made.list_here().await?;
        made.there = made.list_there().await?;
        Ok(made)
    }
}

impl Isolation for ReadOnly {
    fn enter<'a>(&'a self, name: &'a str, cwd: &'a Path) -> Boxed<'a, Result<Box<dyn Isolated>, EngineError>> {
        Box::pin(async move { Ok(Box::new(self.make(name, cwd).await?) as Box<dyn Isolated>) })
    }
}

/// What a place shows.
#[derive(Debug)]
enum Source {
    Repo { repo: Box<Repo>, copy: Box<Repo> },
    Dir { dir: PathBuf },
}

/// The place of one session.
#[derive(Debug)]
struct Place {
    fs: Arc<dyn Fs>,
    place: PathBuf,
    source: Source,
    confined: bool,
    /// The copy as it should be.
    here: Listing,
    /// What it shows as it was when last looked at; not kept up where nothing can have changed it.
    there: Listing,
    _lock: Box<dyn FsLock>,
}

impl Place {
    fn tree(&self) -> PathBuf {
        self.place.join("tree")
    }

    /// The directory that the copy shows, from its top.
    fn shown(&self) -> &Path {
        match &self.source {
            Source::Repo { repo, .. } => repo.top(),
            Source::Dir { dir } => dir,
        }
    }

    async fn list_here(&self) -> Result<Listing, EngineError> {
        match &self.source {
            Source::Repo { copy, .. } => copy.listing().await.map_err(told),
            Source::Dir { .. } => list(Arc::clone(&self.fs), self.tree()).await,
        }
    }

    /// What a confined program cannot have changed need not be looked at: a change is somebody else's.
    async fn list_there(&self) -> Result<Listing, EngineError> {
        match &self.source {
            _ if self.confined => Ok(Listing::new()),
            Source::Repo { repo, .. } => repo.listing().await.map_err(told),
            Source::Dir { dir } => list(Arc::clone(&self.fs), dir.clone()).await,
        }
    }

    async fn look(&mut self) -> Result<Vec<String>, EngineError> {
        let (here, there) = (self.list_here().await?, self.list_there().await?);
        let changed = differences(&self.here, &here);
        // In the directory of others nothing is put back: what changed there may be their own work.
        let mut told: BTreeSet<String> = differences(&self.there, &there)
            .iter()
            .map(|path| self.shown().join(as_path(path)).display().to_string())
            .collect();
        told.extend(changed.iter().map(|path| String::from_utf8_lossy(path).into_owned()));
        self.there = there;
        if !changed.is_empty() {
            self.put_back(&changed).await?;
        }
        Ok(told.into_iter().collect())
    }

    /// Makes the copy what it was, as far as what it shows still is.
    async fn put_back(&mut self, changed: &[Vec<u8>]) -> Result<(), EngineError> {
        let (fs, tree, shown) = (Arc::clone(&self.fs), self.tree(), self.shown().to_path_buf());
        let wanted: Vec<(Vec<u8>, Option<Listed>)> = changed
            .iter()
            .filter(|path| path.as_slice() != HEAD.as_bytes())
            .map(|path| (path.clone(), self.here.get(path).cloned()))
            .collect();
        let missing = blocking("put files back", move || {
            let mut missing = Vec::new();
            for (path, wanted) in wanted {
                let (at, from) = (tree.join(as_path(&path)), shown.join(as_path(&path)));
                uncover(&*fs, &tree, &at)?;
                clear(&*fs, &at)?;
                let Some(wanted) = wanted else { continue };
                if let Some(parent) = at.parent() {
                    fs::create_dir_all(&*fs, parent)?;
                }
                if Listed::at(&*fs, &from)?.is_some_and(|is| is == wanted) {
                    missing.push((from, at));
                }
            }
            Ok(missing)
        })
        .await?;
        for (from, at) in missing {
            copy(&from, &at).await?;
        }
        if let Source::Repo { copy, .. } = &self.source {
            let head = self.here.get(HEAD.as_bytes()).and_then(Listed::commit);
            copy.point_at(head).await.map_err(told)?;
        }
        self.here = self.list_here().await?;
        Ok(())
    }
}

impl Isolated for Place {
    fn dir(&self) -> PathBuf {
        match &self.source {
            Source::Repo { repo, .. } => self.tree().join(repo.prefix()),
            Source::Dir { .. } => self.tree(),
        }
    }

    fn temp(&self) -> PathBuf {
        self.place.join("tmp")
    }

    fn confined(&self) -> bool {
        self.confined
    }

    fn check<'a>(&'a mut self) -> Boxed<'a, Result<Vec<String>, EngineError>> {
        Box::pin(self.look())
    }

    fn leave(self: Box<Self>) -> Boxed<'static, ()> {
        Box::pin(async move {
            let (fs, place) = (Arc::clone(&self.fs), self.place.clone());
            let removed = blocking("remove a read-only place", move || clear(&*fs, &place)).await;
            if let Err(e) = removed {
                tracing::warn!(error = %e, "a read-only place stays behind");
            }
            drop(self);
        })
    }
}

/// Name of a session's folder: readable, and another one for another name.
fn folder(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let readable: String = name.chars().map(plain).take(MAX_NAME).collect();
    let hash = Sha256::digest(name.as_bytes());
    let hash: String = hash.iter().take(6).map(|b| format!("{b:02x}")).collect();
    format!("{readable}-{hash}")
}

/// Paths that are not the same in both.
fn differences(before: &Listing, after: &Listing) -> Vec<Vec<u8>> {
    let paths: BTreeSet<&Vec<u8>> = before.keys().chain(after.keys()).collect();
    paths.into_iter().filter(|path| before.get(*path) != after.get(*path)).cloned().collect()
}

async fn list(fs: Arc<dyn Fs>, dir: PathBuf) -> Result<Listing, EngineError> {
    blocking("look at a directory", move || walk(&*fs, &dir, None)).await?
}

/// What lies below a directory that is no repository.
fn walk(fs: &dyn Fs, dir: &Path, most: Option<u64>) -> Result<Result<Listing, EngineError>, FsError> {
    let (mut found, mut pending, mut bytes) = (Listing::new(), vec![PathBuf::new()], 0_u64);
    while let Some(below) = pending.pop() {
        for name in fs.list(&dir.join(&below))? {
            let path = below.join(&name);
            let meta = match fs.metadata(&dir.join(&path)) {
                Ok(meta) => meta,
                Err(e) if e.is_not_found() => continue,
                Err(e) => return Err(e),
            };
            match meta.kind {
                Kind::Dir => pending.push(path),
                Kind::File | Kind::Symlink => {
                    bytes = bytes.saturating_add(meta.len);
                    if let Some(listed) = Listed::at(fs, &dir.join(&path))? {
                        found.insert(path.into_os_string().into_encoded_bytes(), listed);
                    }
                }
                Kind::Other => {}
            }
            if found.len() + pending.len() > MAX_FILES || most.is_some_and(|most| bytes > most) {
                let text = format!(
                    "{} is too big to be copied for an agent that must not write ({MAX_FILES} files, {MAX_BYTES} bytes \
                     at most); use a git repository",
                    dir.display()
                );
                return Ok(Err(failed(text)));
            }
        }
    }
    Ok(Ok(found))
}

/// Copies a file, a link or a directory with modes, links as links.
async fn copy(from: &Path, to: &Path) -> Result<(), EngineError> {
    let args: [&OsStr; 4] = ["-RPp".as_ref(), "--".as_ref(), from.as_os_str(), to.as_os_str()];
    let output = Command::new("cp", "/").args(args).run().await.map_err(told)?;
    if output.status == 0 {
        Ok(())
    } else {
        Err(failed(format!("failed to copy {}: {}", from.display(), output.stderr)))
    }
}

/// Removes whatever stands at a path; links are not followed.
fn clear(fs: &dyn Fs, path: &Path) -> Result<(), FsError> {
    match fs.metadata(path) {
        Err(e) if e.is_not_found() => Ok(()),
        Err(e) => Err(e),
        Ok(meta) if meta.kind == Kind::Dir => fs::remove_tree(fs, path),
        Ok(_) => fs.remove_file(path),
    }
}

/// Removes what stands in a directory's place on the way to `path`: through a link everything would go elsewhere.
fn uncover(fs: &dyn Fs, top: &Path, path: &Path) -> Result<(), FsError> {
    let Some(parent) = path.parent().filter(|parent| parent.starts_with(top) && *parent != top) else { return Ok(()) };
    uncover(fs, top, parent)?;
    match fs.metadata(parent) {
        Ok(meta) if meta.kind != Kind::Dir => fs.remove_file(parent),
        Ok(_) => Ok(()),
        Err(e) if e.is_not_found() => Ok(()),
        Err(e) => Err(e),
    }
}

fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> Result<T, FsError> + Send + 'static,
) -> Result<T, EngineError> {
    tasks::blocking(what, work).await.map_err(told)?.map_err(told)
}

fn told(error: impl std::fmt::Display) -> EngineError {
    failed(format!("the read-only copy cannot be made or looked at: {error}"))
}

fn failed(text: String) -> EngineError {
    EngineError::new(ErrorClass::Other, text)
}
