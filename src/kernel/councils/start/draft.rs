//! From what a caller gave to a spec of one node, with programs kept apart: a spec is written to disk.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use serde_json::{Map, Value, json};

use super::{CouncilDraft, NODE, WORKFLOW};
use crate::{
    engines::custom::{self, CustomEngine},
    kernel::{Error, Result},
    model::{Code, Problem},
    nodes::{Customs, council::team},
};

/// Longest reference to a custom engine.
const REF_MAX: usize = 128;
/// How the paths of the node's fields begin.
const NODE_PATH: &str = "nodes[0].";
/// The only engine that knows ultracode.
const ULTRACODE: &str = "claude";

/// A draft that was read.
pub(super) struct Read {
    /// The spec.
    pub(super) spec: Value,
    /// What is not in it.
    pub(super) rest: Rest,
    /// What is wrong so far, each with the code it would have alone.
    pub(super) problems: Vec<(Code, Problem)>,
    /// What the caller should know.
    pub(super) notes: Vec<String>,
    /// Whether uncommitted changes are no obstacle.
    pub(super) allow_dirty: bool,
}

/// What goes beside the spec.
pub(super) struct Rest {
    pub(super) project_dir: Option<PathBuf>,
    pub(super) contract: Option<Value>,
    pub(super) idempotency_key: Option<String>,
    pub(super) parent: Option<String>,
    pub(super) customs: Customs,
}

/// Takes what was not said from the former council's node.
pub(super) fn inherit(fields: &mut Map<String, Value>, problems: &[Problem], former: Option<&Value>) {
    for key in ["task", "agents"] {
        let said = fields.contains_key(key) || problems.iter().any(|problem| problem.path == key);
        if let Some(value) = former.and_then(|node| node.get(key)).filter(|_| !said) {
            fields.insert(key.to_owned(), value.clone());
        }
    }
}

/// Reads a draft.
pub(super) fn read(draft: CouncilDraft, env: &BTreeMap<String, String>) -> Result<Read> {
    let CouncilDraft { mut fields, project_dir, contract, idempotency_key, parent, local, problems } = draft;
    let mut problems: Vec<(Code, Problem)> = problems.into_iter().map(|p| (Code::InvalidArgument, p)).collect();
    let mut notes = Vec::new();
    let known = |path: &str, problems: &[(Code, Problem)]| problems.iter().any(|(_, p)| p.path == path);
    if !fields.contains_key("agents") && !known("agents", &problems) {
        let team = team::default_team().into_iter();
        let team = team.map(|(name, emoji, persona)| json!({ "name": name, "emoji": emoji, "persona": persona }));
        fields.insert("agents".to_owned(), team.collect());
    }
    let mut customs = BTreeMap::new();
    let agents = fields.get_mut("agents").and_then(Value::as_array_mut).into_iter().flatten();
    for (index, agent) in agents.enumerate() {
        let Some(agent) = agent.as_object_mut() else { continue };
        let at = format!("agents[{index}]");
        let said = |key: &str| agent.get(key).and_then(Value::as_str).map(str::to_owned);
        let name = said("name").unwrap_or_default();
        let ultracode = agent.get("ultracode").and_then(Value::as_bool) == Some(true);
        if ultracode && said("engine").is_some_and(|engine| engine != ULTRACODE) {
            notes.push(format!("{at}.ultracode: only engine claude has it; it is ignored for '{name}'"));
        }
        if let Some(engine) = program(agent, &at, local, env, &mut problems)? {
            agent.entry("engine").or_insert_with(|| json!(custom::NAME));
            customs.insert(name, engine);
        }
    }
    if project_dir.is_none() && !known("projectDir", &problems) {
        let missing = Problem::new("projectDir", "is required; give the absolute path of a git work tree");
        problems.push((Code::InvalidArgument, missing));
    }
    let allow_dirty = fields.get("allowDirty").and_then(Value::as_bool).unwrap_or(false);
    let mut node = fields;
    node.insert("id".to_owned(), json!(NODE));
    node.insert("kind".to_owned(), json!("council"));
    Ok(Read {
        spec: json!({ "name": WORKFLOW, "nodes": [node] }),
        rest: Rest { project_dir, contract, idempotency_key, parent, customs: Arc::new(customs) },
        problems,
        notes,
        allow_dirty,
    })
}

