//! The worst tree an agent can leave, ended in every way a node or a server can end.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{living, mark, say, sleeping};
use crate::{
    server::host::{Host, PATIENCE, shown, within},
    support::{World, agent, with},
};

/// How long a tree may live after its server was killed.
const BOUND: Duration = Duration::from_secs(5);
/// How long nothing must be seen before it is believed: the links of a relay can hide from a look.
const QUIET: Duration = Duration::from_millis(700);

/// Children in the background, sessions of their own, double forks, ignored signals, stopped members, one without its
/// environment, and relays: each link starts the next one and ends, every 25th leaves a sleeper. Whoever looks finds
/// other processes than the moment before. A relay ends by itself after some thousand links.
fn script(mark: &str) -> String {
    format!(
        r#"sleep {mark} &
        setsid sh -c 'trap "" TERM HUP INT; while :; do sleep 1; done' {mark} &
        (setsid sh -c '(sleep {mark} &) ; exec sleep {mark}' &)
        sh -c 'kill -STOP $$; sleep {mark}' &
        setsid sh -c 'sh -c "sleep {mark} & kill -STOP \$\$; sleep {mark}" & kill -STOP $$' {mark} &
        env -i PATH="$PATH" setsid sh -c 'sleep {mark} & wait' {mark} &
        relay='[ "$1" -gt 0 ] || exit 0
            [ $(($1 % 25)) -ne 0 ] || setsid sleep {mark} &
            setsid sh -c "$relay" {mark} $(($1 - 1)) &
            exit 0'
        export relay
        sh -c "$relay" {mark} 4000 & (setsid sh -c "$relay" {mark} 4000 &)"#
    )
}

/// A run whose agent leaves that tree and then does `last`.
fn spec(world: &World, mark: &str, last: &Value) -> Value {
    let steps =
        json!(["ignoreSigterm", "ignoreInterrupt", { "run": ["sh", "-c", script(mark)] }, { "say": "wild" }, last]);
    let model = world.scenario(mark, json!([{ "times": 0, "steps": steps }]));
    json!({ "name": "tree", "nodes": [agent("a", "Go wild.", &model)] })
}

/// Nothing is seen from `bound` on, nor for a while before that is said. Gives how long something was seen.
#[track_caller]
fn vanishes(how: &str, marks: &[&str], bound: Duration) -> Duration {
    let begun = Instant::now();
    let mut quiet = Duration::ZERO;
    while begun.elapsed() < quiet + QUIET {
        let looked = begun.elapsed();
        let seen: Vec<String> = marks.iter().flat_map(|mark| living(mark)).collect();
        if !seen.is_empty() {
            assert!(looked < bound, "{how}: there after {looked:?}: {seen:#?}");
            quiet = begun.elapsed();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    quiet
}

/// What all processes of a server, its supervisors included, have in their environment.
fn owner(mark: &str) -> String {
    let of = |line: &String| -> Option<String> {
        let environ = std::fs::read(format!("/proc/{}/environ", line.split_once(' ')?.0)).ok()?;
        let environ = String::from_utf8_lossy(&environ).into_owned();
        environ.split('\0').find(|entry| entry.starts_with("CLAWO_OWNER=")).map(str::to_owned)
    };
    sleeping(mark).iter().find_map(of).expect("one with its environment")
}

/// ZP-1 to ZP-4: ended by a cancel, by the node's time limit, by the node's own end, by SIGKILL of the server. Nothing
/// of it is left within seconds, and a neighbour's processes live through all of it.
#[test]
fn no_tree_outlives_what_started_it() {
    let calm = mark(47_120_800);
    let (world, next_door) = (World::new(), World::new());
    let mut neighbour = Host::open(&next_door);
    let model = next_door.scenario(
        "calm",
        json!([{ "times": 0, "steps": [
        { "spawn": { "argv": ["sleep", calm], "detach": true, "newSession": true } }, "hang" ] }]),
    );
    neighbour.start(&next_door, "calm", json!({ "name": "calm", "nodes": [agent("a", "x", &model)] }));
    within(PATIENCE, "the neighbour's child", || !sleeping(&calm).is_empty());
    let theirs = sleeping(&calm);

    let mut host = Host::open(&world);
    let mut took = Vec::new();
    for (how, number) in [("cancel", 47_120_801), ("limit", 47_120_802), ("end", 47_120_803), ("kill", 47_120_804)] {
        let mark = mark(number);
        let mark = mark.as_str();
        let id = format!("{how}-{}", std::process::id());
        let script = format!("while [ ! -e ../go-{mark} ]; do sleep 0.05; done");
        let last = if how == "end" { json!({ "run": ["sh", "-c", script] }) } else { json!("hang") };
        let mut spec = spec(&world, mark, &last);
        if how == "limit" {
            let node = with(spec["nodes"][0].clone(), json!({ "timeoutMs": 6000 }));
            spec["nodes"] = json!([node]);
        }
        host.start(&world, &id, spec);
        within(PATIENCE, "a wild tree", || sleeping(mark).len() >= 9);
        std::fs::write(world.root().join(format!("go-{mark}")), "").unwrap();
        let killed = (how == "kill").then(|| owner(mark));
        let begun = Instant::now();
        match how {
            "cancel" => {
                let view = host.call("workflow_cancel", json!({ "runId": id }));
                assert_eq!(view["state"], "cancelled", "{view:#}");
            }
            "limit" | "end" => {
                let view = host.until(&id, |v| v["endedAt"].is_string());
                assert_eq!(view["state"], if how == "end" { "completed" } else { "failed" }, "{view:#}");
            }
            _ => std::mem::replace(&mut host, Host::open(&next_door)).crash(),
        }
        let ended = begun.elapsed();
        let run = format!("CLAWO_RUN_ID={id}");
        // Where the server lives, the run has ended only when its processes have.
        let took_until = match &killed {
            Some(owner) => vanishes(how, &[mark, &run, owner], BOUND),
            None => ended + vanishes(how, &[mark, &run], Duration::ZERO),
        };
        took.push(format!("{how} {took_until:.1?}"));
        if how == "kill" {
            shown(&world, &id, |v| v["interrupted"] == true);
        }
    }
    assert_eq!(sleeping(&calm), theirs, "the neighbour's");
    assert_eq!(neighbour.until("calm", |_| true)["live"], true);
    neighbour.call("workflow_cancel", json!({ "runId": "calm" }));
    assert_eq!(living(&calm), [""; 0]);
    say(&format!("wild trees: 4 ended, 0 processes left, 0 of the neighbour's touched; {}", took.join(", ")));
}
