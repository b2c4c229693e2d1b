//! Programs of the caller's own, described by a config.
//!
//! A config can hold credentials, so it is never written to disk and never shown.

mod adapter;
mod read;
mod run;

use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc, time::Duration};

use crate::{config::Config, model::Code};
pub use adapter::Custom;
pub(super) use run::last_object;

/// Its name in specs.
pub const NAME: &str = "custom";

/// How the message gets to the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageVia {
    /// As its last argument.
    Arg,
    /// On its standard input, which is then closed.
    Stdin,
}

/// What its output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// All of it is the reply.
    Text,
    /// One JSON object.
    Json,
    /// JSON objects, one a line.
    Ndjson,
    /// The lines of Claude Code's stream-json protocol.
    Claude,
}

/// Where the numbers of a turn are; each a path of member names and indexes separated by dots.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct UsagePaths {
    /// Tokens read that were not cached.
    pub input: Option<String>,
    /// Tokens read from the cache.
    pub cached: Option<String>,
    /// Tokens written into the cache.
    pub cache_write: Option<String>,
    /// Tokens written.
    pub output: Option<String>,
    /// US dollars.
    pub cost: Option<String>,
}

/// US dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pricing {
    /// Read.
    pub input: f64,
    /// Read from the cache; like `input` when absent.
    pub cached: Option<f64>,
    /// Written.
    pub output: f64,
}

/// A described program.
#[derive(Clone)]
pub struct CustomEngine {
    /// Name in messages.
    pub name: String,
    /// Program, by path or by name on PATH.
    pub bin: Option<String>,
    /// Variable that names the program instead, when it is set.
    pub bin_env: Option<String>,
    /// Arguments of every start.
    pub args: Vec<String>,
    /// One process for the whole session instead of one a turn; with output `claude`.
    pub persistent: bool,
    /// Flag before the directory.
    pub cwd_flag: Option<String>,
    /// Flag before the model.
    pub model_flag: Option<String>,
    /// How it is told the message.
    pub message_via: MessageVia,
    /// What it says.
    pub output: Output,
    /// Where the reply is.
    pub text_path: Option<String>,
    /// Where the id of the conversation is.
    pub id_path: Option<String>,
    /// Where its numbers are.
    pub usage_paths: UsagePaths,
    /// Flag before the id of the conversation to go on with.
    pub resume_flag: Option<String>,
    /// Arguments of each permission mode.
    pub permission_modes: BTreeMap<String, Vec<String>>,
    /// Arguments of each sandbox mode.
    pub sandbox_modes: BTreeMap<String, Vec<String>>,
    /// Arguments of each effort.
    pub efforts: BTreeMap<String, Vec<String>>,
    /// Variables for it.
    pub env: BTreeMap<String, String>,
    /// Longest turn.
    pub timeout: Option<Duration>,
    /// What its tokens cost.
    pub pricing: Option<Pricing>,
}

impl fmt::Debug for CustomEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CustomEngine").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for UsagePaths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UsagePaths")
    }
}

/// What is wrong with a config, each with its path. Never tells a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(|(path, problem)| format!("{path}: {problem}")).collect::<Vec<_>>().join("; "))]
pub struct ConfigProblems(pub Vec<(String, String)>);

/// Why a reference leads to no engine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefError {
    /// The variable is not set.
    #[error("no custom engine is in the variable {variable}; set it for the server and call again")]
    Unknown {
        /// The variable.
        variable: String,
    },
    /// It holds something else.
    #[error("the variable {variable} holds no custom engine: {problem}")]
    Invalid {
        /// The variable.
        variable: String,
        /// What is wrong, without any value.
        problem: String,
    },
}

impl RefError {
    /// Its stable code.
    pub fn code(&self) -> Code {
        match self {
            Self::Unknown { .. } => Code::CustomEngineRefUnknown,
            Self::Invalid { .. } => Code::CustomEngineRefInvalid,
        }
    }
}

/// How the names of the variables begin that hold configs. No child process gets them.
pub const VARIABLE: &str = "CLAWO_CUSTOM_ENGINE_";

/// The variable a reference stands for.
pub fn variable(reference: &str) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("{VARIABLE}{}", reference.chars().map(word).collect::<String>())
}

/// The engine behind a reference, out of the environment the server was started with.
pub fn by_reference(env: &BTreeMap<String, String>, reference: &str) -> Result<Arc<CustomEngine>, RefError> {
    let variable = variable(reference);
    let Some(text) = env.get(&variable).filter(|text| !text.trim().is_empty()) else {
        return Err(RefError::Unknown { variable });
    };
    // What a parser says of broken JSON could repeat a part of it.
    let Ok(value) = serde_json::from_str(text) else {
        return Err(RefError::Invalid { variable, problem: "it is not JSON".to_owned() });
    };
    match CustomEngine::read(&value) {
        Ok(engine) => Ok(Arc::new(engine)),
        Err(problems) => Err(RefError::Invalid { variable, problem: problems.to_string() }),
    }
}

impl CustomEngine {
    /// The program, as set by its variable, else by itself.
    fn program(&self, config: &Config) -> Option<PathBuf> {
        let set = self.bin_env.as_ref().and_then(|name| config.env.get(name)).filter(|v| !v.is_empty());
        crate::sys::command::find(set.or(self.bin.as_ref())?)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// SE-1: what a config holds is in no debug output.
    #[test]
    fn nothing_of_a_config_is_shown() {
        let value = json!({ "name": "mine", "bin": "sh", "args": ["--key", "canary"], "output": "text", "env": { "K": "canary" } });
        let engine = CustomEngine::read(&value).unwrap();
        let shown = format!("{engine:?} {:?}", Arc::new(engine.clone()));
        assert!(!shown.contains("canary") && shown.contains("mine"), "{shown}");
    }

    /// Acceptance 14 of the surfaces: a reference reads the variable of its name; errors name it and never its value.
    #[test]
    fn references_are_variables() {
        assert_eq!(variable("my-eng.1"), "CLAWO_CUSTOM_ENGINE_MY_ENG_1");
        let mut env = BTreeMap::new();
        let error = by_reference(&env, "my-eng.1").unwrap_err();
        assert_eq!(
            (error.code(), error.to_string().contains("CLAWO_CUSTOM_ENGINE_MY_ENG_1")),
            (Code::CustomEngineRefUnknown, true)
        );
        for bad in ["{canary", "[\"canary\"]", r#"{"name":"x","bin":"canary","output":"canary"}"#] {
            env.insert("CLAWO_CUSTOM_ENGINE_X".into(), bad.into());
            let error = by_reference(&env, "x").unwrap_err();
            assert_eq!(error.code(), Code::CustomEngineRefInvalid);
            assert!(!error.to_string().contains("canary"), "{error}");
        }
        env.insert("CLAWO_CUSTOM_ENGINE_X".into(), r#"{"name":"x","bin":"sh","output":"text"}"#.into());
        assert_eq!(by_reference(&env, "x").unwrap().name, "x");
    }
}
