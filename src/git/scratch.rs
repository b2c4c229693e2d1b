//! The working tree as a tree object, built through an index of our own.
//!
//! The index starts as a copy of the user's, so that what git knows to be unchanged is not hashed again.
//! Everything lies in a scratch folder inside git's folder and goes away with it. Never writes the
//! user's index and, unless asked to keep them, no objects either.

use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Error, Repo, Result, cli,
    scan::{self, Bytes, GITLINK, Parents, Scan, Tracked},
};
use crate::sys::{Fs, FsError, Kind, fs, ids};

/// Where git writes objects.
const OBJECTS: &str = "GIT_OBJECT_DIRECTORY";
/// Start of a scratch folder's name.
const NAME: &str = "clawo-tmp-";
/// Scratch folders this much older than a new one were left by a process that died: a day, far longer
/// than any call lasts.
const STALE_NS: i128 = 24 * 3600 * SECOND_NS;
/// A second.
const SECOND_NS: i128 = 1_000_000_000;
/// A working tree that changes under our hands is read again this often.
const TRIES: u32 = 4;

/// Where the objects of a built tree go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Objects {
    /// Into the repository.
    Keep,
    /// Into the scratch folder, gone with it.
    Drop,
}

/// Which untracked files become part of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Untracked {
    /// All.
    Whole,
    /// Those up to this many bytes; the others are listed.
    UpTo(u64),
}

