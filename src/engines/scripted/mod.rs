//! The scripted engine: this program plays an agent from a scenario, over the protocol of Claude Code.
//!
//! Needs no key and no network. The adapter is here; the program it runs is `agent`. A scenario:
//!
//! ```json
//! { "record": "prompts.jsonl",
//!   "turns": [
//!     { "match": "failing check", "times": 0, "steps": [{ "write": { "path": "a.txt", "content": "hi\n" } }, { "say": "Fixed." }] },
//!     { "unless": "report", "steps": [{ "run": ["sh", "test.sh"] }, { "cost": 0.01 }, { "say": "It fails." }] } ] }
//! ```
//!
//! For every prompt the first turn is played that fits (`match`: one of these texts is in it, `unless`: this
//! text is not) and is not used up (`times`, one by default, 0 without limit). After `/goal` every reply is judged by
//! the next of `judge`: `{ "ok", "impossible", "broken", "reason" }`. Steps that say nothing about
//! a reply leave it alone; the last `say` is the reply. `sleep` is in milliseconds, `record` is relative to
//! the scenario, everything else to the working directory, which `write`, `append` and `delete` never leave.

mod agent;
mod demo;
mod goal;
mod play;
mod scenario;
mod wire;
mod world;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio_util::sync::CancellationToken;

use super::{
    Boxed, Capabilities, Engine, EngineError, ErrorClass, Opt, Session, SessionSpec, Support,
    account::Counting,
    conversation::Conversation,
    environment::{self, Rules},
    process::Launch,
    registry::Context,
    stream_json::{StreamJson, Transcript},
};
use crate::{
    model::spec::EngineChoice,
    sys::{fs, ids, supervise::Stdin},
};

pub use agent::agent_main;
pub use demo::demo_files;
pub use scenario::{Scenario, ScenarioError};

/// Its name in specs.
pub const NAME: &str = "scripted";
/// The hidden subcommand that plays a scenario.
pub const SUBCOMMAND: &str = "agent-script";

/// Efforts and permission modes mean nothing to a script; they are passed on, so that a scenario can be told them.
const EFFORTS: &[&str] = &["low", "medium", "high", "xhigh", "max", "ultra"];
const MODES: &[&str] = &["acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "plan"];

/// The adapter.
#[derive(Debug)]
pub struct Scripted {
    context: Arc<Context>,
}

impl Scripted {
    /// An adapter.
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    fn launch(&self, spec: &SessionSpec) -> Result<Launch, String> {
        let model = model(&spec.choice)?;
        Scenario::load(self.context.fs.as_ref(), model, &spec.cwd).map_err(|e| e.to_string())?;
        let scenario = if scenario::is_path(model) { spec.cwd.join(model).into() } else { OsString::from(model) };
        let (flag, id) = match &spec.resume {
            Some(id) => ("--resume", id.clone()),
            None => ("--session-id", ids::uuid()),
        };
        let state = self.state();
        let mut args = vec![SUBCOMMAND.into(), scenario, flag.into(), id.into(), "--state".into(), state.into()];
        let turns = spec.max_turns.map(|n| n.to_string());
        for (flag, value) in [
            ("--append-system-prompt", &spec.append_system_prompt),
            ("--effort", &spec.choice.effort),
            ("--permission-mode", &spec.choice.permission_mode),
            ("--max-turns", &turns),
        ] {
            if let Some(value) = value {
                args.extend([flag.into(), value.into()]);
            }
        }
        let config = &self.context.config;
        let env = environment::build(config, Rules { needed: &[] }, self.added(), &spec.run_env, &[]);
        let mut launch = self.context.launch(NAME, config.program.clone(), args, env, spec, Stdin::Pipe);
        if let Some(writable) = &mut launch.child.writable {
            let state = self.state();
            // Only what is there can be named.
            fs::create_dir_all(self.context.fs.as_ref(), &state).map_err(|e| e.to_string())?;
            writable.push(state);
        }
        Ok(launch)
    }

    /// Where agents keep their conversations.
    fn state(&self) -> PathBuf {
        self.context.config.home.join("scripted")
    }

    fn added(&self) -> &[String] {
        self.context.config.engine_env.get(NAME).map(Vec::as_slice).unwrap_or_default()
    }
}

fn model(choice: &EngineChoice) -> Result<&str, String> {
    choice.model.as_deref().filter(|m| !m.is_empty()).ok_or_else(|| {
        format!("the scripted engine needs `model`: one of {}, or the path of a scenario file", demo::names())
    })
}

impl Engine for Scripted {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            resume: true,
            append_system_prompt: true,
            read_only: false,
            interrupt: true,
            steer: false,
            compact: false,
            goals: true,
            own_cost: true,
            counting: Counting::CumulativeProcess,
            efforts: EFFORTS,
            permission_modes: MODES,
            verified: true,
        }
    }

    fn program(&self) -> Option<PathBuf> {
        Some(self.context.config.program.clone())
    }

    fn version(&self) -> Boxed<'_, Option<String>> {
        Box::pin(async { Some(env!("CARGO_PKG_VERSION").to_owned()) })
    }

    fn check(&self, choice: &EngineChoice) -> Vec<String> {
        let checked = model(choice).and_then(|model| {
            // A relative path is looked at when the directory of the session is known.
            if scenario::is_path(model) && !Path::new(model).is_absolute() {
                return Ok(());
            }
            Scenario::load(self.context.fs.as_ref(), model, Path::new("/")).map(drop).map_err(|e| e.to_string())
        });
        checked.err().into_iter().collect()
    }

    fn support(&self, option: Opt) -> Support {
        match option {
            Opt::Effort
            | Opt::PermissionMode
            | Opt::AppendSystemPrompt
            | Opt::MaxTurns
            | Opt::Resume
            | Opt::DangerFullAccess => Support::Native,
            // It has no means of its own, but works in a copy like every session that must not write.
            Opt::ReadOnly => Support::Native,
            Opt::SystemPrompt => Support::InMessage,
            Opt::FallbackModel
            | Opt::WorkspaceWrite
            | Opt::AddDir
            | Opt::AllowedTools
            | Opt::DisallowedTools
            | Opt::JsonSchema
            | Opt::McpConfig
            | Opt::NoPersistence
            | Opt::BaseUrl => Support::Ignored,
            Opt::Fork | Opt::ExtraArgs => Support::Refused,
        }
    }

    fn open(&self, spec: SessionSpec, cancel: CancellationToken) -> Boxed<'_, Result<Box<dyn Session>, EngineError>> {
        Box::pin(async move {
            let transcript = Transcript::in_directory(self.context.fs.clone(), self.state());
            let dialect = StreamJson::with_goals(spec.options.goal.clone(), transcript);
            let launch = self.launch(&spec).map_err(|text| EngineError::new(ErrorClass::Other, text))?;
            let session = Conversation::start(launch, Box::new(dialect), &cancel).await?;
            Ok(Box::new(session) as Box<dyn Session>)
        })
    }
}
