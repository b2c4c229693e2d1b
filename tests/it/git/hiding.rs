//! Ways to hide a change from a change set, each of which fails (VT-8).

use super::*;

async fn changed(world: &World, base: &Baseline) -> Vec<String> {
    short(&world.repo().await.changes(base).await.unwrap())
}

#[tokio::test]
async fn index_flags_and_settings() {
    let world = World::new();
    world.write("c", "c\n");
    world.write("d", "d\n");
    world.write("e", "1\n2\n");
    world.commit("second");
    let base = world.baseline().await;
    world.run(["update-index", "--assume-unchanged", "a.txt"]);
    world.run(["update-index", "--skip-worktree", "src/b.txt", "c"]);
    world.run(["config", "core.fileMode", "false"]);
    world.run(["config", "core.fsmonitor", "true"]);
    world.run(["config", "core.ignoreStat", "true"]);
    world.run(["config", "diff.ignoreSubmodules", "all"]);
    world.write("a.txt", "hidden\n");
    world.write("src/b.txt", "hidden\n");
    std::fs::remove_file(world.file("c")).unwrap();
    chmod(&world.file("d"), 0o755);
    // Attributes that call everything binary do not make lines disappear.
    world.write(".gitattributes", "* binary\n");
    world.write("e", "3\n4\n");
    let before = users(&world.file(".git"));
    let set = world.repo().await.changes(&base).await.unwrap();
    assert_eq!(short(&set), ["A .gitattributes", "M a.txt", "D c", "M d", "M e", "M src/b.txt"]);
    assert_eq!(set.lines, 1 + 4 + 1 + 4 + 2);
    assert_eq!(users(&world.file(".git")), before, "the flags are still the user's");
}

#[tokio::test]
async fn a_replaced_base_commit() {
    let world = World::new();
    let base = Baseline { base_sha: Some(world.run(["rev-parse", "HEAD"])), in_git: true, ..Baseline::default() };
    world.write("a.txt", "changed\n");
    let head = world.commit("second");
    world.run(["replace", base.base_sha.as_deref().unwrap(), &head]);
    assert_eq!(changed(&world, &base).await, ["M a.txt"]);
}

#[tokio::test]
async fn new_ignore_rules_and_nested_repositories() {
    let world = World::new();
    world.write(".gitignore", "target/\n*.log\n");
    world.write("src/.gitignore", "gen/\n");
    world.commit("second");
    world.write("notes", "user's, untracked\n");
    let base = world.baseline().await;
    // What the rules of the start ignore stays out.
    world.write("target/debug/out", "o");
    world.write("src/gen/x", "x");
    world.write("x.log", "x");
    assert_eq!(changed(&world, &base).await, [""; 0]);

    world.write("secret/é.txt", "hidden\n");
    std::fs::write(world.file(".git/info/exclude"), "secret/\nnotes\n").unwrap();
    assert_eq!(changed(&world, &base).await, ["A secret/é.txt"]);
    world.write("src/.gitignore", "gen/\nmore\n");
    world.write("src/more", "hidden\n");
    assert_eq!(changed(&world, &base).await, ["A secret/é.txt", "M src/.gitignore", "A src/more"]);
    let without = Baseline { snapshot: None, ..base.clone() };
    assert_eq!(changed(&world, &without).await, ["M src/.gitignore", "A src/more"]);
    let patch = String::from_utf8(world.repo().await.patch(&base).await.unwrap()).unwrap();
    assert!(patch.contains("b/src/more") && !patch.contains("target"), "{patch}");

    run(&world.path, ["init", "-q", "nested"]);
    world.write("nested/tracked", "t\n");
    run(&world.file("nested"), ["add", "-A"]);
    run(&world.file("nested"), ["commit", "-q", "-m", "n"]);
    world.write("nested/other", "o\n");
    std::fs::write(world.file("nested/.git/info/exclude"), "*\n").unwrap();
    let seen = changed(&world, &base).await;
    assert_eq!(seen[..2], ["A nested/other", "A nested/tracked"]);
}