/// A folder of ours inside git's folder.
#[derive(Debug)]
pub(super) struct Scratch {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    env: Vec<(&'static str, OsString)>,
}

/// A working tree as a tree object.
#[derive(Debug)]
pub(super) struct Built {
    /// The tree.
    pub(super) tree: String,
    /// What was listed for it.
    pub(super) scan: Scan,
    /// Untracked files left out for their size.
    pub(super) large: Vec<Bytes>,
}

impl Scratch {
    /// Makes the folder and clears away those of dead processes.
    pub(super) async fn new(repo: &Repo, objects: Objects) -> Result<Self> {
        let (fs, git_dir, common) = (repo.git.fs.clone(), repo.git_dir.clone(), repo.common_dir.clone());
        scan::blocking("make a scratch index", move || {
            let dir = git_dir.join(format!("{NAME}{}", ids::short()));
            fs.create_dir(&dir)?;
            let mut env = vec![("GIT_INDEX_FILE", dir.join("index").into_os_string())];
            if objects == Objects::Drop {
                let store = dir.join("objects");
                fs.create_dir(&store)?;
                env.push((OBJECTS, store.into_os_string()));
                env.push(("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(&common.join("objects"))));
            }
            let scratch = Self { fs, dir, env };
            scratch.sweep(&git_dir)?;
            Ok(scratch)
        })
        .await
    }

    /// Variables that make a call use this folder.
    pub(super) fn env(&self) -> &[(&'static str, OsString)] {
        &self.env
    }

    /// The folder itself.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    fn index(&self) -> PathBuf {
        self.dir.join("index")
    }

    fn sweep(&self, git_dir: &Path) -> std::result::Result<(), FsError> {
        let now = self.fs.metadata(&self.dir)?.mtime_ns;
        for name in self.fs.list(git_dir)? {
            let path = git_dir.join(&name);
            if name.as_bytes().starts_with(NAME.as_bytes())
                && self.fs.metadata(&path).is_ok_and(|meta| now - meta.mtime_ns > STALE_NS)
            {
                fs::remove_tree(&*self.fs, &path)?;
            }
        }
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_tree(&*self.fs, &self.dir) {
            tracing::warn!(error = %e, "a scratch folder stays behind");
        }
    }
}

impl Repo {
    /// The working tree as it is, as a tree.
    pub(super) async fn build(&self, scratch: &Scratch, untracked: Untracked) -> Result<Built> {
        let mut tries = 1;
        loop {
            match self.build_once(scratch, untracked).await {
                // Files that come and go while they are read make git give up; it is worth another look.
                Err(Error::Failed { .. }) if tries < TRIES => tries += 1,
                done => return done,
            }
        }
    }

    async fn build_once(&self, scratch: &Scratch, untracked: Untracked) -> Result<Built> {
        let age = self.copy_index(scratch).await?;
        let scan = self.scan(scratch.env()).await?;
        self.update(scratch.env(), age, scan, untracked).await
    }

    /// Brings the index that `env` names up to the working tree, and writes its tree.
    pub(super) async fn update(
        &self,
        env: &[(&'static str, OsString)],
        age: Age,
        scan: Scan,
        untracked: Untracked,
    ) -> Result<Built> {
        let plan = self.plan(age, scan, untracked).await?;
        for (flag, paths) in [("--no-assume-unchanged", &plan.assumed), ("--no-skip-worktree", &plan.skipped)] {
            self.index_call(env, &[flag], paths).await?;
        }
        self.index_call(env, &["--force-remove"], &plan.removed).await?;
        self.index_call(env, &["--add", "--remove", "--replace"], &plan.changed).await?;
        let call = self.git.call(&self.top, "write a tree").envs(env).args(sent(env));
        let tree = call.args(["write-tree", "--missing-ok"]).word().await?;
        Ok(Built { tree, scan: plan.scan, large: plan.large })
    }

    /// A tree of the untracked files alone.
    pub(super) async fn build_untracked(&self, scratch: &Scratch) -> Result<Built> {
        let mut scan = self.scan(&[]).await?;
        scan.tracked.clear();
        self.update(scratch.env(), Age::Own, scan, Untracked::Whole).await
    }

    /// Adds files to a tree that is built, the ignored ones it left out.
    pub(super) async fn add(&self, scratch: &Scratch, built: &mut Built, paths: &[Bytes]) -> Result<()> {
        self.index_call(scratch.env(), &["--add", "--remove"], paths).await?;
        let call = self.git.call(&self.top, "write a tree").envs(scratch.env());
        built.tree = call.args(["write-tree", "--missing-ok"]).word().await?;
        Ok(())
    }

    /// Tells the index that `env` names something about paths.
    pub(super) async fn index_call(
        &self,
        env: &[(&'static str, OsString)],
        flags: &[&str],
        paths: &[Bytes],
    ) -> Result<()> {
        if paths.is_empty() {
            return Ok(());
        }
        let stdin = paths.iter().flat_map(|path| path.iter().copied().chain([0])).collect();
        let call = self.git.call(&self.top, "read the working tree").envs(env);
        call.args(sent(env)).arg("update-index").args(flags).args(["-z", "--stdin"]).stdin(stdin).run().await.map(drop)
    }

    async fn copy_index(&self, scratch: &Scratch) -> Result<Age> {
        let (fs, from, to) = (self.git.fs.clone(), self.git_dir.join("index"), scratch.index());
        let copied = scan::blocking("copy the index", move || {
            for left in ["index", "index.lock"] {
                match fs.remove_file(&to.with_file_name(left)) {
                    Err(e) if !e.is_not_found() => return Err(e.into()),
                    Ok(()) | Err(_) => {}
                }
            }
            // The time first: should the index be replaced in between, more files are read, not fewer.
            match fs.metadata(&from).and_then(|meta| Ok((meta.mtime_ns, fs.read(&from)?))) {
                Ok((time, bytes)) => {
                    fs.create_new(&to)?.write_at(0, &bytes)?;
                    Ok(Some(time))
                }
                Err(e) if e.is_not_found() => Ok(None),
                Err(e) => Err(e.into()),
            }
        });
        if let Some(time) = copied.await? {
            return Ok(Age::Copied { second: time.div_euclid(SECOND_NS) });
        }
        // No index at all though there are commits: what is tracked is what HEAD holds.
        if let Some(head) = self.head().await? {
            let call = self.git.call(&self.top, "read HEAD's files").envs(scratch.env());
            call.args(["read-tree", &head]).run().await?;
        }
        Ok(Age::Own)
    }

    async fn plan(&self, age: Age, scan: Scan, untracked: Untracked) -> Result<Plan> {
        // Only in a sparse checkout is a file with this flag rightly absent.
        let absent_is_fine = match scan.tracked.iter().any(|entry| entry.skipped) {
            true => self.is_sparse().await?,
            false => false,
        };
        let (fs, top) = (self.git.fs.clone(), self.top.clone());
        scan::blocking("read the working tree", move || {
            let (mut plan, mut parents) = (Plan::default(), Parents::default());
            for entry in &scan.tracked {
                let Tracked { path, mode, assumed, skipped } = entry;
                let reachable = parents.are_real(&*fs, &top, path)?;
                if *skipped && absent_is_fine {
                    let there = reachable && scan::kind(&*fs, &top.join(scan::as_path(path)))?.is_some();
                    if !there {
                        continue;
                    }
                }
                if *assumed {
                    plan.assumed.push(path.clone());
                }
                if *skipped {
                    plan.skipped.push(path.clone());
                }
                let look = match reachable {
                    false => Look::Gone,
                    true if *mode == GITLINK => Look::Ordinary,
                    true => age.look(&*fs, &top.join(scan::as_path(path)))?,
                };
                if look != Look::Ordinary {
                    plan.removed.push(path.clone());
                }
                if look != Look::Gone {
                    plan.changed.push(path.clone());
                }
            }
            for path in &scan.others {
                match (untracked, fs.metadata(&top.join(scan::as_path(path)))) {
                    (_, Err(e)) if e.is_not_found() => {}
                    (_, Err(e)) => return Err(e.into()),
                    (Untracked::UpTo(limit), Ok(meta)) if meta.len > limit => plan.large.push(path.clone()),
                    (Untracked::UpTo(_) | Untracked::Whole, Ok(_)) => plan.changed.push(path.clone()),
                }
            }
            plan.scan = scan;
            Ok(plan)
        })
        .await
    }

    /// Whether files may rightly be absent here.
    pub(super) async fn is_sparse(&self) -> Result<bool> {
        let call = self.git.call(&self.top, "read core.sparseCheckout");
        let output = call.args(["config", "--type=bool", "--get", "core.sparseCheckout"]).output().await?;
        match output.status {
            0 => Ok(output.stdout.starts_with(b"true")),
            1 => Ok(false),
            _ => Err(cli::failed("read core.sparseCheckout", self.top.clone(), &output)),
        }
    }
}

/// How far the file times in an index can be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    /// git wrote the index file and judges for itself.
    Own,
    /// A copy of an index file written in this second since the epoch. git compares whole seconds and
    /// doubts files as young as the index; of a copy it sees the wrong age, so the doubting is ours.
    Copied {
        /// The second.
        second: i128,
    },
}

impl Age {
    fn look(self, fs: &dyn Fs, path: &Path) -> std::result::Result<Look, FsError> {
        let meta = match fs.metadata(path) {
            Ok(meta) => meta,
            Err(e) if e.is_not_found() => return Ok(Look::Ordinary),
            Err(e) => return Err(e),
        };
        Ok(match self {
            _ if meta.kind == Kind::Dir => Look::Gone,
            Self::Copied { second } if meta.mtime_ns.div_euclid(SECOND_NS) >= second => Look::Close,
            Self::Copied { .. } | Self::Own => Look::Ordinary,
        })
    }
}

/// How a tracked path is to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// The file is not there, or not reached through real directories.
    Gone,
    /// Its bytes must be read: it may have changed without its times showing it.
    Close,
    /// The way git does it.
    Ordinary,
}

/// What has to be told to an index.
#[derive(Debug, Default)]
struct Plan {
    scan: Scan,
    assumed: Vec<Bytes>,
    skipped: Vec<Bytes>,
    /// To be taken out first: git cannot look at them, or would not look closely enough.
    removed: Vec<Bytes>,
    changed: Vec<Bytes>,
    large: Vec<Bytes>,
}

/// Objects that go into the repository go to disk, those that go away are not.
fn sent(env: &[(&'static str, OsString)]) -> &'static [&'static str] {
    match env.iter().any(|(name, _)| *name == OBJECTS) {
        true => &[],
        false => &cli::SENT,
    }
}

/// A path in a list that separates with `:` and takes C quoting.
fn quoted(path: &Path) -> OsString {
    let mut out = vec![b'"'];
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            other => out.push(*other),
        }
    }
    out.push(b'"');
    OsString::from_vec(out)
}
