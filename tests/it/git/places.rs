//! Worktrees made where they are wanted, known again by more than their name, and forgotten without touching
//! those of the user (WT-3, WT-5, WT-6, council scenarios 4 and 22).

use super::*;

#[tokio::test]
async fn new_known_and_no_branch() {
    let world = World::lived_in();
    let before = world.kept();
    let (old, head) = (world.run(["rev-parse", "HEAD~1"]), world.run(["rev-parse", "HEAD"]));
    let repo = world.repo().await;
    let branch = format!("council/{ID}/A");
    let path = world.file(format!(".worktrees/{ID}/A"));
    let made = repo.worktree_at(&path, At::New { branch: &branch, commit: &old }).await.unwrap();
    assert_eq!((made.top(), made.head().await.unwrap()), (path.as_path(), Some(old.clone())));
    assert_eq!(made.current_branch().await.unwrap().as_deref(), Some(branch.as_str()));
    assert_eq!(run(&path, ["status", "--porcelain"]), "");

    // Recreated after somebody took the folder away.
    std::fs::remove_dir_all(world.file(".worktrees")).unwrap();
    let made = repo.worktree_at(&path, At::Branch(&branch)).await.unwrap();
    assert_eq!(made.head().await.unwrap(), Some(old));
    let again = repo.worktree_at(&world.file("../again"), At::Branch(&branch)).await.unwrap_err().to_string();
    assert!(again.contains("already"), "{again}");
    let none = repo.worktree_at(&world.file("../none"), At::Branch("council/none")).await.unwrap_err().to_string();
    assert!(none.contains("there is no branch"), "{none}");

    let loose = repo.worktree_at(&world.file("../lo\"o se"), At::Detached(&head)).await.unwrap();
    assert_eq!((loose.head().await.unwrap(), loose.current_branch().await.unwrap()), (Some(head), None));
    assert_eq!(world.kept(), before);
    assert!(!world.file(".git/hooked").exists());
    world.run(["fsck", "--strict"]);
}

#[tokio::test]
async fn a_worktree_that_cannot_be_made_leaves_nothing() {
    let mut world = World::lived_in();
    let head = world.run(["rev-parse", "HEAD"]);
    let path = world.file(format!(".worktrees/{ID}/A"));
    let branch = format!("council/{ID}/A");
    // The user has a branch where ours need a folder.
    world.run(["-c", "core.hooksPath=/dev/null", "branch", "council"]);
    let before = world.kept();
    let at = At::New { branch: &branch, commit: &head };
    let refused = world.repo().await.worktree_at(&path, at).await.unwrap_err().to_string();
    assert!(refused.contains("council"), "{refused}");
    assert_eq!(world.kept(), before);
    assert!(!world.file(".worktrees").exists());
    world.run(["-c", "core.hooksPath=/dev/null", "branch", "-D", "council"]);

    let before = world.kept();
    world.wrap("for a; do [ \"$a\" = add ] && { echo no room >&2; exit 128; }; done; exec git \"$@\"");
    let refused = world.repo().await.worktree_at(&path, at).await.unwrap_err().to_string();
    assert!(refused.contains("no room"), "{refused}");
    assert_eq!(world.kept(), before);
    assert_eq!(world.repo().await.branch_tip(&branch).await.unwrap(), None);
}

#[tokio::test]
async fn a_git_without_nul_separated_lists_will_do() {
    let mut world = World::new();
    world.wrap("case \"$*\" in *'worktree list'*-z*) exit 129;; esac; exec git \"$@\"");
    let member = world.member("A").await;
    assert_eq!(world.repo().await.checked_out(&format!("council/{ID}/A")).await.unwrap().unwrap().top(), member.top());
    world.repo().await.worktree_remove(member.top()).await.unwrap();
    assert!(!member.top().exists());
}

