//! Processes and their trees, with the real supervisor: nothing survives what it must not survive.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    future::Future,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use claw_orchestrator::sys::{
    ids, proctree,
    supervise::{Child, ChildSpec, Ended, Error, Exit, Options, Stdin, Supervisor},
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Scripts with everything an agent's shell was ever seen to do; each leaves processes that carry the marker.
const ZOO: &str = r#"
    sleep 1000 &
    setsid sh -c 'trap "" TERM HUP INT; while :; do sleep 1; done' &
    (setsid sh -c '(sleep 1000 &) ; exec sleep 1001' &)
    sh -c 'kill -STOP $$; sleep 1000' &
    setsid sh -c 'sh -c "sleep 1000 & kill -STOP \$\$; sleep 1000" & kill -STOP $$' &
"#;

/// One that nothing but its place in the tree gives away.
const STRANGER: &str = r#"
    env -i PATH="$PATH" setsid sh -c 'sleep 1002 & wait' "$CLAWO_TEST_MARKER" &
"#;

/// Relays: each link starts the next one and ends, every 25th leaves a sleeper. They end by themselves in the end.
const RELAYS: &str = r#"
    relay='[ "$1" -gt 0 ] || exit 0
        [ $(($1 % 25)) -ne 0 ] || setsid sleep 300 &
        setsid sh -c "$relay" "$0" $(($1 - 1)) &
        exit 0'
    export relay
    for _ in 1 2 3; do (setsid sh -c "$relay" "$CLAWO_TEST_MARKER" 9000 &); done
"#;

/// More work than there are cores, for as long as this lives.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn new() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        // Two for every core.
        for _ in 0..2 * std::thread::available_parallelism().unwrap().get() {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(over)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn options() -> Options {
    Options { program: env!("CARGO_BIN_EXE_clawo").into(), owner: ids::sortable() }
}

/// A marker for one test, and what carries it now.
struct Marker(String);

impl Marker {
    fn new() -> Self {
        Self(format!("CLAWO_TEST_MARKER={}", ids::sortable()))
    }

    fn env(&self) -> Vec<(OsString, OsString)> {
        let (name, value) = self.0.split_once('=').unwrap();
        vec![(name.into(), value.into()), ("PATH".into(), std::env::var_os("PATH").unwrap())]
    }

    fn sh(&self, script: &str) -> ChildSpec {
        ChildSpec {
            program: "sh".into(),
            args: vec!["-c".into(), script.into()],
            env: self.env(),
            cwd: "/".into(),
            stdin: Stdin::Null,
            writable: None,
        }
    }

    /// Those with the marker in the environment, and those that got rid of theirs but have it as an argument.
    fn alive(&self) -> Vec<String> {
        let value = self.0.split_once('=').unwrap().1.as_bytes();
        let named = |pid: i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|arg| arg == value)
        };
        let mut found: Vec<_> = proctree::marked(&self.0, None).unwrap();
        found.extend(proctree::list().unwrap().into_iter().filter(|process| named(process.pid)));
        found.sort_by_key(|process| process.pid);
        found.dedup_by_key(|process| process.pid);
        found.iter().map(proctree::Process::label).collect()
    }

    /// Waits until at least `count` processes carry it.
    async fn reach(&self, count: usize) {
        eventually(|| self.alive().len() >= count, || format!("{:?}", self.alive())).await;
    }

    /// Waits until none carries it.
    async fn vanish(&self) {
        eventually(|| self.alive().is_empty(), || format!("still alive: {:?}", self.alive())).await;
    }
}

