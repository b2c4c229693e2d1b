//! Worktrees of ours: whole, separate, and removed only when nothing is lost (WT-1 WT-2 WT-3 WT-5 WT-6).

use super::*;

async fn added(world: &World, name: &str) -> Repo {
    world.repo().await.worktree_add(&world.file("..").join(name), &format!("clawo/{name}")).await.unwrap()
}

async fn refused(world: &World, path: &Path, want: &str) {
    let error = world.repo().await.worktree_remove(path).await.unwrap_err().to_string();
    assert!(error.contains(want), "{error}");
}

#[tokio::test]
async fn work_in_a_worktree_ends_on_its_branch() {
    let world = World::new();
    world.write("a.txt", "the user's uncommitted work\n");
    let hook = world.file(".git/hooks/pre-commit");
    write(&hook, "#!/bin/sh\nexit 1\n");
    for name in ["post-checkout", "reference-transaction", "post-commit"] {
        std::fs::copy(&hook, world.file(".git/hooks").join(name)).unwrap();
        chmod(&world.file(".git/hooks").join(name), 0o755);
    }
    chmod(&hook, 0o755);
    world.run(["config", "commit.gpgSign", "true"]);
    let (config, head) = (std::fs::read(world.file(".git/config")).unwrap(), world.run(["rev-parse", "HEAD"]));
    let index = std::fs::read(world.file(".git/index")).unwrap();
    let repo = added(&world, "r1").await;
    assert_eq!(repo.head().await.unwrap(), Some(head.clone()));
    assert_eq!(std::fs::read_to_string(repo.top().join("a.txt")).unwrap(), "one\ntwo\nthree\n");
    assert_eq!(repo.commit_all("nothing").await.unwrap(), None);

    for name in odd_names() {
        write(&repo.top().join(name), "odd");
    }
    std::fs::remove_file(repo.top().join("a.txt")).unwrap();
    refused(&world, repo.top(), "not committed").await;
    assert!(repo.top().join("-dash").exists());
    let commit = repo.commit_all("the run's work").await.unwrap().unwrap();
    assert_eq!(world.run(["rev-parse", "clawo/r1"]), commit);
    assert_eq!(run(repo.top(), ["status", "--porcelain"]), "");
    assert_eq!(
        world.run(["log", "-1", "--format=%an|%ce|%s|%P", &commit]),
        format!("clawo runtime|runtime@clawo.invalid|the run's work|{head}")
    );

    world.repo().await.worktree_remove(repo.top()).await.unwrap();
    assert!(!repo.top().exists());
    assert_eq!(world.run(["rev-parse", "clawo/r1"]), commit);
    assert_eq!(std::fs::read(world.file(".git/config")).unwrap(), config);
    assert_eq!(std::fs::read(world.file(".git/index")).unwrap(), index);
    assert_eq!(world.run(["rev-parse", "main"]), head);
    assert_eq!(std::fs::read_to_string(world.file("a.txt")).unwrap(), "the user's uncommitted work\n");
}

#[tokio::test]
async fn path_and_branch_must_be_new() {
    let world = World::new();
    let repo = world.repo().await;
    world.run(["branch", "clawo/old"]);
    std::fs::create_dir(world.file("../empty")).unwrap();
    let before = users(&world.file(".git"));
    let new = world.file("../new");
    for (path, branch, want) in [
        (new.as_path(), "clawo/old", "already"),
        (&new, "-b", "not a name"),
        (&new, "", "not a name"),
        (&new, "a..b", "not a name"),
        (&world.file("../empty"), "clawo/new", "exists already"),
        (&world.file("a.txt"), "clawo/new", "exists already"),
        (Path::new("relative"), "clawo/new", "not an absolute path"),
    ] {
        let error = repo.worktree_add(path, branch).await.unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
    let unborn = World::unborn();
    let error = unborn.repo().await.worktree_add(&new, "clawo/new").await.unwrap_err().to_string();
    assert!(error.contains("no commit yet"), "{error}");
    assert_eq!(users(&world.file(".git")), before);
    assert!(!new.exists());
    let error = repo.commit_all("m").await.unwrap_err().to_string();
    assert!(error.contains("main checkout"), "{error}");
}

#[tokio::test]
async fn nothing_that_would_be_lost_is_removed() {
    let world = World::new();
    // Hidden from git's own look by a flag.
    let repo = added(&world, "flagged").await;
    run(repo.top(), ["update-index", "--assume-unchanged", "a.txt"]);
    write(&repo.top().join("a.txt"), "hidden work");
    refused(&world, repo.top(), "not committed").await;
    assert_eq!(std::fs::read(repo.top().join("a.txt")).unwrap(), b"hidden work");

    // Commits that only the worktree's own HEAD reaches.
    let repo = added(&world, "detached").await;
    run(repo.top(), ["checkout", "-q", "--detach"]);
    run(repo.top(), ["commit", "-q", "--allow-empty", "-m", "alone"]);
    refused(&world, repo.top(), "reaches its commit").await;

    let repo = added(&world, "nested").await;
    run(repo.top(), ["init", "-q", "inner"]);
    refused(&world, repo.top(), "another repository").await;

    // The link file is gone, so git in there works on whatever lies around.
    let repo = added(&world, "broken").await;
    std::fs::remove_file(repo.top().join(".git")).unwrap();
    refused(&world, repo.top(), "link is gone").await;
    assert!(repo.top().join("a.txt").exists());

    let repo = added(&world, "file").await;
    std::fs::remove_dir_all(repo.top()).unwrap();
    std::fs::write(repo.top(), "f").unwrap();
    refused(&world, repo.top(), "not a directory").await;
    assert!(repo.top().exists());
}

#[tokio::test]
async fn only_linked_worktrees_of_this_repository_are_removed() {
    let world = World::new();
    let other = World::new();
    let link = world.file("../link");
    std::os::unix::fs::symlink(&world.path, &link).unwrap();
    std::fs::create_dir(world.file("../plain")).unwrap();
    for path in [&world.path, &link, &world.file("src"), &world.file("../plain"), &other.path, &world.file("none")] {
        refused(&world, path, "not a linked worktree").await;
    }
    assert!(world.file("a.txt").exists() && other.file("a.txt").exists());
}

#[tokio::test]
async fn gone_and_emptied_folders_can_be_removed_beside_others() {
    let world = World::new();
    let (gone, emptied, kept) =
        (added(&world, "gone").await, added(&world, "emptied").await, added(&world, "kept").await);
    for repo in [&gone, &emptied] {
        std::fs::remove_dir_all(repo.top()).unwrap();
    }
    std::fs::create_dir(emptied.top()).unwrap();
    let main = world.repo().await;
    let (a, b) = tokio::join!(main.worktree_remove(gone.top()), main.worktree_remove(emptied.top()));
    a.unwrap();
    b.unwrap();
    assert!(!emptied.top().exists());
    assert!(kept.head().await.unwrap().is_some());
    assert_eq!(world.run(["worktree", "list"]).lines().count(), 2);
    world.run(["fsck", "--strict"]);
}
