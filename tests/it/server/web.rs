//! `clawo serve` on a real port: work over HTTP, who is let in, how it ends.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::host::{Host, PATIENCE, command, ended, run, show, shown, signal, within};
use crate::{
    mcp_wire::modern,
    support::{World, agent, check, processes},
};

/// A running server.
pub(crate) struct Web {
    pub(crate) child: Child,
    port: u16,
    token: String,
}

impl Web {
    pub(crate) fn start(world: &World) -> Self {
        let mut command = command(world, &["serve", "--port", "0"]);
        command.env("CLAWO_RATE_LIMIT", "100000");
        let errors =
            std::fs::OpenOptions::new().create(true).append(true).open(world.root().join("serve.log")).unwrap();
        let child = command.stdout(Stdio::null()).stderr(errors).spawn().unwrap();
        let file = world.home().join("server.json");
        let said = || -> Option<Value> { serde_json::from_slice(&std::fs::read(&file).ok()?).ok() };
        let ours = || said().filter(|v| v["pid"] == child.id());
        within(PATIENCE, "server.json", || ours().is_some());
        let port = u16::try_from(ours().unwrap()["port"].as_u64().unwrap()).unwrap();
        let token = std::fs::read_to_string(world.home().join("server-token")).unwrap().trim().to_owned();
        Self { child, port, token }
    }

    /// Sends one request on a connection of its own and leaves it open.
    pub(crate) fn send(&self, method: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut text = format!("{method} /mcp HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n", self.port);
        text.push_str("Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        stream
    }

    /// Status, head and body of one request.
    pub(crate) fn ask(&self, method: &str, headers: &[(&str, &str)], body: &str) -> (u16, String, String) {
        let mut bytes = Vec::new();
        self.send(method, headers, body).read_to_end(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
        (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_owned(), body.to_owned())
    }

    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.token)
    }

    /// A modern call: no handshake, no session.
    pub(crate) fn call_body(tool: &str, arguments: &Value) -> String {
        let params = modern(json!({ "name": tool, "arguments": arguments }), &json!({}));
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string()
    }

