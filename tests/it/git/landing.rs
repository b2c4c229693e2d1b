//! Commits brought into the user's branch, and every reason not to (MG-1, MG-2, MG-9, council scenario 21).

use super::*;
use claw_orchestrator::git::{Dirty, LandKind, LandRefusal, LandRequest, Landing, Strategy};

/// What `land_prepare` says to bringing `commit` into `main`.
pub(super) async fn prepare(world: &World, commit: &str, strategy: Strategy) -> Result<Landing, LandRefusal> {
    into(world, "main", commit, strategy).await
}

async fn into(world: &World, branch: &str, commit: &str, strategy: Strategy) -> Result<Landing, LandRefusal> {
    let scratch = world.file("../scratch of ours/landing");
    let request = LandRequest { branch, commit, strategy, message: "council: the task\n\n# id", scratch: &scratch };
    let landing = world.repo().await.land_prepare(&request).await.unwrap();
    assert!(!scratch.exists());
    assert!(!world.run(["worktree", "list"]).contains("landing"));
    landing
}

/// Prepares and publishes; the user's things but the branch's own must stay.
async fn land(world: &World, commit: &str, strategy: Strategy) -> Landing {
    let mut before = world.kept();
    let landing = prepare(world, commit, strategy).await.unwrap();
    assert_eq!(world.kept(), before);
    let repo = world.repo().await;
    repo.land_publish(&landing).await.unwrap().unwrap();
    assert!(repo.land_finish(&landing).await.unwrap());
    let mut after = world.kept();
    for path in ["index", "refs/heads/main", "logs/refs/heads/main", "logs/HEAD"] {
        assert_ne!(after.git.remove(Path::new(path)), before.git.remove(Path::new(path)), "{path}");
    }
    assert_eq!(after.git, before.git);
    assert!(!world.file(".git/hooked").exists());
    landing
}

#[tokio::test]
async fn a_fast_forward_changes_what_differs_and_nothing_else() {
    let world = World::lived_in();
    world.run(["config", "core.autocrlf", "input"]);
    let a = world.member("A").await;
    world.repo().await.exclude(".worktrees/").await.unwrap();
    std::fs::remove_file(a.top().join("src/b.txt")).unwrap();
    std::os::unix::fs::symlink("a.txt", a.top().join("link")).unwrap();
    chmod(&a.top().join("text.txt"), 0o755);
    for name in odd_names() {
        write(&a.top().join("odd").join(name), "odd");
    }
    let tip = commit_in(
        a.top(),
        &[("a.txt", "new\n"), ("dist/x", "forced past the ignore rules\n"), ("empty", ""), ("pic", "\0")],
    );
    let before = world.run(["rev-parse", "main"]);
    // Only touched: no reason to refuse.
    world.write("a.txt", read(world.file("a.txt")));
    let landing = land(&world, &tip, Strategy::Auto).await;
    assert_eq!(
        landing,
        Landing { kind: LandKind::FastForward, branch: "main".into(), before: before.clone(), after: tip.clone() }
    );
    assert_eq!(world.run(["rev-parse", "HEAD"]), tip);
    assert_eq!(world.run(["status", "--porcelain"]), "");
    let mut files = tree(&world.path);
    files.retain(|path, _| !path.starts_with(".worktrees"));
    assert_eq!(files.remove(Path::new("run.log")), Some((0, b"ignored\n".to_vec())));
    assert_eq!(files, tree(a.top()));
    assert_eq!(world.run(["rev-parse", "HEAD@{1}"]), before);
    // Once more there is nothing to bring.
    let again = prepare(&world, &tip, Strategy::Merge).await.unwrap();
    assert_eq!((again.kind, again.before.as_str(), again.after.as_str()), (LandKind::None, tip.as_str(), tip.as_str()));
    let kept = world.kept();
    world.repo().await.land_publish(&again).await.unwrap().unwrap();
    assert!(world.repo().await.land_finish(&again).await.unwrap());
    assert_eq!(world.kept(), kept);
}

