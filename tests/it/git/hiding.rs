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
    let patch = String::from_utf8(world.repo().await.patch(&base).await.unwrap().bytes).unwrap();
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

/// Files where a submodule was never fetched belong to no listing of git's.
#[tokio::test]
async fn files_in_the_place_of_a_submodule() {
    let inner = World::new();
    let world = World::new();
    world.run(["submodule", "--quiet", "add", inner.path.to_str().unwrap(), "sub"]);
    let sha = world.commit("with a submodule");
    world.run(["submodule", "--quiet", "deinit", "-f", "sub"]);
    let base = world.baseline().await;
    let without = Baseline { base_sha: Some(sha), in_git: true, ..Baseline::default() };
    assert_eq!(changed(&world, &base).await, [""; 0]);
    assert_eq!(changed(&world, &without).await, [""; 0]);
    let before = world.repo().await.digest().await.unwrap();
    world.write("sub/deep/hidden", "h");
    assert_eq!(changed(&world, &base).await, ["M sub"]);
    assert_eq!(changed(&world, &without).await, ["M sub"]);
    assert_ne!(world.repo().await.digest().await.unwrap(), before);
}

/// VF-4: git leaves an unreadable directory out and succeeds; that is no basis for a judgement. Work is
/// stored all the same.
#[tokio::test]
async fn a_directory_git_could_not_read() {
    let mut world = World::new();
    let base = world.baseline().await;
    let warning = "warning: could not open directory 'x/': Permission denied";
    world.wrap(&format!("git \"$@\"; s=$?; case \"$*\" in *ls-files*) echo \"{warning}\" >&2;; esac; exit $s"));
    let repo = world.repo().await;
    for error in [repo.digest().await.unwrap_err(), repo.changes(&base).await.unwrap_err()] {
        assert!(error.to_string().contains("could not open directory 'x/'"), "{error}");
    }
    repo.snapshot("refs/clawo/runs/r1/end", "m").await.unwrap();
}
