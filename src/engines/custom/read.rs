//! Reading and checking a config: every problem with its path, none with its value.

use std::{collections::BTreeMap, time::Duration};

use serde_json::{Map, Value};

use super::{ConfigProblems, CustomEngine, MessageVia, Output, Pricing, UsagePaths};

/// Longest name.
const MAX_NAME: usize = 64;
/// Longest list of arguments and longest map.
const MAX_ITEMS: usize = 64;
/// Longest text of any member.
const MAX_TEXT: usize = 16 << 10;
/// Turns of a described program may take a second to two hours, like those of a session.
const TIMEOUT_MS: std::ops::RangeInclusive<u64> = 1_000..=7_200_000;
/// Members there are.
const KEYS: &[&str] = &[
    "name",
    "bin",
    "binEnv",
    "args",
    "persistent",
    "cwdFlag",
    "modelFlag",
    "messageVia",
    "output",
    "textPath",
    "idPath",
    "usagePaths",
    "resumeFlag",
    "permissionModes",
    "sandboxModes",
    "efforts",
    "env",
    "timeoutMs",
    "pricing",
];
const SANDBOXES: &[&str] = &["read-only", "workspace-write", "danger-full-access"];
const MODES: &[&str] = &["acceptEdits", "auto", "bypassPermissions", "default", "dontAsk", "manual", "plan"];
const LEVELS: &[&str] = &["low", "medium", "high", "xhigh", "max", "ultra"];

impl CustomEngine {
    /// Reads a config. Unknown members are refused, because a misspelt restriction would be none.
    pub fn read(value: &Value) -> Result<Self, ConfigProblems> {
        let Some(map) = value.as_object() else {
            return Err(ConfigProblems(vec![("customEngine".to_owned(), "must be an object".to_owned())]));
        };
        let mut reader = Reader { map, problems: Vec::new() };
        let engine = reader.engine();
        if reader.problems.is_empty() { Ok(engine) } else { Err(ConfigProblems(reader.problems)) }
    }
}

struct Reader<'a> {
    map: &'a Map<String, Value>,
    problems: Vec<(String, String)>,
}

