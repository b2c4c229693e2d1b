//! The real Claude Code in a world: its program from `CLAWO_TEST_CLAUDE`, its model played from a script.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use super::World;

/// The version the adapter was measured against.
const MEASURED: &str = "2.1.197";
/// A model name for specs.
pub const MODEL: &str = "claude-opus-4-8[1m]";

/// A model server on loopback that plays a script; ends with this.
pub struct Model {
    server: Child,
    log: PathBuf,
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Model {
    /// The agent's own requests so far, in order, with their bodies.
    pub fn calls(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let entries = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
        entries.filter(|e| e["kind"] == "main").collect()
    }

    /// What the agent was asked in each conversation, in order: the texts that are no tool results.
    pub fn prompts(&self) -> Vec<String> {
        let mut sessions: Vec<Value> = Vec::new();
        let mut prompts = Vec::new();
        for call in self.calls() {
            if !sessions.contains(&call["session"]) {
                sessions.push(call["session"].clone());
                prompts.push(asked(&call["body"]));
            }
        }
        prompts
    }
}

/// All texts of a request's user messages.
fn asked(body: &Value) -> String {
    let mut text = String::new();
    for message in body["messages"].as_array().into_iter().flatten().filter(|m| m["role"] == "user") {
        let content = &message["content"];
        text.push_str(content.as_str().unwrap_or_default());
        for block in content.as_array().into_iter().flatten() {
            text.push_str(block["text"].as_str().unwrap_or_default());
            text.push('\n');
        }
    }
    text
}

/// A world whose claude is the real one and talks to `script`, in which `{{repo}}` is the project; `None`, with
/// the reason printed, where the program is not installed.
pub fn real(script: &Value) -> Option<(World, Model)> {
    let program = program()?;
    let mut world = World::new();
    let model = play(&mut world, script);
    world.bins.insert("claude".to_owned(), program);
    Some((world, model))
}

/// The real program; `None`, with the reason printed, where it is not installed.
pub fn program() -> Option<PathBuf> {
    let program = std::env::var_os("CLAWO_TEST_CLAUDE").map(PathBuf::from);
    if program.is_none() {
        println!("skipped: CLAWO_TEST_CLAUDE does not name the program of Claude Code {MEASURED}");
    }
    program
}

/// Starts a model server and points the world's claude at it.
pub fn play(world: &mut World, script: &Value) -> Model {
    let path = |name: &str| world.root().join(name);
    let (file, log, home) = (path("model.json"), path("model.log"), path("user"));
    std::fs::write(&file, script.to_string()).unwrap();
    std::fs::create_dir(&home).unwrap();
    let mut command = Command::new("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/claude/scripted_model.py"));
    command.arg(&file).args(["--bodies", "--exit-with-stdin", "--log"]).arg(&log);
    command.arg("--set").arg(format!("repo={}", world.project().display()));
    // Its standard input ends with this process, and then it ends too.
    let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut port = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
    for (name, value) in [
        ("ANTHROPIC_API_KEY", "test-key-of-nobody".to_owned()),
        ("ANTHROPIC_BASE_URL", format!("http://127.0.0.1:{}", port.trim())),
        ("CLAUDE_CODE_MAX_RETRIES", "0".to_owned()),
        ("HOME", home.to_string_lossy().into_owned()),
    ] {
        world.env.insert(name.to_owned(), value);
    }
    Model { server, log }
}

/// A shell command of the model.
pub fn bash(command: &str) -> Value {
    json!({ "tool": "Bash", "input": { "command": command, "description": "Run it" } })
}

/// An agent node on the real program.
pub fn node(id: &str, prompt: &str) -> Value {
    json!({ "id": id, "kind": "agent", "prompt": prompt, "engine": "claude", "model": MODEL })
}