#[tokio::test]
async fn a_merge_commit_is_in_the_users_name() {
    let world = World::lived_in();
    world.repo().await.exclude(".worktrees/").await.unwrap();
    let a = world.member("A").await;
    let tip = commit_in(a.top(), &[("text.txt", "1\n2\n3\n4\n5\n6\n7\n8\nA\n"), ("dist/x", "x")]);
    let mine = commit_in(&world.path, &[("text.txt", "me\n2\n3\n4\n5\n6\n7\n8\n9\n")]);
    assert_eq!(prepare(&world, &tip, Strategy::FastForwardOnly).await, Err(LandRefusal::NotFastForward));
    let landing = land(&world, &tip, Strategy::Auto).await;
    assert_eq!(landing.kind, LandKind::MergeCommit);
    assert_eq!(
        world.run(["log", "-1", "--format=%P|%an <%ae>|%cn <%ce>|%G?|%B"]),
        format!("{mine} {tip}|Ada Ex <ada@example.com>|Ada Ex <ada@example.com>|N|council: the task\n\n# id")
    );
    assert_eq!(read(world.file("text.txt")), "me\n2\n3\n4\n5\n6\n7\n8\nA\n");
    assert_eq!(world.run(["status", "--porcelain"]), "");

    // Asked for although it need not be; and half an identity is none.
    let next = commit_in(a.top(), &[("more", "m")]);
    let next = a.commit_files(&landing.after, &[("more".into(), Some(b"m".to_vec()))], &next).await.unwrap();
    world.run(["config", "user.email", ""]);
    let landing = land(&world, &next, Strategy::Merge).await;
    assert_eq!(landing.kind, LandKind::MergeCommit);
    assert_eq!(
        world.run(["log", "-1", "--format=%an <%ae>|%P"]),
        format!("clawo runtime <runtime@clawo.invalid>|{} {next}", landing.before)
    );
}

#[tokio::test]
async fn a_commit_without_a_change_brings_nothing() {
    let world = World::lived_in();
    let a = world.member("A").await;
    let first = commit_in(a.top(), &[("plan.md", "p")]);
    let taken_back = a.commit_files(&first, &[("plan.md".into(), None)], "gone").await.unwrap();
    // Nothing is moved, so that nothing stands against it either.
    world.write("a.txt", "the user's work");
    let before = world.kept();
    let landing = prepare(&world, &taken_back, Strategy::Auto).await.unwrap();
    assert_eq!((landing.kind, &landing.after), (LandKind::None, &landing.before));
    world.repo().await.land_publish(&landing).await.unwrap().unwrap();
    assert_eq!(world.kept(), before);
}

#[tokio::test]
async fn a_branch_that_is_not_checked_out_moves_alone() {
    let world = World::lived_in();
    let a = world.member("A").await;
    let tip = commit_in(a.top(), &[("x", "x")]);
    world.run(["-c", "core.hooksPath=/dev/null", "checkout", "-q", "-b", "elsewhere"]);
    // The tree belongs to another branch, so its state is no matter.
    world.write("a.txt", "the user's work");
    world.write("x", "the user's x");
    let before = world.kept();
    let landing = prepare(&world, &tip, Strategy::Auto).await.unwrap();
    world.repo().await.land_publish(&landing).await.unwrap().unwrap();
    assert!(world.repo().await.land_finish(&landing).await.unwrap());
    let mut after = world.kept();
    assert_eq!(
        after.git.insert("refs/heads/main".into(), format!("{}\n", landing.before).into()),
        Some(format!("{tip}\n").into())
    );
    after.git.insert("logs/refs/heads/main".into(), before.git[Path::new("logs/refs/heads/main")].clone());
    assert_eq!(after, before);
}

