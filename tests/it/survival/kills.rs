//! SIGKILL at random moments, a new server each time: every kind of run ends as if nothing had happened.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};

use super::{Random, living, rounds, say};
use crate::{
    server::host::{Host, PATIENCE, within},
    support::{World, agent, with},
};

/// In the command line of everything the agents leave behind.
const MARK: &str = "47120101";
/// Runs under fire at the same time, each with a server of its own.
const WORKERS: u64 = 4;
/// Most kills of one run.
const KILLS_PER_RUN: u32 = 6;

/// The kinds of runs.
const KINDS: [&str; 5] = ["loop", "gate", "fan", "sub", "retry"];

/// A shell line that leaves `<node>.<visit>` in the witness file, which lies outside the repository.
fn mark(world: &World, member: &str) -> String {
    format!("echo $CLAWO_NODE_ID{member}.$CLAWO_VISIT >> '{}'", world.root().join("witness").display())
}

/// A scenario of an agent that leaves its mark, works for a while and says so.
fn worker(world: &World, name: &str, member: &str, pause: &str) -> String {
    let script = format!("{}; sleep {pause}", mark(world, member));
    let stray = json!({ "spawn": { "argv": ["sleep", MARK], "detach": true, "newSession": true } });
    let steps = json!([stray, { "run": ["sh", "-c", script] }, { "say": format!("{name} did it") }]);
    world.scenario(name, json!([{ "times": 0, "steps": steps }]))
}

fn spec(world: &World, kind: &str) -> Value {
    let plain = |id: &str| agent(id, "Do your part.", &worker(world, id, "", "0.05"));
    let nodes = match kind {
        "loop" => return repairing(world),
        "gate" => json!([plain("before"), { "id": "ask", "kind": "human_gate", "prompt": "Go on?" }, plain("after")]),
        "fan" => {
            let members = [("one", "0.02"), ("two", "0.1"), ("three", "0.25")].map(|(name, pause)| {
                let model = worker(world, name, &format!(":{name}"), pause);
                json!({ "name": name, "engine": "scripted", "model": model })
            });
            json!([{ "id": "fan", "kind": "fanout", "prompt": "Say what you think.", "agents": members }, plain("after")])
        }
        "sub" => {
            let contract = json!({ "checks": [{ "type": "command", "cmd": "true" }] });
            let child = json!({ "name": "child", "contract": contract, "nodes": [plain("inner"), plain("second")] });
            json!([plain("before"), { "id": "sub", "kind": "subflow", "workflow": child }, plain("after")])
        }
        "retry" => {
            let script = format!("{}; test $CLAWO_ATTEMPT -ge 2", mark(world, ""));
            let contract = json!({ "checks": [{ "type": "command", "cmd": "sh", "args": ["-c", script] }] });
            let flaky = json!({ "id": "flaky", "kind": "verifier", "contract": contract,
                "retry": { "max": 2, "backoffMs": 150 } });
            json!([plain("before"), flaky, plain("after")])
        }
        other => panic!("no kind {other}"),
    };
    json!({ "name": kind, "nodes": nodes })
}

/// Implement, verify, back to implement: the first try is wrong.
fn repairing(world: &World) -> Value {
    let mark = mark(world, "");
    let step = || json!({ "run": ["sh", "-c", format!("{mark}; sleep 0.05")] });
    let turn = |value: &str| {
        let stray = json!({ "spawn": { "argv": ["sleep", MARK], "detach": true, "newSession": true } });
        json!([step(), stray, { "write": { "path": "value", "content": value } }, { "say": "done" }])
    };
    let fix = world.scenario(
        "fix",
        json!([{ "match": "say-right", "times": 0, "steps": turn("right\n") }, { "times": 0, "steps": turn("wrong\n") }]),
    );
    let look = format!("{mark}; sleep 0.05; grep -qx right value || {{ echo say-right; exit 1; }}");
    json!({
        "name": "loop",
        "contract": { "checks": [{ "type": "command", "cmd": "sh", "args": ["-c", look] }] },
        "nodes": [
            agent("prepare", "Get ready.", &worker(world, "prepare", "", "0.05")),
            with(agent("implement", "Make it work.", &fix), json!({ "onFailure": "continue" })),
            { "id": "verify", "kind": "verifier", "contract": "run", "onFailure": "continue" },
            { "id": "check", "kind": "router", "routes": [{ "when": { "type": "node_failed", "node": "verify" }, "to": "implement" }] },
        ],
    })
}

