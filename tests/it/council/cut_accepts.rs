//! An acceptance that is killed at any of its git steps and called again ends as if nothing had happened.

use std::{path::Path, process::Command};

use serde_json::{Value, json};

use super::{Ended, always, commit, member, round, spec, then, vote, worker};
use crate::support::{World, clawo, git};

/// Subcommands that change something.
const CHANGES: &str =
    "update-ref|worktree|read-tree|commit-tree|merge|merge-tree|write-tree|update-index|symbolic-ref|branch";

/// A git that kills who called it at the call that is its turn, before or after it did what it was asked.
fn killer(dir: &Path, real: &str) {
    std::fs::create_dir_all(dir).unwrap();
    let script = format!(
        "#!/bin/bash\n\
         word=''\n\
         skip=0\n\
         for arg in \"$@\"; do\n\
           if [ $skip = 1 ]; then skip=0; continue; fi\n\
           case \"$arg\" in -c) skip=1;; -*) ;; *) word=\"$arg\"; break;; esac\n\
         done\n\
         case \"$word\" in {CHANGES}) ;; *) exec {real} \"$@\";; esac\n\
         count=$(( $(cat '{0}/count') + 1 ))\n\
         echo $count > '{0}/count'\n\
         if [ $count = \"$KILL_AT\" ] && [ \"$KILL_WHEN\" = before ]; then kill -9 $PPID; exit 1; fi\n\
         {real} \"$@\"\n\
         status=$?\n\
         if [ $count = \"$KILL_AT\" ]; then kill -9 $PPID; fi\n\
         exit $status\n",
        dir.display()
    );
    std::fs::write(dir.join("git"), script).unwrap();
    std::fs::set_permissions(dir.join("git"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
}

fn accept(world: &World, id: &str, tools: Option<(&Path, usize, &str)>) -> std::process::Output {
    let mut command = Command::new(clawo());
    command.args(["council", "accept", id, "--json", "--home"]).arg(world.home());
    if let Some((dir, at, when)) = tools {
        std::fs::write(dir.join("count"), "0").unwrap();
        let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("KILL_AT", at.to_string()).env("KILL_WHEN", when);
    }
    command.output().unwrap()
}

/// What the repository is like afterwards, without what a clock changes.
fn outcome(world: &World) -> String {
    let dir = world.project();
    let tree = git(&dir, &["rev-parse", "main^{tree}"]);
    let refs = git(&dir, &["for-each-ref", "--format=%(refname)"]);
    let log = git(&dir, &["log", "--format=%s by %an", "main"]);
    // Commits of one second have no order of their own.
    let mut subjects: Vec<&str> = log.lines().collect();
    subjects.sort_unstable();
    let trees = git(&dir, &["worktree", "list"]).lines().count();
    let status = git(&dir, &["status", "--porcelain"]);
    format!("{tree}{refs}{subjects:?}{trees} {status}{}", dir.join(".worktrees").exists())
}

fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
}

/// Council scenario 18, the part of accept, with a merge commit and with a fast-forward.
#[tokio::test(flavor = "multi_thread")]
async fn an_acceptance_survives_kills_at_every_git_step() {
    let real = String::from_utf8(Command::new("sh").args(["-c", "command -v git"]).output().unwrap().stdout).unwrap();
    for moved in [true, false] {
        let world = World::new();
        let mut work = commit("a.txt", "by A\n");
        work.extend(commit("reviews/A-on-B.md", "[APPROVE]\n"));
        let a = member(
            &world,
            "A",
            vec![round(1, vec![vote(false)]), round(2, then(work, vote(true))), always(vec![vote(true)])],
        );
        let ended = Ended::of(&world, spec(vec![a, worker(&world, "B")], json!({}))).await;
        let id = ended.view.run_id.to_string();
        if moved {
            world.write("user.txt", "mine\n");
            git(&world.project(), &["add", "-A"]);
            git(&world.project(), &["commit", "-q", "-m", "mine"]);
        }
        let tools = world.root().join("tools");
        killer(&tools, real.trim());
        let kept = world.root().join("kept");
        std::fs::create_dir(&kept).unwrap();
        copy(&world.project(), &kept.join("project"));
        copy(&world.home(), &kept.join("home"));
        let back = || {
            copy(&kept.join("project"), &world.project());
            copy(&kept.join("home"), &world.home());
        };
        // Undisturbed, which also counts the steps.
        let done = accept(&world, &id, Some((&tools, 0, "before")));
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
        let steps: usize = std::fs::read_to_string(tools.join("count")).unwrap().trim().parse().unwrap();
        let wanted = outcome(&world);
        assert!(steps >= 8 && wanted.contains("refs/heads/main"), "{steps} {wanted}");
        for at in 1..=steps {
            for when in if moved { &["before", "after"][..] } else { &["after"] } {
                back();
                let cut = accept(&world, &id, Some((&tools, at, *when)));
                assert!(!cut.status.success(), "step {at} of {steps} {when}");
                let again = accept(&world, &id, None);
                let said = String::from_utf8_lossy(&again.stdout).into_owned();
                assert!(again.status.success(), "step {at} {when}: {said}");
                assert_eq!(outcome(&world), wanted, "step {at} {when}");
                let view: Value = serde_json::from_str(&said).unwrap();
                let listed = |key: &str| view[key].as_array().unwrap().len();
                assert_eq!(
                    (listed("branchesDeleted"), listed("worktreesRemoved"), listed("cleanupErrors")),
                    (3, 3, 0),
                    "step {at} {when}: {said}"
                );
            }
        }
    }
}