#[tokio::test]
async fn a_branch_that_another_worktree_has_moves_there() {
    let world = World::lived_in();
    let a = world.member("A").await;
    let tip = commit_in(a.top(), &[("x", "x")]);
    world.run(["-c", "core.hooksPath=/dev/null", "checkout", "-q", "-b", "elsewhere"]);
    let side = world.file("../s i d e");
    world.run(["-c", "core.hooksPath=/dev/null", "worktree", "add", "-q", side.to_str().unwrap(), "main"]);
    world.write("a.txt", "no matter");
    write(&side.join("left"), "l");
    let dirty = Dirty { paths: vec!["left".into()], total: 1 };
    assert_eq!(prepare(&world, &tip, Strategy::Auto).await, Err(LandRefusal::Dirty(dirty)));
    std::fs::remove_file(side.join("left")).unwrap();
    let (before, mine) = (tree(&world.path), world.run(["status", "--porcelain"]));
    let landing = prepare(&world, &tip, Strategy::Auto).await.unwrap();
    world.repo().await.land_publish(&landing).await.unwrap().unwrap();
    assert_eq!((read(side.join("x")), run(&side, ["status", "--porcelain"])), ("x".into(), String::new()));
    assert_eq!((tree(&world.path), world.run(["status", "--porcelain"])), (before, mine));
}

#[tokio::test]
async fn every_refusal_leaves_everything_as_it_was() {
    let world = World::lived_in();
    world.repo().await.exclude(".worktrees/").await.unwrap();
    let a = world.member("A").await;
    let tip = commit_in(a.top(), &[("text.txt", "A\n"), ("dist/x/y", "x"), ("run.log", "log"), ("new", "n")]);
    assert_eq!(into(&world, "gone", &tip, Strategy::Auto).await, Err(LandRefusal::BranchMissing));

    // Ignored, so the tree is clean, and yet the user's.
    world.write("dist/x", "build output");
    let before = world.kept();
    let want = Err(LandRefusal::WouldOverwrite(vec!["dist/x".into(), "run.log".into()]));
    assert_eq!(prepare(&world, &tip, Strategy::Auto).await, want);
    assert_eq!(world.kept(), before);
    // The same when they come up in between.
    std::fs::remove_dir_all(world.file("dist")).unwrap();
    std::fs::remove_file(world.file("run.log")).unwrap();
    let landing = prepare(&world, &tip, Strategy::Auto).await.unwrap();
    world.write("run.log", "later");
    let before = world.kept();
    let refused = world.repo().await.land_publish(&landing).await.unwrap();
    assert_eq!(refused, Err(LandRefusal::WouldOverwrite(vec!["run.log".into()])));
    assert_eq!(world.kept(), before);
    std::fs::remove_file(world.file("run.log")).unwrap();

    // Uncommitted in every way, also where the landing does not touch.
    for (path, stage) in [("a.txt", false), ("a.txt", true), ("loose", false), ("new", false), ("text.txt", true)] {
        world.write(path, "the user's work");
        if stage {
            world.run(["add", path]);
        }
        let before = world.kept();
        let want = LandRefusal::Dirty(Dirty { paths: vec![path.into()], total: 1 });
        assert_eq!(prepare(&world, &tip, Strategy::Auto).await, Err(want.clone()));
        assert_eq!(world.repo().await.land_publish(&landing).await.unwrap(), Err(want));
        assert!(!world.repo().await.land_finish(&landing).await.unwrap());
        assert_eq!(world.kept(), before);
        run(&world.path, ["reset", "-q", "--hard"]);
        run(&world.path, ["clean", "-q", "-f", "-d"]);
    }

    // The user's own commit on the same lines, after it was prepared.
    commit_in(&world.path, &[("text.txt", "mine\n")]);
    let before = world.kept();
    assert_eq!(world.repo().await.land_publish(&landing).await.unwrap(), Err(LandRefusal::Moved));
    assert!(!world.repo().await.land_finish(&landing).await.unwrap());
    assert_eq!(prepare(&world, &tip, Strategy::Auto).await, Err(LandRefusal::Conflict(vec!["text.txt".into()])));
    assert_eq!(prepare(&world, &tip, Strategy::FastForwardOnly).await, Err(LandRefusal::NotFastForward));
    assert_eq!(world.kept(), before);

    // Half done, on the branch itself.
    let other = world.run(["commit-tree", "-p", "HEAD~1", "-m", "o", &format!("{tip}^{{tree}}")]);
    assert!(!may_stop(&world.path, &["merge", &other]));
    assert_eq!(prepare(&world, &tip, Strategy::Auto).await, Err(LandRefusal::Busy("merge")));
    run(&world.path, ["merge", "--abort"]);
    // And where HEAD does not say so. (A bisection runs hooks in spite of the setting.)
    std::fs::remove_file(world.file(".git/hooks/reference-transaction")).unwrap();
    run(&world.path, ["bisect", "start"]);
    run(&world.path, ["checkout", "-q", "--detach"]);
    assert_eq!(prepare(&world, &tip, Strategy::Auto).await, Err(LandRefusal::Busy("bisect")));
    run(&world.path, ["bisect", "reset"]);
    let landing = prepare(&world, &other, Strategy::Auto).await;
    assert_eq!(landing, Err(LandRefusal::Conflict(vec!["text.txt".into()])));
    run(&world.path, ["checkout", "-q", "--detach"]);
    run(&world.path, ["branch", "-q", "-D", "main"]);
    assert_eq!(prepare(&world, &tip, Strategy::Auto).await, Err(LandRefusal::BranchMissing));
}

