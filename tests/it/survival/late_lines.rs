//! A line that a former owner adds after its time: written between its proof and its successor's next line.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use serde_json::json;

use super::{log_of, lose_lock, possible, say, sleeping, succeeds};
use crate::{
    server::host::{Host, PATIENCE, command, within},
    support::{World, agent},
};

/// How long each write of the delayed server into the run's log takes, in microseconds.
const DELAY: u64 = 2_000_000;

/// OF-3, I6: A has proved that it owns the run and is about to write; B takes over; A's line lands after B's fence.
/// It does not count, B goes on and finishes, A is told.
#[test]
fn a_late_line_counts_for_nothing_and_harms_nobody() {
    if !possible("late_lines", succeeds("strace", &["-V"]), "there is no strace (Debian package strace)") {
        return;
    }
    let world = World::new();
    let script = "mkdir ../once 2>/dev/null && exec sleep 47120711; while [ ! -e ../go ]; do sleep 0.05; done";
    let model =
        world.scenario("work", json!([{ "times": 0, "steps": [{ "run": ["sh", "-c", script] }, { "say": "done" }] }]));
    let log = world.home().canonicalize().unwrap_or_else(|_| world.home()).join("wf/late/events.jsonl");
    let plain = command(&world, &["mcp"]);
    let mut delayed = Command::new("strace");
    delayed.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=write,pwrite64"]);
    delayed.arg("-P").arg(&log).args(["-e", &format!("inject=write,pwrite64:delay_enter={DELAY}")]);
    delayed.arg(plain.get_program()).args(plain.get_args());
    delayed.env_clear().envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?))));
    delayed.current_dir(world.project());
    let mut a = Host::silent(delayed, &world.root().join("server.log"));
    a.read();
    a.initialize("2025-11-25");
    a.start(&world, "late", json!({ "name": "late", "nodes": [agent("work", "Work.", &model)] }));
    within(PATIENCE, "A's agent", || !sleeping("47120711").is_empty());
    // Nothing is being written then.
    std::thread::sleep(Duration::from_micros(DELAY + 1_000_000));
    let mut b = Host::open(&world);
    let lines = log_of(&world, "late").len();

    let begun = Instant::now();
    let steer = a.send_call("workflow_steer", json!({ "runId": "late", "text": "written too late" }));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(log_of(&world, "late").len(), lines, "A's line is on its way");
    lose_lock(&world, "late");
    b.call("workflow_resume", json!({ "runId": "late" }));
    assert!(begun.elapsed() < Duration::from_micros(DELAY), "B was too slow for this test: {:?}", begun.elapsed());
    let text = || std::fs::read_to_string(&log).unwrap();
    within(PATIENCE, "A's line is there", || text().contains("written too late"));
    let answer = a.answer(steer);
    assert_eq!(answer["result"]["structuredContent"]["code"], "superseded", "{answer:#}");
    within(Duration::from_secs(10), "A has ended its agent", || sleeping("47120711").is_empty());

    std::fs::write(world.root().join("go"), "").unwrap();
    let done = b.until("late", |v| v["endedAt"].is_string());
    assert_eq!((&done["state"], &done["pendingSteers"]), (&json!("completed"), &json!(0)), "{done:#}");
    let events = b.call("workflow_status", json!({ "runId": "late", "events": 100 }))["events"].to_string();
    assert!(!events.contains("written too late"), "{events}");
    let late: Vec<u64> = log_of(&world, "late")
        .iter()
        .filter(|line| line["events"].to_string().contains("written too late"))
        .map(|line| line["epoch"].as_u64().unwrap())
        .collect();
    assert_eq!(late, [1], "one line of the former epoch");
    let view = a.until("late", |v| v["live"] == false);
    assert_eq!(view["seq"], done["seq"]);
    say("late line: 1 written after its successor's fence, 0 counted");
}
