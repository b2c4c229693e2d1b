//! Wall clocks that jump under the running program.

use std::{path::Path, time::Duration};

use serde_json::json;

use super::{log_of, possible, say};
use crate::{
    server::host::{Host, PATIENCE, command, show, within},
    support::{World, agent, check, with},
};

/// Where Debian keeps the library that answers for the clock, by architecture.
const LIBRARIES: [&str; 3] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/faketime/libfaketimeMT.so.1",
];

/// A server whose wall clock is the machine's plus what stands in `offset`.
fn shifted(world: &World, library: &str, offset: &Path) -> Host {
    let mut command = command(world, &["mcp"]);
    command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", offset);
    command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("DONT_FAKE_MONOTONIC", "1");
    let mut host = Host::silent(command, &world.root().join("server.log"));
    host.read();
    host.initialize("2025-11-25");
    host
}

/// Three hours forward, four back, in the middle of an agent's turn, of a wait for a retry, of a wait for a person and
/// of the death of a server. Durations are not wall time: nothing times out, nothing waits for hours, the run ends as
/// without the jumps, and a lease from the future keeps nobody out (OF-1).
#[test]
fn jumps_of_the_clock_change_nothing() {
    let library = LIBRARIES.into_iter().find(|path| Path::new(path).exists());
    if !possible("clocks", library.is_some(), "there is no libfaketime (Debian package faketime)") {
        return;
    }
    let library = library.unwrap();
    let world = World::new();
    let offset = world.root().join("offset");
    let jump = |to: &str| {
        let new = world.root().join("offset.new");
        std::fs::write(&new, to).unwrap();
        std::fs::rename(new, &offset).unwrap();
    };
    jump("+0");
    let wait = |file: &str| json!({ "run": ["sh", "-c", format!("echo x >> ../calls-{file}; while [ ! -e ../{file} ]; do sleep 0.05; done")] });
    let go = |file: &str| std::fs::write(world.root().join(file), "").unwrap();
    let calls = |file: &str| {
        std::fs::read_to_string(world.root().join(format!("calls-{file}"))).unwrap_or_default().lines().count()
    };
    let first = world.scenario("first", json!([{ "times": 0, "steps": [wait("one"), { "say": "ok" }] }]));
    let last = world.scenario("last", json!([{ "times": 0, "steps": [wait("two"), { "say": "ok" }] }]));
    let flaky = check(&["sh", "-c", "test $CLAWO_ATTEMPT -ge 2"]);
    let flaky = with(
        json!({ "id": "flaky", "kind": "verifier", "contract": flaky }),
        json!({ "retry": { "max": 1, "backoffMs": 3000 } }),
    );
    let spec = json!({ "name": "jumps", "nodes": [
        with(agent("first", "x", &first), json!({ "timeoutMs": 60_000 })),
        flaky,
        { "id": "ask", "kind": "human_gate", "prompt": "Go on?" },
        with(agent("last", "x", &last), json!({ "timeoutMs": 60_000 })),
    ] });
    let key = json!({ "spec": spec, "cwd": world.project(), "idempotencyKey": "one key" });

    let mut host = shifted(&world, library, &offset);
    let run = host.call("workflow_start", key.clone())["runId"].as_str().unwrap().to_owned();
    within(PATIENCE, "the first agent", || calls("one") == 1);
    jump("+3h");
    std::thread::sleep(Duration::from_millis(400));
    let again = host.call("workflow_start", key);
    assert_eq!((&again["runId"], &again["existing"]), (&json!(run), &json!(true)), "within a day by either clock");
    let view = host.until(&run, |_| true);
    assert_eq!((&view["nodes"][0]["state"], &view["nodes"][0]["attempts"]), (&json!("running"), &json!(1)), "{view:#}");
    go("one");
    // The due time is three hours ahead once the clock is back; the wait is as long as was asked for.
    host.until(&run, |v| v["waitingFor"]["kind"] == "backoff");
    jump("-1h");
    let begun = std::time::Instant::now();
    host.until(&run, |v| v["state"] == "awaiting_human");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    jump("+3h");
    std::thread::sleep(Duration::from_millis(400));
    host.call("workflow_approve", json!({ "runId": run, "approved": true }));
    within(PATIENCE, "the last agent", || calls("two") == 1);

    // A server with the right time meets a lease that beat three hours from now, live and dead.
    let mut right = Host::open(&world);
    assert_eq!(right.refused("workflow_resume", json!({ "runId": run })), "run_owned");
    host.crash();
    let view = right.call("workflow_resume", json!({ "runId": run }));
    assert_eq!(view["live"], true, "{view:#}");
    within(PATIENCE, "the last agent again", || calls("two") == 2);
    go("two");
    let done = right.until(&run, |v| v["endedAt"].is_string());
    assert_eq!(done["state"], "completed", "{done:#}");
    let attempts: Vec<_> = done["nodes"].as_array().unwrap().iter().map(|n| n["attempts"].clone()).collect();
    assert_eq!(attempts, [1, 2, 1, 2], "{done:#}");
    let seqs: Vec<u64> = log_of(&world, &run).iter().map(|line| line["seq"].as_u64().unwrap()).collect();
    assert!(seqs.iter().enumerate().all(|(n, seq)| *seq == n as u64 + 1), "{seqs:?}");
    assert_eq!(show(&world, &run)["outcome"], done["outcome"]);
    say("clock jumps: +3 h, -4 h, +4 h, -3 h in one run; 0 timeouts, 0 early or late retries, 0 lost");
}
