//! A goal's engine as a parameter: the same play for every engine that follows goals.

use std::collections::BTreeSet;

use claw_orchestrator::{
    kernel::{Kernel, RunView},
    model::run::GoalState,
};
use serde_json::{Value, json};

use crate::support::{
    World,
    model::{self, MODEL, Model},
    openai::{OpenAi, with_codex},
    with,
};

/// Something an agent does before it says that it is done for now.
#[derive(Debug, Clone)]
pub enum Act {
    /// Writes a file of the project.
    Write(&'static str, &'static str),
    /// Leaves the file `begun` and waits, in seconds.
    Wait(u32),
}

/// What becomes of the goal after that.
#[derive(Debug, Clone, Copy)]
pub enum Word {
    /// It is reached.
    Yes,
    /// It is not.
    No(&'static str),
    /// It never can be.
    Impossible(&'static str),
    /// Nobody can tell.
    Broken,
}

/// What is done, what is said, what becomes of it.
pub type Round = (Vec<Act>, &'static str, Word);

/// A world with an agent that plays rounds.
pub struct Stage {
    pub name: &'static str,
    pub world: World,
    model: Played,
    engine: Value,
}

/// Where the model of a stage is played.
enum Played {
    ByItself,
    Claude(Model),
    Codex(OpenAi),
}

/// The stages there are on this machine. An engine whose program is missing says so and is left out.
pub fn stages(rounds: &[Round]) -> Vec<Stage> {
    judged(rounds).into_iter().chain(codex(rounds)).collect()
}

/// The stages where a judge says whether a goal is reached; codex's agent says so itself.
pub fn judged(rounds: &[Round]) -> Vec<Stage> {
    [Some(scripted(rounds)), claude(rounds)].into_iter().flatten().collect()
}

/// The same stage with other rounds.
pub fn again(name: &str, rounds: &[Round]) -> Stage {
    match name {
        "claude" => claude(rounds).unwrap(),
        "codex" => codex(rounds).unwrap(),
        _ => scripted(rounds),
    }
}

/// The real Codex as an app server on a scripted model.
fn codex(rounds: &[Round]) -> Option<Stage> {
    let usage = json!({ "input": 100, "cached": 0, "output": 20 });
    let says = |status: &str| json!({ "tools": [{ "name": "update_goal", "args": { "status": status } }] });
    let mut turns = Vec::new();
    for (acts, said, word) in rounds {
        turns.extend(acts.iter().map(|act| match act {
            Act::Write(path, content) => json!({ "tools": [{ "write": path, "content": content.trim_end() }] }),
            Act::Wait(seconds) => json!({ "tools": [{ "sh": format!("touch begun; sleep {seconds}") }] }),
        }));
        match word {
            Word::Yes => turns.extend([says("complete"), json!({ "text": said })]),
            Word::Impossible(why) => turns.extend([says("blocked"), json!({ "text": why })]),
            Word::No(_) | Word::Broken => turns.push(json!({ "text": said, "usage": usage })),
        }
    }
    let mut world = World::new();
    let server = OpenAi::start(world.root(), &json!({ "turns": turns }));
    if !with_codex(&mut world, server.port) {
        return None;
    }
    let engine = json!({ "engine": "codex", "model": "scripted-1", "sandboxMode": "danger-full-access" });
    Some(Stage { name: "codex", world, model: Played::Codex(server), engine })
}

/// A scripted agent.
pub fn scripted(rounds: &[Round]) -> Stage {
    let world = World::new();
    let engine = json!({ "engine": "scripted", "model": world.root().join("goal.json") });
    let stage = Stage { name: "scripted", world, model: Played::ByItself, engine };
    stage.play(rounds);
    stage
}

/// The real Claude Code on a scripted model.
fn claude(rounds: &[Round]) -> Option<Stage> {
    let mut turns = Vec::new();
    let mut judge = Vec::new();
    for (acts, said, word) in rounds {
        turns.extend(acts.iter().map(|act| match act {
            Act::Write(path, content) => {
                let input = json!({ "file_path": format!("{{{{repo}}}}/{path}"), "content": content });
                json!({ "tool": "Write", "input": input })
            }
            Act::Wait(seconds) => model::bash(&format!("touch begun; sleep {seconds}")),
        }));
        turns.push(json!({ "text": said }));
        let word = match word {
            Word::Yes => json!({ "ok": true, "reason": "it is there" }).to_string(),
            Word::No(why) => json!({ "ok": false, "reason": why }).to_string(),
            Word::Impossible(why) => json!({ "ok": false, "impossible": true, "reason": why }).to_string(),
            Word::Broken => "no word at all".to_owned(),
        };
        judge.push(json!({ "text": word }));
    }
    let (world, model) = model::real(&json!({ "turns": turns, "side": { "goal": judge } }))?;
    let engine = json!({ "engine": "claude", "model": MODEL });
    Some(Stage { name: "claude", world, model: Played::Claude(model), engine })
}

impl Stage {
    /// What a scripted agent plays from now on; rounds it has played stay played. The real one's model goes on by itself.
    pub fn play(&self, rounds: &[Round]) {
        if self.name != "scripted" {
            return;
        }
        let turns = rounds.iter().map(|(acts, said, _)| {
            let mut steps = Vec::new();
            for act in acts {
                match act {
                    Act::Write(path, content) => steps.push(json!({ "write": { "path": path, "content": content } })),
                    Act::Wait(seconds) => {
                        steps.push(json!({ "write": { "path": "begun", "content": "" } }));
                        steps.push(json!({ "sleep": seconds * 1000 }));
                    }
                }
            }
            steps.push(json!({ "say": said }));
            json!({ "steps": steps })
        });
        let judge = rounds.iter().map(|(_, _, word)| match word {
            Word::Yes => json!({ "ok": true, "reason": "it is there" }),
            Word::No(why) => json!({ "reason": why }),
            Word::Impossible(why) => json!({ "impossible": true, "reason": why }),
            Word::Broken => json!({ "broken": true }),
        });
        let record = self.world.root().join("goal.prompts.jsonl");
        let scenario =
            json!({ "record": record, "turns": turns.collect::<Vec<_>>(), "judge": judge.collect::<Vec<_>>() });
        std::fs::write(self.world.root().join("goal.json"), scenario.to_string()).unwrap();
    }

    /// A goal node with further fields.
    pub fn node(&self, objective: &str, more: Value) -> Value {
        with(with(json!({ "id": "g", "kind": "goal", "objective": objective }), self.engine.clone()), more)
    }

    /// Engine and model, as arguments of the template.
    pub fn engine(&self) -> Value {
        self.engine.clone()
    }

    /// Everything the agent was told so far, as it saw it.
    pub fn told(&self) -> String {
        match &self.model {
            Played::ByItself => self.world.prompts("goal").join("\n"),
            Played::Claude(model) => model.calls().last().map(|call| call["body"].to_string()).unwrap_or_default(),
            Played::Codex(model) => model.calls().last().map(|call| call["body"].to_string()).unwrap_or_default(),
        }
    }

    /// The conversations there were.
    pub fn sessions(&self) -> BTreeSet<String> {
        match &self.model {
            Played::ByItself => {
                let record = self.world.root().join("goal.prompts.jsonl");
                let text = std::fs::read_to_string(record).unwrap_or_default();
                let entries = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
                entries.map(|e| e["sessionId"].to_string()).collect()
            }
            Played::Claude(model) => model.calls().iter().map(|call| call["session"].to_string()).collect(),
            Played::Codex(model) => model.calls().iter().map(|c| c["body"]["prompt_cache_key"].to_string()).collect(),
        }
    }

    /// Starts `spec` and gives the id of its run.
    pub async fn start(&self, kernel: &Kernel, spec: Value) -> String {
        kernel.start(self.world.start(spec)).await.unwrap().run_id.to_string()
    }
}

/// Where the goal of a run stands.
pub fn goal(view: &RunView) -> GoalState {
    view.nodes.iter().find_map(|n| n.goal.clone()).unwrap_or_else(|| panic!("no goal in {view:#?}"))
}
