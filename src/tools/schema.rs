//! The one place where schemas become what every host accepts.
//!
//! Rust types go through schemars and then through [`clean`]; the wire and the `schemas/` files use the
//! same result. Removed are references, unions, nulls, Rust number formats, boolean schemas and titles.

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// A JSON object.
pub type Object = Map<String, Value>;

/// Objects nested deeper than this in arguments are free-form: several hosts refuse deeper schemas.
const INPUT_DEPTH: usize = 3;
/// The same for results. Only the fields themselves: models read results, not their schemas, and every host
/// loads the whole list; the shared documents in `schemas/` have the full shapes.
const OUTPUT_DEPTH: usize = 0;

/// Keywords no host needs and some refuse.
const DROPPED: [&str; 12] = [
    "$schema",
    "$id",
    "$defs",
    "$ref",
    "$comment",
    "title",
    "format",
    "examples",
    "readOnly",
    "writeOnly",
    "propertyNames",
    "contentEncoding",
];

/// Schema of a tool's arguments: a closed object.
pub fn input<T: JsonSchema>() -> Object {
    closed::<T>(INPUT_DEPTH)
}

/// The same with every nested object free-form, for a tool whose arguments another tool spells out.
pub fn input_brief<T: JsonSchema>() -> Object {
    closed::<T>(0)
}

fn closed<T: JsonSchema>(depth: usize) -> Object {
    let mut root = clean_root(generate::<T>(Direction::Input), depth);
    root.remove("description");
    root.insert("additionalProperties".to_owned(), Value::Bool(false));
    root
}

/// Schema of a tool's result: an open object that also describes the error object, with only `ok` required.
pub fn output<T: JsonSchema>() -> Object {
    let body = clean_root(generate::<T>(Direction::Output), OUTPUT_DEPTH);
    let mut properties = Object::new();
    properties.insert("ok".to_owned(), json!({ "type": "boolean", "description": "Whether it worked." }));
    let errors = json!({
        "code": { "type": "string", "description": "Stable error code when ok is false." },
        "error": { "type": "string", "description": "What went wrong." },
        "details": { "type": "object", "description": "More about an error." },
        "truncated": { "type": "array", "items": { "type": "string" }, "description": "What was cut and how to get the rest." },
    });
    if let Some(Value::Object(own)) = body.get("properties") {
        properties.extend(own.clone());
    }
    if let Value::Object(errors) = errors {
        for (name, schema) in errors {
            properties.entry(name).or_insert(schema);
        }
    }
    let mut root = Object::new();
    root.insert("type".to_owned(), json!("object"));
    root.insert("properties".to_owned(), Value::Object(properties));
    root.insert("required".to_owned(), json!(["ok"]));
    root
}

/// Schema of a shared document, in full depth.
pub fn document<T: JsonSchema>(direction: Direction) -> Object {
    clean_root(generate::<T>(direction), usize::MAX)
}

/// Schema of a document whose alternatives are kept as `oneOf`: exact, for files and people, never on the wire.
pub fn exact<T: JsonSchema>() -> Object {
    let mut value = generate::<T>(Direction::Input);
    tidy(&mut value);
    as_object(value)
}

/// Whether a schema describes what is read or what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// What a caller sends.
    Input,
    /// What is answered.
    Output,
}

fn generate<T: JsonSchema>(direction: Direction) -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let settings = match direction {
        Direction::Input => settings,
        Direction::Output => settings.for_serialize(),
    };
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

fn as_object(value: Value) -> Object {
    match value {
        Value::Object(map) => map,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Object::new(),
    }
}

fn clean_root(value: Value, depth: usize) -> Object {
    let mut root = as_object(clean(value, 0, depth));
    root.insert("type".to_owned(), json!("object"));
    root.entry("properties").or_insert_with(|| json!({}));
    root
}

