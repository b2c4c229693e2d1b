//! Runs that go on and on: five hundred visits, and an agent that says two hundred thousand things.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    host::{Host, run},
    huge::stand_in,
    many::closing,
};
use crate::support::{World, agent};

/// Longest that such a run may take on a busy machine.
const LONG: Duration = Duration::from_secs(180);

/// Bytes of the log by visit, in order of the visits. What comes before the first is the start of the run.
fn bytes_by_visit(log: &str) -> Vec<usize> {
    let mut visits = Vec::new();
    for line in log.lines() {
        let events: Value = serde_json::from_str(line).unwrap();
        let entered = |e: &&Value| e["type"] == "node_state" && e["state"] == "running";
        match events["events"].as_array().unwrap().iter().filter(entered).count() {
            // What a visit is ended by belongs to it.
            0 => drop(visits.last_mut().map(|last| *last += line.len())),
            count => visits.extend(vec![line.len() / count; count]),
        }
    }
    visits
}

/// Kernel 4.2 and the sizes of the store: a loop of fifty nodes is gone round until there were five hundred visits, and
/// the last ones leave no more on the disk than the first.
#[test]
fn five_hundred_visits_stay_small() {
    let begun = Instant::now();
    let world = World::new();
    let turn =
        json!({ "times": 0, "steps": [{ "write": { "path": "made", "content": "x" } }, { "say": "x".repeat(200) }] });
    let model = world.scenario("loop", json!([turn]));
    let mut nodes = vec![agent("n00", "go on", &model)];
    nodes.extend((1..49).map(|n| json!({ "id": format!("n{n:02}"), "kind": "router", "routes": [] })));
    let again = json!({ "type": "visits_lt", "node": "n00", "n": 10 });
    nodes.push(json!({ "id": "n49", "kind": "router", "routes": [{ "when": again, "to": "n00" }] }));
    let mut host = Host::open(&world);
    host.start(&world, "round", json!({ "name": "round", "nodes": nodes }));
    let view = host.until_in(LONG, "round", |v| v["endedAt"].is_string());
    assert_eq!((&view["state"], &view["spend"]["turns"]), (&json!("completed"), &json!(10)), "{view:#}");
    let nodes = view["nodes"].as_array().unwrap();
    assert!(nodes.len() == 50 && nodes.iter().all(|n| n["visits"] == 10), "{view:#}");
    small(&mut host, &world, "round", 500);

    // One node five hundred times.
    let again = json!({ "type": "visits_lt", "node": "one", "n": 500 });
    let router = json!({ "id": "one", "kind": "router", "routes": [{ "when": again, "to": "one" }] });
    host.start(&world, "spin", json!({ "name": "spin", "maxNodeVisits": 500, "nodes": [router] }));
    let view = host.until_in(LONG, "spin", |v| v["endedAt"].is_string());
    assert_eq!((&view["state"], &view["nodes"][0]["visits"]), (&json!("completed"), &json!(500)), "{view:#}");
    let log = small(&mut host, &world, "spin", 500);
    let visits = bytes_by_visit(&log);
    assert_eq!(visits.len(), 500);
    let (first, last): (usize, usize) = (visits[..100].iter().sum(), visits[400..500].iter().sum());
    assert!(last.abs_diff(first) * 10 <= first, "the first hundred visits take {first} bytes, the last {last}");

    // An agent again and again, as often as there is time for.
    let most = std::env::var("CLAWO_TEST_AGENT_VISITS").map_or(40, |n| n.parse().unwrap());
    let again = json!({ "type": "visits_lt", "node": "a", "n": most });
    let router = json!({ "id": "loop", "kind": "router", "routes": [{ "when": again, "to": "a" }] });
    let spec = json!({ "name": "agents", "maxNodeVisits": most, "nodes": [agent("a", "go on", &model), router] });
    host.start(&world, "agents", spec);
    let view = host.until_in(LONG * 4, "agents", |v| v["endedAt"].is_string());
    assert_eq!((&view["state"], &view["spend"]["turns"]), (&json!("completed"), &json!(most)), "{view:#}");
    let log = small(&mut host, &world, "agents", 2 * most);
    let visits = bytes_by_visit(&log);
    assert_eq!(visits.len(), 2 * most);
    let part = most / 4;
    let of = |from: usize| visits[2 * from..2 * (from + part)].iter().sum::<usize>();
    // The first visit carries the start of the run.
    let (first, last) = (of(1), of(most - part - 1));
    assert!(last.abs_diff(first) * 10 <= first, "the first {part} rounds take {first} bytes, the last {last}");
    assert_eq!(host.close().0, 0);
    closing(
        &format!("500 visits of 50 nodes, 500 of one, {most} of an agent ({first} and {last} bytes a {part})"),
        begun,
    );
}

