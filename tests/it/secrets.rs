//! Secrets of the server's environment stay there: no agent, check, file of the state or answer has them.

use std::path::{Path, PathBuf};

use claw_orchestrator::{
    kernel::{ListQuery, StatusQuery},
    model::{RunOutcome, RunState},
};
use serde_json::json;

use crate::support::{World, agent, check, until};

/// A secret in no known shape, so that only knowing its value helps.
const CANARY: &str = "plain-canary-0f3b61d7";

/// Files below `dir` that hold the canary.
fn holding(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_name().to_string_lossy().contains(CANARY) {
                found.push(path.clone());
            }
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(path),
                Ok(kind) if kind.is_file() => {
                    let bytes = std::fs::read(&path).unwrap();
                    if bytes.windows(CANARY.len()).any(|w| w == CANARY.as_bytes()) {
                        found.push(path);
                    }
                }
                _ => {}
            }
        }
    }
    found
}

/// SE-1, engines scenario 13: agents and checks do not get a secret, and one they know from elsewhere is not kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_the_server_is_nowhere() {
    let mut world = World::new();
    world.env.insert("CANARY_TOKEN".to_owned(), CANARY.to_owned());
    world.env.insert("PLAIN_SETTING".to_owned(), "passed-on".to_owned());
    // The project has the value too: an agent can read it there and repeat it.
    world.write("notes", &format!("token: {CANARY}\n"));
    let kernel = world.kernel().await;
    let model = world.scenario(
        "teller",
        json!([{ "times": 0, "steps": [
            { "run": ["env"] },
            { "run": ["sh", "-c", "env > agent.env"] },
            { "run": ["cat", "notes"] },
            { "say": format!("I found the token {CANARY} in notes.") },
            { "write": { "path": "copy", "content": format!("again {CANARY}\n") } },
            { "say": format!("In the end: {CANARY}") },
        ]}]),
    );
    let failing =
        world.scenario("failing", json!([{ "times": 0, "steps": [{ "fail": format!("refused with {CANARY}") }] }]));
    let script = "env | tee check.env; cat notes; printf 'half plain-can'; sleep 0.1; echo 'ary-0f3b61d7'; exit 1";
    let spec = json!({
        "name": "secret", "contract": check(&["sh", "-c", script]),
        "nodes": [
            agent("tell", "Look around.", &model),
            { "id": "fan", "kind": "fanout", "prompt": "Look around.", "agents": [{ "name": "m", "engine": "scripted", "model": model }] },
            { "id": "fail", "kind": "agent", "prompt": "x", "engine": "scripted", "model": failing, "onFailure": "continue" },
            { "id": "verify", "kind": "verifier", "contract": "run" },
        ],
    });
    let started = kernel.start(world.start(spec)).await.unwrap();
    let run = started.run_id.as_str();
    let view = until(&kernel, run, |v| v.state.is_terminal()).await;
    assert_eq!((view.state, view.outcome), (RunState::Failed, Some(RunOutcome::Refuted)), "{view:#?}");
    for name in ["agent.env", "check.env"] {
        let env = world.read(name);
        assert!(env.contains("PLAIN_SETTING=passed-on"), "{name}: {env}");
        assert!(!env.contains(CANARY), "{name} has the secret");
    }
    assert_eq!(holding(&world.home()), Vec::<PathBuf>::new());
    let view = kernel.status(run, StatusQuery { events: 500, wait_ms: 0 }).await.unwrap();
    let evidence = kernel.evidence(run, None).await.unwrap();
    let mut told = serde_json::to_string(&view).unwrap();
    told +=
        &serde_json::to_string(&kernel.list(ListQuery { limit: 10, ..ListQuery::default() }).await.unwrap()).unwrap();
    told += &serde_json::to_string(&evidence.bundle).unwrap();
    for file in &evidence.files {
        let id = view.evidence_id.as_deref().unwrap();
        told += &String::from_utf8_lossy(&kernel.evidence_file(run, id, file).await.unwrap());
    }
    for node in ["tell", "fan"] {
        let output = kernel.node_output(run, node, 0, 1 << 20).await.unwrap();
        assert!(output.contains("In the end: [redacted]"), "{node}: {output}");
        told += &output;
    }
    assert!(!told.contains(CANARY), "{told}");
    assert!(told.contains("I found the token [redacted]"), "the progress lines are there: {told}");
}