/// How often each `node.visit` ran.
fn witnessed(world: &World) -> BTreeMap<String, usize> {
    let text = std::fs::read_to_string(world.root().join("witness")).unwrap_or_default();
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

/// What a run came to, without times and tries: states, visits, verdict, and the files of the project.
fn end(world: &World, view: &Value) -> Value {
    let said = |node: &Value| {
        if node["kind"] == "agent" || node["kind"] == "fanout" { node["output"].clone() } else { Value::Null }
    };
    let nodes: Vec<Value> =
        view["nodes"].as_array().unwrap().iter().map(|n| json!([n["id"], n["state"], n["visits"], said(n)])).collect();
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(world.project()).unwrap().flatten() {
        if entry.path().is_file() {
            files.insert(entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap());
        }
    }
    json!({ "state": view["state"], "outcome": view["outcome"], "nodes": nodes,
        "passed": view["verdict"]["passed"], "files": files })
}

/// Every pass that is on the record as ended, members of a fan-out by themselves, from the logs.
fn recorded(world: &World) -> Vec<String> {
    let mut done = Vec::new();
    for run in std::fs::read_dir(world.home().join("wf")).into_iter().flatten().flatten() {
        for line in super::log_of(world, &run.file_name().into_string().unwrap()) {
            for event in line["events"].as_array().unwrap() {
                let node = event["node"].as_str().unwrap_or_default();
                let ended = ["succeeded", "failed"].contains(&event["state"].as_str().unwrap_or_default());
                match event["type"].as_str().unwrap() {
                    "node_state" if ended => done.push(format!("{node}.{}", event["visit"])),
                    "node_data" if event["data"]["ok"] == true => {
                        let key = event["key"].as_str().unwrap();
                        done.extend(key.strip_prefix("agent:").map(|member| format!("{node}:{member}.1")));
                    }
                    _ => {}
                }
            }
        }
    }
    done
}

/// What a client was answered.
#[derive(Default)]
struct Told {
    /// Events by run and number.
    events: BTreeMap<(String, u64), Vec<Value>>,
    /// Corrections that were taken.
    steers: Vec<String>,
    approved: bool,
}

impl Told {
    fn note(&mut self, view: &Value) {
        let run = view["runId"].as_str().unwrap();
        let mut now: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
        for event in view["events"].as_array().unwrap() {
            now.entry(event["seq"].as_u64().unwrap()).or_default().push(event.clone());
        }
        // The oldest may have lost some of its batch to the limit.
        for (seq, events) in now.into_iter().skip(1) {
            self.events.insert((run.to_owned(), seq), events);
        }
    }
}

/// Sums over all runs.
#[derive(Default)]
struct Sums {
    kills: AtomicU32,
    events: AtomicU32,
    answers: AtomicU32,
    passes: AtomicU32,
}

/// Store proof 3, kernel scenario 7, LW-2, LW-3: kills of real servers; every one is survived.
#[test]
fn kills_change_nothing() {
    let seed = std::env::var("CLAWO_TEST_SEED").ok().and_then(|s| s.parse().ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
    let seed: u64 = seed.unwrap_or(u64::from(now) | 1);
    println!("seed: CLAWO_TEST_SEED={seed}");
    let (wanted, begun) = (rounds("CLAWO_TEST_ROUNDS", 50), Instant::now());

    let calm: BTreeMap<&str, Value> = KINDS.map(|kind| (kind, undisturbed(kind))).into();
    let (sums, next) = (Sums::default(), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (sums, next, calm) = (&sums, &next, &calm);
            scope.spawn(move || {
                let mut random = Random((seed ^ (worker << 40)) | 1);
                while sums.kills.load(Ordering::Relaxed) < wanted {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let kind = KINDS[number as usize % KINDS.len()];
                    disturbed(kind, number, &mut random, &calm[kind], (sums, wanted));
                }
            });
        }
    });
    let sum = |of: &AtomicU32| of.load(Ordering::Relaxed);
    assert!(sum(&sums.passes) > 0, "no kill came after a pass had ended");
    within(Duration::from_secs(5), "nothing is left", || living(MARK).is_empty());
    say(&format!(
        "kill loop: {} kills in {} runs, {} acknowledged events and {} other answers, 0 lost; {} accepted passes, 0 ran twice; {:.0?}",
        sum(&sums.kills),
        sum(&next),
        sum(&sums.events),
        sum(&sums.answers),
        sum(&sums.passes),
        begun.elapsed(),
    ));
}

