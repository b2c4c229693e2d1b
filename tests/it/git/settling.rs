//! Worktrees of ours brought to a known state without losing anything (council scenarios 15 and 17).

use super::*;

#[tokio::test]
async fn forward_to_what_descends_from_it() {
    let world = World::lived_in();
    let before = world.kept();
    let (a, b) = (world.member("A").await, world.member("B").await);
    let start = a.head().await.unwrap().unwrap();
    let next = commit_in(b.top(), &[("a.txt", "new\n"), ("dist/x", "x"), ("é \"q\"", "q")]);
    // Only touched, so no change, and a new file of its own that is nobody's business.
    write(&a.top().join("text.txt"), read(a.top().join("text.txt")));
    write(&a.top().join("own"), "own");
    a.fast_forward(&next).await.unwrap();
    assert_eq!(a.branch_tip(&format!("council/{ID}/A")).await.unwrap(), Some(next.clone()));
    assert_eq!(run(a.top(), ["status", "--porcelain"]), "?? own");
    a.fast_forward(&next).await.unwrap();
    let refused = a.fast_forward(&start).await.unwrap_err().to_string();
    assert!(refused.contains("does not descend"), "{refused}");
    let last = commit_in(b.top(), &[("own", "theirs"), ("a.txt", "last\n")]);
    assert!(a.fast_forward(&last).await.is_err());
    std::fs::remove_file(a.top().join("own")).unwrap();
    write(&a.top().join("a.txt"), "edited");
    assert!(a.fast_forward(&last).await.is_err());
    assert_eq!((read(a.top().join("a.txt")), a.head().await.unwrap()), ("edited".to_owned(), Some(next)));
    assert_eq!(world.kept(), before);
    assert!(!world.file(".git/hooked").exists());
}

#[tokio::test]
async fn back_only_when_everything_is_kept_elsewhere() {
    let world = World::lived_in();
    let a = world.member("A").await;
    let start = a.head().await.unwrap().unwrap();
    let clean = tree(a.top());
    let mut half = commit_in(a.top(), &[("a.txt", "half\n"), ("extra/deep/x", "x")]);
    let salvage = |n: u32| format!("refs/clawo/council/{ID}/salvage/A-r2-{n}");
    // A commit of its own branch alone would be lost.
    let refused = a.reset_to(&start).await.unwrap_err().to_string();
    assert!(refused.contains("nothing else reaches"), "{refused}");
    for n in 1.. {
        if n == 3 {
            break;
        }
        write(&a.top().join("text.txt"), format!("uncommitted {n}\n"));
        write(&a.top().join("new dir/\"n\""), "new");
        write(&a.top().join("build.log"), "ignored");
        if n == 2 {
            run(a.top(), ["update-index", "--assume-unchanged", "text.txt"]);
        }
        let before = tree(a.top());
        let refused = a.reset_to(&start).await.unwrap_err().to_string();
        assert!(refused.contains("stored nowhere"), "{refused}");
        assert_eq!((tree(a.top()), a.head().await.unwrap()), (before, Some(half.clone())));
        let stored = a.snapshot(&salvage(n), "salvage").await.unwrap();
        a.reset_to(&start).await.unwrap();
        assert_eq!(a.branch_tip(&format!("council/{ID}/A")).await.unwrap(), Some(start.clone()));
        let mut now = tree(a.top());
        assert!(now.remove(Path::new("build.log")).is_some());
        assert_eq!(now, clean);
        assert_eq!(run(a.top(), ["status", "--porcelain"]), "");
        assert_eq!(world.run(["show", &format!("{}:text.txt", stored.commit)]), format!("uncommitted {n}"));
        assert!(a.is_ancestor(&half, &stored.commit).await.unwrap());
        half = commit_in(a.top(), &[("second", "s")]);
    }
    assert!(!world.file(".git/hooked").exists());
    // A further commit is reached from where it goes.
    a.reset_to(&half).await.unwrap();
    a.point(&salvage(9), &half, None).await.unwrap();
    a.reset_to(&start).await.unwrap();
    assert_eq!(run(a.top(), ["status", "--porcelain"]), "");
}

