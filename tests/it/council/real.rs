//! A council of the real claude, codex and opencode against scripted models on loopback. `CLAWO_TEST_CLAUDE`,
//! `CLAWO_TEST_CODEX` and `CLAWO_TEST_OPENCODE` name the programs.

use claw_orchestrator::{
    git::Strategy,
    kernel::{Kernel, StatusQuery, view::EventView},
    model::{RunOutcome, RunState},
    nodes::council::accept::Wish,
};
use serde_json::{Value, json};

use crate::support::{
    World, check, git,
    model::{MODEL, play, program},
    openai::{OpenAi, with_codex, with_opencode},
    untouched::Untouched,
};

/// Ends a round without wanting to end the talk.
const NO: &str = "The plan of this round is in the plan file.\n[CONSENSUS: NO]";
/// Ends one that everything is done in.
const YES: &str = "My part is committed and checked on my branch.\n[CONSENSUS: YES]";

/// What a run told people, a line each.
async fn said(kernel: &Kernel, run: &str) -> String {
    let view = kernel.status(run, StatusQuery { events: 500, wait_ms: 0 }).await.unwrap();
    let line = |event: &EventView| event.event["text"].as_str().map(str::to_owned);
    view.events.iter().filter_map(line).collect::<Vec<_>>().join("\n")
}

/// Council, shown when done: three real engines plan, work on one file against each other, resolve the conflict and
/// agree; the contract holds for what the runtime merged, and the user's branch gets it only when it is accepted.
#[tokio::test(flavor = "multi_thread")]
async fn three_real_engines_disagree_agree_and_are_accepted() {
    let mut world = World::new();
    let Some(claude) = program() else { return };
    let sh = |command: &str| json!({ "tool": "Bash", "input": { "command": command, "description": "work" } });
    let commit = "git add -A && git commit -q -m 'council(work): Ann - her part'";
    let script = json!({ "turns": [
        { "text": NO },
        sh(&format!("echo from ann > shared.txt; echo made > ann.txt; {commit}")),
        { "text": YES },
        { "text": YES },
    ] });
    let model = play(&mut world, &script);
    world.bins.insert("claude".to_owned(), claude);
    let (bob, cid) = (world.root().join("bob"), world.root().join("cid"));
    for dir in [&bob, &cid] {
        std::fs::create_dir(dir).unwrap();
    }
    let merge = "git merge -q \"$(git for-each-ref --format='%(refname:short)' 'refs/heads/council/*/integration')\" \
                 || true; printf 'from ann\\nfrom bob\\n' > shared.txt; git add -A && git commit -q -m 'both of them'";
    let codex = OpenAi::start(
        &bob,
        &json!({ "turns": [
            { "text": NO },
            { "tools": [{ "sh": "echo from bob > shared.txt" }] },
            { "text": YES },
            { "tools": [{ "sh": merge }] },
            { "text": YES },
        ] }),
    );
    let opencode = OpenAi::start(
        &cid,
        &json!({ "turns": [
            { "text": NO },
            { "tools": [{ "write": "cid.txt", "content": "made" }] },
            { "text": YES },
            { "text": YES },
        ] }),
    );
    if !with_codex(&mut world, codex.port) || !with_opencode(&mut world, opencode.port) {
        return;
    }
    let before = Untouched::of(&world.project());
    let tip = git(&world.project(), &["rev-parse", "HEAD"]);
    let kernel = world.kernel().await;
    let all = "grep -q ann shared.txt && grep -q bob shared.txt && test -f ann.txt && test -f cid.txt";
    let spec = json!({ "name": "together", "contract": check(&["sh", "-c", all]), "nodes": [{
        "id": "main", "kind": "council", "task": "Write your files and agree on shared.txt.", "maxRounds": 5,
        "agents": [
            { "name": "Ann", "engine": "claude", "model": MODEL },
            { "name": "Bob", "engine": "codex", "model": "scripted-1" },
            { "name": "Cid", "engine": "opencode" },
        ],
    }] });
    let run = kernel.start(world.start(spec)).await.unwrap().run_id.to_string();
    let view = loop {
        let view = kernel.status(&run, StatusQuery { events: 0, wait_ms: 20_000 }).await.unwrap();
        if view.state.is_terminal() {
            break view;
        }
    };
    let lines = said(&kernel, view.run_id.as_str()).await;
    assert_eq!((view.state, view.outcome), (RunState::Completed, Some(RunOutcome::Verified)), "{lines}");
    before.check();
    assert_eq!(git(&world.project(), &["rev-parse", "HEAD"]), tip);
    let wish = Wish { strategy: Strategy::Auto, message: None, force: false };
    let accepted = kernel.council_accept(view.run_id.as_str(), wish).await.unwrap();
    assert_eq!(accepted.tree_as_verified, Some(true), "{accepted:?}");
    before.check_merged("main");
    assert_eq!((world.read("shared.txt").as_str(), world.read("cid.txt").as_str()), ("from ann\nfrom bob\n", "made\n"));
    let asked = codex.calls().iter().map(Value::to_string).collect::<String>();
    assert!(asked.contains("shared.txt"), "the conflict was told: {asked}");
    assert!(model.prompts().len() >= 3, "{:?}", model.prompts());
}
