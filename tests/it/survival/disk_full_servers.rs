//! A small file system that fills up under a running server, and gets space again.

use std::{
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    disk_full::{Ballast, on_small_disk, small_disk},
    say,
};
use crate::{
    server::host::{Host, PATIENCE, run, show, within},
    support::{World, agent},
};

/// Bytes left while the disk is full.
const LEVELS: [u64; 4] = [0, 4096, 3 * 4096, 10 * 4096];
/// How long a run may take to go on once there is space: it looks again after ever longer pauses.
const BACK: Duration = Duration::from_secs(60);

/// DS-2: a server whose state directory is full, with runs in the middle of their work.
#[test]
fn a_server_on_a_full_disk() {
    on_small_disk("survival::disk_full_servers::a_server_on_a_full_disk_inside", "90m");
}

/// An agent that waits for a file, a check that says much, an agent, a router.
fn spec(world: &World, name: &str) -> Value {
    let script = format!("echo x >> ../{name}.calls; while [ ! -e ../go ]; do sleep 0.05; done");
    let long = "All that was found, line by line.\n".repeat(300);
    let model = world.scenario(
        name,
        json!([{ "times": 0, "steps": [
            { "run": ["sh", "-c", script] },
            { "write": { "path": format!("{name}.made"), "content": "1\n" } },
            { "say": long },
        ] }]),
    );
    let check = json!({ "type": "command", "cmd": "sh", "args": ["-c", format!("seq 1 4000; test -e {name}.made")] });
    json!({ "name": name, "contract": { "checks": [check] }, "nodes": [
        agent("work", "Work.", &model),
        { "id": "verify", "kind": "verifier", "contract": "run" },
        agent("report", "Report.", "noop"),
        { "id": "end", "kind": "router", "routes": [] },
    ] })
}

/// The one above, on the small file system.
#[test]
#[ignore = "run by a_server_on_a_full_disk on a small file system"]
fn a_server_on_a_full_disk_inside() {
    let disk = small_disk();
    let begun = Instant::now();
    waits_for_all_to_see(&disk);
    let mut waited = Vec::new();
    for level in LEVELS {
        waited.push(format!("{level} bytes: {:.1?}", fill_up(&disk, level)));
    }
    say(&format!(
        "full disk, server: filled {} times under 2 runs each, 0 lost, 0 partial runs listed; from space to the end of both: {}; {:.0?}",
        LEVELS.len(),
        waited.join(", "),
        begun.elapsed()
    ));
}

/// Kernel section 4, DS-2: what the reserve is for. That the run waits for space is on its log, for other processes.
fn waits_for_all_to_see(disk: &Path) {
    let mut world = World::new();
    let home = disk.join("home-seen");
    world.env.insert("CLAWO_HOME".to_owned(), home.to_str().unwrap().to_owned());
    let world = world;
    let mut host = Host::open(&world);
    host.start(&world, "one", spec(&world, "one"));
    within(PATIENCE, "the agent", || world.root().join("one.calls").exists());
    let mut ballast = Ballast::new(disk);
    ballast.leave(0);
    std::fs::write(world.root().join("go"), "").unwrap();
    within(PATIENCE, "the command line sees it wait", || show(&world, "one")["waitingFor"]["kind"] == "storage");
    drop(ballast);
    let done = host.until("one", |v| v["endedAt"].is_string());
    assert_eq!((&done["outcome"], &done["waitingFor"]), (&json!("verified"), &Value::Null), "{done:#}");
    assert_eq!(host.close().0, 0);
    std::fs::remove_dir_all(&home).unwrap();
}

fn fill_up(disk: &Path, level: u64) -> Duration {
    let mut world = World::new();
    let home = disk.join(format!("home-{level}"));
    world.env.insert("CLAWO_HOME".to_owned(), home.to_str().unwrap().to_owned());
    let world = world;
    let mut host = Host::open(&world);
    let done = json!({ "name": "before", "contract": { "checks": [{ "type": "command", "cmd": "true" }] },
        "nodes": [{ "id": "one", "kind": "router", "routes": [] }] });
    host.start(&world, "before", done.clone());
    let before = host.until("before", |v| v["live"] == false);
    assert_eq!(before["outcome"], "verified", "{before:#}");
    for name in ["one", "two"] {
        host.start(&world, name, spec(&world, name));
    }
    let calls = |name: &str| {
        std::fs::read_to_string(world.root().join(format!("{name}.calls"))).unwrap_or_default().lines().count()
    };
    within(PATIENCE, "both agents", || calls("one") == 1 && calls("two") == 1);

    // The reserve would give one run, for a moment, the space to end. Whatever else is freed is taken at once.
    std::fs::remove_file(home.join("reserve")).unwrap();
    let (ballast, over) = (Mutex::new(Ballast::new(disk)), AtomicBool::new(false));
    ballast.lock().unwrap().leave(level);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                ballast.lock().unwrap().leave(level);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let full = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            std::fs::write(world.root().join("go"), "").unwrap();
            let waits = |host: &mut Host, name: &str| host.until(name, |v| v["waitingFor"]["kind"] == "storage");
            for name in ["one", "two"] {
                let view = waits(&mut host, name);
                assert!(view["live"] == true && view["endedAt"].is_null(), "{view:#}");
            }
            let id =
                host.send_call("workflow_start", json!({ "spec": done, "cwd": world.project(), "runId": "refused" }));
            let refused = host.answer(id)["result"].clone();
            assert_eq!(refused["structuredContent"]["code"], "store_unavailable", "{refused:#}");
            let names = |listed: &Value| -> Vec<String> {
                let mut names: Vec<String> = listed["runs"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|r| r["runId"].as_str().unwrap().to_owned())
                    .collect();
                names.sort();
                names
            };
            assert_eq!(names(&host.call("workflow_list", json!({}))), ["before", "one", "two"]);
            assert_eq!(names(&run(&world, &["workflow", "list", "--json"], 0).json()), ["before", "one", "two"]);
            assert_eq!(show(&world, "before")["outcome"], "verified");
            let evidence = host.call("workflow_evidence", json!({ "runId": "before" }));
            assert_eq!(evidence["passed"], true, "{evidence:#}");
            assert_eq!(host.refused("workflow_status", json!({ "runId": "refused" })), "run_not_found");
        }));
        over.store(true, Ordering::Relaxed);
        if let Err(panic) = full {
            std::panic::resume_unwind(panic);
        }
    });
    drop(ballast);

    let space = Instant::now();
    for name in ["one", "two"] {
        let view = loop {
            let view = host.call("workflow_status", json!({ "runId": name, "waitMs": 1000 }));
            if view["endedAt"].is_string() {
                break view;
            }
            assert!(space.elapsed() < BACK, "{view:#}");
        };
        assert_eq!((&view["state"], &view["outcome"]), (&json!("completed"), &json!("verified")), "{view:#}");
        assert!(view["waitingFor"].is_null(), "{view:#}");
        run(&world, &["verify", name], 0);
        assert!(calls(name) <= 5, "{name} was done {} times", calls(name));
    }
    let took = space.elapsed();
    host.start(&world, "after", done);
    host.until("after", |v| v["outcome"] == "verified");
    assert_eq!(host.close().0, 0);
    let listed = run(&world, &["workflow", "list", "--json"], 0).json();
    assert!(listed["runs"].as_array().unwrap().iter().all(|r| r["state"] == "completed"), "{listed:#}");
    std::fs::remove_dir_all(&home).unwrap();
    took
}