#[tokio::test]
async fn files_and_directories_that_change_places() {
    let world = World::new();
    world.write(".gitignore", "*.o\n");
    world.write("dir/a", "a");
    world.write("file", "f");
    world.commit("before");
    world.repo().await.exclude(".worktrees/").await.unwrap();
    let a = world.member("A").await;
    std::fs::remove_dir_all(a.top().join("dir")).unwrap();
    std::fs::remove_file(a.top().join("file")).unwrap();
    let tip = commit_in(a.top(), &[("dir", "now a file"), ("file/below", "now a directory")]);
    // What is ignored in there would go with the directory.
    world.write("dir/build.o", "o");
    assert_eq!(
        prepare(&world, &tip, Strategy::Auto).await,
        Err(LandRefusal::WouldOverwrite(vec!["dir/build.o".into()]))
    );
    std::fs::remove_file(world.file("dir/build.o")).unwrap();
    let landing = prepare(&world, &tip, Strategy::Auto).await.unwrap();
    world.repo().await.land_publish(&landing).await.unwrap().unwrap();
    assert_eq!(
        (read(world.file("dir")), read(world.file("file/below"))),
        ("now a file".into(), "now a directory".into())
    );
    assert_eq!(world.run(["status", "--porcelain"]), "");
}

#[tokio::test]
async fn a_branch_that_moves_under_the_files_gets_them_back() {
    let mut world = World::lived_in();
    world.repo().await.exclude(".worktrees/").await.unwrap();
    let a = world.member("A").await;
    let tip = commit_in(a.top(), &[("a.txt", "A\n"), ("new", "n")]);
    let landing = prepare(&world, &tip, Strategy::Auto).await.unwrap();
    let theirs = a.commit_files(&landing.before, &[("other".into(), Some(b"o".to_vec()))], "theirs").await.unwrap();
    // Another program moves the ref between files and ref.
    let script = format!(
        "for a; do [ \"$a\" = read-tree ] && {{ git \"$@\" || exit; exec git -c core.hooksPath=/dev/null update-ref refs/heads/main {theirs}; }}; done; exec git \"$@\""
    );
    let flag = world.file("../once");
    world.wrap(&format!(
        "[ -e '{0}' ] && exec git \"$@\"\ncase \"$*\" in *read-tree*) touch '{0}';; esac\n{script}",
        flag.display()
    ));
    assert_eq!(world.repo().await.land_publish(&landing).await.unwrap(), Err(LandRefusal::Moved));
    assert!(flag.exists());
    assert_eq!(world.run(["rev-parse", "HEAD"]), theirs);
    assert_eq!(world.run(["status", "--porcelain"]), "");
    assert_eq!((read(world.file("a.txt")), read(world.file("other"))), ("one\ntwo\nthree\n".into(), "o".into()));
}

