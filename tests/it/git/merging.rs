//! Merges into branches of ours: whole, or as if they had not been tried (MG-3, MG-9, council scenarios 7 and 9).

use super::*;
use claw_orchestrator::git::{MergedIn, UnmergedKind};

/// Everything of a worktree and of its registration but logs and what git notes about its own work.
fn whole(world: &World, repo: &Repo) -> impl PartialEq + std::fmt::Debug + use<> {
    let branch = run(repo.top(), ["rev-parse", "HEAD"]);
    (tree(repo.top()), branch, run(repo.top(), ["status", "--porcelain", "--ignored"]), world.kept())
}

#[tokio::test]
async fn work_of_members_comes_together_in_merge_commits() {
    let world = World::lived_in();
    let before = world.kept();
    let (a, b, integration) = (world.member("A").await, world.member("B").await, world.member("integration").await);
    let base = integration.head().await.unwrap().unwrap();
    let from_a = commit_in(a.top(), &[("a.txt", "one\n2\nthree\n"), ("dist/x", "x"), ("näme \"q\"", "n")]);
    chmod(&b.top().join("src/b.txt"), 0o755);
    std::fs::rename(b.top().join("text.txt"), b.top().join("moved.txt")).unwrap();
    let from_b = commit_in(b.top(), &[("empty", ""), ("pic", "\0\u{1}")]);

    let message = "council(round-2): merge A\n\n# stays";
    let MergedIn::Merged(first) = integration.merge_in(&from_a, message, &[]).await.unwrap() else { panic!() };
    assert_eq!(
        world.run(["log", "-1", "--format=%P|%an <%ae>|%cn|%B", &first]),
        format!("{base} {from_a}|clawo runtime <runtime@clawo.invalid>|clawo runtime|{message}")
    );
    assert_eq!(integration.merge_in(&from_a, "again", &[]).await.unwrap(), MergedIn::Nothing);
    let MergedIn::Merged(second) = integration.merge_in(&from_b, "merge B", &[]).await.unwrap() else { panic!() };
    assert_eq!(integration.head().await.unwrap(), Some(second.clone()));
    assert_eq!(integration.branch_tip(&format!("council/{ID}/integration")).await.unwrap(), Some(second.clone()));
    assert_eq!(run(integration.top(), ["status", "--porcelain"]), "");
    assert_eq!(integration.operation().await.unwrap(), None);
    assert_eq!(
        world.run(["-c", "core.quotePath=false", "diff", "--name-status", "--no-renames", &base, &second]),
        "M\ta.txt\nA\tdist/x\nA\tempty\nA\tmoved.txt\nA\t\"näme \\\"q\\\"\"\nA\tpic\nM\tsrc/b.txt\nD\ttext.txt"
    );
    assert_eq!(world.kept(), before);
    assert!(!world.file(".git/hooked").exists() && !world.file(".git/rr-cache").exists());
}

#[tokio::test]
async fn a_conflict_is_told_by_kind_and_leaves_no_trace() {
    let world = World::lived_in();
    // Recorded resolutions of the user's must not decide anything.
    world.run(["config", "rerere.enabled", "true"]);
    world.run(["config", "rerere.autoUpdate", "true"]);
    world.write("src/c.txt", "c\n");
    commit_in(&world.path, &[("d.txt", "d\n")]);
    let (a, b) = (world.member("A").await, world.member("B").await);
    std::fs::remove_file(a.top().join("src/c.txt")).unwrap();
    commit_in(
        a.top(),
        &[
            ("text.txt", "1\n2\n3\n4\nA\n6\n7\n8\n9\n"),
            ("new", "a\n"),
            ("d.txt", "A\n"),
            ("fine", "f"),
            ("dir", "a file\n"),
        ],
    );
    std::fs::remove_file(b.top().join("d.txt")).unwrap();
    let theirs = commit_in(
        b.top(),
        &[
            ("text.txt", "1\n2\n3\n4\nB\n6\n7\n8\n9\n"),
            ("new", "b\n"),
            ("src/c.txt", "B\n"),
            ("more", "m"),
            ("dir/x", "x\n"),
        ],
    );
    write(&a.top().join("build.log"), "ignored, and stays");
    let before = whole(&world, &a);
    let MergedIn::Conflict(unmerged) = a.merge_in(&theirs, "merge B", &[]).await.unwrap() else { panic!() };
    let kinds: Vec<_> = unmerged.iter().map(|unmerged| (unmerged.path.as_str(), unmerged.kind)).collect();
    assert!(kinds.contains(&("text.txt", UnmergedKind::Content)), "{kinds:?}");
    assert!(kinds.contains(&("new", UnmergedKind::AddedByBoth)), "{kinds:?}");
    assert!(kinds.contains(&("src/c.txt", UnmergedKind::DeletedByUs)), "{kinds:?}");
    assert!(kinds.contains(&("d.txt", UnmergedKind::DeletedByThem)), "{kinds:?}");
    assert!(kinds.iter().any(|(path, kind)| path.starts_with("dir") && *kind == UnmergedKind::Other), "{kinds:?}");
    assert_eq!(whole(&world, &a), before);
    assert_eq!(a.operation().await.unwrap(), None);

    // Content that was brought together elsewhere ends the conflict of its path alone.
    let overrides = [("text.txt".to_owned(), b"both\n".to_vec())];
    let MergedIn::Conflict(unmerged) = a.merge_in(&theirs, "merge B", &overrides).await.unwrap() else { panic!() };
    assert!(!unmerged.is_empty() && unmerged.iter().all(|unmerged| unmerged.path != "text.txt"));
    assert_eq!(whole(&world, &a), before);
}

