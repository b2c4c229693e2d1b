//! Single things that are huge: a reply of 20 MB, a check that prints 5 GiB, lines of 40 MiB.

use std::{
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{host::Host, many::closing};
use crate::support::{World, agent, with};

/// Longest that such a run may take on a busy machine.
const LONG: Duration = Duration::from_secs(180);

/// Puts a program in the place of Claude Code that speaks its protocol: for a message it runs `talk`, which prints
/// lines, and ends the turn with the reply that `reply` prints, escaped as JSON.
pub(super) fn stand_in(world: &mut World, talk: &str, reply: &str) {
    let result = r#"{"type":"result","subtype":"success","is_error":false,"terminal_reason":"completed","num_turns":1,"session_id":"s","total_cost_usd":0.5,"usage":{"input_tokens":5,"output_tokens":7},"result":""#;
    let answer = r#"{"type":"control_response","response":{"subtype":"success","request_id":"clawo-1","response":{}}}"#;
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo 2.1.197; exit; }}\nwhile read -r line; do\n  case $line in\n  \
         *'\"control_request\"'*) echo '{answer}' ;;\n  \
         *'\"type\":\"user\"'*)\n    {talk}\n    printf '%s' '{result}'; {reply}; printf '\"}}\\n' ;;\n  esac\ndone\n"
    );
    let program = world.root().join("stand-in");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    world.env.insert("CLAWO_CLAUDE_BIN".to_owned(), program.to_string_lossy().into_owned());
}

/// The text of a node from `offset` on.
fn page(host: &mut Host, id: &str, offset: usize) -> Value {
    host.call("workflow_status", json!({ "runId": id, "node": "a", "offset": offset }))["nodeOutput"].clone()
}

