//! How a session comes to life: started by a caller, or brought back from what is written down.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    Hub, SessionError, Started,
    actor::Actor,
    events::{self, Events},
    handoff::{self, History},
    inbox::Inbox,
    options::{self, Caller, Resume, StartOptions, check_caller},
    records::{Record, SESSION_LOCK, Stats, wait_lock},
    shared::{Live, QUEUE_MAX, Shared, lost_conversation},
    transcript::{self, Transcript},
    view::SessionState,
};
use crate::{
    config::check_dir,
    engines::{Engine, PoolError, PooledSession, SessionSpec},
    model::{Code, spec::EngineChoice},
    sys::{Fs, FsLock, fs::create_dir_all, tasks},
};

/// History that waits for the first message of a session.
pub(super) const BLOCK_FILE: &str = "handoff.txt";
/// Rounds of 10 ms that a start waits for a session that is just ending, here or in another process.
const ENDING_ROUNDS: u32 = 800;
/// Characters of the history that replaces a lost conversation.
const REPLAY_MAX: usize = handoff::MAX_DEFAULT;

/// Why a session comes to life.
#[derive(Debug, Clone)]
pub(super) enum How {
    /// A caller starts it.
    Start { options: Box<StartOptions>, caller: Caller },
    /// It takes over a conversation, told by this text.
    Handoff { options: Box<StartOptions>, caller: Caller, block: String },
    /// A message came for it.
    Wake,
}

/// What a start comes down to.
#[derive(Debug, Default)]
struct Plan {
    options: StartOptions,
    /// The earlier life, when it goes on.
    base: Option<Record>,
    /// Conversation to go on with.
    resume: Option<String>,
    warnings: Vec<String>,
}

/// Files and lock of a session.
struct Place {
    dir: Option<PathBuf>,
    lock: Option<Box<dyn FsLock>>,
    record: Option<Record>,
    transcript: Transcript,
    inbox: Inbox,
    block: Option<String>,
}

