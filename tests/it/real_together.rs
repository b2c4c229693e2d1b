//! One run whose nodes are three real engines, and what its ledger adds up to. `CLAWO_TEST_CLAUDE`, `CLAWO_TEST_CODEX`
//! and `CLAWO_TEST_OPENCODE` name the programs.

use claw_orchestrator::{
    config::file::PriceTable,
    model::{RunOutcome, RunState},
};
use serde_json::{Value, json};

use crate::{
    server::host::{Said, command},
    support::{
        World, check,
        model::{MODEL, play, program},
        openai::{OpenAi, with_codex, with_opencode},
        with,
    },
};

/// US dollars per million tokens that the world's settings name for codex's model: input, cached, output.
const CODEX: (f64, f64, f64) = (2.0, 0.5, 8.0);
/// The same as opencode's own settings name them.
const OPENCODE: (f64, f64, f64) = (1.0, 0.1, 2.0);

/// Tokens of every answer of a scripted model.
const USAGE: (f64, f64, f64) = (100_000.0, 20_000.0, 10_000.0);

/// What `answers` of [`USAGE`] cost; `input` of it includes what is cached.
fn bill((input, cached, output): (f64, f64, f64), answers: usize) -> f64 {
    let one = (USAGE.0 - USAGE.1) * input + USAGE.1 * cached + USAGE.2 * output;
    one * f64::from(u32::try_from(answers).unwrap()) / 1e6
}

/// The sums of one engine.
fn sums(ledger: &Value, engine: &str) -> (f64, u64, u64) {
    let rows = ledger["rows"].as_array().unwrap();
    let rows: Vec<&Value> = rows.iter().filter(|row| row["engine"] == engine).collect();
    let sum = |key: &str| rows.iter().map(|row| row[key].as_u64().unwrap()).sum();
    (rows.iter().map(|row| row["costUsd"].as_f64().unwrap()).sum(), sum("tokensIn"), sum("tokensOut"))
}

/// Engines 8.4 and 10: three engines work on one tree, its contract holds, and the ledger says what their providers say,
/// whether an engine counts by turn, by process or by conversation.
#[tokio::test(flavor = "multi_thread")]
async fn three_engines_make_one_verified_run() {
    let mut world = World::new();
    let Some(claude) = program() else { return };
    let write = json!({ "tool": "Write", "input": { "file_path": "{{repo}}/claude.txt", "content": "made\n" } });
    let used = json!({ "usage": { "input_tokens": 900, "output_tokens": 100 } });
    let script = json!({ "turns": [with(write, used.clone()), with(json!({ "text": "Claude did." }), used)] });
    let model = play(&mut world, &script);
    world.bins.insert("claude".to_owned(), claude);
    let usage = json!({ "input": USAGE.0, "cached": USAGE.1, "output": USAGE.2 });
    let usage: Value = serde_json::from_str(&usage.to_string().replace(".0", "")).unwrap();
    let script = |file: &str, said: &str| {
        json!({ "turns": [
            { "tools": [{ "write": file, "content": "made" }], "usage": usage },
            { "text": said, "usage": usage },
        ] })
    };
    let (one, two) = (world.root().join("codex-model"), world.root().join("opencode-model"));
    for dir in [&one, &two] {
        std::fs::create_dir(dir).unwrap();
    }
    let codex = OpenAi::start(&one, &script("codex.txt", "Codex did."));
    let opencode = OpenAi::start(&two, &script("opencode.txt", "OpenCode did."));
    if !with_codex(&mut world, codex.port) || !with_opencode(&mut world, opencode.port) {
        return;
    }
    let prices = PriceTable { input: Some(CODEX.0), cached: Some(CODEX.1), cache_write: None, output: Some(CODEX.2) };
    world.prices.insert("scripted-1".to_owned(), prices);

    let kernel = world.kernel().await;
    let node = |id: &str, engine: &str, more: Value| {
        with(json!({ "id": id, "kind": "agent", "prompt": format!("Write {id}.txt."), "engine": engine }), more)
    };
    let all = "grep -q made claude.txt && grep -q made codex.txt && grep -q made opencode.txt";
    let checks = check(&["sh", "-c", all]);
    let spec = json!({ "name": "together", "contract": checks, "nodes": [
        node("claude", "claude", json!({ "model": MODEL })),
        node("codex", "codex", json!({ "model": "scripted-1" })),
        node("opencode", "opencode", json!({})),
    ] });
    let view = world.run(&kernel, spec).await;
    assert_eq!((view.state, view.outcome), (RunState::Completed, Some(RunOutcome::Verified)), "{view:#?}");

    let run = view.run_id.as_str();
    let said = Said::new(command(&world, &["runs", "--json", "--parent", run]).output().unwrap());
    assert_eq!(said.status, 0, "{said:?}");
    let ledger: Value = serde_json::from_str(&said.out).unwrap();
    let cents = |usd: f64| (usd * 100.0).round();
    let (cost, read, written) = sums(&ledger, "codex");
    let answers = codex.calls().len();
    let tokens = |one: f64| (one as u64) * answers as u64;
    assert_eq!(
        (cents(cost), read, written),
        (cents(bill(CODEX, answers)), tokens(USAGE.0), tokens(USAGE.2)),
        "{ledger:#}"
    );
    let (cost, read, written) = sums(&ledger, "opencode");
    let answers = opencode.calls().len();
    let tokens = |one: f64| (one as u64) * answers as u64;
    assert_eq!(
        (cents(cost), read, written),
        (cents(bill(OPENCODE, answers)), tokens(USAGE.0), tokens(USAGE.2)),
        "{ledger:#}"
    );
    let (cost, read, written) = sums(&ledger, "claude");
    let answers = model.calls().len() as u64;
    assert_eq!((read, written), (900 * answers, 100 * answers), "{ledger:#}");
    let total = ledger["summary"]["costUsd"].as_f64().unwrap();
    assert!(cost > 0.0 && (total - view.cost_usd).abs() < 0.001, "{ledger:#} {}", view.cost_usd);
    assert_eq!(ledger["summary"]["verifiedRows"], 3, "{ledger:#}");
}
