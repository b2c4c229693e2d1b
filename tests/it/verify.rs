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

use claw_orchestrator::{
    git::Git,
    model::{CheckResult, run::Baseline},
    sys::{RealFs, SystemClock, redact::Redactor, supervise},
    verify::{Boxed, Error, Fixer, Request, Verified, Verifier, contract::normalise, evidence},
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

/// A repository with one commit; its baseline.
fn repo() -> (TempDir, Baseline) {
    let dir = tempfile::tempdir().unwrap();
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

/// Scenarios 1 and 18, cases VF-5 and VF-12: all types green, in a directory with a space in its name; the
/// evidence is complete and one flipped byte is seen.
#[tokio::test(flavor = "multi_thread")]
async fn all_types_green_with_complete_evidence() {
    let (dir, baseline) = repo();
    fs::write(dir.path().join("src/new ü.ts"), "let x = 1;\n").unwrap();
    fs::write(dir.path().join("bin.dat"), [0_u8, 159, 146, 150]).unwrap();
    let (port, _) = server(|_, s| say(s, "200 OK", "Content-Type: text/html\r\n", "<h1 style='color:red'>hi</h1>"));
    let url = format!("http://127.0.0.1:{port}/");
    let mut checks = vec![
        sh("echo to-out; echo to-err >&2; test \"$CI$CLAWO_RUN_ID\" = 1run-1 && ! read x"),
        json!({ "spec": { "type": "http", "url": url, "expectBody": "h1.*hi" } }),
        json!({ "type": "diff_policy", "maxFiles": 2, "requirePaths": ["src"], "forbidPaths": ["docs"] }),
        json!({ "type": "file", "path": "src/new ü.ts", "matches": "x = \\d" }),
    ];
    if browser() {
        checks.push(json!({ "type": "screenshot", "url": url, "timeoutMs": 30_000, "viewports": [
            { "width": 320, "height": 200, "label": "../../x" }, { "width": 200, "height": 120, "label": "../../x" }] }));
    }
    let mut request = request(dir.path(), &json!(checks));
    request.baseline = baseline.clone();
    let told = Arc::new(Mutex::new(Vec::new()));
    let to = told.clone();
    request.progress = Some(Arc::new(move |done, all, _: &str| to.lock().unwrap().push((done, all))));
    let count = checks.len() as u64;
    let verified = verifier().run(request).await.unwrap();

    let bundle = &verified.bundle;
    assert!(bundle.passed, "{:#?}", bundle.results);
    assert_eq!(bundle.results[0].id, "protected-tests");
    assert!(bundle.results[0].skipped && !bundle.results[0].required && !bundle.results[0].passed);
    assert_eq!(*told.lock().unwrap(), (1..=count).map(|n| (n, count)).collect::<Vec<_>>());
    assert_eq!(bundle.base_sha, baseline.base_sha);
    assert_eq!(bundle.head_sha, baseline.base_sha);
    assert!(bundle.tree_digest.as_ref().unwrap().starts_with("sha256:"));
    assert_eq!(bundle.changed_files, ["bin.dat", "src/new ü.ts"]);
    assert_eq!(bundle.notes, Vec::<String>::new());
    let log = text(&verified, "checks/command-1.log");
    assert!(
        log.contains("out| to-out\n") && log.contains("err| to-err\n") && log.contains("end| exit code 0"),
        "{log}"
    );
    if checks.len() == 5 {
        let names: Vec<_> = verified.files.iter().map(|f| f.0.as_str()).filter(|n| n.starts_with("shot-")).collect();
        assert_eq!(names, ["shot-..-..-x.png", "shot-..-..-x-2.png"]);
        assert!(file(&verified, names[1]).starts_with(b"\x89PNG"));
    }

    // The patch alone brings a clone of the base to the judged content.
    let clone = tempfile::tempdir().unwrap();
    git(clone.path(), &["clone", "-q", dir.path().to_str().unwrap(), "c"]);
    let clone = clone.path().join("c");
    fs::write(clone.join("../p"), file(&verified, "diff.patch")).unwrap();
    git(&clone, &["apply", "../p"]);
    assert_eq!(fs::read(clone.join("bin.dat")).unwrap(), [0_u8, 159, 146, 150]);
    assert_eq!(fs::read_to_string(clone.join("src/new ü.ts")).unwrap(), "let x = 1;\n");

    assert_eq!(evidence::check_manifest(&verified.files), Vec::<String>::new());
    assert_eq!(evidence::read_bundle(&verified.files).unwrap(), verified.bundle);
    for index in 0..verified.files.len() {
        let mut files = verified.files.clone();
        let middle = files[index].1.len() / 2;
        files[index].1[middle] ^= 1;
        assert!(!evidence::check_manifest(&files).is_empty(), "a flipped byte in {} is seen", files[index].0);
        files.remove(index);
        assert!(!evidence::check_manifest(&files).is_empty());
    }
}

/// Scenarios 2 and 3: each red with the detail a person needs, every check runs, an optional red does not
/// refute and no protected row appears outside git.
#[tokio::test(flavor = "multi_thread")]
async fn each_type_red_says_why() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "text").unwrap();
    let verified = verify(
        dir.path(),
        json!([
            sh("echo 'assertion failed: a == b'; echo 'warning: old' >&2; exit 3"),
            { "type": "command", "cmd": "no-such-program-here" },
            { "type": "command", "cmd": "npm test" },
            { "type": "command", "cmd": "sh", "args": ["-c", "kill -9 $$"] },
            { "type": "command", "cmd": "true", "envFrom": ["NOT_SET_HERE"] },
            { "type": "http", "url": "https://127.0.0.1:1/" },
            { "type": "diff_policy", "maxFiles": 0 },
            { "type": "file", "path": "missing" },
            { "type": "file", "path": "f", "exists": false },
            { "type": "file", "path": "f", "matches": "^nope$" },
            { "type": "screenshot", "url": "http://127.0.0.1:1/", "browserBin": "/nonexistent/b", "viewports": [{ "width": 100, "height": 100 }] },
        ]),
    )
    .await;
    let results = &verified.bundle.results;
    let wanted = [
        ("exit code 3, expected 0", false),
        ("'no-such-program-here': not found on PATH", true),
        ("there is no shell", true),
        ("ended by signal 9", false),
        ("NOT_SET_HERE, which is not set", true),
        ("need a build with TLS", true),
        ("not a git repository", true),
        ("'missing' does not exist", false),
        ("'f' exists", false),
        ("does not match", false),
        ("'/nonexistent/b' is not a program", true),
    ];
    assert_eq!(results.len(), wanted.len());
    for (result, (detail, skipped)) in results.iter().zip(wanted) {
        assert!(!result.passed && result.detail.contains(detail), "{result:#?}");
        assert_eq!(result.skipped, skipped, "{result:#?}");
    }
    assert_eq!(results[0].exit_code, Some(3));
    let tail = results[0].tail.as_ref().unwrap();
    assert!(tail.contains("assertion failed") && tail.contains("warning: old"), "{tail}");
    assert!(!verified.bundle.passed);

    let optional =
        verify(dir.path(), json!([sh("true"), { "id": "o", "required": false, "spec": sh("exit 1") }])).await;
    assert!(optional.bundle.passed && !optional.bundle.results[1].passed);
    assert!(optional.bundle.tree_digest.is_none());
}

