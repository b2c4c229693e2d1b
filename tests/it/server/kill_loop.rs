//! SIGKILL at random moments, a new server each time: the run ends as if nothing had happened.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};

use super::host::{Host, within};
use crate::support::{World, agent, git, of_run, processes, with};

/// Kills altogether.
const KILLS: u32 = 20;
/// In the command line of everything the agents leave behind.
const MARK: &str = "47120101";

/// Numbers that look random and are the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Every step leaves a line in the witness file, which lies outside the repository.
fn spec(world: &World, name: &str) -> Value {
    let witness = world.root().join(format!("{name}.witness"));
    let mark = format!("echo $CLAWO_NODE_ID.$CLAWO_VISIT >> '{}'", witness.display());
    let step = |pause: &str| json!({ "run": ["sh", "-c", format!("{mark}; sleep {pause}")] });
    let stray = || json!({ "spawn": { "argv": ["sleep", MARK], "detach": true, "newSession": true } });
    let prepare = world.scenario("prepare", json!([{ "times": 0, "steps": [step("0.1"), { "say": "ready" }] }]));
    let wrong =
        json!([step("0.1"), stray(), { "write": { "path": "value", "content": "wrong\n" } }, { "say": "done" }]);
    let right =
        json!([step("0.1"), stray(), { "write": { "path": "value", "content": "right\n" } }, { "say": "done" }]);
    let fix = world
        .scenario("fix", json!([{ "match": "say-right", "times": 0, "steps": right }, { "times": 0, "steps": wrong }]));
    let look = format!("{mark}; sleep 0.1; grep -qx right value || {{ echo say-right; exit 1; }}");
    json!({
        "name": "loop",
        "contract": { "checks": [{ "type": "command", "cmd": "sh", "args": ["-c", look] }] },
        "nodes": [
            agent("prepare", "Get ready.", &prepare),
            with(agent("implement", "Make it work.", &fix), json!({ "onFailure": "continue" })),
            { "id": "verify", "kind": "verifier", "contract": "run", "onFailure": "continue" },
            { "id": "gate", "kind": "router", "routes": [{ "when": { "type": "node_failed", "node": "verify" }, "to": "implement" }] },
        ],
    })
}

