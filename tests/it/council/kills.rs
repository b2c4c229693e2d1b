//! Council scenario 18 with real processes: killed at a step of git, whichever it is.

use std::{
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    sync::Arc,
};

use claw_orchestrator::kernel::ListQuery;
use serde_json::Value;

use super::{
    Ended,
    resume::{essence, meeting, resumed},
};
use crate::support::{World, clawo, happens, processes};

/// Deaths of one council, spread over all steps of git that its life has.
const DEATHS: u64 = 16;

/// Puts a git first on the path that kills the process named in `pid` at the call named in `at`, and then goes on.
fn deadly_git(world: &World, at: u64) -> String {
    let dir = world.root().join("deadly");
    std::fs::create_dir(&dir).unwrap();
    std::fs::write(dir.join("at"), at.to_string()).unwrap();
    let real = String::from_utf8(Command::new("sh").args(["-c", "command -v git"]).output().unwrap().stdout).unwrap();
    let script = format!(
        "#!/bin/sh\ncd_dir='{}'\nif test -f \"$cd_dir/pid\"; then\n  n=$( {{ flock 9; n=$(cat \"$cd_dir/count\" 2>/dev/null || \
         echo 0); n=$((n+1)); echo $n > \"$cd_dir/count\"; echo $n; }} 9>>\"$cd_dir/lock\" )\n  if test \"$n\" = \"$(cat \
         \"$cd_dir/at\")\"; then kill -9 \"$(cat \"$cd_dir/pid\")\"; fi\nfi\nexec '{}' \"$@\"\n",
        dir.display(),
        real.trim(),
    );
    std::fs::write(dir.join("git"), script).unwrap();
    std::fs::set_permissions(dir.join("git"), std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", dir.display(), std::env::var("PATH").unwrap())
}

/// One council whose process is killed at a step and that another one ends. Gives its end, and the steps it took.
async fn life(at: u64) -> Option<(Value, u64)> {
    let world = World::new();
    let path = deadly_git(&world, at);
    let spec = world.root().join("spec.json");
    std::fs::write(&spec, meeting(&world).to_string()).unwrap();
    std::fs::create_dir_all(world.home()).unwrap();
    std::fs::write(world.home().join("config.toml"), "[council]\ninter_round_delay_ms = 0\n").unwrap();
    let mut child = Command::new(clawo())
        .args(["workflow", "start", "--wait", "--cwd"])
        .args([world.project(), spec])
        .env("CLAWO_HOME", world.home())
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::fs::write(world.root().join("deadly/pid"), child.id().to_string()).unwrap();
    let status = tokio::task::spawn_blocking(move || child.wait().unwrap()).await.unwrap();
    let steps = std::fs::read_to_string(world.root().join("deadly/count")).unwrap().trim().parse().unwrap();
    let root = world.root().to_string_lossy().into_owned();
    happens("what the killed process ran is gone", || processes(&root).is_empty()).await;
    let kernel = world.kernel().await;
    let run = kernel.list(ListQuery::default()).await.unwrap().runs.first().map(|run| run.run_id.to_string())?;
    let ended = match status.code() {
        Some(_) => Ended::after(&kernel, &run).await,
        None => resumed(&world, &run).await,
    };
    Some((essence(&world, &ended), steps))
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_at_steps_of_git_lead_to_the_same_end() {
    let (calm, steps) = life(u64::MAX).await.unwrap();
    assert_eq!(calm["status"], "max_rounds", "{calm:#}");
    let turns = Arc::new(tokio::sync::Semaphore::new(4));
    let deaths: Vec<_> = (1..=DEATHS)
        .map(|n| {
            let (at, turns) = (steps * n / (DEATHS + 1), turns.clone());
            tokio::spawn(async move {
                let _turn = turns.acquire().await.unwrap();
                (at, life(at).await)
            })
        })
        .collect();
    for death in deaths {
        let (at, life) = death.await.unwrap();
        // Before the run is on disk there is nothing to go on with.
        if let Some((end, _)) = life {
            assert_eq!(end, calm, "killed at step {at} of {steps}");
        }
    }
}
