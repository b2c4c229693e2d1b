//! Every kind of repository either works or is refused in a sentence (GT-4, GT-7, GT-8).

use claw_orchestrator::git::Error;

use super::*;

#[tokio::test]
async fn no_repository_and_no_working_tree_are_none() {
    let world = World::bare();
    assert!(world.git.open(&world.path).await.unwrap().is_none());
    assert!(matches!(world.git.open(&world.file("missing")).await, Err(Error::Fs(e)) if e.is_not_found()));
    world.run(["init", "-q", "--bare", "bare.git"]);
    world.write("plain", "p");
    assert!(matches!(world.git.open(&world.file("plain")).await, Err(Error::Fs(e)) if e.op == "open"));
    assert!(world.git.open(&world.file("bare.git")).await.unwrap().is_none());
    let world = World::new();
    assert!(world.git.open(&world.file(".git")).await.unwrap().is_none());
    // Asking made nothing.
    assert!(tree(&world.path).keys().eq([Path::new("a.txt"), Path::new("src/b.txt")]));
}

#[tokio::test]
async fn opens_from_below_through_links_and_beside_the_main_checkout() {
    let world = World::new();
    let repo = world.git.open(&world.file("src")).await.unwrap().unwrap();
    assert_eq!((repo.top(), repo.prefix()), (world.path.as_path(), "src"));
    assert_eq!(repo.head().await.unwrap(), Some(world.run(["rev-parse", "HEAD"])));

    let link = world.file("../link");
    std::os::unix::fs::symlink(&world.path, &link).unwrap();
    let repo = world.git.open(&link).await.unwrap().unwrap();
    assert_eq!((repo.top(), repo.prefix()), (world.path.as_path(), ""));

    // A worktree inside the repository is its own top, at its own commit.
    world.run(["worktree", "add", "-q", "-b", "side", "in side"]);
    let side = world.git.open(&world.file("in side/src")).await.unwrap().unwrap();
    assert_eq!((side.top(), side.prefix()), (world.file("in side").as_path(), "src"));
    write(&world.file("in side/new"), "n");
    run(&world.file("in side"), ["add", "-A"]);
    run(&world.file("in side"), ["commit", "-q", "-m", "side"]);
    assert_eq!(side.head().await.unwrap(), Some(world.run(["rev-parse", "side"])));
    assert_ne!(side.head().await.unwrap(), repo.head().await.unwrap());
}

#[tokio::test]
async fn a_line_break_in_the_path_of_a_repository() {
    let world = World::bare();
    let path = world.file("new\nline");
    std::fs::create_dir(&path).unwrap();
    run(&path, ["init", "-q"]);
    write(&path.join("f"), "f");
    let repo = world.git.open(&path).await.unwrap().unwrap();
    assert_eq!(repo.top(), path);
    repo.snapshot("refs/clawo/runs/r1/a", "m").await.unwrap();
    assert_eq!(short(&repo.changes(&Baseline::default()).await.unwrap()), ["A f"]);
}

/// All operations that read or store, on one repository.
async fn exercise(world: &World, what: &str) {
    let repo = world.repo().await;
    let base = world.baseline().await;
    let before = repo.digest().await.unwrap();
    assert_eq!(repo.changes(&base).await.unwrap(), ChangeSet::default(), "{what}");
    world.write("made", "by the run\n");
    assert_ne!(repo.digest().await.unwrap(), before, "{what}");
    assert_eq!(short(&repo.changes(&base).await.unwrap()), ["A made"], "{what}");
    let stored = repo.snapshot("refs/clawo/runs/r1/end", "end").await.unwrap();
    assert_eq!(world.run(["rev-parse", "refs/clawo/runs/r1/end"]), stored.commit, "{what}");
    let names = |refs: Vec<(String, String)>| refs.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let refs = names(repo.refs("refs/clawo/runs/r1").await.unwrap());
    assert_eq!(refs, ["refs/clawo/runs/r1/end", "refs/clawo/runs/r1/start"], "{what}");
    // The same state under the same ref is the same commit.
    assert_eq!(repo.snapshot("refs/clawo/runs/r1/end", "end").await.unwrap(), stored, "{what}");
    std::fs::remove_file(world.file("made")).unwrap();
    assert_eq!(repo.digest().await.unwrap(), before, "{what}");
    repo.delete_refs("refs/clawo/runs/r1").await.unwrap();
    assert!(repo.refs("refs/clawo").await.unwrap().is_empty(), "{what}");
    world.run(["fsck", "--strict", "--no-dangling"]);
}

#[tokio::test]
async fn repositories_of_every_kind_work() {
    let world = World::unborn();
    assert_eq!(world.repo().await.head().await.unwrap(), None);
    exercise(&world, "unborn").await;

    let world = World::new();
    world.run(["checkout", "-q", "--detach"]);
    exercise(&world, "detached").await;

    let source = World::new();
    source.write("c", "c");
    source.commit("second");
    let url = format!("file://{}", source.path.display());
    let mut world = World::bare();
    world.run(["clone", "-q", "--depth=1", &url, "shallow"]);
    world.path = world.file("shallow");
    exercise(&world, "shallow").await;

    for kind in ["sparse", "sparse index"] {
        let world = World::new();
        world.write("far/away", "x");
        world.commit("second");
        let flag = if kind == "sparse" { "--no-sparse-index" } else { "--sparse-index" };
        world.run(["sparse-checkout", "set", "--cone", flag, "src"]);
        assert!(!world.file("far").exists());
        exercise(&world, kind).await;
    }

    for format in ["--object-format=sha256", "--ref-format=reftable"] {
        let world = World::bare();
        world.run(["init", "-q", "-b", "main", format]);
        exercise(&world, format).await;
        world.write("a.txt", "one\n");
        let head = world.commit("first");
        assert_eq!(world.repo().await.head().await.unwrap(), Some(head));
        exercise(&world, format).await;
    }

    let world = World::new();
    world.run(["update-index", "--split-index"]);
    exercise(&world, "split index").await;

    let world = World::new();
    std::fs::remove_file(world.file(".git/index")).unwrap();
    exercise(&world, "no index").await;
}

#[tokio::test]
async fn a_repository_of_someone_else_is_a_clear_error() {
    let mut world = World::new();
    world.wrap("export GIT_TEST_ASSUME_DIFFERENT_OWNER=1; exec git \"$@\"");
    let error = world.git.open(&world.path).await.unwrap_err().to_string();
    assert!(error.contains("dubious ownership") && error.contains(world.path.to_str().unwrap()), "{error}");
}

#[tokio::test]
async fn a_broken_link_to_a_repository_is_not_taken_for_none() {
    let world = World::new();
    world.run(["worktree", "add", "-q", "-b", "side", "side"]);
    std::fs::remove_dir_all(world.file(".git/worktrees/side")).unwrap();
    let error = world.git.open(&world.file("side")).await.unwrap_err().to_string();
    assert!(error.contains("not a git repository"), "{error}");
}

#[tokio::test]
async fn the_program_is_named_when_it_is_missing() {
    let world = World::new();
    assert!(world.git.version().await.unwrap().starts_with("2."));
    let git = Git { program: world.file("no-git"), ..world.git.clone() };
    let error = git.open(&world.path).await.unwrap_err().to_string();
    assert!(error.contains("no-git"), "{error}");
}
