//! What a session can be started with, and what becomes of it: a spec for the engine, and what is kept on disk.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::SessionError;
use crate::{
    config::Config,
    engines::{
        Engine, Opt, SessionOptions, SessionSpec, Support,
        custom::{self, CustomEngine},
    },
    model::{
        Code,
        spec::{EngineChoice, SandboxMode},
    },
    sys::redact::Redactor,
};

/// Whether an earlier conversation of the name is gone on with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the words say it")]
pub enum Resume {
    #[default]
    Auto,
    Never,
    Require,
}

/// A free-form object.
type Free = BTreeMap<String, Value>;

/// Options of a session. What is absent is the engine's default, or what the session was started with before.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StartOptions {
    /// Name, 1 to 128 letters, digits, '.', '_', '-'. Default: generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Absolute directory the agent works in. Default: the one it had before, else the server's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Engine name, for example claude, codex, opencode or scripted. Default: the one it had before, else the server's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Model as the engine knows it; a scenario for the scripted engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Model to use while the first one is overloaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback_model: Option<String>,
    /// low, medium, high, xhigh, max, ultra or auto; lowered with a warning where the engine has less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// acceptEdits (default), bypassPermissions, plan, auto, manual or dontAsk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<String>,
    /// What the agent may do to files: read-only, workspace-write or danger-full-access.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_mode: Option<SandboxMode>,
    /// Replaces the engine's system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Added to the engine's system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_system_prompt: Option<String>,
    /// Further directories its tools may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_dir: Option<Vec<String>>,
    /// Tools that need no asking, in the engine's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// Tools that are taken away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disallowed_tools: Option<Vec<String>>,
    /// Most model calls of one turn.
    #[schemars(range(min = 1, max = 100_000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// Cap in US dollars; 0 or less is no cap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_budget_usd: Option<f64>,
    /// JSON Schema that replies must fit, where the engine can do that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub json_schema: Option<Free>,
    /// Files with MCP servers for the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mcp_config: Option<Vec<String>>,
    /// The engine's own id of a conversation to go on with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume_session_id: Option<String>,
    /// Branches off the conversation instead of going on with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fork_session: Option<bool>,
    /// auto (default): goes on with the conversation of this name when engine and cwd are the same; never; require.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resume: Option<Resume>,
    /// Nothing of the session is kept on disk, neither here nor by the engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_session_persistence: Option<bool>,
    /// Another API endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// With engine acp: preset of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acp_agent: Option<String>,
    /// With engine custom: name of a preset; from a caller on this machine also the config itself.
    #[schemars(extend("contentMediaType" = "application/json"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_engine: Option<String>,
    /// The engine's own switches, by engine. Unknown ones are refused by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_options: Option<Free>,
}

macro_rules! over {
    ($new:ident, $old:ident, $($field:ident),+) => { Self { $($field: $new.$field.or($old.$field),)+ ..$new } };
}

impl StartOptions {
    /// These options, and `old` where nothing is said. What belongs to one start alone is not taken over.
    #[must_use]
    pub(super) fn over(self, old: Self) -> Self {
        let new = self;
        over!(
            new,
            old,
            cwd,
            engine,
            model,
            fallback_model,
            effort,
            permission_mode,
            sandbox_mode,
            system_prompt,
            append_system_prompt,
            add_dir,
            allowed_tools,
            disallowed_tools,
            max_turns,
            max_budget_usd,
            json_schema,
            mcp_config,
            base_url,
            acp_agent,
            custom_engine,
            engine_options
        )
    }

    /// What a session that takes over a conversation inherits: neither model nor tools nor ids, which are another
    /// engine's words.
    pub(super) fn inherited(&self) -> Self {
        Self {
            cwd: self.cwd.clone(),
            effort: self.effort.clone(),
            permission_mode: self.permission_mode.clone(),
            sandbox_mode: self.sandbox_mode,
            max_budget_usd: self.max_budget_usd,
            system_prompt: self.system_prompt.clone(),
            append_system_prompt: self.append_system_prompt.clone(),
            add_dir: self.add_dir.clone(),
            ..Self::default()
        }
    }

