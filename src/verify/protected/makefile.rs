//! What a make goal runs: the rules it reaches and the variables they use, as text. A tolerant reader, not
//! make: nothing is evaluated but plain variable references, and a line that is not understood counts whole.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
};

use super::{
    Parts, digest,
    patterns::parent,
    shell::{MakeRun, join},
};

/// Names make looks for by itself, in its order.
const NAMES: &[&str] = &["GNUmakefile", "makefile", "Makefile"];
/// Makefiles read for one run, included ones among them.
const MAX_FILES: usize = 64;
/// Passes of expanding variables inside variables.
const MAX_EXPANSIONS: usize = 8;
/// Length to which a line may grow by expansion; beyond it stays as written.
const MAX_LINE: usize = 64 * 1024;
/// Length of all expanded text of one run; after that lines stay as written.
const MAX_EXPANDED: usize = 8 << 20;
/// Targets compared in one run. A makefile that takes more is protected whole.
const MAX_COMPARED: usize = 20_000_000;
/// Variables and special targets that change every recipe.
const ALWAYS: &[&str] =
    &["SHELL", ".SHELLFLAGS", "MAKEFLAGS", "MAKEOVERRIDES", "VPATH", ".DEFAULT_GOAL", "MAKE", "GNUMAKEFLAGS"];
const SPECIAL: &[&str] = &[
    ".IGNORE",
    ".ONESHELL",
    ".DEFAULT",
    ".POSIX",
    ".SILENT",
    ".EXPORT_ALL_VARIABLES",
    ".SUFFIXES",
    ".SECONDEXPANSION",
];

/// Reads a file by its path relative to the top; none when it is no readable regular file.
pub(super) type Read<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

/// What one run of make reaches.
#[derive(Debug, Default)]
pub(super) struct Reached {
    /// Parts by the file they stand in.
    pub(super) files: BTreeMap<String, Parts>,
    /// Recipe lines, to be read for further commands.
    pub(super) recipes: Vec<String>,
}

#[derive(Debug)]
struct Rule {
    file: String,
    targets: Vec<String>,
    prerequisites: Vec<String>,
    /// Conditions its header stands under.
    context: String,
    /// Conditions, header and recipe.
    text: String,
    recipe: Vec<String>,
}

#[derive(Debug, Default)]
struct Makefile {
    main: String,
    rules: Vec<Rule>,
    /// File, name and whole text of each assignment, in order; the last plain value by name.
    assignments: Vec<(String, String, String)>,
    values: BTreeMap<String, String>,
    /// Lines that are neither rule nor assignment.
    others: Vec<(String, String)>,
    read: BTreeSet<String>,
    /// What is left of [`MAX_EXPANDED`].
    expandable: Cell<usize>,
}

/// What `run` reaches; none when there is no makefile.
pub(super) fn reach(run: &MakeRun, read: Read<'_>) -> Option<Reached> {
    let main = match &run.file {
        Some(name) => join(&run.dir, name)?,
        None => NAMES.iter().filter_map(|name| join(&run.dir, name)).find(|path| read(path).is_some())?,
    };
    let mut makefile = Makefile { main: main.clone(), expandable: Cell::new(MAX_EXPANDED), ..Makefile::default() };
    makefile.load(&main, &run.dir, read)?;
    Some(makefile.reached(run.goal.as_deref()))
}