impl Reader<'_> {
    fn engine(&mut self) -> CustomEngine {
        self.known("", self.map, KEYS);
        let output = self.word(
            "output",
            &[("text", Output::Text), ("json", Output::Json), ("ndjson", Output::Ndjson), ("claude", Output::Claude)],
        );
        let via = self.word("messageVia", &[("arg", MessageVia::Arg), ("stdin", MessageVia::Stdin)]);
        let engine = CustomEngine {
            name: self.text("name").unwrap_or_default(),
            bin: self.text("bin"),
            bin_env: self.text("binEnv"),
            args: self.map.get("args").map(|v| self.list("args", v)).unwrap_or_default(),
            persistent: self.flag("persistent"),
            cwd_flag: self.text("cwdFlag"),
            model_flag: self.text("modelFlag"),
            message_via: via.unwrap_or(MessageVia::Stdin),
            output: output.unwrap_or(Output::Text),
            text_path: self.path("textPath"),
            id_path: self.path("idPath"),
            usage_paths: self.usage_paths(),
            resume_flag: self.text("resumeFlag"),
            permission_modes: self.lists("permissionModes", MODES),
            sandbox_modes: self.lists("sandboxModes", SANDBOXES),
            efforts: self.lists("efforts", LEVELS),
            env: self.env(),
            timeout: self.timeout(),
            pricing: self.pricing(),
        };
        self.together(&engine);
        engine
    }

    /// What members mean for each other.
    fn together(&mut self, engine: &CustomEngine) {
        let name_ok = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if engine.name.is_empty() || engine.name.len() > MAX_NAME || !engine.name.chars().all(name_ok) {
            self.problem("name", format!("must be 1 to {MAX_NAME} letters, digits, `-`, `_` or `.`"));
        }
        if engine.bin.is_none() && engine.bin_env.is_none() {
            self.problem("bin", "must name a program, unless binEnv does");
        }
        if self.map.get("output").is_none() {
            self.problem("output", "must be one of text, json, ndjson, claude");
        }
        let structured = matches!(engine.output, Output::Json | Output::Ndjson);
        if structured && engine.text_path.is_none() {
            self.problem("textPath", "must say where the reply is, because the output is JSON");
        }
        if !structured {
            for key in ["textPath", "idPath", "usagePaths"] {
                if self.map.contains_key(key) {
                    self.problem(key, "is only for output json or ndjson; leave it out");
                }
            }
        }
        if engine.persistent && engine.output != Output::Claude {
            self.problem("persistent", "needs output claude; the others take one turn a process");
        }
        if engine.persistent && engine.message_via == MessageVia::Arg {
            self.problem("messageVia", "must be stdin for a persistent program");
        }
        let has_id = engine.id_path.is_some() || engine.output == Output::Claude;
        if engine.resume_flag.is_some() && !has_id {
            self.problem("resumeFlag", "needs idPath, which says where the id of the conversation is");
        }
    }

    fn problem(&mut self, path: &str, text: impl Into<String>) {
        self.problems.push((path.to_owned(), text.into()));
    }

    fn known(&mut self, at: &str, map: &Map<String, Value>, keys: &[&str]) {
        for key in map.keys().filter(|k| !keys.contains(&k.as_str())) {
            // A name is shown, cut: it is what has to be corrected.
            let shown: String = key.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
            self.problem(&format!("{at}{shown}"), format!("is unknown; there are {}", keys.join(", ")));
        }
    }

    fn text(&mut self, key: &str) -> Option<String> {
        let value = self.map.get(key)?;
        match value.as_str().filter(|t| plain(t) && !t.trim().is_empty()) {
            Some(text) => Some(text.to_owned()),
            None => {
                self.problem(key, format!("must be a text of 1 to {MAX_TEXT} bytes"));
                None
            }
        }
    }

    fn flag(&mut self, key: &str) -> bool {
        match self.map.get(key) {
            None => false,
            Some(Value::Bool(set)) => *set,
            Some(_) => {
                self.problem(key, "must be true or false");
                false
            }
        }
    }

    fn word<T: Copy>(&mut self, key: &str, words: &[(&str, T)]) -> Option<T> {
        let value = self.map.get(key)?;
        let found = words.iter().find(|(word, _)| value.as_str() == Some(word)).map(|(_, meaning)| *meaning);
        if found.is_none() {
            let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.problem(key, format!("must be one of {}", words.join(", ")));
        }
        found
    }

    fn path(&mut self, key: &str) -> Option<String> {
        let text = self.text(key)?;
        if text.split('.').any(str::is_empty) {
            self.problem(key, "must be member names and indexes separated by dots, such as result.0.text");
            return None;
        }
        Some(text)
    }

    fn list(&mut self, at: &str, value: &Value) -> Vec<String> {
        let texts: Option<Vec<String>> = value
            .as_array()
            .filter(|items| items.len() <= MAX_ITEMS)
            .and_then(|items| items.iter().map(|i| i.as_str().filter(|t| plain(t)).map(str::to_owned)).collect());
        texts.unwrap_or_else(|| {
            self.problem(at, format!("must be a list of at most {MAX_ITEMS} texts"));
            Vec::new()
        })
    }

    fn object(&mut self, key: &str) -> Option<Map<String, Value>> {
        let value = self.map.get(key)?;
        match value.as_object().filter(|m| m.len() <= MAX_ITEMS) {
            Some(map) => Some(map.clone()),
            None => {
                self.problem(key, format!("must be an object of at most {MAX_ITEMS} members"));
                None
            }
        }
    }

    /// Arguments by the word they stand for.
    fn lists(&mut self, key: &str, words: &[&str]) -> BTreeMap<String, Vec<String>> {
        let map = self.object(key).unwrap_or_default();
        self.known(&format!("{key}."), &map, words);
        map.iter().map(|(word, value)| (word.clone(), self.list(&format!("{key}.{word}"), value))).collect()
    }

    fn usage_paths(&mut self) -> UsagePaths {
        let map = self.object("usagePaths").unwrap_or_default();
        self.known("usagePaths.", &map, &["input", "cached", "cacheWrite", "output", "cost"]);
        let mut path = |key: &str| {
            let value = map.get(key)?;
            let text = value.as_str().filter(|t| plain(t) && !t.split('.').any(str::is_empty));
            if text.is_none() {
                let text = "must be member names and indexes separated by dots, such as usage.input_tokens";
                self.problems.push((format!("usagePaths.{key}"), text.to_owned()));
            }
            text.map(str::to_owned)
        };
        UsagePaths {
            input: path("input"),
            cached: path("cached"),
            cache_write: path("cacheWrite"),
            output: path("output"),
            cost: path("cost"),
        }
    }

    fn env(&mut self) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        for (at, (name, value)) in self.object("env").unwrap_or_default().iter().enumerate() {
            let named = !name.is_empty()
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
                && !name.starts_with("CLAWO_");
            match value.as_str().filter(|t| plain(t)) {
                Some(text) if named => {
                    env.insert(name.clone(), text.to_owned());
                }
                _ => {
                    let text = "must be a variable name that does not begin with CLAWO_, with a text";
                    self.problem(&format!("env[{at}]"), text);
                }
            }
        }
        env
    }

    fn timeout(&mut self) -> Option<Duration> {
        let value = self.map.get("timeoutMs")?;
        let millis = value.as_u64().filter(|ms| TIMEOUT_MS.contains(ms));
        if millis.is_none() {
            let (least, most) = (TIMEOUT_MS.start(), TIMEOUT_MS.end());
            self.problem("timeoutMs", format!("must be {least} to {most} milliseconds"));
        }
        millis.map(Duration::from_millis)
    }

    fn pricing(&mut self) -> Option<Pricing> {
        let map = self.object("pricing")?;
        self.known("pricing.", &map, &["input", "cached", "output"]);
        let mut price = |key: &str, needed: bool| {
            let value = map.get(key).and_then(Value::as_f64).filter(|usd| usd.is_finite() && *usd >= 0.0);
            if value.is_none() && (needed || map.contains_key(key)) {
                let text = "must be US dollars for a million tokens, 0 or more";
                self.problems.push((format!("pricing.{key}"), text.to_owned()));
            }
            value
        };
        let (input, cached, output) = (price("input", true), price("cached", false), price("output", true));
        Some(Pricing { input: input?, cached, output: output? })
    }
}