/// How often each `node.visit` ran.
fn witnessed(world: &World, name: &str) -> BTreeMap<String, usize> {
    let text = std::fs::read_to_string(world.root().join(format!("{name}.witness"))).unwrap_or_default();
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

/// What a run came to, without times and tries.
fn end(view: &Value) -> Value {
    let nodes: Vec<Value> =
        view["nodes"].as_array().unwrap().iter().map(|n| json!([n["id"], n["state"], n["visits"]])).collect();
    json!({ "state": view["state"], "outcome": view["outcome"], "nodes": nodes, "passed": view["verdict"]["passed"] })
}

/// Events a client was told of, by number.
#[derive(Default)]
struct Told(BTreeMap<u64, Vec<Value>>);

impl Told {
    fn note(&mut self, view: &Value) {
        let mut now: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
        for event in view["events"].as_array().unwrap() {
            now.entry(event["seq"].as_u64().unwrap()).or_default().push(event.clone());
        }
        // The oldest may have lost some of its batch to the limit.
        for (seq, events) in now.into_iter().skip(1) {
            self.0.insert(seq, events);
        }
    }
}

/// `node.visit` of every pass that is on the record as ended, from the log itself.
fn recorded(world: &World, run: &str) -> Vec<String> {
    let text = std::fs::read_to_string(world.run_dir(run).join("events.jsonl")).unwrap_or_default();
    let mut done = Vec::new();
    for line in text.lines() {
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        for event in line["events"].as_array().unwrap() {
            let ended = event["type"] == "node_state"
                && ["succeeded", "failed"].contains(&event["state"].as_str().unwrap_or_default());
            if ended {
                done.push(format!("{}.{}", event["node"].as_str().unwrap(), event["visit"]));
            }
        }
    }
    done
}

/// Store proof 3, kernel scenario 7, LW-2: twenty kills of real servers; every one is survived.
#[test]
fn twenty_kills_change_nothing() {
    let seed = std::env::var("CLAWO_TEST_SEED").ok().and_then(|s| s.parse().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
    let seed: u64 = seed.unwrap_or(u64::from(now) | 1);
    println!("seed: CLAWO_TEST_SEED={seed}");
    let mut random = Random(seed | 1);

    let calm = World::new();
    let mut host = Host::open(&calm);
    host.start(&calm, "calm", spec(&calm, "calm"));
    let undisturbed = end(&host.until("calm", |v| v["endedAt"].is_string()));
    assert_eq!((&undisturbed["state"], &undisturbed["outcome"]), (&json!("completed"), &json!("verified")));
    assert_eq!(host.close().0, 0);
    assert!(witnessed(&calm, "calm").values().all(|n| *n == 1), "{:?}", witnessed(&calm, "calm"));

    let (mut kills, mut ended, mut round) = (0, 0, 0);
    while kills < KILLS {
        round += 1;
        let (hit, passes) = disturbed(round, KILLS - kills, &mut random, &undisturbed);
        kills += hit;
        ended += passes;
    }
    assert!(ended > 0, "no kill came after the first pass had ended");
    println!("{kills} kills in {round} runs");
    within(Duration::from_secs(5), "nothing is left", || processes(MARK).is_empty());
}

/// One run under at most `most` kills; gives how many hit it, and how many passes had ended before one of them.
fn disturbed(round: u32, most: u32, random: &mut Random, undisturbed: &Value) -> (u32, usize) {
    let world = World::new();
    let run = format!("run-{round}");
    let mut told = Told::default();
    let mut done: BTreeMap<String, usize> = BTreeMap::new();
    let mut kills = 0;
    let mut host = Host::open(&world);
    host.start(&world, &run, spec(&world, &run));
    let last = loop {
        let moment = std::time::Instant::now() + Duration::from_millis(20 + random.below(700));
        let view = loop {
            let view = host.call("workflow_status", json!({ "runId": run, "events": 40, "waitMs": 30 }));
            told.note(&view);
            if view["endedAt"].is_string() || (kills < most && std::time::Instant::now() > moment) {
                break view;
            }
        };
        if view["endedAt"].is_string() {
            break host.call("workflow_status", json!({ "runId": run, "events": 500 }));
        }
        host.crash();
        kills += 1;
        // The agents of the dead end by themselves; what they write until then belongs to the pass in flight.
        within(Duration::from_secs(5), "the agents of the killed server are gone", || of_run(&run).is_empty());
        let counts = witnessed(&world, &run);
        for pass in recorded(&world, &run) {
            done.entry(pass.clone()).or_insert_with(|| counts.get(&pass).copied().unwrap_or_default());
        }
        host = Host::open(&world);
        let resumed = host.call("workflow_resume", json!({ "runId": run }));
        assert_eq!(resumed["runId"], run, "{resumed}");
    };
    assert_eq!(&end(&last), undisturbed, "round {round} after {kills} kills: {last:#}");
    let counts = witnessed(&world, &run);
    for (pass, count) in &done {
        assert_eq!(counts.get(pass).copied().unwrap_or_default(), *count, "{pass} ended and ran again: {counts:?}");
    }
    let mut kept: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    for event in last["events"].as_array().unwrap() {
        kept.entry(event["seq"].as_u64().unwrap()).or_default().push(event.clone());
    }
    assert!(told.0.len() > 5, "the client was told of {} commits", told.0.len());
    for (seq, events) in &told.0 {
        assert_eq!(kept.get(seq), Some(events), "told of commit {seq}, which is gone or changed");
    }
    assert_eq!(host.close().0, 0);
    within(Duration::from_secs(5), "nothing of the run is left", || of_run(&run).is_empty());
    (kills, done.len())
}

/// OF-6, surface section 3: a start that was cut by a kill can be made again under the same id or key, also where it
/// had made a worktree; a branch with work in it is never taken for a leftover.
#[test]
fn a_start_that_was_cut_can_be_repeated() {
    let world = World::new();
    let mut random = Random(u64::from(std::process::id()) | 1);
    let spec = |workspace: &str| json!({ "name": "r", "workspace": workspace, "nodes": [{ "id": "one", "kind": "router", "routes": [] }] });
    for round in 0..16 {
        let workspace = ["worktree", "inPlace"][round % 2];
        let start =
            json!({ "spec": spec(workspace), "cwd": world.project(), "idempotencyKey": format!("key {round}") });
        let mut cut = Host::open(&world);
        cut.call("workflow_list", json!({}));
        cut.send_call("workflow_start", start.clone());
        std::thread::sleep(Duration::from_millis(random.below(90)));
        cut.crash();
        let mut host = Host::open(&world);
        let run = host.call("workflow_start", start)["runId"].as_str().unwrap().to_owned();
        if host.call("workflow_status", json!({ "runId": run }))["interrupted"] == true {
            host.call("workflow_resume", json!({ "runId": run }));
        }
        let done = host.until(&run, |v| v["endedAt"].is_string());
        assert_eq!(done["state"], "completed", "round {round}: {done:#}");
    }

    let left = |id: &str| {
        let path = world.home().join("worktrees").join(id);
        git(&world.project(), &["worktree", "add", "-q", "-b", &format!("clawo/{id}"), path.to_str().unwrap()]);
        path
    };
    let mut host = Host::open(&world);
    let start = |id: &str| json!({ "spec": spec("worktree"), "cwd": world.project(), "runId": id });
    left("empty");
    host.call("workflow_start", start("empty"));
    assert_eq!(host.until("empty", |v| v["endedAt"].is_string())["state"], "completed");
    let changed = left("changed");
    std::fs::write(changed.join("work"), "mine").unwrap();
    assert_eq!(host.refused("workflow_start", start("changed")), "store_unavailable");
    assert_eq!(std::fs::read_to_string(changed.join("work")).unwrap(), "mine");
    let committed = left("committed");
    std::fs::write(committed.join("work"), "mine").unwrap();
    git(&committed, &["add", "-A"]);
    git(&committed, &["commit", "-q", "-m", "work"]);
    let tip = git(&committed, &["rev-parse", "HEAD"]);
    assert_eq!(host.refused("workflow_start", start("committed")), "store_unavailable");
    assert_eq!(git(&world.project(), &["rev-parse", "clawo/committed"]), tip);
}