impl Makefile {
    fn load(&mut self, path: &str, dir: &str, read: Read<'_>) -> Option<()> {
        let bytes = read(path)?;
        if self.read.len() >= MAX_FILES || !self.read.insert(path.to_owned()) {
            return Some(());
        }
        let text = String::from_utf8_lossy(&bytes);
        if text.contains(".RECIPEPREFIX") {
            // Recipes look different from here on: the file counts as it is.
            self.others.push((path.to_owned(), text.clone().into_owned()));
        }
        let mut conditions: Vec<String> = Vec::new();
        let mut define: Option<(String, String)> = None;
        // Rules that the next recipe line belongs to.
        let mut open: Option<usize> = None;
        for line in logical_lines(&text) {
            if let Some((name, body)) = &mut define {
                body.push('\n');
                body.push_str(line.trim_end());
                if line.trim() == "endef" {
                    self.assignments.push((path.to_owned(), name.clone(), body.clone()));
                    define = None;
                }
                continue;
            }
            if line.starts_with('\t')
                && let Some(rule) = open.and_then(|at| self.rules.get_mut(at))
            {
                rule.text.push('\n');
                let context = conditions.join("; ");
                if rule.context != context {
                    rule.text.push_str(&context);
                    rule.text.push('|');
                }
                rule.text.push_str(line.trim());
                rule.recipe.push(line.trim().trim_start_matches(['@', '-', '+']).to_owned());
                continue;
            }
            let plain = without_comment(&line);
            let plain = plain.trim();
            let first = plain.split_whitespace().next().unwrap_or_default();
            match first {
                "" => {}
                "ifeq" | "ifneq" | "ifdef" | "ifndef" => conditions.push(squeeze(plain)),
                "else" => {
                    let last = conditions.pop().unwrap_or_default();
                    conditions.push(format!("{last} {}", squeeze(plain)));
                }
                "endif" => {
                    conditions.pop();
                }
                "include" | "-include" | "sinclude" => {
                    self.others.push((path.to_owned(), squeeze(plain)));
                    for name in self.expand(plain).split_whitespace().skip(1) {
                        // Lists of headers that the build writes by itself steer no test.
                        let generated = name.ends_with(".d") || name.ends_with(".dep") || name.ends_with("depend");
                        if let Some(path) = join(dir, name).filter(|_| !generated) {
                            self.load(&path, dir, read);
                        }
                    }
                }
                "define" => {
                    let name = plain.split_whitespace().nth(1).unwrap_or_default();
                    define = Some((name.to_owned(), plain.to_owned()));
                }
                _ => {
                    let context = conditions.join("; ");
                    if let Some((name, value)) = assignment(plain) {
                        self.assign(path, &name, &value, &format!("{context}|{}", squeeze(plain)));
                        open = None;
                    } else if rule_header(plain).is_some() {
                        open = Some(self.rule(path, plain, &context));
                    } else {
                        self.others.push((path.to_owned(), format!("{context}|{}", squeeze(plain))));
                    }
                }
            }
        }
        Some(())
    }

    fn assign(&mut self, file: &str, name: &str, value: &str, text: &str) {
        let entry = self.values.entry(name.to_owned()).or_default();
        // Values of every branch and addition together: what could be meant, not what make would take.
        if entry.len() + value.len() < MAX_LINE {
            if !entry.is_empty() {
                entry.push(' ');
            }
            entry.push_str(value);
        }
        self.assignments.push((file.to_owned(), name.to_owned(), text.to_owned()));
    }

    fn rule(&mut self, file: &str, line: &str, context: &str) -> usize {
        let (header, inline) = line.split_once(';').map_or((line, None), |(h, r)| (h, Some(r.trim())));
        let (targets, rest) = rule_header(header).unwrap_or((header, ""));
        let split = |text: &str| -> Vec<String> {
            let mut words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            words.extend(self.expand(text).split_whitespace().map(str::to_owned));
            words
        };
        // `target: NAME = value` sets a variable for the target; it has no prerequisites.
        let prerequisites = if assignment(rest).is_some() { Vec::new() } else { split(&rest.replace(['|', ':'], " ")) };
        let rule = Rule {
            file: file.to_owned(),
            targets: split(targets),
            prerequisites,
            context: context.to_owned(),
            text: format!("{context}|{}", squeeze(line)),
            recipe: inline.map(str::to_owned).into_iter().collect(),
        };
        self.rules.push(rule);
        self.rules.len() - 1
    }

    /// Replaces `$(NAME)` and `${NAME}` by what was assigned, where it was.
    fn expand(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for _ in 0..MAX_EXPANSIONS {
            let mut out = String::new();
            let mut rest = text.as_str();
            let mut changed = false;
            while out.len() <= MAX_LINE
                && let Some((before, after)) = rest.split_once('$')
            {
                out.push_str(before);
                let name = reference(after);
                match name.and_then(|name| self.values.get(name)) {
                    Some(value) => {
                        out.push_str(value);
                        changed = true;
                        rest = after.get(name.map_or(0, str::len) + 2..).unwrap_or_default();
                    }
                    None => {
                        out.push('$');
                        rest = after;
                    }
                }
            }
            out.push_str(rest);
            let left = self.expandable.get();
            if !changed || out.len() > MAX_LINE || out.len() > left {
                break;
            }
            self.expandable.set(left - out.len());
            text = out;
        }
        text
    }