    /// What is written down: nothing of one start alone, nothing that may hold a secret. The second value names what
    /// was left out and will be missed.
    pub(super) fn kept(&self, redactor: &Redactor) -> (Self, Vec<String>) {
        let mut kept = self.clone();
        (kept.name, kept.resume_session_id, kept.fork_session) = (None, None, None);
        (kept.resume, kept.no_session_persistence) = (None, None);
        let mut left = Vec::new();
        if kept.custom_engine.as_deref().is_some_and(is_inline) {
            kept.custom_engine = None;
            left.push("customEngine".to_owned());
        }
        if let Some(files) = &mut kept.mcp_config {
            let before = files.len();
            files.retain(|file| !is_inline(file));
            if files.len() < before {
                left.push("mcpConfig".to_owned());
            }
        }
        for (engine, switches) in kept.engine_options.iter_mut().flatten() {
            let Value::Object(switches) = switches else { continue };
            switches.retain(|key, value| {
                let plain = match value {
                    Value::String(text) => !is_inline(text),
                    Value::Object(_) => false,
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => true,
                };
                let good = plain && key != EXTRA_ARGS;
                if !good {
                    left.push(format!("engineOptions.{engine}.{key}"));
                }
                good
            });
        }
        let Ok(Value::Object(map)) = serde_json::to_value(&kept) else { return (Self::default(), left) };
        let clean = map.into_iter().filter(|(key, value)| {
            let mut masked = value.clone();
            redactor.json(&mut masked);
            let same = masked == *value;
            if !same {
                left.push(key.clone());
            }
            same
        });
        let clean = Value::Object(clean.collect());
        (serde_json::from_value(clean).unwrap_or_default(), left)
    }

    /// Whether nothing of the session is kept.
    pub(super) fn transient(&self) -> bool {
        self.no_session_persistence.unwrap_or(false)
    }

    /// The cap, when there is one.
    pub(super) fn cap(&self) -> Option<f64> {
        self.max_budget_usd.filter(|usd| usd.is_finite() && *usd > 0.0)
    }
}

/// Key of `engineOptions.<engine>` with arguments passed on as they are.
pub(super) const EXTRA_ARGS: &str = "extraArgs";

/// Whether a text is JSON itself rather than the name of something.
fn is_inline(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}

/// Who asks for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Caller {
    /// Over a network, with a token: may not name programs.
    #[default]
    Remote,
    /// On this machine, over standard input.
    Local,
}

/// Refuses what only a caller on this machine may give.
pub(super) fn check_caller(options: &StartOptions, caller: Caller) -> Result<(), SessionError> {
    let refuse =
        |what: String| Err(SessionError::new(Code::CustomEngineRemote, format!("{what} is refused over HTTP")));
    match caller {
        Caller::Local => Ok(()),
        Caller::Remote => {
            if options.custom_engine.as_deref().is_some_and(is_inline) {
                return refuse("an inline customEngine".to_owned());
            }
            for (engine, switches) in options.engine_options.iter().flatten() {
                if switches.get(EXTRA_ARGS).is_some() {
                    return refuse(format!("engineOptions.{engine}.{EXTRA_ARGS}"));
                }
            }
            Ok(())
        }
    }
}

/// The spec of a session on `engine` in `cwd`, and what its caller should know.
pub(super) fn spec(
    name: &str,
    engine: &dyn Engine,
    cwd: PathBuf,
    options: &StartOptions,
    config: &Config,
) -> Result<(SessionSpec, Vec<String>), SessionError> {
    let (default_mode, env) = (&config.sessions.permission_mode, &config.env);
    let mut warnings = Vec::new();
    let bad = |text: String| SessionError::new(Code::BadOption, text);
    let modes = engine.capabilities().permission_modes;
    let mode = options.permission_mode.clone().or_else(|| {
        let follows = engine.support(Opt::PermissionMode) == Support::Native && modes.contains(&default_mode.as_str());
        follows.then(|| default_mode.clone())
    });
    let mut native = BTreeMap::new();
    let mut extra_args = Vec::new();
    for (of, switches) in options.engine_options.iter().flatten() {
        if of != engine.name() {
            warnings.push(format!("engineOptions.{of} is for another engine and is ignored"));
            continue;
        }
        let Value::Object(switches) = switches else {
            return Err(bad(format!("engineOptions.{of}: must be an object")));
        };
        for (key, value) in switches {
            if key != EXTRA_ARGS {
                native.insert(key.clone(), value.clone());
                continue;
            }
            let list = value.as_array().and_then(|l| l.iter().map(|v| v.as_str().map(str::to_owned)).collect());
            let list: Vec<String> =
                list.ok_or_else(|| bad(format!("engineOptions.{of}.{EXTRA_ARGS}: must be a list of texts")))?;
            extra_args.extend(list);
        }
    }
    let program = options.custom_engine.as_deref().map(|text| custom(text, env)).transpose()?;
    let spec = SessionSpec {
        name: name.to_owned(),
        choice: EngineChoice {
            engine: Some(engine.name().to_owned()),
            model: options.model.clone(),
            effort: options.effort.clone(),
            permission_mode: mode,
            acp_agent: options.acp_agent.clone(),
        },
        cwd,
        append_system_prompt: options.append_system_prompt.clone(),
        max_turns: options.max_turns,
        max_budget_usd: options.cap(),
        resume: None,
        run_env: vec![("CLAWO_SESSION".to_owned(), name.to_owned())],
        labels: None,
        options: SessionOptions {
            sandbox: options.sandbox_mode,
            fallback_model: options.fallback_model.clone(),
            system_prompt: options.system_prompt.clone(),
            add_dirs: options.add_dir.iter().flatten().map(PathBuf::from).collect(),
            allowed_tools: options.allowed_tools.clone().unwrap_or_default(),
            disallowed_tools: options.disallowed_tools.clone().unwrap_or_default(),
            json_schema: options.json_schema.clone().map(|map| Value::Object(map.into_iter().collect())),
            mcp_config: options.mcp_config.clone().unwrap_or_default(),
            fork: options.fork_session.unwrap_or(false),
            no_persistence: options.transient(),
            base_url: options.base_url.clone(),
            native,
            extra_args,
            custom: program,
            ..SessionOptions::default()
        },
    };
    Ok((spec, warnings))
}

