//! mcp: the HTTP transport: who is let in, what is refused and how, sessions, token and server files.

use std::{os::unix::fs::PermissionsExt, path::Path, sync::Arc};

use claw_orchestrator::{
    config,
    protocol::{
        Server,
        http::{Bound, Error},
        server::Options,
    },
    sys::{RealFs, SystemClock},
    tools::{KernelHandle, Registry},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use crate::{
    mcp_wire::{Opening, modern, server},
    support::{World, clawo, schema::check_result},
};

fn settings() -> config::Server {
    config::Server {
        host: "127.0.0.1".into(),
        port: 0,
        allowed_hosts: vec![],
        allowed_origins: vec!["https://app.example".into()],
        rate_limit: 10_000,
        max_body_bytes: 5_242_880,
        token: None,
    }
}

struct Running {
    port: u16,
    token: String,
    stop: CancellationToken,
    served: JoinHandle<Result<(), Error>>,
}

async fn start(home: &Path, settings: &config::Server) -> Running {
    let bound = Bound::new(settings, home, Arc::new(RealFs), Arc::new(SystemClock)).await.unwrap();
    let port = bound.addr().port();
    let token = match &settings.token {
        Some(token) => token.clone(),
        None => std::fs::read_to_string(home.join("server-token")).unwrap().trim().to_owned(),
    };
    let stop = CancellationToken::new();
    let served = tokio::spawn(bound.run(server(Opening::Fails).0, stop.clone()));
    Running { port, token, stop, served }
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {:?}", self.body))
    }

    /// The JSON-RPC message of an event stream or a plain body.
    fn message(&self) -> Value {
        let data = self.body.lines().filter_map(|l| l.strip_prefix("data: ")).rfind(|d| d.starts_with('{'));
        let message: Value =
            serde_json::from_str(data.unwrap_or(&self.body)).unwrap_or_else(|e| panic!("{e}: {:?}", self.body));
        // Which tool was called the answer does not say; an error fits the schema of every one.
        if message["result"]["isError"] == true {
            check_result("workflow_list", &message["result"]);
        }
        message
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|l| {
            let (key, value) = l.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

/// One request on its own connection. `headers` replace the default ones of the same name; an empty value drops it.
async fn ask(running: &Running, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let host = format!("127.0.0.1:{}", running.port);
    let bearer = format!("Bearer {}", running.token);
    let length = body.len().to_string();
    let mut all: Vec<(&str, &str)> = vec![
        ("Host", &host),
        ("Authorization", &bearer),
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("Content-Length", &length),
        ("Connection", "close"),
    ];
    for (name, value) in headers {
        all.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        if !value.is_empty() {
            all.push((name, value));
        }
    }
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    for (name, value) in all {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str("\r\n");
    let mut stream = TcpStream::connect(("127.0.0.1", running.port)).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    // A server that refuses early may close before all of a long body is taken.
    let _ = stream.write_all(body).await;
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(std::time::Duration::from_secs(20), stream.read_to_end(&mut bytes)).await;
    let _ = read.expect("an answer in time");
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer to {method} {path}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body =
        if head.to_ascii_lowercase().contains("transfer-encoding: chunked") { unchunk(body) } else { body.to_owned() };
    Answer { status, head: head.to_owned(), body }
}

fn unchunk(mut text: &str) -> String {
    let mut out = String::new();
    while let Some((size, rest)) = text.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || rest.len() < size {
            break;
        }
        out.push_str(&rest[..size]);
        text = rest[size..].trim_start_matches("\r\n");
    }
    out
}

fn initialize(version: &str) -> Vec<u8> {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } })
    .to_string()
    .into_bytes()
}

/// A request, with its method, target, headers and body, and the status and code it must get.
type Case<'a> = (&'a str, &'a str, Vec<(&'a str, &'a str)>, &'a [u8], u16, &'a str);

