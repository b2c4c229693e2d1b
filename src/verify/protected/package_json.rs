//! The parts of a `package.json` that decide how its tests run. Runs no script.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{Parts, canonical, digest, shell::Reach};

/// Tools whose configuration may stand in a key of their own.
const KEYS: &[&str] = &["jest", "mocha", "ava", "vitest", "c8", "nyc"];
/// Beginning of the name of a part that is a script.
pub(super) const SCRIPT: &str = "scripts.";

/// Scripts of one manifest, at most; one with more is no manifest a person or a tool writes.
const MAX_SCRIPTS: usize = 10_000;

/// What is read of a `package.json`.
#[derive(Debug, Default)]
pub(super) struct Manifest {
    keys: Parts,
    scripts: BTreeMap<String, String>,
}

/// Which `test:*` scripts count without being reached.
pub(super) enum Roots<'a> {
    /// Every one there is.
    All,
    /// Those of these parts: one added later counts only when something reaches it.
    Of(&'a Parts),
}

impl Manifest {
    /// Reads a manifest; none when it is not a JSON object, or beyond all measure.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let object = value.as_object()?;
        let mut manifest = Self::default();
        for key in KEYS {
            if let Some(value) = object.get(*key) {
                manifest.keys.insert((*key).to_owned(), digest(canonical(value).as_bytes()));
            }
        }
        for (name, text) in object.get("scripts").and_then(Value::as_object).into_iter().flatten() {
            // npm refuses a script that is no text; it is kept as it is written.
            let text = text.as_str().map_or_else(|| text.to_string(), str::to_owned);
            manifest.scripts.insert(name.clone(), text);
        }
        (manifest.scripts.len() <= MAX_SCRIPTS).then_some(manifest)
    }

    /// Names of the scripts that `names` (names and patterns from outside) and the test scripts reach.
    pub(super) fn reachable(&self, names: &BTreeSet<String>, roots: &Roots<'_>) -> BTreeSet<&str> {
        let mut wanted: Vec<String> = names.iter().cloned().collect();
        wanted.push("test".to_owned());
        wanted.extend(self.scripts.keys().filter(|name| self.is_root(name, roots)).cloned());
        let mut seen: BTreeSet<String> = BTreeSet::new();
        let mut reached = BTreeSet::new();
        while let Some(name) = wanted.pop() {
            if !seen.insert(name.clone()) {
                continue;
            }
            if name.contains('*') {
                wanted.extend(self.scripts.keys().filter(|script| matches(&name, script)).cloned());
                continue;
            }
            // A script runs with what stands before and after it; the hooks count before there is a script.
            for candidate in [name.clone(), format!("pre{name}"), format!("post{name}")] {
                if let Some((script, text)) = self.scripts.get_key_value(&candidate)
                    && reached.insert(script.as_str())
                {
                    let mut inside = Reach::default();
                    inside.add_text(text, "");
                    wanted.extend(inside.scripts);
                }
            }
        }
        reached
    }

    fn is_root(&self, name: &str, roots: &Roots<'_>) -> bool {
        name.starts_with("test:")
            && match roots {
                Roots::All => true,
                Roots::Of(parts) => parts.contains_key(&format!("{SCRIPT}{name}")),
            }
    }

    /// Text of a script.
    pub(super) fn script(&self, name: &str) -> &str {
        self.scripts.get(name).map_or("", String::as_str)
    }

    /// The parts, given the scripts that are reached.
    pub(super) fn parts(&self, reached: &BTreeSet<&str>) -> Parts {
        let mut parts = self.keys.clone();
        for name in reached {
            parts.insert(format!("{SCRIPT}{name}"), digest(self.script(name).as_bytes()));
        }
        parts
    }
}

/// Whether a script's text runs scripts of other packages, so that its names count everywhere.
pub(super) fn reaches_out(text: &str) -> bool {
    text.split(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | ';' | '&' | '(')).any(|word| {
        matches!(
            word,
            "cd" | "pushd"
                | "workspace"
                | "workspaces"
                | "turbo"
                | "lerna"
                | "nx"
                | "wsrun"
                | "make"
                | "-r"
                | "-w"
                | "-F"
                | "-C"
                | "-ws"
        ) || ["--workspace", "--prefix", "--filter", "--recursive", "--cwd", "--dir"]
            .iter()
            .any(|f| word.starts_with(f))
    })
}

/// Whether a script's name fits a name or pattern: `*` stays inside a segment between colons, `**` does not.
fn matches(pattern: &str, name: &str) -> bool {
    fn go(pattern: &[u8], name: &[u8], fuel: &mut u32) -> bool {
        if *fuel == 0 {
            // Too many stars to decide cheaply: taken as fitting, which only protects more.
            return true;
        }
        *fuel -= 1;
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), _) => {
                let (rest, deep) = rest.strip_prefix(b"*").map_or((rest, false), |rest| (rest, true));
                go(rest, name, fuel)
                    || name.split_first().is_some_and(|(c, after)| (deep || *c != b':') && go(pattern, after, fuel))
            }
            (Some((p, rest)), Some((n, after))) => p == n && go(rest, after, fuel),
            _ => false,
        }
    }
    if !pattern.contains('*') {
        return pattern == name;
    }
    go(pattern.as_bytes(), name.as_bytes(), &mut 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reached(scripts: &str, names: &[&str]) -> Vec<String> {
        let manifest = Manifest::parse(format!("{{\"scripts\":{scripts}}}").as_bytes()).unwrap();
        let names = names.iter().map(|n| (*n).to_owned()).collect();
        manifest.reachable(&names, &Roots::All).into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn scripts_are_followed_through_runners_and_hooks() {
        assert_eq!(
            reached(
                r#"{"test":"run-s build:*","build:a":"yarn deep","build:a:b":"x","deep":"x","predeep":"bun run far","far":"x",
                    "prebuild:a":"x","posttest":"x","test:unit":"x","pretest:unit":"x","lint":"x","start":"npm run lint"}"#,
                &[]
            ),
            ["build:a", "deep", "far", "posttest", "prebuild:a", "predeep", "pretest:unit", "test", "test:unit"]
        );
        assert_eq!(reached(r#"{"check":"npm run check","prefix":"x"}"#, &["check"]), ["check"]);
    }

    #[test]
    fn patterns_respect_segments() {
        assert!(matches("a:*", "a:b") && !matches("a:*", "a:b:c") && matches("a:**", "a:b:c") && matches("*", "a"));
        let hard = "*a".repeat(40);
        let _ = matches(&hard, &"b".repeat(200));
    }

    #[test]
    fn order_and_other_keys_do_not_count() {
        let parts = |text: &str| {
            let manifest = Manifest::parse(text.as_bytes()).unwrap();
            let reached = manifest.reachable(&BTreeSet::new(), &Roots::All);
            manifest.parts(&reached)
        };
        let base = parts(r#"{"jest":{"a":1,"b":[2]},"scripts":{"test":"jest"}}"#);
        assert_eq!(base, parts(r#"{"scripts":{"x":"y","test":"jest"},"dependencies":{},"jest":{"b":[2],"a":1}}"#));
        assert_ne!(base, parts(r#"{"jest":{"a":1,"b":[3]},"scripts":{"test":"jest"}}"#));
        assert!(Manifest::parse(b"{").is_none() && Manifest::parse(b"[]").is_none());
    }
}
