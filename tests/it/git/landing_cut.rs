//! Landings that were cut off are completed or found not to have happened, and nobody's content is touched
//! (council scenario 18).

use super::{landing::prepare, *};
use claw_orchestrator::git::{LandRefusal, Landing, Strategy};

/// A landing that changes, adds (one ignored), removes, and makes executable.
async fn ready() -> (World, Landing) {
    let world = World::lived_in();
    world.repo().await.exclude(".worktrees/").await.unwrap();
    let a = world.member("A").await;
    std::fs::remove_file(a.top().join("src/b.txt")).unwrap();
    chmod(&a.top().join("text.txt"), 0o755);
    let tip = commit_in(a.top(), &[("a.txt", "new\n"), ("dist/x", "ignored\n"), ("new dir/\"n\"", "n\n")]);
    let landing = prepare(&world, &tip, Strategy::Auto).await.unwrap();
    (world, landing)
}

/// The steps of a checkout of ours, by hand.
const STEPS: [fn(&World); 5] = [
    |world| world.write("a.txt", "new\n"),
    |world| world.write("dist/x", "ignored\n"),
    |world| world.write("new dir/\"n\"", "n\n"),
    |world| std::fs::remove_file(world.file("src/b.txt")).unwrap(),
    |world| chmod(&world.file("text.txt"), 0o755),
];

async fn landed(world: &World, landing: &Landing) {
    assert_eq!(world.run(["rev-parse", "main"]), landing.after);
    assert_eq!(world.run(["status", "--porcelain"]), "");
    assert_eq!(world.run(["diff", "HEAD", "--name-only"]), "");
    assert_eq!(read(world.file("run.log")), "ignored\n");
    let kept = world.kept();
    assert!(world.repo().await.land_finish(landing).await.unwrap());
    assert_eq!(world.kept(), kept);
}

#[tokio::test]
async fn a_checkout_cut_off_at_any_file_is_completed() {
    for steps in 1..=STEPS.len() {
        let (world, landing) = ready().await;
        STEPS.iter().take(steps).for_each(|step| step(&world));
        assert!(world.repo().await.land_finish(&landing).await.unwrap());
        landed(&world, &landing).await;
    }
}

#[tokio::test]
async fn a_crash_between_files_and_ref_is_completed() {
    let (world, landing) = ready().await;
    world.run(["read-tree", "-m", "-u", &landing.before, &landing.after]);
    assert_ne!(world.run(["status", "--porcelain"]), "");
    // Another publish sees a tree that is not clean, and says so.
    let refused = world.repo().await.land_publish(&landing).await.unwrap();
    assert!(matches!(refused, Err(LandRefusal::Dirty(_))), "{refused:?}");
    assert!(world.repo().await.land_finish(&landing).await.unwrap());
    landed(&world, &landing).await;
}

#[tokio::test]
async fn an_index_that_was_lost_after_the_ref_is_written_again() {
    let (world, landing) = ready().await;
    let index = std::fs::read(world.file(".git/index")).unwrap();
    world.repo().await.land_publish(&landing).await.unwrap().unwrap();
    std::fs::write(world.file(".git/index"), index).unwrap();
    assert!(world.repo().await.land_finish(&landing).await.unwrap());
    landed(&world, &landing).await;
}

#[tokio::test]
async fn nothing_begun_is_not_landed() {
    let (world, landing) = ready().await;
    let before = world.kept();
    assert!(!world.repo().await.land_finish(&landing).await.unwrap());
    assert_eq!(world.kept(), before);
    // Nor with edits of the user's, or a branch that went elsewhere.
    world.write("a.txt", "the user's");
    world.write("loose", "the user's");
    let before = world.kept();
    assert!(!world.repo().await.land_finish(&landing).await.unwrap());
    assert_eq!(world.kept(), before);
    commit_in(&world.path, &[]);
    let before = world.kept();
    assert!(!world.repo().await.land_finish(&landing).await.unwrap());
    assert_eq!(world.kept(), before);
}