/// Brings it to life and starts its actor.
pub(super) async fn build(hub: Arc<Hub>, name: String, how: How) -> Result<(Arc<Shared>, Started), SessionError> {
    let (options, caller, block) = match how {
        How::Start { options, caller } => (*options, Some(caller), None),
        How::Handoff { options, caller, block } => (*options, Some(caller), Some(block)),
        How::Wake => (StartOptions::default(), None, None),
    };
    if let Some(caller) = caller {
        check_caller(&options, caller)?;
    }
    let transient = options.transient();
    let mut place = {
        let (hub, name) = (Arc::clone(&hub), name.clone());
        blocking("session files", move || take_place(&hub, &name, transient)).await?
    };
    if caller.is_none() {
        let Some(record) = &place.record else { return Err(SessionError::not_found(&name)) };
        if record.stopped {
            return Err(SessionError::stopped(&name));
        }
    }
    if block.is_some() {
        // Whatever was known under the name is another conversation.
        place.record = None;
    }
    let options = {
        let hub = Arc::clone(&hub);
        blocking("session directories", move || directories(&hub, options)).await?
    };
    let record = place.record.take();
    let mut plan = plan(options, record, hub.default_model())?;
    let cwd = cwd(&hub, &plan).await?;
    plan.options.cwd = Some(cwd.display().to_string());
    let choice = EngineChoice {
        engine: plan.options.engine.clone(),
        model: plan.options.model.clone(),
        acp_agent: plan.options.acp_agent.clone(),
        ..EngineChoice::default()
    };
    let engine = hub.pool.registry().resolve(&choice).map_err(PoolError::from)?;
    plan.options.engine = Some(engine.name().to_owned());
    if !engine.capabilities().resume && plan.resume.is_some() {
        let text = format!("engine {} cannot go on with a conversation; it begins anew", engine.name());
        if plan.options.resume == Some(Resume::Require) {
            return Err(SessionError::new(Code::NothingToResume, text));
        }
        plan.warnings.push(text);
        (plan.resume, plan.base) = (None, None);
    }

    let stop = CancellationToken::new();
    let mut resumed = plan.resume.is_some();
    let mut session = None;
    if caller.is_some() {
        let opened = open_now(&hub, &name, engine.as_ref(), &cwd, &mut plan, &stop).await;
        match opened {
            Ok(open) => session = Some(open),
            Err(e) if plan.resume.is_some() && lost_conversation(e.class) => {
                replay(&name, &mut plan, &mut place, &e)?;
                resumed = false;
                session = Some(open_now(&hub, &name, engine.as_ref(), &cwd, &mut plan, &stop).await?);
            }
            Err(e) => return Err(e),
        }
    }
    if let Some(session) = &session {
        plan.warnings.extend(session.warnings().iter().cloned());
    }
    if plan.base.is_none() && place.block.is_none() {
        place.transcript = Transcript::default();
    }
    if let Some(block) = block {
        place.block = Some(block);
    }
    if let Some(dir) = &place.dir {
        let (fs, dir, fresh, block) = (Arc::clone(&hub.fs), dir.clone(), plan.base.is_none(), place.block.clone());
        blocking("session files", move || tidy(fs.as_ref(), &dir, fresh, block.as_deref())).await?;
    }

    let now = hub.clock.wall();
    let fork = plan.options.fork_session.unwrap_or(false);
    let record = Record {
        engine: engine.name().to_owned(),
        model: plan.options.model.clone().or(plan.base.as_ref().and_then(|b| b.model.clone())),
        cwd: cwd.clone(),
        sandbox_mode: plan.options.sandbox_mode,
        // A branch has an id of its own, which the engine states later.
        native_id: plan.resume.clone().filter(|_| !fork),
        counted: plan.base.as_ref().and_then(|b| b.counted),
        spent_usd: plan.base.as_ref().map_or(0.0, |b| b.spent_usd),
        created: plan.base.as_ref().map_or(now, |b| b.created),
        last_activity: if caller.is_some() { now } else { plan.base.as_ref().map_or(now, |b| b.last_activity) },
        stopped: false,
        options: StartOptions::default(),
        left_out: Vec::new(),
        stats: plan.base.as_ref().map_or(Stats::default(), |b| b.stats),
    };
    let started = Started {
        name: name.clone(),
        engine: record.engine.clone(),
        model: record.model.clone(),
        cwd: record.cwd.display().to_string(),
        session_id: record.native_id.clone(),
        created: record.created,
        resumed,
        existing: false,
        warnings: plan.warnings.clone(),
    };
    // Fulfilled by the opening above.
    (plan.options.resume, plan.options.resume_session_id, plan.options.fork_session) = (None, None, None);
    let woken = caller.is_none();
    let live = Live {
        record,
        state: if session.is_some() { SessionState::Idle } else { SessionState::Paused },
        options: plan.options,
        opened: session.is_some().then(|| hub.clock.boot()),
        last_retry: None,
        context_percent: None,
        block: place.block,
        warnings: if woken { plan.warnings } else { Vec::new() },
    };
    let (queue, received) = mpsc::channel(QUEUE_MAX);
    let shared = Arc::new(Shared {
        name,
        events: Events::new(place.dir.clone()),
        dir: place.dir,
        queue,
        stop,
        gone: CancellationToken::new(),
        ending: Mutex::default(),
        live: Mutex::new(live),
        orders: Mutex::default(),
        asking: Mutex::default(),
        transcript: Mutex::new(place.transcript),
        inbox: Mutex::new(place.inbox),
        turns: Mutex::default(),
        unkillable: Mutex::default(),
    });
    let actor = Actor { hub, shared: Arc::clone(&shared), queue: received, session, lock: place.lock };
    for warning in &started.warnings {
        actor.note(warning);
    }
    // A conversation that goes on is known; its last activity counts from now.
    actor.record();
    tasks::spawn("session", actor.run());
    Ok((shared, started))
}

/// Blocking work whose error is a session's.
pub(super) async fn blocking<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> Result<T, SessionError> + Send + 'static,
) -> Result<T, SessionError> {
    tasks::blocking(name, work).await.unwrap_or_else(|e| Err(SessionError::new(Code::Internal, e.to_string())))
}

/// Makes the session this process's and reads what is kept of it.
fn take_place(hub: &Hub, name: &str, transient: bool) -> Result<Place, SessionError> {
    let fs = hub.fs.as_ref();
    if transient {
        let (transcript, inbox) = (Transcript::default(), Inbox::default());
        return Ok(Place { dir: None, lock: None, record: None, transcript, inbox, block: None });
    }
    let dir = hub.records.dir(name);
    create_dir_all(fs, &dir)?;
    let lock = wait_lock(fs, &dir.join(SESSION_LOCK), ENDING_ROUNDS)?
        .ok_or_else(|| SessionError::busy(name, "another process of this home has it"))?;
    let record = hub.records.get(name, hub.clock.wall())?;
    let block = match fs.read(&dir.join(BLOCK_FILE)) {
        Ok(bytes) => String::from_utf8(bytes).ok(),
        Err(_) => None,
    };
    let (transcript, inbox) = (Transcript::load(fs, &dir), Inbox::load(fs, &dir));
    Ok(Place { dir: Some(dir), lock: Some(lock), record, transcript, inbox, block })
}

