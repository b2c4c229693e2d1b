//! Councils end to end through the kernel: real repositories and worktrees, members that play scenarios.

mod accepting;
mod calls;
mod cut_accepts;
mod ends;
mod kills;
mod merges;
mod real;
mod resume;
mod rounds;
mod turns;

use std::path::{Path, PathBuf};

use claw_orchestrator::kernel::{Kernel, RunView};
use serde_json::{Value, json};

use crate::support::{World, finished, git, with};

/// Members of councils most tests are content with.
pub const ABC: [&str; 3] = ["A", "B", "C"];

/// What a member does in one round.
pub fn round(n: u32, steps: Vec<Value>) -> Value {
    let mut turn = json!({ "match": format!("# Round {n} of"), "times": 0 });
    turn["steps"] = Value::Array(steps);
    turn
}

/// What it does in every round that has no turn of its own; last in a list.
pub fn always(steps: Vec<Value>) -> Value {
    let mut turn = json!({ "times": 0 });
    turn["steps"] = Value::Array(steps);
    turn
}

/// Writes a file and commits everything.
pub fn commit(path: &str, content: &str) -> Vec<Value> {
    vec![
        json!({ "write": { "path": path, "content": content } }),
        sh("git add -A && git commit -q -m 'council(work): a file'"),
    ]
}

/// Runs a line of shell.
pub fn sh(line: &str) -> Value {
    json!({ "run": ["sh", "-c", line] })
}

/// A report with a vote.
pub fn vote(yes: bool) -> Value {
    let word = if yes { "YES" } else { "NO" };
    json!({ "say": format!("# Report\n\nEverything that was asked of me is done, and I have looked at it once more, as agreed.\n\n[CONSENSUS: {word}]") })
}

/// Adds a step.
pub fn then(mut steps: Vec<Value>, step: Value) -> Vec<Value> {
    steps.push(step);
    steps
}

/// A member that plays these turns, recorded under its name.
pub fn member(world: &World, name: &str, turns: Vec<Value>) -> Value {
    json!({ "name": name, "engine": "scripted", "model": world.scenario(name, Value::Array(turns)) })
}

/// A member that plans, commits a file of its own in round 2 and says yes from then on.
pub fn worker(world: &World, name: &str) -> Value {
    let file = format!("{}.txt", name.to_lowercase());
    let work = then(commit(&file, &format!("by {name}\n")), vote(true));
    member(world, name, vec![round(1, vec![vote(false)]), round(2, work), always(vec![vote(true)])])
}

/// A run with one council.
pub fn spec(members: Vec<Value>, more: Value) -> Value {
    let mut node = json!({ "id": "main", "kind": "council", "task": "Build the thing." });
    node["agents"] = Value::Array(members);
    json!({ "name": "council", "nodes": [with(node, more)] })
}

/// A council that has ended.
pub struct Ended {
    /// Of its process.
    pub kernel: Kernel,
    /// The run.
    pub view: RunView,
    /// The council's node's data.
    pub data: Value,
}

impl Ended {
    /// Runs a council to its end.
    pub async fn of(world: &World, spec: Value) -> Self {
        let kernel = world.kernel().await;
        let started = kernel.start(world.start(spec)).await.unwrap();
        Self::after(&kernel, started.run_id.as_str()).await
    }

    /// The end of a run that goes on.
    pub async fn after(kernel: &Kernel, run: &str) -> Self {
        let view = finished(kernel, run).await;
        let data = data(kernel, run).await;
        Self { kernel: kernel.clone(), view, data }
    }

    /// A document of the first visit.
    pub fn doc(&self, key: &str) -> &Value {
        let found = &self.data[format!("council:1:{key}")];
        assert!(!found.is_null(), "no {key} in {:#}", self.data);
        found
    }

    /// How the rounds ended.
    pub fn status(&self) -> (&str, u64) {
        let ended = self.doc("ended");
        (ended["status"].as_str().unwrap(), ended["rounds"].as_u64().unwrap())
    }

    /// A branch of the council.
    pub fn branch(&self, name: &str) -> String {
        format!("council/{}/{name}", self.doc("layout")["shortId"].as_str().unwrap())
    }

    /// A worktree of the council.
    pub fn worktree(&self, name: &str) -> PathBuf {
        let layout = self.doc("layout");
        Path::new(layout["top"].as_str().unwrap())
            .join(".worktrees")
            .join(layout["shortId"].as_str().unwrap())
            .join(name)
    }

    /// A file as it is on a branch.
    pub fn show(&self, world: &World, name: &str, path: &str) -> String {
        git(&world.project(), &["show", &format!("{}:{path}", self.branch(name))])
    }

    /// The files of a branch.
    pub fn files(&self, world: &World, name: &str) -> Vec<String> {
        let listed = git(&world.project(), &["ls-tree", "-r", "--name-only", &self.branch(name)]);
        listed.lines().map(str::to_owned).collect()
    }
}

/// Data of the node `main`.
pub async fn data(kernel: &Kernel, run: &str) -> Value {
    let record = kernel.record(run).await.unwrap();
    record.node("main").unwrap().data.clone().unwrap_or_default()
}