#[tokio::test]
async fn a_file_that_is_neither_is_named_and_not_touched() {
    let (world, landing) = ready().await;
    STEPS[1](&world);
    world.write("a.txt", "the user's");
    let before = world.kept();
    let refused = world.repo().await.land_finish(&landing).await.unwrap_err().to_string();
    assert!(refused.contains("a.txt") && !refused.contains("dist/x"), "{refused}");
    assert_eq!(world.kept(), before);
    run(&world.path, ["checkout", "-q", &landing.before, "--", "a.txt"]);
    assert!(world.repo().await.land_finish(&landing).await.unwrap());
    landed(&world, &landing).await;
}

#[tokio::test]
async fn after_the_branch_has_moved_the_tree_is_the_users() {
    let (world, landing) = ready().await;
    world.repo().await.land_publish(&landing).await.unwrap().unwrap();
    // Also back to what it was before.
    world.write("a.txt", "one\ntwo\nthree\n");
    world.write("new dir/\"n\"", "edited");
    let before = world.kept();
    assert!(world.repo().await.land_finish(&landing).await.unwrap());
    assert_eq!(world.kept(), before);
    commit_in(&world.path, &[]);
    let before = world.kept();
    assert!(world.repo().await.land_finish(&landing).await.unwrap());
    assert_eq!(world.kept(), before);
}

#[tokio::test]
async fn unrelated_edits_do_not_keep_a_checkout_from_being_completed() {
    let (world, landing) = ready().await;
    STEPS[0](&world);
    world.write("loose", "the user's");
    world.write(".gitignore", "*.log\ndist/\nmore\n");
    assert!(world.repo().await.land_finish(&landing).await.unwrap());
    assert_eq!(world.run(["rev-parse", "main"]), landing.after);
    assert_eq!(world.run(["status", "--porcelain"]), " M .gitignore\n?? loose");
}

#[tokio::test]
async fn files_that_could_not_be_written_go_back() {
    let (mut world, landing) = ready().await;
    let before = tree(&world.path);
    // As if the disk had been full after the first files.
    let top = world.path.display().to_string();
    world.wrap(&format!(
        "for a; do [ \"$a\" = read-tree ] && [ -z \"$GIT_INDEX_FILE\" ] && {{ echo new > '{top}/a.txt'; mkdir -p '{top}/dist'; echo ignored > '{top}/dist/x'; rm '{top}/src/b.txt'; echo no space >&2; exit 128; }}; done; exec git \"$@\""
    ));
    let failed = world.repo().await.land_publish(&landing).await.unwrap_err().to_string();
    assert!(failed.contains("no space"), "{failed}");
    assert_eq!(tree(&world.path), before);
    assert_eq!(
        (world.run(["status", "--porcelain"]), world.run(["rev-parse", "main"])),
        (String::new(), landing.before)
    );
}

#[tokio::test]
async fn each_step_of_ours_can_be_the_last() {
    // Cut off before or after every call of git in turn: what is left is completed, or nothing was moved.
    for cut in 2.. {
        let (mut world, landing) = ready().await;
        let count = world.file("../count");
        let script = "[ -e '{}' ] || exec git \"$@\"; n=$(cat '{}'); n=$((n+1)); echo $n > '{}'; \
                      [ $n -lt CUT ] && exec git \"$@\"; [ $n -eq CUT ] && [ ODD = 1 ] && git \"$@\" >/dev/null 2>&1; exit 137";
        let script = script.replace("CUT", &(cut / 2).to_string()).replace("ODD", &(cut % 2).to_string());
        world.wrap(&script.replace("{}", &count.display().to_string()));
        let repo = world.repo().await;
        write(&count, "0");
        let ended = repo.land_publish(&landing).await;
        let calls: usize = read(&count).trim().parse().unwrap();
        world.git.program = "git".into();
        let repo = world.repo().await;
        if !repo.land_finish(&landing).await.unwrap() {
            assert_eq!(
                (world.run(["status", "--porcelain"]), world.run(["rev-parse", "main"])),
                (String::new(), landing.before.clone())
            );
            repo.land_publish(&landing).await.unwrap().unwrap();
        }
        landed(&world, &landing).await;
        if calls < cut / 2 {
            assert!(ended.unwrap().is_ok());
            break;
        }
    }
}
