//! Which directories can carry worktrees of ours, and which answer each other one gets (council scenarios 5 and 6,
//! GT-4, GT-7, GT-8).

use claw_orchestrator::git::{Standing, Unfit};

use super::*;

async fn fit(world: &World, dir: &Path) -> Standing {
    world.git.standing(dir).await.unwrap().unwrap()
}

async fn unfit(world: &World, dir: &Path) -> Unfit {
    match world.git.standing(dir).await.unwrap() {
        Ok(standing) => panic!("fit on {}", standing.branch),
        Err(unfit) => unfit,
    }
}

#[tokio::test]
async fn a_checkout_is_fit_from_everywhere_in_it_and_stays_as_it_is() {
    let world = World::lived_in();
    let before = world.kept();
    let head = world.run(["rev-parse", "HEAD"]);
    let link = world.file("../link");
    std::os::unix::fs::symlink(&world.path, &link).unwrap();
    for (dir, prefix) in [(world.path.clone(), ""), (world.file("src"), "src"), (link, "")] {
        let standing = fit(&world, &dir).await;
        assert_eq!((standing.repo.top(), standing.repo.prefix()), (world.path.as_path(), prefix));
        assert_eq!((standing.branch.as_str(), &standing.head), ("main", &head));
        assert_eq!((standing.dirty.total, standing.submodules.len()), (0, 0));
    }
    assert_eq!(world.kept(), before);

    // A linked worktree of the user's, be it in a folder like ours.
    for place in ["../side \"q\"", ".worktrees/mine"] {
        let branch = format!("side{}", place.len());
        world.run(["worktree", "add", "-q", "-b", &branch, place]);
        let standing = fit(&world, &world.file(place)).await;
        assert_eq!(standing.branch, branch);
        assert_eq!(standing.repo.top(), world.file(place).canonicalize().unwrap());
    }
}

#[tokio::test]
async fn what_is_not_committed_is_counted_and_the_first_twenty_named() {
    let world = World::lived_in();
    world.write("a.txt", "changed");
    for n in 0..25 {
        world.write(format!("new/{n:02}"), "n");
    }
    // The user's own wish not to see them hides nothing here.
    world.run(["config", "status.showUntrackedFiles", "no"]);
    let before = world.kept();
    let dirty = fit(&world, &world.path).await.dirty;
    assert_eq!((dirty.total, dirty.paths.len()), (26, 20));
    assert_eq!((dirty.paths[0].as_str(), dirty.paths[1].as_str()), ("a.txt", "new/00"));
    assert_eq!(world.kept(), before);
    world.run(["stash", "-u"]);
    assert_eq!(fit(&world, &world.path).await.dirty.total, 0);
    // What the user's git does not take for a change is none.
    world.run(["config", "core.fileMode", "false"]);
    chmod(&world.file("a.txt"), 0o755);
    assert_eq!(fit(&world, &world.path).await.dirty.total, 0);
}

#[tokio::test]
async fn submodules_are_named() {
    let world = World::new();
    let other = World::new();
    world.run(["submodule", "--quiet", "add", other.path.to_str().unwrap(), "lib/inner mod"]);
    world.commit("with a submodule");
    assert_eq!(fit(&world, &world.path).await.submodules, ["lib/inner mod"]);
}

#[tokio::test]
async fn places_without_a_checkout() {
    let world = World::bare();
    assert_eq!(unfit(&world, &world.path).await, Unfit::NotARepository);
    world.run(["init", "-q", "--bare", "b.git"]);
    assert_eq!(unfit(&world, &world.file("b.git")).await, Unfit::Bare);
    let world = World::new();
    assert_eq!(unfit(&world, &world.file(".git")).await, Unfit::Bare);
    assert_eq!(unfit(&world, &world.file(".git/refs")).await, Unfit::Bare);
    assert_eq!(unfit(&World::unborn(), &World::unborn().path).await, Unfit::NoCommits);
}

