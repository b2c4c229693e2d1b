//! An owner that sleeps while another one takes its run over, and what it does when it wakes: nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Duration,
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::{living, lose_lock, mark, say, sleeping};
use crate::{
    server::host::{Host, PATIENCE, show, signal, within},
    support::{World, agent, check, git, with},
};

/// Longer than two looks of an owner at its run.
const TWO_LOOKS: Duration = Duration::from_millis(800);

/// Everything an owner might change: the run's files, the project's files, refs and status.
struct Picture {
    files: BTreeMap<PathBuf, Vec<u8>>,
    refs: String,
    status: String,
}

impl Picture {
    /// Inside git's own directory only refs and index matter; the lease beats, so it is left out.
    fn of(world: &World, run: &str) -> Self {
        let mut files = BTreeMap::new();
        let mut open = vec![world.run_dir(run), world.project()];
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(&dir).unwrap().flatten() {
                let path = entry.path();
                if path.is_dir() && !path.ends_with(".git") {
                    open.push(path);
                } else if path.is_file() && !path.ends_with("lease.json") {
                    files.insert(path.clone(), std::fs::read(&path).unwrap());
                }
            }
        }
        let project = world.project();
        Self {
            files,
            refs: git(&project, &["for-each-ref"]) + &git(&project, &["rev-parse", "HEAD"]),
            status: git(&project, &["status", "--porcelain"]) + &git(&project, &["worktree", "list"]),
        }
    }

    /// Nothing has changed.
    #[track_caller]
    fn is_still(&self, world: &World, run: &str) {
        let now = Self::of(world, run);
        let names: BTreeSet<&PathBuf> = self.files.keys().chain(now.files.keys()).collect();
        let text = |bytes: Option<&Vec<u8>>| bytes.map(|b| String::from_utf8_lossy(b).into_owned());
        for name in names {
            let (before, after) = (self.files.get(name), now.files.get(name));
            assert!(before == after, "{}: {:#?} became {:#?}", name.display(), text(before), text(after));
        }
        assert_eq!((&now.refs, &now.status), (&self.refs, &self.status));
    }
}