async fn eventually(mut test: impl FnMut() -> bool, says: impl Fn() -> String) {
    let start = Instant::now();
    while !test() {
        assert!(start.elapsed() < Duration::from_secs(10), "{}", says());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn within<T>(limit: u64, what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(limit), what).await.expect("took too long")
}

async fn output(child: &mut Child) -> String {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn exits_output_input_and_environment() {
    let marker = Marker::new();
    let supervisor = Supervisor::start(&options()).await.unwrap();
    let mut child = supervisor.spawn(marker.sh("echo hi; pwd; exit 7")).await.unwrap();
    assert_eq!(output(&mut child).await, "hi\n/\n");
    assert_eq!(child.wait().await.unwrap(), Exit { code: Some(7), signal: None });
    assert_eq!(child.wait().await.unwrap(), Exit { code: Some(7), signal: None });

    // A signal is reported as such, a real-time one too, and goes to the group.
    let mut child = supervisor.spawn(marker.sh("sleep 1000 & wait")).await.unwrap();
    marker.reach(2).await;
    child.signal(15).await.unwrap();
    assert_eq!(child.wait().await.unwrap(), Exit { code: None, signal: Some(15) });
    marker.vanish().await;
    assert!(child.signal(999).await.is_err());
    child.signal(15).await.unwrap();
    let mut child = supervisor.spawn(marker.sh("kill -40 $$")).await.unwrap();
    assert_eq!(child.wait().await.unwrap(), Exit { code: None, signal: Some(40) });

    // SE-1: exactly the given environment and the two variables; nothing of the server's, no open descriptor.
    let odd = OsString::from("käse \n ' \" $x");
    let mut spec = ChildSpec { program: "env".into(), args: vec!["-0".into()], ..marker.sh("") };
    spec.env.push(("ODD".into(), odd.clone()));
    let text = output(&mut supervisor.spawn(spec).await.unwrap()).await;
    let env: BTreeMap<&str, &str> = text.split_terminator('\0').map(|line| line.split_once('=').unwrap()).collect();
    let names: Vec<&str> = env.keys().copied().collect();
    assert_eq!(names, ["CLAWO_OWNER", "CLAWO_TEST_MARKER", "CLAWO_TREE", "ODD", "PATH"]);
    assert_eq!(env["ODD"], odd.to_str().unwrap());
    let script = "ls /proc/self/fd | tr '\n' ' '; grep -E 'Sig(Blk|Ign)' /proc/self/status | tr -d ' \t\n'";
    let text = output(&mut supervisor.spawn(marker.sh(script)).await.unwrap()).await;
    let (fds, masks) = text.split_once(" Sig").unwrap();
    assert_eq!(fds, "0 1 2 3");
    for mask in masks.split("Sig") {
        // Two signals belong to the C library, which lets nobody change them.
        let bits = u64::from_str_radix(mask.split_once(':').unwrap().1, 16).unwrap();
        assert_eq!(bits & !(0b11 << 31), 0, "{mask}");
    }

    // Standard input: empty, or a pipe whose end is seen.
    let mut cat = ChildSpec { program: "cat".into(), args: vec![], ..marker.sh("") };
    assert_eq!(output(&mut supervisor.spawn(cat.clone()).await.unwrap()).await, "");
    cat.stdin = Stdin::Pipe;
    let mut child = supervisor.spawn(cat).await.unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"there and back").await.unwrap();
    drop(stdin);
    assert_eq!(output(&mut child).await, "there and back");
    assert_eq!(within(5, supervisor.end(Duration::ZERO)).await, Ended::Empty);
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let marker = Marker::new();
    let supervisor = Supervisor::start(&options()).await.unwrap();
    // PA-2: everything under a directory with spaces and brackets.
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("My Folder (1) & co");
    std::fs::create_dir(&dir).unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        use std::os::unix::fs::PermissionsExt as _;
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let good = file("a tool", "#!/bin/sh\necho \"$0 $1\"\n", 0o755);
    let orphaned = file("orphaned", "#!/no/such/interpreter\n", 0o755);
    let plain = file("plain", "text", 0o644);
    let spec = |program: &Path| ChildSpec { program: program.into(), args: vec!["x y".into()], ..marker.sh("") };

    let mut named = ChildSpec { cwd: dir.clone(), ..spec(Path::new("a tool")) };
    named.env.push(("PATH".into(), dir.clone().into()));
    for asked in [spec(&good), named.clone(), ChildSpec { cwd: dir.clone(), ..spec(Path::new("./a tool")) }] {
        let text = output(&mut supervisor.spawn(asked).await.unwrap()).await;
        assert!(text.ends_with("a tool x y\n"), "{text}");
    }
    let cases: [(ChildSpec, bool, &str); 7] = [
        (spec(Path::new("no-such-program")), true, "no such program"),
        (spec(&dir.join("none")), true, "no such program"),
        (spec(&plain), false, "not an executable"),
        (spec(&orphaned), false, "interpreter"),
        (ChildSpec { cwd: dir.join("gone"), ..named.clone() }, false, "directory"),
        (ChildSpec { cwd: "relative".into(), ..named.clone() }, false, "absolute"),
        (ChildSpec { args: vec!["a\0b".into()], ..named.clone() }, false, "NUL"),
    ];
    for (asked, missing, says) in cases {
        match supervisor.spawn(asked).await {
            Err(Error::Start { reason, not_found, .. }) => {
                assert_eq!(not_found, missing, "{reason}");
                assert!(reason.contains(says), "{reason}");
            }
            other => panic!("{says}: {other:?}"),
        }
    }
    // Refusals harm nothing.
    assert_eq!(supervisor.spawn(marker.sh("exit 4")).await.unwrap().wait().await.unwrap().code, Some(4));
    assert_eq!(supervisor.end(Duration::ZERO).await, Ended::Empty);
    for program in ["/bin/true", "/no/such/clawo"] {
        let wrong = Options { program: program.into(), ..options() };
        assert!(matches!(within(5, Supervisor::start(&wrong)).await, Err(Error::Supervisor { op: "start", .. })));
    }
}

#[tokio::test]
async fn a_tree_ends_whole_and_the_supervisor_goes_on() {
    // ZP-1, ZP-4: background, own session, double fork, TERM ignored, stopped, cleared environment.
    let marker = Marker::new();
    let supervisor = Supervisor::start(&options()).await.unwrap();
    for round in 0..3 {
        let mut child = supervisor.spawn(marker.sh(&format!("{ZOO} {STRANGER} exit 0"))).await.unwrap();
        assert_eq!(child.wait().await.unwrap().code, Some(0));
        marker.reach(10).await;
        let grace = Duration::from_millis(200 * round);
        assert_eq!(within(5, supervisor.kill_all(grace)).await.unwrap(), Ended::Empty);
        assert_eq!(marker.alive(), [""; 0]);
    }
    // Nothing there: no waiting for the grace.
    assert_eq!(within(5, supervisor.kill_all(Duration::from_secs(60))).await.unwrap(), Ended::Empty);
    // What reacts to TERM gets the chance, even when it was stopped.
    let script = "trap 'echo bye; exit 3' TERM; kill -STOP $$; while :; do sleep 0.05; done";
    let mut child = supervisor.spawn(marker.sh(script)).await.unwrap();
    let stopped = || proctree::get(child.pid.cast_signed()).is_some_and(|process| process.state == 'T');
    eventually(stopped, || "not stopped".to_owned()).await;
    assert_eq!(within(5, supervisor.kill_all(Duration::from_secs(60))).await.unwrap(), Ended::Empty);
    assert_eq!((output(&mut child).await.as_str(), child.wait().await.unwrap().code), ("bye\n", Some(3)));
    // A kill of a stubborn one is reported as a kill.
    let mut child = supervisor.spawn(marker.sh("trap '' TERM; while :; do sleep 0.05; done")).await.unwrap();
    marker.reach(1).await;
    assert_eq!(within(5, supervisor.end(Duration::from_millis(100))).await, Ended::Empty);
    assert_eq!(child.wait().await.unwrap().signal, Some(9));
}

#[tokio::test]
async fn a_fork_loop_ends() {
    let marker = Marker::new();
    let supervisor = Supervisor::start(&options()).await.unwrap();
    let script = "trap '' TERM; n=0; while [ $n -lt 1500 ]; do n=$((n+1)); setsid sleep 1000 & sleep 0.01; done";
    supervisor.spawn(marker.sh(script)).await.unwrap();
    marker.reach(20).await;
    assert_eq!(within(8, supervisor.kill_all(Duration::from_millis(50))).await.unwrap(), Ended::Empty);
    assert_eq!(marker.alive(), [""; 0]);
    assert_eq!(supervisor.end(Duration::ZERO).await, Ended::Empty);
}

#[tokio::test]
async fn relays_are_overtaken_on_a_busy_machine() {
    // ZP-1, ZP-2: whoever looks finds other processes than the moment before.
    let _busy = Busy::new();
    for how in ["asked", "hung up", "killed"] {
        let marker = Marker::new();
        let supervisor = Supervisor::start(&options()).await.unwrap();
        let mut child = supervisor.spawn(marker.sh(&format!("echo $PPID; {RELAYS}"))).await.unwrap();
        let mut pid = [0; 12];
        let read = child.stdout.as_mut().unwrap().read(&mut pid).await.unwrap();
        let pid = std::str::from_utf8(&pid[..read]).unwrap().trim().to_owned();
        let sleepers = || marker.alive().iter().filter(|label| label.contains(" sleep ")).count();
        eventually(|| sleepers() >= 6, || "no relay got going".to_owned()).await;
        if how == "asked" {
            assert_eq!(within(20, supervisor.kill_all(Duration::ZERO)).await.unwrap(), Ended::Empty);
            assert_eq!(marker.alive(), [""; 0], "what is empty stays empty");
        }
        if how == "killed" {
            assert!(Command::new("kill").args(["-KILL", &pid]).status().unwrap().success());
        }
        assert_eq!(within(20, supervisor.end(Duration::ZERO)).await, Ended::Empty, "{how}");
        assert_eq!(marker.alive(), [""; 0], "{how}");
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(marker.alive(), [""; 0], "{how}: something came back");
    }
}

#[tokio::test]
async fn dropping_the_supervisor_ends_its_tree() {
    let marker = Marker::new();
    let supervisor = Supervisor::start(&options()).await.unwrap();
    let mut child = supervisor.spawn(marker.sh(&format!("{ZOO} {STRANGER} sleep 1000"))).await.unwrap();
    marker.reach(11).await;
    drop(supervisor);
    marker.vanish().await;
    assert!(within(5, child.wait()).await.is_ok_and(|exit| exit.signal.is_some()) || child.signal(15).await.is_err());
}

#[tokio::test]
async fn a_supervisor_that_is_killed_or_stopped_leaves_nothing() {
    for signal in ["KILL", "STOP"] {
        let marker = Marker::new();
        let supervisor = Supervisor::start(&options()).await.unwrap();
        let mut child = supervisor.spawn(marker.sh(&format!("{ZOO} echo $PPID; sleep 1000"))).await.unwrap();
        let mut pid = [0; 12];
        let read = child.stdout.as_mut().unwrap().read(&mut pid).await.unwrap();
        let pid = std::str::from_utf8(&pid[..read]).unwrap().trim().to_owned();
        marker.reach(11).await;
        assert!(Command::new("kill").args([&format!("-{signal}"), &pid]).status().unwrap().success());
        if signal == "KILL" {
            assert!(within(5, child.wait()).await.is_err(), "nobody can know how it ended");
            assert_eq!(marker.alive(), [""; 0], "the wait ends after the tree");
            assert!(supervisor.spawn(marker.sh("exit 0")).await.is_err());
        }
        assert_eq!(within(20, supervisor.end(Duration::ZERO)).await, Ended::Empty);
        assert_eq!(marker.alive(), [""; 0], "after {signal}");
    }
}

/// Not a test by itself: the server that the next one kills.
#[tokio::test]
async fn server_that_is_killed() {
    let (Ok(value), Some(dir)) = (std::env::var("CLAWO_TEST_SERVER"), std::env::var_os("CLAWO_TEST_READY")) else {
        return;
    };
    let marker = Marker(value);
    let mut held = Vec::new();
    for _ in 0..6 {
        let supervisor = Supervisor::start(&options()).await.unwrap();
        supervisor.spawn(marker.sh(&format!("{ZOO} {STRANGER} sleep 1000"))).await.unwrap();
        held.push(supervisor);
    }
    std::fs::write(PathBuf::from(dir), "ready").unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn a_server_that_is_killed_leaves_nothing() {
    // ZP-2: six agents with everything below them, and SIGKILL.
    let (marker, neighbour) = (Marker::new(), Marker::new());
    let other = Supervisor::start(&options()).await.unwrap();
    other.spawn(neighbour.sh("exec sleep 1000")).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let ready = dir.path().join("ready");
    let mut server = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process::server_that_is_killed", "--nocapture"])
        .env("CLAWO_TEST_SERVER", &marker.0)
        .env("CLAWO_TEST_READY", &ready)
        .spawn()
        .unwrap();
    eventually(|| ready.exists(), || "the server did not start".to_owned()).await;
    marker.reach(6 * 11).await;
    server.kill().unwrap();
    server.wait().unwrap();
    marker.vanish().await;
    // ZP-3: a neighbour's are untouched.
    assert_eq!(neighbour.alive().len(), 1, "{:?}", neighbour.alive());
    assert_eq!(other.end(Duration::ZERO).await, Ended::Empty);
}

#[tokio::test]
async fn many_programs_and_much_output() {
    let marker = Marker::new();
    let supervisor = Supervisor::start(&options()).await.unwrap();
    let start = Instant::now();
    for round in 0..200 {
        let asked = ChildSpec { program: "true".into(), args: vec![], ..marker.sh("") };
        assert_eq!(supervisor.spawn(asked).await.unwrap().wait().await.unwrap().code, Some(0), "round {round}");
    }
    println!("200 programs in {:?}", start.elapsed());
    // HO-2: 50 MB arrive whole, and standard error does not get in the way.
    let script = "head -c 50000000 /dev/zero; head -c 5000000 /dev/zero >&2";
    let mut child = supervisor.spawn(marker.sh(script)).await.unwrap();
    let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let (mut sink, mut other) = (tokio::io::sink(), tokio::io::sink());
    let (out, err) = tokio::join!(tokio::io::copy(&mut stdout, &mut sink), tokio::io::copy(&mut stderr, &mut other));
    assert_eq!((out.unwrap(), err.unwrap()), (50_000_000, 5_000_000));
    assert_eq!(child.wait().await.unwrap().code, Some(0));
    // Side by side: each gets its own answer.
    let mut children = Vec::new();
    for code in 0..20 {
        children.push((code, supervisor.spawn(marker.sh(&format!("exit {code}"))).await.unwrap()));
    }
    for (code, mut child) in children {
        assert_eq!(child.wait().await.unwrap().code, Some(code));
    }
    assert_eq!(supervisor.end(Duration::ZERO).await, Ended::Empty);
}