/// The program a `customEngine` describes: by itself, or by the name of a variable in `env`. What a config holds is in
/// no message.
fn custom(text: &str, env: &BTreeMap<String, String>) -> Result<Arc<CustomEngine>, SessionError> {
    if !is_inline(text) {
        return custom::by_reference(env, text).map_err(|e| SessionError::new(e.code(), e.to_string()));
    }
    let bad = |text: String| SessionError::new(Code::BadOption, format!("customEngine: {text}"));
    let value: Value = serde_json::from_str(text).map_err(|_| bad("is not JSON".to_owned()))?;
    CustomEngine::read(&value).map(Arc::new).map_err(|problems| bad(problems.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn options(value: Value) -> StartOptions {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_is_said_wins_over_what_was() {
        let old = options(json!({ "model": "a", "effort": "low", "addDir": ["/x"], "maxTurns": 3 }));
        let new = options(json!({ "model": "b", "resume": "require" })).over(old);
        assert_eq!(
            new,
            options(json!({ "model": "b", "resume": "require", "effort": "low", "addDir": ["/x"], "maxTurns": 3 }))
        );
        let inherited = options(json!({ "model": "b", "effort": "low", "allowedTools": ["x"], "systemPrompt": "s" }));
        assert_eq!(inherited.inherited(), options(json!({ "effort": "low", "systemPrompt": "s" })));
    }

    /// SE-4: nothing that may hold a secret is kept, and what is missing is named.
    #[test]
    fn no_secret_is_kept() {
        let redactor = Redactor::new(["c4nary-value".to_owned()]);
        let (kept, left) = options(json!({
            "name": "n", "model": "m", "resume": "never", "systemPrompt": "say c4nary-value", "mcpConfig": ["a.json", "{\"x\":1}"],
            "customEngine": "{\"bin\":\"x\"}",
            "engineOptions": { "claude": { "bare": true, "settings": "{\"env\":{}}", "agents": {"a": 1}, "extraArgs": ["-x"] } }
        }))
        .kept(&redactor);
        let want = json!({ "model": "m", "mcpConfig": ["a.json"], "engineOptions": { "claude": { "bare": true } } });
        assert_eq!(kept, options(want));
        let mut left = left;
        left.sort();
        let want = [
            "customEngine",
            "engineOptions.claude.agents",
            "engineOptions.claude.extraArgs",
            "engineOptions.claude.settings",
            "mcpConfig",
            "systemPrompt",
        ];
        assert_eq!(left, want);
    }

    #[test]
    fn programs_are_named_by_local_callers_only() {
        for remote in [
            json!({ "customEngine": " {\"bin\":\"/bin/sh\"}" }),
            json!({ "engineOptions": { "claude": { "extraArgs": [] } } }),
        ] {
            let error = check_caller(&options(remote.clone()), Caller::Remote).unwrap_err();
            assert_eq!(error.code(), Code::CustomEngineRemote);
            assert!(check_caller(&options(remote), Caller::Local).is_ok());
        }
        assert!(check_caller(&options(json!({ "customEngine": "preset" })), Caller::Remote).is_ok());
    }

    /// SE-1: a custom engine comes inline or by reference, and what is wrong is told without what it holds.
    #[test]
    fn custom_engines_are_read() {
        let good = r#"{"name":"mine","bin":"sh","output":"text"}"#;
        let env = BTreeMap::from([(custom::variable("ref"), good.to_owned())]);
        for text in [good, "ref"] {
            assert_eq!(custom(text, &env).unwrap().name, "mine");
        }
        for (text, code, word) in [
            ("other", Code::CustomEngineRefUnknown, "CLAWO_CUSTOM_ENGINE_OTHER"),
            ("{canary", Code::BadOption, "not JSON"),
            (r#"{"name":"x","bin":"canary","output":"text","canry":1}"#, Code::BadOption, "canry"),
        ] {
            let error = custom(text, &env).unwrap_err();
            assert_eq!(error.code(), code);
            assert!(error.message.contains(word) && !error.message.contains("canary"), "{error}");
        }
    }
}
