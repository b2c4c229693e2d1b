//! Grok Build, one `grok -p` a turn. Built from its documentation; its program was never run by our tests.

use std::{ffi::OsString, path::PathBuf, sync::Arc};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    Boxed, Capabilities, Engine, EngineError, ErrorClass, Message, Opt, Session, SessionSpec, Support, TurnEvent,
    account::Counting,
    capabilities::level,
    custom::last_object,
    documented,
    environment::{self, Rules},
    installed::Installed,
    lines::MAX_LINE,
    process::Gone,
    registry::Context,
    turnwise::{Invocation, Parts, Program, Tally, Turnwise, argument, words},
};
use crate::model::{Time, spec::EngineChoice};

/// Its name in specs.
pub const NAME: &str = "grok";

/// Levels of `--effort`.
const EFFORTS: &[&str] = &["low", "medium", "high", "xhigh"];
/// Values of `--permission-mode`.
const MODES: &[&str] = &["acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "plan"];
/// Nobody sits in front of a run, so nothing is asked unless a spec says otherwise.
const DEFAULT_MODE: &str = "bypassPermissions";

/// Variables it documents for reaching its provider.
const NEEDED: &[&str] = &["GROK_*", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "XAI_*"];

/// A conversation.
#[derive(Debug)]
struct Print {
    spec: SessionSpec,
    id: Option<String>,
    /// Output of the turn under way.
    whole: Vec<u8>,
}

impl Program for Print {
    fn command(&mut self, message: &Message<'_>) -> Result<Invocation, EngineError> {
        let mut args: Vec<OsString> = ["--output-format", "json"].map(Into::into).to_vec();
        let mut add = |flag: &str, value: &str| args.extend([flag.into(), value.into()]);
        add("--permission-mode", if message.plan { "plan" } else { mode(&self.spec.choice) });
        if let Some(model) = &self.spec.choice.model {
            add("--model", model);
        }
        if let Some(level) = message.effort.or(self.spec.choice.effort.as_deref()).and_then(|e| level(EFFORTS, e)) {
            add("--effort", level);
        }
        if let Some(id) = &self.id {
            add("--resume", id);
        }
        args.extend(self.spec.options.extra_args.iter().map(Into::into));
        args.extend(["-p".into(), argument(message.text)?]);
        self.whole.clear();
        Ok(Invocation { args, ..Invocation::default() })
    }

    fn line(&mut self, bytes: &[u8], _tally: &mut Tally, _now: Time) -> Result<Vec<TurnEvent>, EngineError> {
        let room = MAX_LINE.saturating_sub(self.whole.len());
        self.whole.extend(bytes.iter().chain(b"\n").take(room));
        Ok(Vec::new())
    }

    fn finish(&mut self, exit: &Gone, last_words: &str, tally: &mut Tally, now: Time) {
        let Some(value) = last_object(&std::mem::take(&mut self.whole)) else {
            if !matches!(exit, Gone::Clean) {
                let error = words::error(None, last_words, now);
                tally.said = (error.class != ErrorClass::Other).then_some(Err(error));
            }
            return;
        };
        tally.usage = documented::usage(&value);
        tally.add_cost(value.get("total_cost_usd").and_then(Value::as_f64).unwrap_or_default());
        documented::reply(&value).unwrap_or_default().clone_into(&mut tally.text);
        tally.stop_reason = documented::text(&value, &["stopReason", "stop_reason"]).map(str::to_owned);
        let said = documented::same(&mut self.id, &value);
        tally.said = Some(said.and_then(|()| documented::error(&value, now).map_or(Ok(()), Err)));
    }

    fn native_id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    fn speaks_late(&self) -> bool {
        // Its one object is the end of the turn.
        true
    }
}

fn mode(choice: &EngineChoice) -> &str {
    match choice.permission_mode.as_deref() {
        Some("manual") => "default",
        Some(mode) => mode,
        None => DEFAULT_MODE,
    }
}

/// The adapter.
#[derive(Debug)]
pub struct Grok {
    installed: Installed,
}

impl Grok {
    /// An adapter; nothing is looked up yet.
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { installed: Installed::new(context, NAME, NAME, "") }
    }

    fn session(&self, spec: SessionSpec) -> Result<Turnwise, EngineError> {
        if let Some(problem) = self.check(&spec.choice).into_iter().chain(self.check_spec(&spec)).next() {
            return Err(EngineError::new(ErrorClass::Other, problem));
        }
        let context = Arc::clone(self.installed.context());
        let missing = || EngineError::new(ErrorClass::StartFailed, "the program grok was not found");
        let path = self.program().ok_or_else(missing)?;
        let added = context.config.engine_env.get(NAME).cloned().unwrap_or_default();
        let env = environment::build(&context.config, Rules { needed: NEEDED }, &added, &spec.run_env, &[]);
        let program = Box::new(Print { id: spec.resume.clone(), spec: spec.clone(), whole: Vec::new() });
        Ok(Turnwise::new(Parts { engine: NAME, context, path, env, spec, scratch: None }, program))
    }
}

