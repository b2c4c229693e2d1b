//! Programs of the caller's own, described by a config.

use std::{collections::BTreeMap, sync::Arc};

use claw_orchestrator::{
    engines::{ErrorClass, SessionSpec, TurnEvent, custom::CustomEngine},
    model::spec::SandboxMode,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    support::{Bench, class, message, open, say, script, watch},
    turnwise::{print, spec},
};

/// A session of a program that is played by a script, described by `config`.
fn described(bench: &Bench, body: &str, mut config: Value) -> SessionSpec {
    config["name"] = "mine".into();
    config["bin"] = script(&bench.path("mine.sh"), body).to_string_lossy().as_ref().into();
    let mut spec = spec(bench, "custom");
    spec.options.custom = Some(Arc::new(CustomEngine::read(&config).unwrap()));
    spec
}

/// EN-1, EN-2, acceptance 1 of the engines: success of a described program needs status 0 and a reply.
#[tokio::test]
async fn what_counts_as_success() {
    let result = |text: &str| json!({ "type": "result", "subtype": "success", "is_error": false, "result": text, "session_id": "s", "num_turns": 1 });
    for (output, good, empty, broken) in [
        ("text", "hello".to_owned(), String::new(), None),
        ("json", json!({ "a": [{ "t": "hello" }] }).to_string(), json!({ "a": [] }).to_string(), Some("oops")),
        ("ndjson", json!({ "a": [{ "t": "hello" }] }).to_string(), json!({ "b": 1 }).to_string(), None),
        ("claude", result("hello").to_string(), result("").to_string(), Some("oops")),
    ] {
        let cases = [
            (Some(&good), 0, None),
            (Some(&good), 3, Some(ErrorClass::Crashed)),
            (Some(&empty), 0, Some(ErrorClass::Other)),
            (None, 3, Some(ErrorClass::StartFailed)),
        ];
        let odd = broken.map(str::to_owned);
        let more = odd.as_ref().map(|odd| (Some(odd), 0, Some(ErrorClass::Protocol)));
        for (line, exit, want) in cases.into_iter().chain(more) {
            let bench = Bench::new();
            let lines: Vec<String> = line.into_iter().filter(|l| !l.is_empty()).cloned().collect();
            let mut config = json!({ "output": output });
            if output.ends_with("json") {
                config["textPath"] = "a.0.t".into();
            }
            let spec = described(&bench, &format!("{}exit {exit}", print(&lines)), config);
            let mut session = open(&bench.pool(1), spec).await;
            let outcome = say(&mut session, "go").await;
            assert_eq!(class(&outcome), want, "{output} {line:?} {exit}: {outcome:?}");
            assert!(want.is_some() || outcome.text == "hello", "{outcome:?}");
            session.close().await;
        }
    }
}

/// Acceptance 5 of the engines: a program that reads its input to the end gets the message as it is, and one that is
/// told it by argument finds its input empty.
#[tokio::test]
async fn the_input_ends() {
    let bench = Bench::new();
    let text = "first\n\n  second 'quoted' \"$HOME\" é";
    for (via, body) in [("stdin", "cat"), ("arg", "cat >&2; printf '%s' \"$1\"")] {
        let spec = described(&bench, body, json!({ "output": "text", "messageVia": via }));
        let mut session = open(&bench.pool(1), spec).await;
        assert_eq!(say(&mut session, text).await.text, text);
        session.close().await;
    }
    let spec = described(&bench, "wc -c", json!({ "output": "text" }));
    let mut session = open(&bench.pool(1), spec).await;
    assert_eq!(say(&mut session, &"x".repeat(3 << 20)).await.text, (3 << 20).to_string(), "longer than any argument");
    session.close().await;
    let spec = described(&bench, "echo", json!({ "output": "text", "messageVia": "arg" }));
    let mut session = open(&bench.pool(1), spec).await;
    assert!(message(&say(&mut session, &"x".repeat(3 << 20)).await).contains("into a file"));
    session.close().await;
}

/// Acceptance 6 of the engines: a line of 40 MiB and 200 MB of standard error do not cost the turn; HO-3: bytes that
/// are no UTF-8 and control characters neither.
#[tokio::test]
async fn huge_and_odd_output() {
    let bench = Bench::new();
    let body = "head -c 41943040 /dev/zero | tr '\\0' x; echo\nhead -c 200000000 /dev/zero >&2\n\
                printf '{\"t\":\"a\\377\\033[1m\\000b\"}\\nnoise\\n'";
    let spec = described(&bench, body, json!({ "output": "ndjson", "textPath": "t" }));
    let mut session = open(&bench.pool(1), spec).await;
    let (outcome, events) = watch(&mut session, "go").await;
    assert!(outcome.text.starts_with('a') && outcome.text.ends_with('b'), "{outcome:?}");
    assert!(events.iter().any(|e| matches!(e, TurnEvent::Note(t) if t.contains("41943040"))), "{events:?}");
    assert!(outcome.ok, "{outcome:?}");
    session.close().await;
    let spec =
        described(&bench, "head -c 41943040 /dev/zero | tr '\\0' x; echo; echo end", json!({ "output": "text" }));
    let mut session = open(&bench.pool(1), spec).await;
    let outcome = say(&mut session, "go").await;
    assert_eq!(class(&outcome), Some(ErrorClass::Protocol), "a part of the reply is gone: {outcome:?}");
    session.close().await;
}

