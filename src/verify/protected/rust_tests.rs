//! Inline tests of a Rust source as token text: white space and comments do not count. No parser:
//! source that does not compile is read as far as it goes, and nothing is resolved or expanded.

use sha2::{Digest, Sha256};

use super::{
    Parts, digest, hex,
    rust_lex::{Sort, Token, group_ends, lex},
};

/// What a source holds of tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Inline test modules, test functions outside of them, and the attributes that switch them.
    pub(super) parts: Parts,
    /// Test modules in files of their own, `#[cfg(test)] mod name;`.
    pub(super) modules: Vec<OutOfLine>,
}

/// A test module declared here and written elsewhere.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OutOfLine {
    /// Its name, below the inline modules it is declared in: `["a", "tests"]`.
    pub(super) path: Vec<String>,
    /// Value of a `#[path = "..."]` attribute.
    pub(super) file: Option<String>,
}

/// Finds the tests of `source`.
pub(super) fn scan(source: &[u8]) -> Found {
    if !contains(source, b"test") {
        return Found::default();
    }
    let tokens = lex(source);
    let ends = group_ends(&tokens);
    Scanner { tokens, ends, at: 0, open: Vec::new(), found: Found::default() }.run()
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|w| w == needle)
}

/// What is pending before an item: where its attributes begin and what they say.
#[derive(Debug, Default)]
struct Pending {
    start: Option<usize>,
    cfg_test: bool,
    test: bool,
    cfgs: Vec<u8>,
    file: Option<String>,
}

struct Scanner<'a> {
    tokens: Vec<Token<'a>>,
    ends: Vec<usize>,
    at: usize,
    /// Enclosing groups, outermost first: `mod name`, `name!`, or `{}` for any other.
    open: Vec<String>,
    found: Found,
}