#[tokio::test]
async fn git_itself_can_be_missing_or_too_old() {
    for (version, good) in [("2.30.9", false), ("1.9", false), ("2.31.0", true), ("2.100.1.rc2", true), ("3.0", true)] {
        let mut world = World::new();
        world.wrap(&format!(
            "for a; do [ \"$a\" = version ] && {{ echo git version {version}; exit; }}; done; exec git \"$@\""
        ));
        match world.git.standing(&world.path).await.unwrap() {
            Ok(_) => assert!(good, "{version}"),
            Err(unfit) => assert!(!good && unfit == Unfit::Git { found: Some(version.into()) }, "{version}: {unfit:?}"),
        }
    }
    let mut world = World::new();
    world.git.program = "/no/git here".into();
    assert_eq!(unfit(&world, &world.path).await, Unfit::Git { found: None });
}

/// A repository in which `main` and `other` change the same line.
fn forked() -> World {
    let world = World::new();
    world.run(["checkout", "-q", "-b", "other"]);
    world.write("a.txt", "other\n");
    world.commit("other");
    world.run(["checkout", "-q", "main"]);
    world.write("a.txt", "mine\n");
    world.commit("mine");
    world
}

#[tokio::test]
async fn a_head_that_is_no_branch_and_every_operation_half_done() {
    let world = forked();
    world.run(["checkout", "-q", "--detach"]);
    assert_eq!(unfit(&world, &world.path).await, Unfit::Detached);
    let patch = world.run(["format-patch", "--stdout", "-1", "other"]) + "\n";
    for (operation, args) in [
        ("merge", vec!["merge", "other"]),
        ("rebase", vec!["rebase", "other"]),
        ("cherry-pick", vec!["cherry-pick", "other"]),
        ("revert", vec!["revert", "--no-edit", "HEAD~1"]),
        ("bisect", vec!["bisect", "start", "HEAD", "HEAD~1"]),
        ("am", vec!["am", "--3way", "the.patch"]),
    ] {
        let world = forked();
        world.write("more", "m");
        world.commit("more");
        if operation == "revert" {
            world.write("a.txt", "later\n");
            world.commit("later");
            run(&world.path, ["tag", "later"]);
        }
        write(&world.file("../the.patch"), &patch);
        let args = args.into_iter().map(|arg| if arg == "the.patch" { "../the.patch" } else { arg });
        let args = args.map(|arg| if operation == "revert" && arg == "HEAD~1" { "HEAD~2" } else { arg });
        let args: Vec<&str> = args.collect();
        assert_eq!(may_stop(&world.path, &args), operation == "bisect", "{operation}");
        assert_eq!(world.repo().await.operation().await.unwrap(), Some(operation));
        assert_eq!(unfit(&world, &world.path).await, Unfit::Busy(operation));
        // Told once more after the conflict is staged.
        run(&world.path, ["add", "-A"]);
        assert_eq!(world.repo().await.operation().await.unwrap(), Some(operation));
    }
}

#[tokio::test]
async fn a_worktree_of_ours_names_where_it_was_made() {
    let world = World::lived_in();
    let member = world.member("A").await;
    let inside = |main: &Path| Unfit::Inside { short_id: ID.into(), main: main.into() };
    assert_eq!(unfit(&world, member.top()).await, inside(&world.path));
    assert_eq!(unfit(&world, &member.top().join("src")).await, inside(&world.path));
    // Left without a branch, or without its link, by an agent.
    run(member.top(), ["-c", "core.hooksPath=/dev/null", "checkout", "-q", "--detach"]);
    assert_eq!(unfit(&world, member.top()).await, inside(&world.path));
    std::fs::remove_file(member.top().join(".git")).unwrap();
    assert_eq!(unfit(&world, member.top()).await, inside(&world.path));
    // The main checkout is still fine.
    world.repo().await.exclude(".worktrees/").await.unwrap();
    assert_eq!(fit(&world, &world.path).await.dirty.total, 0);

    // Made from a linked worktree of the user's.
    let side = world.file("../side");
    world.run(["worktree", "add", "-q", "-b", "side", side.to_str().unwrap()]);
    let side = side.canonicalize().unwrap();
    let repo = world.git.open(&side).await.unwrap().unwrap();
    let head = repo.head().await.unwrap().unwrap();
    for kind in ["fanout", "agent"] {
        let at = At::New { branch: &format!("{kind}/{kind}1/x"), commit: &head };
        let path = side.join(format!(".worktrees/{kind}1/x"));
        repo.worktree_at(&path, at).await.unwrap();
        let want = Unfit::Inside { short_id: format!("{kind}1"), main: side.clone() };
        assert_eq!(unfit(&world, &path).await, want);
    }
}
