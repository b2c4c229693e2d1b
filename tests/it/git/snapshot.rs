//! Snapshots and what comes back from them (LW-1, MG-1, MG-9, GT-3).

use std::os::unix::fs::symlink;

use claw_orchestrator::git::{Error, RestoreTo};

use super::*;

const REF: &str = "refs/clawo/runs/r1/n-v1a1";

/// A working tree with everything in it.
fn furnished() -> World {
    let world = World::new();
    world.write(".gitignore", "ignored\n");
    world.write("run.sh", "#!/bin/sh\n");
    world.commit("second");
    world.write("stashed", "s");
    world.run(["stash", "push", "-q", "-u"]);
    world.write("a.txt", "unstaged\n");
    world.write("src/b.txt", "staged\n");
    world.run(["add", "src/b.txt"]);
    world.write("src/b.txt", "staged and changed\n");
    chmod(&world.file("run.sh"), 0o755);
    world.write("empty", "");
    world.write("bin", [0_u8, 255, 10, 13]);
    symlink("nowhere", world.file("dangling")).unwrap();
    for name in odd_names() {
        world.write(&name, "odd\n");
    }
    world
}

#[tokio::test]
async fn everything_comes_back_and_nothing_of_the_users_moves() {
    let world = furnished();
    // Hooks and an identity that must not be used; settings that would rewrite or sign.
    for hook in ["pre-commit", "post-commit", "reference-transaction", "post-index-change", "post-checkout"] {
        let path = world.file(".git/hooks").join(hook);
        write(&path, format!("#!/bin/sh\ntouch '{}'\nexit 1\n", world.file("../hooked").display()));
        chmod(&path, 0o755);
    }
    std::fs::write(world.file(".git/info/sparse-checkout"), "/nothing\n").unwrap();
    world.run(["config", "commit.gpgSign", "true"]);
    world.run(["config", "core.logAllRefUpdates", "true"]);
    world.write("ignored", "not stored");
    let (before, files) = (users(&world.file(".git")), tree(&world.path));
    let repo = world.repo().await;
    let stored = repo.snapshot(REF, "node n, visit 1").await.unwrap();
    assert_eq!(stored.skipped, [""; 0]);
    assert_eq!((users(&world.file(".git")), tree(&world.path)), (before.clone(), files.clone()));
    assert_eq!(world.run(["log", "-1", "--format=%an %ae %cn %P", REF]).split(' ').next().unwrap(), "clawo");
    assert_eq!(world.run(["rev-parse", &format!("{REF}^")]), world.run(["rev-parse", "HEAD"]));

    // LW-1: the work is gone, also from the index; the snapshot brings it back byte for byte.
    world.run(["reset", "-q", "--hard"]);
    world.run(["clean", "-q", "-fd"]);
    let before = users(&world.file(".git"));
    let to = world.file("../restored here/deep");
    repo.restore(REF, &RestoreTo::Directory(to.clone())).await.unwrap();
    let mut want = files;
    want.remove(Path::new("ignored"));
    assert_eq!(tree(&to), want);
    assert_eq!(users(&world.file(".git")), before);
    assert!(!world.file("../hooked").exists());

    repo.restore(REF, &RestoreTo::Branch("back/again".into())).await.unwrap();
    assert_eq!(world.run(["rev-parse", "back/again"]), stored.commit);
    assert_eq!(world.run(["rev-parse", "--abbrev-ref", "HEAD"]), "main");
    world.run(["fsck", "--strict", "--no-dangling"]);
}

#[tokio::test]
async fn restoring_never_goes_over_something() {
    let world = World::new();
    let repo = world.repo().await;
    let stored = repo.snapshot(REF, "m").await.unwrap();
    let (before, files) = (users(&world.file(".git")), tree(&world.path));
    let refuse = async |name: &str, to: RestoreTo, want: &str| {
        let error = repo.restore(name, &to).await.unwrap_err().to_string();
        assert!(error.to_lowercase().contains(want), "{to:?}: {error}");
    };
    refuse(REF, RestoreTo::Directory(world.path.clone()), "exists").await;
    refuse(REF, RestoreTo::Directory(world.file("a.txt")), "exists").await;
    refuse(REF, RestoreTo::Directory("relative".into()), "absolute").await;
    refuse(REF, RestoreTo::Branch("main".into()), "already").await;
    for bad in ["-f", "a..b", "", "x.lock", "a b", "HEAD", "n\nupdate refs/heads/main"] {
        refuse(REF, RestoreTo::Branch(bad.into()), "not a name").await;
    }
    refuse("refs/clawo/runs/none", RestoreTo::Branch("new".into()), "no snapshot").await;
    assert_eq!((users(&world.file(".git")), tree(&world.path)), (before, files));
    assert_eq!(world.run(["rev-parse", REF]), stored.commit);
}