impl<'a> Scanner<'a> {
    fn get(&self, at: usize) -> Option<Token<'a>> {
        self.tokens.get(at).copied()
    }

    fn is(&self, at: usize, text: &[u8]) -> bool {
        self.get(at).is_some_and(|t| t.0 != Sort::Literal && t.1 == text)
    }

    fn word(&self, at: usize) -> Option<&'a [u8]> {
        self.get(at).filter(|t| t.0 == Sort::Word).map(|t| t.1)
    }

    /// Index just past the group that opens at `at`, or the end.
    fn past_group(&self, at: usize) -> usize {
        self.ends.get(at).copied().unwrap_or(self.tokens.len())
    }

    fn run(mut self) -> Found {
        let mut pending = Pending::default();
        let mut inner = Vec::new();
        while let Some((sort, text)) = self.get(self.at) {
            if self.is(self.at, b"#") && self.is(self.at + 1, b"!") && self.is(self.at + 2, b"[") {
                let end = self.past_group(self.at + 2);
                if matches!(self.word(self.at + 3), Some(b"cfg" | b"cfg_attr")) {
                    inner.push((self.context(), self.hash(self.at, end)));
                }
                self.at = end;
            } else if self.is(self.at, b"#") && self.is(self.at + 1, b"[") {
                let end = self.past_group(self.at + 1);
                self.attribute(self.at, end, &mut pending);
                self.at = end;
            } else if text == b"mod" && self.word(self.at + 1).is_some() {
                self.module(&mut pending);
            } else if text == b"fn" && pending.test {
                let name = lossy(self.word(self.at + 1).unwrap_or_default());
                let body = (self.at..self.tokens.len()).find(|i| self.is(*i, b"{") || self.is(*i, b";"));
                let end = match body {
                    Some(i) if self.is(i, b"{") => self.past_group(i),
                    Some(i) => i + 1,
                    None => self.tokens.len(),
                };
                self.keep(&format!("fn {name}"), pending.start.unwrap_or(self.at), end);
                pending = Pending::default();
                self.at = end;
            } else {
                match sort {
                    Sort::Open => {
                        let modifier = text == b"(" && pending.start.is_some() && self.previous_is(b"pub");
                        if modifier {
                            self.at = self.past_group(self.at);
                            continue;
                        }
                        self.open.push(self.group_name());
                        pending = Pending::default();
                    }
                    Sort::Close => {
                        self.open.pop();
                        pending = Pending::default();
                    }
                    Sort::Word if matches!(text, b"pub" | b"async" | b"const" | b"unsafe" | b"extern") => {}
                    Sort::Literal if self.previous_is(b"extern") => {}
                    Sort::Word | Sort::Literal | Sort::Punct => pending = Pending::default(),
                }
                self.at += 1;
            }
        }
        // Switches of the file or of a module matter only where there are tests for them to switch.
        if !self.found.parts.is_empty() {
            for (context, hash) in inner {
                self.found.parts.insert(format!("{context}#![cfg] {}", short(&hash)), hash);
            }
        }
        self.found
    }

    fn previous_is(&self, text: &[u8]) -> bool {
        self.at.checked_sub(1).is_some_and(|i| self.is(i, text))
    }

    fn context(&self) -> String {
        self.open.iter().fold(String::new(), |out, group| out + group + "::")
    }

    /// How the group opening at the cursor is called in a context.
    fn group_name(&self) -> String {
        let back = |n: usize| self.at.checked_sub(n);
        let macro_at = |bang: usize, name: usize| {
            (back(bang).is_some_and(|i| self.is(i, b"!")))
                .then(|| back(name).and_then(|i| self.word(i)))
                .flatten()
                .map(|name| format!("{}!", lossy(name)))
        };
        macro_at(1, 2).or_else(|| macro_at(2, 3)).unwrap_or_else(|| "{}".into())
    }

    fn module(&mut self, pending: &mut Pending) {
        let name = lossy(self.word(self.at + 1).unwrap_or_default());
        let pending = std::mem::take(pending);
        let start = pending.start.unwrap_or(self.at);
        let open = self.at + 2;
        if self.is(open, b"{") {
            if pending.cfg_test {
                let end = self.past_group(open);
                self.keep(&format!("mod {name}"), start, end);
                self.at = end;
            } else {
                let cfgs =
                    if pending.cfgs.is_empty() { String::new() } else { format!(" {}", short(&digest(&pending.cfgs))) };
                self.open.push(format!("mod {name}{cfgs}"));
                self.at = open + 1;
            }
        } else if self.is(open, b";") {
            if pending.cfg_test {
                self.keep(&format!("mod {name};"), start, open + 1);
                let mut path: Vec<String> = self
                    .open
                    .iter()
                    .filter_map(|group| group.strip_prefix("mod "))
                    .filter_map(|group| group.split(' ').next().map(str::to_owned))
                    .collect();
                path.push(name);
                self.found.modules.push(OutOfLine { path, file: pending.file });
            }
            self.at = open + 1;
        } else {
            self.at += 1;
        }
    }

    /// Reads the outer attribute in `start..end` into what is pending.
    fn attribute(&self, start: usize, end: usize, pending: &mut Pending) {
        pending.start.get_or_insert(start);
        let first = self.word(start + 2);
        if first == Some(b"cfg") || first == Some(b"cfg_attr") {
            pending.cfgs.extend(self.tokens.iter().take(end).skip(start).flat_map(|t| t.1.iter().copied().chain([0])));
        }
        if first == Some(b"cfg") && self.asks_for_test(start + 3, end) {
            pending.cfg_test = true;
        }
        if first == Some(b"path")
            && self.is(start + 3, b"=")
            && let Some((Sort::Literal, text)) = self.get(start + 4)
        {
            pending.file = Some(lossy(text).trim_matches('"').to_owned());
        }
        // `#[test]`, `#[tokio::test(...)]`, `#[rstest]`, `#[test_case(...)]`: the last name of the path.
        let mut last = None;
        for at in start + 2..end {
            match self.get(at) {
                Some((Sort::Word, text)) => last = Some(text),
                Some((Sort::Punct, b":")) => {}
                _ => break,
            }
        }
        pending.test |= last.is_some_and(|name| name.ends_with(b"test") || name == b"test_case");
    }

    /// Whether the predicate in `start..end` names `test` outside of `not(...)`.
    fn asks_for_test(&self, start: usize, end: usize) -> bool {
        let mut at = start;
        while at < end {
            if self.is(at, b"not") && self.is(at + 1, b"(") {
                at = self.past_group(at + 1);
            } else if self.word(at) == Some(b"test") {
                return true;
            } else {
                at += 1;
            }
        }
        false
    }

    fn keep(&mut self, name: &str, start: usize, end: usize) {
        let hash = self.hash(start, end);
        // The hash is part of the key, so that several modules of one name are told apart in any order.
        self.found.parts.insert(format!("{}{name} {}", self.context(), short(&hash)), hash);
    }

    /// Hash of the tokens in `start..end`. A comma before a closing bracket is what formatters add and remove.
    fn hash(&self, start: usize, end: usize) -> String {
        let mut hasher = Sha256::new();
        for at in start..end.min(self.tokens.len()) {
            let Some((_, text)) = self.get(at) else { break };
            let trailing = text == b"," && self.get(at + 1).is_some_and(|next| next.0 == Sort::Close);
            if !trailing {
                hasher.update(text);
                hasher.update([0]);
            }
        }
        hex(&hasher.finalize())
    }
}

fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = r##"
        pub fn double(x: i32) -> i32 { x * 2 }
        #[cfg(test)]
        mod tests {
            use super::*;
            #[test]
            fn works<'a>() { let c = '"'; assert_eq!(double(2), 4, r#"a "}" b"#); }
        }
    "##;

    fn holds(start: &str, now: &str) -> bool {
        let now = scan(now.as_bytes()).parts;
        let start = scan(start.as_bytes()).parts;
        assert!(!start.is_empty());
        start.iter().all(|(k, v)| now.get(k) == Some(v))
    }

    #[test]
    fn layout_and_other_code_do_not_count() {
        for (from, to) in [
            ("x * 2", "x + x /* mod tests { */"),
            ("use super::*;", "// a word\n use   super :: * ; /* /* nested */ */"),
            ("double(2), 4, r#\"a \"}\" b\"#)", "double(2),\n 4,\n r#\"a \"}\" b\"#,\n)"),
            ("pub fn", "mod other { } #[cfg(test)] mod more { #[test] fn a() {} } pub fn"),
        ] {
            assert!(BASE.contains(from), "{from}");
            assert!(holds(BASE, &BASE.replace(from, to)), "{to}");
        }
    }

    #[test]
    fn every_weakening_counts() {
        for (from, to) in [
            ("double(2), 4", "double(2), double(2)"),
            ("#[test]", "#[test] #[ignore]"),
            ("#[test]", ""),
            ("#[cfg(test)]", ""),
            ("#[cfg(test)]", "#[cfg(all(test, unix, windows))]"),
            ("#[cfg(test)]", "#[cfg(any())] #[cfg(test)]"),
            ("#[cfg(test)]", "skip! { #[cfg(test)]"),
            ("#[cfg(test)]", "#[cfg(any())] mod off { #[cfg(test)]"),
            ("#[cfg(test)]", "fn off() { #[cfg(test)]"),
            ("#[cfg(test)]", "/* #[cfg(test)]"),
            ("\"}\" b", "\"}\"  b"),
        ] {
            assert!(!holds(BASE, &BASE.replace(from, to)), "{to}");
        }
        // A switch for the whole file is seen by the added part.
        let off = scan(format!("#![cfg(any())] {BASE}").as_bytes()).parts;
        assert_eq!(off.len(), scan(BASE.as_bytes()).parts.len() + 1);
    }

    #[test]
    fn modules_in_files_of_their_own_are_named() {
        let found = scan(b"mod a { #[cfg(test)] pub(crate) mod tests; } #[cfg(test)] #[path = \"t.rs\"] mod u; mod v;");
        assert_eq!(
            found.modules,
            [
                OutOfLine { path: vec!["a".into(), "tests".into()], file: None },
                OutOfLine { path: vec!["u".into()], file: Some("t.rs".into()) },
            ]
        );
    }

    #[test]
    fn damaged_source_is_read_as_far_as_it_goes() {
        for source in
            ["#[cfg(test)] mod t { fn x( ", "test \"open", "#[cfg(test", "test '", "test r###\"", "}}} test #["]
        {
            let _ = scan(source.as_bytes());
        }
        assert!(scan(b"#[cfg(not(test))] mod a { }").parts.is_empty());
        assert!(scan(b"#[tokio::test] async fn a() {}").parts.keys().any(|k| k.starts_with("fn a")));
    }
}
