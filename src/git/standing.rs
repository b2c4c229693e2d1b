//! Whether a directory can carry worktrees of ours: which git, which repository, on which branch, how clean.
//!
//! Only looks; whoever asks decides what to make of a tree that is not clean.

use std::path::{Path, PathBuf};

use super::{Error, Git, Repo, Result, cli, refs, scan};
use crate::sys::{Kind, command};

const WHAT: &str = "look at the repository";
/// Oldest git that is good enough.
const OLDEST: (u32, u32) = (2, 31);
/// Paths that are named of a tree that is not clean.
const NAMED: usize = 20;
/// Most bytes of a status: about two million paths.
const MAX_STATUS: usize = 512 << 20;
/// Folder that holds worktrees of ours, at the top of a working tree.
pub(super) const WORKTREES: &str = ".worktrees";

/// Where new worktrees would start.
#[derive(Debug, Clone)]
pub struct Standing {
    /// The repository, opened at the directory.
    pub repo: Repo,
    /// Short name of the branch that is checked out.
    pub branch: String,
    /// Its commit.
    pub head: String,
    /// What is not committed.
    pub dirty: Dirty,
    /// Paths of submodules; worktrees of ours leave them empty.
    pub submodules: Vec<String>,
}

/// What differs from HEAD in a working tree: changed, staged and untracked, not ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dirty {
    /// The first 20 paths.
    pub paths: Vec<String>,
    /// How many there are.
    pub total: usize,
}

/// Why a directory cannot carry worktrees of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// No git, or one older than 2.31.
    Git {
        /// Its version; `None` when it does not start.
        found: Option<String>,
    },
    /// Not in a repository.
    NotARepository,
    /// In a repository without a working tree, or in git's own folder.
    Bare,
    /// In a worktree of ours.
    Inside {
        /// Whose.
        short_id: String,
        /// Top of the working tree that it was made from.
        main: PathBuf,
    },
    /// HEAD has no commit yet.
    NoCommits,
    /// HEAD is no branch.
    Detached,
    /// In the middle of this operation (`merge`, `rebase`, `cherry-pick`, `revert`, `bisect`, `am`).
    Busy(&'static str),
}

impl Git {
    /// Judges a directory. The first reason against it is the answer, in the order of [`Unfit`], save that a
    /// rebase or a bisection is named rather than the detached HEAD that comes with it.
    pub async fn standing(&self, dir: &Path) -> Result<std::result::Result<Standing, Unfit>> {
        match self.version().await {
            Ok(found) if is_recent(&found) => {}
            Ok(found) => return Ok(Err(Unfit::Git { found: Some(found) })),
            Err(Error::Program(command::Error::Start { .. })) => return Ok(Err(Unfit::Git { found: None })),
            Err(e) => return Err(e),
        }
        let Some(repo) = self.open(dir).await? else { return Ok(Err(self.without_tree(dir).await?)) };
        if let Some(inside) = repo.inside(dir).await? {
            return Ok(Err(inside));
        }
        let Some(head) = repo.head().await? else { return Ok(Err(Unfit::NoCommits)) };
        let operation = repo.operation().await?;
        let Some(branch) = repo.current_branch().await? else {
            return Ok(Err(match operation {
                Some(detaching @ (REBASE | BISECT)) => Unfit::Busy(detaching),
                Some(_) | None => Unfit::Detached,
            }));
        };
        if let Some(operation) = operation {
            return Ok(Err(Unfit::Busy(operation)));
        }
        let (dirty, submodules) = (repo.dirty().await?, repo.submodules().await?);
        Ok(Ok(Standing { repo, branch, head, dirty, submodules }))
    }

    /// Which of the two: no repository, or one without a working tree here.
    async fn without_tree(&self, dir: &Path) -> Result<Unfit> {
        let (fs, given) = (self.fs.clone(), dir.to_path_buf());
        let dir = scan::blocking(WHAT, move || Ok(fs.canonicalize(&given)?)).await?;
        let output = self.call(&dir, WHAT).limit(cli::QUICK).args(["rev-parse", "--git-dir"]).output().await?;
        // With `safe.bareRepository=explicit` git knows it for one and refuses to use it.
        let bare = output.status == 0 || output.stderr.contains("cannot use bare repository");
        Ok(if bare { Unfit::Bare } else { Unfit::NotARepository })
    }
}

const MERGE: &str = "merge";
const REBASE: &str = "rebase";
const CHERRY_PICK: &str = "cherry-pick";
const REVERT: &str = "revert";
pub(super) const BISECT: &str = "bisect";
const AM: &str = "am";

