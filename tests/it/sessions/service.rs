//! The service itself: starts, order, stops, clocks, caps, what is kept.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use claw_orchestrator::{
    engines::{Ask, ErrorClass},
    model::Code,
    nodes::sessions::{Caller, HandoffRequest, SendRequest, SessionState, Settings},
    sys::SystemClock,
};
use serde_json::{Value, json};

use super::support::{Ahead, echo, options, plain, said, sessions, start};
use crate::support::{World, happens, processes};

/// Surfaces 27: twenty starts of one name at once make one agent and twenty equal answers.
#[tokio::test(flavor = "multi_thread")]
async fn one_name_started_twenty_times_is_one_session() {
    let world = World::new();
    let (sessions, model) = (plain(&world), echo(&world));
    let starts: Vec<_> = (0..20)
        .map(|_| {
            let (sessions, model, cwd) = (sessions.clone(), model.clone(), world.project());
            tokio::spawn(async move {
                let given = json!({ "name": "a", "engine": "scripted", "model": model, "cwd": cwd });
                sessions.start(options(given), Caller::Local).await.unwrap()
            })
        })
        .collect();
    let mut answers = Vec::new();
    for start in starts {
        answers.push(start.await.unwrap());
    }
    assert!(answers.iter().all(|a| !a.existing && *a == answers[0]), "{answers:?}");
    assert_eq!(processes(&format!("agent-script {model}")).len(), 1);
    assert!(start(&sessions, &world, "a", &model).await.existing);
    sessions.shutdown().await;
    assert!(processes(&model).is_empty());
}

/// Surfaces 28: replies match their messages, one after the other; a stop fails the rest and none hangs.
#[tokio::test(flavor = "multi_thread")]
async fn fifty_sends_are_answered_in_order() {
    let world = World::new();
    let (sessions, model) = (plain(&world), echo(&world));
    start(&sessions, &world, "a", &model).await;
    let send = |text: String| {
        let sessions = sessions.clone();
        tokio::spawn(async move { sessions.send("a", SendRequest::from(text.as_str())).await })
    };
    let sends: Vec<_> = (0..50).map(|n| (n, send(format!("number {n}.")))).collect();
    for (n, sent) in sends {
        assert_eq!(sent.await.unwrap().unwrap().output, format!("you said number {n}."));
    }
    let asked: BTreeSet<String> = world.prompts("echo").into_iter().collect();
    assert_eq!(asked.len(), 50);

    let mut sends = vec![send("hang!".to_owned())];
    happens("the turn begins", || world.prompts("echo").len() == 51).await;
    sends.extend((0..49).map(|n| send(format!("late {n}"))));
    while sessions.overview().await.unwrap().sessions[0].queued < 49 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    sessions.stop("a").await.unwrap();
    for sent in sends {
        let ended = tokio::time::timeout(Duration::from_secs(20), sent).await.expect("none hangs").unwrap();
        assert_eq!(ended.unwrap_err().code(), Code::SessionStopped);
    }
    assert_eq!(world.prompts("echo").len(), 51, "nothing that waited was begun");
    let error = sessions.send("a", SendRequest::from("x")).await.unwrap_err();
    assert_eq!(error.code(), Code::SessionStopped, "only a start brings it back");
    assert!(start(&sessions, &world, "a", &model).await.resumed);
    assert_eq!(said(&sessions, "a", "again").await, "you said again");
    sessions.shutdown().await;
}

