//! A validator for the part of JSON Schema that our cleaned schemas use, and the check of a tool's result with it.

use claw_orchestrator::tools::Registry;
use serde_json::Value;

/// Keywords that say something about a value. Others in a schema are remarks, or bounds of arguments.
const UNDERSTOOD: [&str; 6] = ["type", "properties", "required", "items", "enum", "additionalProperties"];
const REMARKS: [&str; 8] =
    ["description", "default", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"];

/// The first place where `value` does not fit `schema`; `at` names the root.
pub fn misfit(schema: &Value, value: &Value, at: &str) -> Option<String> {
    for word in schema.as_object().unwrap_or_else(|| panic!("{at}: {schema} is no schema")).keys() {
        let known = UNDERSTOOD.contains(&word.as_str()) || REMARKS.contains(&word.as_str());
        assert!(known, "{at}: the validator does not know '{word}'");
    }
    let fits = match schema["type"].as_str().unwrap_or_else(|| panic!("{at}: no type")) {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{at}: type '{other}'"),
    };
    if !fits {
        return Some(format!("{at}: {value} is not {}", schema["type"]));
    }
    if let Some(words) = schema.get("enum")
        && !words.as_array().unwrap().contains(value)
    {
        return Some(format!("{at}: {value} is not one of {words}"));
    }
    for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
        if value.get(name.as_str().unwrap()).is_none() {
            return Some(format!("{at}: {name} is missing"));
        }
    }
    match value {
        Value::Array(items) => {
            let rule = schema.get("items")?;
            items.iter().enumerate().find_map(|(i, item)| misfit(rule, item, &format!("{at}[{i}]")))
        }
        Value::Object(fields) => fields.iter().find_map(|(name, field)| {
            let at = format!("{at}.{name}");
            match (schema.get("properties").and_then(|p| p.get(name)), schema.get("additionalProperties")) {
                (Some(rule), _) => misfit(rule, field, &at),
                (None, Some(Value::Bool(false))) => Some(format!("{at}: is not allowed")),
                (None, Some(rule @ Value::Object(_))) => misfit(rule, field, &at),
                (None, _) => None,
            }
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Fields of `value` that the schema's root does not describe.
pub fn undescribed(schema: &Value, value: &Value) -> Vec<String> {
    let described = schema["properties"].as_object().unwrap();
    value.as_object().unwrap().keys().filter(|name| !described.contains_key(*name)).cloned().collect()
}

/// Checks the result of a call of `tool`: a structured object that fits the published schema, `ok` that agrees with
/// `isError`, and a short text beside it. A host fails the call of a result that does not fit.
pub fn check_result(tool: &str, result: &Value) {
    // Tasks and questions carry no result yet.
    if result.get("resultType").is_some_and(|kind| kind != "complete") {
        return;
    }
    let structured = &result["structuredContent"];
    assert!(structured.is_object(), "{tool}: no structured result: {result}");
    let schema = Value::Object(Registry::full().get(tool).unwrap_or_else(|| panic!("no tool {tool}")).output.clone());
    assert_eq!(misfit(&schema, structured, tool), None, "{structured}");
    if result["isError"] == true {
        assert_eq!(structured["ok"], false, "{tool}: {structured}");
        for field in ["code", "error"] {
            assert!(structured[field].as_str().is_some_and(|t| !t.is_empty()), "{tool}: {structured}");
        }
    }
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{tool}: no text: {result}"));
    assert!(!text.is_empty(), "{tool}: an empty text");
}

/// The validator refuses what it should.
#[test]
fn misfits_are_found() {
    let schema = serde_json::json!({
        "type": "object", "required": ["a"], "additionalProperties": false,
        "properties": {
            "a": { "type": "array", "items": { "type": "string", "enum": ["x", "y"] } },
            "m": { "type": "object", "additionalProperties": { "type": "integer" } },
            "free": { "type": "object" },
        },
    });
    let fits = |value: Value| misfit(&schema, &value, "v");
    assert_eq!(fits(serde_json::json!({ "a": ["x"], "m": { "k": 1 }, "free": { "any": null } })), None);
    for (bad, words) in [
        (serde_json::json!([]), "is not \"object\""),
        (serde_json::json!({}), "\"a\" is missing"),
        (serde_json::json!({ "a": ["z"] }), "v.a[0]: \"z\" is not one of"),
        (serde_json::json!({ "a": [1] }), "v.a[0]: 1 is not \"string\""),
        (serde_json::json!({ "a": null }), "v.a: null is not"),
        (serde_json::json!({ "a": [], "b": 1 }), "v.b: is not allowed"),
        (serde_json::json!({ "a": [], "m": { "k": 1.5 } }), "v.m.k: 1.5 is not \"integer\""),
    ] {
        let found = fits(bad).unwrap();
        assert!(found.contains(words), "{words:?} not in {found:?}");
    }
}
