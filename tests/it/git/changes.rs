//! Change sets and patches (verification scenario 10, MG-7, MG-9, PA-1, VF-4).

use std::os::unix::fs::symlink;

use claw_orchestrator::git::Error;

use super::*;

fn since(sha: impl Into<String>) -> Baseline {
    Baseline { base_sha: Some(sha.into()), in_git: true, ..Baseline::default() }
}

async fn changes(world: &World, base: &Baseline) -> Vec<String> {
    short(&world.repo().await.changes(base).await.unwrap())
}

/// Applies the patch to a checkout of `base` and compares with the working tree as a snapshot sees it.
async fn patch_yields_the_tree(world: &World, base: &Baseline) {
    let repo = world.repo().await;
    let patch = repo.patch(base).await.unwrap().bytes;
    let from = base.snapshot.as_ref().or(base.base_sha.as_ref()).unwrap();
    let other = world.file("../applied");
    world.run(["worktree", "add", "-q", "--detach", other.to_str().unwrap(), from]);
    run_bytes(&other, ["apply", "--binary", "--index", "--allow-empty", "-"], &patch);
    let want = repo.snapshot("refs/clawo/runs/r1/want", "want").await.unwrap();
    assert_eq!(run(&other, ["write-tree"]), want.tree);
    world.run(["worktree", "remove", "--force", other.to_str().unwrap()]);
}

#[tokio::test]
async fn every_kind_of_change_counts() {
    let world = World::new();
    let moved: String = (0..40).map(|n| format!("line {n}\n")).collect();
    world.write("old name", &moved);
    world.write("gone", "1\n2\n");
    world.write("bin", [0_u8, 1, 2]);
    world.write("mode", "m\n");
    symlink("a.txt", world.file("link")).unwrap();
    let sha = world.commit("second");
    // Committed, staged, unstaged and untracked alike.
    world.write("committed", "c\n");
    world.commit("in between");
    std::fs::rename(world.file("old name"), world.file("new name")).unwrap();
    world.run(["rm", "-q", "gone"]);
    world.write("bin", [0_u8, 9, 9, 9]);
    chmod(&world.file("mode"), 0o755);
    world.write("a.txt", "one\n2\nthree\nfour\n");
    world.write("staged", "s\n");
    world.run(["add", "staged"]);
    world.write("dir/untracked", "u\n");
    world.write("empty", "");
    std::fs::remove_file(world.file("link")).unwrap();
    symlink("elsewhere", world.file("link")).unwrap();
    let set = world.repo().await.changes(&since(&sha)).await.unwrap();
    let want = [
        "M a.txt",
        "M bin",
        "A committed",
        "A dir/untracked",
        "A empty",
        "D gone",
        "M link",
        "M mode",
        "R old name>new name",
        "A staged",
    ];
    let mut want: Vec<_> = want.into();
    want.sort_by_key(|line| line[2..].rsplit('>').next().unwrap().to_owned());
    assert_eq!(short(&set), want);
    // a.txt 3, bin 1, committed 1, untracked 1, gone 2, link 2, staged 1.
    assert_eq!(set.lines, 11);
    patch_yields_the_tree(&world, &since(&sha)).await;
    // A short id and a tag name the same commit.
    world.run(["tag", "-m", "t", "v1", &sha]);
    for other in [&sha[..9], "v1"] {
        assert_eq!(world.repo().await.changes(&since(other)).await.unwrap(), set);
    }
}

#[tokio::test]
async fn what_differed_at_the_start_is_not_charged() {
    let world = World::new();
    world.write("a.txt", "user's\n");
    world.write("staged", "user's\n");
    world.run(["add", "staged"]);
    world.write("notes", "user's\n");
    world.write("more notes", "user's\n");
    std::fs::remove_file(world.file("src/b.txt")).unwrap();
    let base = world.baseline().await;
    assert_eq!(world.repo().await.changes(&base).await.unwrap(), ChangeSet::default());
    assert_eq!(world.repo().await.patch(&base).await.unwrap().bytes, b"");
    // Committing, staging or touching what was there changes no content.
    world.commit("the user's own");
    assert_eq!(changes(&world, &base).await, [""; 0]);
    world.write("notes", "user's\nrun's\n");
    world.write("made", "run's\n");
    std::fs::remove_file(world.file("more notes")).unwrap();
    assert_eq!(changes(&world, &base).await, ["A made", "D more notes", "M notes"]);
    patch_yields_the_tree(&world, &base).await;
}