/// Surface scenario 9 and case SV-1: everything a website or another program could try is refused with its code.
#[tokio::test]
async fn strangers_are_refused_each_with_its_code() {
    let home = tempfile::tempdir().unwrap();
    let running = start(home.path(), &settings()).await;
    let body = initialize("2025-11-25");
    let query = format!("/mcp?token={}", running.token);
    let big = vec![b' '; 6_000_000];
    let deep = format!("{}{}", "{\"a\":".repeat(70), "1".to_owned() + &"}".repeat(70));
    let other = format!("http://127.0.0.1:{}", running.port.wrapping_add(1));
    let cases: Vec<Case<'_>> = vec![
        ("POST", "/mcp", vec![("Host", "evil.example")], &body, 403, "forbidden_host"),
        ("GET", "/health", vec![("Host", "evil.example")], b"", 403, "forbidden_host"),
        ("POST", "/mcp", vec![("Host", "127.0.0.1")], &body, 403, "forbidden_host"),
        ("POST", "/mcp", vec![("Origin", "http://evil.example")], &body, 403, "forbidden_origin"),
        ("POST", "/mcp", vec![("Origin", "null")], &body, 403, "forbidden_origin"),
        ("POST", "/mcp", vec![("Origin", &other)], &body, 403, "forbidden_origin"),
        ("POST", "/mcp", vec![("Authorization", "")], &body, 401, "unauthorized"),
        ("POST", &query, vec![("Authorization", "")], &body, 401, "unauthorized"),
        ("POST", "/mcp", vec![("Authorization", "Bearer nope")], &body, 401, "unauthorized"),
        ("GET", "/nope", vec![("Authorization", "")], b"", 401, "unauthorized"),
        ("GET", "/nope", vec![], b"", 404, "not_found"),
        ("GET", "/mcp/x", vec![], b"", 404, "not_found"),
        ("PUT", "/mcp", vec![], &body, 405, "method_not_allowed"),
        ("POST", "/health", vec![], b"{}", 405, "method_not_allowed"),
        ("POST", "/mcp", vec![("Content-Type", "text/plain")], &body, 415, "unsupported_media_type"),
        ("POST", "/mcp", vec![("Content-Type", "")], &body, 415, "unsupported_media_type"),
        ("POST", "/mcp", vec![], &big, 413, "payload_too_large"),
        ("POST", "/mcp", vec![], b"not json", 400, "bad_json"),
        ("POST", "/mcp", vec![], b"[1]", 400, "bad_json"),
        ("POST", "/mcp", vec![], b"{\"a\": \"\xff\"}", 400, "bad_json"),
        ("POST", "/mcp", vec![], deep.as_bytes(), 400, "bad_json"),
    ];
    for (method, path, headers, body, status, code) in cases {
        let answer = ask(&running, method, path, &headers, body).await;
        assert_eq!(answer.status, status, "{method} {path} {headers:?}: {}", answer.body);
        let object = answer.json();
        assert_eq!((&object["ok"], &object["code"]), (&json!(false), &json!(code)));
        assert!(object["error"].as_str().unwrap().len() > 10);
        assert_eq!(answer.header("access-control-allow-origin"), None);
        assert!(!answer.head.contains(&running.token) && !answer.body.contains(&running.token));
        if status == 405 {
            assert!(answer.header("allow").unwrap().contains("GET"));
        }
    }
    let health = ask(&running, "GET", "/health", &[("Authorization", "")], b"").await;
    assert_eq!((health.status, &health.json()["name"]), (200, &json!("clawo")));
    assert_eq!(health.header("x-accel-buffering"), Some("no"));
    let friend =
        ask(&running, "OPTIONS", "/mcp", &[("Origin", "https://app.example"), ("Authorization", "")], b"").await;
    assert_eq!((friend.status, friend.header("access-control-allow-origin")), (204, Some("https://app.example")));
    running.stop.cancel();
    running.served.await.unwrap().unwrap();
}

