//! Many runs: fifty at the same time, and ten thousand that are stored.

use std::{
    collections::BTreeSet,
    io::Write,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use claw_orchestrator::{
    model::RunId,
    store::{FileStore, NewRun, Options, Store},
    sys::{Fs, SystemClock},
};
use serde_json::{Value, json};

use super::host::{Host, PATIENCE, run, within};
use crate::support::{World, agent, check, files::NoSync, processes, verifier, with};

/// Longest that fifty runs may take on a busy machine.
const LONG: Duration = Duration::from_secs(180);

/// Kernel scenario 19, CC-1: fifty runs at once, of agents, fan-outs, checks and gates, all end right, and never are
/// there more agents than the limit says.
#[test]
fn fifty_runs_at_once_end_right() {
    let begun = Instant::now();
    let mut world = World::new();
    world.env.insert("CLAWO_MAX_SESSIONS".to_owned(), "3".to_owned());
    let mark = world.root().file_name().unwrap().to_string_lossy().into_owned();
    let live = world.root().join("live");
    let script = format!("f='{0}'/$$; mkdir -p '{0}'; touch $f; ls '{0}' | wc -l >> '{0}.max'; rm $f", live.display());
    let turn = json!({ "times": 0, "steps": [{ "run": ["sh", "-c", script] }, { "say": "done" }] });
    let model = world.scenario("short", json!([turn]));
    let member = |name: &str| json!({ "name": name, "engine": "scripted", "model": model });
    let fan = json!({ "id": "fan", "kind": "fanout", "prompt": "x", "agents": [member("one"), member("two")] });
    let gate = json!({ "id": "ask", "kind": "human_gate", "prompt": "?" });
    let again = json!({ "type": "visits_lt", "node": "a", "n": 2 });
    let router = json!({ "id": "loop", "kind": "router", "routes": [{ "when": again, "to": "a" }] });
    let specs = [
        json!({ "name": "loop", "nodes": [agent("a", "x", &model), verifier("v", &["true"]), router] }),
        json!({ "name": "gate", "contract": check(&["true"]), "nodes": [gate, agent("a", "x", &model)] }),
        json!({ "name": "fan", "contract": check(&["true"]), "nodes": [fan] }),
        json!({ "name": "red", "nodes": [agent("a", "x", &model), verifier("v", &["false"])] }),
        json!({ "name": "plain", "nodes": [with(agent("a", "x", &model), json!({ "retry": { "max": 1 } }))] }),
    ];
    let ends = [
        ("completed", "verified"),
        ("completed", "verified"),
        ("completed", "verified"),
        ("failed", "refuted"),
        ("completed", "unverified"),
    ];
    let mut host = Host::open(&world);
    let id = |n: usize| format!("r{n:02}");
    for n in 0..50 {
        host.start(&world, &id(n), specs[n % 5].clone());
    }
    for n in (0..50).filter(|n| n % 5 == 1) {
        host.until_in(LONG, &id(n), |v| v["state"] == "awaiting_human");
        host.call("workflow_approve", json!({ "runId": id(n), "approved": true }));
    }
    let mut turns = 0;
    for n in 0..50 {
        let view = host.until_in(LONG, &id(n), |v| v["endedAt"].is_string());
        assert_eq!(
            (view["state"].as_str(), view["outcome"].as_str()),
            (Some(ends[n % 5].0), Some(ends[n % 5].1)),
            "{view:#}"
        );
        turns += view["spend"]["turns"].as_u64().unwrap();
        within(PATIENCE, "it is let go", || !world.run_dir(&id(n)).join("lease.json").exists());
    }
    assert_eq!(turns, 10 * (2 + 1 + 2 + 1 + 1), "every agent took its turn and no more");
    let most = std::fs::read_to_string(live.with_extension("max")).unwrap();
    let most: Vec<u32> = most.lines().map(|l| l.trim().parse().unwrap()).collect();
    assert_eq!(most.len(), 70);
    assert!(most.iter().all(|n| *n <= 3), "more than three agents at once: {most:?}");
    assert_eq!(host.close().0, 0);
    within(PATIENCE, "no process is left", || processes(&mark).is_empty());
    closing("50 runs, 70 turns", begun);
}

/// Stores `count` copies of a finished run, oldest first, with everything a finished run has.
fn store(world: &World, template: &str, count: usize) -> Vec<String> {
    let options = |fs: Arc<dyn Fs>| Options {
        home: world.home(),
        wf_dir: world.home().join("wf"),
        fs,
        clock: Arc::new(SystemClock),
        instance: "copies".to_owned(),
        host: "here".to_owned(),
        pid: std::process::id(),
        min_free: 0,
    };
    let named = RunId::parse(template).unwrap();
    let store = FileStore::open(options(Arc::new(NoSync))).unwrap();
    let done = store.load(&named).unwrap();
    let (_, record) = done.checkpoint.unwrap();
    let events = store.lines(&named, 0, 1000).unwrap().into_iter().flat_map(|l| l.events);
    let events: Vec<Value> = events.filter(|e| e["type"] != "fence").collect();
    let (events, record) = (json!(events).to_string(), record.to_string());
    let name = |n: usize| format!("stored-{n:05}");
    for n in 0..count {
        let renamed = |text: &str| serde_json::from_str(&text.replace(template, &name(n))).unwrap();
        let Value::Array(events) = renamed(&events) else { panic!("not a list") };
        let run_id = RunId::parse(&name(n)).unwrap();
        let run = NewRun { run_id, spec: done.spec.clone(), events, artifacts: Vec::new() };
        let mut claim = store.create(run).unwrap();
        claim.checkpoint(&renamed(&record).to_string());
        claim.release().unwrap();
    }
    (0..count).map(name).collect()
}

/// DS-5 and the index of listings: ten thousand stored runs are listed page by page, each once and newest first, one
/// damaged run hides no other, and what a server remembers of them is small.
#[test]
fn ten_thousand_stored_runs_are_listed() {
    const STORED: usize = 10_000;
    let begun = Instant::now();
    let world = World::new();
    let mut host = Host::open(&world);
    let routers = json!({ "name": "routers", "nodes": [{ "id": "one", "kind": "router", "routes": [] }] });
    host.start(&world, "first-of-them", routers.clone());
    host.until("first-of-them", |v| v["state"] == "completed");
    assert_eq!(host.close().0, 0);
    let mut wanted = vec!["first-of-them".to_owned()];
    wanted.extend(store(&world, "first-of-them", STORED));
    wanted.reverse();
    let stored = begun.elapsed();

    let damaged = "stored-05000";
    let log = world.run_dir(damaged).join("events.jsonl");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&log, bytes).unwrap();

    let mut host = Host::open(&world);
    // A call that reads nothing, so that what is measured is the index.
    assert_eq!(host.refused("workflow_status", json!({ "runId": "nobody" })), "run_not_found");
    let (before, _) = host.memory();
    // The first thousand in pages of 25, the others in larger ones, unless there is time for all.
    let small = std::env::var("CLAWO_TEST_SMALL_PAGES").map_or(40, |n| n.parse().unwrap());
    let (mut seen, mut cursor, mut pages) = (Vec::new(), Value::Null, 0);
    loop {
        let limit = if pages < small { 25 } else { 500 };
        let page = host.call("workflow_list", json!({ "limit": limit, "cursor": cursor }));
        pages += 1;
        for run in page["runs"].as_array().unwrap() {
            let id = run["runId"].as_str().unwrap();
            if id == damaged {
                assert!(run["damaged"].as_str().unwrap().contains("line 1"), "{run}");
            } else {
                assert_eq!((&run["state"], &run["damaged"]), (&json!("completed"), &Value::Null), "{run}");
            }
            seen.push(id.to_owned());
        }
        cursor = page["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
        // A page of 500 may be cut so that the answer stays short.
        let shown = page["runs"].as_array().unwrap().len();
        assert!(shown == limit || (limit == 500 && shown > 25), "{shown} of {limit}");
    }
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), STORED + 1, "each once");
    assert!(seen == wanted, "newest first: {:?} ... {:?}", &seen[..3], &seen[STORED - 2..]);
    let walked = begun.elapsed();
    let (after, _) = host.memory();
    let grown = after.saturating_sub(before);
    assert!(grown < 20 << 10, "the index of {STORED} runs takes {grown} KiB");

    let view = host.call("workflow_status", json!({ "runId": "stored-00007" }));
    assert_eq!((&view["state"], &view["workflow"]), (&json!("completed"), &json!("routers")));
    assert_eq!(host.refused("workflow_status", json!({ "runId": damaged })), "run_corrupt");
    assert_eq!(
        host.refused("workflow_start", json!({ "spec": routers, "cwd": world.project(), "runId": damaged })),
        "run_exists"
    );
    host.start(&world, "newest", routers);
    host.until("newest", |v| v["state"] == "completed");
    host.call("workflow_delete", json!({ "runId": "stored-00009" }));
    let first = host.call("workflow_list", json!({ "limit": 2 }));
    assert_eq!(first["runs"][0]["runId"], "newest");
    assert_eq!(first["runs"][1]["runId"], wanted[0]);
    assert_eq!(host.close().0, 0);
    // Other servers, and the command line, find all of them again.
    let runs = |dir: PathBuf| {
        std::fs::read_dir(dir)
            .unwrap()
            .filter(|e| !e.as_ref().unwrap().file_name().to_string_lossy().starts_with('.'))
            .count()
    };
    let there = run(&world, &["workflow", "list", "--limit", "500", "--json"], 0).json();
    assert_eq!(there["runs"].as_array().unwrap().len(), 500);
    assert_eq!(runs(world.home().join("wf")), STORED + 1, "one deleted, one new, nothing else cleared");
    closing(
        &format!("{STORED} runs stored in {stored:.1?}, walked in {:.1?}, index {grown} KiB", walked - stored),
        begun,
    );
}

/// What a long test did, for people.
pub(super) fn closing(what: &str, begun: Instant) {
    let _ = writeln!(std::io::stderr(), "load: {what}; {:.1?} in all", begun.elapsed());
}
