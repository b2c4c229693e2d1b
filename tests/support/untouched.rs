//! What the product must never change in a user's repository, taken before and compared after.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::git;

/// Refs below these are ours.
const OURS: [&str; 5] =
    ["refs/clawo/", "refs/heads/council/", "refs/heads/fanout/", "refs/heads/agent/", "refs/heads/clawo/"];
/// The one line that may appear in `info/exclude`.
const EXCLUDED: &str = ".worktrees/";
/// Folder of worktrees of ours.
const WORKTREES: &str = ".worktrees";

/// A repository as it was: configuration, hooks, stash, index, HEAD, refs that are not ours, files under `info/`, and
/// the bytes of everything untracked or ignored, and of every tracked file.
#[derive(Debug)]
pub struct Untouched {
    repo: PathBuf,
    seen: BTreeMap<String, Vec<u8>>,
}

impl Untouched {
    /// Looks at the checkout `repo`.
    pub fn of(repo: &Path) -> Self {
        Self { repo: repo.to_path_buf(), seen: look(repo) }
    }

    /// Fails unless everything is as it was.
    pub fn check(&self) {
        self.check_but(|_| false);
    }

    /// The same for a repository into whose checked-out branch something was merged: HEAD's commit, its branch, the
    /// index and the tracked files may differ, everything else not.
    pub fn check_merged(&self, branch: &str) {
        let head = format!("ref refs/heads/{branch}");
        let tracked: Vec<String> = git(&self.repo, &["ls-files"]).lines().map(|path| format!("file {path}")).collect();
        self.check_but(|what| {
            what == "index" || what == "head commit" || what == head || tracked.iter().any(|t| t == what)
        });
    }

    fn check_but(&self, free: impl Fn(&str) -> bool) {
        let now = look(&self.repo);
        let names: std::collections::BTreeSet<&String> = self.seen.keys().chain(now.keys()).collect();
        for name in names.into_iter().filter(|name| !free(name)) {
            let (before, after) = (self.seen.get(name), now.get(name));
            let show = |bytes: Option<&Vec<u8>>| bytes.map(|b| String::from_utf8_lossy(b).into_owned());
            assert!(before == after, "{name} changed from {:?} to {:?}", show(before), show(after));
        }
    }
}

fn look(repo: &Path) -> BTreeMap<String, Vec<u8>> {
    let folder = |flag: &str| PathBuf::from(git(repo, &["rev-parse", "--path-format=absolute", flag]).trim_end());
    let (own, common) = (folder("--git-dir"), folder("--git-common-dir"));
    let mut seen = BTreeMap::new();
    for (name, path) in [
        ("config", common.join("config")),
        ("config.worktree", own.join("config.worktree")),
        ("index", own.join("index")),
        ("HEAD", own.join("HEAD")),
        ("log of the stash", common.join("logs/refs/stash")),
    ] {
        if let Ok(bytes) = std::fs::read(path) {
            seen.insert(name.to_owned(), bytes);
        }
    }
    seen.insert("head commit".to_owned(), git(repo, &["rev-parse", "HEAD"]).into_bytes());
    for line in git(repo, &["for-each-ref", "--format=%(refname) %(objectname)"]).lines() {
        let (name, id) = line.split_once(' ').unwrap();
        if !OURS.iter().any(|ours| name.starts_with(ours)) {
            seen.insert(format!("ref {name}"), id.into());
        }
    }
    for (what, dir) in [("hook", common.join("hooks")), ("info", common.join("info"))] {
        files(&dir, &dir, &mut |path, bytes| {
            let bytes = if what == "info" && path == "exclude" { without_ours(&bytes) } else { bytes };
            seen.insert(format!("{what} {path}"), bytes);
        });
    }
    files(repo, repo, &mut |path, bytes| {
        seen.insert(format!("file {path}"), bytes);
    });
    seen
}

/// `info/exclude` without our line, which must be there at most once.
fn without_ours(bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    assert!(text.lines().filter(|line| *line == EXCLUDED).count() <= 1, "info/exclude names us more than once: {text}");
    text.lines().filter(|line| *line != EXCLUDED).map(|line| format!("{line}\n")).collect::<String>().into_bytes()
}

/// Every file below `dir`, git's own folder and worktrees of ours left out; mode and target count.
fn files(root: &Path, dir: &Path, found: &mut impl FnMut(String, Vec<u8>)) {
    let mut entries: Vec<_> = std::fs::read_dir(dir).into_iter().flatten().flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::path);
    for entry in entries {
        let path = entry.path();
        let kind = entry.file_type().unwrap();
        let top = dir == root;
        if top && (entry.file_name() == ".git" || entry.file_name() == WORKTREES) {
            continue;
        }
        if kind.is_dir() {
            files(root, &path, found);
            continue;
        }
        let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
        if kind.is_symlink() {
            let target = std::fs::read_link(&path).unwrap();
            found(name, format!("link {}", target.display()).into_bytes());
        } else if kind.is_file() {
            let mode = std::os::unix::fs::PermissionsExt::mode(&entry.metadata().unwrap().permissions());
            let mut bytes = format!("{mode:o} ").into_bytes();
            bytes.extend(std::fs::read(&path).unwrap());
            found(name, bytes);
        }
    }
}
