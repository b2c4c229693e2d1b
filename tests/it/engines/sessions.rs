//! What turns give: the scripted program played through the pool.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use claw_orchestrator::engines::{ErrorClass, TurnEvent, scripted};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::support::{Bench, class, message, open, say, silent, watch};

/// Engines acceptance 2: two turns keep the conversation, and a new process goes on with it.
#[tokio::test]
async fn a_conversation_goes_on() {
    let bench = Bench::new();
    let turn = |text: &str| json!({ "steps": [{ "cost": 0.25 }, { "usage": { "inputTokens": 10, "outputTokens": 3 } }, { "say": text }] });
    let model = bench.scenario("talk", json!({ "turns": [turn("one"), turn("two"), turn("three")] }));
    let mut session = bench.open(&model).await;
    assert_eq!(session.native_id(), None);
    for want in ["one", "two"] {
        let outcome = say(&mut session, &format!("say {want}")).await;
        assert!(outcome.ok, "{outcome:?}");
        assert_eq!((outcome.text.as_str(), outcome.cost_source.as_deref()), (want, Some("engine")));
        // Acceptance 10: the program states totals, a turn gets its share.
        assert_eq!((outcome.spend.cost_usd, outcome.spend.tokens_in, outcome.spend.tokens_out), (0.25, 10, 3));
    }
    let id = session.native_id();
    assert_eq!(session.close().await, Vec::<String>::new());
    let mut spec = bench.spec(&model);
    spec.resume.clone_from(&id);
    let mut session = open(&bench.pool(1), spec).await;
    let outcome = say(&mut session, "/say three").await;
    assert_eq!((outcome.text.as_str(), &outcome.native_id), ("three", &id));
    assert_eq!(bench.prompts("talk"), ["say one", "say two", " /say three"]);
    session.close().await;
    let mut spec = bench.spec(&model);
    spec.resume = Some("no-such-id".into());
    let error = bench.pool(1).open(spec, CancellationToken::new(), |_| {}).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Other);
    assert!(error.to_string().contains("No conversation found"), "{error}");
}

/// EN-1, EN-2 and engines acceptance 1: terminal event x exit x reply.
#[tokio::test]
async fn only_a_finished_turn_with_a_reply_is_ok() {
    let rows = [
        (json!([{ "say": "done" }]), None, ""),
        (json!([]), Some(ErrorClass::Other), "without a reply"),
        (json!([{ "say": " " }]), Some(ErrorClass::Other), "without a reply"),
        (json!([{ "say": "done" }, { "exit": 0 }]), Some(ErrorClass::Protocol), "without finishing"),
        (json!([{ "say": "done" }, { "exit": 1 }]), Some(ErrorClass::Crashed), "exit status 1"),
        (json!([{ "exit": 3 }]), Some(ErrorClass::Crashed), "exit status 3"),
        (json!([{ "killSelf": "KILL" }]), Some(ErrorClass::Crashed), "signal 9"),
        (json!([{ "rawLine": "garbage" }, { "exit": 0 }]), Some(ErrorClass::Protocol), "without finishing"),
        (json!([{ "say": "x" }, { "fail": "out of ideas" }]), Some(ErrorClass::Other), "out of ideas"),
        (json!([{ "error": { "class": "auth" } }]), Some(ErrorClass::Auth), "Invalid API key"),
        (json!([{ "error": { "class": "context_overflow" } }]), Some(ErrorClass::ContextOverflow), "too long"),
        (json!([{ "error": { "class": "refused" } }]), Some(ErrorClass::Refused), "unable"),
        (
            json!([{ "error": { "class": "permission_denied" } }]),
            Some(ErrorClass::PermissionDenied),
            "refused tool call",
        ),
        (json!([{ "error": { "class": "interrupted" } }]), Some(ErrorClass::Interrupted), "cut off"),
        (json!([{ "error": { "class": "quota" } }]), Some(ErrorClass::Quota), "usage limit"),
        (json!([{ "error": { "class": "other", "message": "odd" } }]), Some(ErrorClass::Other), "odd"),
    ];
    for (steps, want, words) in rows {
        let bench = Bench::new();
        let outcome = bench.once(steps.clone()).await;
        assert_eq!(class(&outcome), want, "{steps}: {outcome:?}");
        assert!(message(&outcome).contains(words), "{steps}: {}", message(&outcome));
    }
}

