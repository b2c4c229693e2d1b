//! git: real repositories, read and stored without a trace in what is the user's.

mod changes;
mod digest;
mod editing;
mod hiding;
mod landing;
mod landing_cut;
mod merging;
mod open;
mod places;
mod refs;
mod settling;
mod snapshot;
mod standing;
mod worktree;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use claw_orchestrator::{
    git::{At, ChangeKind, ChangeSet, Git, Repo},
    model::run::Baseline,
    sys::RealFs,
};

/// A folder with a space in its name (PA-2) and what it takes to work in it.
struct World {
    _dir: tempfile::TempDir,
    path: PathBuf,
    git: Git,
}

impl World {
    /// A folder without a repository.
    fn bare() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap().join("My Folder (1) & co");
        std::fs::create_dir(&path).unwrap();
        Self { _dir: dir, path, git: Git { fs: Arc::new(RealFs), program: "git".into() } }
    }

    /// A repository without commits.
    fn unborn() -> Self {
        let world = Self::bare();
        world.run(["init", "-q", "-b", "main"]);
        world
    }

    /// A repository with one commit of two files.
    fn new() -> Self {
        let world = Self::unborn();
        world.write("a.txt", "one\ntwo\nthree\n");
        world.write("src/b.txt", "b\n");
        world.commit("first");
        world
    }

    fn run<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, args: I) -> String {
        run(&self.path, args)
    }

    fn commit(&self, message: &str) -> String {
        self.run(["add", "-A"]);
        self.run(["commit", "-q", "-m", message]);
        self.run(["rev-parse", "HEAD"])
    }

    fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    fn write(&self, name: impl AsRef<Path>, bytes: impl AsRef<[u8]>) {
        write(&self.file(name), bytes);
    }

    /// A repository with everything in it that is the user's alone: an identity, signing, a stash, ignored and
    /// excluded files, and every hook, each of which fails and leaves a file `hooked` behind.
    fn lived_in() -> Self {
        let world = Self::new();
        for setting in [["user.name", "Ada Ex"], ["user.email", "ada@example.com"], ["commit.gpgSign", "true"]] {
            world.run([&["config"], &setting[..]].concat());
        }
        world.run(["config", "gpg.program", "/bin/false"]);
        world.run(["config", "branch.autoSetupMerge", "always"]);
        world.run(["config", "worktree.useRelativePaths", "true"]);
        world.write(".gitignore", "*.log\ndist/\n");
        world.write("text.txt", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
        run(&world.path, ["add", "-A"]);
        run(&world.path, ["commit", "-q", "--no-gpg-sign", "-m", "second"]);
        world.write("a.txt", "stashed\n");
        run(&world.path, ["-c", "commit.gpgSign=false", "stash"]);
        world.write("run.log", "ignored\n");
        for name in
            ["post-checkout", "reference-transaction", "post-merge", "pre-merge-commit", "post-commit", "pre-commit"]
        {
            let hook = world.file(".git/hooks").join(name);
            write(&hook, "#!/bin/sh\ntouch \"$(git rev-parse --git-common-dir)/hooked\"\nexit 1\n");
            chmod(&hook, 0o755);
        }
        world
    }

    /// What is the user's, byte for byte: config, hooks, index, HEAD, branches, stash, logs, info (save the
    /// excluded paths), and every file of the tree.
    fn kept(&self) -> Kept {
        let ours = |path: &Path| {
            let path = path.to_str().unwrap();
            let path = path.strip_prefix("logs/").unwrap_or(path);
            let below = ["worktrees/", "refs/heads/council/", "refs/heads/fanout/", "refs/heads/agent/"];
            below.iter().any(|below| path.starts_with(below)) || ["clawo.lock", "info/exclude"].contains(&path)
        };
        let mut git = users(&self.file(".git"));
        git.retain(|path, _| !ours(path));
        let mut files = tree(&self.path);
        files.retain(|path, _| !path.starts_with(".worktrees"));
        Kept { git, files }
    }

    /// A worktree of ours for `name`, at HEAD.
    async fn member(&self, name: &str) -> Repo {
        let head = self.run(["rev-parse", "HEAD"]);
        let at = At::New { branch: &format!("council/{ID}/{name}"), commit: &head };
        self.repo().await.worktree_at(&self.file(format!(".worktrees/{ID}/{name}")), at).await.unwrap()
    }

    /// Puts a shell script in the place of the git program.
    fn wrap(&mut self, script: &str) {
        let program = self.file("../wrapped git");
        write(&program, format!("#!/bin/sh\n{script}\n"));
        chmod(&program, 0o755);
        self.git.program = program;
    }

    async fn repo(&self) -> Repo {
        self.git.open(&self.path).await.unwrap().unwrap()
    }

    /// The baseline a run would record now.
    async fn baseline(&self) -> Baseline {
        let repo = self.repo().await;
        let snapshot = repo.snapshot("refs/clawo/runs/r1/start", "start").await.unwrap();
        Baseline {
            base_sha: repo.head().await.unwrap(),
            snapshot: Some(snapshot.commit),
            in_git: true,
            protected: None,
        }
    }
}