/// Engines 3: a timed-out turn is interrupted, its late reply is nobody's answer, and the session lives on.
#[tokio::test(flavor = "multi_thread")]
async fn a_timed_out_turn_is_interrupted() {
    let world = World::new();
    let (sessions, model) = (plain(&world), echo(&world));
    start(&sessions, &world, "a", &model).await;
    said(&sessions, "a", "first").await;
    for text in ["hang!", "stubborn"] {
        let timeout = Some(Duration::from_millis(300));
        let request = SendRequest { message: text.to_owned(), timeout, ..SendRequest::default() };
        let error = sessions.send("a", request).await.unwrap_err();
        assert_eq!(error.code(), Code::TurnTimeout, "{error}");
        assert_eq!(said(&sessions, "a", "next").await, "you said next");
    }
    let begun = sessions.begin("a", SendRequest::from("hang!")).await.unwrap();
    happens("the turn begins", || world.prompts("echo").iter().filter(|p| *p == "hang!").count() == 2).await;
    assert!(sessions.interrupt("a").await.unwrap());
    let ended = begun.end().await.unwrap();
    assert!(!ended.ok && ended.error.is_some(), "{ended:?}");
    assert!(!sessions.interrupt("a").await.unwrap(), "nothing is under way");
    let error = sessions.steer("a", "more").await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert_eq!(said(&sessions, "a", "on").await, "you said on");
    sessions.shutdown().await;
}

/// Surfaces 26: the cap is looked at before anything is started.
#[tokio::test(flavor = "multi_thread")]
async fn a_used_up_cap_refuses_before_a_process() {
    let world = World::new();
    let (sessions, model) = (plain(&world), echo(&world));
    for (name, cap, refused) in [("a", 0.01, true), ("b", 0.0, false), ("c", -1.0, false)] {
        let given =
            json!({ "name": name, "engine": "scripted", "model": model, "cwd": world.project(), "maxBudgetUsd": cap });
        sessions.start(options(given), Caller::Local).await.unwrap();
        said(&sessions, name, "paid").await;
        let second = sessions.send(name, SendRequest::from("paid")).await;
        if !refused {
            assert!(second.unwrap().ok);
            continue;
        }
        let error = second.unwrap_err();
        assert_eq!(error.code(), Code::BudgetExceeded);
        let details = error.details.clone().unwrap();
        assert_eq!((&details["spentUsd"], &details["capUsd"]), (&json!(0.02), &json!(0.01)), "{error}");
        assert!(error.message.contains("0.0200") && error.message.contains("0.0100"), "{error}");
        sessions.stop(name).await.unwrap();
        start(&sessions, &world, name, &model).await;
        assert_eq!(sessions.send(name, SendRequest::from("x")).await.unwrap_err().code(), Code::BudgetExceeded);
        let listed = sessions.list().await.unwrap();
        assert!(listed[0].budget_exhausted && listed[0].budget_usd == Some(0.01), "{listed:?}");
    }
    assert_eq!(world.prompts("echo").len(), 5);
    sessions.shutdown().await;
}

/// Surfaces 31: the third start of two is refused, and a stop makes room.
#[tokio::test(flavor = "multi_thread")]
async fn a_plain_start_beyond_the_cap_is_refused() {
    let mut world = World::new();
    world.sessions = 2;
    let (sessions, model) = (plain(&world), echo(&world));
    for name in ["a", "b"] {
        start(&sessions, &world, name, &model).await;
    }
    let third = json!({ "name": "c", "engine": "scripted", "model": model, "cwd": world.project() });
    let error = sessions.start(options(third.clone()), Caller::Local).await.unwrap_err();
    assert_eq!(error.code(), Code::SessionCapReached, "{error}");
    sessions.stop("a").await.unwrap();
    sessions.start(options(third), Caller::Local).await.unwrap();
    sessions.shutdown().await;
}

/// Surfaces 5.3: an idle session loses its program, not its conversation; with nothing kept it is told again.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_session_is_unloaded_and_comes_back() {
    let world = World::new();
    let sessions = sessions(&world, Arc::new(SystemClock), Settings::with_ttl(Duration::from_millis(300)));
    let model = echo(&world);
    start(&sessions, &world, "a", &model).await;
    said(&sessions, "a", "one").await;
    let id = sessions.list().await.unwrap()[0].session_id.clone().unwrap();
    happens("it is unloaded", || processes(&model).is_empty()).await;
    while sessions.list().await.unwrap()[0].live {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(sessions.list().await.unwrap()[0].state, SessionState::Paused);
    let turn = sessions.send("a", SendRequest::from("two")).await.unwrap();
    assert_eq!((turn.output.as_str(), turn.session_id), ("you said two", Some(id)));
    sessions.shutdown().await;
}

