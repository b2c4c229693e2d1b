//! Whole verifications: evidence, repairs, protected tests.

use super::*;

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

/// Scenarios 12 and 17, case VT-10: test files are compared before the checks and before each repair, first
/// in the results, and a repair that edits one is refuted.
#[tokio::test(flavor = "multi_thread")]
async fn a_repair_that_edits_a_test_is_refuted() {
    let (dir, baseline) = repo();
    let at = dir.path().to_path_buf();
    fs::create_dir(at.join("tests")).unwrap();
    let test = at.join("tests/check.sh");
    fs::write(&test, "test -f fixed\n").unwrap();
    let rounds = async |fixer: Arc<dyn Fixer>, checks: Value| {
        let mut request = request(&at, &checks);
        request.baseline = baseline.clone();
        request.contract.fix_on_failure_rounds = 1;
        request.fixer = Some(fixer);
        request.protected = Some(protected::take(&RealFs, &at, &request.contract).unwrap());
        verifier().run(request).await.unwrap().bundle
    };
    let checks = json!([{ "type": "command", "cmd": "sh", "args": ["tests/check.sh"] }]);
    let (to, path) = (test.clone(), at.join("fixed"));
    let honest = rounds(
        Arc::new(Repair(move |_, _: &CheckResult| fs::write(&path, "").map_err(|e| e.to_string()))),
        checks.clone(),
    )
    .await;
    assert!(honest.passed && honest.rounds == 1, "{honest:#?}");
    let first = &honest.results[0];
    assert!(first.id == "protected-tests" && first.required && first.passed, "{first:#?}");

    fs::remove_file(at.join("fixed")).unwrap();
    let edit = Repair(move |_, _: &CheckResult| fs::write(&to, "true\n").map_err(|e| e.to_string()));
    let cheat = rounds(Arc::new(edit), checks).await;
    assert!(!cheat.passed && cheat.results[1].passed, "{cheat:#?}");
    let first = cheat.first_failure().unwrap();
    assert!(first.id == "protected-tests" && first.required, "{first:#?}");

    // A check that edits a test: the repair is told about the test, not about the check.
    let told = Arc::new(Mutex::new(String::new()));
    let to = told.clone();
    let listen = Repair(move |_, failing: &CheckResult| {
        *to.lock().unwrap() = failing.id.clone();
        Ok(())
    });
    let edited = rounds(Arc::new(listen), json!([sh("echo '# edited' >> tests/check.sh; exit 1")])).await;
    let green =
        rounds(Arc::new(Repair(|_, _: &CheckResult| Ok(()))), json!([sh("echo '# again' >> tests/check.sh")])).await;
    assert!(!green.passed && green.results[0].detail.starts_with("changed while the checks ran"), "{green:#?}");
    assert_eq!(*told.lock().unwrap(), "protected-tests");
    assert!(!edited.passed);
}