/// Kernel scenario 20, HO-6: a reply of 20 MB is kept whole beside the record, which stays small, and other calls are
/// answered while it is taken in.
#[test]
fn a_reply_of_twenty_megabytes_stays_beside_the_record() {
    const BYTES: usize = 20_000_000;
    let begun = Instant::now();
    let mut world = World::new();
    // Two hundred thousand lines of a hundred bytes, newlines escaped.
    let piece = "x".repeat(99);
    stand_in(&mut world, ":", &format!("yes '{piece}\\n' | head -n 200000 | tr -d '\\n'"));
    let mut host = Host::open(&world);
    let (before, _) = host.memory();
    let node = json!({ "id": "a", "kind": "agent", "prompt": "x", "engine": "claude" });
    // What comes after it is told of it, within bounds.
    let model = world.scenario("reader", json!([{ "steps": [{ "say": "read" }] }]));
    let reader = with(agent("b", "and?", &model), json!({ "inputs": ["a"] }));
    host.start(&world, "huge", json!({ "name": "huge", "nodes": [node, reader] }));
    let begun_run = Instant::now();
    let mut answers = 0;
    let view = loop {
        let view = host.call("workflow_status", json!({ "runId": "huge" }));
        if view["endedAt"].is_string() {
            break view;
        }
        answers += 1;
        assert!(begun_run.elapsed() < LONG, "{view:#}");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(view["state"], "completed", "{view:#}");
    assert_eq!(view["nodes"][0]["outputBytes"], BYTES);
    let (_, peak) = host.memory();
    let dir = world.run_dir("huge");
    for events in [0, 500] {
        let call = host.send_call("workflow_status", json!({ "runId": "huge", "events": events }));
        assert!(host.answer(call).to_string().len() < 100_000);
    }
    assert!(std::fs::metadata(dir.join("run.json")).unwrap().len() < 64 << 10);
    assert!(std::fs::metadata(dir.join("events.jsonl")).unwrap().len() < 256 << 10);
    let text = std::fs::read(dir.join("nodes/a/v1a1/output.txt")).unwrap();
    assert_eq!(text.len(), BYTES);
    assert!(text.chunks(100).all(|line| line.ends_with(b"x\n")), "whole, line by line");
    let last = page(&mut host, "huge", BYTES - 105);
    assert_eq!(last["text"].as_str().unwrap(), format!("xxxx\n{piece}\n"));
    let first = page(&mut host, "huge", 0);
    assert_eq!(first["nextOffset"], first["text"].as_str().unwrap().len());
    let told = world.prompts("reader");
    assert!(told.len() == 1 && told[0].len() < 2 << 20, "{}", told[0].len());
    let grown = peak.saturating_sub(before) >> 10;
    assert!(grown < 200, "memory grew by {grown} MiB");
    assert_eq!(host.close().0, 0);
    closing(&format!("a reply of {BYTES} bytes, memory +{grown} MiB, {answers} statuses meanwhile"), begun);
}

/// HO-2: a check that prints 5 GiB is drained to its end; the beginning and the end are kept, the rest is counted.
#[test]
fn a_check_that_prints_five_gigabytes() {
    const BYTES: u64 = 5 << 30;
    let begun = Instant::now();
    let world = World::new();
    let mut host = Host::open(&world);
    let line = "0123456789 abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let script = format!("echo it begins; yes '{line}' | head -c {BYTES}; echo; echo it ends; exit 1");
    let check = json!({ "id": "loud", "type": "command", "cmd": "sh", "args": ["-c", script] });
    let node = json!({ "id": "v", "kind": "verifier", "contract": { "checks": [check] } });
    let (before, _) = host.memory();
    host.start(&world, "loud", json!({ "name": "loud", "nodes": [node] }));
    let (mut answers, began_run) = (0, Instant::now());
    let view = loop {
        let view = host.call("workflow_status", json!({ "runId": "loud" }));
        if view["endedAt"].is_string() {
            break view;
        }
        answers += 1;
        assert!(began_run.elapsed() < LONG, "{view:#}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let took = began_run.elapsed();
    assert_eq!((view["state"].as_str(), view["outcome"].as_str()), (Some("failed"), Some("refuted")), "{view:#}");
    assert!(answers > 0, "nobody was answered meanwhile");
    let (_, peak) = host.memory();
    let grown = peak.saturating_sub(before) >> 10;
    assert!(grown < 64, "memory grew by {grown} MiB");
    let evidence = host.call("workflow_evidence", json!({ "runId": "loud" }));
    let result = evidence["results"].as_array().unwrap().iter().find(|r| r["id"] == "loud").unwrap();
    let tail = result["tail"].as_str().unwrap();
    assert!(tail.len() < 10_000 && tail.ends_with("it ends"), "{tail}");
    let dir = world.run_dir("loud").join("evidence").join(view["evidenceId"].as_str().unwrap());
    let log = std::fs::read_to_string(dir.join("checks/loud.log")).unwrap();
    assert!(log.len() < 600_000, "{}", log.len());
    assert!(
        log.contains("\nout| it begins\n")
            && log.contains(&format!("\nout| {line}\n"))
            && log.contains("out| it ends\n")
    );
    // Everything is either kept or counted: marks of lines and our own lines aside, the sum is what was printed.
    let left_out: u64 =
        log.lines().find_map(|l| l.strip_prefix("...| ")?.strip_suffix(" bytes left out")?.parse().ok()).unwrap();
    let kept: usize = log.lines().filter_map(|l| l.strip_prefix("out| ")).map(|l| l.len() + 1).sum();
    let printed = BYTES + "it begins\n\nit ends\n".len() as u64;
    let sum = left_out + kept as u64;
    // A line that is cut on both sides of the gap has its newline counted once too often or not at all.
    assert!(sum.abs_diff(printed) <= 2, "{left_out} left out and {kept} kept are not {printed}");
    assert_eq!(host.close().0, 0);
    closing(
        &format!(
            "a check of {BYTES} bytes in {took:.1?}, {kept} kept, memory +{grown} MiB, {answers} statuses meanwhile"
        ),
        begun,
    );
}

/// HO-1: lines of 40 MiB, good ones and bad ones, are passed over and said so; the turn goes on to its end.
#[test]
fn lines_of_forty_megabytes_are_passed_over() {
    const BYTES: usize = 40 << 20;
    let begun = Instant::now();
    let mut world = World::new();
    let long = |head: &str, tail: &str| {
        format!("printf '%s' '{head}'; yes xxxxxxxxxxxxxxx | tr -d '\\n' | head -c {BYTES}; printf '%s\\n' '{tail}'; ")
    };
    let good = long(r#"{"type":"assistant","message":{"id":"m","content":[{"type":"text","text":""#, r#""}]}}"#);
    let call = r#"printf '%s\n' '{"type":"assistant","message":{"id":"n","content":[{"type":"tool_use","id":"t","name":"Read","input":{}}]}}'; "#;
    let result =
        long(r#"{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":""#, r#""}]}}"#);
    let bad = long(r#"{"type":"assistant","message":"#, "");
    let noise = "head -c 41943040 /dev/zero; echo; ";
    stand_in(&mut world, &[&good, call, &result, &bad, noise].concat(), "printf 'it is done'");
    let mut host = Host::open(&world);
    let (before, _) = host.memory();
    let node = json!({ "id": "a", "kind": "agent", "prompt": "x", "engine": "claude" });
    host.start(&world, "lines", json!({ "name": "lines", "nodes": [node] }));
    let view = host.until_in(LONG, "lines", |v| v["endedAt"].is_string());
    assert_eq!((&view["state"], &view["nodes"][0]["output"]), (&json!("completed"), &json!("it is done")), "{view:#}");
    let (_, peak) = host.memory();
    let grown = peak.saturating_sub(before) >> 10;
    assert!(grown < 64, "memory grew by {grown} MiB");
    let log = std::fs::read_to_string(world.run_dir("lines").join("events.jsonl")).unwrap();
    assert_eq!(log.matches("was too long and was skipped").count(), 4, "{log}");
    assert!(log.contains(&format!("a line of {BYTES} bytes")), "{log}");

    // A reply that is itself longer than any line ends the turn at once, as failed, and says why.
    stand_in(&mut world, ":", &format!("yes x | tr -d '\\n' | head -c {BYTES}"));
    host.start(&world, "reply", json!({ "name": "reply", "nodes": [node] }));
    let view = host.until("reply", |v| v["endedAt"].is_string());
    assert_eq!(view["state"], "failed", "{view:#}");
    assert!(view["error"].as_str().unwrap().contains("longer than any that is kept"), "{view:#}");
    assert_eq!(host.close().0, 0);
    closing(&format!("five lines of {BYTES} bytes, memory +{grown} MiB"), begun);
}
