//! The published schemas: every tool's arguments and results and the documents they share.
//!
//! Files carry `$schema` and `$id`; the wire never does. The same program always writes the same bytes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    Registry,
    config_shapes::ConfigShape,
    schema::{self, Direction, Object},
    shapes::ContractShape,
    spec_shapes::SpecShape,
};
use crate::{
    model::{Code, Event, EvidenceBundle, RunRecord},
    store::ledger::Row,
};

/// Dialect of every file.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The error object of every surface.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorShape {
    /// Always false.
    pub ok: bool,
    /// Stable code.
    pub code: Code,
    /// What went wrong and what to do.
    pub error: String,
    /// More, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<super::shapes::Free>,
    /// Names the request in the server's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

/// Every schema file: path below the output directory, contents ending in a newline.
pub fn export() -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for tool in Registry::full().tools() {
        for (direction, schema) in [("input", &tool.input), ("output", &tool.output)] {
            let name = format!("tools/{}.{direction}", tool.about.name);
            files.insert(format!("{name}.json"), file(&name, schema.clone()));
        }
    }
    for name in shared_names() {
        if let Some(text) = shared(&name) {
            files.insert(format!("{name}.json"), text);
        }
    }
    files
}

/// Names of the shared documents, sorted.
pub fn shared_names() -> Vec<String> {
    ["config", "contract", "error", "event", "evidence", "ledger-row", "run-record", "workflow-spec"]
        .map(str::to_owned)
        .to_vec()
}

/// A shared document's schema as its file has it.
pub fn shared(name: &str) -> Option<String> {
    let schema = match name {
        "config" => schema::exact::<ConfigShape>(),
        "contract" => schema::exact::<ContractShape>(),
        "error" => schema::document::<ErrorShape>(Direction::Output),
        "event" => schema::document::<Event>(Direction::Output),
        "evidence" => schema::document::<EvidenceBundle>(Direction::Output),
        "ledger-row" => schema::document::<Row>(Direction::Output),
        "run-record" => schema::document::<RunRecord>(Direction::Output),
        "workflow-spec" => schema::exact::<SpecShape>(),
        _ => return None,
    };
    Some(file(name, schema))
}

fn file(name: &str, schema: Object) -> String {
    let mut out = Object::new();
    out.insert("$schema".to_owned(), json!(DIALECT));
    out.insert("$id".to_owned(), json!(format!("urn:claw-orchestrator:schema:{}", name.replace('/', ":"))));
    out.extend(schema);
    let mut text = serde_json::to_string_pretty(&Value::Object(out)).unwrap_or_default();
    text.push('\n');
    text
}
