//! Several processes on one home: who owns a run, who may change it, what a death leaves.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::host::{Host, PATIENCE, run, show, shown, signal, within};
use crate::support::{World, agent, processes};

/// A run whose agent never ends and has a grandchild in a session of its own.
fn endless(world: &World, name: &str, mark: &str) -> Value {
    let model = world.scenario(
        name,
        json!([{ "times": 0, "steps": [
            { "spawn": { "argv": ["sleep", mark], "detach": true, "newSession": true } },
            "hang",
        ] }]),
    );
    json!({ "name": name, "nodes": [agent("a", "Work.", &model)] })
}

/// Files that wait in the inbox of a run.
fn inbox(world: &World, run: &str) -> usize {
    std::fs::read_dir(world.run_dir(run).join("inbox")).into_iter().flatten().count()
}

/// Kernel scenario 13: the command line steers and cancels a run that a stdio server executes.
#[test]
fn the_command_line_reaches_a_run_of_a_server() {
    let world = World::new();
    let first = world.scenario("first", json!([{ "steps": [{ "sleep": 2500 }, { "say": "done" }] }]));
    let second = world.scenario("second", json!([{ "times": 0, "steps": ["hang"] }]));
    let mut host = Host::open(&world);
    let spec = json!({ "name": "two", "nodes": [agent("first", "One.", &first), agent("second", "Two.", &second)] });
    host.start(&world, "steered", spec);
    host.until("steered", |v| v["nodes"][0]["state"] == "running");
    let steered = run(&world, &["workflow", "steer", "steered", "use tabs", "--json"], 0).json();
    assert_eq!(steered["ok"], true, "{steered}");
    run(&world, &["workflow", "steer", "steered", "no, spaces"], 0);
    host.until("steered", |v| v["nodes"][1]["state"] == "running");
    within(PATIENCE, "the second agent was asked", || !world.prompts("second").is_empty());
    let prompt = world.prompts("second").remove(0);
    let at = |needle: &str| prompt.find(needle).unwrap_or_else(|| panic!("no {needle:?} in {prompt}"));
    assert!(at("use tabs") < at("no, spaces") && at("no, spaces") < at("Two."), "{prompt}");

    let begun = Instant::now();
    run(&world, &["workflow", "cancel", "steered", "--reason", "enough"], 0);
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    let view = host.until("steered", |v| v["endedAt"].is_string());
    assert_eq!((&view["state"], &view["outcome"]), (&json!("cancelled"), &json!("unverified")));
    assert_eq!(inbox(&world, "steered"), 0);
    run(&world, &["workflow", "steer", "steered", "late"], 6);
}