#[tokio::test]
async fn odd_names_binary_files_and_unborn_baselines() {
    let world = World::unborn();
    world.write("mine", "before\n");
    let base = world.baseline().await;
    assert_eq!(base.base_sha, None);
    for name in odd_names() {
        world.write(&name, [0, 1, 255, 10]);
    }
    let mut want: Vec<String> = odd_names().iter().map(|name| name.to_string_lossy().into_owned()).collect();
    want.sort();
    let listed = |set: ChangeSet| set.changes.into_iter().map(|change| change.path).collect::<Vec<_>>();
    let repo = world.repo().await;
    let set = repo.changes(&base).await.unwrap();
    assert_eq!(set.lines, want.len() as u64);
    assert_eq!(listed(set), want);
    world.commit("first");
    assert_eq!(listed(repo.changes(&base).await.unwrap()), want);
    patch_yields_the_tree(&world, &base).await;
}

#[tokio::test]
async fn without_a_baseline_only_untracked_files_are_seen() {
    let world = World::new();
    world.write("a.txt", "changed\n");
    world.write("staged", "s\n");
    world.run(["add", "staged"]);
    world.write("new", "n\nn\n");
    let base = Baseline { in_git: true, ..Baseline::default() };
    let set = world.repo().await.changes(&base).await.unwrap();
    assert_eq!((short(&set), set.lines), (vec!["A new".to_owned()], 2));
    let patch = String::from_utf8(world.repo().await.patch(&base).await.unwrap().bytes).unwrap();
    assert!(patch.contains("new file mode 100644") && patch.contains("b/new") && !patch.contains("a.txt"));
}

#[tokio::test]
async fn a_baseline_that_is_gone_is_an_error() {
    let world = World::new();
    let sha = world.run(["rev-parse", "HEAD"]);
    world.run(["commit", "-q", "--amend", "-m", "rewritten"]);
    world.run(["reflog", "expire", "--expire=now", "--all"]);
    world.run(["gc", "-q", "--prune=now"]);
    let repo = world.repo().await;
    for bad in [sha.as_str(), "", "-h", "no such", "HEAD..HEAD", &"0".repeat(40)] {
        let error = repo.changes(&since(bad)).await.unwrap_err();
        assert!(matches!(&error, Error::BaseGone(named) if named == bad), "{error}");
        assert!(matches!(repo.patch(&since(bad)).await, Err(Error::BaseGone(_))));
    }
    let lost = Baseline { snapshot: Some(sha), ..since("HEAD") };
    assert!(matches!(repo.changes(&lost).await, Err(Error::BaseGone(_))));
}

#[tokio::test]
async fn files_become_directories_and_links_and_back() {
    let world = World::new();
    let sha = world.run(["rev-parse", "HEAD"]);
    std::fs::remove_file(world.file("a.txt")).unwrap();
    world.write("a.txt/inside", "i\n");
    std::fs::remove_dir_all(world.file("src")).unwrap();
    symlink("/etc", world.file("src")).unwrap();
    assert_eq!(changes(&world, &since(&sha)).await, ["D a.txt", "A a.txt/inside", "A src", "D src/b.txt"]);
    patch_yields_the_tree(&world, &since(&sha)).await;
}

#[tokio::test]
async fn a_conflicted_index_is_read_and_kept() {
    let world = World::new();
    let sha = world.run(["rev-parse", "HEAD"]);
    world.run(["checkout", "-q", "-b", "side"]);
    world.write("a.txt", "theirs\n");
    world.commit("side");
    world.run(["checkout", "-q", "main"]);
    world.write("a.txt", "ours\n");
    world.commit("main");
    let merge = Command::new("git").args(["merge", "-q", "side"]).current_dir(&world.path).output().unwrap();
    assert!(!merge.status.success());
    let before = users(&world.file(".git"));
    assert_eq!(changes(&world, &since(&sha)).await, ["M a.txt"]);
    let stored = world.repo().await.snapshot("refs/clawo/runs/r1/c", "conflict").await.unwrap();
    assert!(world.run(["show", &format!("{}:a.txt", stored.commit)]).contains("<<<<<<<"));
    assert_eq!(users(&world.file(".git")), before);
}

#[tokio::test]
async fn submodules_show_when_they_move_or_hold_work() {
    let inner = World::new();
    let world = World::new();
    world.run(["submodule", "--quiet", "add", inner.path.to_str().unwrap(), "sub"]);
    let sha = world.commit("with a submodule");
    world.run(["config", "submodule.sub.ignore", "all"]);
    assert_eq!(changes(&world, &since(&sha)).await, [""; 0]);
    world.write("sub/a.txt", "the user's work\n");
    assert_eq!(changes(&world, &since(&sha)).await, ["M sub"]);
    // Dirty at the start in the same way is not charged; more is.
    let base = world.baseline().await;
    assert_eq!(changes(&world, &base).await, [""; 0]);
    world.write("sub/a.txt", "the run's work\n");
    assert_eq!(changes(&world, &base).await, ["M sub"]);
    run(&world.file("sub"), ["commit", "-q", "-a", "-m", "moved"]);
    assert_eq!(changes(&world, &base).await, ["M sub"]);
    assert_eq!(changes(&world, &since(&sha)).await, ["M sub"]);
    patch_yields_the_tree(&world, &since(&sha)).await;
}
