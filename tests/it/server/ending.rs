//! The host goes away: the server ends by itself, its runs stay resumable, nothing of theirs runs on.

use std::time::Duration;

use serde_json::json;

use super::host::{Host, PATIENCE, ended, shown, signal, within};
use crate::support::{World, agent, processes};

/// A server whose input ended is gone by then.
const LIMIT: Duration = Duration::from_secs(5);

/// Surface section 7, idle: before a handshake, in the middle of a line, after some calls.
#[test]
fn an_idle_server_ends_with_its_input() {
    let world = World::new();
    let mut hosts = vec![Host::raw(&world), Host::open(&world), Host::open(&world)];
    hosts[1].call("workflow_list", json!({}));
    hosts[2].line(b"{\"jsonrpc\":\"2.0\",\"id\":9,");
    for host in &mut hosts {
        let (status, took) = host.close();
        assert!(status == 0 && took < LIMIT, "status {status} after {took:?}");
    }
}

/// Surface section 7, ZP-2, ZP-4: an agent that ignores TERM and has a grandchild in its own session, a wait that is open.
#[test]
fn a_server_with_a_running_turn_ends_with_its_input() {
    let world = World::new();
    let stubborn = world.scenario(
        "stubborn",
        json!([{ "times": 0, "steps": [
            "ignoreSigterm",
            "ignoreInterrupt",
            { "spawn": { "argv": ["sleep", "47120201"], "detach": true, "newSession": true } },
            "hang",
        ] }]),
    );
    let mut host = Host::open(&world);
    host.start(&world, "turn", json!({ "name": "turn", "nodes": [agent("a", "x", &stubborn)] }));
    within(PATIENCE, "the agent has its child", || !processes("47120201").is_empty());
    // Once nothing changes any more, a wait stays open.
    std::thread::sleep(Duration::from_millis(500));
    host.send_call("workflow_status", json!({ "runId": "turn", "waitMs": 50_000 }));
    assert!(host.receive(Duration::from_millis(300)).is_err(), "the wait is open");
    let (status, took) = host.close();
    assert!(status == 0 && took < LIMIT, "status {status} after {took:?}");
    within(Duration::from_secs(2), "its tree is gone", || processes("47120201").is_empty());
    let left = shown(&world, "turn", |v| v["live"] == false);
    assert_eq!((&left["interrupted"], &left["nodes"][0]["visits"]), (&json!(true), &json!(1)), "{left:#}");
    let mut next = Host::open(&world);
    next.call("workflow_resume", json!({ "runId": "turn" }));
    within(PATIENCE, "the agent runs again", || !processes("47120201").is_empty());
    let view = next.call("workflow_cancel", json!({ "runId": "turn" }));
    assert_eq!(view["state"], "cancelled", "{view:#}");
    assert!(processes("47120201").is_empty());
}

/// Surface sections 3 and 7: a check that would take a minute and ignores TERM.
#[test]
fn a_server_with_a_running_check_ends_with_its_input() {
    let world = World::new();
    let script = "trap '' TERM; sleep 47120202; sleep 47120202";
    let contract = json!({ "checks": [{ "type": "command", "cmd": "sh", "args": ["-c", script] }] });
    let mut host = Host::open(&world);
    host.send_call("verify_run", json!({ "cwd": world.project(), "contract": contract }));
    within(PATIENCE, "the check runs", || !processes("47120202").is_empty());
    let (status, took) = host.close();
    assert!(status == 0 && took < LIMIT, "status {status} after {took:?}");
    within(Duration::from_secs(5), "the check is gone", || processes("47120202").is_empty());
}

/// Surface scenario 39 on pipes: a signal ends the server as the end of its input does.
#[test]
fn a_signal_ends_the_server() {
    let world = World::new();
    let slow = world.scenario("slow", json!([{ "times": 0, "steps": ["hang"] }]));
    for (name, sent) in [("term", nix::sys::signal::Signal::SIGTERM), ("int", nix::sys::signal::Signal::SIGINT)] {
        let mut host = Host::open(&world);
        host.start(&world, name, json!({ "name": "slow", "nodes": [agent("a", "x", &slow)] }));
        host.until(name, |v| v["nodes"][0]["state"] == "running");
        signal(host.pid(), sent);
        let status = ended(host.child(), LIMIT).expect("it ends");
        assert_eq!(status.code(), Some(0), "{status:?}");
        shown(&world, name, |v| v["interrupted"] == true);
    }
}
