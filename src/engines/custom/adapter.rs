//! The engine `custom`: a described program as a session.

use std::{path::PathBuf, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::{
    CustomEngine, NAME, Output,
    run::{Described, args},
};
use crate::{
    engines::{
        Boxed, Capabilities, Engine, EngineError, ErrorClass, Message, Opt, Session, SessionSpec, Support,
        account::Counting,
        conversation::Conversation,
        environment::{self, ChildEnv, Rules},
        registry::Context,
        stream_json::StreamJson,
        turnwise::{Parts, Turnwise},
    },
    model::spec::EngineChoice,
    sys::supervise::Stdin,
};

/// Modes in which an agent may do what its program lets it do anyway.
const FREE_MODES: &[&str] = &["acceptEdits", "bypassPermissions"];

/// The adapter.
#[derive(Debug)]
pub struct Custom {
    context: Arc<Context>,
}

impl Custom {
    /// An adapter.
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    fn env(&self, engine: &CustomEngine, spec: &SessionSpec) -> ChildEnv {
        let config = &self.context.config;
        let added = config.engine_env.get(NAME).cloned().unwrap_or_default();
        let mut env = environment::build(config, Rules { needed: &[] }, &added, &spec.run_env, &[]);
        env.vars.extend(engine.env.iter().map(|(n, v)| (n.into(), v.into())));
        env.secrets.extend(engine.env.values().cloned());
        env
    }

    async fn session(&self, spec: SessionSpec, cancel: &CancellationToken) -> Result<Box<dyn Session>, EngineError> {
        if let Some(problem) = self.check_spec(&spec).into_iter().next() {
            return Err(EngineError::new(ErrorClass::Other, problem));
        }
        let missing = || EngineError::new(ErrorClass::Other, "engine custom needs a customEngine");
        let engine = spec.options.custom.clone().ok_or_else(missing)?;
        let path = engine.program(&self.context.config).ok_or_else(|| {
            EngineError::new(
                ErrorClass::StartFailed,
                format!("the program of custom engine {} was not found", engine.name),
            )
        })?;
        let env = self.env(&engine, &spec);
        let context = Arc::clone(&self.context);
        if !engine.persistent {
            let program = Box::new(Described::new(engine, spec.clone()));
            let parts = Parts { engine: NAME, context, path, env, spec, scratch: None };
            return Ok(Box::new(Turnwise::new(parts, program)));
        }
        let mut args = args(&engine, &spec, &Message::default());
        if let (Some(flag), Some(id)) = (&engine.resume_flag, &spec.resume) {
            args.extend([flag.into(), id.into()]);
        }
        let launch = context.launch(NAME, path, args, env, &spec, Stdin::Pipe);
        Ok(Box::new(Conversation::start(launch, Box::new(StreamJson::new()), cancel).await?))
    }
}

impl Engine for Custom {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            // Some can; a session of one that cannot says so.
            resume: false,
            append_system_prompt: false,
            // Those whose config maps it; the others are refused.
            read_only: true,
            interrupt: true,
            steer: false,
            compact: false,
            goals: false,
            own_cost: false,
            counting: Counting::PerTurn,
            efforts: &[],
            permission_modes: &[],
            verified: true,
        }
    }

    fn program(&self) -> Option<PathBuf> {
        None
    }

    fn program_in_options(&self) -> bool {
        true
    }

    fn version(&self) -> Boxed<'_, Option<String>> {
        Box::pin(std::future::ready(None))
    }

    fn check(&self, _choice: &EngineChoice) -> Vec<String> {
        Vec::new()
    }

    fn support(&self, option: Opt) -> Support {
        match option {
            // As far as its config says how; see `check_spec`.
            Opt::Effort
            | Opt::PermissionMode
            | Opt::WorkspaceWrite
            | Opt::DangerFullAccess
            | Opt::ReadOnly
            | Opt::Resume
            | Opt::ExtraArgs => Support::Native,
            Opt::SystemPrompt | Opt::AppendSystemPrompt => Support::InMessage,
            Opt::FallbackModel | Opt::MaxTurns | Opt::AllowedTools | Opt::JsonSchema | Opt::AddDir => Support::Ignored,
            Opt::DisallowedTools | Opt::McpConfig | Opt::Fork | Opt::NoPersistence | Opt::BaseUrl => Support::Refused,
        }
    }

    fn check_spec(&self, spec: &SessionSpec) -> Vec<String> {
        let Some(engine) = &spec.options.custom else {
            return vec!["engine custom needs customEngine, the description of its program".to_owned()];
        };
        let name = &engine.name;
        let mut problems = Vec::new();
        if let Some(mode) = spec.options.sandbox.map(crate::model::spec::SandboxMode::as_str)
            && !engine.sandbox_modes.contains_key(mode)
        {
            problems.push(format!("custom engine {name} cannot be held to {mode}; add it to its sandboxModes"));
        }
        if let Some(mode) = spec.choice.permission_mode.as_deref()
            && !engine.permission_modes.contains_key(mode)
            && !FREE_MODES.contains(&mode)
        {
            problems
                .push(format!("custom engine {name} has no permission mode `{mode}`; add it to its permissionModes"));
        }
        if let Some(effort) = spec.choice.effort.as_deref()
            && effort != "auto"
            && !engine.efforts.contains_key(effort)
        {
            problems.push(format!("custom engine {name} has no effort `{effort}`; add it to its efforts"));
        }
        if spec.choice.model.is_some() && engine.model_flag.is_none() {
            problems.push(format!("custom engine {name} takes no model; leave it out or give it a modelFlag"));
        }
        if let Some(id) = &spec.resume {
            if engine.resume_flag.is_none() {
                problems.push(format!("custom engine {name} cannot go on with a conversation; give it a resumeFlag"));
            } else if id.starts_with('-') {
                problems.push("the conversation to go on with is not an id".to_owned());
            }
        }
        if engine.persistent && engine.output != Output::Claude {
            problems.push(format!("custom engine {name} is persistent, which needs output claude"));
        }
        if engine.program(&self.context.config).is_none() {
            problems.push(format!("the program of custom engine {name} was not found; correct its bin"));
        }
        problems
    }

    fn open(&self, spec: SessionSpec, cancel: CancellationToken) -> Boxed<'_, Result<Box<dyn Session>, EngineError>> {
        Box::pin(async move { self.session(spec, &cancel).await })
    }
}
