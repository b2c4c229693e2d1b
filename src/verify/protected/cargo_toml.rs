//! The switches of a `Cargo.toml` that decide which tests `cargo test` builds and runs.

use toml::{Table, Value};

use super::{
    Parts,
    pyproject::{hash, lookup, table},
};

/// Beginnings of parts that may be added freely: each only adds something to test.
const ADDITIVE: &[&str] = &["test ", "workspace.members "];

/// Parts of a manifest; none when it is not TOML.
pub(super) fn parts(bytes: &[u8]) -> Option<Parts> {
    let table = table(bytes)?;
    let mut parts = Parts::new();
    for path in [
        ["package", "autotests"],
        ["lib", "test"],
        ["lib", "doctest"],
        ["lib", "harness"],
        ["workspace", "default-members"],
        ["workspace", "exclude"],
        ["profile", "test"],
    ] {
        if let Some(value) = lookup(&table, &path) {
            parts.insert(path.join("."), hash(value));
        }
    }
    for kind in ["bin", "example", "test"] {
        for target in table.get(kind).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_table) {
            target_part(kind, target, &mut parts);
        }
    }
    if let Some(Value::Array(members)) = lookup(&table, &["workspace", "members"]) {
        for member in members.iter().filter_map(Value::as_str) {
            parts.insert(format!("workspace.members {member}"), hash(&Value::from(member)));
        }
    }
    Some(parts)
}

/// One target: a test target always, any target that switches its tests off.
fn target_part(kind: &str, target: &Table, parts: &mut Parts) {
    let text = |key: &str| target.get(key).and_then(Value::as_str);
    let name = text("name").or_else(|| text("path")).unwrap_or("?");
    let off = |key: &str| target.get(key).and_then(Value::as_bool) == Some(false);
    if off("test") || off("harness") {
        parts.insert(format!("{kind} {name} (tests off)"), hash(&Value::Table(target.clone())));
    } else if kind == "test" {
        parts.insert(format!("test {name}"), hash(&Value::Table(target.clone())));
    }
}

/// Whether a part may appear in a manifest that had none of its name.
pub(super) fn may_be_added(part: &str) -> bool {
    ADDITIVE.iter().any(|prefix| part.starts_with(prefix)) && !part.ends_with("(tests off)")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(from: &str, to: &str) -> Vec<String> {
        let (from, to) = (parts(from.as_bytes()).unwrap(), parts(to.as_bytes()).unwrap());
        to.keys().filter(|k| !from.contains_key(*k) && !may_be_added(k)).cloned().collect()
    }

    /// Case VT-1: tests switched off in the manifest.
    #[test]
    fn switching_tests_off_counts_and_growing_does_not() {
        let base = "[package]\nname='a'\n[dependencies]\nx='1'\n";
        assert!(added(base, "[package]\nname='a'\nversion='2'\n[dependencies]\ny='1'\n[[bin]]\nname='b'\n").is_empty());
        assert!(added(base, &format!("{base}[[test]]\nname='new'\n[workspace]\nmembers=['b']\n")).is_empty());
        for weaker in ["[lib]\ntest=false\n", "[[bin]]\nname='b'\ntest=false\n", "[[test]]\nname='it'\nharness=false\n"]
        {
            assert!(!added(base, &format!("{base}{weaker}")).is_empty(), "{weaker}");
        }
        assert!(!added(base, "[package]\nname='a'\nautotests=false\n").is_empty());
    }
}