/// Asserts the bounds of a run and gives its log.
fn small(host: &mut Host, world: &World, id: &str, visits: usize) -> String {
    let dir = world.run_dir(id);
    let record = std::fs::metadata(dir.join("run.json")).unwrap().len();
    assert!(record < 64 << 10, "run.json of {id} has {record} bytes");
    for events in [0, 500] {
        let call = host.send_call("workflow_status", json!({ "runId": id, "events": events }));
        let answer = host.answer(call).to_string().len();
        assert!(answer < 100_000, "a status of {id} with {events} events has {answer} bytes");
    }
    let log = std::fs::read_to_string(dir.join("events.jsonl")).unwrap();
    assert!(log.len() < visits * 2000, "{} bytes for {visits} visits", log.len());
    log
}

/// DS-6: two hundred thousand events of an agent leave a few bounded lines, take bounded memory and starve nobody.
#[test]
fn two_hundred_thousand_events_starve_nobody() {
    const EVENTS: usize = 200_000;
    let begun = Instant::now();
    let mut world = World::new();
    let stop = world.root().join("stop");
    let text = "y".repeat(600);
    let line = json!({ "type": "assistant", "parent_tool_use_id": null,
        "message": { "id": "m", "content": [{ "type": "text", "text": format!("so it goes {text}") }] } });
    // Goes on until it is told to stop, however fast that comes, so that the calls below fall into its turn.
    let talk = format!(
        "n=0; while [ $n -lt 10 ] || [ ! -e '{}' ]; do n=$((n+1)); yes '{line}' | head -n {}; done",
        stop.display(),
        EVENTS / 10
    );
    stand_in(&mut world, &talk, r#"printf 'done'"#);
    let mut host = Host::open(&world);
    let node = json!({ "id": "a", "kind": "agent", "prompt": "talk", "engine": "claude" });
    host.start(&world, "talk", json!({ "name": "talk", "nodes": [node] }));
    host.until("talk", |v| v["nodes"][0]["state"] == "running");
    let (before, _) = host.memory();
    // Others are served meanwhile: runs, listings, statuses, steers.
    let routers = json!({ "name": "r", "nodes": [{ "id": "one", "kind": "router", "routes": [] }] });
    for n in 0..5 {
        host.start(&world, &format!("other{n}"), routers.clone());
        host.until(&format!("other{n}"), |v| v["state"] == "completed");
        assert_eq!(host.call("workflow_list", json!({}))["runs"].as_array().unwrap().len(), n + 2);
        let call = host.send_call("workflow_status", json!({ "runId": "talk", "events": 500 }));
        let answer = host.answer(call);
        assert_eq!(answer["result"]["structuredContent"]["state"], "running", "{answer:#}");
        assert!(answer.to_string().len() < 100_000, "{}", answer.to_string().len());
    }
    host.call("workflow_steer", json!({ "runId": "talk", "text": "say less" }));
    assert_eq!(run(&world, &["workflow", "show", "talk", "--json"], 0).json()["state"], "running");
    std::fs::write(&stop, "").unwrap();
    let view = host.until_in(LONG, "talk", |v| v["endedAt"].is_string());
    assert_eq!((&view["state"], &view["nodes"][0]["output"]), (&json!("completed"), &json!("done")), "{view:#}");
    let (_, peak) = host.memory();
    let grown = peak.saturating_sub(before);
    assert!(grown < 64 << 10, "memory grew by {grown} KiB");
    let log = std::fs::read_to_string(world.run_dir("talk").join("events.jsonl")).unwrap();
    let logged = log.matches("so it goes").count();
    assert!(logged < 200 && log.contains("further lines of this visit are not kept"), "{logged} lines are kept");
    assert!(log.len() < 200 * 700 + 20_000, "the log has {} bytes", log.len());
    small(&mut host, &world, "talk", 100);
    let all: u64 = world
        .listing()
        .iter()
        .filter(|p| p.starts_with(world.run_dir("talk")))
        .map(|p| std::fs::metadata(p).unwrap().len())
        .sum();
    assert!(all < 300_000, "the run takes {all} bytes");
    assert_eq!(host.close().0, 0);
    closing(&format!("{EVENTS} events or more, {logged} kept, log of {} bytes, memory +{grown} KiB", log.len()), begun);
}
