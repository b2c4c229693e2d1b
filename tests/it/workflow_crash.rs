//! A death of the process after every single commit: whatever the point, another process ends the run alike.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use claw_orchestrator::{
    kernel::{Kernel, ListQuery, Role, RunView, StatusQuery},
    model::{NodeState, RunId, RunState, Time, run::ArtifactRef},
    store::{Claim, Error, InboxItem, Line, Listed, Loaded, MakeFiles, NewRun, Result, SharedStore, Store},
};
use serde_json::{Value, json};

use crate::support::{World, agent, check, git, with};

/// When the process dies: with the commit after this many.
#[derive(Debug)]
pub struct Death {
    after: u64,
    /// With the first commit that holds this text instead.
    at: Option<&'static str>,
    commits: AtomicU64,
    dead: AtomicBool,
}

impl Death {
    /// One that comes with the commit after `after`.
    pub fn new(after: u64) -> Arc<Self> {
        Arc::new(Self { after, at: None, commits: AtomicU64::new(0), dead: AtomicBool::new(false) })
    }

    /// One that comes with the first commit that holds `text`.
    pub fn at(text: &'static str) -> Arc<Self> {
        Arc::new(Self { after: u64::MAX, at: Some(text), commits: AtomicU64::new(0), dead: AtomicBool::new(false) })
    }