#[tokio::test]
async fn only_a_linked_worktree_of_this_repository_opens() {
    let world = World::new();
    let other = World::new();
    let member = world.member("A").await;
    let repo = world.repo().await;
    let opened = repo.worktree_open(member.top()).await.unwrap().unwrap();
    assert_eq!(opened.top(), member.top());
    let folder = world.file(format!(".worktrees/{ID}"));
    std::fs::create_dir(folder.join("plain")).unwrap();
    std::fs::write(folder.join("file"), "f").unwrap();
    std::os::unix::fs::symlink(&world.path, folder.join("link")).unwrap();
    std::os::unix::fs::symlink(member.top(), folder.join("alias")).unwrap();
    let foreign = other.member("F").await;
    run(&folder, ["clone", "-q", world.path.to_str().unwrap(), "clone"]);
    run(&folder, ["init", "-q", "nested"]);
    // A copy leads to the registration of the one it was copied from.
    std::fs::create_dir(folder.join("copy")).unwrap();
    std::fs::copy(member.top().join(".git"), folder.join("copy/.git")).unwrap();
    write(&folder.join("dangling/.git"), format!("gitdir: {}\n", world.file(".git/worktrees/none").display()));
    for name in ["plain", "file", "link", "alias", "clone", "nested", "copy", "dangling", "missing", "A/src"] {
        assert!(repo.worktree_open(&folder.join(name)).await.unwrap().is_none(), "{name}");
    }
    assert!(repo.worktree_open(&world.path).await.unwrap().is_none());
    assert!(repo.worktree_open(foreign.top()).await.unwrap().is_none());
    std::fs::remove_file(member.top().join(".git")).unwrap();
    assert!(repo.worktree_open(member.top()).await.unwrap().is_none());
}

#[tokio::test]
async fn worktrees_of_the_user_are_never_forgotten() {
    let world = World::new();
    let (a, b) = (world.member("A").await, world.member("B").await);
    let notes = world.file("../council-notes");
    world.run(["worktree", "add", "-q", "-b", "council/mine", notes.to_str().unwrap()]);
    // A disk that is not there today, and a worktree that was deleted by hand.
    std::fs::rename(&notes, world.file("../elsewhere")).unwrap();
    std::fs::remove_dir_all(a.top()).unwrap();
    let repo = world.repo().await;
    repo.worktree_prune().await.unwrap();
    let listed = world.run(["worktree", "list", "--porcelain"]);
    assert!(listed.contains("council-notes") && !listed.contains("/A\n") && listed.contains("/B\n"), "{listed}");
    std::fs::rename(world.file("../elsewhere"), &notes).unwrap();
    assert_eq!(run(&notes, ["branch", "--show-current"]), "council/mine");

    repo.remove_empty(&world.file(format!(".worktrees/{ID}"))).await.unwrap();
    assert!(b.top().exists());
    repo.worktree_remove(b.top()).await.unwrap();
    write(&world.file(".worktrees/other"), "the user's");
    repo.remove_empty(&world.file(format!(".worktrees/{ID}"))).await.unwrap();
    assert!(!world.file(format!(".worktrees/{ID}")).exists() && world.file(".worktrees/other").exists());
    std::fs::remove_file(world.file(".worktrees/other")).unwrap();
    repo.remove_empty(&world.file(format!(".worktrees/{ID}"))).await.unwrap();
    repo.remove_empty(&world.file(".worktrees")).await.unwrap();
    assert!(!world.file(".worktrees").exists());
    repo.remove_empty(&world.file("src")).await.unwrap();
    assert!(world.file("src/b.txt").exists());
}

#[tokio::test]
async fn the_ignore_line_is_added_once() {
    let world = World::new();
    let side = world.file("../side");
    world.run(["worktree", "add", "-q", "-b", "side", side.to_str().unwrap()]);
    let exclude = world.file(".git/info/exclude");
    for (rules, want) in [
        (Some("# mine\nx"), "# mine\nx\n.worktrees/\n"),
        (Some(""), ".worktrees/\n"),
        (Some("a\n.worktrees/\nb\n"), "a\n.worktrees/\nb\n"),
        (Some(".worktrees/\r\n"), ".worktrees/\r\n"),
        (None, ".worktrees/\n"),
    ] {
        match rules {
            Some(rules) => std::fs::write(&exclude, rules).unwrap(),
            None => std::fs::remove_dir_all(world.file(".git/info")).unwrap(),
        }
        for dir in [&world.path, &side, &world.path] {
            world.git.open(dir).await.unwrap().unwrap().exclude(".worktrees/").await.unwrap();
        }
        assert_eq!(read(&exclude), want);
    }
}