/// Whether a text can be an argument or a variable's value.
fn plain(text: &str) -> bool {
    text.len() <= MAX_TEXT && !text.contains('\0')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_whole_config_is_read() {
        let engine = CustomEngine::read(&json!({
            "name": "my-agent", "bin": "agent", "binEnv": "MY_AGENT", "args": ["run"], "cwdFlag": "--cwd",
            "modelFlag": "--model", "messageVia": "arg", "output": "ndjson", "textPath": "result.text",
            "idPath": "session", "usagePaths": { "input": "usage.in", "cost": "usd" }, "resumeFlag": "--resume",
            "permissionModes": { "plan": ["--plan"] }, "sandboxModes": { "read-only": ["--ro"] },
            "efforts": { "high": ["-e", "3"] }, "env": { "A": "b" }, "timeoutMs": 60000,
            "pricing": { "input": 1, "output": 2.5 }
        }))
        .unwrap();
        assert_eq!((engine.output, engine.message_via), (Output::Ndjson, MessageVia::Arg));
        assert_eq!(engine.efforts["high"], ["-e", "3"]);
        assert_eq!(engine.pricing, Some(Pricing { input: 1.0, cached: None, output: 2.5 }));
        assert_eq!(engine.usage_paths.cost.as_deref(), Some("usd"));
        assert_eq!(engine.timeout, Some(Duration::from_secs(60)));
    }

    /// Every problem is told at once, each with its path, none with a value.
    #[test]
    fn problems_name_their_paths() {
        let bad = json!({
            "name": "a b", "args": ["x", 1], "persistent": true, "messageVia": "canary", "output": "json",
            "idPath": "a..b", "usagePaths": { "input": 3, "canary": "x" }, "permissionModes": { "yolo": [] },
            "sandboxModes": { "read-only": "canary" }, "efforts": [], "env": { "CLAWO_HOME": "canary" },
            "timeoutMs": 5, "pricing": { "input": -1 }, "resumeFlag": "--r", "modle": "canary"
        });
        let problems = CustomEngine::read(&bad).unwrap_err();
        let paths: Vec<&str> = problems.0.iter().map(|(path, _)| path.as_str()).collect();
        for path in [
            "name",
            "bin",
            "args",
            "persistent",
            "messageVia",
            "idPath",
            "usagePaths.input",
            "usagePaths.canary",
            "permissionModes.yolo",
            "sandboxModes.read-only",
            "efforts",
            "env[0]",
            "timeoutMs",
            "pricing.input",
            "pricing.output",
            "textPath",
            "resumeFlag",
            "modle",
        ] {
            assert!(paths.contains(&path), "{path}: {problems}");
        }
        let text = problems.to_string().replace("usagePaths.canary", "");
        assert!(!text.contains("canary"), "{text}");
        assert!(CustomEngine::read(&json!("x")).unwrap_err().to_string().contains("object"));
    }
}
