//! Who may start: slots, breaker, defaults.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use claw_orchestrator::{
    engines::{PoolError, WaitKind},
    model::{Code, spec::EngineChoice},
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::support::{Bench, open, say, script};

/// CC-1: 20 sessions at a cap of 3 over two pools of one home never are more than 3, and all get their turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cap_holds_over_processes() {
    let bench = Bench::new();
    let model = bench.always("busy", json!([{ "sleep": 50 }, { "say": "ok" }]));
    let pools = [Arc::new(bench.pool(3)), Arc::new(bench.pool(3))];
    let (now, most, waited) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..20 {
        let (pool, spec) = (Arc::clone(&pools[n % 2]), bench.spec(&model));
        let (now, most, waited) = (Arc::clone(&now), Arc::clone(&most), Arc::clone(&waited));
        tasks.spawn(async move {
            let told = AtomicUsize::new(0);
            let wait = |kind| {
                assert_eq!(kind, WaitKind::Slot);
                told.fetch_add(1, Ordering::SeqCst);
            };
            let mut session = pool.open(spec, CancellationToken::new(), wait).await.unwrap();
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            assert!(told.load(Ordering::SeqCst) <= 1);
            waited.fetch_add(told.load(Ordering::SeqCst), Ordering::SeqCst);
            let outcome = say(&mut session, "go").await;
            assert!(outcome.ok, "{outcome:?}");
            now.fetch_sub(1, Ordering::SeqCst);
            session.close().await;
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 3);
    assert!(waited.load(Ordering::SeqCst) >= 10);
    assert_eq!((pools[0].in_use(), pools[1].in_use(), pools[0].max()), (0, 0, 3));
}

/// First come, first served; one that gives up while waiting holds nobody up.
#[tokio::test]
async fn waiting_is_in_order() {
    let bench = Bench::new();
    let pool = Arc::new(bench.pool(1));
    let first = open(&pool, bench.spec("echo")).await;
    let neighbour = bench.pool(1);
    assert_eq!((pool.in_use(), neighbour.in_use(), neighbour.in_use_by_home().await.unwrap()), (1, 0, 1));
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    let give_up = CancellationToken::new();
    for n in 0..4 {
        let (pool, spec, order, give_up) = (Arc::clone(&pool), bench.spec("echo"), Arc::clone(&order), give_up.clone());
        tasks.spawn(async move {
            let cancel = if n == 1 { give_up } else { CancellationToken::new() };
            match pool.open(spec, cancel, |_| {}).await {
                Ok(session) => {
                    order.lock().unwrap().push(n);
                    session.close().await;
                }
                Err(e) => assert!(matches!(e, PoolError::Cancelled) && n == 1),
            }
        });
        // Long enough to be in the queue before the next.
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    give_up.cancel();
    first.close().await;
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 2, 3]);
    // A program started at the very moment by somebody else may hold on to a lock until it runs.
    while neighbour.in_use_by_home().await.unwrap() > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// RL-2, engines acceptance 15: three bad starts open the breaker of that engine, a good one closes it.
#[tokio::test]
async fn bad_starts_open_the_breaker() {
    let mut bench = Bench::new();
    let program = script(&bench.path("fake-claude"), "echo cannot start today >&2; exit 1");
    bench.config.engine_bins.insert("claude".into(), program.clone());
    let pool = bench.pool(2);
    let mut spec = bench.spec("sonnet");
    spec.choice.engine = Some("claude".into());
    let start = || pool.open(spec.clone(), CancellationToken::new(), |_| {});
    for _ in 0..3 {
        let error = start().await.unwrap_err();
        assert_eq!(error.code(), Code::EngineUnavailable);
        assert!(
            error.to_string().contains("exit status 1") && error.to_string().contains("cannot start today"),
            "{error}"
        );
    }
    let error = start().await.unwrap_err();
    assert_eq!(error.code(), Code::CircuitOpen, "{error}");
    assert!(error.to_string().contains("cannot start today"));
    let state = &pool.breakers()[0];
    assert_eq!((state.engine.as_str(), state.failures), ("claude", 3));
    assert!(!state.open_for.is_zero() && state.open_for <= Duration::from_secs(1));
    open(&pool, bench.spec("noop")).await.close().await;
    // Acceptance 16: it starts although we are inside a session of the same program, and gets its key but no marker.
    script(
        &program,
        &format!("env > {}/seen; exec {} agent-script echo", bench.path("user").display(), env!("CARGO_BIN_EXE_clawo")),
    );
    tokio::time::sleep(Duration::from_millis(1100)).await;
    start().await.unwrap().close().await;
    assert_eq!(pool.breakers(), []);
    assert_eq!(pool.in_use(), 0);
}

/// Engines acceptance 16: the traces of an enclosing session are kept from claude, its own settings are not.
#[tokio::test]
async fn claude_gets_its_settings_and_no_markers() {
    let mut bench = Bench::new();
    let seen = bench.path("user/seen");
    let play = format!("env > {}; exec {} agent-script echo", seen.display(), env!("CARGO_BIN_EXE_clawo"));
    bench.config.engine_bins.insert("claude".into(), script(&bench.path("fake-claude"), &play));
    for (name, value) in [
        ("CLAUDECODE", "1"),
        ("CLAUDE_CODE_ENTRYPOINT", "cli"),
        ("CLAUDE_CODE_SSE_PORT", "1234"),
        ("ANTHROPIC_API_KEY", "key-of-the-user"),
        ("CLAUDE_CODE_OAUTH_TOKEN", "token-of-the-user"),
        ("AWS_SECRET_ACCESS_KEY", "aws-secret-value"),
        ("GITHUB_TOKEN", "github-secret-value"),
    ] {
        bench.config.env.insert(name.into(), value.into());
    }
    let mut spec = bench.spec("sonnet");
    spec.choice.engine = None;
    let mut session = open(&bench.pool(1), spec).await;
    assert_eq!(session.engine(), "claude");
    assert_eq!(say(&mut session, "my key is key-of-the-user").await.text, "my key is [redacted]");
    session.close().await;
    let told = std::fs::read_to_string(&seen).unwrap();
    // The user's own number of retries wins.
    bench.config.env.insert("CLAUDE_CODE_MAX_RETRIES".into(), "7".into());
    let mut spec = bench.spec("sonnet");
    spec.choice.engine = None;
    open(&bench.pool(1), spec).await.close().await;
    assert!(std::fs::read_to_string(seen).unwrap().contains("CLAUDE_CODE_MAX_RETRIES=7"));
    let seen = told;
    for wanted in [
        "CLAUDE_CODE_MAX_RETRIES=2",
        "ANTHROPIC_API_KEY=key-of-the-user",
        "CLAUDE_CODE_OAUTH_TOKEN=",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1",
        "HOME=",
    ] {
        assert!(seen.contains(wanted), "{wanted}");
    }
    for unwanted in
        ["CLAUDECODE=", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "aws-secret-value", "github-secret-value"]
    {
        assert!(!seen.contains(unwanted), "{unwanted}");
    }
}

/// EN-6: choices are looked at before anything starts.
#[tokio::test]
async fn wrong_choices_are_refused_with_what_would_be_right() {
    let mut bench = Bench::new();
    bench.config.env.insert("PATH".into(), "/nowhere".into());
    for engine in ["claude", "codex", "opencode", "gemini"] {
        bench.config.engine_bins.insert(engine.into(), format!("/nowhere/{engine}").into());
    }
    let pool = bench.pool(1);
    let bad = bench.scenario("bad", json!({ "turns": [{ "steps": [{ "sya": "x" }] }] }));
    let choice = |engine: Option<&str>, model: Option<&str>| EngineChoice {
        engine: engine.map(Into::into),
        model: model.map(Into::into),
        ..EngineChoice::default()
    };
    let acp =
        |engine: Option<&str>, agent: &str| EngineChoice { acp_agent: Some(agent.into()), ..choice(engine, None) };
    for (choice, code, words) in [
        (choice(Some("codex-app"), None), Code::EngineUnavailable, "CLAWO_CODEX_APP_BIN"),
        (choice(Some("codex"), None), Code::EngineUnavailable, "CLAWO_CODEX_BIN"),
        (choice(Some("opencode"), None), Code::EngineUnavailable, "/nowhere/opencode"),
        (
            choice(Some("acp"), None),
            Code::EngineUnavailable,
            "needs `acpAgent`, the agent it runs: one of opencode, claude",
        ),
        (acp(Some("acp"), "gemini"), Code::EngineUnavailable, "CLAWO_GEMINI_BIN"),
        (acp(None, "nobody"), Code::EngineUnavailable, "no acp agent is called `nobody`; use one of opencode"),
        (acp(Some("scripted"), "kimi"), Code::EngineUnavailable, "runs no acp agent"),
        (choice(Some("gemini"), None), Code::InvalidArgument, "`acp` with the gemini preset"),
        (choice(Some("cursor"), None), Code::InvalidArgument, "replacement"),
        (choice(Some("clod"), None), Code::InvalidArgument, "no engine is called `clod`"),
        (choice(Some("claude"), None), Code::EngineUnavailable, "CLAWO_CLAUDE_BIN"),
        (choice(None, None), Code::EngineUnavailable, "npm install -g opencode-ai"),
        (choice(None, None), Code::EngineUnavailable, "engine \"scripted\""),
        (choice(Some("custom"), None), Code::InvalidArgument, "customEngine"),
        (choice(Some("scripted"), None), Code::InvalidArgument, "demo-solve, echo, noop"),
        (choice(Some("scripted"), Some("ehco")), Code::InvalidArgument, "no built-in scenario is called `ehco`"),
        (choice(Some("scripted"), Some("/nowhere/x.json")), Code::InvalidArgument, "failed to read the scenario"),
        (choice(Some("scripted"), Some(&bad)), Code::InvalidArgument, "turns[0].steps[0]: unknown variant `sya`"),
        (choice(Some("scripted"), Some("missing.json")), Code::InvalidArgument, "failed to read the scenario"),
    ] {
        let mut spec = bench.spec("");
        spec.choice = choice;
        let error = pool.open(spec, CancellationToken::new(), |_| {}).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    let claude = pool.registry().get("claude").unwrap();
    let odd =
        EngineChoice { effort: Some("ultra".into()), permission_mode: Some("yolo".into()), ..EngineChoice::default() };
    assert_eq!(claude.check(&odd).len(), 2);
}
