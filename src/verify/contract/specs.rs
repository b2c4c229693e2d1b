//! The fields of each type of check, their defaults and their ranges.
//!
//! One function a type. Whether a path resolves inside the checks' directory is seen again when the
//! check runs; here only what is wrong on paper is refused.

use http::Uri;
use serde_json::{Map, Value};

use super::fields::{Fields, Findings, show};
use crate::{
    model::{CheckSpec, contract::Viewport},
    sys::supervise,
    verify::{paths, pattern},
};

/// The words a caller may write as `type`, in the order they are told.
const TYPES: &str = "command, http, screenshot, diff_policy, file";
/// Longest limit of any check: a day in milliseconds. Longer waits are a mistake in the unit.
const TIMEOUT_MAX_MS: u64 = 24 * 60 * 60 * 1000;
/// Default limit of a command in milliseconds.
const COMMAND_TIMEOUT_MS: u64 = 600_000;
/// Default deadline of an http check in milliseconds.
const HTTP_TIMEOUT_MS: u64 = 30_000;
/// Default pause between tries of an http check in milliseconds.
const HTTP_INTERVAL_MS: u64 = 1_000;
/// Default limit of one capture in milliseconds.
const SHOT_TIMEOUT_MS: u64 = 60_000;
/// Most captures of one check.
const VIEWPORTS_MAX: usize = 8;
/// Most files or lines a policy can name.
const COUNT_MAX: u64 = u32::MAX as u64;

/// The variables by which escaped processes are found again; a check must not take them over.
const OWN_VARIABLES: [&str; 2] = [supervise::OWNER_VARIABLE, supervise::TREE_VARIABLE];