#[tokio::test]
async fn a_head_that_left_its_branch_comes_back() {
    let world = World::lived_in();
    let a = world.member("A").await;
    let branch = format!("council/{ID}/A");
    let start = a.head().await.unwrap().unwrap();
    may_stop(a.top(), &["checkout", "-q", "--detach"]);
    let ahead = commit_in(a.top(), &[("x", "x")]);
    let refused = a.attach(&branch).await.unwrap_err().to_string();
    assert!(refused.contains("no ref reaches"), "{refused}");
    a.point(&format!("refs/heads/{branch}"), &ahead, Some(&start)).await.unwrap();
    a.attach(&branch).await.unwrap();
    assert_eq!(a.current_branch().await.unwrap(), Some(branch.clone()));
    assert_eq!(run(a.top(), ["status", "--porcelain"]), "");
    // Off to a branch the agent made: back to ours, then to its tip.
    may_stop(a.top(), &["checkout", "-q", "-b", "topic", &start]);
    commit_in(a.top(), &[("y", "y")]);
    let refused = a.reset_to(&ahead).await.unwrap_err().to_string();
    assert!(refused.contains("'topic', which is no branch of ours"), "{refused}");
    a.attach(&branch).await.unwrap();
    a.reset_to(&ahead).await.unwrap();
    assert_eq!((run(a.top(), ["status", "--porcelain"]), a.head().await.unwrap()), (String::new(), Some(ahead)));
    assert_eq!(world.run(["log", "--format=%s", "-1", "topic"]), "work");
    assert!(!world.file(".git/hooked").exists());
    let b = world.member("B").await;
    let refused = b.attach(&branch).await.unwrap_err().to_string();
    assert!(refused.contains("is checked out in"), "{refused}");
    for foreign in ["main", "topic", "council/none/A"] {
        assert!(b.attach(foreign).await.is_err());
    }
    assert!(world.repo().await.attach(&branch).await.is_err());
}

#[tokio::test]
async fn what_was_left_half_done_is_kept_as_a_patch_and_aborted() {
    for (operation, args) in [
        ("merge", &["merge", "council/9f3c1a2b/B"][..]),
        ("rebase", &["rebase", "council/9f3c1a2b/B"]),
        ("cherry-pick", &["cherry-pick", "council/9f3c1a2b/B"]),
        ("revert", &["revert", "--no-edit", "HEAD~1"]),
        ("", &["stash", "pop"]),
    ] {
        let world = World::lived_in();
        let (a, b) = (world.member("A").await, world.member("B").await);
        commit_in(b.top(), &[("text.txt", "B\n")]);
        commit_in(a.top(), &[("text.txt", "first\n")]);
        let tip = commit_in(a.top(), &[("text.txt", "A\n"), ("a.txt", "A\n")]);
        assert!(a.open_merge().await.unwrap().is_none());
        a.abort_operation().await.unwrap();
        let stash = read(world.file(".git/refs/stash"));
        may_stop(a.top(), args);
        write(&a.top().join("loose"), "untracked");
        let open = a.open_merge().await.unwrap().unwrap();
        let conflicted = if operation.is_empty() { "a.txt" } else { "text.txt" };
        assert_eq!((open.operation, open.unmerged.as_slice()), (operation, &[conflicted.to_owned()][..]));
        let patch = String::from_utf8_lossy(&open.patch).into_owned();
        assert!(patch.contains("+<<<<<<< ") && patch.contains("+untracked"), "{operation}: {patch}");
        assert_eq!(open.stranded, None);
        a.abort_operation().await.unwrap();
        assert!(a.open_merge().await.unwrap().is_none(), "{operation}");
        assert_eq!(a.head().await.unwrap(), Some(tip), "{operation}");
        assert_eq!(a.current_branch().await.unwrap(), Some(format!("council/{ID}/A")), "{operation}");
        assert_eq!(run(a.top(), ["status", "--porcelain"]), "?? loose", "{operation}");
        assert_eq!(read(world.file(".git/refs/stash")), stash, "{operation}");
        assert!(!world.file(".git/hooked").exists(), "{operation}");
    }
    let world = World::new();
    assert!(world.repo().await.open_merge().await.is_err() && world.repo().await.abort_operation().await.is_err());
}

