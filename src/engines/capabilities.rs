//! What engines can do, and what becomes of options they cannot follow: refused or reported, never dropped.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Engine, SessionSpec, account::Counting};
use crate::model::spec::SandboxMode;

/// What an engine can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Capabilities {
    /// Conversations can be resumed by id.
    pub resume: bool,
    /// A text can be added to the system prompt; elsewhere it is put in front of the first message.
    pub append_system_prompt: bool,
    /// It can be held from writing by its own means.
    pub read_only: bool,
    /// A turn can be interrupted over the protocol, and the session lives on.
    pub interrupt: bool,
    /// A running turn takes further input.
    pub steer: bool,
    /// A conversation can be shortened.
    pub compact: bool,
    /// It follows goals.
    pub goals: bool,
    /// It reports its own cost.
    pub own_cost: bool,
    /// What its numbers are totals of.
    pub counting: Counting,
    /// Efforts it takes, from low to high; empty when it takes none.
    pub efforts: &'static [&'static str],
    /// Permission modes it takes; empty when it takes none.
    pub permission_modes: &'static [&'static str],
    /// Its conversations were recorded and its program is driven by our tests.
    pub verified: bool,
}

macro_rules! options {
    ($($name:ident $text:literal $set:expr),+ $(,)?) => {
        /// An option of a session that not every engine has.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Opt { $(#[doc = $text] $name),+ }
        impl Opt {
            /// All of them.
            pub const ALL: &'static [Opt] = &[$(Opt::$name),+];
            /// Its name in `session_start`.
            pub fn name(self) -> &'static str { match self { $(Opt::$name => $text),+ } }
            /// Whether `spec` has it set.
            pub fn is_set(self, spec: &SessionSpec) -> bool { match self { $(Opt::$name => ($set)(spec)),+ } }
        }
    };
}

options! {
    FallbackModel "fallbackModel" |s: &SessionSpec| s.options.fallback_model.is_some(),
    Effort "effort" |s: &SessionSpec| s.choice.effort.as_deref().is_some_and(|e| e != "auto"),
    PermissionMode "permissionMode" |s: &SessionSpec| s.choice.permission_mode.is_some(),
    WorkspaceWrite "sandboxMode: workspace-write" |s: &SessionSpec| s.options.sandbox == Some(SandboxMode::WorkspaceWrite),
    DangerFullAccess "sandboxMode: danger-full-access" |s: &SessionSpec| s.options.sandbox == Some(SandboxMode::DangerFullAccess),
    ReadOnly "sandboxMode: read-only" |s: &SessionSpec| s.options.sandbox == Some(SandboxMode::ReadOnly),
    SystemPrompt "systemPrompt" |s: &SessionSpec| s.options.system_prompt.is_some(),
    AppendSystemPrompt "appendSystemPrompt" |s: &SessionSpec| s.append_system_prompt.is_some(),
    AddDir "addDir" |s: &SessionSpec| !s.options.add_dirs.is_empty(),
    AllowedTools "allowedTools" |s: &SessionSpec| !s.options.allowed_tools.is_empty(),
    DisallowedTools "disallowedTools" |s: &SessionSpec| !s.options.disallowed_tools.is_empty(),
    MaxTurns "maxTurns" |s: &SessionSpec| s.max_turns.is_some(),
    JsonSchema "jsonSchema" |s: &SessionSpec| s.options.json_schema.is_some(),
    McpConfig "mcpConfig" |s: &SessionSpec| !s.options.mcp_config.is_empty(),
    Resume "resumeSessionId" |s: &SessionSpec| s.resume.is_some(),
    Fork "forkSession" |s: &SessionSpec| s.options.fork,
    NoPersistence "noSessionPersistence" |s: &SessionSpec| s.options.no_persistence,
    BaseUrl "baseUrl" |s: &SessionSpec| s.options.base_url.is_some(),
    ExtraArgs "extraArgs" |s: &SessionSpec| !s.options.extra_args.is_empty(),
}

/// What an engine does with an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// Follows it.
    Native,
    /// The pool puts the text in front of the first message.
    InMessage,
    /// Has nothing like it; the session starts and the caller is told.
    Ignored,
    /// Cannot do without; the session does not start.
    Refused,
}

/// Levels of effort, from low to high. Engines know a part of them.
const LEVELS: &[&str] = &["low", "medium", "high", "xhigh", "max", "ultra"];

/// What an engine that knows `known`, from low to high, makes of `asked`: the same, or its highest when `asked` is
/// above it; `None` when it is no level.
pub(crate) fn level(known: &'static [&'static str], asked: &str) -> Option<&'static str> {
    let place = |word: &str| LEVELS.iter().position(|l| *l == word);
    if let Some(same) = known.iter().find(|k| **k == asked) {
        return Some(same);
    }
    let highest = known.last()?;
    (place(asked)? > place(highest)?).then_some(highest)
}

/// Lowers an effort above what the engine has; returns what its caller should know.
pub(super) fn lower_effort(engine: &dyn Engine, spec: &mut SessionSpec) -> Option<String> {
    let asked = spec.choice.effort.clone()?;
    let lower = level(engine.capabilities().efforts, &asked).filter(|level| *level != asked)?;
    spec.choice.effort = Some(lower.to_owned());
    Some(format!("{} has no effort {asked}; it is lowered to {lower}", engine.name()))
}

/// What is to be said about a spec before anything starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Examined {
    /// Reasons not to start.
    pub problems: Vec<String>,
    /// Things to know.
    pub warnings: Vec<String>,
}

/// Looks at a whole spec.
pub fn examine(engine: &dyn Engine, spec: &SessionSpec) -> Examined {
    let name = engine.name();
    let mut found = Examined { problems: engine.check(&spec.choice), warnings: Vec::new() };
    for option in Opt::ALL.iter().filter(|o| o.is_set(spec)) {
        let text = option.name();
        match engine.support(*option) {
            Support::Native | Support::InMessage => {}
            Support::Ignored => found.warnings.push(format!("{name} has nothing like {text}; it is ignored")),
            Support::Refused => {
                found.problems.push(format!("{name} cannot follow {text}; leave it out or use another engine"));
            }
        }
    }
    if let Some(asked) = spec.choice.effort.as_deref()
        && let Some(used) = level(engine.capabilities().efforts, asked)
        && used != asked
    {
        found.warnings.push(format!("{name} has no effort {asked}; {used} is its highest and is used"));
    }
    let keys = engine.native_keys();
    for key in spec.options.native.keys().filter(|k| !keys.contains(&k.as_str())) {
        let known = if keys.is_empty() { "it has none".to_owned() } else { format!("use {}", keys.join(", ")) };
        found.problems.push(format!("{name} has no engine option `{key}`; {known}"));
    }
    found.problems.extend(engine.check_spec(spec));
    found
}

#[cfg(test)]
mod tests {
    use super::level;

    /// Efforts above an engine's highest are lowered to it; words and levels it skips are not made up.
    #[test]
    fn efforts_are_lowered_to_the_highest() {
        let known = &["low", "medium", "high", "xhigh"];
        for (asked, want) in [("low", Some("low")), ("ultra", Some("xhigh")), ("auto", None), ("turbo", None)] {
            assert_eq!(level(known, asked), want, "{asked}");
        }
        assert_eq!((level(&["low", "high"], "medium"), level(&[], "low")), (None, None));
    }
}