/// A process that is gone after its turn fails the next one, with the end of what it said on standard error.
#[tokio::test]
async fn a_crash_between_turns_is_found() {
    let bench = Bench::new();
    let noise = json!({ "printBytes": { "stream": "stderr", "n": 40 } });
    let turns = json!([{ "steps": [{ "say": "fine" }] }, { "steps": [{ "usage": { "inputTokens": 9 } }, noise, { "exit": 7 }] }]);
    let mut session = bench.open(&bench.scenario("crash", json!({ "turns": turns }))).await;
    assert!(say(&mut session, "a").await.ok);
    let outcome = say(&mut session, "b").await;
    assert_eq!(class(&outcome), Some(ErrorClass::Crashed));
    assert!(message(&outcome).contains(&"x".repeat(40)), "{}", message(&outcome));
    let outcome = say(&mut session, "c").await;
    assert!(message(&outcome).contains("has ended"), "{}", message(&outcome));
    session.close().await;
}

/// QL-1; a busy provider is tried again three times in place, a bad key never.
#[tokio::test]
async fn errors_of_the_provider() {
    let bench = Bench::new();
    let outcome = bench.once(json!([{ "error": { "class": "quota", "retryAt": "2030-01-02T03:04:05Z" } }])).await;
    assert_eq!(outcome.error.unwrap().retry_at.unwrap().to_string(), "2030-01-02T03:04:05.000Z");
    for (name, turns, want, asked) in [
        (
            "busy-once",
            json!([{ "steps": [{ "cost": 0.5 }, { "error": { "class": "overloaded" } }] }, { "steps": [{ "cost": 0.25 }, { "say": "there" }] }]),
            None,
            2,
        ),
        (
            "busy",
            json!([{ "times": 0, "steps": [{ "error": { "class": "overloaded" } }] }]),
            Some(ErrorClass::Overloaded),
            4,
        ),
        ("key", json!([{ "times": 0, "steps": [{ "error": { "class": "auth" } }] }]), Some(ErrorClass::Auth), 1),
    ] {
        let mut session = bench.open(&bench.scenario(name, json!({ "turns": turns }))).await;
        let (outcome, events) = watch(&mut session, "go").await;
        assert_eq!(class(&outcome), want, "{name}");
        assert_eq!(bench.prompts(name), vec!["go"; asked], "{name}");
        assert_eq!(events.iter().filter(|e| matches!(e, TurnEvent::Retry(_))).count(), asked - 1);
        if want.is_none() {
            assert_eq!((outcome.spend.cost_usd, outcome.spend.turns), (0.75, 2));
        }
        session.close().await;
    }
}

/// A turn that had begun to act is continued, not begun again, when the provider was busy.
#[tokio::test]
async fn begun_work_is_not_begun_twice() {
    let bench = Bench::new();
    let busy =
        json!({ "steps": [{ "append": { "path": "log", "content": "x" } }, { "error": { "class": "overloaded" } }] });
    let model = bench.scenario("begun", json!({ "turns": [busy, { "steps": [{ "say": "finished" }] }] }));
    let mut session = bench.open(&model).await;
    let outcome = say(&mut session, "append x").await;
    assert_eq!((outcome.text.as_str(), outcome.tool_calls), ("finished", 1));
    let prompts = bench.prompts("begun");
    assert!(prompts.len() == 2 && prompts[1].starts_with("The last request failed"), "{prompts:?}");
    session.close().await;
}

/// HG-1, HG-2: a question nobody can answer is refused at once, also a sub-agent's, and the agent goes on.
#[tokio::test]
async fn questions_are_refused_at_once() {
    let bench = Bench::new();
    let ask = |extra: Value| {
        let mut ask = json!({ "tool": "Bash", "input": { "command": "rm -rf /" } });
        ask.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        json!({ "askPermission": ask })
    };
    let begun = Instant::now();
    let outcome =
        bench.once(json!([ask(json!({})), ask(json!({ "parentToolUseId": "toolu_sub" })), { "say": "went on" }])).await;
    assert!(outcome.ok && begun.elapsed() < Duration::from_secs(10), "{outcome:?}");
    assert_eq!((outcome.permission_denials.len(), outcome.tool_errors), (2, 2));
    assert_eq!(outcome.permission_denials[0].input, Some(json!({ "command": "rm -rf /" })));
    let outcome = bench.once(json!([ask(json!({}))])).await;
    assert_eq!(class(&outcome), Some(ErrorClass::PermissionDenied));
}