/// Both eras over HTTP, sessions that come and go, an unknown session.
#[tokio::test]
async fn sessions_and_stateless_requests_get_the_same_list() {
    let home = tempfile::tempdir().unwrap();
    let running = start(home.path(), &settings()).await;
    let list = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {} }).to_string();
    let mut lists = Vec::new();
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let opened = ask(&running, "POST", "/mcp", &[], &initialize(version)).await;
        assert_eq!(opened.message()["result"]["protocolVersion"], version, "{}", opened.body);
        let session = opened.header("mcp-session-id").unwrap().to_owned();
        let headers = [("Mcp-Session-Id", session.as_str()), ("MCP-Protocol-Version", version)];
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string();
        assert_eq!(ask(&running, "POST", "/mcp", &headers, ready.as_bytes()).await.status, 202);
        let answer = ask(&running, "POST", "/mcp", &headers, list.as_bytes()).await;
        lists.push(answer.message()["result"]["tools"].to_string());
        assert!(ask(&running, "DELETE", "/mcp", &headers, b"").await.status < 300);
        assert_eq!(ask(&running, "POST", "/mcp", &headers, list.as_bytes()).await.status, 404, "the session is gone");
    }
    let params = modern(json!({}), &json!({}));
    let modern_list = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/list", "params": params }).to_string();
    let headers = [("MCP-Protocol-Version", "2026-07-28"), ("Mcp-Method", "tools/list")];
    let answer = ask(&running, "POST", "/mcp", &headers, modern_list.as_bytes()).await;
    lists.push(answer.message()["result"]["tools"].to_string());
    assert!(lists[0].contains("workflow_start") && lists.windows(2).all(|w| w[0] == w[1]));
    running.stop.cancel();
    running.served.await.unwrap().unwrap();
}

/// Case SV-6: one token, kept over restarts, never readable by others, untouched by who loses the port.
#[tokio::test]
async fn the_token_is_kept_and_guarded() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("server-token");
    let info = home.path().join("server.json");
    let running = start(home.path(), &settings()).await;
    assert_eq!(running.token.len(), 64);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let said: Value = serde_json::from_slice(&std::fs::read(&info).unwrap()).unwrap();
    assert_eq!((&said["port"], &said["pid"]), (&json!(running.port), &json!(std::process::id())));

    // The loser of the port says who has it and changes nothing, in its own home too.
    let loser = tempfile::tempdir().unwrap();
    let taken = config::Server { port: running.port, ..settings() };
    let error = Bound::new(&taken, loser.path(), Arc::new(RealFs), Arc::new(SystemClock)).await.unwrap_err();
    assert!(error.to_string().contains("another claw-orchestrator (version "), "{error}");
    assert_eq!(std::fs::read_dir(loser.path()).unwrap().count(), 0);

    let first = running.token.clone();
    running.stop.cancel();
    running.served.await.unwrap().unwrap();
    assert!(!info.exists(), "server.json goes with its server");

    let again = start(home.path(), &settings()).await;
    assert_eq!(again.token, first);
    // A rotated token counts within a second or so, the old one no longer.
    let rotated = "a".repeat(64);
    std::fs::write(&file, &rotated).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(1200)).await;
    let (old, new) = (format!("Bearer {first}"), format!("Bearer {rotated}"));
    assert_eq!(ask(&again, "GET", "/nope", &[("Authorization", &new)], b"").await.status, 404);
    assert_eq!(ask(&again, "GET", "/nope", &[("Authorization", &old)], b"").await.status, 401);
    // Another server's file is left alone.
    std::fs::write(&info, r#"{"id":"x","name":"clawo","version":"9","pid":1,"host":"h","port":1,"url":"u","startedAt":"2026-01-01T00:00:00.000Z"}"#).unwrap();
    again.stop.cancel();
    again.served.await.unwrap().unwrap();
    assert!(info.exists());

    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = Bound::new(&settings(), home.path(), Arc::new(RealFs), Arc::new(SystemClock)).await.unwrap_err();
    assert!(error.to_string().contains("chmod 600"), "{error}");
}

