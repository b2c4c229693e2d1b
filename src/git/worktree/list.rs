//! Which worktrees a repository has, and the folders and ignore line around ours.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use super::super::{
    Repo, Result, cli, open,
    scan::{self, Bytes},
    standing::WORKTREES,
};
use crate::sys::{Fs, Kind, fs};

const LIST: &str = "list the worktrees";
const OPEN: &str = "open a worktree";
const PRUNE: &str = "forget worktrees that are gone";
const EXCLUDE: &str = "write info/exclude";
const TIDY: &str = "remove empty folders";

/// A worktree as git has it registered.
#[derive(Debug, Clone)]
pub(in super::super) struct Listed {
    /// Its top, links resolved as far as it is there.
    pub(in super::super) path: PathBuf,
    /// Full name of the branch that is checked out; `None` when HEAD is detached.
    pub(in super::super) branch: Option<Bytes>,
    /// Whether it is the main one.
    pub(in super::super) main: bool,
    /// Whether it has no working tree at all.
    pub(in super::super) bare: bool,
}

impl Repo {
    /// All worktrees that are registered, the main one first.
    pub(in super::super) async fn worktrees(&self) -> Result<Vec<Listed>> {
        let call = || self.git.call(&self.top, LIST).limit(cli::QUICK).args(["worktree", "list", "--porcelain"]);
        let output = call().arg("-z").output().await?;
        let found = match output.status {
            0 => parse(output.stdout.split(|b| *b == 0)),
            // Before 2.36 there was no `-z`.
            129 => parse(call().run().await?.split(|b| *b == b'\n')),
            _ => return Err(cli::failed(LIST, self.top.clone(), &output)),
        };
        let fs = self.git.fs.clone();
        scan::blocking(LIST, move || {
            let real = |path: &Path| fs.canonicalize(path).unwrap_or_else(|_| missing(&*fs, path));
            Ok(found.into_iter().map(|tree| Listed { path: real(&tree.path), ..tree }).collect())
        })
        .await
    }

