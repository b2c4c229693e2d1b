//! Which scripts, make goals and test scripts a command line runs. Reads words only; runs and opens nothing.
//!
//! Deliberately wide: a word that merely could name a script is taken, for it counts only where a script of
//! that name exists.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::walk::escape;

/// Names kept of each sort, at most: far beyond any real contract, and a bound for a made-up one.
const MAX_NAMES: usize = 4_096;
/// Command lines inside quoted words are read this deep (`sh -c "npm run 'a b'"`).
const MAX_NESTING: usize = 4;
/// Calls of make kept, at most: each one reads a makefile.
const MAX_MAKE: usize = 256;
/// Words read of one simple command.
const MAX_WORDS: usize = 2_048;
/// Characters read of one command line.
const MAX_TEXT: usize = 64 * 1024;

/// What the checks of a contract run, directly or through scripts and makefiles.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reach {
    /// Names or patterns (`test:*`) of `package.json` scripts.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub scripts: BTreeSet<String>,
    /// Calls of make.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub make: BTreeSet<MakeRun>,
    /// Shell scripts with a test word in their name, relative to the top.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub files: BTreeSet<String>,
}

/// One goal of one makefile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MakeRun {
    /// Directory make runs in, relative to the top.
    pub dir: String,
    /// Makefile given with `-f`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The goal; none is the default goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
}

impl Reach {
    /// How much is known, to see whether a round found anything new.
    pub(super) fn size(&self) -> usize {
        self.scripts.len() + self.make.len() + self.files.len()
    }

    fn script(&mut self, name: &str) {
        if self.scripts.len() < MAX_NAMES && !name.is_empty() && !name.contains('$') {
            self.scripts.insert(name.to_owned());
        }
    }

    /// Adds what the argument vector `words` runs in `dir`.
    pub(super) fn add_command(&mut self, words: &[String], dir: &str) {
        self.command(words, dir, 0);
    }

    /// Adds what a shell would run for `text` in `dir`.
    pub(super) fn add_text(&mut self, text: &str, dir: &str) {
        self.text(text, dir, 0);
    }

    fn text(&mut self, text: &str, dir: &str, depth: usize) {
        let mut dir = dir.to_owned();
        for words in commands(text) {
            if words.first().is_some_and(|w| w == "cd" || w == "pushd") {
                if let Some(to) = words.get(1).and_then(|to| join(&dir, to)) {
                    dir = to;
                }
                continue;
            }
            self.command(&words, &dir, depth);
        }
    }

    fn command(&mut self, words: &[String], dir: &str, depth: usize) {
        for (at, word) in words.iter().enumerate() {
            let rest = words.get(at + 1..).unwrap_or_default();
            if word.contains(char::is_whitespace) && depth < MAX_NESTING {
                self.text(word, dir, depth + 1);
            }
            for prefix in ["npm:", "yarn:", "pnpm:", "bun:"] {
                if let Some(name) = word.strip_prefix(prefix) {
                    self.script(first_word(name));
                }
            }
            if let Some(name) = word.strip_prefix("--run=") {
                self.script(name);
            }
            if is_test_script(word)
                && let Some(path) = join(dir, word)
                && self.files.len() < MAX_NAMES
            {
                self.files.insert(path);
            }
            match word.rsplit('/').next().unwrap_or(word).trim_end_matches(".cmd") {
                "npm" | "cnpm" => self.npm(rest),
                "yarn" | "yarnpkg" | "pnpm" | "bun" | "turbo" | "lerna" | "nx" | "wsrun" => self.package_manager(rest),
                "npm-run-all" | "npm-run-all2" | "run-s" | "run-p" => {
                    plain(rest).for_each(|name| self.script(first_word(name)));
                }
                "node" => {
                    if let Some(at) = rest.iter().position(|w| w == "--run")
                        && let Some(name) = rest.get(at + 1)
                    {
                        self.script(name);
                    }
                }
                "make" | "gmake" => self.make(rest, dir),
                _ => {}
            }
        }
    }

    fn npm(&mut self, words: &[String]) {
        let mut all = false;
        for word in plain(words) {
            match word {
                "run" | "run-script" | "rum" | "urn" => all = true,
                name if all => self.script(name),
                "t" | "tst" | "it" | "install-test" | "cit" | "install-ci-test" => self.script("test"),
                "test" | "start" | "stop" | "restart" => self.script(word),
                _ => {}
            }
        }
    }

    /// Managers that take a script's name as their own command.
    fn package_manager(&mut self, words: &[String]) {
        const OWN: &[&str] =
            &["install", "i", "add", "remove", "exec", "dlx", "x", "create", "init", "run", "workspace", "foreach"];
        for word in words {
            if let Some(targets) = word.strip_prefix("--target=").or_else(|| word.strip_prefix("--targets=")) {
                targets.split(',').for_each(|name| self.script(name));
            }
        }
        plain(words).filter(|w| !OWN.contains(w)).for_each(|name| self.script(if name == "t" { "test" } else { name }));
    }