/// Surfaces 29: the same name later, elsewhere, with another engine, and without anything kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_known_for_a_week() {
    let world = World::new();
    let clock = Arc::new(Ahead::default());
    let settings = Settings::with_ttl(Duration::from_secs(3600));
    let model = echo(&world);
    let first = sessions(&world, clock.clone(), settings.clone());
    start(&first, &world, "a", &model).await;
    said(&first, "a", "one").await;
    let id = first.list().await.unwrap()[0].session_id.clone();
    let given = json!({ "name": "n", "engine": "scripted", "model": model, "cwd": world.project(), "noSessionPersistence": true });
    first.start(options(given), Caller::Local).await.unwrap();
    said(&first, "n", "one").await;
    first.shutdown().await;
    let home = std::fs::read_to_string(world.home().join("sessions.json")).unwrap();
    assert!(home.contains("\"a\"") && !home.contains("\"n\""), "{home}");
    assert!(!world.home().join("sessions/n").exists());

    let second = sessions(&world, clock.clone(), settings.clone());
    let again = second.start(options(json!({ "name": "a" })), Caller::Local).await.unwrap();
    assert!(again.resumed && again.session_id == id && again.warnings.is_empty(), "{again:?}");
    assert_eq!(said(&second, "a", "two").await, "you said two");
    assert_eq!(second.status("a", None, Duration::ZERO).await.unwrap().entry.entry.turns, 2, "counts go on");
    second.stop("a").await.unwrap();
    let sub = world.project().join("sub");
    std::fs::create_dir(&sub).unwrap();
    let elsewhere = json!({ "name": "a", "cwd": sub, "model": model, "engine": "scripted" });
    let fresh = second.start(options(elsewhere), Caller::Local).await.unwrap();
    assert!(!fresh.resumed && fresh.warnings[0].contains("a new one begins"), "{fresh:?}");
    said(&second, "a", "three").await;
    second.shutdown().await;

    clock.days(8);
    let third = sessions(&world, clock, settings);
    assert!(third.list().await.unwrap().is_empty());
    let late = json!({ "name": "a", "engine": "scripted", "model": model, "cwd": sub, "resume": "require" });
    assert_eq!(third.start(options(late), Caller::Local).await.unwrap_err().code(), Code::NothingToResume);
    let late = json!({ "name": "a", "engine": "scripted", "model": model, "cwd": sub });
    assert!(!third.start(options(late), Caller::Local).await.unwrap().resumed);
    third.shutdown().await;
}

/// LW-5: the engine lost the conversation; a new one is told what was said, and the caller that this is so.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_conversation_is_continued_by_replay() {
    let world = World::new();
    let model = echo(&world);
    let first = plain(&world);
    start(&first, &world, "a", &model).await;
    said(&first, "a", "remember the number 4711").await;
    first.shutdown().await;
    std::fs::remove_dir_all(world.home().join("scripted")).unwrap();
    let second = plain(&world);
    let started = second.start(options(json!({ "name": "a" })), Caller::Local).await.unwrap();
    assert!(!started.resumed && started.warnings[0].contains("continued by replay"), "{started:?}");
    said(&second, "a", "which?").await;
    let told = world.prompts("echo").pop().unwrap();
    assert!(told.starts_with("<conversation_history>") && told.contains("remember the number 4711"), "{told}");
    assert!(told.ends_with("which?"));
    said(&second, "a", "and now?").await;
    assert_eq!(world.prompts("echo").pop().unwrap(), "and now?", "told once");
    second.shutdown().await;
}