#[tokio::test]
async fn only_refs_of_ours_are_written_and_deleted() {
    let world = World::new();
    world.run(["branch", "clawo/keep"]);
    let repo = world.repo().await;
    for name in ["refs/clawo/runs/r1/a", "refs/clawo/runs/r1/b", "refs/clawo/runs/r10/a"] {
        repo.snapshot(name, "m").await.unwrap();
    }
    world.run(["pack-refs", "--all"]);
    repo.snapshot("refs/clawo/runs/r1/c", "m").await.unwrap();
    let bad =
        ["refs/heads/main", "refs/clawo/", "refs/clawo", "HEAD", "", "refs/clawo/../heads/main", "refs/clawo/a b"];
    for bad in bad {
        assert!(matches!(repo.snapshot(bad, "m").await, Err(Error::Failed { .. })), "{bad}");
        assert!(matches!(repo.delete_refs(bad).await, Err(Error::Failed { .. })), "{bad}");
    }
    assert_eq!(repo.refs("refs/clawo/runs/r1/").await.unwrap().len(), 3);
    repo.delete_refs("refs/clawo/runs/r1").await.unwrap();
    repo.delete_refs("refs/clawo/runs/r1").await.unwrap();
    let left: Vec<_> = repo.refs("refs/clawo/").await.unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(left, ["refs/clawo/runs/r10/a"]);
    assert_eq!(world.run(["branch", "--format=%(refname:short)"]), "clawo/keep\nmain");
}

#[tokio::test]
async fn storing_again_keeps_what_was_stored() {
    let world = World::new();
    let repo = world.repo().await;
    world.write("work", "first");
    let first = repo.snapshot(REF, "m").await.unwrap();
    world.write("work", "second");
    let second = repo.snapshot(REF, "m").await.unwrap();
    assert_ne!(first.commit, second.commit);
    assert_eq!(world.run(["show", &format!("{REF}^2:work")]), "first");
    assert_eq!(world.run(["rev-parse", &format!("{REF}^2")]), first.commit);
}

#[tokio::test]
async fn large_untracked_files_are_listed_and_still_watched() {
    let world = World::new();
    let large = |byte: u8| {
        let file = std::fs::File::create(world.file("large é")).unwrap();
        file.set_len((50 << 20) + 1).unwrap();
        std::os::unix::fs::FileExt::write_at(&file, &[byte], 50 << 20).unwrap();
    };
    large(1);
    world.write("small", "s");
    let repo = world.repo().await;
    let stored = repo.snapshot("refs/clawo/runs/r1/start", "start").await.unwrap();
    assert_eq!(stored.skipped, ["large é"]);
    assert_eq!(world.run(["ls-tree", "--name-only", &stored.tree]), "a.txt\nsmall\nsrc");
    let base = world.baseline().await;
    assert_eq!(base.snapshot, Some(stored.commit));
    large(1);
    assert_eq!(repo.changes(&base).await.unwrap(), ChangeSet::default());
    large(2);
    assert_eq!(short(&repo.changes(&base).await.unwrap()), ["M large é"]);
    std::fs::remove_file(world.file("large é")).unwrap();
    assert_eq!(short(&repo.changes(&base).await.unwrap()), ["D large é"]);
}

#[tokio::test]
async fn a_worktree_is_stored_like_any_checkout() {
    let world = World::new();
    world.run(["worktree", "add", "-q", "-b", "side", "../side"]);
    let side = world.file("../side").canonicalize().unwrap();
    write(&side.join("work"), "w");
    let before = users(&world.file(".git"));
    let repo = world.git.open(&side).await.unwrap().unwrap();
    repo.snapshot(REF, "m").await.unwrap();
    assert_eq!(users(&world.file(".git")), before);
    // LW-1: the folder is gone; the main checkout's repository still has it.
    std::fs::remove_dir_all(&side).unwrap();
    assert_eq!(world.run(["show", &format!("{REF}:work")]), "w");
}

/// The index goes by times in whole seconds, and so would a naive copy of it.
#[tokio::test]
async fn a_change_within_the_second_of_the_index_is_seen() {
    let world = World::new();
    let repo = world.repo().await;
    for n in 0..10 {
        world.write("a.txt", format!("{n}\n"));
        world.run(["add", "a.txt"]);
        world.write("a.txt", format!("{}\n", n + 1));
        let base = Baseline { base_sha: Some("HEAD".into()), in_git: true, ..Baseline::default() };
        let patch = String::from_utf8(repo.patch(&base).await.unwrap().bytes).unwrap();
        assert!(patch.contains(&format!("\n+{}\n", n + 1)), "{patch}");
    }
}

#[tokio::test]
async fn unchanged_files_are_not_hashed_again() {
    let world = World::new();
    // Only a file whose bytes are read goes through its filter.
    let marker = world.file("../filtered");
    world.run(["config", "filter.count.clean", &format!("tee -a '{}'", marker.display())]);
    world.write(".git/info/attributes", "a.txt filter=count\n");
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    let file = std::fs::File::options().append(true).open(world.file("a.txt")).unwrap();
    file.set_modified(old).unwrap();
    world.run(["update-index", "--refresh"]);
    let _ = std::fs::remove_file(&marker);
    let repo = world.repo().await;
    repo.snapshot(REF, "m").await.unwrap();
    assert!(!marker.exists());
    world.write("a.txt", "now\n");
    repo.snapshot(REF, "m").await.unwrap();
    assert!(std::fs::read_to_string(&marker).unwrap().starts_with("now\n"));
}

/// Names that git refuses for the sake of other systems must not cost the work around them.
#[tokio::test]
async fn a_name_git_would_refuse_is_stored() {
    let world = World::new();
    world.write("git~1", "x");
    world.repo().await.snapshot(REF, "m").await.unwrap();
    assert_eq!(world.run(["show", &format!("{REF}:git~1")]), "x");
}
