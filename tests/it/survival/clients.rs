//! Clients that come and go by the hundred, many without a word: one server stays as it was.

use std::{
    io::Read,
    time::{Duration, Instant},
};

use serde_json::json;

use super::{rounds, say};
use crate::{
    server::{
        host::{Host, PATIENCE, Said, command, within},
        web::Web,
    },
    support::World,
};

/// Sessions a server keeps of clients that never end theirs.
const KEPT: usize = 128;

/// Threads that may come and go: those that wait for files end when they had nothing to do for ten seconds.
const THREADS: u64 = 6;

/// What a server holds of the system.
#[derive(Debug, Clone, Copy)]
struct Held {
    memory_kb: u64,
    threads: u64,
    descriptors: usize,
    children: usize,
}

impl Held {
    fn of(pid: u32) -> Self {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |key: &str| -> u64 {
            let line = text.lines().find(|l| l.starts_with(key)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        let children = std::fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let parent = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
            parent == Some(pid)
        });
        Self {
            memory_kb: field("VmRSS:"),
            threads: field("Threads:"),
            descriptors: std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count(),
            children: children.count(),
        }
    }
}

/// The newest sessions work; one that is used now and then is not forgotten either, one that is not is unknown.
#[test]
fn sessions_nobody_uses_make_room() {
    let world = World::new();
    let web = Web::start(&world);
    let bearer = web.bearer();
    let status = |session: &str| {
        let headers =
            [("Authorization", bearer.as_str()), ("Mcp-Session-Id", session), ("MCP-Protocol-Version", "2025-11-25")];
        web.ask(
            "POST",
            &headers,
            &json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {} }).to_string(),
        )
        .0
    };
    let (used, unused) = (hello(&web), hello(&web));
    for n in 0..KEPT {
        let session = hello(&web);
        if n % 50 == 0 {
            assert_eq!((status(&used), status(&session)), (200, 200));
        }
    }
    assert_eq!((status(&used), status(&unused), status(&hello(&web))), (200, 404, 200));
}

/// Surface section 7: sessions over HTTP, ended well, dropped in a stream, in a request, in a wait, in the middle of
/// an answer. What the server holds after fifty and after two hundred more is the same.
#[test]
fn clients_come_and_go_without_growth() {
    let begun = Instant::now();
    let world = World::new();
    let web = Web::start(&world);
    let gate = json!({ "name": "g", "nodes": [{ "id": "ask", "kind": "human_gate", "prompt": "?" }] });
    web.call("workflow_start", &json!({ "spec": gate, "cwd": world.project(), "runId": "parked" }));
    within(PATIENCE, "it waits", || {
        web.call("workflow_status", &json!({ "runId": "parked" }))["state"] == "awaiting_human"
    });
    let more = rounds("CLAWO_TEST_CLIENTS", 200) as usize;
    // Until as many are left behind as are kept: what is too much is forgotten from here on.
    churn(&web, 0, KEPT * 3 / 2 + 20);
    churn(&web, 0, 50);
    let first = settled(&web, None);
    churn(&web, 50, more);
    let last = settled(&web, Some(first));
    assert!(last.memory_kb < first.memory_kb + 8_000, "{first:?} {last:?}");
    assert!(last.threads <= first.threads + THREADS, "{first:?} {last:?}");
    assert!(last.descriptors <= first.descriptors + 4, "{first:?} {last:?}");
    assert_eq!(last.children, 0, "{first:?} {last:?}");
    assert_eq!(web.call("workflow_status", &json!({ "runId": "parked" }))["state"], "awaiting_human");
    let health = Said::new(command(&world, &["workflow", "list", "--json"]).output().unwrap());
    assert_eq!(health.status, 0, "{health:?}");
    say(&format!("clients over HTTP: {more} came and went; before {first:?}, after {last:?}; {:.0?}", begun.elapsed()));
}

/// What the server holds once closed connections are noticed, waits are over and idle threads have ended.
fn settled(web: &Web, before: Option<Held>) -> Held {
    let until = Instant::now() + Duration::from_secs(25);
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = Held::of(web.child.id());
        let same = before.is_some_and(|b| {
            now.descriptors <= b.descriptors && now.threads <= b.threads + THREADS && now.children == 0
        });
        if same || Instant::now() > until || before.is_none() {
            return now;
        }
    }
}

/// Begins a session; its id.
fn hello(web: &Web) -> String {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let (status, head, body) = web.ask("POST", &[("Authorization", &web.bearer())], &body.to_string());
    assert_eq!(status, 200, "{body}");
    let session =
        head.lines().find_map(|l| l.split_once(": ").filter(|(k, _)| k.eq_ignore_ascii_case("mcp-session-id")));
    session.unwrap().1.to_owned()
}

fn churn(web: &Web, from: usize, count: usize) {
    let bearer = web.bearer();
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {} }).to_string();
    let wait = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {
        "name": "workflow_status", "arguments": { "runId": "parked", "waitMs": 3_000 } } })
    .to_string();
    let auth = ("Authorization", bearer.as_str());
    for n in from..from + count {
        let session = hello(web);
        let headers = [auth, ("Mcp-Session-Id", session.as_str()), ("MCP-Protocol-Version", "2025-11-25")];
        let (status, _, body) = web.ask("POST", &headers, &list);
        assert!(status == 200 && body.contains("workflow_start"), "{status} {body}");
        match n % 6 {
            // Well behaved.
            0 | 1 => assert!(web.ask("DELETE", &headers, "").0 < 300),
            // Opens its stream and is gone.
            2 => drop(web.send("GET", &headers, "")),
            // Is gone in the middle of a request.
            3 => drop(web.send("POST", &headers, &list)),
            // In the middle of a wait.
            4 => {
                let stream = web.send("POST", &headers, &wait);
                std::thread::sleep(Duration::from_millis(20));
                drop(stream);
            }
            // In the middle of an answer.
            _ => {
                let mut stream = web.send("POST", &headers, &list);
                let mut some = [0; 300];
                stream.read_exact(&mut some).unwrap();
                drop(stream);
            }
        }
    }
}

/// Surface section 7 on pipes: hosts that close, crash, or go away in the middle of a wait; their servers and what
/// those had started are gone, and the home is as it was.
#[test]
fn hosts_that_wait_come_and_go() {
    let world = World::new();
    let mut first = Host::open(&world);
    let gate = json!({ "name": "g", "nodes": [{ "id": "ask", "kind": "human_gate", "prompt": "?" }] });
    first.start(&world, "parked", gate);
    first.until("parked", |v| v["state"] == "awaiting_human");
    let before = world.listing();
    for n in 0..rounds("CLAWO_TEST_CLIENTS", 40) / 2 {
        let mut host = Host::open(&world);
        host.send_call("workflow_status", json!({ "runId": "parked", "waitMs": 50_000 }));
        match n % 2 {
            0 => {
                let (status, took) = host.close();
                assert!(status == 0 && took < Duration::from_secs(5), "{status} after {took:?}");
            }
            _ => host.crash(),
        }
    }
    // The next server clears what the killed ones left.
    assert_eq!(Host::open(&world).close().0, 0);
    let mark = world.root().file_name().unwrap().to_string_lossy().into_owned();
    within(PATIENCE, "one server is left", || super::living(&mark).len() == 1);
    let (before, after) = (before.len(), world.listing().len());
    assert!(after <= before + 4, "files before {before}, after {after}");
    assert_eq!(first.until("parked", |_| true)["state"], "awaiting_human");
}