    fn reached(&self, goal: Option<&str>) -> Reached {
        let mut out = Reached::default();
        // Every file that was read is known, also when nothing in it is reached.
        for file in &self.read {
            out.files.insert(file.clone(), Parts::new());
        }
        let mut texts: BTreeMap<(String, String), String> = BTreeMap::new();
        let mut add = |file: &str, key: String, text: &str| {
            let whole = texts.entry((file.to_owned(), key)).or_default();
            whole.push_str(text);
            whole.push('\0');
        };
        let default = self.default_goal();
        let mut wanted: Vec<String> = match goal {
            Some(goal) => vec![goal.to_owned()],
            None => {
                add(&self.main, "default goal".to_owned(), &default.clone().unwrap_or_default());
                default.into_iter().collect()
            }
        };
        let mut seen: BTreeSet<String> = BTreeSet::new();
        let mut used = String::new();
        let per_pass: usize = self.rules.iter().map(|rule| rule.targets.len() + 1).sum();
        let mut passes = MAX_COMPARED / per_pass.max(1);
        while let Some(target) = wanted.pop() {
            if !seen.insert(target.clone()) {
                continue;
            }
            if passes == 0 {
                for rule in &self.rules {
                    add(&rule.file, "all rules".to_owned(), &rule.text);
                    used.push_str(&rule.text);
                }
                break;
            }
            passes -= 1;
            let exact = self.rules.iter().any(|r| !r.recipe.is_empty() && r.targets.contains(&target));
            for rule in &self.rules {
                let hit = rule.targets.contains(&target) || (!exact && rule.targets.iter().any(|t| fits(t, &target)));
                if hit {
                    add(&rule.file, format!("target {target}"), &rule.text);
                    used.push_str(&rule.text);
                    used.push('\n');
                    out.recipes.extend(rule.recipe.iter().map(|line| self.expand(line)));
                    wanted.extend(rule.prerequisites.iter().cloned());
                }
            }
        }
        for rule in &self.rules {
            if rule.targets.iter().any(|t| SPECIAL.contains(&t.as_str())) {
                add(&rule.file, format!("target {}", rule.targets.join(" ")), &rule.text);
            }
            if rule.targets.iter().any(|t| t == ".PHONY") {
                for target in rule.prerequisites.iter().filter(|p| seen.contains(*p)) {
                    add(&rule.file, format!("phony {target}"), "");
                }
            }
        }
        for (file, text) in &self.others {
            add(file, "other lines".to_owned(), text);
            used.push_str(text);
        }
        let names = self.used_variables(&used);
        let export_all = self.others.iter().any(|(_, text)| text.ends_with("|export"))
            || self.rules.iter().any(|r| r.targets.iter().any(|t| t == ".EXPORT_ALL_VARIABLES"));
        for (file, name, text) in &self.assignments {
            // What is exported reaches every program a recipe starts, named there or not.
            let exported = export_all || text.contains("|export ") || text.contains("|override export ");
            if exported || names.contains(name.as_str()) || ALWAYS.contains(&name.as_str()) {
                add(file, format!("variable {name}"), text);
            }
        }
        for ((file, key), text) in texts {
            out.files.entry(file).or_default().insert(key, digest(text.as_bytes()));
        }
        out
    }

    fn default_goal(&self) -> Option<String> {
        if let Some(value) = self.values.get(".DEFAULT_GOAL") {
            return Some(value.trim().to_owned());
        }
        let ordinary = |t: &&String| (!t.starts_with('.') || t.contains('/')) && !t.contains('%');
        self.rules.iter().find_map(|rule| rule.targets.iter().find(ordinary).cloned())
    }

    /// Variables that `text` refers to, through each other.
    fn used_variables(&self, text: &str) -> BTreeSet<&str> {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        let mut pending: Vec<&str> = vec![text];
        let mut known: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (_, name, text) in &self.assignments {
            known.entry(name).or_default().push(text);
        }
        while let Some(text) = pending.pop() {
            // Any word that is a variable's name: references stand in functions and computed names too.
            for word in text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))) {
                if let Some((name, texts)) = known.get_key_value(word)
                    && names.insert(name)
                {
                    pending.extend(texts.iter().copied());
                }
            }
        }
        names
    }
}

/// The name in `(NAME)...` or `{NAME}...`.
fn reference(after: &str) -> Option<&str> {
    let close = match after.chars().next()? {
        '(' => ')',
        '{' => '}',
        _ => return None,
    };
    let (name, _) = after.get(1..)?.split_once(close)?;
    name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.')).then_some(name)
}

/// Targets and the rest of a rule's header: the first colon outside of references that begins no assignment.
fn rule_header(line: &str) -> Option<(&str, &str)> {
    let mut depth = 0_i32;
    for (at, c) in line.char_indices() {
        match c {
            '(' | '{' => depth += 1,
            ')' | '}' => depth -= 1,
            ':' if depth <= 0 => {
                return Some((line.get(..at)?.trim(), line.get(at + 1..)?.trim_start_matches(':').trim()));
            }
            _ => {}
        }
    }
    None
}

/// Name and value of `NAME = value` in all its forms.
fn assignment(line: &str) -> Option<(String, String)> {
    let mut rest = line;
    while let Some(after) =
        ["export ", "override ", "private ", "unexport "].iter().find_map(|word| rest.strip_prefix(word))
    {
        rest = after.trim_start();
    }
    let (left, value) = rest.split_once('=')?;
    let name = left.trim_end_matches([':', '?', '+', '!']).trim();
    let plain = !name.is_empty() && !name.contains([' ', '\t', ':', '$', '(', '#']);
    plain.then(|| (name.to_owned(), value.trim().to_owned()))
}

