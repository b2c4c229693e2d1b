//! A model server on loopback that speaks OpenAI's interface and plays a script, and the settings of a codex that
//! talks to it.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

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