    /// Whether it has come.
    pub fn has_come(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// How many commits there were.
    pub fn commits(&self) -> u64 {
        self.commits.load(Ordering::SeqCst)
    }

    /// Comes now.
    pub fn come(&self) {
        self.dead.store(true, Ordering::SeqCst);
    }

    /// A store of a process that dies with it.
    pub fn store(self: &Arc<Self>, inner: SharedStore) -> SharedStore {
        Arc::new(CrashStore { inner, death: self.clone() })
    }

    fn alive(&self, run: &RunId) -> Result<()> {
        if !self.dead.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(Error::Superseded { run: run.clone(), reason: "this process is dead".to_owned() })
    }

    fn commit(&self, run: &RunId, events: &[Value]) -> Result<()> {
        self.alive(run)?;
        let here = self.at.is_some_and(|text| events.iter().any(|event| event.to_string().contains(text)));
        if self.commits.fetch_add(1, Ordering::SeqCst) >= self.after || here {
            self.dead.store(true, Ordering::SeqCst);
        }
        self.alive(run)
    }
}

/// A store that reaches nothing any more once its process is dead. What was committed stays.
#[derive(Debug)]
struct CrashStore {
    inner: SharedStore,
    death: Arc<Death>,
}

/// A claim of it. Dropping it frees the lock, as a death does, and leaves the lease.
#[derive(Debug)]
struct CrashClaim {
    inner: Box<dyn Claim>,
    death: Arc<Death>,
}

impl CrashStore {
    fn wrap(&self, inner: Box<dyn Claim>) -> Box<dyn Claim> {
        Box::new(CrashClaim { inner, death: self.death.clone() })
    }
}

impl Store for CrashStore {
    fn create(&self, run: NewRun) -> Result<Box<dyn Claim>> {
        self.death.alive(&run.run_id)?;
        Ok(self.wrap(self.inner.create(run)?))
    }
    fn claim(&self, run: &RunId) -> Result<Box<dyn Claim>> {
        self.death.alive(run)?;
        Ok(self.wrap(self.inner.claim(run)?))
    }
    fn load(&self, run: &RunId) -> Result<Loaded> {
        self.inner.load(run)
    }
    fn lines(&self, run: &RunId, after: u64, limit: usize) -> Result<Vec<Line>> {
        self.inner.lines(run, after, limit)
    }
    fn list(&self) -> Result<Vec<Arc<Listed>>> {
        self.inner.list()
    }
    fn stamp(&self, run: &RunId) -> Result<Option<u128>> {
        self.inner.stamp(run)
    }
    fn is_live(&self, run: &RunId) -> Result<bool> {
        self.inner.is_live(run)
    }
    fn exists(&self, run: &RunId) -> Result<bool> {
        self.inner.exists(run)
    }
    fn delete(&self, run: &RunId) -> Result<()> {
        self.death.alive(run)?;
        self.inner.delete(run)
    }
    fn read_artifact(&self, run: &RunId, path: &str, offset: u64, limit: usize) -> Result<Vec<u8>> {
        self.inner.read_artifact(run, path, offset, limit)
    }
    fn list_artifacts(&self, run: &RunId, dir: &str) -> Result<Vec<String>> {
        self.inner.list_artifacts(run, dir)
    }
    fn put_labelled(&self, label: &RunId, files: MakeFiles<'_>) -> Result<String> {
        self.inner.put_labelled(label, files)
    }
    fn inbox_put(&self, run: &RunId, item: &InboxItem) -> Result<()> {
        self.inner.inbox_put(run, item)
    }
    fn inbox_withdraw(&self, run: &RunId, id: &str) -> Result<bool> {
        self.inner.inbox_withdraw(run, id)
    }
}

impl Claim for CrashClaim {
    fn run_id(&self) -> &RunId {
        self.inner.run_id()
    }
    fn incarnation(&self) -> &str {
        self.inner.incarnation()
    }
    fn epoch(&self) -> u64 {
        self.inner.epoch()
    }
    fn seq(&self) -> u64 {
        self.inner.seq()
    }
    fn commit(&mut self, events: &[Value]) -> Result<(u64, Time)> {
        self.death.commit(self.inner.run_id(), events)?;
        self.inner.commit(events)
    }
    fn checkpoint_due(&self) -> bool {
        self.inner.checkpoint_due()
    }
    fn checkpoint(&mut self, record: &str) {
        if self.death.alive(self.inner.run_id()).is_ok() {
            self.inner.checkpoint(record);
        }
    }
    fn check(&self) -> Result<()> {
        self.death.alive(self.inner.run_id())?;
        self.inner.check()
    }
    fn put_artifact(&mut self, path: &str, bytes: &[u8]) -> Result<ArtifactRef> {
        self.death.alive(self.inner.run_id())?;
        self.inner.put_artifact(path, bytes)
    }
    fn put_directory(&mut self, path: &str, files: &[(String, Vec<u8>)]) -> Result<()> {
        self.death.alive(self.inner.run_id())?;
        self.inner.put_directory(path, files)
    }
    fn inbox(&self) -> Result<Vec<InboxItem>> {
        self.death.alive(self.inner.run_id())?;
        self.inner.inbox()
    }
    fn inbox_done(&mut self, id: &str) -> Result<()> {
        self.death.alive(self.inner.run_id())?;
        self.inner.inbox_done(id)
    }
    fn heartbeat(&mut self) -> Result<()> {
        self.death.alive(self.inner.run_id())?;
        self.inner.heartbeat()
    }
    fn release(self: Box<Self>) -> Result<()> {
        self.death.alive(self.inner.run_id())?;
        self.inner.release()
    }
}

/// What every way to the end must agree on.
#[derive(Debug, PartialEq)]
struct End {
    state: RunState,
    outcome: Option<&'static str>,
    reason: Option<String>,
    nodes: Vec<(String, NodeState, u32)>,
    runs: usize,
    /// HEAD's files, what is not committed, how many branches there are, what lies among worktrees.
    repository: Vec<String>,
}

impl End {
    async fn of(world: &World, kernel: &Kernel, view: &RunView) -> Self {
        let dir = world.project();
        let repository = match dir.join(".git").exists() {
            true => vec![
                git(&dir, &["rev-parse", "HEAD^{tree}"]),
                git(&dir, &["status", "--porcelain"]),
                git(&dir, &["for-each-ref", "refs/heads"]).lines().count().to_string(),
                format!("{:?}", std::fs::read_dir(dir.join(".worktrees")).into_iter().flatten().count()),
            ],
            false => Vec::new(),
        };
        Self {
            repository,
            state: view.state,
            outcome: view.outcome.map(|o| o.as_str()),
            reason: view.outcome_reason.clone(),
            nodes: view.nodes.iter().map(|n| (n.id.clone(), n.state, n.visits)).collect(),
            runs: kernel.list(ListQuery::default()).await.unwrap().runs.len(),
        }
    }
}

/// How often each step left its mark in the project.
fn marks(world: &World) -> BTreeMap<String, usize> {
    let text = std::fs::read_to_string(world.project().join("witness")).unwrap_or_default();
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

/// Steps whose end is on the log of any run: visits that ended, members of fan-outs that succeeded.
async fn recorded(kernel: &Kernel) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for run in kernel.list(ListQuery::default()).await.unwrap().runs {
        let view = kernel.status(run.run_id.as_str(), StatusQuery { events: 500, wait_ms: 0 }).await.unwrap();
        for event in view.events.iter().map(|e| &e.event) {
            let text = |key: &str| event[key].as_str().unwrap_or_default();
            let ended = text("type") == "node_state" && matches!(text("state"), "succeeded" | "failed");
            if ended {
                found.insert(format!("{}.{}", text("node"), event["visit"]));
            }
            if text("type") == "node_data" && event["data"]["ok"] == true {
                found.extend(text("key").strip_prefix("agent:").map(str::to_owned));
            }
        }
    }
    found
}

/// Brings a run to its end, answering its gate and continuing it where needed, unless its process dies first.
async fn drive(kernel: &Kernel, run: &str, death: Option<&Death>) -> Option<RunView> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let view = kernel.status(run, StatusQuery { events: 0, wait_ms: 200 }).await.unwrap();
        let idle = kernel.executing() == 0;
        if death.is_some_and(Death::has_come) {
            if idle {
                return None;
            }
        } else if view.state.is_terminal() && idle {
            return Some(view);
        } else if view.state == RunState::AwaitingHuman {
            let answered = kernel.approve(run, true, None).await;
            assert!(answered.is_ok() || death.is_some(), "{answered:?}");
        } else if view.interrupted && death.is_none() {
            kernel.resume(run).await.unwrap();
        }
        assert!(Instant::now() < deadline, "the run did not get there: {view:#?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// One life that ends after `after` commits, and the next one. Gives the end and the commits of the first.
async fn lives(world: fn() -> World, spec: fn(&World) -> Value, after: u64) -> (End, u64) {
    let world = world();
    let death = Death::new(after);
    let base = world.kernel().await;
    let first = Kernel::new(base.services().clone(), death.store(base.store().clone()), Role::Executor);
    let run = first.start(world.start(spec(&world))).await.unwrap().run_id.to_string();
    if let Some(view) = drive(&first, &run, Some(&death)).await {
        assert!(marks(&world).values().all(|n| *n == 1), "{:?}", marks(&world));
        return (End::of(&world, &first, &view).await, death.commits());
    }
    drop(first);
    let second = world.kernel().await;
    let (before, done) = (marks(&world), recorded(&second).await);
    let view = drive(&second, &run, None).await.unwrap();
    let later = marks(&world);
    for (step, count) in &later {
        let had = before.get(step).copied().unwrap_or_default();
        let most = if done.contains(step) { had } else { had + 1 };
        assert!(*count <= most, "after {after} commits: {step} ran {count} times, {had} before; done: {done:?}");
    }
    assert_eq!(second.record(&run).await.unwrap().seq, view.seq);
    (End::of(&world, &second, &view).await, after)
}

/// Compares every death with the life without one.
async fn every_death(spec: fn(&World) -> Value) {
    every_death_in(World::bare, spec).await;
}

/// The same in worlds made by `world`.
async fn every_death_in(world: fn() -> World, spec: fn(&World) -> Value) {
    let (undisturbed, commits) = lives(world, spec, u64::MAX).await;
    assert_eq!(undisturbed.state, RunState::Completed, "{undisturbed:#?}");
    let turns = Arc::new(tokio::sync::Semaphore::new(4));
    let all: Vec<_> = (0..commits)
        .map(|after| {
            let turns = turns.clone();
            tokio::spawn(async move {
                let _turn = turns.acquire().await.unwrap();
                lives(world, spec, after).await.0
            })
        })
        .collect();
    for (after, life) in all.into_iter().enumerate() {
        assert_eq!(life.await.unwrap(), undisturbed, "after {after} of {commits} commits");
    }
}

/// A step that leaves its mark under its node and visit, then does `more`.
fn step(more: &str) -> Value {
    json!([{ "times": 0, "steps": [
        { "run": ["sh", "-c", format!("echo $CLAWO_NODE_ID.$CLAWO_VISIT >> witness; {more}")] }, { "say": "done" },
    ] }])
}

/// Kernel scenario 7, LW-2: a repair loop of three passes keeps its place and its count.
#[tokio::test(flavor = "multi_thread")]
async fn a_repair_loop_survives_every_death() {
    every_death(|world| {
        let model = world.scenario("fix", step("echo $CLAWO_VISIT > value"));
        json!({
            "name": "loop",
            "contract": check(&["sh", "-c", "echo $CLAWO_NODE_ID.$CLAWO_VISIT >> witness; grep -qx 3 value"]),
            "nodes": [
                agent("implement", "x", &model),
                { "id": "verify", "kind": "verifier", "contract": "run", "onFailure": "continue" },
                { "id": "again", "kind": "router", "routes": [{ "when": { "type": "node_failed", "node": "verify" }, "to": "implement" }] },
            ],
        })
    })
    .await;
}

/// LW-3: members of a fan-out that finished are not asked again.
#[tokio::test(flavor = "multi_thread")]
async fn a_fanout_survives_every_death() {
    every_death(|world| {
        let member = |name: &str| {
            let more = json!([{ "times": 0, "steps": [
                { "append": { "path": "witness", "content": format!("{name}\n") } }, { "say": name },
            ] }]);
            json!({ "name": name, "engine": "scripted", "model": world.scenario(name, more) })
        };
        let members: Vec<Value> = ["one", "two", "three", "four"].map(member).into();
        json!({ "name": "fan", "nodes": [{ "id": "fan", "kind": "fanout", "prompt": "x", "agents": members }] })
    })
    .await;
}

/// A repository with a test, where marks are ignored.
fn tested() -> World {
    let world = World::new();
    world.write(".gitignore", "witness\n");
    world.write("tests/check.sh", "grep -qx good result\n");
    git(&world.project(), &["add", "-A"]);
    git(&world.project(), &["commit", "-q", "-m", "a test"]);
    world
}

/// Steps of an agent in a worktree that leaves its mark in the project.
fn apart(world: &World, name: &str, lines: &str) -> String {
    let mark = world.project().join("witness");
    let script = format!("echo {name} >> '{}'; printf '{lines}' > result", mark.display());
    world.scenario(name, json!([{ "times": 0, "steps": [{ "run": ["sh", "-c", script] }, { "say": name }] }]))
}

/// Council scenarios 18, 27 and 30: a contest in worktrees ends alike whatever step the process died at; agents that
/// finished are not asked again, the winner is merged once, and nothing is left.
#[tokio::test(flavor = "multi_thread")]
async fn a_contest_survives_every_death() {
    every_death_in(tested, |world| {
        let member = |(name, lines): (&str, &str)| json!({ "name": name, "engine": "scripted", "model": apart(world, name, lines) });
        let members: Vec<Value> = [("one", "good\nmore\n"), ("two", "good\n"), ("three", "bad\n")].map(member).into();
        json!({
            "name": "fan", "contract": check(&["sh", "tests/check.sh"]),
            "nodes": [{
                "id": "fan", "kind": "fanout", "prompt": "x", "agents": members, "isolation": "worktree", "select": "verified",
            }],
        })
    })
    .await;
}

/// Council 14.1: an agent in a worktree is merged once, whatever step the process died at.
#[tokio::test(flavor = "multi_thread")]
async fn an_isolated_agent_survives_every_death() {
    every_death_in(tested, |world| {
        let node = agent("work", "x", &apart(world, "work.1", "good\n"));
        json!({
            "name": "one", "contract": check(&["sh", "tests/check.sh"]),
            "nodes": [with(node, json!({ "isolation": "worktree" }))],
        })
    })
    .await;
}

/// Kernel scenario 12, HG-3: an answer is applied once, wherever the process died around it.
#[tokio::test(flavor = "multi_thread")]
async fn a_gate_survives_every_death() {
    every_death(|world| {
        let model = world.scenario("work", step("touch made"));
        json!({
            "name": "gated", "contract": check(&["test", "-e", "made"]),
            "nodes": [
                agent("before", "x", &model),
                { "id": "ask", "kind": "human_gate", "prompt": "May I?" },
                agent("after", "x", &model),
            ],
        })
    })
    .await;
}

/// Kernel scenario 15: parent and child die together; one child is made, and its word is adopted.
#[tokio::test(flavor = "multi_thread")]
async fn a_subflow_survives_every_death() {
    every_death(|world| {
        let model = world.scenario("inner", step("touch made"));
        let child = json!({ "name": "child", "contract": check(&["test", "-e", "made"]), "nodes": [agent("inner", "x", &model)] });
        json!({ "name": "parent", "nodes": [{ "id": "sub", "kind": "subflow", "workflow": child }, agent("last", "x", "noop")] })
    })
    .await;
}

/// Kernel scenario 10: a wait for a retry goes on where it was, and the lost attempt burns no retry.
#[tokio::test(flavor = "multi_thread")]
async fn a_retry_survives_every_death() {
    every_death(|world| {
        let model = world.scenario("work", step("true"));
        let flaky = check(&["sh", "-c", "test $CLAWO_ATTEMPT -ge 2"]);
        let node = json!({ "id": "flaky", "kind": "verifier", "contract": flaky });
        json!({
            "name": "retry",
            "nodes": [with(node, json!({ "retry": { "max": 1, "backoffMs": 300 } })), agent("last", "x", &model)],
        })
    })
    .await;
}