    fn make(&mut self, words: &[String], dir: &str) {
        let (mut dir, mut file, mut goals) = (Some(dir.to_owned()), None, Vec::new());
        let mut at = 0;
        while let Some(word) = words.get(at) {
            at += 1;
            let next = words.get(at);
            if word == "-C" || word == "--directory" {
                dir = next.and_then(|to| join(dir.as_deref()?, to));
                at += 1;
            } else if let Some(to) = word.strip_prefix("--directory=").or_else(|| word.strip_prefix("-C")) {
                dir = dir.and_then(|from| join(&from, to));
            } else if word == "-f" || word == "--file" || word == "--makefile" {
                file = next.cloned();
                at += 1;
            } else if let Some(name) = ["--file=", "--makefile=", "-f"].iter().find_map(|p| word.strip_prefix(p)) {
                file = Some(name.to_owned());
            } else if matches!(word.as_str(), "-I" | "-o" | "-W" | "--include-dir" | "--old-file" | "--what-if") {
                at += 1;
            } else if matches!(word.as_str(), "-j" | "-l" | "--jobs" | "--load-average") {
                at += usize::from(next.is_some_and(|n| n.parse::<f64>().is_ok()));
            } else if !word.starts_with('-') && !word.contains('=') && !word.starts_with(['>', '<']) {
                goals.push(Some(word.clone()));
            }
        }
        let Some(dir) = dir else { return };
        if goals.is_empty() {
            goals.push(None);
        }
        for goal in goals {
            if self.make.len() < MAX_MAKE {
                self.make.insert(MakeRun { dir: dir.clone(), file: file.clone(), goal });
            }
        }
    }
}

/// Words before `--` that are no flags.
fn plain(words: &[String]) -> impl Iterator<Item = &str> {
    words.iter().map(String::as_str).take_while(|w| *w != "--").filter(|w| !w.starts_with('-'))
}

fn first_word(text: &str) -> &str {
    text.split_whitespace().next().unwrap_or_default()
}

/// Shell scripts whose name says that they run tests.
fn is_test_script(word: &str) -> bool {
    let name = word.rsplit('/').next().unwrap_or(word);
    let Some((stem, "sh" | "bash" | "zsh")) = name.rsplit_once('.') else { return false };
    stem.split(|c: char| !c.is_ascii_alphanumeric()).any(|w| matches!(w, "test" | "tests" | "spec" | "specs" | "e2e"))
}

/// `path` seen from `dir`, both relative to the top; none when it leaves the top or is not plain.
pub(super) fn join(dir: &str, path: &str) -> Option<String> {
    if path.starts_with('/') || path.contains('$') {
        return None;
    }
    let mut parts: Vec<String> = dir.split('/').filter(|p| !p.is_empty()).map(str::to_owned).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(escape(part.as_bytes())),
        }
    }
    Some(parts.join("/"))
}

/// Splits a command line into its simple commands: quotes removed, operators dropped, nothing expanded.
pub(super) fn commands(text: &str) -> Vec<Vec<String>> {
    let text = text.replace("$(MAKE)", "make").replace("${MAKE}", "make");
    let mut all = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars().take(MAX_TEXT);
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some('"') | None, '\\') => {
                if let Some(next) = chars.next() {
                    // A line continued is white space, as between words.
                    if next == '\n' { words.extend(word.take()) } else { word.get_or_insert_default().push(next) }
                }
            }
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ';' | '&' | '|' | '(' | ')' | '`' | '\n') => {
                words.extend(word.take());
                all.push(std::mem::take(&mut words));
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    all.push(words);
    all.retain_mut(|words| {
        words.truncate(MAX_WORDS);
        !words.is_empty()
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scripts(text: &str) -> Vec<String> {
        let mut reach = Reach::default();
        reach.add_text(text, "");
        reach.scripts.into_iter().collect()
    }

    #[test]
    fn script_runners_are_understood() {
        for (text, expected) in [
            ("npm test", vec!["test"]),
            ("npm t -- --watch x", vec!["test"]),
            ("npm --prefix web run -s build", vec!["build"]),
            ("cross-env CI=1 npm run lint && echo done; yarn check", vec!["check", "lint"]),
            ("pnpm -r run unit", vec!["unit"]),
            ("bun run a", vec!["a"]),
            ("run-s 'test:* -- --ci' lint", vec!["lint", "test:*"]),
            ("npx npm-run-all --parallel a b", vec!["a", "b"]),
            ("concurrently \"npm:watch\" \"npm run 'serve'\"", vec!["serve", "watch"]),
            ("sh -c \"npm run x || yarn y\"", vec!["x", "y"]),
            ("node --run z", vec!["z"]),
            ("echo hello > npm.txt", vec![]),
        ] {
            assert_eq!(scripts(text), expected, "{text}");
        }
    }

    #[test]
    fn make_goals_are_found_with_their_directory() {
        let mut reach = Reach::default();
        reach.add_text("make -j 4 -C sub V=1 test lint && cd x/../y && $(MAKE) -f ci.mk; make -C ../../.. out", "");
        let seen: Vec<_> = reach.make.iter().map(|m| (m.dir.as_str(), m.file.as_deref(), m.goal.as_deref())).collect();
        assert_eq!(seen, [("sub", None, Some("lint")), ("sub", None, Some("test")), ("y", Some("ci.mk"), None)]);
    }

    #[test]
    fn test_scripts_are_found_by_name() {
        let mut reach = Reach::default();
        reach.add_text("./scripts/run_tests.sh; bash test.sh; sh deploy.sh; ./latest.sh", "a");
        assert_eq!(reach.files.iter().collect::<Vec<_>>(), ["a/scripts/run_tests.sh", "a/test.sh"]);
    }
}