/// Short id of the council whose worktrees the tests make.
const ID: &str = "9f3c1a2b";

/// See [`World::kept`].
#[derive(Debug, PartialEq, Eq)]
struct Kept {
    git: BTreeMap<PathBuf, Vec<u8>>,
    files: BTreeMap<PathBuf, (u32, Vec<u8>)>,
}

/// Writes files and commits them as an agent would; returns the commit.
fn commit_in(dir: &Path, files: &[(&str, &str)]) -> String {
    for (name, bytes) in files {
        write(&dir.join(name), bytes);
    }
    run(dir, ["add", "-A"]);
    // Also past the ignore rules.
    for (name, _) in files {
        run(dir, ["add", "--force", "--", name]);
    }
    run(dir, ["commit", "-q", "--no-gpg-sign", "-m", "work"]);
    run(dir, ["rev-parse", "HEAD"])
}

/// Runs the user's git for something that may stop halfway.
fn may_stop(dir: &Path, args: &[&str]) -> bool {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=U", "-c", "user.email=u@example.com"]);
    command.args(["-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false"]);
    command.args(args).current_dir(dir).output().unwrap().status.success()
}

/// The text of a file.
fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap()
}

fn run<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(dir: &Path, args: I) -> String {
    String::from_utf8(run_bytes(dir, args, b"")).unwrap().trim_end().to_owned()
}

/// Runs the user's git, with an identity and without hooks.
fn run_bytes<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(dir: &Path, args: I, stdin: &[u8]) -> Vec<u8> {
    use std::{io::Write as _, process::Stdio};
    let mut command = Command::new("git");
    for setting in
        ["user.name=User", "user.email=user@example.com", "protocol.file.allow=always", "core.hooksPath=/dev/null"]
    {
        command.args(["-c", setting]);
    }
    command.args(args).current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(stdin).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Every file of git's folder that is the user's, with its bytes: all but objects and refs of ours.
fn users(git_dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![git_dir.to_path_buf()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let below = path.strip_prefix(git_dir).unwrap();
            if below == Path::new("objects") || below == Path::new("refs/clawo") {
                continue;
            }
            if path.is_dir() {
                pending.push(path);
            } else {
                found.insert(below.to_path_buf(), std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// Every file of a tree outside git's folder: mode, and bytes or a link's target.
fn tree(top: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut pending = vec![top.to_path_buf()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            if path.file_name() == Some(OsStr::new(".git")) {
                continue;
            }
            let below = path.strip_prefix(top).unwrap().to_path_buf();
            if meta.is_symlink() {
                let target = std::fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes();
                found.insert(below, (0, target));
            } else if meta.is_dir() {
                pending.push(path);
            } else {
                found.insert(below, (meta.permissions().mode() & 0o100, std::fs::read(&path).unwrap()));
            }
        }
    }
    found
}

/// Changes in a short form: `A M D` and `R old>new`.
fn short(set: &ChangeSet) -> Vec<String> {
    let one = |change: &claw_orchestrator::git::Change| match change.kind {
        ChangeKind::Created => format!("A {}", change.path),
        ChangeKind::Modified => format!("M {}", change.path),
        ChangeKind::Deleted => format!("D {}", change.path),
        ChangeKind::Renamed => format!("R {}>{}", change.old_path.as_deref().unwrap(), change.path),
    };
    set.changes.iter().map(one).collect()
}

/// Names that break programs which read git's quoted lines (PA-1).
fn odd_names() -> Vec<PathBuf> {
    use std::os::unix::ffi::OsStringExt as _;
    let mut names: Vec<Vec<u8>> = [
        "é/ü.txt",
        "日本/語.txt",
        "🦀.rs",
        "q\"uote",
        "ta\tb",
        "new\nline",
        "-dash",
        " lead",
        "trail ",
        "back\\slash",
        "*glob?",
        ":colon",
        "#hash",
    ]
    .iter()
    .map(|name| name.as_bytes().to_vec())
    .collect();
    names.push(vec![b'x'; 255]);
    names.push(b"latin-\xe9".to_vec());
    names.into_iter().map(|name| PathBuf::from(std::ffi::OsString::from_vec(name))).collect()
}