/// Surfaces 3.1 and 3.3: guessing and flooding are slowed down; health is not counted.
#[tokio::test]
async fn guessing_and_flooding_are_limited() {
    let home = tempfile::tempdir().unwrap();
    let running = start(home.path(), &config::Server { rate_limit: 5, ..settings() }).await;
    let get = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    for _ in 0..5 {
        assert_ne!(ask(&running, "POST", "/mcp", &[], get.as_bytes()).await.status, 429);
    }
    let answer = ask(&running, "POST", "/mcp", &[], get.as_bytes()).await;
    assert_eq!((answer.status, answer.json()["code"].as_str()), (429, Some("rate_limited")));
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=61).contains(&wait));
    assert_eq!(ask(&running, "GET", "/health", &[], b"").await.status, 200);
    running.stop.cancel();
    running.served.await.unwrap().unwrap();

    let home = tempfile::tempdir().unwrap();
    let running = start(home.path(), &config::Server { token: Some("f".repeat(64)), ..settings() }).await;
    assert!(!home.path().join("server-token").exists(), "a token from the environment is not written");
    for _ in 0..10 {
        let answer = ask(&running, "POST", "/mcp", &[("Authorization", "Bearer guess")], get.as_bytes()).await;
        assert_eq!(answer.status, 401);
    }
    let answer = ask(&running, "POST", "/mcp", &[], get.as_bytes()).await;
    assert_eq!(answer.status, 429, "the right token waits too, or guessing would go on");
    running.stop.cancel();
    running.served.await.unwrap().unwrap();
}

/// A name of the public network must be given when the server is not on loopback.
#[tokio::test]
async fn binding_wide_needs_a_name() {
    let home = tempfile::tempdir().unwrap();
    let wide = config::Server { host: "0.0.0.0".into(), ..settings() };
    let error = Bound::new(&wide, home.path(), Arc::new(RealFs), Arc::new(SystemClock)).await.unwrap_err();
    assert!(error.to_string().contains("--allowed-host"), "{error}");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

/// Surface 5.5, scenario 30: an engine that is left alone because it does not start is named by the health route and by
/// `clawo doctor`.
#[tokio::test(flavor = "multi_thread")]
async fn engines_that_do_not_start_are_named() {
    let mut world = World::bare();
    world.bins.insert("claude".to_owned(), "/bin/false".into());
    let kernel = world.kernel().await;
    for _ in 0..3 {
        let node = json!({ "id": "a", "kind": "agent", "prompt": "x", "engine": "claude" });
        world.run(&kernel, json!({ "name": "w", "nodes": [node] })).await;
    }
    let options = Options { parent: None, engines: Vec::new() };
    let server = Server::new(KernelHandle::ready(kernel), Registry::full(), options).unwrap();
    let bound = Bound::new(&settings(), &world.home(), Arc::new(RealFs), Arc::new(SystemClock)).await.unwrap();
    let (port, stop) = (bound.addr().port(), CancellationToken::new());
    let served = tokio::spawn(bound.run(server, stop.clone()));
    let running = Running { port, token: String::new(), stop, served };
    let health = ask(&running, "GET", "/health", &[("Authorization", "")], b"").await.json();
    assert_eq!((&health["breakers"][0]["engine"], &health["breakers"][0]["failures"]), (&json!("claude"), &json!(3)));
    assert!(!health.to_string().contains("/bin/false"), "{health}");
    let mut doctor = std::process::Command::new(clawo());
    doctor.args(["doctor", "--json"]).env("CLAWO_HOME", world.home()).env("CLAWO_PORT", port.to_string());
    let said = tokio::task::spawn_blocking(move || doctor.output().unwrap()).await.unwrap();
    let said: Value = serde_json::from_slice(&said.stdout).unwrap();
    let named = |name: &str| said["checks"].as_array().unwrap().iter().find(|row| row["name"] == name).cloned();
    assert_eq!(named("breaker claude").unwrap()["status"], "warning", "{said}");
    assert_eq!(named("port").unwrap()["status"], "ok", "{said}");
    assert!(named("prices").is_some());
    running.stop.cancel();
    running.served.await.unwrap().unwrap();
}
