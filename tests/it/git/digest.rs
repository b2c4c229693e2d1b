//! The digest follows content and nothing else (VF-3, PA-1, VT-8, GT-1).

use std::os::unix::fs::symlink;

use super::*;

async fn digest(world: &World) -> String {
    world.repo().await.digest().await.unwrap()
}

#[tokio::test]
async fn every_content_change_moves_it_and_undoing_moves_it_back() {
    let world = World::new();
    world.write(".gitignore", "ignored\n");
    world.write("big.bin", vec![7_u8; 3 << 20]);
    symlink("a.txt", world.file("link")).unwrap();
    symlink("loop", world.file("loop")).unwrap();
    world.commit("second");
    world.write("untracked", "u");
    for name in odd_names() {
        world.write(&name, "odd");
    }
    let first = digest(&world).await;
    assert!(first.starts_with("sha256:") && first.len() == 71, "{first}");
    assert_eq!(digest(&world).await, first);

    // One byte beyond the first chunk of a file larger than any buffer; then back.
    let mut seen = vec![first.clone()];
    let mut big = vec![7_u8; 3 << 20];
    big[(2 << 20) + 5] = 8;
    world.write("big.bin", &big);
    seen.push(digest(&world).await);
    world.write("big.bin", vec![7_u8; 3 << 20]);
    assert_eq!(digest(&world).await, first, "the same bytes are the same content");

    for name in odd_names() {
        world.write(&name, "changed");
        seen.push(digest(&world).await);
        world.write(&name, "odd");
    }
    chmod(&world.file("untracked"), 0o755);
    seen.push(digest(&world).await);
    chmod(&world.file("untracked"), 0o644);
    chmod(&world.file("a.txt"), 0o755);
    seen.push(digest(&world).await);
    chmod(&world.file("a.txt"), 0o644);
    std::fs::remove_file(world.file("link")).unwrap();
    symlink("src/b.txt", world.file("link")).unwrap();
    seen.push(digest(&world).await);
    // A file with the link's target as its text is not the link.
    std::fs::remove_file(world.file("link")).unwrap();
    world.write("link", "src/b.txt");
    seen.push(digest(&world).await);
    std::fs::remove_file(world.file("link")).unwrap();
    symlink("a.txt", world.file("link")).unwrap();
    assert_eq!(digest(&world).await, first);
    std::fs::rename(world.file("a.txt"), world.file("moved.txt")).unwrap();
    seen.push(digest(&world).await);
    std::fs::rename(world.file("moved.txt"), world.file("a.txt")).unwrap();
    world.run(["commit", "-q", "--allow-empty", "-m", "third"]);
    seen.push(digest(&world).await);
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), count, "two different trees had one digest");
}

#[tokio::test]
async fn touching_staging_and_ignored_files_do_not_move_it() {
    let world = World::new();
    world.write(".gitignore", "target/\n");
    world.commit("second");
    world.write("new", "n");
    let first = digest(&world).await;
    let file = std::fs::File::options().append(true).open(world.file("a.txt")).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    world.write("target/out", "built");
    assert_eq!(digest(&world).await, first);
    world.run(["add", "new"]);
    assert_eq!(digest(&world).await, first);
    world.run(["rm", "-q", "--cached", "a.txt"]);
    assert_eq!(digest(&world).await, first);
}

#[tokio::test]
async fn settings_flags_and_filters_hide_nothing() {
    let world = World::new();
    world.run(["config", "core.autocrlf", "input"]);
    world.run(["config", "core.fileMode", "false"]);
    world.run(["config", "core.trustctime", "false"]);
    world.run(["config", "diff.external", "true"]);
    world.run(["config", "filter.hide.clean", "git show HEAD:%f"]);
    world.run(["update-index", "--assume-unchanged", "a.txt"]);
    world.run(["update-index", "--skip-worktree", "src/b.txt"]);
    std::fs::create_dir_all(world.file(".git/info")).unwrap();
    std::fs::write(world.file(".git/info/attributes"), "* filter=hide -diff\n").unwrap();
    let mut seen = vec![digest(&world).await];
    world.write("a.txt", "one\r\ntwo\r\nthree\r\n");
    seen.push(digest(&world).await);
    world.write("src/b.txt", "c\n");
    seen.push(digest(&world).await);
    chmod(&world.file("a.txt"), 0o755);
    seen.push(digest(&world).await);
    // Out of the index and ignored: git no longer looks, HEAD still holds it.
    world.run(["rm", "-q", "--cached", "a.txt"]);
    std::fs::write(world.file(".git/info/exclude"), "a.txt\n").unwrap();
    assert_eq!(digest(&world).await, seen[3]);
    world.write("a.txt", "other");
    seen.push(digest(&world).await);
    std::fs::remove_file(world.file("src/b.txt")).unwrap();
    seen.push(digest(&world).await);
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), count);
}

#[tokio::test]
async fn nested_repositories_and_submodules_are_looked_into() {
    let inner = World::new();
    let world = World::new();
    world.run(["submodule", "--quiet", "add", inner.path.to_str().unwrap(), "sub"]);
    world.commit("with a submodule");
    run(&world.path, ["init", "-q", "nested"]);
    world.write("nested/f", "1");
    std::fs::write(world.file("nested/.git/info/exclude"), "*\n").unwrap();
    let first = digest(&world).await;
    let mut seen = vec![first.clone()];
    world.write("nested/f", "2");
    seen.push(digest(&world).await);
    world.write("nested/f", "1");
    world.write("sub/a.txt", "dirty");
    seen.push(digest(&world).await);
    run(&world.file("sub"), ["commit", "-q", "-a", "-m", "moved"]);
    seen.push(digest(&world).await);
    run(&world.file("sub"), ["reset", "-q", "--hard", "HEAD~1"]);
    assert_eq!(digest(&world).await, first);
    world.write("sub/untracked", "u");
    seen.push(digest(&world).await);
    std::fs::remove_file(world.file("sub/untracked")).unwrap();
    std::fs::remove_file(world.file("sub/.git")).unwrap();
    seen.push(digest(&world).await);
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), count);
}

#[tokio::test]
async fn nothing_outside_is_read_through_a_link_in_the_way() {
    let world = World::new();
    let outside = World::bare();
    outside.write("b.txt", "secret");
    std::fs::rename(world.file("src"), world.file("../src")).unwrap();
    symlink(&outside.path, world.file("src")).unwrap();
    let first = digest(&world).await;
    outside.write("b.txt", "another");
    assert_eq!(digest(&world).await, first);
}

/// GT-1: looking 20 times a second while someone commits.
#[tokio::test(flavor = "multi_thread")]
async fn polling_does_not_disturb_a_committer() {
    let world = World::new();
    let repo = world.repo().await;
    let path = world.path.clone();
    let committer = std::thread::spawn(move || {
        for n in 0..100 {
            write(&path.join(format!("f{}", n % 7)), format!("{n}"));
            run(&path, ["add", "-A"]);
            run(&path, ["commit", "-q", "-m", "c"]);
        }
    });
    let mut polls = 0;
    while !committer.is_finished() {
        repo.digest().await.unwrap();
        let base = Baseline { base_sha: repo.head().await.unwrap(), in_git: true, ..Baseline::default() };
        repo.changes(&base).await.unwrap();
        polls += 1;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    committer.join().unwrap();
    assert!(polls > 3, "{polls}");
    assert_eq!(world.run(["rev-list", "--count", "HEAD"]), "101");
}