/// A first call that leaves a whole family behind and waits for ever, and later ones that do the work. One of the family
/// writes down that it was asked to end.
fn first_hangs(world: &World, mark: &str) -> String {
    let script = format!(
        r#"echo call >> ../calls
        mkdir ../once 2>/dev/null || {{ echo by the second > value; exit 0; }}
        setsid sleep {mark} &
        (setsid sh -c 'trap "" HUP INT; trap "echo asked >> ../asked" TERM; touch ../able
            while :; do sleep 1; done' {mark} &)
        sh -c 'kill -STOP $$; sleep {mark}' &
        exec sleep {mark}"#
    );
    world.scenario(
        "work",
        json!([{ "times": 0, "steps": [
            "ignoreSigterm",
            "ignoreInterrupt",
            { "run": ["sh", "-c", script] },
            { "say": "done" },
        ] }]),
    )
}

/// The first call is made and all of its family is there.
fn has_family(world: &World, mark: &str) {
    within(PATIENCE, "the first agent and its family", || {
        living(mark).len() >= 4 && world.root().join("able").exists()
    });
}

/// The family is ended, and sooner than those that are asked first, because its owner's successor works there too.
#[track_caller]
fn killed_unasked(world: &World, mark: &str) {
    within(PATIENCE, "the woken one ends its agents", || living(mark).is_empty());
    assert!(!world.root().join("asked").exists(), "they were given time to end by themselves");
}

fn calls(world: &World) -> usize {
    std::fs::read_to_string(world.root().join("calls")).unwrap_or_default().lines().count()
}

fn stop(host: &Host) {
    signal(host.pid(), Signal::SIGSTOP);
    let stat = format!("/proc/{}/stat", host.pid());
    let stopped = || std::fs::read_to_string(&stat).unwrap().rsplit_once(')').unwrap().1.starts_with(" T");
    within(PATIENCE, "it sleeps", stopped);
}

/// The code of a refused request that was sent before.
#[track_caller]
fn code(host: &mut Host, request: u64) -> Value {
    let answer = host.answer(request);
    assert_eq!(answer["result"]["isError"], true, "{answer:#}");
    answer["result"]["structuredContent"]["code"].clone()
}

/// OF-3, P5: B takes over and finishes while A sleeps. A wakes, ends its agents and their families, changes nothing,
/// tells its callers, and serves on.
#[test]
fn a_sleeping_owner_wakes_to_a_finished_run() {
    let world = World::new();
    let family = mark(47_120_701);
    let model = first_hangs(&world, &family);
    let spec = json!({ "name": "sleep", "contract": check(&["test", "-e", "value"]),
        "nodes": [agent("work", "Work.", &model), agent("last", "Say it.", "noop")] });
    let mut a = Host::open(&world);
    a.start(&world, "slept", spec);
    has_family(&world, &family);
    std::thread::sleep(TWO_LOOKS);
    let wait = a.send_call("workflow_status", json!({ "runId": "slept", "waitMs": 50_000 }));
    std::thread::sleep(Duration::from_millis(100));
    stop(&a);
    let steer = a.send_call("workflow_steer", json!({ "runId": "slept", "text": "asked of the sleeper" }));
    let cancel = a.send_call("workflow_cancel", json!({ "runId": "slept" }));

    lose_lock(&world, "slept");
    let mut b = Host::open(&world);
    b.call("workflow_resume", json!({ "runId": "slept" }));
    let done = b.until("slept", |v| v["endedAt"].is_string());
    assert_eq!((&done["state"], &done["outcome"]), (&json!("completed"), &json!("verified")), "{done:#}");
    assert!(!living(&family).is_empty(), "the sleeper's agents live: it cannot end them");
    within(PATIENCE, "B has let go", || show(&world, "slept")["live"] == false);
    let before = Picture::of(&world, "slept");

    signal(a.pid(), Signal::SIGCONT);
    killed_unasked(&world, &family);
    assert_eq!(code(&mut a, steer), "superseded");
    assert_eq!(code(&mut a, cancel), "superseded");
    let seen = a.answer(wait)["result"]["structuredContent"].clone();
    std::thread::sleep(TWO_LOOKS);
    before.is_still(&world, "slept");
    assert_eq!(calls(&world), 2);
    for host in [&mut a, &mut b] {
        let view = host.until("slept", |v| v["live"] == false);
        assert_eq!((&view["seq"], &view["outcome"]), (&done["seq"], &json!("verified")), "{seen:#}");
        assert_eq!(host.close().0, 0);
    }
}

/// OF-3: A's agent answers while A sleeps, and costs a fortune. Neither answer nor cost counts, and A keeps no snapshot.
#[test]
fn the_answer_of_a_sleepers_agent_does_not_count() {
    let world = World::new();
    let first = r"echo call >> ../calls; mkdir ../once 2>/dev/null || exit 1; sleep 2; echo x > late";
    let model = world.scenario(
        "late",
        json!([{ "times": 0, "steps": [{ "run": ["sh", "-c", first] }, { "cost": 5.0 }, { "say": "from an agent" }] }]),
    );
    let spec = json!({ "name": "late", "nodes": [agent("work", "Work.", &model)] });
    let mut a = Host::open(&world);
    a.start(&world, "late", spec);
    within(PATIENCE, "the first agent", || calls(&world) == 1);
    stop(&a);
    lose_lock(&world, "late");
    let mut b = Host::open(&world);
    b.call("workflow_resume", json!({ "runId": "late" }));
    let done = b.until("late", |v| v["endedAt"].is_string());
    assert_eq!((&done["state"], &done["costUsd"], calls(&world)), (&json!("completed"), &json!(5.0), 2), "{done:#}");
    within(PATIENCE, "B has let go", || show(&world, "late")["live"] == false);
    within(PATIENCE, "A's agent has done its part", || world.project().join("late").exists());
    std::thread::sleep(Duration::from_millis(300));
    let before = Picture::of(&world, "late");
    signal(a.pid(), Signal::SIGCONT);
    a.until("late", |v| v["live"] == false);
    std::thread::sleep(TWO_LOOKS);
    before.is_still(&world, "late");
    let view = show(&world, "late");
    assert_eq!((&view["costUsd"], &view["seq"]), (&json!(5.0), &done["seq"]), "{view:#}");
    assert_eq!(a.close().0, 0);
}

/// OF-3, effect boundary: a retry falls due while its owner sleeps and after another took over. It is not started.
#[test]
fn a_woken_owner_starts_no_agent() {
    let world = World::new();
    let agent_of_b = mark(47_120_703);
    let script = format!("echo $CLAWO_OWNER >> ../calls; mkdir ../once 2>/dev/null && exit 0; exec sleep {agent_of_b}");
    let model = world.scenario(
        "flaky",
        json!([{ "times": 0, "steps": [
            { "run": ["sh", "-c", script] },
            { "fail": "not yet" },
        ] }]),
    );
    let node = with(agent("work", "Work.", &model), json!({ "retry": { "max": 3, "backoffMs": 4000 } }));
    let mut a = Host::open(&world);
    a.start(&world, "due", json!({ "name": "due", "nodes": [node] }));
    a.until("due", |v| v["waitingFor"]["kind"] == "backoff");
    stop(&a);
    lose_lock(&world, "due");
    let mut b = Host::open(&world);
    b.call("workflow_resume", json!({ "runId": "due" }));
    within(PATIENCE, "the second agent, B's", || calls(&world) == 2);
    std::thread::sleep(Duration::from_millis(500));
    let (ours, lines) = (sleeping(&agent_of_b), super::log_of(&world, "due").len());
    signal(a.pid(), Signal::SIGCONT);
    std::thread::sleep(2 * TWO_LOOKS);
    let view = a.until("due", |_| true);
    assert_eq!((&view["live"], &view["state"]), (&json!(true), &json!("running")), "B's, as A sees it: {view:#}");
    assert_eq!((calls(&world), super::log_of(&world, "due").len()), (2, lines));
    let owners = std::fs::read_to_string(world.root().join("calls")).unwrap();
    assert_ne!(owners.lines().next(), owners.lines().nth(1), "each called by its own server");
    assert_eq!(a.close().0, 0);
    assert_eq!(sleeping(&agent_of_b), ours, "B's agent is untouched");
    b.call("workflow_cancel", json!({ "runId": "due" }));
}

/// OF-3, OF-6, P7: while A sleeps the run is deleted and another one made under its id. A ends its own agents, not
/// those of the new run, which has the same name in their environment, and writes nothing into it.
#[test]
fn a_sleeper_is_a_stranger_in_the_run_made_anew() {
    let world = World::new();
    let (family, stranger) = (mark(47_120_704), mark(47_120_705));
    let model = first_hangs(&world, &family);
    let mut a = Host::open(&world);
    a.start(&world, "again", json!({ "name": "old", "nodes": [agent("work", "Work.", &model)] }));
    has_family(&world, &family);
    stop(&a);
    let steer = a.send_call("workflow_steer", json!({ "runId": "again", "text": "for the former" }));
    let cancel = a.send_call("workflow_cancel", json!({ "runId": "again", "reason": "the former" }));
    lose_lock(&world, "again");
    let mut b = Host::open(&world);
    b.call("workflow_delete", json!({ "runId": "again" }));
    let hang = world.scenario(
        "new",
        json!([{ "times": 0, "steps": [
        { "spawn": { "argv": ["sleep", stranger], "newSession": true } },
        { "run": ["sh", "-c", "while [ ! -e ../go ]; do sleep 0.05; done"] },
        { "say": "new" },
    ] }]),
    );
    b.start(&world, "again", json!({ "name": "new", "nodes": [agent("other", "Work.", &hang)] }));
    within(PATIENCE, "the new agent and its child", || !sleeping(&stranger).is_empty());
    std::thread::sleep(TWO_LOOKS);
    let (before, ours) = (Picture::of(&world, "again"), living(&stranger));

    signal(a.pid(), Signal::SIGCONT);
    killed_unasked(&world, &family);
    assert_eq!(code(&mut a, steer), "superseded");
    assert_eq!(code(&mut a, cancel), "superseded");
    std::thread::sleep(TWO_LOOKS);
    before.is_still(&world, "again");
    assert_eq!(living(&stranger), ours, "the agents of the new run are not A's");
    std::fs::write(world.root().join("go"), "").unwrap();
    let done = b.until("again", |v| v["endedAt"].is_string());
    assert_eq!((&done["state"], &done["workflow"]), (&json!("completed"), &json!("new")), "{done:#}");
    assert!(Path::new(&world.run_dir("again")).exists() && calls(&world) == 1);
    assert_eq!(a.until("again", |_| true)["workflow"], "new");
    say("sleeping owner: its run finished, retried, made anew by others; 0 of its writes accepted, 0 processes left");
}