/// Scenario 6: the whole tree ends at the limit, also what made a session of its own; and a background child
/// that holds the output open after a good end.
#[tokio::test(flavor = "multi_thread")]
async fn an_overrun_ends_the_whole_tree() {
    let dir = tempfile::tempdir().unwrap();
    let started = Instant::now();
    let result = one(
        dir.path(),
        json!({ "type": "command", "cmd": "sh", "timeoutMs": 300,
            "args": ["-c", "echo begun; setsid -f sleep 61.4321; sleep 61.4321"] }),
    )
    .await;
    assert!(result.timed_out && !result.passed && result.exit_code.is_none(), "{result:#?}");
    assert_eq!(result.tail.as_deref(), Some("begun"));
    assert!(!alive("61.4321"), "something of the check lives on");
    assert!(started.elapsed() < Duration::from_secs(10));

    let left = one(dir.path(), sh("sleep 62.4321 & echo done")).await;
    assert!(left.passed && left.detail.contains("left behind"), "{left:#?}");
    assert!(!alive("62.4321"));
    let quiet = one(dir.path(), sh("setsid -f sleep 63.4321 >/dev/null 2>&1 </dev/null")).await;
    assert!(quiet.passed, "{quiet:#?}");
    assert!(!alive("63.4321"));
}