/// Takes the description of a member's program out of its entry.
fn program(
    agent: &mut Map<String, Value>,
    at: &str,
    local: bool,
    env: &BTreeMap<String, String>,
    problems: &mut Vec<(Code, Problem)>,
) -> Result<Option<Arc<CustomEngine>>> {
    let inline = agent.remove("customEngine").filter(|value| !value.is_null());
    let reference = agent.remove("customEngineRef").filter(|value| !value.is_null());
    let mut wrong = |code: Code, path: String, why: String| problems.push((code, Problem::new(path, why)));
    let custom = agent.get("engine").and_then(Value::as_str).is_none_or(|engine| engine == custom::NAME);
    if (inline.is_some() || reference.is_some()) && !custom {
        let path = format!("{at}.engine");
        wrong(Code::InvalidArgument, path, "must be custom where an engine of your own is described".to_owned());
        return Ok(None);
    }
    match (inline, reference) {
        (None, None) => {
            if agent.get("engine").and_then(Value::as_str) == Some(custom::NAME) {
                let path = format!("{at}.customEngine");
                wrong(Code::InvalidArgument, path, "is required for engine custom, or customEngineRef".to_owned());
            }
            Ok(None)
        }
        (Some(_), Some(_)) => {
            let path = format!("{at}.customEngineRef");
            wrong(Code::InvalidArgument, path, "give this or customEngine, not both".to_owned());
            Ok(None)
        }
        (Some(_), None) if !local => {
            let text = format!("{at}.customEngine: a program is not taken from a caller over HTTP");
            Err(Error::new(Code::CustomEngineRemote, text))
        }
        (Some(value), None) => {
            // A description may come as its JSON text.
            let text = value.as_str().map(|text| serde_json::from_str(text).unwrap_or(Value::Null));
            let value = text.unwrap_or(value);
            match CustomEngine::read(&value) {
                Ok(engine) => Ok(Some(Arc::new(engine))),
                Err(found) => {
                    for (path, why) in found.0 {
                        let below = if path.is_empty() { String::new() } else { format!(".{path}") };
                        wrong(Code::InvalidArgument, format!("{at}.customEngine{below}"), why);
                    }
                    Ok(None)
                }
            }
        }
        (None, Some(reference)) => {
            let path = format!("{at}.customEngineRef");
            let Some(word) = reference.as_str().filter(|word| !word.is_empty() && word.len() <= REF_MAX) else {
                wrong(Code::InvalidArgument, path, format!("must be a reference of 1 to {REF_MAX} characters"));
                return Ok(None);
            };
            match custom::by_reference(env, word) {
                Ok(engine) => Ok(Some(engine)),
                Err(e) => {
                    wrong(e.code(), path, e.to_string());
                    Ok(None)
                }
            }
        }
    }
}

/// A problem of the spec as one of the caller's own fields, with the code it would have alone.
pub(super) fn own_words(problem: Problem) -> (Code, Problem) {
    let Problem { path, message } = problem;
    let path = match path.strip_prefix(NODE_PATH) {
        Some(own) => own.to_owned(),
        None if path == "cwd" => "projectDir".to_owned(),
        None => path,
    };
    if path.starts_with("contract") {
        return (Code::ContractInvalid, Problem::new(path, message));
    }
    for code in [Code::PathNotFound, Code::PathNotDirectory, Code::PathRefused] {
        if let Some(message) = message.strip_suffix(&format!(" ({code})")) {
            return (code, Problem::new(path, message));
        }
    }
    (Code::InvalidArgument, Problem::new(path, message))
}
