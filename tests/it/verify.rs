//! Verification against real processes, files, repositories, servers and a real browser.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

mod commands;
mod hiding;
mod looks;
mod patches;
mod rounds;

use claw_orchestrator::{
    git::Git,
    model::{CheckResult, run::Baseline},
    sys::{RealFs, SystemClock, redact::Redactor, supervise},
    verify::{Boxed, Error, Fixer, Request, Verified, Verifier, contract::normalise, evidence, protected},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

fn verifier() -> Verifier {
    let path = std::env::var("PATH").unwrap();
    let full = BTreeMap::from([
        ("PATH".to_owned(), path.clone()),
        ("DATABASE_URL".to_owned(), "postgres-canary-9f3a".to_owned()),
        ("API_TOKEN".to_owned(), "token-canary-77b1".to_owned()),
    ]);
    let hidden = ["postgres-canary-9f3a".to_owned(), "token-canary-77b1".to_owned()];
    Verifier {
        fs: Arc::new(RealFs),
        clock: Arc::new(SystemClock),
        git: Git { fs: Arc::new(RealFs), program: PathBuf::from("git") },
        supervisor: supervise::Options { program: env!("CARGO_BIN_EXE_clawo").into(), owner: "verify-test".to_owned() },
        base_env: vec![("PATH".to_owned(), path), ("HOME".to_owned(), "/nonexistent".to_owned())],
        full_env: Arc::new(full),
        redactor: Arc::new(Redactor::new(hidden)),
        chrome: None,
    }
}

fn request(dir: &Path, checks: &Value) -> Request {
    let (contract, _) = normalise(&json!({ "checks": checks }), "contract").unwrap();
    Request {
        contract,
        cwd: dir.to_path_buf(),
        baseline: Baseline::default(),
        protected: None,
        run_env: vec![("CLAWO_RUN_ID".to_owned(), "run-1".to_owned())],
        evidence_id: "verify-v01-01".to_owned(),
        run_id: Some("run-1".to_owned()),
        node: None,
        cancel: CancellationToken::new(),
        progress: None,
        fixer: None,
    }
}

async fn verify(dir: &Path, checks: Value) -> Verified {
    verifier().run(request(dir, &checks)).await.unwrap()
}

/// Runs one check and gives its result.
async fn one(dir: &Path, check: Value) -> CheckResult {
    verify(dir, json!([check])).await.bundle.results.pop().unwrap()
}

fn file<'a>(verified: &'a Verified, name: &str) -> &'a [u8] {
    let found = verified.files.iter().find(|(n, _)| n == name);
    &found.unwrap_or_else(|| panic!("no {name} among {:?}", verified.files.iter().map(|f| &f.0).collect::<Vec<_>>())).1
}

fn text(verified: &Verified, name: &str) -> String {
    String::from_utf8(file(verified, name).to_vec()).unwrap()
}

fn sh(script: &str) -> Value {
    json!({ "type": "command", "cmd": "sh", "args": ["-c", script] })
}

fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"])
        .args(args)
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A directory that is removed at the end.
struct Place {
    _temp: TempDir,
    path: PathBuf,
}

impl Place {
    fn path(&self) -> &Path {
        &self.path
    }
}

/// A repository with one commit; its baseline.
fn repo() -> (Place, Baseline) {
    let temp = tempfile::tempdir().unwrap();
    // Case PA-2: no name is ever read by a shell.
    let path = temp.path().join("My Folder (1) & co");
    fs::create_dir(&path).unwrap();
    let dir = Place { _temp: temp, path };
    git(dir.path(), &["init", "-q", "-b", "main"]);
    fs::create_dir(dir.path().join("src")).unwrap();
    fs::write(dir.path().join("src/a.ts"), "one\ntwo\n").unwrap();
    fs::write(dir.path().join("README"), "hello\n").unwrap();
    git(dir.path(), &["add", "-A"]);
    git(dir.path(), &["commit", "-qm", "first"]);
    let base_sha = Some(git(dir.path(), &["rev-parse", "HEAD"]));
    (dir, Baseline { base_sha, in_git: true, ..Baseline::default() })
}

/// Answers each connection through `answer`, which gets its number from 0. Ends with the process.
fn server(answer: impl Fn(usize, &mut std::net::TcpStream) + Send + Sync + 'static) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let count = Arc::new(AtomicUsize::new(0));
    let (counter, answer) = (count.clone(), Arc::new(answer));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let (n, answer) = (counter.fetch_add(1, Ordering::SeqCst), answer.clone());
            std::thread::spawn(move || {
                let mut buf = [0; 4096];
                let _ = stream.read(&mut buf);
                answer(n, &mut stream);
            });
        }
    });
    (port, count)
}

fn say(stream: &mut std::net::TcpStream, status: &str, headers: &str, body: &str) {
    let length = body.len();
    let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n{body}");
}

fn browser() -> bool {
    let there = ["chromium", "chromium-browser", "google-chrome", "chrome"]
        .iter()
        .any(|name| Command::new(name).arg("--version").output().is_ok());
    if !there {
        println!("SKIPPED: no chromium, chromium-browser, google-chrome or chrome on PATH");
    }
    there
}

fn alive(marker: &str) -> bool {
    let found = fs::read_dir("/proc").unwrap().flatten().filter_map(|e| fs::read(e.path().join("cmdline")).ok());
    found.into_iter().any(|c| String::from_utf8_lossy(&c).contains(marker))
}