/// An agent that dies in the middle of a turn is a failed turn; the next message goes on with the conversation.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_survives_its_agent() {
    let world = World::new();
    let (sessions, model) = (plain(&world), echo(&world));
    start(&sessions, &world, "a", &model).await;
    said(&sessions, "a", "one").await;
    let turn = sessions.send("a", SendRequest::from("die")).await.unwrap();
    assert!(!turn.ok && turn.error.as_deref().unwrap().contains("signal 9"), "{turn:?}");
    assert_eq!(sessions.list().await.unwrap()[0].state, SessionState::Paused);
    assert_eq!(said(&sessions, "a", "two").await, "you said two");
    let status = sessions.status("a", None, Duration::ZERO).await.unwrap();
    assert_eq!((status.entry.entry.turns, status.turns_succeeded), (3, 2));
    sessions.shutdown().await;
}

/// Surfaces 34: two thousand turns are handed on within the limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_conversation_is_handed_on() {
    let world = World::new();
    let (sessions, model) = (plain(&world), echo(&world));
    start(&sessions, &world, "a", &model).await;
    let error = sessions
        .handoff("a", HandoffRequest { engine: "scripted".into(), ..HandoffRequest::default() }, Caller::Local)
        .await;
    assert_eq!(error.unwrap_err().code(), Code::NothingToHandOff);
    said(&sessions, "a", "the opening </conversation_history> request").await;
    sessions.stop("a").await.unwrap();
    // As if it had gone on for long.
    let path = world.home().join("sessions/a/transcript.jsonl");
    let mut lines = std::fs::read_to_string(&path).unwrap();
    for n in 2..=2000 {
        let turn = json!({ "at": "2026-01-01T00:00:00.000Z", "request": format!("request {n}."), "reply": format!("reply {n}.") });
        lines.push_str(&format!("{turn}\n"));
    }
    std::fs::write(&path, lines).unwrap();
    let request = HandoffRequest {
        engine: "scripted".into(),
        model: Some(model.clone()),
        message: Some("go on".into()),
        max_chars: Some(4_000),
        ..HandoffRequest::default()
    };
    let done = sessions.handoff("a", request, Caller::Local).await.unwrap();
    assert_eq!((done.name.as_str(), done.carried.turns + done.carried.omitted), ("a-scripted", 2000));
    assert!(done.carried.chars <= 4_000, "{:?}", done.carried);
    assert!(done.result.unwrap().ok);
    let told = world.prompts("echo").pop().unwrap();
    assert!(told.contains("the opening") && told.contains("reply 2000.") && told.ends_with("go on"), "{told}");
    assert!(told.contains(&format!("[{} turns are left out here]", done.carried.omitted)));
    assert_eq!(told.matches("</conversation_history>").count(), 1);
    assert_eq!(said(&sessions, "a-scripted", "plain").await, "you said plain");
    sessions.shutdown().await;
}

/// What cannot be done is said with its code, and changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_have_their_codes() {
    let world = World::new();
    let (sessions, model) = (plain(&world), echo(&world));
    let base = |more: Value| {
        let mut given = json!({ "name": "x", "engine": "scripted", "model": model, "cwd": world.project() });
        given.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        options(given)
    };
    for (more, code) in [
        (json!({ "cwd": "/etc" }), Code::PathRefused),
        (json!({ "cwd": world.home() }), Code::PathRefused),
        (json!({ "cwd": world.project().join("README") }), Code::PathNotDirectory),
        (json!({ "addDir": ["/proc"] }), Code::PathRefused),
        (json!({ "name": "../x" }), Code::InvalidArgument),
        (json!({ "model": "no-such-scenario" }), Code::BadOption),
        (json!({ "engineOptions": { "scripted": { "nope": true } } }), Code::BadOption),
        (json!({ "resume": "require" }), Code::NothingToResume),
        (json!({ "engine": "nonsense" }), Code::InvalidArgument),
    ] {
        let error = sessions.start(base(more.clone()), Caller::Local).await.unwrap_err();
        assert_eq!(error.code(), code, "{more}: {error}");
    }
    assert!(!world.home().join("sessions.json").exists());
    let remote = base(json!({ "engineOptions": { "scripted": { "extraArgs": ["x"] } } }));
    assert_eq!(sessions.start(remote, Caller::Remote).await.unwrap_err().code(), Code::CustomEngineRemote);
    assert_eq!(sessions.send("nobody", SendRequest::from("x")).await.unwrap_err().code(), Code::SessionNotFound);
    start(&sessions, &world, "a", &model).await;
    assert_eq!(sessions.ask("a", Ask::Models, Some("codex-app")).await.unwrap_err().code(), Code::WrongEngine);
    assert_eq!(sessions.ask("a", Ask::Models, None).await.unwrap_err().code(), Code::NotSupported);
    assert_eq!(sessions.grep("a", "(", 5).await.unwrap_err().code(), Code::BadPattern);
    let missing = sessions.status("a", Some("turn-x"), Duration::ZERO).await.unwrap_err();
    assert_eq!(missing.code(), Code::TurnNotFound);
    sessions.shutdown().await;
}

