//! OpenCode, one `opencode run` a turn: how it is started. What it says is in `run`.

#[cfg(test)]
mod replay;
mod run;

use std::{path::PathBuf, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::{
    Boxed, Capabilities, Engine, EngineError, ErrorClass, Opt, Session, SessionSpec, Support,
    account::Counting,
    environment::{self, Rules},
    installed::Installed,
    registry::Context,
    turnwise::{Parts, Scratch, Turnwise},
};
use crate::model::spec::EngineChoice;
use run::Run;

/// Its name in specs.
pub const NAME: &str = "opencode";

/// Permission modes. It can ask nobody, so those in which everything is asked write nothing.
const MODES: &[&str] = &["acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "manual", "plan"];
/// Version whose conversations were recorded.
const MEASURED: &str = "1.18.33";

/// Keys of the providers it documents, and how it reaches them.
const NEEDED: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "AZURE_API_KEY",
    "CEREBRAS_API_KEY",
    "DEEPSEEK_API_KEY",
    "GEMINI_API_KEY",
    "GITHUB_TOKEN",
    "GOOGLE_GENERATIVE_AI_API_KEY",
    "GROQ_API_KEY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "MISTRAL_API_KEY",
    "NODE_EXTRA_CA_CERTS",
    "NO_PROXY",
    "OPENAI_API_KEY",
    "OPENCODE_API_KEY",
    "OPENROUTER_API_KEY",
    "XAI_API_KEY",
    "https_proxy",
    "http_proxy",
    "no_proxy",
];
/// Nothing of its own is fetched at every start.
const FIXED: &[(&str, &str)] = &[("OPENCODE_DISABLE_AUTOUPDATE", "1"), ("OPENCODE_DISABLE_MODELS_FETCH", "1")];

/// The adapter.
#[derive(Debug)]
pub struct Opencode {
    installed: Installed,
}

impl Opencode {
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
            .ok_or_else(|| EngineError::new(ErrorClass::StartFailed, "the program opencode was not found"))?;
        let rules = Rules { needed: NEEDED };
        let added = context.config.engine_env.get(NAME).cloned().unwrap_or_default();
        let env = environment::build(&context.config, rules, &added, &spec.run_env, FIXED);
        // A session that must not write has a place for temporary files already, and may write nowhere else.
        let placed = spec.run_env.iter().any(|(name, _)| name == "TMPDIR");
        let scratch = if placed { None } else { Some(Scratch::new(&context, Vec::new()).await?) };
        let temp = scratch.as_ref().map(|s| s.path().to_owned());
        let program = Box::new(Run::new(spec.clone(), temp));
        Ok(Turnwise::new(Parts { engine: NAME, context, path, env, spec, scratch }, program))
    }
}

/// Whether `id` can only be an id.
fn is_id(id: &str) -> bool {
    id.strip_prefix("ses_").is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_alphanumeric()))
}

impl Engine for Opencode {
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
            own_cost: true,
            counting: Counting::PerTurn,
            efforts: &[],
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

    fn support(&self, option: Opt) -> Support {
        match option {
            Opt::PermissionMode | Opt::DangerFullAccess | Opt::ReadOnly | Opt::Resume | Opt::Fork | Opt::ExtraArgs => {
                Support::Native
            }
            Opt::SystemPrompt | Opt::AppendSystemPrompt => Support::InMessage,
            // Its `--variant` was not seen to reach a provider.
            Opt::Effort | Opt::FallbackModel | Opt::MaxTurns | Opt::AllowedTools | Opt::AddDir | Opt::JsonSchema => {
                Support::Ignored
            }
            // It has no sandbox that could hold its commands inside a directory.
            Opt::WorkspaceWrite | Opt::DisallowedTools | Opt::McpConfig | Opt::NoPersistence | Opt::BaseUrl => {
                Support::Refused
            }
        }
    }

    fn check(&self, choice: &EngineChoice) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(mode) = choice.permission_mode.as_deref()
            && !MODES.contains(&mode)
        {
            problems.push(format!("opencode has no permission mode `{mode}`; use one of {}", MODES.join(", ")));
        }
        if choice.model.as_deref().is_some_and(|m| m.starts_with('-') || !m.contains('/')) {
            problems.push("the model of opencode must be written as provider/model".to_owned());
        }
        problems
    }

    fn check_spec(&self, spec: &SessionSpec) -> Vec<String> {
        let mut problems = Vec::new();
        if spec.resume.as_deref().is_some_and(|id| !is_id(id)) {
            problems.push("the conversation to go on with is not an id of opencode".to_owned());
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