/// HO-1, HO-2, HO-3: a line of 40 MiB, 200 MB of standard error and split characters cost neither memory nor the turn.
#[tokio::test]
async fn huge_and_odd_output() {
    let bench = Bench::new();
    let before = resident();
    let (peak, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let watcher = std::thread::spawn({
        let (peak, done) = (Arc::clone(&peak), Arc::clone(&done));
        move || {
            while !done.load(Ordering::Relaxed) {
                peak.fetch_max(resident(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    });
    let big = 40_u64 << 20;
    let steps = json!([
        { "printBytes": { "stream": "stdout", "n": big } },
        { "printBytes": { "stream": "stdout", "n": big, "json": true } },
        { "printBytes": { "stream": "stderr", "n": 200_000_000 } },
        { "rawLine": "{\"type\":\"of a later version\",\"x\":[1]}" },
        { "rawLine": "\u{1b}[31mnot json\u{0}" },
        { "splitUtf8": "żółw 😀 \u{1b}[0m ende" },
    ]);
    let mut session = bench.open(&bench.always("huge", steps)).await;
    let (outcome, events) = watch(&mut session, "go").await;
    assert_eq!(outcome.text, "żółw 😀 \u{1b}[0m ende", "{outcome:?}");
    let skipped =
        events.iter().filter(|e| matches!(e, TurnEvent::Note(t) if t.contains("too long and was skipped"))).count();
    assert_eq!(skipped, 2, "{events:?}");
    session.close().await;
    done.store(true, Ordering::Relaxed);
    watcher.join().unwrap();
    let grown = peak.load(Ordering::Relaxed).saturating_sub(before);
    assert!(grown < 64 << 20, "grown by {grown} bytes");
}

/// Bytes of memory in use.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// SS-1, SS-2 (a), SS-3, engines acceptance 5 and 8: silence is a stall, except while a tool call is open.
#[tokio::test]
async fn silence_is_a_stall_unless_a_tool_works() {
    let mut bench = Bench::new();
    bench.limits.idle = Duration::from_secs(2);
    let outcome = bench.once(json!([{ "run": ["sleep", "3.5"] }, { "say": "built" }])).await;
    assert!(outcome.ok, "{outcome:?}");
    for steps in [json!([{ "cost": 0.5 }, "hang"]), json!(["readStdinToEof"]), json!([{ "sleep": 60_000 }])] {
        let begun = Instant::now();
        let outcome = bench.once(steps).await;
        assert_eq!(class(&outcome), Some(ErrorClass::Timeout));
        assert!(message(&outcome).contains("stalled: idle, nothing happened for 2 s"), "{}", message(&outcome));
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}

/// The start clock: a program that never answers is given up.
#[tokio::test]
async fn a_program_without_a_sign_of_life_is_given_up() {
    let mut bench = Bench::new();
    bench.limits.start = Duration::from_secs(2);
    bench
        .config
        .engine_bins
        .insert("claude".into(), super::support::script(&bench.path("mute"), "echo waking up >&2; sleep 60"));
    let mut spec = bench.spec("x");
    spec.choice.engine = Some("claude".into());
    let error = bench.pool(1).open(spec, CancellationToken::new(), |_| {}).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Timeout);
    assert!(error.to_string().contains("no sign of life") && error.to_string().contains("waking up"), "{error}");
}

/// SE-1, engines acceptance 13: secrets of the server reach neither the agent nor, through it, anybody else.
#[tokio::test]
async fn secrets_stay_where_they_are() {
    let mut bench = Bench::new();
    let canary = "canary-7f3a9c51d2";
    bench.config.env.insert("DEPLOY_TOKEN".into(), canary.into());
    bench.config.env.insert("PLAIN_SETTING".into(), "visible".into());
    // Kept back, but nothing to hide.
    bench.config.env.insert("CLAWO_HOME".into(), "/home/of/clawo".into());
    let steps = json!([
        { "run": ["sh", "-c", "env > env.txt; cat env.txt"] },
        { "run": ["sh", "-c", format!("echo {canary}")] },
        { "askPermission": { "tool": "Bash", "input": { "command": ["curl", canary] } } },
        { "say": format!("the secret is {canary}, not /home/of/clawo, told by {{{{prompt}}}}") },
    ]);
    let mut spec = bench.spec(&bench.always("leak", steps));
    spec.run_env.push(("RUN_MARK".into(), "run-1".into()));
    let mut session = open(&bench.pool(1), spec).await;
    let (outcome, events) = watch(&mut session, "me").await;
    assert!(outcome.ok, "{outcome:?}");
    let env = std::fs::read_to_string(bench.repo().join("env.txt")).unwrap();
    assert!(
        env.contains("PLAIN_SETTING=visible")
            && env.contains("RUN_MARK=run-1")
            && env.contains("CLAWO_OWNER=test-owner")
    );
    let told = format!("{outcome:?}{events:?}");
    assert!(!env.contains(canary) && !told.contains(canary), "{told}");
    assert_eq!(outcome.text, "the secret is [redacted], not /home/of/clawo, told by me");
    assert!(!env.contains("CLAWO_HOME"));
    session.close().await;
}

/// The scripted agent writes below its directory only, whatever the path looks like.
#[tokio::test]
async fn the_agent_stays_in_its_directory() {
    let bench = Bench::new();
    std::os::unix::fs::symlink(bench.path("home"), bench.repo().join("way-out")).unwrap();
    std::os::unix::fs::symlink(bench.path("not-there"), bench.repo().join("dangling")).unwrap();
    let outside = bench.path("user/x").to_string_lossy().into_owned();
    let bad = ["../user/x", "a/../../user/x", outside.as_str(), "way-out/x", "dangling", "."];
    let mut steps: Vec<Value> = bad.iter().map(|p| json!({ "write": { "path": p, "content": "x" } })).collect();
    steps.push(json!({ "delete": "way-out/slots" }));
    steps.push(json!({ "write": { "path": "deep/er/file", "content": "one\n" } }));
    steps.push(json!({ "append": { "path": "deep/../deep/er/file", "content": "two\n" } }));
    steps.push(json!({ "say": "tried" }));
    let outcome = bench.once(json!(steps)).await;
    assert_eq!((outcome.tool_calls, outcome.tool_errors), (9, 7), "{outcome:?}");
    assert_eq!(std::fs::read_to_string(bench.repo().join("deep/er/file")).unwrap(), "one\ntwo\n");
    assert!(!bench.path("user/x").exists() && !bench.path("home/x").exists() && !bench.path("not-there").exists());
    assert!(bench.path("home/slots").exists());
}

/// No option is dropped: the scripted agent keeps or records what the real program would be told.
#[tokio::test]
async fn options_reach_the_agent() {
    let bench = Bench::new();
    let mut spec = bench.spec(&bench.always("options", json!([{ "say": "1" }, { "run": ["true"] }, { "say": "3" }])));
    spec.append_system_prompt = Some("Be brief.".into());
    spec.choice.effort = Some("low".into());
    spec.choice.permission_mode = Some("plan".into());
    spec.max_turns = Some(2);
    let mut session = open(&bench.pool(1), spec).await;
    let outcome = say(&mut session, "go").await;
    assert!(message(&outcome).contains("maximum number of turns (2)"), "{outcome:?}");
    session.close().await;
    let recorded: Value =
        serde_json::from_str(&std::fs::read_to_string(bench.path("options.prompts")).unwrap()).unwrap();
    let want = json!({ "systemPrompt": "Be brief.", "effort": "low", "permissionMode": "plan", "maxTurns": 2 });
    assert_eq!(recorded["options"], want);
}

/// The cap of a session is kept for every engine.
#[tokio::test]
async fn a_session_stops_at_its_cap() {
    let bench = Bench::new();
    let mut spec = bench.spec(&bench.always("dear", json!([{ "cost": 0.6 }, { "say": "ok" }])));
    spec.max_budget_usd = Some(1.0);
    let mut session = open(&bench.pool(1), spec).await;
    assert!(say(&mut session, "a").await.ok);
    assert!(say(&mut session, "b").await.ok);
    let refused = say(&mut session, "c").await;
    assert!(
        message(&refused).starts_with("session 'test-session' (scripted) has spent 1.2000 of 1.0000 US dollars"),
        "{refused:?}"
    );
    assert_eq!(bench.prompts("dear"), ["a", "b"]);
    session.close().await;
}

/// The demonstration: a claim of success that the test refutes, and a repair that passes.
#[tokio::test]
async fn the_demo_scenario_plays_on_its_project() {
    let bench = Bench::new();
    for (path, contents) in scripted::demo_files() {
        std::fs::write(bench.repo().join(path), contents).unwrap();
    }
    let test =
        || std::process::Command::new("sh").arg("test.sh").current_dir(bench.repo()).output().unwrap().status.success();
    assert!(!test());
    for (prompt, passes) in [
        ("Triage the task. Do not change any file.", false),
        ("Do the task.\nOutput of triage: Scout report: the loop is wrong", false),
        ("Do the task.\nOutput of triage: Scout report: the loop is wrong\nThe failing check says: not ok", true),
    ] {
        let mut session = bench.open("demo-solve").await;
        let outcome = session.turn(prompt, silent(), CancellationToken::new()).await;
        assert!(outcome.ok && outcome.spend.cost_usd > 0.0, "{outcome:?}");
        session.close().await;
        assert_eq!(test(), passes, "{prompt}");
    }
}
