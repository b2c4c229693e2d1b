//! Slots over real processes of one home: the cap holds, and what a killed process held is free at once.

use std::{
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::support::{Bench, until};

/// A process that executes a fan-out of `members` agents, two of which may live at once in its home.
fn process(bench: &Bench, id: &str, members: usize, model: &str) -> Child {
    let home = bench.path("home");
    std::fs::set_permissions(&home, std::fs::Permissions::from_mode(0o700)).unwrap();
    let agents: Vec<Value> =
        (0..members).map(|n| json!({ "name": format!("m{n}"), "engine": "scripted", "model": model })).collect();
    let fan = json!({ "id": "f", "kind": "fanout", "prompt": "x", "agents": agents, "synthesize": false });
    let spec = bench.path(&format!("{id}.spec.json"));
    std::fs::write(&spec, json!({ "name": id, "nodes": [fan] }).to_string()).unwrap();
    Command::new(env!("CARGO_BIN_EXE_clawo"))
        .args(["workflow", "start", spec.to_str().unwrap(), "--run-id", id, "--wait"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", bench.path("user"))
        .env("CLAWO_HOME", home)
        .env("CLAWO_MAX_SESSIONS", "2")
        .current_dir(bench.repo())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// A scenario whose agent notes when it begins and ends work.
fn noted(bench: &Bench, name: &str, ms: u64) -> String {
    let note = |sign: &str| json!({ "run": ["sh", "-c", format!("echo {sign} >> noted")] });
    bench.always(name, json!([note("+"), { "sleep": ms }, note("-"), { "say": "ok" }]))
}

fn notes(bench: &Bench) -> String {
    std::fs::read_to_string(bench.repo().join("noted")).unwrap_or_default().replace('\n', "")
}

/// CC-1: eight agents of two processes at a cap of two.
#[tokio::test]
async fn two_processes_share_the_cap() {
    let bench = Bench::new();
    let model = noted(&bench, "busy", 150);
    let mut both = [process(&bench, "one", 4, &model), process(&bench, "two", 4, &model)];
    for child in &mut both {
        assert!(child.wait().unwrap().success());
    }
    let notes = notes(&bench);
    let (mut now, mut most) = (0, 0);
    for sign in notes.chars() {
        now += if sign == '+' { 1 } else { -1 };
        most = most.max(now);
    }
    assert_eq!((notes.len(), now, most), (16, 0, 2), "{notes}");
}

/// CC-1: the slots of a process that was killed are there for another one, which was waiting.
#[tokio::test]
async fn a_killed_process_gives_its_slots_back() {
    let bench = Bench::new();
    let mut first = process(&bench, "first", 2, &noted(&bench, "long", 120_000));
    until("both slots are in use", || notes(&bench) == "++").await;
    let mut second = process(&bench, "second", 1, &noted(&bench, "short", 10));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(notes(&bench), "++", "it waits");
    assert!(second.try_wait().unwrap().is_none());
    let killed = Instant::now();
    first.kill().unwrap();
    first.wait().unwrap();
    until("the other one works", || notes(&bench) == "+++-").await;
    assert!(killed.elapsed() < Duration::from_secs(10));
    assert!(second.wait().unwrap().success());
}