/// Resident memory of this process in KiB.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Scenarios 7 and 8, cases HO-2 and HO-3: half a gigabyte on both streams, odd bytes, one long line.
#[tokio::test(flavor = "multi_thread")]
async fn huge_and_odd_output_stays_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let before = resident();
    let peak = Arc::new(AtomicUsize::new(0));
    let (watch, stop) = (peak.clone(), CancellationToken::new());
    let stopped = stop.clone();
    std::thread::spawn(move || {
        while !stopped.is_cancelled() {
            watch.fetch_max(resident() as usize, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let script = "yes begin-to-end | head -c 400000000; yes e | head -c 100000000 >&2; echo the end; exit 1";
    let verified = verify(dir.path(), json!([sh(script)])).await;
    stop.cancel();
    let grown = (peak.load(Ordering::SeqCst) as u64).saturating_sub(before);
    assert!(grown < 64 * 1024, "memory grew by {grown} KiB");
    let tail = verified.bundle.results[0].tail.clone().unwrap();
    assert!(tail.contains("the end\n…\ne\n") || tail.ends_with("the end"), "{tail}");
    let log = text(&verified, "checks/command-1.log");
    assert!(log.len() < 2 << 20 && log.contains("bytes left out\n"), "{}", log.len());

    let odd = r"printf '\377\376 bad \0 nul\n\033[31mred\033[0m\n'; head -c 1000000 /dev/zero | tr '\0' x; echo; echo '🦀é'; exit 1";
    let verified = verify(dir.path(), json!([sh(odd)])).await;
    let tail = verified.bundle.results[0].tail.clone().unwrap();
    assert!(tail.ends_with("🦀é") && !tail.contains('\u{1b}'), "{}", tail.len());
    assert!(text(&verified, "checks/command-1.log").contains("\u{fffd}\u{fffd} bad"));
}

/// Scenario 9: links that lead out are never followed; only regular files are opened.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_outside_is_read_and_no_pipe_is_opened() {
    let outer = tempfile::tempdir().unwrap();
    let dir = outer.path().join("in");
    fs::create_dir_all(dir.join("sub")).unwrap();
    fs::write(outer.path().join("secret"), "s").unwrap();
    symlink("../secret", dir.join("out")).unwrap();
    symlink("..", dir.join("up")).unwrap();
    symlink("sub", dir.join("inner")).unwrap();
    fs::write(dir.join("sub/f"), "inside").unwrap();
    assert!(Command::new("mkfifo").arg(dir.join("pipe")).status().unwrap().success());
    for (path, why) in [
        ("out", "outside"),
        ("up/secret", "outside"),
        ("up/nothing", "outside"),
        ("pipe", "a pipe"),
        ("sub", "a directory"),
    ] {
        let result = one(&dir, json!({ "type": "file", "path": path, "matches": "." })).await;
        assert!(!result.passed && result.detail.contains(why), "{path}: {result:#?}");
    }
    let gone = one(&dir, json!({ "type": "file", "path": "up/nothing", "exists": false })).await;
    assert!(!gone.passed, "not an answer about a place outside: {gone:#?}");
    assert!(one(&dir, json!({ "type": "file", "path": "inner/f", "matches": "^inside$" })).await.passed);
    let up = one(&dir, json!({ "type": "command", "cmd": "true", "cwd": "up" })).await;
    assert!(!up.passed && up.detail.contains("outside"), "{up:#?}");
    let inner = one(&dir, json!({ "type": "command", "cmd": "sh", "args": ["-c", "test -f f"], "cwd": "inner" })).await;
    assert!(inner.passed, "{inner:#?}");

    fs::write(dir.join("run.sh"), "#!/bin/sh\npwd\n").unwrap();
    fs::set_permissions(dir.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(one(&dir, json!({ "type": "command", "cmd": "./run.sh" })).await.passed);

    let mut big = vec![b'a'; 11 << 20];
    big.extend_from_slice(b"needle");
    fs::write(dir.join("big"), big).unwrap();
    let cut = one(&dir, json!({ "type": "file", "path": "big", "matches": "needle" })).await;
    assert!(!cut.passed && cut.detail.contains("first 10 MiB"), "{cut:#?}");
    // Scenario 11: linear on a megabyte and more.
    assert!(!one(&dir, json!({ "type": "file", "path": "big", "matches": "(a+)+b$" })).await.passed);
}

/// Scenario 10 and cases VF-4 and PA-1: every kind of change, odd names, commits made meanwhile, a vanished
/// baseline.
#[tokio::test(flavor = "multi_thread")]
async fn the_change_set_is_bounded() {
    let (dir, baseline) = repo();
    let at = dir.path();
    let policy = async |check: Value| {
        let mut request = request(at, &json!([check]));
        request.baseline = baseline.clone();
        verifier().run(request).await.unwrap()
    };
    let nothing = policy(json!({ "type": "diff_policy", "requirePaths": ["."] })).await;
    assert!(!nothing.bundle.passed && nothing.bundle.results[0].detail.contains("nothing changed under ."));

    git(at, &["mv", "src/a.ts", "moved.ts"]);
    fs::create_dir_all(at.join("srcfoo")).unwrap();
    fs::write(at.join("srcfoo/a.ts"), "x\n").unwrap();
    let renamed = policy(json!({ "type": "diff_policy", "forbidPaths": ["src"] })).await;
    assert!(renamed.bundle.results[0].detail.contains("src/a.ts"), "{:#?}", renamed.bundle.results);
    assert!(text(&renamed, "checks/diff_policy-1.log").contains("moved.ts <- src/a.ts"));
    assert!(renamed.bundle.results[0].tail.as_ref().unwrap().contains("srcfoo/a.ts"));

    git(at, &["add", "-A"]);
    git(at, &["commit", "-qm", "meanwhile"]);
    let committed = policy(json!({ "type": "diff_policy", "forbidPaths": ["src"] })).await;
    assert!(!committed.bundle.passed, "commits of the run count");
    for name in ["naïve/ü \"q\"\t.txt", "日本/x", "-dash/y", "line\nbreak/z"] {
        fs::create_dir_all(at.join(name).parent().unwrap()).unwrap();
        fs::write(at.join(name), "x").unwrap();
        let top = name.split('/').next().unwrap();
        let red = policy(json!({ "type": "diff_policy", "forbidPaths": [top] })).await;
        assert!(red.bundle.results[0].detail.contains("1 forbidden paths"), "{:#?}", red.bundle.results);
    }
    fs::set_permissions(at.join("README"), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(!policy(json!({ "type": "diff_policy", "forbidPaths": ["README"] })).await.bundle.passed, "mode change");
    fs::remove_file(at.join("README")).unwrap();
    let deleted =
        policy(json!({ "type": "diff_policy", "maxFiles": 1, "maxLines": 1, "forbidPaths": ["README"] })).await;
    let detail = &deleted.bundle.results[0].detail;
    assert!(
        detail.contains("at most 1 may") && detail.contains("README") && detail.contains("lines changed"),
        "{detail}"
    );

    let gone = Baseline { base_sha: Some("1".repeat(40)), in_git: true, ..Baseline::default() };
    let mut request = request(at, &json!([{ "type": "diff_policy", "maxFiles": 100 }]));
    request.baseline = gone;
    let result = verifier().run(request).await.unwrap().bundle.results.remove(0);
    assert!(!result.passed && result.detail.contains("no longer in the repository"), "{result:#?}");
}

/// Scenario 15 and case VF-6: what each kind of server is said to have answered.
#[tokio::test(flavor = "multi_thread")]
async fn http_answers_are_judged_as_given() {
    let dir = tempfile::tempdir().unwrap();
    let ask = async |port: u16, more: Value| {
        let mut check =
            json!({ "type": "http", "url": format!("http://127.0.0.1:{port}/x"), "timeoutMs": 700, "intervalMs": 50 });
        check.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        one(dir.path(), check).await
    };
    let closed = { TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port() };
    let refused = ask(closed, json!({})).await;
    assert!(refused.timed_out && refused.detail.contains("refused"), "{refused:#?}");

    let (port, tries) = server(|n, s| if n < 2 { say(s, "500 Oops", "", "") } else { say(s, "200 OK", "", "fine") });
    let late = ask(port, json!({ "timeoutMs": 10_000 })).await;
    assert!(late.passed && tries.load(Ordering::SeqCst) == 3, "{late:#?}");

    let (port, _) = server(|_, s| say(s, "500 Oops", "", ""));
    assert!(ask(port, json!({})).await.detail.ends_with("status 500"));

    let (port, _) = server(|_, s| say(s, "302 Found", "Location: /login\r\n", ""));
    let redirect = ask(port, json!({})).await;
    assert!(!redirect.passed && redirect.detail.contains("status 302 (a redirect to /login, not followed)"));
    assert!(ask(port, json!({ "expectStatus": 302 })).await.passed);

    let (port, _) = server(|_, s| say(s, "404 Not Found", "", "no such page"));
    assert!(ask(port, json!({ "expectStatus": 404, "expectBody": "^no such" })).await.passed);
    assert!(ask(port, json!({ "expectStatus": 404, "expectBody": "^yes" })).await.detail.contains("does not match"));

    let (port, _) = server(|_, s| {
        let _ = s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        std::thread::sleep(Duration::from_secs(30));
    });
    let slow = ask(port, json!({ "expectBody": "." })).await;
    assert!(slow.timed_out && slow.detail.contains("not complete after 4 bytes"), "{slow:#?}");
    let (port, _) = server(|_, _| std::thread::sleep(Duration::from_secs(30)));
    let silent = ask(port, json!({})).await;
    assert!(silent.timed_out && silent.detail.contains("no answer yet"), "{silent:#?}");
}

/// Scenario 16 and case VF-7: a page that never loads, an error page, a closed port; the browser is gone and
/// so is its profile.
#[tokio::test(flavor = "multi_thread")]
async fn pages_that_cannot_be_captured_are_red() {
    if !browser() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let temp = dir.path().join("temporary");
    fs::create_dir(&temp).unwrap();
    let mut verifier = verifier();
    let mut full = verifier.full_env.as_ref().clone();
    full.insert("TMPDIR".to_owned(), temp.to_str().unwrap().to_owned());
    verifier.full_env = Arc::new(full);
    // The page itself answers; a script in it never does.
    let (port, _) = server(|n, s| match n {
        0 | 1 => say(s, "200 OK", "Content-Type: text/html\r\n", "<script src='/never.js'></script>"),
        _ => std::thread::sleep(Duration::from_secs(60)),
    });
    let (missing, _) = server(|_, s| say(s, "404 Not Found", "", "no"));
    let closed = { TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port() };
    let shot = |port: u16| json!({ "type": "screenshot", "url": format!("http://127.0.0.1:{port}/"), "timeoutMs": 4_000, "viewports": [{ "width": 200, "height": 100 }] });
    let checks = json!([shot(port), shot(missing), shot(closed)]);
    let verified = verifier.run(request(dir.path(), &checks)).await.unwrap();
    let [never, missing, closed] = verified.bundle.results.as_slice() else { panic!() };
    assert!(never.timed_out && never.detail.contains("killed"), "{never:#?}");
    assert!(missing.detail.contains("status 404") && !missing.timed_out, "{missing:#?}");
    assert!(closed.detail.contains("refused"), "{closed:#?}");
    assert_eq!(fs::read_dir(&temp).unwrap().count(), 0, "profiles are removed");
    assert!(!alive(temp.to_str().unwrap()), "no browser lives on");
}

/// Cases SE-1 and SE-2: what the server knows never reaches a check or the evidence unless it is named.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_stay_out_of_the_evidence() {
    let (dir, baseline) = repo();
    fs::write(dir.path().join("leak.txt"), "url token-canary-77b1\n").unwrap();
    let mut with =
        sh("env; printf 'postgres-'; echo warn >&2; sleep 0.1; echo can\"\"ary-9f3a; echo $DATABASE_URL; exit 1");
    with["envFrom"] = json!(["DATABASE_URL"]);
    with["env"] = json!({ "PLAIN": "plain-value" });
    let mut request = request(dir.path(), &json!([with]));
    request.baseline = baseline;
    let verified = verifier().run(request).await.unwrap();
    let log = text(&verified, "checks/command-1.log");
    assert!(log.contains("PLAIN=plain-value") && log.contains("DATABASE_URL="), "{log}");
    assert!(!log.contains("API_TOKEN"), "{log}");
    for (name, bytes) in &verified.files {
        let all = String::from_utf8_lossy(bytes);
        assert!(!all.contains("canary-9f3a") && !all.contains("canary-77b1"), "a secret stands in {name}: {all}");
    }
    assert!(verified.bundle.notes.iter().any(|n| n.contains("patch")), "{:?}", verified.bundle.notes);
}

/// Case VF-2: before, between and during checks. The running check ends at once and there is no result.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_verification_has_no_result() {
    let dir = tempfile::tempdir().unwrap();
    let before = request(dir.path(), &json!([sh("touch ran")]));
    before.cancel.cancel();
    assert!(matches!(verifier().run(before).await, Err(Error::Cancelled)));
    assert!(!dir.path().join("ran").exists());

    let during = request(dir.path(), &json!([sh("touch begun; sleep 64.4321")]));
    let (cancel, started) = (during.cancel.clone(), Instant::now());
    let begun = dir.path().join("begun");
    let canceller = tokio::spawn(async move {
        while !begun.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        cancel.cancel();
    });
    assert!(matches!(verifier().run(during).await, Err(Error::Cancelled)));
    canceller.await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(10) && !alive("64.4321"));

    let mut between = request(dir.path(), &json!([sh("true"), sh("touch second")]));
    let cancel = between.cancel.clone();
    between.progress = Some(Arc::new(move |_, _, _: &str| cancel.cancel()));
    assert!(matches!(verifier().run(between).await, Err(Error::Cancelled)));
    assert!(!dir.path().join("second").exists());
}

/// Repairs by running a closure on the round's number.
struct Repair<F>(F);

impl<F: Fn(u32, &CheckResult) -> Result<(), String> + Send + Sync> Fixer for Repair<F> {
    fn fix<'a>(&'a self, round: u32, failing: &'a CheckResult) -> Boxed<'a, Result<(), String>> {
        let done = (self.0)(round, failing);
        Box::pin(async move { done })
    }
}

/// Scenario 17: a repair that works, one that only says so, one that fails.
#[tokio::test(flavor = "multi_thread")]
async fn repairs_are_judged_by_the_checks_alone() {
    let dir = tempfile::tempdir().unwrap();
    let rounds = async |fixer: Arc<dyn Fixer>| {
        let _ = fs::remove_file(dir.path().join("fixed"));
        let mut request = request(dir.path(), &json!([sh("true"), { "id": "works", "spec": sh("test -f fixed") }]));
        request.contract.fix_on_failure_rounds = 2;
        request.fixer = Some(fixer);
        verifier().run(request).await.unwrap().bundle
    };
    let at = dir.path().join("fixed");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let saw = seen.clone();
    let good = rounds(Arc::new(Repair(move |round, failing: &CheckResult| {
        saw.lock().unwrap().push((round, failing.id.clone()));
        fs::write(&at, "").map_err(|e| e.to_string())
    })))
    .await;
    assert!(good.passed && good.rounds == 1, "{good:#?}");
    assert_eq!(*seen.lock().unwrap(), [(1, "works".to_owned())]);
    let liar = rounds(Arc::new(Repair(|_, _: &CheckResult| Ok(())))).await;
    assert!(!liar.passed && liar.rounds == 2);
    let broken = rounds(Arc::new(Repair(|_, _: &CheckResult| Err("engine gone".to_owned())))).await;
    assert!(!broken.passed && broken.rounds == 1 && broken.notes[0].contains("engine gone"), "{broken:#?}");
}

/// Case VF-3: checks that change the tree are said to, and the digest is that of the tree afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn checks_that_change_the_tree_are_noted() {
    let (dir, _) = repo();
    let first = verify(dir.path(), json!([sh("echo x > made")])).await.bundle;
    assert!(first.passed && first.notes[0].contains("changed while the checks ran"), "{first:#?}");
    let second = verify(dir.path(), json!([sh("touch made")])).await.bundle;
    assert_eq!((second.tree_digest, second.notes.len()), (first.tree_digest, 0));
}

/// Scenario 20: the cost of a check beyond its process.
#[tokio::test(flavor = "multi_thread")]
async fn twenty_trivial_checks_are_cheap() {
    let dir = tempfile::tempdir().unwrap();
    let checks: Vec<Value> = (0..20).map(|_| json!({ "type": "command", "cmd": "true" })).collect();
    let started = Instant::now();
    let bundle = verify(dir.path(), json!(checks)).await.bundle;
    let each: Vec<u64> = bundle.results.iter().map(|r| r.duration_ms).collect();
    println!("20 checks of true: {:?} in all, each {each:?} ms", started.elapsed());
    assert!(bundle.passed && started.elapsed() < Duration::from_secs(5));
}
