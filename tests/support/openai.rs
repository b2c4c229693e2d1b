//! A model server on loopback that speaks OpenAI's interface and plays a script, and the settings of a codex that
//! talks to it.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use super::World;

/// A model server; ends with this.
pub struct OpenAi {
    server: Child,
    log: PathBuf,
    /// Where it listens.
    pub port: u16,
}

impl Drop for OpenAi {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl OpenAi {
    /// Starts one that keeps its files in `dir`.
    pub fn start(dir: &Path, script: &Value) -> Self {
        let (file, log) = (dir.join("openai.json"), dir.join("openai.log"));
        std::fs::write(&file, script.to_string()).unwrap();
        let mut command = Command::new("python3");
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/engines/scripted_openai.py"));
        command.arg(&file).args(["--full", "--log"]).arg(&log);
        let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { server, log, port: port.trim().parse().unwrap() }
    }

    /// The agent's own requests so far, in order, with their bodies.
    pub fn calls(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let entries = text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap());
        entries.filter(|e| e["kind"] == "main").collect()
    }
}

/// Name of the variable with the key that [`codex_home`] asks for.
pub const KEY: &str = "SCRIPTED_KEY";

/// A home of codex in `dir` whose model is played on `port`, without waits before it tries again.
pub fn codex_home(dir: &Path, port: u16) {
    std::fs::create_dir_all(dir).unwrap();
    let catalog = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/engines/model_catalog.json");
    let config = format!(
        "model = \"scripted-1\"\nmodel_provider = \"scripted\"\nmodel_catalog_json = \"{catalog}\"\n\
         [model_providers.scripted]\nname = \"Scripted\"\nbase_url = \"http://127.0.0.1:{port}/v1\"\n\
         wire_api = \"responses\"\nenv_key = \"{KEY}\"\nrequest_max_retries = 0\nstream_max_retries = 0\n"
    );
    std::fs::write(dir.join("config.toml"), config).unwrap();
}

/// The program named by `variable`; `None`, with the reason printed, where there is none.
fn program(variable: &str, what: &str) -> Option<PathBuf> {
    let program = std::env::var_os(variable).map(PathBuf::from);
    if program.is_none() {
        println!("skipped: {variable} does not name the program of {what}");
    }
    program
}

/// Makes the codex of `world` the real one, played on `port`; `false` where it is not installed.
pub fn with_codex(world: &mut World, port: u16) -> bool {
    let Some(program) = program("CLAWO_TEST_CODEX", "Codex 0.171.0") else { return false };
    let home = world.root().join("user/.codex");
    codex_home(&home, port);
    // A name that codex's own variables have is passed on without being asked for.
    let key = format!("OPENAI_{KEY}");
    let config = std::fs::read_to_string(home.join("config.toml")).unwrap().replace(KEY, &key);
    std::fs::write(home.join("config.toml"), config).unwrap();
    for (name, value) in [
        ("CODEX_HOME", home.to_string_lossy().into_owned()),
        ("HOME", world.root().join("user").to_string_lossy().into_owned()),
        ("CLAWO_CODEX_BIN", program.to_string_lossy().into_owned()),
        (&key, "key-of-nobody".to_owned()),
    ] {
        world.env.insert(name.to_owned(), value);
    }
    world.bins.insert("codex".to_owned(), program);
    true
}

/// Makes the opencode of `world` the real one, played on `port`; `false` where it is not installed.
pub fn with_opencode(world: &mut World, port: u16) -> bool {
    let Some(program) = program("CLAWO_TEST_OPENCODE", "OpenCode 1.18.33") else { return false };
    let config = json!({
        "autoupdate": false, "share": "disabled", "model": "scripted/scripted-1", "disabled_providers": ["opencode"],
        "provider": { "scripted": {
            "npm": "@ai-sdk/openai-compatible", "name": "Scripted",
            "options": { "baseURL": format!("http://127.0.0.1:{port}/v1"), "apiKey": "key-of-nobody" },
            "models": { "scripted-1": {
                "name": "Scripted 1", "limit": { "context": 200_000, "output": 8000 },
                "cost": { "input": 1, "output": 2, "cache_read": 0.1 }
            } }
        } }
    });
    let dir = world.root().join("user/.config/opencode");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("opencode.json"), config.to_string()).unwrap();
    for (name, value) in [
        ("HOME", world.root().join("user").to_string_lossy().into_owned()),
        ("CLAWO_OPENCODE_BIN", program.to_string_lossy().into_owned()),
        ("OPENCODE_PURE", "1".to_owned()),
    ] {
        world.env.insert(name.to_owned(), value);
    }
    world.bins.insert("opencode".to_owned(), program);
    true
}
