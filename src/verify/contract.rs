//! From a caller's JSON to a normalised contract, or every reason why not.
//!
//! The only reader of contracts: what it does not know never reaches a check. Never runs anything and
//! never touches a file. Numbers written as strings are not understood here; callers convert before.

mod fields;
mod specs;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::model::{Check, Contract, Problem};
use fields::{Fields, Findings, show};

/// Most checks of one contract; a list longer than this is a mistake, not an acceptance.
const CHECKS_MAX: usize = 200;
/// Longest check id in bytes; ids become file names.
const ID_MAX: usize = 64;
/// Longest name of a contract in bytes.
const CONTRACT_ID_MAX: usize = 256;
/// Most repair rounds.
const ROUNDS_MAX: u64 = 10;
/// Id of the check the runtime adds itself; a caller's check of this name gets a suffix.
pub(super) const PROTECTED_ID: &str = "protected-tests";

/// Reads a contract. `path` is where it stands in the caller's document (`contract`, `nodes[2].contract`).
/// `Ok` carries warnings about dropped unknown fields and changed ids; `Err` every problem found.
pub fn normalise(value: &Value, path: &str) -> Result<(Contract, Vec<Problem>), Vec<Problem>> {
    let mut found = Findings::default();
    let contract = read(value, path, &mut found);
    match contract {
        Some(contract) if found.problems.is_empty() => Ok((contract, found.warnings)),
        Some(_) | None => Err(found.problems),
    }
}

fn read(value: &Value, path: &str, found: &mut Findings) -> Option<Contract> {
    let Value::Object(map) = value else {
        found.problem(path, format!("a contract is an object with a list 'checks', got {}", show(value)));
        return None;
    };
    let fields = Fields::new(map, path, &["id", "checks", "fixOnFailureRounds", "protectTests", "cleanroom"]);
    let id = fields.text(found, "id");
    if id.as_ref().is_some_and(|id| id.len() > CONTRACT_ID_MAX) {
        found.problem(fields.at("id"), format!("is longer than {CONTRACT_ID_MAX} bytes"));
    }
    let rounds = fields.number(found, "fixOnFailureRounds", 0..=ROUNDS_MAX).unwrap_or(0);
    let protect_tests = fields.flag(found, "protectTests").unwrap_or(true);
    match fields.get("cleanroom") {
        None | Some(Value::Bool(false)) => {}
        Some(_) => found.problem(
            fields.at("cleanroom"),
            "a cleanroom is not available yet; leave it out or use false, and the checks run in the working directory",
        ),
    }
    fields.warn_unknown(found);
    let checks = match fields.get("checks") {
        Some(Value::Array(list)) => check_list(list, &fields.at("checks"), found),
        Some(other) => {
            found.problem(fields.at("checks"), format!("must be a list of checks, got {}", show(other)));
            return None;
        }
        None => {
            found.problem(fields.at("checks"), "missing; give a list with at least one required check");
            return None;
        }
    };
    Some(Contract { id, checks, fix_on_failure_rounds: u32::try_from(rounds).unwrap_or(0), protect_tests })
}

