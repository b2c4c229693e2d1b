//! Finding the repository of a directory. Never makes one, and never takes a broken one for none.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{Error, Git, Repo, Result, cli, scan};
use crate::sys::{Fs, FsError, Kind};

/// How git says that there is no repository at all, as opposed to a broken one.
const NO_REPOSITORY: &str = "not a git repository (or any";
/// How git says that there is a repository without a working tree around the directory.
const NO_WORK_TREE: &str = "must be run in a work tree";

impl Git {
    /// The repository whose working tree holds `dir`; `None` outside git and in a bare repository.
    pub async fn open(&self, dir: &Path) -> Result<Option<Repo>> {
        let what = "find the repository";
        let (fs, given) = (self.fs.clone(), dir.to_path_buf());
        let (dir, marked) = scan::blocking(what, move || {
            let dir = fs.canonicalize(&given)?;
            let marked = is_marked(fs.as_ref(), &dir);
            match fs.metadata(&dir)?.kind {
                Kind::Dir => Ok((dir, marked)),
                Kind::File | Kind::Symlink | Kind::Other => {
                    Err(FsError::new("open", dir, std::io::ErrorKind::NotADirectory.into()).into())
                }
            }
        })
        .await?;
        if !marked {
            return Ok(None);
        }
        let ask = |names: &[&str]| self.call(&dir, what).arg("rev-parse").args(names);
        let output = ask(&["--is-inside-work-tree", "--absolute-git-dir", "--git-common-dir", "--show-toplevel"])
            .output()
            .await?;
        if output.status != 0 {
            if output.stderr.contains(NO_REPOSITORY) || output.stderr.contains(NO_WORK_TREE) {
                return Ok(None);
            }
            return Err(cli::failed(what, dir, &output));
        }
        let mut lines = output.stdout.split(|b| *b == b'\n').filter(|line| !line.is_empty());
        let lines = (lines.next(), lines.next(), lines.next(), lines.next(), lines.next());
        let (git_dir, common, top) = match lines {
            (Some(_), Some(git_dir), Some(common), Some(top), None) => (path(git_dir), path(common), path(top)),
            // A line break in one of the paths: one question each.
            _ => (
                one(&ask(&["--absolute-git-dir"]).run().await?),
                one(&ask(&["--git-common-dir"]).run().await?),
                one(&ask(&["--show-toplevel"]).run().await?),
            ),
        };
        // The common folder is named relative to the directory git was asked in.
        let (fs, common) = (self.fs.clone(), dir.join(common));
        let (top, common_dir) =
            scan::blocking(what, move || Ok((fs.canonicalize(&top)?, fs.canonicalize(&common)?))).await?;
        let below = dir
            .strip_prefix(&top)
            .map_err(|_| Error::Answer { what, reason: format!("{} is not below {}", dir.display(), top.display()) })?;
        let prefix = below.to_string_lossy().into_owned();
        Ok(Some(Repo { git: self.clone(), git_dir, common_dir, top, prefix }))
    }

    /// Version of the program, for example `2.47.3`.
    pub async fn version(&self) -> Result<String> {
        let what = "read the version";
        let said = self.call(Path::new("/"), what).arg("version").word().await?;
        match said.strip_prefix("git version ").and_then(|rest| rest.split_whitespace().next()) {
            Some(version) => Ok(version.to_owned()),
            None => Err(Error::Answer { what, reason: said }),
        }
    }
}

impl Repo {
    /// Top of the working tree.
    pub fn top(&self) -> &Path {
        &self.top
    }

    /// Path of the opened directory below the top, with `/` and without a trailing one; empty at the top.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Whether this is a worktree beside the repository's main one.
    pub(super) fn is_linked(&self) -> bool {
        self.git_dir != self.common_dir
    }
}

/// Whether git can find a working tree around `dir`: it looks for a `.git` there and in every directory above.
/// One that cannot be looked at counts, so that git itself says what is wrong with it.
fn is_marked(fs: &dyn Fs, dir: &Path) -> bool {
    dir.ancestors().any(|above| fs.metadata(&above.join(".git")).map_or_else(|e| !e.is_not_found(), |_| true))
}

/// A path out of git's answer.
pub(super) fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// A path that is the whole answer.
fn one(answer: &[u8]) -> PathBuf {
    path(answer.strip_suffix(b"\n").unwrap_or(answer))
}
