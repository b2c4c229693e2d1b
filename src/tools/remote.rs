//! What a caller over a network may not give: programs to run, anywhere in its arguments.

use serde_json::Value;

use super::{args::shown, schema::Object};
use crate::{kernel::Error, model::Code};

/// Key of switches that are passed to a program as they are.
const EXTRA_ARGS: &str = "extraArgs";
/// Key below which engines have their switches.
const ENGINE_OPTIONS: &str = "engineoptions";
/// Deepest nesting that is looked into; what is deeper is refused.
const DEPTH_MAX: usize = 64;

/// Refuses arguments that describe a program.
pub(super) fn check(args: &Object) -> Result<(), Error> {
    for (key, value) in args {
        if let Some(path) = found(key, value, shown(key), 1, false) {
            let text = format!("{path}: a program is not taken from a caller over HTTP");
            return Err(Error::new(Code::CustomEngineRemote, text));
        }
    }
    Ok(())
}

/// The path of the first description of a program at or below `value`, which stands under `key`.
fn found(key: &str, value: &Value, path: String, depth: usize, in_options: bool) -> Option<String> {
    if depth > DEPTH_MAX {
        return Some(path);
    }
    if in_options && key == EXTRA_ARGS {
        return Some(path);
    }
    if is_custom(key)
        && let Some(program) = described(value, path.clone(), depth)
    {
        return Some(program);
    }
    match value {
        Value::Object(map) => {
            let in_options = in_options || key.to_ascii_lowercase().replace(['_', '-'], "") == ENGINE_OPTIONS;
            map.iter().find_map(|(k, v)| found(k, v, format!("{path}.{}", shown(k)), depth + 1, in_options))
        }
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(i, v)| found("", v, format!("{path}[{i}]"), depth + 1, in_options))
        }
        // Arguments are read leniently: an object may come as its JSON text.
        Value::String(text) if text.trim_start().starts_with(['{', '[']) => match serde_json::from_str::<Value>(text) {
            Ok(inner) => found(key, &inner, path, depth + 1, in_options),
            Err(_) => None,
        },
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// `customEngine`, `custom_engines`, `plannerCustomEngine` and the like.
fn is_custom(key: &str) -> bool {
    let plain = key.to_ascii_lowercase();
    let plain = plain.strip_suffix('s').unwrap_or(&plain);
    ["customengine", "custom_engine", "custom-engine"].iter().any(|end| plain.ends_with(end))
}

/// The path of the first object at or below `value` that names a program.
fn described(value: &Value, path: String, depth: usize) -> Option<String> {
    if depth > DEPTH_MAX {
        return Some(path);
    }
    match value {
        Value::Object(map) => {
            if ["bin", "binEnv"].iter().any(|key| map.get(*key).is_some_and(Value::is_string)) {
                return Some(path);
            }
            map.iter().find_map(|(k, v)| described(v, format!("{path}.{}", shown(k)), depth + 1))
        }
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(i, v)| described(v, format!("{path}[{i}]"), depth + 1))
        }
        Value::String(text) if text.trim_start().starts_with(['{', '[']) => {
            serde_json::from_str::<Value>(text).ok().and_then(|inner| described(&inner, path, depth + 1))
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(args: Value) -> Option<String> {
        let Value::Object(map) = args else { panic!("an object") };
        check(&map).err().map(|e| {
            assert_eq!(e.code, Code::CustomEngineRemote);
            e.message.split(": ").next().unwrap().to_owned()
        })
    }

    /// Surfaces 13: a program is found at any depth, whatever the key around it is called; names of presets pass.
    #[test]
    fn programs_are_found_at_any_depth() {
        let deep = json!({ "spec": { "nodes": [{ "x": [{ "agentCustomEngines": { "a": { "bin": "/bin/sh" } } }] }] } });
        assert_eq!(refused(deep).as_deref(), Some("spec.nodes[0].x[0].agentCustomEngines.a"));
        let mut nested = json!({ "customEngine": { "binEnv": "X" } });
        for _ in 0..59 {
            nested = json!({ "a": nested });
        }
        assert!(refused(nested).is_some());
        for bad in [
            json!({ "planner_custom_engine": { "x": [{ "bin": "a" }] } }),
            json!({ "CUSTOM-ENGINE": { "bin": "a" } }),
            json!({ "customEngine": "{\"bin\": \"a\"}" }),
            json!({ "spec": "{\"customEngine\": {\"bin\": \"a\"}}" }),
            json!({ "engineOptions": { "claude": { "extraArgs": [] } } }),
        ] {
            assert!(refused(bad.clone()).is_some(), "{bad}");
        }
        for good in [
            json!({ "customEngine": "preset-id" }),
            json!({ "tools": [{ "inputSchema": { "customEngine": { "bin": { "type": "string" } } } }] }),
            json!({ "bin": "/bin/sh", "message": "{ not json", "extraArgs": [] }),
        ] {
            assert_eq!(refused(good.clone()), None, "{good}");
        }
    }
}