/// Kernel scenario 13, OF-3, LW-4, ZP-2: a stopped owner keeps its run and is named; a killed one loses it at once,
/// and whoever comes next can go on with it.
#[test]
fn a_stopped_owner_is_named_and_a_killed_one_replaced() {
    let world = World::new();
    let mut owner = Host::open(&world);
    for (name, mark) in [("go", "47120301"), ("off", "47120302"), ("away", "47120303")] {
        owner.start(&world, name, endless(&world, name, mark));
    }
    for mark in ["47120301", "47120302", "47120303"] {
        within(PATIENCE, "the agent has its child", || !processes(mark).is_empty());
    }
    let mut other = Host::open(&world);
    assert!(show(&world, "go")["live"] == true && other.until("go", |_| true)["live"] == true);
    assert_eq!(other.refused("workflow_resume", json!({ "runId": "go" })), "run_owned");
    assert_eq!(other.refused("workflow_delete", json!({ "runId": "go" })), "run_owned");

    signal(owner.pid(), Signal::SIGSTOP);
    let begun = Instant::now();
    for refused in [
        run(&world, &["workflow", "steer", "go", "hello", "--json"], 6).json(),
        run(&world, &["workflow", "cancel", "off", "--json"], 6).json(),
    ] {
        assert_eq!(refused["code"], "not_executing_here", "{refused}");
        assert!(refused["error"].as_str().unwrap().contains(&owner.pid().to_string()), "{refused}");
    }
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(8) && took < Duration::from_secs(20), "two times about five seconds: {took:?}");
    assert_eq!((inbox(&world, "go"), inbox(&world, "off")), (0, 0));
    let held = run(&world, &["workflow", "resume", "go", "--wait", "--json"], 6).json();
    assert_eq!(held["code"], "run_owned", "{held}");
    assert_eq!(other.refused("workflow_resume", json!({ "runId": "go" })), "run_owned");

    // Awake again it goes on, and knows nothing of what was withdrawn.
    signal(owner.pid(), Signal::SIGCONT);
    let view = owner.until("go", |_| true);
    assert_eq!((&view["live"], &view["state"], &view["pendingSteers"]), (&json!(true), &json!("running"), &json!(0)));
    assert_eq!(owner.until("off", |_| true)["state"], "running");
    signal(owner.pid(), Signal::SIGSTOP);
    owner.crash();
    for name in ["go", "off", "away"] {
        let view = show(&world, name);
        assert_eq!((&view["live"], &view["interrupted"]), (&json!(false), &json!(true)), "{view:#}");
    }
    for mark in ["47120301", "47120302", "47120303"] {
        within(Duration::from_secs(5), "the agents of the killed server are gone", || processes(mark).is_empty());
    }
    let listed = run(&world, &["workflow", "list", "--json"], 0).json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 3, "{listed}");

    other.call("workflow_resume", json!({ "runId": "go" }));
    within(PATIENCE, "the agent runs again", || !processes("47120301").is_empty());
    let view = other.until("go", |v| v["live"] == true);
    assert_eq!(view["nodes"][0]["visits"], 1, "{view:#}");
    assert_eq!(inbox(&world, "go"), 0);
    run(&world, &["workflow", "cancel", "off"], 0);
    assert_eq!(show(&world, "off")["state"], "cancelled");
    run(&world, &["workflow", "delete", "away", "--yes"], 0);
    run(&world, &["workflow", "show", "away"], 3);
    other.call("workflow_cancel", json!({ "runId": "go" }));
    let prompts = world.prompts("go");
    assert!(prompts.iter().all(|p| !p.contains("hello")), "the withdrawn correction came back: {prompts:?}");
    assert!(processes("47120301").is_empty());
}

/// ZP-2, ZP-3: a killed server takes six agents with it, and only its own.
#[test]
fn a_killed_server_takes_only_its_own_agents() {
    let (mine, theirs) = (World::new(), World::new());
    let fan = |world: &World, mark: &str, agents: usize| {
        let model = world.scenario(
            "fan",
            json!([{ "times": 0, "steps": [
                "ignoreSigterm",
                { "spawn": { "argv": ["sleep", mark], "newSession": true } },
                { "spawn": { "argv": ["sh", "-c", format!("trap '' TERM HUP; sleep {mark}; sleep {mark}")], "detach": true, "newSession": true } },
                "hang",
            ] }]),
        );
        let seats: Vec<Value> =
            (0..agents).map(|n| json!({ "name": format!("m{n}"), "engine": "scripted", "model": model })).collect();
        json!({ "name": "fan", "nodes": [{ "id": "f", "kind": "fanout", "prompt": "x", "agents": seats }] })
    };
    let mut doomed = Host::silent(super::host::command(&mine, &["mcp"]), &mine.root().join("server.log"));
    doomed.read();
    doomed.initialize("2025-11-25");
    let mut neighbour = Host::open(&theirs);
    doomed.start(&mine, "fan", fan(&mine, "47120304", 5));
    neighbour.start(&theirs, "fan", fan(&theirs, "47120305", 2));
    // Those that sleep have their final form; what started them may still be on its way out.
    let asleep = |mark: &str| -> Vec<String> {
        processes(mark)
            .into_iter()
            .filter(|p| p.split_once(' ').is_some_and(|(_, c)| c.starts_with("sleep ")))
            .collect()
    };
    within(PATIENCE, "five agents with two grandchildren each", || asleep("47120304").len() == 10);
    within(PATIENCE, "two agents with two grandchildren each", || asleep("47120305").len() == 4);
    let before = asleep("47120305");
    doomed.crash();
    within(Duration::from_secs(5), "all of the killed server's", || processes("47120304").is_empty());
    // The next server on that home sweeps; it finds nothing of the neighbour's either.
    let mut next = Host::open(&mine);
    assert_eq!(next.until("fan", |_| true)["interrupted"], true);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(asleep("47120305"), before, "the neighbour's");
    assert_eq!(neighbour.until("fan", |_| true)["live"], true);
    neighbour.call("workflow_cancel", json!({ "runId": "fan" }));
    assert!(processes("47120305").is_empty());
    shown(&theirs, "fan", |v| v["state"] == "cancelled");
}
