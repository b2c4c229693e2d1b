//! What tools share that start a run of one node: everything a caller said is judged at once, and every problem is told
//! by the name the caller knows.

use std::{path::PathBuf, sync::Arc};

use serde_json::{Map, Value, json};

use super::args::Problems;
use crate::{
    engines::custom::{self, CustomEngine},
    kernel::{Error, Kernel, Source, StartRequest, Started},
    model::{Code, Problem},
    nodes::Customs,
};

/// Looks at a request; each look leaves out what the one before complained about.
const LOOKS: u32 = 4;
/// Where a spec has the one node.
const NODE: &str = "nodes[0].";

/// A run of one node that is about to be started.
#[derive(Debug)]
pub(super) struct Draft {
    /// Name of the workflow, and what the id of the run begins with.
    pub(super) kind: &'static str,
    /// The node's fields besides its id.
    pub(super) node: Map<String, Value>,
    /// Directory; nothing when what was given is none.
    pub(super) cwd: Option<PathBuf>,
    /// Name of the argument with the directory.
    pub(super) cwd_field: &'static str,
    /// The contract as it was given.
    pub(super) contract: Option<Value>,
    /// The same key within a day means the same run.
    pub(super) idempotency_key: Option<String>,
    /// Run of the caller.
    pub(super) parent: Option<String>,
    /// Programs of `custom` agents.
    pub(super) customs: Customs,
}

/// Where the caller finds a problem of the kernel, and the code of one that stands alone.
pub(super) type Place<'a> = &'a (dyn Fn(&Problem) -> (Code, String) + Sync);

impl Draft {
    fn request(&self) -> StartRequest {
        let mut node = self.node.clone();
        node.insert("id".to_owned(), json!("main"));
        StartRequest {
            source: Source::Tool(self.kind, json!({ "name": self.kind, "nodes": [node] })),
            cwd: self.cwd.clone(),
            run_id: None,
            contract: self.contract.clone(),
            auto_resume: false,
            idempotency_key: self.idempotency_key.clone(),
            parent: self.parent.clone(),
            customs: self.customs.clone(),
        }
    }

    /// Starts the run, or tells everything that is wrong: what `problems` holds already and what the kernel finds.
    pub(super) async fn start(
        self,
        kernel: &Kernel,
        mut problems: Problems,
        place: Option<Place<'_>>,
    ) -> Result<Started, Error> {
        let own = |problem: &Problem| self::place(problem, self.cwd_field);
        let place = place.unwrap_or(&own);
        let mut request = self.request();
        // A directory that is refused in any case stands in for one that was told already, so that the rest is judged.
        request.cwd.get_or_insert_with(|| PathBuf::from("/"));
        for _ in 0..LOOKS {
            let found = kernel.validate(request.clone()).await.errors;
            let mut again = false;
            for problem in &found {
                let (code, path) = place(problem);
                if !told(&problems, &path) && (self.cwd.is_some() || path != self.cwd_field) {
                    let message = problem.message.strip_suffix(&format!(" ({code})"));
                    problems.say(code, &path, message.unwrap_or(&problem.message));
                }
                // What stands behind a problem of shape shows only without it.
                again |= without(&mut request, &problem.path);
            }
            if !again {
                break;
            }
        }
        problems.into_result()?;
        let mut started = kernel.start(self.request()).await?;
        for warning in &mut started.warnings {
            warning.path = place(warning).1;
        }
        Ok(started)
    }
}

/// Whether something was said about this already: at its place, or about the program that an agent's engine is.
fn told(problems: &Problems, path: &str) -> bool {
    let program = path.strip_suffix(".engine").is_some_and(|agent| {
        problems.names(&format!("{agent}.customEngine")) || problems.names(&format!("{agent}.customEngineRef"))
    });
    program || problems.names(path)
}

/// The place of a problem when it is an argument of the same name, a part of the contract, or the directory.
pub(super) fn place(problem: &Problem, cwd_field: &str) -> (Code, String) {
    let path = problem.path.strip_prefix(NODE).unwrap_or(&problem.path);
    if path == "cwd" {
        let codes = [Code::PathNotFound, Code::PathNotDirectory, Code::PathRefused];
        let code = codes.into_iter().find(|code| problem.message.ends_with(&format!("({code})")));
        return (code.unwrap_or(Code::InvalidArgument), cwd_field.to_owned());
    }
    let contract = path == "contract" || path.starts_with("contract.");
    (if contract { Code::ContractInvalid } else { Code::InvalidArgument }, path.to_owned())
}