/// Removes what belongs to an earlier conversation, and writes down what is to be told.
fn tidy(fs: &dyn Fs, dir: &Path, fresh: bool, block: Option<&str>) -> Result<(), SessionError> {
    if fresh {
        for name in [events::FILE, events::BEFORE, transcript::FILE, BLOCK_FILE] {
            match fs.remove_file(&dir.join(name)) {
                Err(e) if !e.is_not_found() => return Err(e.into()),
                Ok(()) | Err(_) => {}
            }
        }
    }
    if let Some(block) = block {
        crate::sys::fs::write_atomic(fs, &dir.join(BLOCK_FILE), block.as_bytes())?;
    }
    Ok(())
}

/// Checks the directories that are named and resolves their links.
fn directories(hub: &Hub, mut options: StartOptions) -> Result<StartOptions, SessionError> {
    let check = |path: &str| {
        let checked = check_dir(hub.fs.as_ref(), &hub.config, Path::new(path));
        checked.map(|p| p.display().to_string()).map_err(|(code, text)| SessionError::new(code, text))
    };
    options.cwd = options.cwd.as_deref().map(check).transpose()?;
    if let Some(dirs) = &mut options.add_dir {
        for dir in dirs {
            *dir = check(dir)?;
        }
    }
    Ok(options)
}

/// Directory of the session: checked again, because it may be another one than when it was written down.
async fn cwd(hub: &Arc<Hub>, plan: &Plan) -> Result<PathBuf, SessionError> {
    let (hub, given) = (Arc::clone(hub), plan.options.cwd.clone());
    blocking("session directory", move || {
        let path = match given {
            Some(path) => PathBuf::from(path),
            None => hub.fs.canonicalize(Path::new("."))?,
        };
        check_dir(hub.fs.as_ref(), &hub.config, &path).map_err(|(code, text)| SessionError::new(code, text))
    })
    .await
}

/// Whether the earlier conversation goes on, and with which options. Directories in `options` are resolved.
fn plan(options: StartOptions, record: Option<Record>, model: Option<&str>) -> Result<Plan, SessionError> {
    let mode = options.resume.unwrap_or_default();
    let mut warnings = Vec::new();
    let mut base = None;
    if let Some(record) = record.filter(|_| mode != Resume::Never && options.resume_session_id.is_none()) {
        let cwd = record.cwd.display().to_string();
        if let Some(engine) = options.engine.as_deref().filter(|e| *e != record.engine) {
            warnings.push(format!(
                "the earlier conversation of this name was with {}, not {engine}; a new one begins",
                record.engine
            ));
        } else if let Some(other) = options.cwd.as_deref().filter(|d| *d != cwd) {
            warnings.push(format!("the earlier conversation of this name was in {cwd}, not {other}; a new one begins"));
        } else if record.native_id.is_none() {
            warnings.push("the earlier conversation of this name was never confirmed; a new one begins".to_owned());
        } else {
            base = Some(record);
        }
    }
    let mut plan = Plan { resume: options.resume_session_id.clone(), warnings, ..Plan::default() };
    match base {
        Some(record) => {
            let given = |name: &str| {
                let key = name.split('.').next().unwrap_or(name);
                serde_json::to_value(&options).is_ok_and(|v| v.get(key).is_some())
            };
            let lost: Vec<&String> = record.left_out.iter().filter(|name| !given(name)).collect();
            if !lost.is_empty() {
                let list = lost.iter().map(|s| s.as_str()).collect::<Vec<_>>().join(", ");
                plan.warnings.push(format!("not written down, and no longer in force unless given again: {list}"));
            }
            plan.resume.clone_from(&record.native_id);
            let mut old = record.options.clone();
            old.engine = Some(record.engine.clone());
            old.cwd = Some(record.cwd.display().to_string());
            plan.options = options.over(old);
            plan.base = Some(record);
        }
        None => {
            plan.options = options;
            if plan.options.model.is_none() {
                plan.options.model = model.map(str::to_owned);
            }
        }
    }
    if mode == Resume::Require && plan.resume.is_none() {
        let why = plan.warnings.first().cloned().unwrap_or_else(|| "no conversation of this name is known".to_owned());
        return Err(SessionError::new(Code::NothingToResume, why));
    }
    Ok(plan)
}