    #[track_caller]
    pub(crate) fn call(&self, tool: &str, arguments: &Value) -> Value {
        let bearer = self.bearer();
        let headers = [
            ("Authorization", bearer.as_str()),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", tool),
        ];
        let (status, _, body) = self.ask("POST", &headers, &Self::call_body(tool, arguments));
        assert_eq!(status, 200, "{tool}: {body}");
        let found = body.lines().filter_map(|l| l.strip_prefix("data: ").or(Some(l))).rfind(|l| l.starts_with('{'));
        let answer: Value = serde_json::from_str(found.unwrap_or_else(|| panic!("{body}"))).unwrap();
        assert_eq!(answer["result"]["isError"], false, "{tool}: {answer:#}");
        answer["result"]["structuredContent"].clone()
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Surface scenario 6 and MC-1 over HTTP: start, poll, evidence; what one transport started the others see.
#[test]
fn a_run_is_the_same_over_every_transport() {
    let world = World::new();
    let web = Web::start(&world);
    let mut host = Host::open(&world);
    let model = world.scenario(
        "work",
        json!([{ "times": 0, "steps": [{ "write": { "path": "out", "content": "1\n" } }, { "say": "done" }] }]),
    );
    let spec = json!({ "name": "work", "contract": check(&["cat", "out"]), "nodes": [agent("a", "go", &model)] });
    web.call("workflow_start", &json!({ "spec": spec, "cwd": world.project(), "runId": "web" }));
    host.start(&world, "pipe", spec);
    for id in ["web", "pipe"] {
        let begun = Instant::now();
        let over_http = loop {
            let view = web.call("workflow_status", &json!({ "runId": id, "waitMs": 2000 }));
            if view["endedAt"].is_string() {
                break view;
            }
            assert!(begun.elapsed() < PATIENCE, "{view:#}");
        };
        let over_pipe = host.until(id, |v| v["endedAt"].is_string());
        let printed = show(&world, id);
        assert_eq!(over_http["outcome"], "verified", "{over_http:#}");
        for key in ["state", "outcome", "verdict", "evidenceId", "seq", "nodes", "endedAt"] {
            assert!(
                over_http[key] == over_pipe[key] && over_http[key] == printed[key],
                "{id}.{key}: {over_http:#} {printed:#}"
            );
        }
        let evidence = web.call("workflow_evidence", &json!({ "runId": id }));
        assert_eq!((&evidence["passed"], &evidence["evidenceId"]), (&json!(true), &over_http["evidenceId"]));
        assert_eq!(host.call("workflow_evidence", json!({ "runId": id }))["results"], evidence["results"]);
    }
    let ids = |listed: &Value| -> Vec<String> {
        let mut ids: Vec<String> =
            listed["runs"].as_array().unwrap().iter().map(|r| r["runId"].as_str().unwrap().to_owned()).collect();
        ids.sort();
        ids
    };
    let printed = run(&world, &["workflow", "list", "--json"], 0).json();
    for listed in [web.call("workflow_list", &json!({})), host.call("workflow_list", json!({})), printed] {
        assert_eq!(ids(&listed), ["pipe", "web"]);
    }
}

/// Surface scenario 9, surfaces scenario 8, SV-6: no token, a wrong one, a taken port.
#[test]
fn only_the_token_of_the_home_opens() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    let web = Web::start(&world);
    let body = Web::call_body("workflow_list", &json!({}));
    let wrong = format!("Bearer {}", "0".repeat(64));
    let cut = format!("Bearer {}", &web.token[..63]);
    for headers in [vec![], vec![("Authorization", wrong.as_str())], vec![("Authorization", cut.as_str())]] {
        let (status, _, answer) = web.ask("POST", &headers, &body);
        assert!(status == 401 && answer.contains("unauthorized") && !answer.contains(&web.token), "{status} {answer}");
    }
    assert_eq!(web.call("workflow_list", &json!({}))["runs"], json!([]));
    let file = world.home().join("server-token");
    let kept = std::fs::read(&file).unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    let port = web.port.to_string();
    let taken = run(&world, &["serve", "--port", &port, "--json"], 6).json();
    assert!(taken["error"].as_str().unwrap().contains("version"), "{taken}");
    let elsewhere = World::bare();
    run(&elsewhere, &["serve", "--port", &port], 6);
    assert!(!elsewhere.home().join("server-token").exists());
    assert_eq!(std::fs::read(&file).unwrap(), kept);
    assert_eq!(web.call("workflow_list", &json!({}))["runs"], json!([]), "the winner serves on");
    // Another program's port is another failure.
    let stranger = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = stranger.local_addr().unwrap().port().to_string();
    let answering = std::thread::spawn(move || drop(stranger.accept()));
    run(&world, &["serve", "--port", &port], 70);
    answering.join().unwrap();

    drop(web);
    let again = Web::start(&world);
    assert_eq!(again.token.as_bytes(), String::from_utf8_lossy(&kept).trim().as_bytes(), "a restart keeps it");
}

/// Surfaces scenario 39: three runs, open waits, a stream: gone within ten seconds, all resumable.
#[test]
fn a_signal_ends_the_server_cleanly() {
    let world = World::new();
    let mut web = Web::start(&world);
    let model = world.scenario(
        "slow",
        json!([{ "times": 0, "steps": [
            "ignoreSigterm",
            { "spawn": { "argv": ["sleep", "47120401"], "detach": true, "newSession": true } },
            "hang",
        ] }]),
    );
    let spec = json!({ "name": "slow", "nodes": [agent("a", "x", &model)] });
    for id in ["one", "two", "three"] {
        web.call("workflow_start", &json!({ "spec": spec, "cwd": world.project(), "runId": id }));
    }
    within(PATIENCE, "three agents at work", || processes("sleep 47120401").len() >= 3);
    let bearer = web.bearer();
    let headers = [
        ("Authorization", bearer.as_str()),
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", "workflow_status"),
    ];
    let waits: Vec<_> = ["one", "two", "three"]
        .iter()
        .map(|id| {
            web.send("POST", &headers, &Web::call_body("workflow_status", &json!({ "runId": id, "waitMs": 50_000 })))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    signal(web.child.id(), Signal::SIGTERM);
    let begun = Instant::now();
    let status = ended(&mut web.child, Duration::from_secs(10)).expect("it ends within ten seconds");
    assert_eq!(status.code(), Some(0), "after {:?}", begun.elapsed());
    drop(waits);
    within(Duration::from_secs(2), "the agents are gone", || processes("47120401").is_empty());
    assert!(!world.home().join("server.json").exists());
    for id in ["one", "two", "three"] {
        shown(&world, id, |v| v["interrupted"] == true && v["live"] == false);
        assert!(!world.run_dir(id).join("lease.json").exists(), "the lease of {id} is released");
    }
    let web = Web::start(&world);
    web.call("workflow_resume", &json!({ "runId": "one" }));
    within(PATIENCE, "an agent at work again", || !processes("sleep 47120401").is_empty());
    assert_eq!(web.call("workflow_cancel", &json!({ "runId": "one" }))["state"], "cancelled");
}