/// Takes a field of the node, or the contract, out of a request; false when there is nothing to be taken.
fn without(request: &mut StartRequest, path: &str) -> bool {
    if path == "contract" || path.starts_with("contract.") {
        return request.contract.take().is_some();
    }
    let (Some(path), Source::Tool(_, spec)) = (path.strip_prefix(NODE), &mut request.source) else { return false };
    let pointer = format!("/nodes/0/{}", path.replace("].", "/").replace(['[', '.'], "/").replace(']', ""));
    let Some((above, key)) = pointer.rsplit_once('/') else { return false };
    // Nobody can do without these, so they are made good before.
    if matches!(key, "name" | "prompt" | "agents") {
        return false;
    }
    spec.pointer_mut(above).and_then(Value::as_object_mut).is_some_and(|map| map.remove(key).is_some())
}

/// Tells of a required argument that is missing, unless what is wrong with it was told already.
fn required(field: &str, problems: &mut Problems) {
    if !problems.names(field) {
        problems.add(field, "is required");
    }
}

/// A required text of the arguments with its ends trimmed, of `least` to `most` characters.
pub(super) fn words(
    args: &Map<String, Value>,
    field: &str,
    (least, most): (usize, usize),
    problems: &mut Problems,
) -> Option<String> {
    let Some(text) = args.get(field).and_then(Value::as_str).map(str::trim) else {
        required(field, problems);
        return None;
    };
    let length = text.chars().count();
    if (least..=most).contains(&length) {
        return Some(text.to_owned());
    }
    problems.add(field, format!("give {least} to {most} characters, not {length}"));
    None
}

/// A required directory of the arguments.
pub(super) fn directory(args: &Map<String, Value>, field: &str, problems: &mut Problems) -> Option<PathBuf> {
    let Some(text) = args.get(field).and_then(Value::as_str).map(str::trim) else {
        required(field, problems);
        return None;
    };
    match super::start_args::absolute(field, text) {
        Ok(path) => Some(path),
        Err(e) => {
            let told = e.message.strip_prefix(&format!("{field}: ")).unwrap_or(&e.message).to_owned();
            problems.add(field, told);
            None
        }
    }
}

/// The idempotency key of the arguments.
pub(super) fn key(args: &Map<String, Value>) -> Option<String> {
    args.get("idempotencyKey").and_then(Value::as_str).map(str::to_owned)
}

/// Takes the description of an agent's program, or the reference to one, out of the agent. No value is in any message.
pub(super) fn program(
    kernel: &Kernel,
    agent: &mut Map<String, Value>,
    at: &str,
    local: bool,
    problems: &mut Problems,
) -> Option<Arc<CustomEngine>> {
    let described = agent.remove("customEngine").filter(|v| !v.is_null());
    let reference = agent.remove("customEngineRef").filter(|v| !v.is_null());
    let (inline, by_ref) = (format!("{at}.customEngine"), format!("{at}.customEngineRef"));
    let custom = agent.get("engine").and_then(Value::as_str) == Some(custom::NAME);
    match (described, reference) {
        (None, None) => {
            if custom {
                problems.add(&inline, "engine custom needs customEngine or customEngineRef");
            }
            None
        }
        (Some(_), Some(_)) => {
            problems.add(&by_ref, "give customEngine or customEngineRef, not both");
            None
        }
        (Some(_), None) if !local => {
            problems.say(Code::CustomEngineRemote, &inline, "a program is not taken from a caller over HTTP");
            None
        }
        (given, _) if !custom => {
            let path = if given.is_some() { &inline } else { &by_ref };
            problems.add(path, "belongs to engine custom; name that engine, or leave it out");
            None
        }
        (Some(value), _) => {
            // Arguments are read leniently: an object may come as its JSON text.
            let parsed = value.as_str().and_then(|text| serde_json::from_str(text).ok());
            match CustomEngine::read(&parsed.unwrap_or(value)) {
                Ok(engine) => Some(Arc::new(engine)),
                Err(found) => {
                    for (path, problem) in found.0 {
                        let path = if path == "customEngine" { inline.clone() } else { format!("{inline}.{path}") };
                        problems.add(&path, problem);
                    }
                    None
                }
            }
        }
        (None, Some(reference)) => match reference.as_str() {
            Some(name) => match custom::by_reference(&kernel.services().config.env, name.trim()) {
                Ok(engine) => Some(engine),
                Err(e) => {
                    problems.say(e.code(), &by_ref, e.to_string());
                    None
                }
            },
            None => {
                problems.add(&by_ref, "must be a text");
                None
            }
        },
    }
}
