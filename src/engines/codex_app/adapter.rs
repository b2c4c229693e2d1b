//! How `codex app-server` is started and what it can do.

use std::{ffi::OsString, path::PathBuf, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::{
    app::App,
    opening::{Opening, sandbox},
};
use crate::{
    engines::{
        Boxed, Capabilities, Engine, EngineError, ErrorClass, Opt, Session, SessionSpec, Support,
        account::Counting,
        conversation::Conversation,
        environment::{self, Rules},
        installed::Installed,
        registry::Context,
    },
    model::spec::{EngineChoice, SandboxMode},
    sys::supervise::Stdin,
};

/// Its name in specs.
pub const NAME: &str = "codex-app";

/// Name of its program, which another engine runs as well.
const PROGRAM: &str = "codex";
/// Version whose conversations were recorded.
const MEASURED: &str = "0.171.0";
/// Efforts it knows; which of them a model takes is asked when a thread is opened.
const EFFORTS: &[&str] = &["minimal", "low", "medium", "high", "xhigh", "max", "ultra"];
/// Permission modes. It asks nobody in any of them; they differ in the sandbox.
const MODES: &[&str] = &["acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "manual", "plan"];
/// Settings of every process. It gives up a provider that cannot be reached, instead of waiting for ever. A thread
/// nobody listens to is let go of at once, so that another process can have it. Commands of the model do not see the
/// keys that the program itself needs.
const SETTINGS: &[&str] = &[
    "features.unbounded_connection_retries=false",
    "thread_unload_delay_secs=0",
    "shell_environment_policy.ignore_default_excludes=false",
];

/// Variables it documents for reaching its provider.
const NEEDED: &[&str] = &[
    "AZURE_OPENAI_API_KEY",
    "CODEX_ACCESS_TOKEN",
    "CODEX_API_KEY",
    "CODEX_CA_CERTIFICATE",
    "CODEX_HOME",
    "CODEX_OSS_BASE_URL",
    "CODEX_OSS_PORT",
    "CODEX_SQLITE_HOME",
    "HOME",
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
pub struct CodexApp {
    installed: Installed,
}

impl CodexApp {
    /// An adapter; nothing is looked up yet.
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { installed: Installed::new(context, NAME, PROGRAM, MEASURED) }
    }

    fn env(&self, spec: &SessionSpec) -> environment::ChildEnv {
        let config = &self.installed.context().config;
        let allowed = config.engine_env.get(NAME).or_else(|| config.engine_env.get(PROGRAM));
        let allowed = allowed.cloned().unwrap_or_default();
        environment::build(config, Rules { needed: NEEDED }, &allowed, &spec.run_env, &[])
    }
}

fn argv(spec: &SessionSpec) -> Vec<OsString> {
    let mut args: Vec<OsString> = vec!["app-server".into()];
    for setting in SETTINGS {
        args.extend(["-c".into(), setting.into()]);
    }
    if let Some(url) = &spec.options.base_url {
        // A value of a setting is TOML, whose strings are written like those of JSON.
        args.extend(["-c".into(), format!("openai_base_url={}", serde_json::Value::from(url.as_str())).into()]);
    }
    args.extend(spec.options.extra_args.iter().map(Into::into));
    args
}

impl Engine for CodexApp {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            resume: true,
            append_system_prompt: true,
            read_only: true,
            interrupt: true,
            steer: true,
            compact: true,
            goals: true,
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
            | Opt::SystemPrompt
            | Opt::AppendSystemPrompt
            | Opt::AddDir
            | Opt::JsonSchema
            | Opt::Resume
            | Opt::Fork
            | Opt::NoPersistence
            | Opt::BaseUrl
            | Opt::ExtraArgs => Support::Native,
            Opt::FallbackModel | Opt::MaxTurns => Support::Ignored,
            // Each of these bounds what an agent may do, or gives it what it cannot do without.
            Opt::AllowedTools | Opt::DisallowedTools | Opt::McpConfig => Support::Refused,
        }
    }

    fn check(&self, choice: &EngineChoice) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(effort) = choice.effort.as_deref()
            && effort != "auto"
            && !EFFORTS.contains(&effort)
        {
            problems.push(format!("codex-app has no effort `{effort}`; use one of {} or auto", EFFORTS.join(", ")));
        }
        if let Some(mode) = choice.permission_mode.as_deref().filter(|m| !MODES.contains(m)) {
            problems.push(format!("codex-app has no permission mode `{mode}`; use one of {}", MODES.join(", ")));
        }
        if choice.model.as_deref().is_some_and(|m| m.trim().is_empty() || m.starts_with('-')) {
            problems.push("the model of codex-app must be a model name".to_owned());
        }
        problems
    }

    fn check_spec(&self, spec: &SessionSpec) -> Vec<String> {
        let mut problems = Vec::new();
        if spec.options.fork && spec.resume.is_none() {
            problems.push("codex-app can only branch off a thread that is named; give its id to resume".to_owned());
        }
        let named = spec.options.sandbox.filter(|named| *named != sandbox(spec));
        if let Some(named) = named {
            let named = named.as_str();
            problems.push(format!("permission mode `plan` changes nothing, which sandbox `{named}` contradicts"));
        }
        if sandbox(spec) == SandboxMode::ReadOnly && !spec.options.add_dirs.is_empty() {
            problems.push("a read-only sandbox has no further directories to write to".to_owned());
        }
        problems
    }

    fn open(&self, spec: SessionSpec, cancel: CancellationToken) -> Boxed<'_, Result<Box<dyn Session>, EngineError>> {
        Box::pin(async move {
            let problems = self.check(&spec.choice).into_iter().chain(self.check_spec(&spec));
            if let Some(problem) = problems.into_iter().next() {
                return Err(EngineError::new(ErrorClass::Other, problem));
            }
            let Some(program) = self.program() else {
                return Err(EngineError::new(ErrorClass::StartFailed, "the program codex was not found"));
            };
            let env = self.env(&spec);
            let launch = self.installed.context().launch(NAME, program, argv(&spec), env, &spec, Stdin::Pipe);
            let session = Conversation::start(launch, Box::new(App::new(Opening::new(&spec))), &cancel).await?;
            Ok(Box::new(session) as Box<dyn Session>)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_told_its_settings() {
        let mut spec = SessionSpec::default();
        spec.options.base_url = Some("http://h/\"v1\"".into());
        spec.options.extra_args = vec!["--enable".into(), "x".into()];
        let args: Vec<String> = argv(&spec).into_iter().map(|a| a.into_string().unwrap()).collect();
        assert_eq!((args[0].as_str(), args[1].as_str()), ("app-server", "-c"));
        assert_eq!(args[7..], ["-c", r#"openai_base_url="http://h/\"v1\"""#, "--enable", "x"]);
    }
}
