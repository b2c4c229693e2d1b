//! Command checks: whole trees end, output stays bounded, secrets stay out, cancelling ends everything.

use super::*;

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

/// Scenario 7 and case HO-2: half a gigabyte on both streams. Measured in a process of its own, because
/// memory is counted by process and other tests run beside this one.
#[test]
fn huge_output_leaves_memory_flat() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "verify::commands::half_a_gigabyte", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by huge_output_leaves_memory_flat in a process of its own"]
async fn half_a_gigabyte() {
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
}

/// Scenario 8 and case HO-3: odd bytes and one long line.
#[tokio::test(flavor = "multi_thread")]
async fn odd_output_becomes_text() {
    let dir = tempfile::tempdir().unwrap();
    let odd = r"printf '\377\376 bad \0 nul\n\033[31mred\033[0m\n'; head -c 1000000 /dev/zero | tr '\0' x; echo; echo '🦀é'; exit 1";
    let verified = verify(dir.path(), json!([sh(odd)])).await;
    let tail = verified.bundle.results[0].tail.clone().unwrap();
    assert!(tail.ends_with("🦀é") && !tail.contains('\u{1b}'), "{}", tail.len());
    assert!(text(&verified, "checks/command-1.log").contains("\u{fffd}\u{fffd} bad"));
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

/// A check that takes its supervisor down is red, nothing of it lives on, and the next check runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_check_cannot_escape_by_killing_its_supervisor() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = verify(dir.path(), json!([sh("kill -9 $PPID; sleep 65.4321"), sh("true")])).await.bundle;
    let [first, second] = bundle.results.as_slice() else { panic!() };
    assert!(!first.passed && first.detail.contains("unknown way"), "{first:#?}");
    assert!(second.passed, "{second:#?}");
    assert!(!alive("65.4321"));
}