/// Makes one schema acceptable everywhere. `level` counts enclosing objects, `max` is where they become free-form.
pub fn clean(schema: Value, level: usize, max: usize) -> Value {
    let Value::Object(mut map) = schema else {
        // `true` stands for any JSON; all such fields hold objects.
        return json!({ "type": "object" });
    };
    for key in DROPPED {
        map.remove(key);
    }
    collapse_unions(&mut map);
    collapse_null(&mut map);
    if let Some(only) = map.remove("const") {
        map.entry("type").or_insert_with(|| json!(type_of(&only)));
        map.insert("enum".to_owned(), json!([only]));
    }
    if map.get("default").is_some_and(Value::is_null) {
        map.remove("default");
    }
    if !map.contains_key("type") {
        map.insert("type".to_owned(), json!(if map.contains_key("enum") { "string" } else { "object" }));
    }
    if let Some(items) = map.remove("items") {
        map.insert("items".to_owned(), clean(items, level, max));
    }
    if let Some(extra) = map.remove("additionalProperties")
        && extra.is_object()
        && level < max
    {
        map.insert("additionalProperties".to_owned(), clean(extra, level + 1, max));
    }
    if let Some(Value::Object(properties)) = map.remove("properties") {
        if level > max {
            map.remove("required");
        } else {
            let cleaned: Object = properties.into_iter().map(|(k, v)| (k, clean(v, level + 1, max))).collect();
            map.insert("properties".to_owned(), Value::Object(cleaned));
        }
    }
    Value::Object(map)
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_null(schema: &Value) -> bool {
    schema.get("type").is_some_and(|t| t == "null")
}

/// `["string", "null"]` becomes `"string"`; null leaves enums.
fn collapse_null(map: &mut Object) {
    if let Some(Value::Array(types)) = map.get("type") {
        let first = types.iter().find(|t| *t != "null").cloned();
        map.insert("type".to_owned(), first.unwrap_or_else(|| json!("string")));
    }
    if let Some(Value::Array(values)) = map.get_mut("enum") {
        values.retain(|v| !v.is_null());
    }
}

/// Unions become their one real alternative, one string enum, or one object with the properties of all.
fn collapse_unions(map: &mut Object) {
    for key in ["anyOf", "oneOf", "allOf"] {
        let Some(Value::Array(all)) = map.remove(key) else { continue };
        let branches: Vec<Object> = all
            .into_iter()
            .filter(|s| !is_null(s))
            .map(|s| {
                let mut branch = as_object(s);
                collapse_unions(&mut branch);
                collapse_null(&mut branch);
                branch
            })
            .collect();
        let merged = if branches.iter().all(|b| b.contains_key("const") || b.contains_key("enum")) {
            merge_enums(branches)
        } else {
            merge_objects(branches, key == "allOf")
        };
        for (name, value) in merged {
            if name == "properties" || name == "required" {
                extend(map, &name, value);
            } else {
                map.entry(name).or_insert(value);
            }
        }
    }
}

/// Adds properties or required names to those that are there.
fn extend(map: &mut Object, name: &str, value: Value) {
    match (map.get_mut(name), value) {
        (Some(Value::Object(there)), Value::Object(more)) => there.extend(more),
        (Some(Value::Array(there)), Value::Array(more)) => there.extend(more),
        (_, value) => {
            map.insert(name.to_owned(), value);
        }
    }
}

fn merge_enums(branches: Vec<Object>) -> Object {
    let mut values = Vec::new();
    let mut notes = Vec::new();
    for mut branch in branches {
        let mut own = Vec::new();
        if let Some(only) = branch.remove("const") {
            own.push(only);
        }
        if let Some(Value::Array(some)) = branch.remove("enum") {
            own.extend(some.into_iter().filter(|v| !v.is_null()));
        }
        if let (Some(Value::String(note)), [Value::String(word)]) = (branch.get("description"), own.as_slice()) {
            notes.push(format!("{word}: {}", note.trim_end_matches('.')));
        }
        values.extend(own);
    }
    let mut out = Object::new();
    out.insert("type".to_owned(), json!("string"));
    if !notes.is_empty() {
        out.insert("description".to_owned(), json!(format!("{}.", notes.join("; "))));
    }
    out.insert("enum".to_owned(), Value::Array(values));
    out
}

fn merge_objects(branches: Vec<Object>, all: bool) -> Object {
    let single = branches.len() == 1;
    let mut properties = Object::new();
    let mut required: Option<Vec<Value>> = None;
    let mut rest = Object::new();
    for mut branch in branches {
        if let Some(Value::Object(own)) = branch.remove("properties") {
            for (name, schema) in own {
                merge_property(&mut properties, name, schema);
            }
        }
        let own = match branch.remove("required") {
            Some(Value::Array(own)) => own,
            _ => Vec::new(),
        };
        required = Some(match required {
            None => own,
            Some(mut so_far) if all => {
                so_far.extend(own);
                so_far
            }
            Some(so_far) => so_far.into_iter().filter(|name| own.contains(name)).collect(),
        });
        if !single {
            branch.remove("description");
        }
        for (name, value) in branch {
            rest.entry(name).or_insert(value);
        }
    }
    if !properties.is_empty() {
        rest.insert("properties".to_owned(), Value::Object(properties));
    }
    if let Some(required) = required.filter(|r| !r.is_empty()) {
        rest.insert("required".to_owned(), Value::Array(required));
    }
    rest
}

/// A tag that is constant in each alternative becomes the enum of all its values.
fn merge_property(properties: &mut Object, name: String, schema: Value) {
    let Some(there) = properties.get_mut(&name) else {
        properties.insert(name, schema);
        return;
    };
    let mut values = Vec::new();
    for source in [&*there, &schema] {
        if let Some(only) = source.get("const") {
            values.push(only.clone());
        } else if let Some(Value::Array(some)) = source.get("enum") {
            values.extend(some.iter().cloned());
        } else {
            return;
        }
    }
    if let Value::Object(there) = there {
        there.remove("const");
        there.insert("enum".to_owned(), Value::Array(values));
    }
}

/// For [`exact`]: only what says nothing is removed.
fn tidy(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for key in ["title", "format", "$schema"] {
                // A property may be called so; keywords have plain values.
                if map.get(key).is_some_and(Value::is_string) {
                    map.remove(key);
                }
            }
            if map.get("default").is_some_and(Value::is_null) {
                map.remove("default");
            }
            if let Some(Value::Array(types)) = map.get("type") {
                let first = types.iter().find(|t| *t != "null").cloned();
                map.insert("type".to_owned(), first.unwrap_or_else(|| json!("string")));
            }
            if let Some(Value::Array(any)) = map.get("anyOf")
                && any.iter().any(is_null)
            {
                let keep = any.iter().find(|s| !is_null(s)).cloned();
                map.remove("anyOf");
                for (name, inner) in keep.map(as_object).unwrap_or_default() {
                    map.entry(name).or_insert(inner);
                }
            }
            for inner in map.values_mut() {
                tidy(inner);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A choice.
    #[derive(serde::Deserialize, serde::Serialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Choice {
        /// The first.
        One,
        /// The second.
        Two,
    }

    #[derive(serde::Deserialize, serde::Serialize, JsonSchema)]
    #[serde(tag = "type", rename_all = "snake_case")]
    enum Tagged {
        /// Left.
        Left { a: u32 },
        /// Right.
        Right { a: u32, b: Option<String> },
    }

    #[derive(serde::Deserialize, serde::Serialize, JsonSchema)]
    struct All {
        /// Number.
        n: Option<u32>,
        /// Choice.
        c: Option<Choice>,
        /// Tagged.
        t: Vec<Tagged>,
        /// Anything.
        v: Option<serde_json::Value>,
        /// Map.
        m: std::collections::BTreeMap<String, String>,
    }

    /// Case MC-2: one odd schema must not hide every tool.
    #[test]
    fn rust_shapes_become_what_every_host_accepts() {
        let schema = Value::Object(input::<All>());
        assert_eq!(
            schema,
            json!({
                "type": "object",
                "properties": {
                    "n": { "type": "integer", "description": "Number.", "minimum": 0 },
                    "c": { "type": "string", "description": "Choice.", "enum": ["one", "two"] },
                    "t": { "type": "array", "description": "Tagged.", "items": {
                        "type": "object",
                        "properties": {
                            "a": { "type": "integer", "minimum": 0 },
                            "type": { "type": "string", "enum": ["left", "right"] },
                            "b": { "type": "string" },
                        },
                        "required": ["type", "a"],
                    } },
                    "v": { "type": "object", "description": "Anything." },
                    "m": { "type": "object", "description": "Map.", "additionalProperties": { "type": "string" } },
                },
                "required": ["t", "m"],
                "additionalProperties": false,
            })
        );
    }
}
