//! `mcp-manifest.json`: what the server is and offers, printed by the program itself and never edited.

use rmcp::model::ProtocolVersion;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{INSTRUCTIONS, SERVER_NAME, convert, prompts, resources, secret, server};
use crate::tools::{
    Registry, Toolset, WAIT_MAX_MS,
    args::STRING_MAX,
    outcome::RESULT_MAX,
    registry::{Length, Tool},
};

/// The manifest, ending in a newline.
pub fn manifest() -> String {
    let registry = Registry::full();
    let listed: Vec<Value> = registry.tools().iter().map(|t| to_value(&convert::tool(t))).collect();
    let digest = secret::hex(&Sha256::digest(canonical(&Value::Array(listed.clone()))));
    let tools: Vec<Value> = registry.tools().iter().zip(listed).map(|(tool, listed)| entry(tool, &listed)).collect();
    let versions: Vec<&str> = ProtocolVersion::KNOWN_VERSIONS.iter().map(ProtocolVersion::as_str).collect();
    let value = json!({
        "schemaVersion": 1,
        "server": {
            "name": SERVER_NAME,
            "title": "claw-orchestrator",
            "version": env!("CARGO_PKG_VERSION"),
            "description": env!("CARGO_PKG_DESCRIPTION"),
        },
        "protocolVersions": versions,
        "transports": [
            { "type": "stdio", "command": "clawo", "args": ["mcp"] },
            {
                "type": "streamable-http", "command": "clawo", "args": ["serve"], "path": "/mcp",
                "bind": "127.0.0.1:18796", "auth": "bearer token from $CLAWO_HOME/server-token",
            },
        ],
        "capabilities": to_value(&server::capabilities()),
        "instructions": INSTRUCTIONS,
        "toolsets": toolsets(&registry),
        "tools": tools,
        "resourceTemplates": to_value(&resources::templates()),
        "prompts": to_value(&prompts::list()),
        "environment": environment(),
        "limits": {
            "maxWaitMs": WAIT_MAX_MS,
            "maxResultBytes": RESULT_MAX,
            "maxStringBytes": STRING_MAX,
            "maxHttpBodyBytes": 5_242_880,
            "maxLineBytes": 16_777_216,
        },
        "digest": format!("sha256:{digest}"),
    });
    let mut text = serde_json::to_string_pretty(&value).unwrap_or_default();
    text.push('\n');
    text
}

fn to_value(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

fn entry(tool: &Tool, listed: &Value) -> Value {
    let about = &tool.about;
    json!({
        "toolset": about.toolset.name(),
        "readOnly": about.hints.read_only,
        "longRunning": about.length != Length::Short,
        "taskCapable": about.length == Length::Works,
        "pairsWith": about.pairs,
        "tool": listed,
    })
}

fn toolsets(registry: &Registry) -> Value {
    let sets = Toolset::ALL.iter().map(|set| {
        let tools: Vec<&str> =
            registry.tools().iter().filter(|t| t.about.toolset == *set).map(|t| t.about.name).collect();
        (set.name().to_owned(), json!({ "default": set.is_default(), "tools": tools }))
    });
    Value::Object(sets.collect())
}

fn environment() -> Value {
    let rows = [
        ("CLAWO_HOME", "state directory", "~/.claw-orchestrator", false),
        ("CLAWO_WF_DIR", "directory of the runs", "$CLAWO_HOME/wf", false),
        ("CLAWO_RUNS_DIR", "directory of the ledger of turns", "$CLAWO_HOME/runs", false),
        ("CLAWO_CONFIG", "configuration file", "$CLAWO_HOME/config.toml", false),
        ("CLAWO_MCP_TOOLS", "comma list; only these tools are offered", "the default toolsets", false),
        ("CLAWO_DEFAULT_ENGINE", "engine where a spec names none", "claude", false),
        ("CLAWO_MAX_SESSIONS", "most live agent sessions", "5 for mcp, 32 for serve", false),
        ("CLAWO_CHROME_BIN", "browser for captures", "the usual names on PATH", false),
        ("CLAWO_HOST", "address of the HTTP server", "127.0.0.1", false),
        ("CLAWO_PORT", "port of the HTTP server", "18796", false),
        ("CLAWO_SERVER_TOKEN", "bearer token of the HTTP server", "$CLAWO_HOME/server-token", true),
        ("CLAWO_RATE_LIMIT", "requests a minute and address of the HTTP server", "300", false),
        ("CLAWO_CLAUDE_BIN", "program of the engine claude; every engine has such a variable", "claude on PATH", false),
        ("CLAWO_LOG", "log filter for standard error", "warn", false),
    ];
    rows.iter()
        .map(|(name, meaning, default, secret)| {
            json!({ "name": name, "meaning": meaning, "default": default, "secret": secret })
        })
        .collect()
}

/// JSON with sorted keys and no spaces, so that a digest does not depend on order.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            let parts: Vec<String> = keys
                .into_iter()
                .filter_map(|k| map.get(k).map(|v| format!("{}:{}", Value::from(k.as_str()), canonical(v))))
                .collect();
            format!("{{{}}}", parts.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}