/// Whether the pattern `%.o` fits `target`.
fn fits(pattern: &str, target: &str) -> bool {
    pattern.split_once('%').is_some_and(|(before, after)| {
        target.len() > before.len() + after.len() && target.starts_with(before) && target.ends_with(after)
    })
}

/// Lines with continuations joined; a recipe keeps its leading tab.
fn logical_lines(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut joining = false;
    for line in text.lines() {
        let (body, continues) = line.strip_suffix('\\').map_or((line, false), |body| (body, true));
        match out.last_mut() {
            Some(last) if joining => {
                last.push(' ');
                last.push_str(body.trim_start());
            }
            _ => out.push(body.to_owned()),
        }
        joining = continues;
    }
    out
}

fn without_comment(line: &str) -> &str {
    line.split_once('#').map_or(line, |(before, _)| if before.ends_with('\\') { line } else { before })
}

fn squeeze(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether `path` is a makefile make would take by itself in the directory of `run`.
pub(super) fn shadows(run: &MakeRun, path: &str) -> bool {
    run.file.is_none() && parent(path) == run.dir
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "CC = gcc\nFLAGS := -q $(EXTRA)\nEXTRA = -x\nUNUSED = 1\nALL = unit e2e\n\nall: build\n\n.PHONY: all test lint\n\
                        build: $(OBJ)\n\t$(CC) -o app\n\ntest: build $(ALL)\n\t./run $(FLAGS) \\\n\t  --all\n\
                        unit:\n\t@npm run unit\ne2e: ; make -C sub go\nlint:\n\techo lint\n";

    fn parts(text: &str, goal: Option<&str>) -> Parts {
        let run = MakeRun { dir: String::new(), file: None, goal: goal.map(str::to_owned) };
        let read = |path: &str| match path {
            "Makefile" => Some(text.as_bytes().to_vec()),
            "inc.mk" => Some(b"inc:\n\techo included\n".to_vec()),
            _ => None,
        };
        let mut all = Parts::new();
        for (file, parts) in reach(&run, &read).unwrap().files {
            all.extend(parts.into_iter().map(|(k, v)| (format!("{file} {k}"), v)));
        }
        all
    }

    #[test]
    fn what_a_goal_reaches_counts() {
        let base = parts(BASE, Some("test"));
        for (from, to) in [
            ("./run $(FLAGS)", "true $(FLAGS)"),
            ("$(CC) -o app", "true"),
            ("EXTRA = -x", "EXTRA = --no-tests"),
            ("CC = gcc", "CC = true"),
            ("npm run unit", "true"),
            ("ALL = unit e2e", "ALL = unit"),
            ("CC = gcc", "SHELL = /bin/true\nCC = gcc"),
            ("CC = gcc", "CC = gcc\n.IGNORE:"),
            ("CC = gcc", "CC = gcc\nexport PYTEST_ADDOPTS = --deselect x"),
            ("\t  --all\n", "\t  --all\n\t@exit 0\n"),
            (".PHONY: all test lint", ".PHONY: all lint"),
            ("test: build", "ifdef NEVER\ntest: build"),
            ("lint:\n", "lint:\ntest: ; true\nx:\n"),
            ("test: build", "test: FLAGS = --none\ntest: build"),
        ] {
            assert!(BASE.contains(from), "{from}");
            assert_ne!(parts(&BASE.replace(from, to), Some("test")), base, "{to}");
        }
    }

    #[test]
    fn what_a_goal_does_not_reach_is_free() {
        let base = parts(BASE, Some("test"));
        for (from, to) in [
            ("echo lint", "echo other"),
            ("UNUSED = 1", "UNUSED = 2\nNEW = 3"),
            ("lint:\n", "new:\n\techo new\nlint:\n"),
            (".PHONY: all test lint", "# comment\n.PHONY: all test lint new"),
            ("test: build $(ALL)", "test:   build  $(ALL)   # why"),
        ] {
            assert!(BASE.contains(from), "{from}");
            assert_eq!(parts(&BASE.replace(from, to), Some("test")), base, "{to}");
        }
    }

    #[test]
    fn default_goal_includes_and_inner_commands() {
        assert!(parts(BASE, None).contains_key("Makefile target build"));
        assert_ne!(parts(&format!("first:\n\ttrue\n{BASE}"), None), parts(BASE, None));
        let with = format!("{BASE}include inc.mk\n");
        assert!(parts(&with, Some("inc")).contains_key("inc.mk target inc"));
        let run = MakeRun { dir: String::new(), file: None, goal: Some("test".into()) };
        let recipes = reach(&run, &|p| (p == "Makefile").then(|| BASE.as_bytes().to_vec())).unwrap().recipes;
        assert!(recipes.iter().any(|r| r == "npm run unit") && recipes.iter().any(|r| r == "make -C sub go"));
    }
}
