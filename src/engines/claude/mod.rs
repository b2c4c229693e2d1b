//! Claude Code: how it is started. What it says afterwards is `stream_json`.

pub mod agents;
pub mod cli;
mod options;

use std::{path::PathBuf, sync::Arc};

use tokio_util::sync::CancellationToken;

use super::{
    Boxed, Capabilities, Engine, EngineError, ErrorClass, Opt, Session, SessionSpec, Support,
    account::Counting,
    conversation::Conversation,
    environment::{self, Rules},
    installed::Installed,
    registry::Context,
    stream_json::{StreamJson, Transcript},
};
use crate::{config::Config, model::spec::EngineChoice, sys::supervise::Stdin};

/// Its name in specs.
pub const NAME: &str = "claude";

/// Levels of `--effort`. A wrong one would only be a warning on its standard error, so it is refused here.
const EFFORTS: &[&str] = &["low", "medium", "high", "xhigh", "max"];
/// Values of `--permission-mode`.
const MODES: &[&str] = &["acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "plan"];
/// Nobody sits in front of a run, so nothing is asked unless a spec says otherwise.
const DEFAULT_MODE: &str = "bypassPermissions";
/// Version whose conversations were recorded. Others of the same major version are expected to talk alike.
const MEASURED: &str = "2.1.197";
/// How often it asks a provider again by itself, unless the user's own setting says otherwise. Its own default
/// takes minutes to show a refused key, and we try again as well.
const MAX_RETRIES: (&str, &str) = ("CLAUDE_CODE_MAX_RETRIES", "2");

/// Variables it documents for reaching its provider.
const NEEDED: &[&str] = &[
    "ANTHROPIC_*",
    "API_TIMEOUT_MS",
    "CLAUDE_CODE_API_KEY_HELPER_TTL_MS",
    "CLAUDE_CODE_CLIENT_CERT",
    "CLAUDE_CODE_CLIENT_KEY",
    "CLAUDE_CODE_CLIENT_KEY_PASSPHRASE",
    "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
    "CLAUDE_CODE_MAX_RETRIES",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_SKIP_BEDROCK_AUTH",
    "CLAUDE_CODE_SKIP_VERTEX_AUTH",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
    "CLAUDE_CONFIG_DIR",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NODE_EXTRA_CA_CERTS",
    "NO_PROXY",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "https_proxy",
    "http_proxy",
    "no_proxy",
];
/// Needed besides when it talks to Bedrock.
const BEDROCK: &[&str] = &["AWS_*"];
/// Needed besides when it talks to Vertex.
const VERTEX: &[&str] = &["CLOUD_ML_REGION", "GCLOUD_PROJECT", "GOOGLE_*", "VERTEX_REGION_*"];

/// The adapter.
#[derive(Debug)]
pub struct Claude {
    installed: Installed,
}

impl Claude {
    /// An adapter; nothing is looked up yet.
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { installed: Installed::new(context, NAME, NAME, MEASURED) }
    }

    fn env(&self, spec: &SessionSpec) -> environment::ChildEnv {
        let chosen = options::env(spec);
        let chosen: Vec<(&str, &str)> = chosen.iter().map(|(name, value)| (*name, value.as_str())).collect();
        base_env(&self.installed.context().config, &spec.run_env, &chosen)
    }

    /// Where the program writes its session files down.
    fn transcript(&self, spec: &SessionSpec) -> Transcript {
        let context = self.installed.context();
        let set = |name: &str| context.config.env.get(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let home = || set("HOME").unwrap_or_default().join(".claude");
        Transcript::of_projects(context.fs.clone(), &set("CLAUDE_CONFIG_DIR").unwrap_or_else(home), &spec.cwd)
    }
}

/// Environment of every process of the program; `chosen` wins over all.
fn base_env(config: &Config, run_env: &[(String, String)], chosen: &[(&str, &str)]) -> environment::ChildEnv {
    let set = |name: &str| config.env.get(name).is_some_and(|v| !v.is_empty() && v != "0" && v != "false");
    let mut allowed: Vec<String> = config.engine_env.get(NAME).cloned().unwrap_or_default();
    for (switch, names) in [("CLAUDE_CODE_USE_BEDROCK", BEDROCK), ("CLAUDE_CODE_USE_VERTEX", VERTEX)] {
        if set(switch) {
            allowed.extend(names.iter().map(|n| (*n).to_owned()));
        }
    }
    let mut fixed = vec![
        ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
        ("DISABLE_ERROR_REPORTING", "1"),
        ("DISABLE_TELEMETRY", "1"),
    ];
    if config.env.get(MAX_RETRIES.0).is_none_or(|v| v.trim().is_empty()) {
        fixed.push(MAX_RETRIES);
    }
    if rustix::process::geteuid().is_root() {
        // As root it refuses to bypass permissions unless told that the machine is there for it.
        fixed.push(("IS_SANDBOX", "1"));
    }
    fixed.extend(chosen);
    environment::build(config, Rules { needed: NEEDED }, &allowed, run_env, &fixed)
}

/// Whether `id` can only be an id: the program would take something else for a flag or a search.
fn is_id(id: &str) -> bool {
    id.starts_with(|c: char| c.is_ascii_alphanumeric()) && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

fn mode(choice: &EngineChoice) -> &str {
    match choice.permission_mode.as_deref() {
        Some("manual") => "default",
        Some(mode) => mode,
        None => DEFAULT_MODE,
    }
}

impl Engine for Claude {
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
            own_cost: true,
            counting: Counting::CumulativeProcess,
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

    fn support(&self, option: Opt) -> Support {
        match option {
            Opt::Effort
            | Opt::PermissionMode
            | Opt::AppendSystemPrompt
            | Opt::MaxTurns
            | Opt::Resume
            | Opt::ReadOnly
            | Opt::WorkspaceWrite
            | Opt::DangerFullAccess
            | Opt::FallbackModel
            | Opt::SystemPrompt
            | Opt::AddDir
            | Opt::AllowedTools
            | Opt::DisallowedTools
            | Opt::JsonSchema
            | Opt::McpConfig
            | Opt::Fork
            | Opt::NoPersistence
            | Opt::BaseUrl
            | Opt::ExtraArgs => Support::Native,
        }
    }

    fn check(&self, choice: &EngineChoice) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(effort) = choice.effort.as_deref()
            && effort != "auto"
            && !EFFORTS.contains(&effort)
        {
            problems.push(format!("claude has no effort `{effort}`; use one of {} or auto", EFFORTS.join(", ")));
        }
        if !MODES.contains(&mode(choice)) {
            let mode = mode(choice);
            problems.push(format!("claude has no permission mode `{mode}`; use one of {}", MODES.join(", ")));
        }
        if choice.model.as_deref().is_some_and(|m| m.trim().is_empty() || m.starts_with('-')) {
            problems.push("the model of claude must be a model name".to_owned());
        }
        problems
    }

    fn native_keys(&self) -> &'static [&'static str] {
        options::KEYS
    }

    fn check_spec(&self, spec: &SessionSpec) -> Vec<String> {
        options::problems(spec)
    }

    fn open(&self, spec: SessionSpec, cancel: CancellationToken) -> Boxed<'_, Result<Box<dyn Session>, EngineError>> {
        Box::pin(async move {
            let failed = |text: String| EngineError::new(ErrorClass::StartFailed, text);
            if let Some(problem) = self.check(&spec.choice).into_iter().next() {
                return Err(EngineError::new(ErrorClass::Other, problem));
            }
            if spec.resume.as_deref().is_some_and(|id| !is_id(id)) {
                return Err(EngineError::new(
                    ErrorClass::Other,
                    "the conversation to go on with is not an id of claude",
                ));
            }
            let program = self.program().ok_or_else(|| failed("the program claude was not found".to_owned()))?;
            let env = self.env(&spec);
            let forward = spec.options.native.get("forwardSubagentText") == Some(&true.into());
            let dialect = StreamJson::new()
                .real(options::permission_mode(&spec), forward)
                .following(spec.options.goal.clone(), self.transcript(&spec));
            let launch = self.installed.context().launch(NAME, program, options::argv(&spec), env, &spec, Stdin::Pipe);
            let session = Conversation::start(launch, Box::new(dialect), &cancel).await?;
            Ok(Box::new(session) as Box<dyn Session>)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{options::argv, *};

    fn spec() -> SessionSpec {
        SessionSpec { name: "r-n-a1".into(), cwd: "/".into(), max_budget_usd: Some(0.0), ..SessionSpec::default() }
    }

    #[test]
    fn arguments_restate_everything_on_resume() {
        let plain: Vec<String> = argv(&spec()).into_iter().map(|a| a.into_string().unwrap()).collect();
        assert_eq!(
            plain[..9].join(" "),
            "-p --input-format stream-json --output-format stream-json --verbose --replay-user-messages \
             --permission-mode bypassPermissions"
        );
        assert_eq!((plain.len(), plain[9].as_str(), plain[10].len()), (11, "--session-id", 36));
        let full = SessionSpec {
            choice: EngineChoice {
                engine: None,
                model: Some("sonnet".into()),
                effort: Some("high".into()),
                permission_mode: Some("manual".into()),
                ..EngineChoice::default()
            },
            append_system_prompt: Some("Be brief.".into()),
            max_turns: Some(7),
            max_budget_usd: Some(0.5),
            resume: Some("id".into()),
            ..spec()
        };
        let full: Vec<String> = argv(&full).into_iter().skip(7).map(|a| a.into_string().unwrap()).collect();
        let want = "--permission-mode default --resume id --model sonnet --effort high --append-system-prompt Be brief. --max-turns 7 --max-budget-usd 0.5";
        assert_eq!(full.join(" "), want);
        assert!(is_id("00000000-0000-4000-8000-000000000000") && !is_id("-p") && !is_id("a b") && !is_id(""));
    }
}
