//! Many servers on one home: each run is executed once, whoever wants it, and nothing is taken for broken.

use std::{
    collections::BTreeMap,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{living, rounds, say};
use crate::{
    server::host::{Host, PATIENCE, run, show, shown, within},
    support::{World, agent},
};

/// Servers that want one interrupted run.
const SERVERS: usize = 4;

/// OF-2, kernel scenario 8: an interrupted run is wanted by several servers; one executes it, the others get its name.
#[test]
fn one_of_many_servers_resumes() {
    let begun = Instant::now();
    let world = World::new();
    let calls = world.root().join("calls");
    let script = format!("echo x >> '{}'; exec sleep 47120111", calls.display());
    let model = world.scenario("hang", json!([{ "times": 0, "steps": [{ "run": ["sh", "-c", script] }] }]));
    let id = format!("wanted-{}", std::process::id());
    let mark = format!("CLAWO_RUN_ID={id}");
    let called = || std::fs::read_to_string(&calls).unwrap_or_default().lines().count();
    let mut owner = Host::open(&world);
    owner.start(&world, &id, json!({ "name": "w", "nodes": [agent("a", "x", &model)] }));
    within(PATIENCE, "its agent", || called() == 1);
    owner.crash();
    within(Duration::from_secs(5), "its agent is gone", || living(&mark).is_empty());
    let mut hosts: Vec<Host> = (0..SERVERS).map(|_| Host::open(&world)).collect();
    let rounds = rounds("CLAWO_TEST_RACES", 60) as usize / 5;
    for round in 1..=rounds {
        let asked: Vec<u64> =
            hosts.iter_mut().map(|host| host.send_call("workflow_resume", json!({ "runId": id }))).collect();
        let answers: Vec<Value> =
            hosts.iter_mut().zip(asked).map(|(host, n)| host.answer(n)["result"].clone()).collect();
        let won: Vec<usize> = (0..SERVERS).filter(|n| answers[*n]["isError"] == false).collect();
        assert_eq!(won.len(), 1, "round {round}: {answers:#?}");
        let winner = won[0];
        let pid = hosts[winner].pid().to_string();
        for (n, answer) in answers.iter().enumerate().filter(|(n, _)| *n != winner) {
            let refused = &answer["structuredContent"];
            assert_eq!(refused["code"], "run_owned", "round {round}, server {n}: {refused}");
            assert!(refused["error"].as_str().unwrap().contains(&pid), "round {round}: {refused} is not about {pid}");
        }
        within(PATIENCE, "its agent", || called() > round);
        let next = Host::open(&world);
        std::mem::replace(&mut hosts[winner], next).crash();
        within(Duration::from_secs(5), "its agent is gone", || living(&mark).is_empty());
        assert_eq!(called(), round + 1, "one agent a round");
    }
    let view = show(&world, &id);
    assert_eq!((&view["nodes"][0]["visits"], &view["interrupted"]), (&json!(1), &json!(true)), "{view:#}");
    hosts[0].call("workflow_cancel", json!({ "runId": id }));
    say(&format!("races of {SERVERS} servers: {rounds} resumes, one agent each; {:.0?}", begun.elapsed()));
}

/// DS-3: eight servers on one home start twenty runs each, while others list and somebody holds every lock for
/// moments, as a reader does: all 160 are there, and nothing was moved, repaired or made anew.
#[test]
fn eight_servers_start_160_runs() {
    let begun = Instant::now();
    let world = World::new();
    let mut hosts: Vec<Host> = (0..8).map(|_| Host::open(&world)).collect();
    let format = std::fs::read(world.home().join("format")).unwrap();
    let wf = world.home().join("wf");
    let over = AtomicBool::new(false);
    let touched = std::thread::scope(|scope| {
        let watching = scope.spawn(|| disturb(&wf, &over));
        let spec = json!({ "name": "many", "nodes": [
            { "id": "one", "kind": "router", "routes": [] }, { "id": "two", "kind": "router", "routes": [] } ] });
        let mut asked = Vec::new();
        for n in 0..20 {
            for (h, host) in hosts.iter_mut().enumerate() {
                let start = json!({ "spec": spec, "cwd": world.project(), "runId": format!("many-{h}-{n}") });
                asked.push((h, host.send_call("workflow_start", start)));
                if n % 5 == 0 {
                    asked.push((h, host.send_call("workflow_list", json!({ "limit": 100 }))));
                }
            }
        }
        for (h, id) in asked {
            let answer = hosts[h].answer(id);
            assert_eq!(answer["result"]["isError"], false, "{answer:#}");
        }
        let listed = |host: &mut Host| host.call("workflow_list", json!({ "limit": 500, "state": "completed" }));
        let until = Instant::now() + PATIENCE;
        while listed(&mut hosts[0])["runs"].as_array().unwrap().len() < 160 {
            assert!(Instant::now() < until, "{:#}", listed(&mut hosts[0]));
            std::thread::sleep(Duration::from_millis(100));
        }
        over.store(true, Ordering::Relaxed);
        watching.join().unwrap()
    });
    for host in &mut hosts {
        assert_eq!(host.close().0, 0);
    }
    let listed = run(&world, &["workflow", "list", "--limit", "500", "--json"], 0).json();
    let runs = listed["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 160);
    assert!(runs.iter().all(|r| r["state"] == "completed"), "{listed:#}");
    for (id, inode) in &touched.inodes {
        assert_eq!(std::fs::metadata(wf.join(id)).unwrap().ino(), *inode, "{id} was moved or made anew");
    }
    assert_eq!(touched.inodes.len(), 160);
    for path in world.listing() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let odd = ["bad", "torn", "corrupt", "backup", ".old"].iter().any(|word| name.contains(word));
        assert!(!odd || !path.starts_with(&wf), "{}", path.display());
    }
    assert_eq!(std::fs::read(world.home().join("format")).unwrap(), format);
    shown(&world, "many-7-19", |v| v["state"] == "completed");
    say(&format!(
        "eight servers: 160 runs started, 0 moved or rebuilt, {} locks held by a bystander; {:.0?}",
        touched.locks,
        begun.elapsed()
    ));
}

/// What a bystander saw and did.
#[derive(Default)]
struct Touched {
    inodes: BTreeMap<String, u64>,
    locks: u32,
}

/// Looks at every run again and again, and holds every lock that is free for a moment.
fn disturb(wf: &Path, over: &AtomicBool) -> Touched {
    let mut touched = Touched::default();
    loop {
        // The last pass begins when everything is there; one under way may have missed what came behind it.
        let last = over.load(Ordering::Relaxed);
        for entry in std::fs::read_dir(wf).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            if name.starts_with('.') {
                continue;
            }
            let inode = std::fs::metadata(entry.path()).unwrap().ino();
            let first = *touched.inodes.entry(name.clone()).or_insert(inode);
            assert_eq!(first, inode, "{name} was moved or made anew");
            let lock =
                std::fs::OpenOptions::new().read(true).write(true).open(entry.path().join("owner.lock")).unwrap();
            if lock.try_lock().is_ok() {
                touched.locks += 1;
                std::thread::sleep(Duration::from_micros(300));
            }
        }
        if last {
            return touched;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