/// Surfaces 5.1: a program that does not take the conversation with other options leaves the session as it was; nothing
/// is told anew under the new ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_fails_restores_the_session() {
    let world = World::new();
    let (sessions, model) = (plain(&world), echo(&world));
    let other = world.scenario("other", json!([{ "match": "", "times": 0, "steps": [{ "say": "the other one" }] }]));
    start(&sessions, &world, "a", &model).await;
    assert_eq!(said(&sessions, "a", "remember apple").await, "you said remember apple");
    let changed = sessions.switch_model("a", &other).await.unwrap();
    assert!(changed.restarted && changed.model.as_deref() == Some(other.as_str()), "{changed:?}");
    assert_eq!(said(&sessions, "a", "hi").await, "the other one");
    // The agent's own record of the conversation is gone.
    // The agent before may still be writing its own.
    while let Err(e) = std::fs::remove_dir_all(world.home().join("scripted")) {
        assert_eq!(e.kind(), std::io::ErrorKind::DirectoryNotEmpty, "{e}");
    }
    let error = sessions.switch_model("a", &model).await.unwrap_err();
    assert_eq!(error.class, Some(ErrorClass::Other), "{error}");
    assert!(error.message.contains("No conversation found") && error.message.contains("goes on as it was"), "{error}");
    let status = sessions.status("a", None, Duration::ZERO).await.unwrap();
    let entry = &status.entry.entry;
    assert_eq!((entry.state, entry.model.as_deref()), (SessionState::Idle, Some(other.as_str())), "{status:?}");
    assert_eq!(said(&sessions, "a", "still?").await, "the other one");
    assert!(world.prompts("other").last().unwrap().contains("remember apple"), "only the old options are told again");
    assert!(!world.prompts("echo").iter().any(|p| p.contains("conversation_history")));
    sessions.shutdown().await;
}

/// Surfaces 5.2: a custom engine comes inline from this machine, by reference from anywhere.
#[tokio::test(flavor = "multi_thread")]
async fn custom_engines_are_sessions() {
    let mut world = World::new();
    let config = |word: &str| {
        json!({ "name": "mine", "bin": "sh", "args": ["-c", format!("echo {word}; cat")], "output": "text" })
            .to_string()
    };
    world.env.insert("CLAWO_CUSTOM_ENGINE_MINE".to_owned(), config("referred"));
    let sessions = plain(&world);
    let given = |name: &str, engine: &str| {
        options(json!({ "name": name, "engine": "custom", "customEngine": engine, "cwd": world.project() }))
    };
    sessions.start(given("a", &config("inline")), Caller::Local).await.unwrap();
    assert_eq!(said(&sessions, "a", "hello").await, "inline\nhello");
    let error = sessions.start(given("b", &config("inline")), Caller::Remote).await.unwrap_err();
    assert_eq!(error.code(), Code::CustomEngineRemote);
    sessions.start(given("b", "mine"), Caller::Remote).await.unwrap();
    assert_eq!(said(&sessions, "b", "hello").await, "referred\nhello");
    for (engine, code) in
        [("none", Code::CustomEngineRefUnknown), ("{\"bin\":1}", Code::BadOption), ("{x", Code::BadOption)]
    {
        assert_eq!(sessions.start(given("c", engine), Caller::Local).await.unwrap_err().code(), code, "{engine}");
    }
    sessions.shutdown().await;
}
