//! The sections of `pyproject.toml` and `setup.cfg` that decide how tests run.

use toml::{Table, Value};

use super::{Parts, canonical, digest};

/// Tables of `pyproject.toml` that belong to test runners, measuring and task running.
const TOOLS: &[&[&str]] = &[
    &["tool", "pytest"],
    &["tool", "coverage"],
    &["tool", "tox"],
    &["tool", "nox"],
    &["tool", "nose"],
    &["tool", "nosetests"],
    &["tool", "unittest"],
    &["tool", "ward"],
    &["tool", "behave"],
    &["tool", "poe"],
    &["tool", "taskipy"],
    &["tool", "pdm", "scripts"],
    &["project", "entry-points", "pytest11"],
];

/// Sections of `setup.cfg`, by name or beginning.
const SECTIONS: &[&str] = &["tool:pytest", "pytest", "coverage:", "tox", "testenv", "nosetests", "unittest", "aliases"];

/// Parts of a `pyproject.toml`; none when it is not TOML.
pub(super) fn pyproject(bytes: &[u8]) -> Option<Parts> {
    let table = table(bytes)?;
    let mut parts = Parts::new();
    for path in TOOLS {
        if let Some(value) = lookup(&table, path) {
            parts.insert(path.join("."), hash(value));
        }
    }
    // Of an environment only what it runs: its dependencies may change.
    if let Some(Value::Table(envs)) = lookup(&table, &["tool", "hatch", "envs"]) {
        for (name, env) in envs {
            for key in ["scripts", "extra-scripts", "pre-install-commands", "post-install-commands", "env-vars"] {
                if let Some(value) = env.get(key) {
                    parts.insert(format!("tool.hatch.envs.{name}.{key}"), hash(value));
                }
            }
        }
    }
    Some(parts)
}

/// Parses TOML; none when it is not.
pub(super) fn table(bytes: &[u8]) -> Option<Table> {
    let text = std::str::from_utf8(bytes).ok()?;
    text.strip_prefix('\u{feff}').unwrap_or(text).parse().ok()
}

/// The value at a path of keys.
pub(super) fn lookup<'a>(table: &'a Table, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(table.get(*first)?, |value, key| value.get(*key))
}

/// Hash of a value, whatever the order of its keys.
pub(super) fn hash(value: &Value) -> String {
    let json = serde_json::to_value(value).map(|v| canonical(&v)).unwrap_or_else(|_| value.to_string());
    digest(json.as_bytes())
}

/// Parts of a `setup.cfg`; none when it is not UTF-8 text. Comments and blank lines do not count.
pub(super) fn setup_cfg(bytes: &[u8]) -> Option<Parts> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut sections: std::collections::BTreeMap<String, String> = std::collections::BTreeMap::new();
    let mut current: Option<String> = None;
    for line in text.trim_start_matches('\u{feff}').lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if line.starts_with('[')
            && let Some((name, _)) = trimmed.trim_start_matches('[').split_once(']')
        {
            let name = name.trim();
            let kept =
                SECTIONS.iter().any(|s| name == *s || ((s.ends_with(':') || *s == "testenv") && name.starts_with(s)));
            current = kept.then(|| name.to_owned());
            if let Some(name) = &current {
                sections.entry(name.clone()).or_default();
            }
        } else if let Some(body) = current.as_ref().and_then(|name| sections.get_mut(name)) {
            // A continued value is told from a new key by its indentation.
            body.push_str(if line.starts_with([' ', '\t']) { "\n\t" } else { "\n" });
            body.push_str(trimmed);
        }
    }
    Some(sections.into_iter().map(|(name, body)| (name, digest(body.as_bytes()))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pyproject_keeps_test_tools_only() {
        let base = "[project]\nname='a'\n[tool.pytest.ini_options]\naddopts='-q'\ntestpaths=['t']\n[tool.ruff]\nline-length=1\n";
        let parts = pyproject(base.as_bytes()).unwrap();
        assert_eq!(parts.keys().collect::<Vec<_>>(), ["tool.pytest"]);
        let same = "[tool.ruff]\nline-length=2 # x\n[tool.pytest.ini_options]\ntestpaths = [ 't' ]\naddopts = \"-q\"\n";
        assert_eq!(pyproject(same.as_bytes()).unwrap(), parts);
        let weaker = base.replace("-q", "-q --deselect t/test_a.py::test_b");
        assert_ne!(pyproject(weaker.as_bytes()).unwrap(), parts);
        assert!(pyproject(b"[tool.pytest").is_none() && pyproject(b"\xff").is_none());
    }

    #[test]
    fn setup_cfg_keeps_test_sections_only() {
        let base = "[metadata]\nname = a\n[tool:pytest]\naddopts = -q\n   -x\n[coverage:run]\nbranch = 1\n";
        let parts = setup_cfg(base.as_bytes()).unwrap();
        assert_eq!(parts.keys().collect::<Vec<_>>(), ["coverage:run", "tool:pytest"]);
        let same = base.replace("name = a", "name = b").replace("addopts = -q", "# why\naddopts = -q  ");
        assert_eq!(setup_cfg(same.as_bytes()).unwrap(), parts);
        assert_ne!(setup_cfg(base.replace("-x", "-k no").as_bytes()).unwrap(), parts);
    }
}
