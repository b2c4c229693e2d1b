//! Refs of ours move by compare-and-swap, and branches are found wherever they are checked out (MG-2).

use claw_orchestrator::git::Error;

use super::*;

#[tokio::test]
async fn moves_and_deletions_compare_first() {
    let world = World::lived_in();
    let before = world.kept();
    let repo = world.repo().await;
    let (old, new) = (world.run(["rev-parse", "HEAD~1"]), world.run(["rev-parse", "HEAD"]));
    for refname in ["refs/clawo/council/9f3c1a2b/salvage/A-r2-1", "refs/heads/council/9f3c1a2b/A"] {
        assert_eq!(repo.tip(refname).await.unwrap(), None);
        repo.point(refname, &old, None).await.unwrap();
        assert_eq!(repo.tip(refname).await.unwrap(), Some(old.clone()));
        // Somebody who thought it was not there, or elsewhere.
        for stale in [None, Some(new.as_str())] {
            let lost = repo.point(refname, &new, stale).await.unwrap_err();
            assert!(matches!(&lost, Error::Moved { found: Some(found), .. } if *found == old), "{lost}");
        }
        assert!(matches!(repo.unpoint(refname, &new).await, Err(Error::Moved { .. })));
        repo.point(refname, &new, Some(&old)).await.unwrap();
        repo.unpoint(refname, &new).await.unwrap();
        // Once more, as after a crash.
        repo.unpoint(refname, &new).await.unwrap();
        assert!(matches!(repo.point(refname, &new, Some(&old)).await, Err(Error::Moved { found: None, .. })));
    }
    for foreign in [
        "refs/heads/main",
        "refs/heads/council",
        "refs/heads/council/",
        "refs/stash",
        "HEAD",
        "refs/clawo/a..b",
        "council/x/y",
    ] {
        let refused = repo.point(foreign, &new, None).await.unwrap_err().to_string();
        assert!(refused.contains("not one of our refs"), "{refused}");
        assert!(repo.unpoint(foreign, &new).await.is_err());
    }
    assert_eq!(world.kept(), before);
}

#[tokio::test]
async fn only_one_of_two_wins() {
    let world = World::new();
    let repo = world.repo().await;
    let head = world.run(["rev-parse", "HEAD"]);
    let refname = "refs/heads/council/9f3c1a2b/A";
    let (a, b) = tokio::join!(repo.point(refname, &head, None), repo.point(refname, &head, None));
    assert!(a.is_ok() != b.is_ok());
}

#[tokio::test]
async fn commits_and_how_they_hang_together() {
    let world = World::new();
    let repo = world.repo().await;
    let first = repo.head().await.unwrap().unwrap();
    world.run(["checkout", "-q", "-b", "side"]);
    world.write("s", "s");
    let side = world.commit("side");
    world.run(["checkout", "-q", "main"]);
    world.write("m", "m");
    let main = world.commit("main");
    assert!(repo.is_ancestor(&first, &main).await.unwrap() && repo.is_ancestor(&main, &main).await.unwrap());
    assert!(!repo.is_ancestor(&side, &main).await.unwrap());
    assert_eq!(repo.merge_base(&side, &main).await.unwrap(), Some(first));
    let root = world.run(["commit-tree", "-m", "root", "HEAD^{tree}"]);
    assert_eq!(repo.merge_base(&root, &main).await.unwrap(), None);
    assert!(repo.has_commit(&root).await.unwrap());
    assert!(!repo.has_commit(&"1".repeat(40)).await.unwrap());
    assert!(!repo.has_commit(&world.run(["rev-parse", "HEAD:m"])).await.unwrap());
    assert_eq!(repo.tree(&main).await.unwrap(), world.run(["rev-parse", "HEAD^{tree}"]));
    // A tag with the name of a branch does not stand for it, nor does a name below.
    world.run(["tag", "side", &main]);
    world.run(["tag", "refs/heads/none", &main]);
    assert_eq!(repo.branch_tip("side").await.unwrap(), Some(side));
    for missing in ["none", "", "a..b", "-x", "si"] {
        assert_eq!(repo.branch_tip(missing).await.unwrap(), None, "{missing}");
    }
}

#[tokio::test]
async fn branches_are_found_where_they_are_in_use() {
    let world = World::new();
    world.write("c", "c");
    world.commit("second");
    let repo = world.repo().await;
    assert_eq!(repo.current_branch().await.unwrap().as_deref(), Some("main"));
    let side = world.file("../s i d e");
    world.run(["worktree", "add", "-q", "-b", "side", side.to_str().unwrap()]);
    let side = side.canonicalize().unwrap();
    let beside = world.git.open(&side).await.unwrap().unwrap();
    for from in [&repo, &beside] {
        assert_eq!(from.checked_out("main").await.unwrap().unwrap().top(), world.path);
        assert_eq!(from.checked_out("side").await.unwrap().unwrap().top(), side);
        assert!(from.checked_out("none").await.unwrap().is_none());
    }
    // In the middle of a rebase HEAD is no branch, and git will still write this one at its end.
    assert!(!may_stop(&side, &["rebase", "-q", "--exec", "false", "HEAD~1"]));
    assert_eq!(beside.current_branch().await.unwrap(), None);
    assert_eq!(repo.checked_out("side").await.unwrap().unwrap().top(), side);
    run(&side, ["rebase", "--abort"]);
    run(&side, ["bisect", "start", "HEAD", "HEAD~1"]);
    run(&side, ["checkout", "-q", "--detach"]);
    assert_eq!(repo.checked_out("side").await.unwrap().unwrap().top(), side);
    // A folder that is gone has nothing checked out.
    std::fs::remove_dir_all(&side).unwrap();
    assert!(repo.checked_out("side").await.unwrap().is_none());
}
