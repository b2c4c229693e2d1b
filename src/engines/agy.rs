//! Antigravity, one `agy -p` a turn. Built from its documentation; its program was never run by our tests.

use std::{ffi::OsString, path::PathBuf, sync::Arc, time::Duration};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    Boxed, Capabilities, Engine, EngineError, ErrorClass, Message, Opt, Session, SessionSpec, Support, TurnEvent,
    account::Counting,
    capabilities::level,
    documented,
    environment::{self, Rules},
    installed::Installed,
    registry::Context,
    stream_json::{cut, parse, str_of},
    turnwise::{Invocation, Parts, Program, Tally, Turnwise, argument},
};
use crate::model::{
    Time,
    spec::{EngineChoice, SandboxMode},
};

/// Its name in specs.
pub const NAME: &str = "agy";

/// Levels of `--effort`.
const EFFORTS: &[&str] = &["low", "medium", "high"];
/// Permission modes it has something for.
const MODES: &[&str] = &["acceptEdits", "bypassPermissions", "default", "manual", "plan"];
/// How long before our own clock its own runs out: a tenth, at most this.
const MARGIN: Duration = Duration::from_secs(10);
/// Longest note, in characters.
const MAX_NOTE: usize = 500;

/// Variables it documents for reaching its provider.
const NEEDED: &[&str] = &["ANTIGRAVITY_*", "GEMINI_API_KEY", "GOOGLE_*", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"];

/// A conversation.
#[derive(Debug)]
struct Print {
    spec: SessionSpec,
    /// Our clock for silence, which a print of it must not outlast.
    idle: Duration,
    id: Option<String>,
}

impl Program for Print {
    fn command(&mut self, message: &Message<'_>) -> Result<Invocation, EngineError> {
        let mut args: Vec<OsString> = ["--output-format", "stream-json"].map(Into::into).to_vec();
        let mut add = |flag: &str, value: &str| args.extend([flag.into(), value.into()]);
        let seconds = (self.idle - MARGIN.min(self.idle / 10)).as_secs();
        add("--print-timeout", &format!("{seconds}s"));
        if let Some(model) = &self.spec.choice.model {
            add("--model", model);
        }
        if let Some(level) = message.effort.or(self.spec.choice.effort.as_deref()).and_then(|e| level(EFFORTS, e)) {
            add("--effort", level);
        }
        if let Some(settings) = self.spec.options.native.get("settings") {
            add("--settings", &settings.as_str().map_or_else(|| settings.to_string(), str::to_owned));
        }
        if let Some(id) = &self.id {
            add("--conversation", id);
        }
        let mode = self.spec.choice.permission_mode.as_deref();
        match self.spec.options.sandbox {
            _ if message.plan => add("--mode", "plan"),
            Some(SandboxMode::ReadOnly) => add("--mode", "plan"),
            Some(SandboxMode::DangerFullAccess) => args.push("--dangerously-skip-permissions".into()),
            Some(SandboxMode::WorkspaceWrite) | None => match mode {
                Some("plan") => add("--mode", "plan"),
                Some("manual" | "default") => args.push("--sandbox".into()),
                Some("acceptEdits") => {}
                _ => args.push("--dangerously-skip-permissions".into()),
            },
        }
        args.extend(self.spec.options.extra_args.iter().map(Into::into));
        args.extend(["-p".into(), argument(message.text)?]);
        Ok(Invocation { args, ..Invocation::default() })
    }

    fn line(&mut self, bytes: &[u8], tally: &mut Tally, now: Time) -> Result<Vec<TurnEvent>, EngineError> {
        if bytes.trim_ascii().is_empty() {
            return Ok(Vec::new());
        }
        let Some(value) = parse::value(bytes) else {
            let text = cut(&String::from_utf8_lossy(bytes), MAX_NOTE);
            return Ok(vec![TurnEvent::Note(format!("not a line of the protocol: {text}"))]);
        };
        documented::same(&mut self.id, &value)?;
        if let Some(model) = documented::text(&value, &["model"]) {
            tally.model = Some(model.to_owned());
        }
        if str_of(&value, "type") != "result" {
            return Ok(Vec::new());
        }
        tally.usage = documented::usage(&value).or(tally.usage);
        tally.said = Some(documented::error(&value, now).map_or(Ok(()), Err));
        let Some(text) = documented::reply(&value) else { return Ok(Vec::new()) };
        text.clone_into(&mut tally.text);
        Ok(vec![TurnEvent::Text(text.to_owned())])
    }

    fn native_id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

/// The adapter.
#[derive(Debug)]
pub struct Agy {
    installed: Installed,
}

impl Agy {
    /// An adapter; nothing is looked up yet.
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { installed: Installed::new(context, NAME, NAME, "") }
    }

    fn session(&self, spec: SessionSpec) -> Result<Turnwise, EngineError> {
        if let Some(problem) = self.check(&spec.choice).into_iter().chain(self.check_spec(&spec)).next() {
            return Err(EngineError::new(ErrorClass::Other, problem));
        }
        let context = Arc::clone(self.installed.context());
        let missing = || EngineError::new(ErrorClass::StartFailed, "the program agy was not found");
        let path = self.program().ok_or_else(missing)?;
        let added = context.config.engine_env.get(NAME).cloned().unwrap_or_default();
        let env = environment::build(&context.config, Rules { needed: NEEDED }, &added, &spec.run_env, &[]);
        let program = Box::new(Print { idle: context.limits.idle, id: spec.resume.clone(), spec: spec.clone() });
        Ok(Turnwise::new(Parts { engine: NAME, context, path, env, spec, scratch: None }, program))
    }
}

impl Engine for Agy {
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
            counting: Counting::PerTurn,
            efforts: EFFORTS,
            permission_modes: MODES,
            verified: false,
        }
    }

    fn program(&self) -> Option<PathBuf> {
        self.installed.path()
    }

    fn version(&self) -> Boxed<'_, Option<String>> {
        Box::pin(self.installed.version())
    }

    fn native_keys(&self) -> &'static [&'static str] {
        &["settings"]
    }

    fn support(&self, option: Opt) -> Support {
        match option {
            Opt::Effort
            | Opt::PermissionMode
            | Opt::ReadOnly
            | Opt::DangerFullAccess
            | Opt::Resume
            | Opt::ExtraArgs => Support::Native,
            Opt::SystemPrompt | Opt::AppendSystemPrompt => Support::InMessage,
            Opt::FallbackModel | Opt::MaxTurns | Opt::AllowedTools | Opt::JsonSchema | Opt::AddDir => Support::Ignored,
            Opt::WorkspaceWrite
            | Opt::DisallowedTools
            | Opt::McpConfig
            | Opt::Fork
            | Opt::NoPersistence
            | Opt::BaseUrl => Support::Refused,
        }
    }

    fn check(&self, choice: &EngineChoice) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(effort) = choice.effort.as_deref()
            && effort != "auto"
            && level(EFFORTS, effort).is_none()
        {
            problems.push(format!("agy has no effort `{effort}`; use one of {} or auto", EFFORTS.join(", ")));
        }
        if let Some(mode) = choice.permission_mode.as_deref()
            && !MODES.contains(&mode)
        {
            problems.push(format!("agy has no permission mode `{mode}`; use one of {}", MODES.join(", ")));
        }
        problems
    }

    fn check_spec(&self, spec: &SessionSpec) -> Vec<String> {
        let mut problems = Vec::new();
        let settings =
            |v: &Value| v.is_object() || v.as_str().is_some_and(|p| !p.trim().is_empty() && !p.starts_with('-'));
        if spec.options.native.get("settings").is_some_and(|v| !settings(v)) {
            problems.push("engine option `settings` of agy must be an object or the path of a file".to_owned());
        }
        if spec.resume.as_deref().is_some_and(|id| id.trim().is_empty() || id.starts_with('-')) {
            problems.push("the conversation to go on with is not an id of agy".to_owned());
        }
        problems
    }

    fn open(&self, spec: SessionSpec, _cancel: CancellationToken) -> Boxed<'_, Result<Box<dyn Session>, EngineError>> {
        Box::pin(async move { Ok(Box::new(self.session(spec)?) as Box<dyn Session>) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::turnwise::replay::{brief, play, runs};

    fn print(spec: SessionSpec) -> Print {
        Print { idle: Duration::from_secs(600), id: spec.resume.clone(), spec }
    }

    /// EN-1, acceptance 1 of the engines: results as the documentation describes them.
    #[test]
    fn described_results_give_the_expected_outcomes() {
        let want = [
            ("plain", "ok 0 0 0 120 30"),
            ("no_text", "other 0 0 0 50 0"),
            ("quota", "quota 0 0 0 0 0"),
            ("success_then_dies", "crashed 0 0 0 120 30"),
            ("no_result", "protocol 0 0 0 0 0"),
            ("other_conversation", "protocol 0 0 0 0 0"),
        ];
        for (name, want) in want {
            let runs = runs(NAME, name);
            let resume = (name == "other_conversation").then(|| "conv-9".to_owned());
            let (outcome, _) = play(&mut print(SessionSpec { resume, ..SessionSpec::default() }), &runs[0]);
            assert_eq!(brief(&outcome), want, "{name}");
        }
    }

    #[test]
    fn arguments_follow_modes_and_efforts() {
        let mut spec = SessionSpec { resume: Some("conv-1".into()), ..SessionSpec::default() };
        let of = |spec: &SessionSpec, plan: bool| {
            let call = print(spec.clone()).command(&Message { plan, ..Message::from("-x y") }).unwrap();
            call.args.into_iter().map(|a| a.into_string().unwrap()).collect::<Vec<_>>().join(" ")
        };
        let base = "--output-format stream-json --print-timeout 590s";
        assert_eq!(of(&spec, false), format!("{base} --conversation conv-1 --dangerously-skip-permissions -p -x y"));
        assert!(of(&spec, true).contains("--mode plan"));
        spec.choice.effort = Some("max".into());
        spec.choice.permission_mode = Some("manual".into());
        spec.options.native.insert("settings".into(), serde_json::json!({ "a": 1 }));
        let got = of(&spec, false);
        assert!(got.contains("--effort high --settings {\"a\":1} --conversation conv-1 --sandbox -p"), "{got}");
        let long = "x".repeat(200 << 10);
        assert!(print(spec).command(&Message::from(long.as_str())).unwrap_err().message.contains("bytes"));
    }
}