#[tokio::test]
async fn overrides_replace_what_the_merge_made() {
    let world = World::lived_in();
    world.run(["config", "core.autocrlf", "true"]);
    chmod(&world.file("a.txt"), 0o755);
    commit_in(&world.path, &[]);
    let (a, b) = (world.member("A").await, world.member("B").await);
    commit_in(a.top(), &[("text.txt", "A\n"), ("a.txt", "A\n")]);
    let theirs = commit_in(b.top(), &[("text.txt", "B\n"), ("src/b.txt", "B\n")]);
    // One in conflict, one merged well, one that no side has.
    let overrides = [
        ("text.txt".to_owned(), b"A\nB\n".to_vec()),
        ("src/b.txt".to_owned(), b"other\n".to_vec()),
        ("dist/new".to_owned(), b"n\n".to_vec()),
        ("a.txt".to_owned(), b"a\n".to_vec()),
    ];
    let MergedIn::Merged(commit) = a.merge_in(&theirs, "merge", &overrides).await.unwrap() else { panic!() };
    for (path, bytes) in &overrides {
        assert_eq!(a.show(&commit, path, 99).await.unwrap().as_ref(), Some(bytes));
    }
    assert_eq!(world.run(["ls-tree", "--format=%(objectmode)", &commit, "a.txt"]), "100755");
    // On disk as a checkout would have it.
    assert_eq!(read(a.top().join("text.txt")), "A\r\nB\r\n");
    assert_eq!(a.dirty().await.unwrap().total, 0);
    assert!(a.is_ancestor(&theirs, &commit).await.unwrap());

    // Taken whole for ours, the other side still counts as merged.
    let more = commit_in(b.top(), &[("text.txt", "B2\n")]);
    let ours = [("text.txt".to_owned(), b"A\nB\n".to_vec())];
    let MergedIn::Merged(second) = a.merge_in(&more, "merge", &ours).await.unwrap() else { panic!() };
    assert_eq!(a.tree(&second).await.unwrap(), a.tree(&commit).await.unwrap());
}

#[tokio::test]
async fn only_clean_worktrees_of_ours_are_merged_into() {
    let world = World::lived_in();
    let (a, b) = (world.member("A").await, world.member("B").await);
    let theirs = commit_in(b.top(), &[("x", "x")]);
    let side = world.file("../side");
    world.run(["-c", "core.hooksPath=/dev/null", "worktree", "add", "-q", "-b", "side", side.to_str().unwrap()]);
    let side = world.git.open(&side).await.unwrap().unwrap();
    let before = world.kept();
    for (repo, want) in [(&world.repo().await, "main checkout"), (&side, "no branch of ours")] {
        for refused in [
            repo.merge_in(&theirs, "m", &[]).await.map(drop),
            repo.fast_forward(&theirs).await,
            repo.reset_to(&theirs).await,
        ] {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(want), "{refused}");
        }
    }
    assert_eq!(world.kept(), before);
    write(&a.top().join("left"), "l");
    let refused = a.merge_in(&theirs, "m", &[]).await.unwrap_err().to_string();
    assert!(refused.contains("left") && refused.contains("commit them first"), "{refused}");
    assert!(a.merge_in("no such commit", "m", &[]).await.is_err());
    a.commit_all("left").await.unwrap();
    let root = world.run(["commit-tree", "-m", "root", "HEAD^{tree}"]);
    let before = whole(&world, &a);
    let refused = a.merge_in(&root, "m", &[]).await.unwrap_err().to_string();
    assert!(refused.contains("unrelated"), "{refused}");
    assert_eq!(whole(&world, &a), before);
}