impl Engine for Grok {
    fn name(&self) -> &'static str {
        NAME
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            resume: true,
            append_system_prompt: false,
            read_only: false,
            interrupt: true,
            steer: false,
            compact: false,
            goals: false,
            own_cost: true,
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

    fn support(&self, option: Opt) -> Support {
        match option {
            Opt::Effort | Opt::PermissionMode | Opt::Resume | Opt::ExtraArgs => Support::Native,
            Opt::SystemPrompt | Opt::AppendSystemPrompt => Support::InMessage,
            Opt::FallbackModel | Opt::MaxTurns | Opt::AllowedTools | Opt::JsonSchema | Opt::AddDir => Support::Ignored,
            // Nothing it documents holds it.
            Opt::ReadOnly
            | Opt::WorkspaceWrite
            | Opt::DangerFullAccess
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
            problems.push(format!("grok has no effort `{effort}`; use one of {} or auto", EFFORTS.join(", ")));
        }
        if !MODES.contains(&mode(choice)) {
            let mode = mode(choice);
            problems.push(format!("grok has no permission mode `{mode}`; use one of {}", MODES.join(", ")));
        }
        problems
    }

    fn check_spec(&self, spec: &SessionSpec) -> Vec<String> {
        let bad = spec.resume.as_deref().is_some_and(|id| id.trim().is_empty() || id.starts_with('-'));
        bad.then(|| "the conversation to go on with is not an id of grok".to_owned()).into_iter().collect()
    }

    fn open(&self, spec: SessionSpec, _cancel: CancellationToken) -> Boxed<'_, Result<Box<dyn Session>, EngineError>> {
        Box::pin(async move { Ok(Box::new(self.session(spec)?) as Box<dyn Session>) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::turnwise::replay::{brief, play, runs};

    fn print(resume: Option<String>) -> Print {
        let spec = SessionSpec { resume, ..SessionSpec::default() };
        Print { id: spec.resume.clone(), spec, whole: Vec::new() }
    }

    /// EN-1, acceptance 1 of the engines: objects as the documentation describes them.
    #[test]
    fn described_results_give_the_expected_outcomes() {
        let want = [
            ("plain", "ok 0 0 0 100 20"),
            ("no_text", "other 0 0 0 10 0"),
            ("auth", "auth 0 0 0 0 0"),
            ("success_then_dies", "crashed 0 0 0 100 20"),
            ("garbage", "protocol 0 0 0 0 0"),
            ("other_conversation", "protocol 0 0 0 100 20"),
        ];
        for (name, want) in want {
            let runs = runs(NAME, name);
            let resume = (name == "other_conversation").then(|| "another".to_owned());
            let (outcome, _) = play(&mut print(resume), &runs[0]);
            assert_eq!(brief(&outcome), want, "{name}");
        }
        let (outcome, _) = play(&mut print(None), &runs(NAME, "plain")[0]);
        assert_eq!((outcome.spend.cost_usd, outcome.cost_source.as_deref()), (0.0125, Some("engine")));
        assert_eq!(outcome.native_id.as_deref(), Some("g-1"));
    }

    #[test]
    fn arguments_follow_modes_and_efforts() {
        let mut print = print(Some("g-1".into()));
        print.spec.choice.permission_mode = Some("manual".into());
        print.spec.choice.effort = Some("ultra".into());
        let call = print.command(&Message::from("hello")).unwrap();
        let args: Vec<String> = call.args.into_iter().map(|a| a.into_string().unwrap()).collect();
        let want = "--output-format json --permission-mode default --effort xhigh --resume g-1 -p hello";
        assert_eq!(args.join(" "), want);
    }
}