/// Reads the fields of one type.
type Reader = fn(&Fields<'_>, &mut Findings) -> Option<CheckSpec>;

/// Reads the check described by `map`; `outer` are fields that belong to the entry around it.
pub(super) fn read(
    map: &Map<String, Value>,
    path: &str,
    outer: &[&'static str],
    found: &mut Findings,
) -> Option<CheckSpec> {
    let kind = match map.get("type") {
        Some(Value::String(kind)) => kind.as_str(),
        Some(other) => {
            let at = Fields::new(map, path, &[]).at("type");
            found.problem(at, format!("must be one of {TYPES}, got {}", show(other)));
            return None;
        }
        None => {
            found.problem(Fields::new(map, path, &[]).at("type"), format!("missing; use one of {TYPES}"));
            return None;
        }
    };
    let (names, reader): (&[&'static str], Reader) = match kind {
        "command" => (&["cmd", "args", "cwd", "expectExit", "timeoutMs", "env", "envFrom"], command),
        "http" => (&["url", "expectStatus", "timeoutMs", "intervalMs", "expectBody"], http),
        "screenshot" => (&["url", "viewports", "browserBin", "timeoutMs"], screenshot),
        "diff_policy" => (&["maxFiles", "maxLines", "forbidPaths", "requirePaths"], diff_policy),
        "file" => (&["path", "exists", "matches"], file),
        other => {
            let shown = show(&Value::from(other));
            found.problem(Fields::new(map, path, &[]).at("type"), format!("unknown type {shown}; use one of {TYPES}"));
            return None;
        }
    };
    let known: Vec<&'static str> = ["type"].iter().chain(names).chain(outer).copied().collect();
    let fields = Fields::new(map, path, &known);
    let spec = reader(&fields, found);
    fields.warn_unknown(found);
    spec
}

fn timeout(fields: &Fields<'_>, found: &mut Findings, default: u64) -> u64 {
    fields.number(found, "timeoutMs", 1..=TIMEOUT_MAX_MS).unwrap_or(default)
}

fn command(fields: &Fields<'_>, found: &mut Findings) -> Option<CheckSpec> {
    let cmd = fields.need_text(found, "cmd");
    let args = fields.texts(found, "args").into_iter().map(|(_, text)| text).collect();
    let cwd = fields.text(found, "cwd");
    if let Some(reason) = cwd.as_deref().and_then(paths::escapes) {
        found.problem(fields.at("cwd"), format!("{reason}; a command runs at or below where the checks run"));
    }
    let expect_exit = fields.number(found, "expectExit", 0..=255).unwrap_or(0);
    let timeout_ms = timeout(fields, found, COMMAND_TIMEOUT_MS);
    let env = fields.pairs(found, "env");
    for name in env.keys().filter(|n| n.is_empty() || n.contains(['=', '\0']) || OWN_VARIABLES.contains(&n.as_str())) {
        let shown: String = name.chars().take(64).flat_map(char::escape_debug).collect();
        found.problem(format!("{}.{shown}", fields.at("env")), "is not a name a variable can be given here");
    }
    let mut env_from = Vec::new();
    for (at, name) in fields.texts(found, "envFrom") {
        if name.is_empty() || name.contains('=') {
            found.problem(at, "must be the name of a variable of the server");
        } else {
            env_from.push(name);
        }
    }
    let expect_exit = i32::try_from(expect_exit).unwrap_or(0);
    Some(CheckSpec::Command { cmd: cmd?, args, cwd, expect_exit, timeout_ms, env, env_from })
}

fn http(fields: &Fields<'_>, found: &mut Findings) -> Option<CheckSpec> {
    let url = address(fields, found);
    let expect_status = fields.number(found, "expectStatus", 100..=599).unwrap_or(200);
    let timeout_ms = timeout(fields, found, HTTP_TIMEOUT_MS);
    let interval_ms = fields.number(found, "intervalMs", 1..=TIMEOUT_MAX_MS).unwrap_or(HTTP_INTERVAL_MS);
    let expect_body = expression(fields, found, "expectBody");
    let expect_status = u16::try_from(expect_status).unwrap_or(200);
    Some(CheckSpec::Http { url: url?, expect_status, timeout_ms, interval_ms, expect_body })
}

fn screenshot(fields: &Fields<'_>, found: &mut Findings) -> Option<CheckSpec> {
    let url = address(fields, found);
    let timeout_ms = timeout(fields, found, SHOT_TIMEOUT_MS);
    let browser_bin = fields.text(found, "browserBin");
    if browser_bin.as_deref() == Some("") {
        found.problem(fields.at("browserBin"), "must not be empty");
    }
    let place = fields.at("viewports");
    let mut viewports = Vec::new();
    match fields.get("viewports") {
        Some(Value::Array(list)) if (1..=VIEWPORTS_MAX).contains(&list.len()) => {
            for (index, value) in list.iter().enumerate() {
                viewports.extend(viewport(value, &format!("{place}[{index}]"), found));
            }
        }
        Some(Value::Array(list)) => {
            found.problem(place, format!("needs 1 to {VIEWPORTS_MAX} entries, got {}", list.len()));
        }
        Some(other) => {
            found.problem(place, format!("must be a list of {{width, height, label?}}, got {}", show(other)));
        }
        None => found.problem(place, "missing; give a list of {width, height, label?}"),
    }
    Some(CheckSpec::Screenshot { url: url?, viewports, browser_bin, timeout_ms })
}

fn viewport(value: &Value, at: &str, found: &mut Findings) -> Option<Viewport> {
    let Value::Object(map) = value else {
        found.problem(at, format!("must be an object with width and height, got {}", show(value)));
        return None;
    };
    let fields = Fields::new(map, at, &["width", "height", "label"]);
    let width = fields.need_number(found, "width", 100..=4096);
    let height = fields.need_number(found, "height", 100..=4096);
    let label = fields.text(found, "label");
    fields.warn_unknown(found);
    Some(Viewport { width: u32::try_from(width?).ok()?, height: u32::try_from(height?).ok()?, label })
}

fn diff_policy(fields: &Fields<'_>, found: &mut Findings) -> Option<CheckSpec> {
    let max_files = fields.number(found, "maxFiles", 0..=COUNT_MAX);
    let max_lines = fields.number(found, "maxLines", 0..=COUNT_MAX);
    let forbid_paths = prefixes(fields, found, "forbidPaths");
    let require_paths = prefixes(fields, found, "requirePaths");
    let given = ["maxFiles", "maxLines"].iter().any(|n| fields.get(n).is_some());
    let listed = ["forbidPaths", "requirePaths"].iter().filter_map(|n| fields.get(n));
    if !given && !listed.into_iter().any(|v| v.as_array().is_none_or(|l| !l.is_empty())) {
        let place = fields.at("");
        found.problem(
            place.trim_end_matches('.'),
            "a diff_policy that asks nothing; give maxFiles, maxLines, forbidPaths or requirePaths",
        );
    }
    Some(CheckSpec::DiffPolicy { max_files, max_lines, forbid_paths, require_paths })
}

fn prefixes(fields: &Fields<'_>, found: &mut Findings, name: &str) -> Vec<String> {
    let mut out = Vec::new();
    for (at, text) in fields.texts(found, name) {
        match paths::escapes(&text) {
            Some(reason) => found.problem(at, format!("{reason}; a prefix is relative to the repository's top")),
            None => out.push(paths::prefix(&text)),
        }
    }
    out
}

fn file(fields: &Fields<'_>, found: &mut Findings) -> Option<CheckSpec> {
    let path = fields.need_text(found, "path");
    if let Some(reason) = path.as_deref().and_then(paths::escapes) {
        found.problem(fields.at("path"), format!("{reason}; a file is looked up below where the checks run"));
    }
    let exists = fields.flag(found, "exists").unwrap_or(true);
    let matches = expression(fields, found, "matches");
    if !exists && matches.is_some() {
        found.problem(fields.at("matches"), "a file that must not exist has no contents to match; leave one out");
    }
    Some(CheckSpec::File { path: path?, exists, matches })
}

/// A regular expression that compiles.
fn expression(fields: &Fields<'_>, found: &mut Findings, name: &str) -> Option<String> {
    let text = fields.text(found, name)?;
    if let Err(reason) = pattern::compile(&text) {
        found.problem(fields.at(name), format!("is not a usable regular expression: {reason}"));
    }
    Some(text)
}

/// An `http` or `https` address with a host.
fn address(fields: &Fields<'_>, found: &mut Findings) -> Option<String> {
    let text = fields.need_text(found, "url")?;
    let uri: Uri = match text.parse() {
        Ok(uri) => uri,
        Err(reason) => {
            found.problem(fields.at("url"), format!("is not an address ({reason}); use http://host/path"));
            return None;
        }
    };
    let scheme = uri.scheme_str().unwrap_or_default();
    if !matches!(scheme, "http" | "https") {
        found.problem(fields.at("url"), format!("has scheme '{scheme}'; only http and https are checked"));
        return None;
    }
    if uri.host().unwrap_or_default().is_empty() {
        found.problem(fields.at("url"), "names no host");
        return None;
    }
    if uri.authority().is_some_and(|a| a.as_str().contains('@')) {
        found
            .problem(fields.at("url"), "carries a name or password, which would be kept in the evidence; leave it out");
        return None;
    }
    Some(text)
}
