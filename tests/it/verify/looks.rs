//! Checks that look at files, changes, servers and pages.

use super::*;

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