impl Repo {
    /// The operation that this working tree is in the middle of: `merge`, `rebase`, `cherry-pick`, `revert`,
    /// `bisect` or `am`.
    pub async fn operation(&self) -> Result<Option<&'static str>> {
        // A rebase stops in states that look like a merge or a cherry-pick, so it comes first.
        const MARKS: [(&str, &str); 8] = [
            ("rebase-merge", REBASE),
            ("rebase-apply/applying", AM),
            ("rebase-apply", REBASE),
            ("MERGE_HEAD", MERGE),
            ("CHERRY_PICK_HEAD", CHERRY_PICK),
            ("REVERT_HEAD", REVERT),
            ("sequencer/todo", CHERRY_PICK),
            ("BISECT_LOG", BISECT),
        ];
        let (fs, git_dir, common) = (self.git.fs.clone(), self.git_dir.clone(), self.common_dir.clone());
        let (found, reftable) = scan::blocking(WHAT, move || {
            for (mark, operation) in MARKS {
                if scan::kind(&*fs, &git_dir.join(mark))?.is_none() {
                    continue;
                }
                // Between two steps only the list of what is left tells a series of reverts apart.
                let reverts = mark == "sequencer/todo" && fs.read(&git_dir.join(mark))?.starts_with(b"revert ");
                return Ok((Some(if reverts { REVERT } else { operation }), false));
            }
            Ok((None, scan::kind(&*fs, &common.join("reftable"))? == Some(Kind::Dir)))
        })
        .await?;
        if reftable {
            // There these two are refs and no files.
            for (name, operation) in [("CHERRY_PICK_HEAD", CHERRY_PICK), ("REVERT_HEAD", REVERT)] {
                let call = self.git.call(&self.top, WHAT).limit(cli::QUICK);
                if call.args(["rev-parse", "--verify", "--quiet", name]).output().await?.status == 0 {
                    return Ok(Some(operation));
                }
            }
        }
        Ok(found)
    }

    /// What is not committed, as the user's own `git status` would say, each untracked file for itself.
    pub async fn dirty(&self) -> Result<Dirty> {
        let call = self.git.users_call(&self.top, "read the status").limit(cli::FILES).max_stdout(MAX_STATUS);
        let call = call.args(["status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames"]);
        let listed = call.args(["--ignore-submodules=none"]).run().await?;
        let mut dirty = Dirty::default();
        for record in cli::records(&listed) {
            dirty.total += 1;
            if dirty.paths.len() < NAMED {
                // Two letters and a space come first.
                dirty.paths.push(String::from_utf8_lossy(record.get(3..).unwrap_or_default()).into_owned());
            }
        }
        Ok(dirty)
    }

    async fn submodules(&self) -> Result<Vec<String>> {
        let call = self.git.call(&self.top, "list submodules").limit(cli::QUICK).max_stdout(MAX_STATUS);
        let listed = call.args(["ls-files", "-z", "--stage"]).run().await?;
        let links = cli::records(&listed).filter(|record| record.starts_with(b"160000 "));
        let paths = links.filter_map(|record| record.splitn(2, |b| *b == b'\t').nth(1));
        Ok(paths.map(|path| String::from_utf8_lossy(path).into_owned()).collect())
    }

    /// Whether `dir` lies in a worktree of ours, be that whole or not.
    async fn inside(&self, dir: &Path) -> Result<Option<Unfit>> {
        let (fs, given) = (self.git.fs.clone(), dir.to_path_buf());
        let real = scan::blocking(WHAT, move || Ok(fs.canonicalize(&given)?)).await?;
        // From the outermost.
        let places: Vec<(&Path, String)> = real
            .ancestors()
            .filter_map(|place| {
                let folder = place.parent().filter(|above| above.file_name().is_some_and(|name| name == WORKTREES))?;
                Some((folder.parent()?, place.file_name()?.to_str()?.to_owned()))
            })
            .collect();
        if places.is_empty() {
            return Ok(None);
        }
        let (trees, branch) = (self.worktrees().await?, self.current_branch().await?.unwrap_or_default());
        for (main, short_id) in places.into_iter().rev() {
            if !trees.iter().any(|tree| tree.path == main) {
                continue;
            }
            for kind in refs::KINDS {
                let below = format!("{kind}/{short_id}/");
                // Also when an agent left the worktree on another branch or on none.
                if branch.starts_with(&below) || !self.refs(&format!("refs/heads/{below}")).await?.is_empty() {
                    return Ok(Some(Unfit::Inside { short_id, main: main.to_path_buf() }));
                }
            }
        }
        Ok(None)
    }
}

/// Whether a version such as `2.47.3` is no older than the oldest that will do.
fn is_recent(version: &str) -> bool {
    let mut numbers = version.split('.').map(|part| {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u32>().unwrap_or(0)
    });
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= OLDEST
}