    /// The worktree whose top is `path`. `None` unless that is a linked worktree of this very repository: never
    /// a repository that only lies around the folder, never one whose link leads elsewhere.
    pub async fn worktree_open(&self, path: &Path) -> Result<Option<Repo>> {
        let (fs, given) = (self.git.fs.clone(), path.to_path_buf());
        let real = scan::blocking(OPEN, move || match scan::kind(&*fs, &given)? {
            Some(Kind::Dir) => Ok(Some(fs.canonicalize(&given)?)),
            Some(Kind::File | Kind::Symlink | Kind::Other) | None => Ok(None),
        });
        let Some(real) = real.await? else { return Ok(None) };
        let repo = match self.git.open(&real).await {
            Ok(Some(repo)) => repo,
            Ok(None) => return Ok(None),
            // A link to a registration that is gone.
            Err(super::super::Error::Failed { stderr, .. }) => {
                tracing::debug!(path = %real.display(), said = %stderr, "no worktree");
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        if repo.top != real || !repo.is_linked() || repo.common_dir != self.common_dir {
            return Ok(None);
        }
        // A copy of a worktree's folder has the link of the one it was copied from.
        let (fs, git_dir) = (self.git.fs.clone(), repo.git_dir.clone());
        let back = scan::blocking(OPEN, move || {
            let back = git_dir.join(open::path(fs.read(&git_dir.join("gitdir"))?.trim_ascii_end()));
            Ok(fs.canonicalize(&back).ok())
        });
        let is_itself = back.await?.is_some_and(|back| back == real.join(".git"));
        Ok(is_itself.then_some(repo))
    }

    /// Forgets worktrees of ours whose folder is gone. Those of the user stay registered, whatever became of
    /// their folders: it may be a disk that is not there today.
    pub async fn worktree_prune(&self) -> Result<()> {
        let trees = self.worktrees().await?;
        for tree in trees.iter().filter(|tree| !tree.main) {
            let ours = tree.path.ancestors().any(|above| {
                let top = above.parent().filter(|_| above.file_name().is_some_and(|name| name == WORKTREES));
                top.is_some_and(|top| trees.iter().any(|other| other.path == top))
            });
            if ours {
                self.forget_missing(&tree.path).await?;
            }
        }
        Ok(())
    }

    /// Drops the registration of a linked worktree whose folder is gone; anything else stays as it is.
    pub(super) async fn forget_missing(&self, path: &Path) -> Result<()> {
        let (fs, given) = (self.git.fs.clone(), path.to_path_buf());
        let real =
            scan::blocking(PRUNE, move || Ok(scan::kind(&*fs, &given)?.is_none().then(|| missing(&*fs, &given))));
        let Some(real) = real.await? else { return Ok(()) };
        if self.worktrees().await?.iter().any(|tree| !tree.main && tree.path == real) {
            let call = self.git.call(&self.common_dir, PRUNE).limit(cli::FILES);
            call.args(["worktree", "remove"]).arg(real).run().await?;
        }
        Ok(())
    }

    /// Adds a line to the repository's private ignore rules (`info/exclude`), unless it is there.
    pub async fn exclude(&self, line: &str) -> Result<()> {
        let (fs, path, line) = (self.git.fs.clone(), self.common_dir.join("info/exclude"), line.to_owned());
        scan::blocking(EXCLUDE, move || {
            match fs.read(&path) {
                Ok(rules) => {
                    if rules.split(|b| *b == b'\n').any(|rule| rule.trim_ascii_end() == line.as_bytes()) {
                        return Ok(());
                    }
                    let open_end = rules.last().is_some_and(|last| *last != b'\n');
                    let added = format!("{}{line}\n", if open_end { "\n" } else { "" });
                    let mut file = fs.open_append(&path)?;
                    file.append(added.as_bytes())?;
                    file.sync()?;
                }
                Err(e) if e.is_not_found() => {
                    if let Some(dir) = path.parent() {
                        fs::create_dir_all(&*fs, dir)?;
                    }
                    let mut file = fs.create_new(&path)?;
                    file.write_at(0, format!("{line}\n").as_bytes())?;
                    file.sync()?;
                }
                Err(e) => return Err(e.into()),
            }
            Ok(())
        })
        .await
    }

    /// Removes `dir` when it is an empty directory, and then a `.worktrees` around it when that is empty too.
    /// Everything else stays, without an error.
    pub async fn remove_empty(&self, dir: &Path) -> Result<()> {
        let (fs, dir) = (self.git.fs.clone(), dir.to_path_buf());
        scan::blocking(TIDY, move || {
            let above = dir.parent().filter(|above| above.file_name().is_some_and(|name| name == WORKTREES));
            for dir in [Some(dir.as_path()), above].into_iter().flatten() {
                match scan::kind(&*fs, dir)? {
                    // Whoever puts something in meanwhile keeps it: only an empty one can be removed.
                    Some(Kind::Dir) if fs.list(dir)?.is_empty() => drop(fs.remove_dir(dir)),
                    Some(_) | None => {}
                }
            }
            Ok(())
        })
        .await
    }
}

fn parse<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Vec<Listed> {
    let mut found: Vec<Listed> = Vec::new();
    for line in lines {
        if let Some(path) = line.strip_prefix(b"worktree ") {
            let main = found.is_empty();
            found.push(Listed { path: open::path(path), branch: None, main, bare: false });
        } else if let Some(tree) = found.last_mut() {
            match line.strip_prefix(b"branch ") {
                Some(branch) => tree.branch = Some(branch.to_vec()),
                None => tree.bare |= line == b"bare",
            }
        }
    }
    found
}

/// The real path of something that is not there, as far as it goes.
pub(super) fn missing(fs: &dyn Fs, path: &Path) -> PathBuf {
    let name = path.file_name().map(OsString::from);
    match (path.parent(), name) {
        (Some(parent), Some(name)) => match fs.canonicalize(parent) {
            Ok(parent) => parent.join(name),
            // The folder around it may be gone as well.
            Err(_) => missing(fs, parent).join(name),
        },
        _ => path.to_path_buf(),
    }
}