/// Acceptance 10 of the engines: numbers by path, a price by the config where the program states none, and sums over
/// turns of one conversation.
#[tokio::test]
async fn numbers_and_conversation() {
    let bench = Bench::new();
    let body = "echo \"$*\" >> calls; cat > /dev/null\n\
                echo '{\"id\":\"c-1\",\"t\":\"hi\",\"u\":{\"in\":1000,\"hit\":500,\"out\":100}}'";
    let config = json!({
        "output": "ndjson", "textPath": "t", "idPath": "id", "resumeFlag": "--again", "cwdFlag": "-d", "modelFlag": "-m",
        "usagePaths": { "input": "u.in", "cached": "u.hit", "output": "u.out" },
        "pricing": { "input": 2.0, "cached": 1.0, "output": 10.0 }, "efforts": { "high": ["--think", "3"] }
    });
    let mut spec = described(&bench, body, config);
    spec.choice.model = Some("big".into());
    spec.choice.effort = Some("high".into());
    let mut session = open(&bench.pool(1), spec.clone()).await;
    for _ in 0..2 {
        let outcome = say(&mut session, "go").await;
        assert_eq!((outcome.spend.tokens_in, outcome.spend.tokens_out), (1500, 100));
        assert!((outcome.spend.cost_usd - 0.0035).abs() < 1e-9, "{outcome:?}");
        assert_eq!(outcome.cost_source.as_deref(), Some("registry"));
    }
    assert!((session.spent_usd() - 0.007).abs() < 1e-9);
    session.close().await;
    let calls = std::fs::read_to_string(bench.repo().join("calls")).unwrap();
    let base = format!("-d {} -m big --think 3", bench.repo().display());
    assert_eq!(calls, format!("{base}\n{base} --again c-1\n"));
    spec.resume = Some("c-2".into());
    let mut session = open(&bench.pool(1), spec).await;
    let outcome = say(&mut session, "go").await;
    assert!(class(&outcome) == Some(ErrorClass::Protocol) && message(&outcome).contains("c-1"), "{outcome:?}");
    session.close().await;
    // A program that cannot go on says so instead of beginning anew.
    let mut session = open(&bench.pool(1), described(&bench, "echo hi", json!({ "output": "text" }))).await;
    assert!(say(&mut session, "go").await.ok);
    assert_eq!(class(&say(&mut session, "go").await), Some(ErrorClass::NotSupported));
    session.close().await;
}

/// A long-running program of the stream-json protocol keeps its conversation over turns.
#[tokio::test]
async fn a_persistent_program() {
    let bench = Bench::new();
    let scenario = bench.always("talk", json!([{ "say": "hello" }]));
    let config = json!({
        "name": "mine", "bin": env!("CARGO_BIN_EXE_clawo"), "args": ["agent-script", scenario],
        "persistent": true, "output": "claude"
    });
    let mut spec = spec(&bench, "custom");
    spec.options.custom = Some(Arc::new(CustomEngine::read(&config).unwrap()));
    let mut session = open(&bench.pool(1), spec).await;
    let (first, second) = (say(&mut session, "one").await, say(&mut session, "two").await);
    assert!(first.ok && second.ok && first.native_id == second.native_id && first.native_id.is_some(), "{second:?}");
    assert_eq!(bench.prompts("talk"), ["one", "two"]);
    session.close().await;
}

/// EN-3: a described program is held read-only only by its own description; SE-1: it sees its own variables, nobody
/// else's description, and what it repeats of its secrets is hidden.
#[tokio::test]
async fn limits_and_secrets() {
    let mut bench = Bench::new();
    bench.config.env.insert("CLAWO_CUSTOM_ENGINE_OTHER".into(), "canary-of-another".into());
    bench.config.engine_env = BTreeMap::from([("custom".to_owned(), vec!["CLAWO_*".to_owned()])]);
    let config =
        json!({ "output": "text", "env": { "MY_KEY": "canary-of-mine" }, "sandboxModes": { "read-only": ["--ro"] } });
    let pool = bench.pool(1);
    let mut session = open(&pool, described(&bench, "env; echo \"args $*\"", config.clone())).await;
    let outcome = say(&mut session, "go").await;
    assert!(outcome.text.contains("MY_KEY=") && !outcome.text.contains("canary"), "{outcome:?}");
    assert!(!outcome.text.contains("CLAWO_CUSTOM_ENGINE"), "{outcome:?}");
    session.close().await;
    let mut held = described(&bench, "echo \"args $*\"", config);
    held.options.sandbox = Some(SandboxMode::ReadOnly);
    let mut session = open(&pool, held).await;
    assert_eq!(say(&mut session, "go").await.text, "args --ro");
    session.close().await;
    let mut free = described(&bench, "echo hi", json!({ "output": "text" }));
    free.options.sandbox = Some(SandboxMode::ReadOnly);
    free.choice.permission_mode = Some("plan".into());
    free.choice.effort = Some("high".into());
    let error = pool.open(free, CancellationToken::new(), |_| {}).await.unwrap_err().to_string();
    assert!(["sandboxModes", "permissionModes", "efforts"].iter().all(|w| error.contains(w)), "{error}");
}
