//! What options of a session become on the command line and in the environment of Claude Code.

use std::ffi::OsString;

use serde_json::{Value, json};

use super::mode;
use crate::{engines::SessionSpec, model::spec::SandboxMode, sys::ids};

/// Tools that change files or run programs; a session that must not write has none of them.
const WRITING_TOOLS: &str = "Bash,Edit,MultiEdit,NotebookEdit,Write";

/// What a switch of `engineOptions.claude` takes and what it becomes.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// true or false; a flag without a value.
    Flag(&'static str),
    /// A text; a flag with it.
    Text(&'static str),
    /// One or several texts; a flag with each.
    Each(&'static str),
    /// One or several texts; a flag with all of them, comma-separated.
    List(&'static str),
    /// An object or its JSON text; a flag with the text.
    Json(&'static str),
    /// true or a text; a flag with or without a value.
    Maybe(&'static str),
    /// true or false; a variable that is 1.
    Env(&'static str),
    /// true, false or a text; a variable.
    EnvText(&'static str),
    /// One of these words; a variable.
    EnvWord(&'static str, &'static [&'static str]),
    /// true; a member of the settings.
    Setting(&'static str),
    /// true; asked for when the conversation is opened.
    Hello,
    /// The measured version has no switch for it.
    Missing,
}

/// Every switch: key, form.
const SWITCHES: &[(&str, Form)] = &[
    ("agent", Form::Text("--agent")),
    ("agents", Form::Json("--agents")),
    ("bare", Form::Flag("--bare")),
    ("bedrockServiceTier", Form::EnvWord("ANTHROPIC_BEDROCK_SERVICE_TIER", &["default", "flex", "priority"])),
    ("betas", Form::List("--betas")),
    ("channels", Form::Each("--channels")),
    ("crossSessionInbound", Form::Missing),
    ("dangerouslyLoadDevelopmentChannels", Form::Each("--dangerously-load-development-channels")),
    ("debug", Form::Maybe("--debug")),
    ("debugFile", Form::Text("--debug-file")),
    ("enableAgentTeams", Form::Env("CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS")),
    ("enableAutoMode", Form::Flag("--enable-auto-mode")),
    ("enablePromptCaching1H", Form::Env("ENABLE_PROMPT_CACHING_1H")),
    ("enableToolSearch", Form::EnvText("ENABLE_TOOL_SEARCH")),
    ("excludeDynamicSystemPromptSections", Form::Flag("--exclude-dynamic-system-prompt-sections")),
    ("forkSubagent", Form::Env("CLAUDE_CODE_FORK_SUBAGENT")),
    ("forwardSubagentText", Form::Hello),
    ("fromPr", Form::Text("--from-pr")),
    ("includeHookEvents", Form::Flag("--include-hook-events")),
    ("otelLogRawApiBodies", Form::Env("OTEL_LOG_RAW_API_BODIES")),
    ("otelLogUserPrompts", Form::Env("OTEL_LOG_USER_PROMPTS")),
    ("permissionPromptTool", Form::Text("--permission-prompt-tool")),
    ("pluginUrl", Form::Each("--plugin-url")),
    ("restricted", Form::Flag("--safe-mode")),
    ("settings", Form::Json("--settings")),
    ("ultracode", Form::Setting("ultracode")),
    ("worktree", Form::Maybe("--worktree")),
];

/// Names of the switches.
pub(super) const KEYS: &[&str] = &[
    "agent",
    "agents",
    "bare",
    "bedrockServiceTier",
    "betas",
    "channels",
    "crossSessionInbound",
    "dangerouslyLoadDevelopmentChannels",
    "debug",
    "debugFile",
    "enableAgentTeams",
    "enableAutoMode",
    "enablePromptCaching1H",
    "enableToolSearch",
    "excludeDynamicSystemPromptSections",
    "forkSubagent",
    "forwardSubagentText",
    "fromPr",
    "includeHookEvents",
    "otelLogRawApiBodies",
    "otelLogUserPrompts",
    "permissionPromptTool",
    "pluginUrl",
    "restricted",
    "settings",
    "ultracode",
    "worktree",
];

fn form(key: &str) -> Option<Form> {
    SWITCHES.iter().find(|(name, _)| *name == key).map(|(_, form)| *form)
}

/// Texts of a value that is one or several.
fn texts(value: &Value) -> Option<Vec<&str>> {
    match value {
        Value::String(text) => Some(vec![text]),
        Value::Array(items) => items.iter().map(Value::as_str).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// A text that a program cannot take for a flag.
fn plain(text: &str) -> bool {
    !text.trim().is_empty() && !text.starts_with('-')
}

/// What is wrong with the switches and the options that lead to flags.
pub(super) fn problems(spec: &SessionSpec) -> Vec<String> {
    let mut found = Vec::new();
    for (key, value) in &spec.options.native {
        // Unknown ones are named by whoever knows the list.
        let Some(form) = form(key) else { continue };
        let good = match form {
            Form::Flag(_) | Form::Env(_) | Form::Setting(_) | Form::Hello => value.is_boolean(),
            Form::Text(_) => value.as_str().is_some_and(plain),
            Form::Each(_) | Form::List(_) => texts(value).is_some_and(|list| list.iter().all(|t| plain(t))),
            Form::Json(_) => value.is_object() || value.as_str().is_some_and(plain),
            Form::Maybe(_) => value.is_boolean() || value.as_str().is_some_and(plain),
            Form::EnvText(_) => value.is_boolean() || value.is_string(),
            Form::EnvWord(_, words) => value.as_str().is_some_and(|word| words.contains(&word)),
            Form::Missing => {
                found.push(format!("engineOptions.claude.{key}: this version of Claude Code has no switch for it"));
                continue;
            }
        };
        if !good {
            let wanted = match form {
                Form::Flag(_) | Form::Env(_) | Form::Setting(_) | Form::Hello => "true or false".to_owned(),
                Form::Text(_) => "a text".to_owned(),
                Form::Each(_) | Form::List(_) => "a text or a list of texts".to_owned(),
                Form::Json(_) => "an object, or the path of a file".to_owned(),
                Form::Maybe(_) | Form::EnvText(_) => "true, false or a text".to_owned(),
                Form::EnvWord(_, words) => format!("one of {}", words.join(", ")),
                Form::Missing => continue,
            };
            found.push(format!("engineOptions.claude.{key}: must be {wanted}"));
        }
    }
    for (name, list) in [
        ("allowedTools", &spec.options.allowed_tools),
        ("disallowedTools", &spec.options.disallowed_tools),
        ("mcpConfig", &spec.options.mcp_config),
    ] {
        if let Some(odd) = list.iter().find(|t| !plain(t)) {
            found.push(format!("{name}: '{odd}' is none of claude"));
        }
    }
    if spec.options.fallback_model.as_deref().is_some_and(|m| !plain(m)) {
        found.push("fallbackModel: must be a model name".to_owned());
    }
    if spec.options.sandbox == Some(SandboxMode::WorkspaceWrite)
        && mode(&spec.choice) == "bypassPermissions"
        && spec.choice.permission_mode.is_some()
    {
        found.push(
            "permissionMode: bypassPermissions does not keep claude inside its workspace; use acceptEdits".to_owned(),
        );
    }
    found
}

/// The permission mode in force.
pub(super) fn permission_mode(spec: &SessionSpec) -> &str {
    match spec.options.sandbox {
        Some(SandboxMode::ReadOnly) => "plan",
        Some(SandboxMode::WorkspaceWrite) if spec.choice.permission_mode.is_none() => "acceptEdits",
        Some(SandboxMode::WorkspaceWrite | SandboxMode::DangerFullAccess) | None => mode(&spec.choice),
    }
}

/// The arguments of a session. A resumed one does not remember mode, model or system prompt: all is restated.
pub(super) fn argv(spec: &SessionSpec) -> Vec<OsString> {
    // Messages come back when they are taken up, so that further input to a turn can be told from a turn of its own.
    let fixed = "-p --input-format stream-json --output-format stream-json --verbose --replay-user-messages";
    let mut args: Vec<OsString> = fixed.split(' ').map(Into::into).collect();
    let mut add = |flag: &str, value: &str| args.extend([flag.into(), value.into()]);
    let options = &spec.options;
    add("--permission-mode", permission_mode(spec));
    match &spec.resume {
        Some(id) => add("--resume", id),
        None => add("--session-id", &ids::uuid()),
    }
    if let Some(model) = &spec.choice.model {
        add("--model", model);
    }
    if let Some(effort) = spec.choice.effort.as_deref().filter(|e| *e != "auto") {
        add("--effort", effort);
    }
    if let Some(text) = &spec.append_system_prompt {
        add("--append-system-prompt", text);
    }
    if let Some(turns) = spec.max_turns {
        add("--max-turns", &turns.to_string());
    }
    if let Some(usd) = spec.max_budget_usd.filter(|usd| *usd > 0.0) {
        add("--max-budget-usd", &usd.to_string());
    }
    if let Some(model) = &options.fallback_model {
        add("--fallback-model", model);
    }
    if let Some(text) = &options.system_prompt {
        add("--system-prompt", text);
    }
    if let Some(schema) = &options.json_schema {
        add("--json-schema", &schema.to_string());
    }
    for dir in &options.add_dirs {
        add("--add-dir", &dir.to_string_lossy());
    }
    for file in &options.mcp_config {
        add("--mcp-config", file);
    }
    if !options.allowed_tools.is_empty() {
        add("--allowed-tools", &options.allowed_tools.join(","));
    }
    let mut taken: Vec<&str> = options.disallowed_tools.iter().map(String::as_str).collect();
    if options.sandbox == Some(SandboxMode::ReadOnly) {
        taken.push(WRITING_TOOLS);
    }
    if !taken.is_empty() {
        add("--disallowed-tools", &taken.join(","));
    }
    let mut settings = None;
    for (key, value) in &options.native {
        match form(key) {
            Some(Form::Text(flag)) => value.as_str().into_iter().for_each(|text| add(flag, text)),
            Some(Form::Each(flag)) => texts(value).into_iter().flatten().for_each(|text| add(flag, text)),
            Some(Form::List(flag)) => texts(value).into_iter().for_each(|list| add(flag, &list.join(","))),
            Some(Form::Json("--settings")) => settings = Some(value.clone()),
            Some(Form::Json(flag)) => add(flag, &text_of(value)),
            Some(Form::Maybe(flag)) => value.as_str().into_iter().for_each(|text| add(flag, text)),
            Some(
                Form::Flag(_)
                | Form::Env(_)
                | Form::EnvText(_)
                | Form::EnvWord(..)
                | Form::Setting(_)
                | Form::Hello
                | Form::Missing,
            )
            | None => {}
        }
    }
    if let Some(settings) = with_members(settings, spec) {
        add("--settings", &text_of(&settings));
    }
    for (key, value) in &options.native {
        if value == &Value::Bool(true)
            && let Some(Form::Flag(flag) | Form::Maybe(flag)) = form(key)
        {
            args.push(flag.into());
        }
    }
    if options.fork && spec.resume.is_some() {
        args.push("--fork-session".into());
    }
    if options.no_persistence {
        args.push("--no-session-persistence".into());
    }
    args.extend(options.extra_args.iter().map(OsString::from));
    args
}

/// The settings with what other switches add to them. A file cannot be added to and stays as it is.
fn with_members(settings: Option<Value>, spec: &SessionSpec) -> Option<Value> {
    let members = spec.options.native.iter().filter(|(_, value)| **value == Value::Bool(true));
    let members = members.filter_map(|(key, _)| match form(key) {
        Some(Form::Setting(member)) => Some(member),
        Some(_) | None => None,
    });
    let mut settings = settings.map(|value| match &value {
        Value::String(text) => serde_json::from_str::<Value>(text).ok().filter(Value::is_object).unwrap_or(value),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value,
    });
    for member in members {
        if let Value::Object(map) = settings.get_or_insert_with(|| json!({})) {
            map.insert(member.to_owned(), true.into());
        }
    }
    settings
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Variables that options lead to.
pub(super) fn env(spec: &SessionSpec) -> Vec<(&'static str, String)> {
    let mut vars = Vec::new();
    if let Some(url) = &spec.options.base_url {
        vars.push(("ANTHROPIC_BASE_URL", url.clone()));
    }
    for (key, value) in &spec.options.native {
        match form(key) {
            Some(Form::Env(name)) if value == &Value::Bool(true) => vars.push((name, "1".to_owned())),
            Some(Form::EnvText(name)) => vars.push((name, text_of(value))),
            Some(Form::EnvWord(name, _)) => vars.push((name, text_of(value))),
            Some(
                Form::Env(_)
                | Form::Flag(_)
                | Form::Text(_)
                | Form::Each(_)
                | Form::List(_)
                | Form::Json(_)
                | Form::Maybe(_)
                | Form::Setting(_)
                | Form::Hello
                | Form::Missing,
            )
            | None => {}
        }
    }
    vars
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{engines::SessionOptions, model::spec::EngineChoice};

    fn with(native: &Value, options: SessionOptions) -> SessionSpec {
        let native = native.as_object().unwrap().clone().into_iter().collect();
        SessionSpec { options: SessionOptions { native, ..options }, ..SessionSpec::default() }
    }

    fn flags(spec: &SessionSpec) -> String {
        argv(spec).into_iter().skip(11).map(|a| a.into_string().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_lists_of_switches_agree() {
        assert_eq!(SWITCHES.iter().map(|(key, _)| *key).collect::<Vec<_>>(), KEYS);
    }

    #[test]
    fn options_become_flags() {
        let options = SessionOptions {
            sandbox: Some(SandboxMode::ReadOnly),
            fallback_model: Some("haiku".into()),
            system_prompt: Some("Be.".into()),
            add_dirs: vec!["/a".into(), "/b".into()],
            allowed_tools: vec!["Read".into(), "Grep".into()],
            disallowed_tools: vec!["WebFetch".into()],
            json_schema: Some(json!({ "type": "object" })),
            mcp_config: vec!["m.json".into()],
            no_persistence: true,
            extra_args: vec!["--brief".into()],
            ..SessionOptions::default()
        };
        let native = json!({
            "bare": true, "restricted": false, "betas": ["x", "y"], "debug": true, "worktree": "w", "ultracode": true,
            "settings": { "a": 1 }, "pluginUrl": ["u", "v"], "enableAgentTeams": true, "bedrockServiceTier": "flex",
        });
        let spec = with(&native, options);
        assert_eq!(problems(&spec), Vec::<String>::new());
        assert_eq!(
            flags(&spec),
            "--fallback-model haiku --system-prompt Be. --json-schema {\"type\":\"object\"} --add-dir /a --add-dir /b \
             --mcp-config m.json --allowed-tools Read,Grep --disallowed-tools WebFetch,Bash,Edit,MultiEdit,NotebookEdit,Write \
             --betas x,y --plugin-url u --plugin-url v --worktree w --settings {\"a\":1,\"ultracode\":true} --bare --debug \
             --no-session-persistence --brief"
        );
        assert_eq!(permission_mode(&spec), "plan");
        assert_eq!(
            env(&spec),
            [
                ("ANTHROPIC_BEDROCK_SERVICE_TIER", "flex".to_owned()),
                ("CLAUDE_CODE_EXPERIMENTAL_AGENT_TEAMS", "1".to_owned())
            ]
        );
        let fork = SessionSpec {
            resume: Some("id".into()),
            options: SessionOptions { fork: true, base_url: Some("http://x".into()), ..SessionOptions::default() },
            ..SessionSpec::default()
        };
        assert_eq!(flags(&fork), "--fork-session");
        assert_eq!(env(&fork), [("ANTHROPIC_BASE_URL", "http://x".to_owned())]);
    }

    #[test]
    fn wrong_switches_are_named() {
        let native = json!({
            "bare": "yes", "agent": "-p", "betas": [1], "bedrockServiceTier": "fast", "crossSessionInbound": "hold", "agents": 3,
        });
        let mut spec =
            with(&native, SessionOptions { sandbox: Some(SandboxMode::WorkspaceWrite), ..SessionOptions::default() });
        spec.choice = EngineChoice { permission_mode: Some("bypassPermissions".into()), ..EngineChoice::default() };
        let found = problems(&spec).join("\n");
        for word in [
            "agent: must be a text",
            "bare: must be true",
            "betas: must be a text or",
            "one of default, flex",
            "no switch",
            "agents: must be an object",
            "permissionMode: ",
        ] {
            assert!(found.contains(word), "{word} is missing in {found}");
        }
        spec.choice.permission_mode = None;
        assert_eq!(permission_mode(&spec), "acceptEdits");
    }
}
