//! What the tests of sessions share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use claw_orchestrator::{
    engines::{Limits, Pool, Registry},
    model::Time,
    nodes::sessions::{Caller, SendRequest, Sessions, Settings, StartOptions, Started},
    sys::{Clock, RealFs, SystemClock, redact::Redactor},
};
use serde_json::{Value, json};

use crate::support::World;

/// The machine's clock, some days ahead.
#[derive(Debug, Default)]
pub(super) struct Ahead(AtomicI64);

impl Ahead {
    pub(super) fn days(&self, days: i64) {
        self.0.store(days * 24 * 60 * 60 * 1000, Ordering::SeqCst);
    }
}

impl Clock for Ahead {
    fn wall(&self) -> Time {
        SystemClock.wall().plus_millis(self.0.load(Ordering::SeqCst))
    }

    fn boot(&self) -> Duration {
        SystemClock.boot()
    }
}

/// Sessions of one process in a world.
pub(super) fn sessions(world: &World, clock: Arc<dyn Clock>, settings: Settings) -> Sessions {
    let config = Arc::new(world.config());
    let cleaned = config.clean_env();
    let redactor = Arc::new(Redactor::new(cleaned.dropped_values));
    let limits = Limits { soft_interrupt: Duration::from_secs(2), ..Limits::default() };
    let registry = Arc::new(Registry::with_limits(config.clone(), "test", clock.clone(), Arc::new(RealFs), limits));
    let pool = Arc::new(Pool::new(registry, &config.home, Arc::new(RealFs), world.sessions));
    std::fs::create_dir_all(&config.home).unwrap();
    Sessions::new(config, pool, Arc::new(RealFs), clock, redactor, settings)
}

/// The same with the machine's clock and a long time to live.
pub(super) fn plain(world: &World) -> Sessions {
    sessions(world, Arc::new(SystemClock), Settings::with_ttl(Duration::from_secs(3600)))
}

/// Options from JSON.
pub(super) fn options(value: Value) -> StartOptions {
    serde_json::from_value(value).unwrap()
}

/// Starts a scripted session in the project.
pub(super) async fn start(sessions: &Sessions, world: &World, name: &str, model: &str) -> Started {
    let given = json!({ "name": name, "engine": "scripted", "model": model, "cwd": world.project() });
    sessions.start(options(given), Caller::Local).await.unwrap()
}

/// Says something and gives the reply of a turn that went well.
pub(super) async fn said(sessions: &Sessions, name: &str, text: &str) -> String {
    let turn = sessions.send(name, SendRequest::from(text)).await.unwrap();
    assert!(turn.ok, "{turn:?}");
    turn.output
}

/// An agent that repeats what it is told, and does not answer to `hang`.
pub(super) fn echo(world: &World) -> String {
    world.scenario(
        "echo",
        json!([
            { "match": "hang!", "times": 0, "steps": [{ "say": "thinking" }, "hang"] },
            { "match": "stubborn", "times": 0, "steps": ["ignoreInterrupt", { "sleep": 60_000 }, { "say": "late" }] },
            { "match": "paid", "times": 0, "steps": [{ "cost": 0.02 }, { "usage": { "inputTokens": 10, "outputTokens": 5 } }, { "say": "paid" }] },
            { "match": "die", "times": 0, "steps": [{ "killSelf": "KILL" }] },
            { "match": "tool", "times": 0, "steps": [{ "run": ["true"] }, { "run": ["false"] }, { "say": "used" }] },
            { "match": "slow", "times": 0, "steps": [{ "sleep": 1_000 }, { "say": "slow {{prompt}}" }] },
            { "match": "", "times": 0, "steps": [{ "say": "you said {{prompt}}" }] },
        ]),
    )
}
