//! Codex, one `codex exec` a turn: how it is started. What it says is in `exec`.

mod exec;
#[cfg(test)]
mod replay;

use std::{path::PathBuf, sync::Arc};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    Boxed, Capabilities, Engine, EngineError, ErrorClass, Opt, Session, SessionSpec, Support,
    account::Counting,
    capabilities::level,
    environment::{self, Rules},
    installed::Installed,
    registry::Context,
    turnwise::{Parts, Scratch, Turnwise},
};
use crate::model::spec::EngineChoice;
use exec::Exec;

/// Its name in specs.
pub const NAME: &str = "codex";

/// Values of `model_reasoning_effort`. It takes any word and passes it on, so a wrong one is refused here.
const EFFORTS: &[&str] = &["low", "medium", "high", "xhigh"];
/// Permission modes; each stands for a sandbox, since nothing is ever asked.
const MODES: &[&str] = &["acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "manual", "plan"];
/// Version whose conversations were recorded.
const MEASURED: &str = "0.171.0";
/// The key of another endpoint is where its own key is.
const API_KEY: &str = "OPENAI_API_KEY";
/// Where the schema of the reply is, in the session's own directory.
const SCHEMA: &str = "schema.json";

/// Variables it documents for reaching its provider.
const NEEDED: &[&str] = &[
    "CODEX_ACCESS_TOKEN",
    "CODEX_API_KEY",
    "CODEX_CA_CERTIFICATE",
    "CODEX_HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "OPENAI_*",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "https_proxy",
    "http_proxy",
    "no_proxy",
];

/// The adapter.
#[derive(Debug)]
pub struct Codex {
    installed: Installed,
}

impl Codex {
    /// An adapter; nothing is looked up yet.
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { installed: Installed::new(context, NAME, NAME, MEASURED) }
    }

    async fn session(&self, spec: SessionSpec) -> Result<Turnwise, EngineError> {
        if let Some(problem) = self.check(&spec.choice).into_iter().chain(self.check_spec(&spec)).next() {
            return Err(EngineError::new(ErrorClass::Other, problem));
        }
        let context = Arc::clone(self.installed.context());
        let path = self
            .program()
            .ok_or_else(|| EngineError::new(ErrorClass::StartFailed, "the program codex was not found"))?;
        let rules = Rules { needed: NEEDED };
        let added = context.config.engine_env.get(NAME).cloned().unwrap_or_default();
        let env = environment::build(&context.config, rules, &added, &spec.run_env, &[]);
        let scratch = match &spec.options.json_schema {
            Some(schema) => Some(Scratch::new(&context, vec![(SCHEMA, schema.to_string().into_bytes())]).await?),
            None => None,
        };
        let schema = scratch.as_ref().map(|s| s.path().join(SCHEMA));
        let program = Box::new(Exec::new(spec.clone(), schema));
        Ok(Turnwise::new(Parts { engine: NAME, context, path, env, spec, scratch }, program))
    }
}

/// The level passed on for `asked`; `None` leaves it to the program's own settings.
fn effort(asked: &str) -> Option<&'static str> {
    level(EFFORTS, asked)
}

/// Whether `id` is an id: anything else would silently begin a new conversation.
fn is_id(id: &str) -> bool {
    uuid::Uuid::parse_str(id).is_ok() && id.len() == 36
}

impl Engine for Codex {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            resume: true,
            append_system_prompt: false,
            read_only: true,
            interrupt: true,
            steer: false,
            compact: false,
            goals: false,
            own_cost: false,
            counting: Counting::CumulativeThread,
            efforts: EFFORTS,
            permission_modes: MODES,
            verified: true,
        }
    }

    fn program(&self) -> Option<PathBuf> {
        self.installed.path()
    }

    fn version(&self) -> Boxed<'_, Option<String>> {
        Box::pin(self.installed.version())
    }

    fn native_keys(&self) -> &'static [&'static str] {
        &["ignoreUserConfig", "profile"]
    }

    fn guards_git(&self) -> bool {
        true
    }

    fn support(&self, option: Opt) -> Support {
        match option {
            Opt::Effort
            | Opt::PermissionMode
            | Opt::WorkspaceWrite
            | Opt::DangerFullAccess
            | Opt::ReadOnly
            | Opt::AddDir
            | Opt::JsonSchema
            | Opt::Resume
            | Opt::Fork
            | Opt::BaseUrl
            | Opt::ExtraArgs => Support::Native,
            Opt::SystemPrompt | Opt::AppendSystemPrompt => Support::InMessage,
            Opt::FallbackModel | Opt::MaxTurns | Opt::AllowedTools => Support::Ignored,
            // Its switch for this makes conversations that have one turn only.
            Opt::NoPersistence | Opt::DisallowedTools | Opt::McpConfig => Support::Refused,
        }
    }

    fn check(&self, choice: &EngineChoice) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(asked) = choice.effort.as_deref()
            && asked != "auto"
            && effort(asked).is_none()
        {
            problems.push(format!("codex has no effort `{asked}`; use one of {} or auto", EFFORTS.join(", ")));
        }
        if let Some(mode) = choice.permission_mode.as_deref()
            && !MODES.contains(&mode)
        {
            problems.push(format!("codex has no permission mode `{mode}`; use one of {}", MODES.join(", ")));
        }
        if choice.model.as_deref().is_some_and(|m| m.trim().is_empty() || m.starts_with('-')) {
            problems.push("the model of codex must be a model name".to_owned());
        }
        problems
    }

    fn check_spec(&self, spec: &SessionSpec) -> Vec<String> {
        let mut problems = Vec::new();
        let native = &spec.options.native;
        if native.get("ignoreUserConfig").is_some_and(|v| !v.is_boolean()) {
            problems.push("engine option `ignoreUserConfig` of codex must be true or false".to_owned());
        }
        let profile = |v: &Value| v.as_str().is_some_and(|p| !p.trim().is_empty() && !p.starts_with('-'));
        if native.get("profile").is_some_and(|v| !profile(v)) {
            problems.push("engine option `profile` of codex must be the name of a profile".to_owned());
        }
        if spec.resume.as_deref().is_some_and(|id| !is_id(id)) {
            problems.push("the conversation to go on with is not an id of codex".to_owned());
        }
        if spec.options.fork && spec.resume.is_none() {
            problems.push("a fork needs the conversation to branch off; name it as resumeSessionId".to_owned());
        }
        problems
    }

    fn open(&self, spec: SessionSpec, _cancel: CancellationToken) -> Boxed<'_, Result<Box<dyn Session>, EngineError>> {
        Box::pin(async move { Ok(Box::new(self.session(spec).await?) as Box<dyn Session>) })
    }
}
