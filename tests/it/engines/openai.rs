//! The scripted model server that codex and opencode talk to, and benches in which they do.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use claw_orchestrator::{engines::SessionSpec, model::spec::EngineChoice};
use serde_json::{Value, json};

use super::support::Bench;

/// A model server on loopback that plays a script; ends with this.
pub(super) struct Model {
    server: Child,
    log: PathBuf,
    port: String,
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Model {
    fn start(bench: &Bench, script: &Value) -> Self {
        let (file, log) = (bench.path("model.json"), bench.path("model.log"));
        std::fs::write(&file, script.to_string()).unwrap();
        let mut command = Command::new("python3");
        command.args(["-u", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/engines/scripted_openai.py")]);
        command.arg(&file).arg("--log").arg(&log).arg("--full").stdin(Stdio::null());
        let mut server = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { server, log, port: port.trim().to_owned() }
    }

    /// Requests so far, in order.
    pub(super) fn requests(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    /// Its address.
    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }
}

/// The program named by `variable`; `None`, with the reason printed, where there is none.
fn program(variable: &str, what: &str) -> Option<PathBuf> {
    let program = std::env::var_os(variable).map(PathBuf::from);
    if program.is_none() {
        println!("skipped: {variable} does not name the program of {what}");
    }
    program
}

/// A bench whose codex is the real one and talks to `script`.
pub(super) fn codex(script: &Value) -> Option<(Bench, Model)> {
    let program = program("CLAWO_TEST_CODEX", "Codex 0.171.0")?;
    let mut bench = Bench::new();
    let model = Model::start(&bench, script);
    let home = bench.path("user/.codex");
    std::fs::create_dir(&home).unwrap();
    let catalog = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/engines/model_catalog.json");
    let text = format!(
        "model = \"scripted-1\"\nmodel_provider = \"scripted\"\nmodel_catalog_json = {catalog:?}\n\
         [model_providers.scripted]\nname = \"Scripted\"\nbase_url = {:?}\nwire_api = \"responses\"\n\
         env_key = \"SCRIPTED_KEY\"\nstream_max_retries = 0\nrequest_max_retries = 0\n",
        model.url()
    );
    std::fs::write(home.join("config.toml"), text).unwrap();
    bench.config.env.insert("CODEX_HOME".into(), home.to_string_lossy().into_owned());
    bench.config.env.insert("SCRIPTED_KEY".into(), "sk-canary-of-nobody".into());
    bench.config.engine_env.insert("codex".into(), vec!["SCRIPTED_KEY".into()]);
    bench.config.engine_bins.insert("codex".into(), program);
    Some((bench, model))
}

/// A bench whose opencode is the real one and talks to `script`.
pub(super) fn opencode(script: &Value) -> Option<(Bench, Model)> {
    let program = program("CLAWO_TEST_OPENCODE", "OpenCode 1.18.33")?;
    let mut bench = Bench::new();
    let model = Model::start(&bench, script);
    let config = json!({
        "autoupdate": false, "share": "disabled", "model": "scripted/scripted-1", "disabled_providers": ["opencode"],
        "provider": { "scripted": {
            "npm": "@ai-sdk/openai-compatible", "name": "Scripted",
            "options": { "baseURL": model.url(), "apiKey": "sk-canary-of-nobody" },
            "models": { "scripted-1": {
                "name": "Scripted 1", "limit": { "context": 200_000, "output": 8000 },
                "cost": { "input": 1, "output": 2, "cache_read": 0.1 }
            } }
        } }
    });
    let dir = bench.path("user/.config/opencode");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("opencode.json"), config.to_string()).unwrap();
    bench.config.env.insert("OPENCODE_PURE".into(), "1".into());
    bench.config.engine_bins.insert("opencode".into(), program);
    Some((bench, model))
}

/// A session of `engine`, marked for the test that is called `name`; the mark to find its processes by.
pub(super) fn marked(bench: &Bench, engine: &str, name: &str) -> (SessionSpec, String) {
    let choice = EngineChoice { engine: Some(engine.into()), ..EngineChoice::default() };
    let mut spec = SessionSpec { choice, ..bench.spec("") };
    let value = format!("{engine}-{name}-{}", std::process::id());
    spec.run_env.push(("REAL_MARK".into(), value.clone()));
    (spec, format!("REAL_MARK={value}"))
}