/// What a run of this kind comes to when nothing happens to it.
fn undisturbed(kind: &str) -> Value {
    let world = World::new();
    let mut host = Host::open(&world);
    host.start(&world, "calm", spec(&world, kind));
    let view = loop {
        let view = host.until("calm", |v| v["endedAt"].is_string() || v["state"] == "awaiting_human");
        if view["endedAt"].is_string() {
            break view;
        }
        host.call("workflow_approve", json!({ "runId": "calm", "approved": true }));
    };
    let end = end(&world, &view);
    assert_eq!(end["state"], "completed", "{view:#}");
    assert_eq!(host.close().0, 0);
    let counts = witnessed(&world);
    assert!(counts.iter().all(|(pass, n)| *n == if pass == "flaky.1" { 2 } else { 1 }), "{kind}: {counts:?}");
    end
}

/// One run under kills.
fn disturbed(kind: &str, number: u32, random: &mut Random, calm: &Value, (sums, wanted): (&Sums, u32)) {
    let world = World::new();
    let run = format!("{kind}-{number:03}-{}", std::process::id());
    let mark = format!("CLAWO_RUN_ID={run}");
    let mut told = Told::default();
    let mut done: BTreeMap<String, usize> = BTreeMap::new();
    let mut kills = 0;
    let mut host = Host::open(&world);
    host.start(&world, &run, spec(&world, kind));
    let begun = Instant::now();
    let last = loop {
        let killed = kills < KILLS_PER_RUN && kill_left(sums, wanted);
        if !lived_through(&mut host, &run, random, &mut told, killed) {
            // It came too late; somebody else gets it.
            sums.kills.fetch_sub(u32::from(killed), Ordering::Relaxed);
            break host.call("workflow_status", json!({ "runId": run, "events": 500 }));
        }
        host.crash();
        kills += 1;
        assert!(begun.elapsed() < 3 * PATIENCE, "{run} does not end");
        // The agents of the dead end by themselves; what they write until then belongs to the pass in flight.
        within(Duration::from_secs(5), "the agents of the killed server are gone", || living(&mark).is_empty());
        let counts = witnessed(&world);
        for pass in recorded(&world) {
            done.entry(pass.clone()).or_insert_with(|| counts.get(&pass).copied().unwrap_or_default());
        }
        host = Host::open(&world);
        let resumed = host.call("workflow_resume", json!({ "runId": run }));
        assert_eq!(resumed["runId"], *run, "{resumed}");
        assert!(!told.approved || resumed["state"] != "awaiting_human", "an approval that was answered is gone");
    };
    assert_eq!(&end(&world, &last), calm, "{run} after {kills} kills: {last:#}");
    let counts = witnessed(&world);
    for (pass, count) in &done {
        assert_eq!(counts.get(pass).copied().unwrap_or_default(), *count, "{pass} ended and ran again: {counts:?}");
    }
    for (pass, count) in &counts {
        assert!(*count <= kills as usize + 2, "{pass} ran {count} times in {kills} kills");
    }
    kept(&mut host, &told);
    assert_eq!(host.close().0, 0);
    within(Duration::from_secs(5), "nothing of the run is left", || living(&mark).is_empty());
    sums.events.fetch_add(told.events.values().map(|e| u32::try_from(e.len()).unwrap()).sum(), Ordering::Relaxed);
    let others = told.steers.len() + usize::from(told.approved) + 1;
    sums.answers.fetch_add(u32::try_from(others).unwrap(), Ordering::Relaxed);
    sums.passes.fetch_add(u32::try_from(done.len()).unwrap(), Ordering::Relaxed);
}