#[tokio::test]
async fn what_a_dead_process_left_in_the_temporary_place_goes_and_nothing_else_does() {
    let world = World::lived_in();
    world.repo().await.exclude(".worktrees/").await.unwrap();
    let a = world.member("A").await;
    let tip = commit_in(a.top(), &[("x", "x")]);
    commit_in(&world.path, &[("y", "y")]);
    let scratch = world.file("../scratch of ours/landing");
    let request =
        LandRequest { branch: "main", commit: &tip, strategy: Strategy::Auto, message: "m", scratch: &scratch };
    let repo = world.repo().await;
    let half = repo.worktree_at(&scratch, At::Detached(&tip)).await.unwrap();
    write(&half.top().join("x"), "in the middle of a merge");
    assert_eq!(repo.land_prepare(&request).await.unwrap().unwrap().kind, LandKind::MergeCommit);
    // Registered, and the folder gone.
    repo.worktree_at(&scratch, At::Detached(&tip)).await.unwrap();
    std::fs::remove_dir_all(&scratch).unwrap();
    assert_eq!(repo.land_prepare(&request).await.unwrap().unwrap().kind, LandKind::MergeCommit);

    write(&scratch.join("someone's"), "file");
    let refused = repo.land_prepare(&request).await.unwrap_err().to_string();
    assert!(refused.contains("no temporary worktree"), "{refused}");
    assert_eq!(read(scratch.join("someone's")), "file");
    std::fs::remove_dir_all(&scratch).unwrap();
    let branched = repo.worktree_at(&scratch, At::New { branch: "council/9f3c1a2b/x", commit: &tip }).await.unwrap();
    assert!(repo.land_prepare(&request).await.is_err());
    assert!(branched.top().join("x").exists());
}

#[tokio::test]
async fn a_linked_worktree_can_be_the_users_checkout() {
    let world = World::lived_in();
    let side = world.file("../s \"i\" dé");
    world.run(["-c", "core.hooksPath=/dev/null", "worktree", "add", "-q", "-b", "side", side.to_str().unwrap()]);
    let link = world.file("../link");
    std::os::unix::fs::symlink(&side, &link).unwrap();
    let repo = world.git.open(&link.join("src")).await.unwrap().unwrap();
    repo.exclude(".worktrees/").await.unwrap();
    let before = world.kept();
    let head = repo.head().await.unwrap().unwrap();
    let at = At::New { branch: "council/9f3c1a2b/A", commit: &head };
    let member = repo.worktree_at(&repo.top().join(".worktrees/9f3c1a2b/A"), at).await.unwrap();
    let tip = commit_in(member.top(), &[("a.txt", "A\n")]);
    commit_in(&side, &[("src/b.txt", "side\n")]);
    let scratch = repo.top().join(".worktrees/9f3c1a2b/landing");
    let request =
        LandRequest { branch: "side", commit: &tip, strategy: Strategy::Auto, message: "m", scratch: &scratch };
    let landing = repo.land_prepare(&request).await.unwrap().unwrap();
    repo.land_publish(&landing).await.unwrap().unwrap();
    assert_eq!((read(side.join("a.txt")), read(side.join("src/b.txt"))), ("A\n".into(), "side\n".into()));
    assert_eq!(run(&side, ["status", "--porcelain"]), "");
    repo.worktree_remove(member.top()).await.unwrap();
    repo.remove_empty(&repo.top().join(".worktrees/9f3c1a2b")).await.unwrap();
    assert!(!side.join(".worktrees").exists());
    // The main checkout and its branch have nothing to do with it.
    let mut after = world.kept();
    for path in ["refs/heads/side", "logs/refs/heads/side"] {
        assert_ne!(after.git.remove(Path::new(path)), None);
    }
    let mut before = before;
    before.git.retain(|path, _| !path.ends_with("heads/side"));
    assert_eq!(after, before);
}