fn check_list(list: &[Value], path: &str, found: &mut Findings) -> Vec<Check> {
    if list.len() > CHECKS_MAX {
        found.problem(path, format!("has {} checks; the most is {CHECKS_MAX}", list.len()));
        return Vec::new();
    }
    let mut any_required = false;
    let mut used = BTreeSet::from([PROTECTED_ID.to_owned()]);
    let mut checks = Vec::with_capacity(list.len());
    for (index, value) in list.iter().enumerate() {
        let at = format!("{path}[{index}]");
        let Value::Object(map) = value else {
            any_required = true; // It would have been required, had it been readable: one problem is enough.
            found.problem(at, format!("a check is an object with a 'type', got {}", show(value)));
            continue;
        };
        let wrapped = map.contains_key("spec");
        let own: &[&'static str] = if wrapped { &["id", "required", "spec"] } else { &["id", "required"] };
        let outer = Fields::new(map, &at, own);
        let id = outer.text(found, "id");
        let required = outer.flag(found, "required").unwrap_or(true);
        any_required |= required;
        let spec = match outer.get("spec") {
            _ if !wrapped => specs::read(map, &at, own, found),
            Some(Value::Object(inner)) => {
                outer.warn_unknown(found);
                specs::read(inner, &outer.at("spec"), &[], found)
            }
            Some(_) | None => {
                found.problem(outer.at("spec"), "must be an object with a 'type'");
                None
            }
        };
        if let Some(spec) = spec {
            let default = format!("{}-{}", spec.type_name(), index.saturating_add(1));
            let given = id.as_deref().unwrap_or(&default);
            let unique = unique_id(given, &default, &mut used);
            if unique != given {
                found.warn(
                    outer.at("id"),
                    format!("became '{unique}'; ids are unique and made of letters, digits, '.', '_' and '-'"),
                );
            }
            checks.push(Check { id: unique, required, spec });
        }
    }
    if !any_required {
        found.problem(path, "needs at least one required check; without one nothing could ever be verified");
    }
    checks
}

/// `text` made of safe characters only and cut to length; `fallback` when nothing is left.
pub(super) fn slug(text: &str, fallback: &str) -> String {
    let mut out = String::with_capacity(text.len().min(ID_MAX));
    for c in text.chars() {
        let safe = c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if safe {
            out.push(c);
        } else if !out.ends_with('-') {
            out.push('-');
        }
        if out.len() >= ID_MAX {
            break;
        }
    }
    // A name of dots and dashes alone would read as a path step or an option.
    if out.bytes().any(|b| b.is_ascii_alphanumeric() || b == b'_') { out } else { fallback.to_owned() }
}

/// A safe form of `given` that is not in `used`, added to it. Compared without case, because ids become
/// file names and some file systems do not tell case apart.
pub(super) fn unique_id(given: &str, fallback: &str, used: &mut BTreeSet<String>) -> String {
    let base = slug(given, fallback);
    let mut candidate = base.clone();
    let mut n = 1_u32;
    while !used.insert(candidate.to_ascii_lowercase()) {
        n = n.saturating_add(1);
        let suffix = format!("-{n}");
        let keep: String = base.chars().take(ID_MAX.saturating_sub(suffix.len())).collect();
        candidate = format!("{keep}{suffix}");
    }
    candidate
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::CheckSpec;

    fn problems(value: &Value) -> Vec<String> {
        normalise(value, "contract").unwrap_err().iter().map(ToString::to_string).collect()
    }

    /// Acceptance scenario 4: bare and wrapped forms side by side, defaults filled in.
    #[test]
    fn bare_and_wrapped_checks_are_the_same_thing() {
        let (contract, warnings) = normalise(
            &json!({ "checks": [
                { "type": "command", "cmd": "true" },
                { "id": "api", "required": false, "spec": { "type": "http", "url": "http://localhost:1/x" } },
                { "spec": { "type": "file", "path": "a/../b", "matches": "^x" } },
            ]}),
            "contract",
        )
        .unwrap();
        assert_eq!(warnings, []);
        let ids: Vec<_> = contract.checks.iter().map(|c| (c.id.as_str(), c.required)).collect();
        assert_eq!(ids, [("command-1", true), ("api", false), ("file-3", true)]);
        let CheckSpec::Command { timeout_ms, expect_exit, .. } = &contract.checks[0].spec else { panic!() };
        assert_eq!((*timeout_ms, *expect_exit), (600_000, 0));
        assert!(contract.protect_tests);
        let again = normalise(&serde_json::to_value(&contract).unwrap(), "contract").unwrap();
        assert_eq!(again, (contract, vec![]), "what was normalised normalises to itself");
    }

    /// Acceptance scenario 5 and case VF-1: a check that is not understood is refused where it stands.
    #[test]
    fn a_misspelt_check_is_refused_with_its_place_and_never_dropped() {
        let typo = problems(&json!({ "checks": [{ "type": "file", "path": "x" }, { "type": "comand", "cmd": "x" }] }));
        assert_eq!(
            typo,
            ["contract.checks[1].type: unknown type 'comand'; use one of command, http, screenshot, diff_policy, file"]
        );
        let wrapped = problems(&json!({ "checks": [{ "spec": { "type": "nope" } }, { "spec": {} }, 7, {}] }));
        let places: Vec<_> = wrapped.iter().map(|p| p.split(": ").next().unwrap()).collect();
        assert_eq!(
            places,
            [
                "contract.checks[0].spec.type",
                "contract.checks[1].spec.type",
                "contract.checks[2]",
                "contract.checks[3].type"
            ]
        );
        for empty in [json!({}), json!({ "checks": [] }), json!({ "checks": "x" }), json!([]), json!(null)] {
            assert_eq!(problems(&empty).len(), 1, "{empty}");
        }
        let optional = problems(&json!({ "checks": [{ "type": "file", "path": "x", "required": false }] }));
        assert!(optional[0].starts_with("contract.checks: needs at least one required check"), "{optional:?}");
    }

    #[test]
    fn every_problem_is_told_at_once() {
        let all = problems(&json!({
            "fixOnFailureRounds": 11, "protectTests": "yes", "cleanroom": true,
            "checks": [
                { "type": "command", "args": [1], "timeoutMs": -1, "expectExit": 999, "cwd": "../..", "env": { "A=B": "x", "C": 1 } },
                { "type": "http", "url": "ftp://x", "expectStatus": 9, "expectBody": "(", "intervalMs": 0 },
                { "type": "screenshot", "url": "http://x", "viewports": [{ "width": 0, "height": 200 }, 5] },
                { "type": "screenshot", "url": "http://", "viewports": [] },
                { "type": "diff_policy", "forbidPaths": [] },
                { "type": "diff_policy", "requirePaths": ["/etc"], "maxFiles": -1 },
                { "type": "file", "path": "/etc/passwd" },
                { "type": "file", "path": "a/../../x", "exists": 1 },
                { "type": "command", "cmd": "true", "timeoutMs": 86_400_001u64 },
            ],
        }));
        for place in [
            "fixOnFailureRounds",
            "protectTests",
            "cleanroom",
            "checks[0].cmd",
            "checks[0].args[0]",
            "checks[0].timeoutMs",
            "checks[0].expectExit",
            "checks[0].cwd",
            "checks[0].env.A=B",
            "checks[0].env.C",
            "checks[1].url",
            "checks[1].expectStatus",
            "checks[1].expectBody",
            "checks[1].intervalMs",
            "checks[2].viewports[0].width",
            "checks[2].viewports[1]",
            "checks[3].url",
            "checks[3].viewports",
            "checks[4]",
            "checks[5].requirePaths[0]",
            "checks[5].maxFiles",
            "checks[6].path",
            "checks[7].path",
            "checks[7].exists",
            "checks[8].timeoutMs",
        ] {
            let start = format!("contract.{place}: ");
            assert!(all.iter().any(|p| p.starts_with(&start)), "nothing at {place}: {all:#?}");
        }
        assert_eq!(all.len(), 25, "{all:#?}");
    }

    #[test]
    fn unknown_fields_are_dropped_and_told() {
        let (contract, warnings) = normalise(
            &json!({ "note": 1, "checks": [{ "type": "command", "cmd": "true", "timeout_ms": 5, "shell": true },
                { "id": "w", "why": 1, "spec": { "type": "file", "path": "x" } }] }),
            "nodes[2].contract",
        )
        .unwrap();
        let shown: Vec<_> = warnings.iter().map(ToString::to_string).collect();
        assert_eq!(shown.len(), 4, "{shown:?}");
        assert!(shown.iter().any(|w| w.starts_with("nodes[2].contract.note: unknown field, ignored")), "{shown:?}");
        let timeout = shown.iter().find(|w| w.contains("checks[0].timeout_ms")).unwrap();
        assert!(timeout.contains("'timeoutMs'"), "{shown:?}");
        let kept = serde_json::to_string(&contract).unwrap();
        assert!(!kept.contains("shell") && !kept.contains("why"), "{kept}");
    }

    #[test]
    fn ids_are_safe_and_distinct() {
        let check = |id: &str| json!({ "id": id, "type": "file", "path": "x" });
        let long = "x".repeat(80);
        let (contract, warnings) = normalise(
            &json!({ "checks": [check("a b/../c"), check("A"), check("a"), check("protected-tests"), check(".."), check(&long), check(&long)] }),
            "",
        )
        .unwrap();
        let ids: Vec<_> = contract.checks.iter().map(|c| c.id.clone()).collect();
        let cut = "x".repeat(64);
        let cut2 = format!("{}-2", "x".repeat(62));
        assert_eq!(ids, ["a-b-..-c", "A", "a-2", "protected-tests-2", "file-5", &cut, &cut2]);
        assert_eq!(warnings.len(), 6, "the changed ones are told: {warnings:?}");
    }

    #[test]
    fn huge_strings_and_nul_bytes_are_refused() {
        let big = "x".repeat((1 << 20) + 1);
        let all = problems(&json!({ "checks": [{ "type": "command", "cmd": "a\0b", "args": [big] }] }));
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all.iter().all(|p| p.len() < 200), "the answer does not carry the argument");
    }
}