/// Takes one of the kills that are left.
fn kill_left(sums: &Sums, wanted: u32) -> bool {
    sums.kills.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < wanted).then_some(n + 1)).is_ok()
}

/// Follows a run until a random moment; false when it ended before. A request may be on its way at that moment.
fn lived_through(host: &mut Host, run: &str, random: &mut Random, told: &mut Told, killed: bool) -> bool {
    let moment = Instant::now() + Duration::from_millis(10 + random.below(800));
    let mut steered = random.below(3) > 0;
    loop {
        let view = host.call("workflow_status", json!({ "runId": run, "events": 40, "waitMs": 20 }));
        told.note(&view);
        if view["endedAt"].is_string() {
            return false;
        }
        for child in view["nodes"].as_array().unwrap().iter().filter_map(|n| n["childRunId"].as_str()) {
            // It is named a moment before it is made.
            let id = host.send_call("workflow_status", json!({ "runId": child, "events": 40 }));
            let answer = host.answer(id);
            if answer["result"]["isError"] == false {
                told.note(&answer["result"]["structuredContent"]);
            }
        }
        if killed && Instant::now() > moment {
            match random.below(3) {
                0 if view["state"] == "awaiting_human" => {
                    host.send_call("workflow_approve", json!({ "runId": run, "approved": true }));
                    std::thread::sleep(Duration::from_millis(random.below(20)));
                }
                1 => {
                    host.send_call("workflow_steer", json!({ "runId": run, "text": "not answered" }));
                    std::thread::sleep(Duration::from_millis(random.below(10)));
                }
                _ => {}
            }
            return true;
        }
        if view["state"] == "awaiting_human" && (!killed || random.below(8) == 0) {
            let id = host.send_call("workflow_approve", json!({ "runId": run, "approved": true }));
            let answer = host.answer(id);
            let code = &answer["result"]["structuredContent"]["code"];
            // One that was not answered before the last kill may have been taken.
            assert!(answer["result"]["isError"] == false || code == "gate_not_waiting", "{answer:#}");
            told.approved = true;
        }
        if std::mem::take(&mut steered) {
            let text = format!("note {} of {run}", told.steers.len());
            let id = host.send_call("workflow_steer", json!({ "runId": run, "text": text }));
            let answer = host.answer(id);
            if answer["result"]["isError"] == false {
                told.steers.push(text);
            } else {
                assert_eq!(answer["result"]["structuredContent"]["code"], "run_terminal", "{answer:#}");
            }
        }
    }
}

/// Everything the client was told is there, as it was told.
fn kept(host: &mut Host, told: &Told) {
    let mut there: BTreeMap<(String, u64), Vec<Value>> = BTreeMap::new();
    let mut steers = Vec::new();
    let runs: std::collections::BTreeSet<&String> = told.events.keys().map(|(run, _)| run).collect();
    for run in runs {
        let view = host.call("workflow_status", json!({ "runId": run, "events": 500 }));
        let events = view["events"].as_array().unwrap();
        assert!(events.len() < 500, "too many to compare");
        for event in events {
            there.entry((run.clone(), event["seq"].as_u64().unwrap())).or_default().push(event.clone());
            steers.extend((event["event"]["type"] == "steer").then(|| event.to_string()));
        }
    }
    assert!(told.events.len() > 3, "the client was told of {} commits", told.events.len());
    for (at, events) in &told.events {
        assert_eq!(there.get(at), Some(events), "told of commit {at:?}, which is gone or changed");
    }
    for text in &told.steers {
        assert_eq!(steers.iter().filter(|s| s.contains(text)).count(), 1, "the correction {text:?}: {steers:?}");
    }
}