#[tokio::test]
async fn commits_of_a_half_done_rebase_are_not_dropped() {
    let world = World::new();
    let (a, b) = (world.member("A").await, world.member("B").await);
    commit_in(b.top(), &[("text.txt", "B\n")]);
    commit_in(a.top(), &[("other", "o\n")]);
    commit_in(a.top(), &[("text.txt", "A\n")]);
    may_stop(a.top(), &["rebase", "council/9f3c1a2b/B"]);
    let stranded = a.open_merge().await.unwrap().unwrap().stranded.unwrap();
    let refused = a.abort_operation().await.unwrap_err().to_string();
    assert!(refused.contains(&stranded), "{refused}");
    a.point("refs/clawo/council/9f3c1a2b/salvage/A-r1-1", &stranded, None).await.unwrap();
    // Also straight to where it should be.
    a.snapshot("refs/clawo/council/9f3c1a2b/salvage/A-r1-2", "salvage").await.unwrap();
    let tip = a.branch_tip("council/9f3c1a2b/A").await.unwrap().unwrap();
    a.reset_to(&tip).await.unwrap();
    assert_eq!(a.operation().await.unwrap(), None);
    assert_eq!(run(a.top(), ["status", "--porcelain"]), "");
    a.attach("council/9f3c1a2b/A").await.unwrap();
    assert_eq!(run(a.top(), ["status", "--porcelain"]), "");
}

#[tokio::test]
async fn a_bisection_ends_without_the_users_hooks() {
    for reset in [false, true] {
        let world = World::lived_in();
        let hooks = std::fs::rename(world.file(".git/hooks"), world.file("../hooks"));
        hooks.unwrap();
        let a = world.member("A").await;
        commit_in(a.top(), &[("x", "1")]);
        let tip = commit_in(a.top(), &[("x", "2")]);
        assert!(may_stop(a.top(), &["bisect", "start", "HEAD", "HEAD~2"]));
        assert_eq!(a.current_branch().await.unwrap(), None);
        std::fs::rename(world.file("../hooks"), world.file(".git/hooks")).unwrap();
        let before = world.kept();
        assert_eq!(a.open_merge().await.unwrap().unwrap().operation, "bisect");
        if reset {
            a.reset_to(&tip).await.unwrap();
            a.attach(&format!("council/{ID}/A")).await.unwrap();
        } else {
            a.abort_operation().await.unwrap();
        }
        assert_eq!(a.operation().await.unwrap(), None);
        assert_eq!(
            (a.current_branch().await.unwrap(), a.head().await.unwrap()),
            (Some(format!("council/{ID}/A")), Some(tip))
        );
        assert_eq!(
            (run(a.top(), ["status", "--porcelain"]), run(a.top(), ["for-each-ref", "refs/bisect"])),
            Default::default()
        );
        assert_eq!(world.kept(), before);
        assert!(!world.file(".git/hooked").exists());
    }
}

#[tokio::test]
async fn a_merge_that_was_edited_further_is_aborted_once_a_snapshot_has_it() {
    let world = World::lived_in();
    let (a, b) = (world.member("A").await, world.member("B").await);
    commit_in(b.top(), &[("text.txt", "B\n"), ("src/b.txt", "B\n")]);
    let tip = commit_in(a.top(), &[("text.txt", "A\n")]);
    may_stop(a.top(), &["merge", "council/9f3c1a2b/B"]);
    write(&a.top().join("src/b.txt"), "B and more\n");
    let before = tree(a.top());
    let refused = a.abort_operation().await.unwrap_err().to_string();
    assert!(refused.contains("take a snapshot first"), "{refused}");
    assert_eq!((tree(a.top()), a.operation().await.unwrap()), (before, Some("merge")));
    let stored = a.snapshot("refs/clawo/council/9f3c1a2b/salvage/A-r2-1", "half a merge").await.unwrap();
    a.abort_operation().await.unwrap();
    assert_eq!((a.operation().await.unwrap(), a.head().await.unwrap()), (None, Some(tip)));
    assert_eq!(run(a.top(), ["status", "--porcelain"]), "");
    assert_eq!(world.run(["show", &format!("{}:src/b.txt", stored.commit)]), "B and more");
}