/// The spec of the plan.
fn spec(hub: &Hub, name: &str, engine: &dyn Engine, cwd: &Path, plan: &mut Plan) -> Result<SessionSpec, SessionError> {
    let (mut spec, warnings) = options::spec(name, engine, cwd.to_owned(), &plan.options, &hub.config)?;
    for warning in warnings {
        if !plan.warnings.contains(&warning) {
            plan.warnings.push(warning);
        }
    }
    spec.resume.clone_from(&plan.resume);
    spec.options.fork = spec.options.fork && spec.resume.is_some();
    if let Some(base) = &plan.base {
        spec.options.counted = base.counted;
        spec.max_budget_usd = left_of(spec.max_budget_usd, base.spent_usd);
    }
    Ok(spec)
}

/// What is left of a cap. One that is used up refuses turns before they reach the engine.
pub(super) fn left_of(cap: Option<f64>, spent: f64) -> Option<f64> {
    cap.map(|cap| (cap - spent).max(f64::MIN_POSITIVE))
}

async fn open_now(
    hub: &Arc<Hub>,
    name: &str,
    engine: &dyn Engine,
    cwd: &Path,
    plan: &mut Plan,
    stop: &CancellationToken,
) -> Result<PooledSession, SessionError> {
    let spec = spec(hub, name, engine, cwd, plan)?;
    Ok(hub.pool.open_now(spec, stop.child_token()).await?)
}

/// The engine no longer has the conversation: a new one is told what is known of it.
fn replay(name: &str, plan: &mut Plan, place: &mut Place, error: &SessionError) -> Result<(), SessionError> {
    if plan.options.resume == Some(Resume::Require) || plan.base.is_none() {
        let text = format!("the engine cannot go on with the conversation: {}", error.message);
        return Err(SessionError { class: error.class, ..SessionError::new(Code::NothingToResume, text) });
    }
    plan.resume = None;
    if let Some(base) = &mut plan.base {
        (base.native_id, base.counted) = (None, None);
    }
    let (block, warning) = continued(name, place.transcript.history(), &error.message);
    place.block = block.or(place.block.take());
    plan.warnings.push(warning);
    Ok(())
}

/// What a new conversation is told of a lost one, and what its caller is told.
pub(super) fn continued(name: &str, history: &History, why: &str) -> (Option<String>, String) {
    if history.is_empty() {
        return (
            None,
            format!("the earlier conversation is gone and nothing of it is known ({why}); a new one begins"),
        );
    }
    let (block, _) = handoff::render(name, history, REPLAY_MAX);
    (Some(block), format!("the engine no longer has the conversation ({why}); it is continued by replay"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::Time;

    fn options(value: Value) -> StartOptions {
        serde_json::from_value(value).unwrap()
    }

    fn record() -> Record {
        let value = json!({
            "engine": "claude", "cwd": "/w", "nativeId": "id", "spentUsd": 1.0, "created": Time::from_millis(0),
            "lastActivity": Time::from_millis(0), "options": { "model": "m", "effort": "low" }, "leftOut": ["mcpConfig"]
        });
        serde_json::from_value(value).unwrap()
    }

    /// Surfaces 29: what the same name leads to.
    #[test]
    fn a_known_name_goes_on_only_with_engine_and_directory() {
        for (given, resumed, word) in [
            (json!({}), true, "mcpConfig"),
            (json!({ "engine": "claude", "cwd": "/w", "mcpConfig": ["a"] }), true, ""),
            (json!({ "engine": "codex" }), false, "was with claude"),
            (json!({ "cwd": "/other" }), false, "was in /w"),
            (json!({ "resume": "never" }), false, ""),
            (json!({ "resume": "require" }), true, "mcpConfig"),
        ] {
            let plan = plan(options(given.clone()), Some(record()), None).unwrap();
            assert_eq!(plan.resume.is_some(), resumed, "{given}");
            assert_eq!(plan.base.is_some(), resumed, "{given}");
            let told = plan.warnings.join(" ");
            assert!(told.contains(word) && told.is_empty() == word.is_empty(), "{given}: {told}");
            assert_eq!(plan.options.effort.is_some(), resumed, "options of the record, {given}");
        }
        let plan = plan(options(json!({ "model": "n" })), Some(record()), Some("d")).unwrap();
        assert_eq!((plan.options.model.as_deref(), plan.options.effort.as_deref()), (Some("n"), Some("low")));
    }

    #[test]
    fn require_needs_a_conversation() {
        for (record, word) in [(None, "no conversation"), (Some(record()), "was with claude")] {
            let given = options(json!({ "resume": "require", "engine": "codex" }));
            let error = plan(given, record, None).unwrap_err();
            assert_eq!(error.code(), Code::NothingToResume);
            assert!(error.message.contains(word), "{error}");
        }
        let given = options(json!({ "resume": "require", "resumeSessionId": "x" }));
        assert_eq!(plan(given, None, None).unwrap().resume.as_deref(), Some("x"));
    }
}
